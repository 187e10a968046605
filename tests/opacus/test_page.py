"""The page of an Opacus run: its sensitive parts are marked."""

import re
import warnings
from pathlib import Path

import pytest
from torch import nn

opacus = pytest.importorskip("opacus")

from ringfence.numerics.rounding import rounded_up  # noqa: E402
from ringfence.opacus import OpacusRun, watch  # noqa: E402
from ringfence.opacus.page import run_report  # noqa: E402
from tests.opacus.runs import made_private, network, trained  # noqa: E402


@pytest.fixture(scope="module")
def run() -> OpacusRun:
    engine, model, optimizer, loader = made_private(network(), noise_multiplier=0.2)
    run = watch(engine, model, optimizer, loader, loss=nn.functional.cross_entropy, fisher_every=2)
    trained(run.loader, model, optimizer, epochs=1)
    return run


def test_only_the_promise_may_be_published(run: OpacusRun, tmp_path: Path) -> None:
    report = run_report(run, 1e-3)
    assert [section.sensitive for section in report.sections] == [False, True, True, True]
    published = run.save(tmp_path / "public.html", delta=1e-3, publishable=True).read_text()
    epsilon = rounded_up(run.guarantee(1e-3).epsilon_data_independent)
    assert f"4 steps satisfy ({epsilon}, 0.001)-differential privacy." in published
    assert "counts as public" in published
    for section in report.sections[1:]:
        assert section.heading not in published
    whole = run.save(tmp_path / "run.html", delta=1e-3).read_text()
    assert all(section.heading in whole for section in report.sections)


def test_tables_are_rounded_up(run: OpacusRun) -> None:
    report = run_report(run, 1e-3)
    proved, estimated = report.sections[1].tables[0].rows
    epsilons = run.example_epsilons(1e-3)
    assert float(proved[-1]) >= float(epsilons.max())
    assert float(proved[1]) >= float(epsilons.min()) > 0
    assert float(estimated[2]) <= float(proved[2])
    (etas,) = report.sections[2].tables[0].rows
    found = run.fisher_information_loss()
    assert float(etas[-1]) >= float(found.nan_to_num().max()) > 0
    unmeasured = int(found.isnan().sum())
    assert f"Never measured: {unmeasured} of {len(found)} examples" in report.sections[2].charts[0].caption


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "opacus.md").read_text()
    names: dict[str, object] = {}
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus and torch
        for code in re.findall(r"```python\n(.*?)```", guide, re.S):
            exec(code, names)
    assert (tmp_path / "run.html").exists()
    assert names["run"].steps == 4
    assert names["engine"].clip.norm == 1.0

"""A law of the package works everywhere: on the command line, in sweeps, audits, charts and the docs.

What a law computes is in tests/mechanisms/test_contract.py, and a grid of probes in
tests/experiments/test_linear_grid.py. Like those, these tests run for every row of tests/mechanisms/cases.py.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import ringfence as rf
from experiments.sweep.probes import read_rows, run_sweep
from experiments.sweep.settings import Grid
from ringfence.accounting.profile import fixed_theta_guarantee
from ringfence.report.chart import Chart, Line, Panel, looks
from ringfence.report.drawing import paper_figure
from tests.audit.releases import Target, audit_release, example, printed_claims
from tests.experiments.sweep.sweeps import DATA
from tests.mechanisms.cases import CASES, Case
from tests.shell import ringfence
from tests.tensors import float64

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
NOTATION = Path(__file__).parent.parent / "docs" / "notation.md"
OPTIONS = {"sigma": 1.0, "bound": 2.0, "levels": 3}


def law(case: Case) -> rf.Mechanism:
    return case.make(1.0, -1.5, 2.0)


def own(case: Case) -> dict[str, float]:
    return {field: OPTIONS[field] for field in law(case).fields()}


def test_every_law_of_the_package_has_a_row_of_the_contract() -> None:
    known = {name for name, own in rf.Mechanism.known().items() if own.__module__.startswith("ringfence.")}
    assert known == {law(case).name for case in CASES} == {case.name for case in CASES}


@every_case
def test_it_is_exported_and_in_the_table_of_laws(case: Case) -> None:
    name = type(law(case)).__name__
    assert getattr(rf, name) is type(law(case))
    assert f"| `{name}({', '.join(law(case).fields())})` |" in NOTATION.read_text()


@every_case
def test_the_command_line_accounts_for_it(case: Case, tmp_path: Path) -> None:
    theta = np.linspace(-3, 3, 40)
    np.save(tmp_path / "theta.npy", theta)
    options = [text for field, value in own(case).items() for text in (f"--{field}", value)]
    run = ringfence(
        "account", tmp_path / "theta.npy", "--mechanism", case.name, *options, "--sensitivity", 0.01, "--json"
    )
    assert run.returncode == 0, run.stderr
    law = rf.Mechanism.by_name(case.name, **own(case))
    expected = fixed_theta_guarantee(law, torch.from_numpy(theta), 0.01, 1, 1e-5).per_instance.epsilon
    assert json.loads(run.stdout)["per_instance"]["epsilon"] == pytest.approx(expected, rel=1e-6)


def test_the_command_line_names_every_law() -> None:
    shown = " ".join(ringfence("account", "--help").stdout.split())
    for case in CASES:
        assert case.name in shown


@every_case
def test_a_sweep_trains_with_it(case: Case, tmp_path: Path) -> None:
    grid = Grid(
        "toy", (case.name,), (0.1,), (100.0,), (30.0,), (4.0,), (2,), levels=(3,), seeds=(0,), classes=3
    )
    run_sweep(grid, DATA, tmp_path)
    [row] = read_rows(tmp_path).itertuples()
    assert row.law == law(case).label
    assert 0 < row.epsilon_pdp <= row.gaussian_epsilon_pdp * (1 + 1e-9)


@every_case
def test_a_secure_release_lies_in_its_support(case: Case) -> None:
    mechanism, theta = law(case), float64([-9.0, -1.0, 0.2, 5.0]).repeat(500)
    released = mechanism.release(theta)
    assert bool(torch.isfinite(mechanism.log_prob(released, theta)).all())
    assert bool((mechanism.log_prob(released, theta) > -60).all())  # nothing that the law hardly ever gives


@every_case
def test_an_attack_on_it_proves_something_and_less_than_is_claimed(case: Case) -> None:
    result = audit_release(
        Target(example(type(law(case)), 1.0, 2.0), float64([0.2, -0.3]), 1.5, 0.05),
        trials=4000,
        generator=torch.Generator().manual_seed(0),
        claims=printed_claims,
    )
    assert result.holds
    assert result.epsilon_lower > 0.1


@every_case
def test_charts_draw_it_by_its_label(case: Case) -> None:
    mechanism = law(case)
    assert mechanism.label.split(",")[0].split() == [mechanism.label]  # one word, by which a line is known
    lines = tuple(Line(one.label, (1.0, 2.0), (3.0, 4.0)) for one in map(law, CASES))
    chart = Chart("laws", "", "", (Panel("", "x", "y", lines),))
    by_label = looks(chart)
    others = [by_label[one.label] for one in map(law, CASES) if one.label != mechanism.label]
    assert by_label[mechanism.label] not in others
    paper_figure(chart)

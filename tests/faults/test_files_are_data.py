"""Nothing in a file is run, no name in a file leads out of its folder, and no text becomes markup."""

import ast
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import experiments
import ringfence
from experiments.__main__ import main
from experiments.comparison import compare, compare_all
from experiments.comparison_page import Compared, write_comparison
from experiments.sweep.probes import read_rows, run_sweep
from tests.experiments.sweep.sweeps import DATA, GRID

SOURCES = sorted(
    path for package in (ringfence, experiments) for path in Path(package.__path__[0]).rglob("*.py")
)
# modules whose loading runs what a file says
RUN = {
    *("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "yaml", "runpy", "torch.hub")
}
ALLOWED = {("runner.py", "pickle")}  # a sweep pickles what its own processes do
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "torch.package", "pandas.read_pickle"}


def test_nothing_that_runs_files_is_imported_or_called() -> None:
    nodes = ((path, node) for path in SOURCES for node in ast.walk(ast.parse(path.read_text())))
    for path, node in nodes:
        if isinstance(node, ast.Import):
            for name in RUN & {alias.name for alias in node.names}:
                assert (path.name, name) in ALLOWED, ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            assert node.module not in RUN, ast.unparse(node)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in CALLS, ast.unparse(node)
            if name in ("np.load", "np.lib.format.read_array"):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                assert given.get("allow_pickle") == "False", ast.unparse(node)


def test_the_search_above_looks_at_what_it_should() -> None:
    assert len(SOURCES) > 100
    text = "".join(path.read_text() for path in SOURCES)
    assert len(re.findall(r"np\.load\(|read_array\(m", text)) >= 2


HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(1)>[/bold]'


def test_the_name_of_the_data_is_text_on_the_page_and_in_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = replace(GRID, name=HOSTILE, clip=(0.1,), learning_rate=(4.0,))
    run_sweep(grid, DATA, tmp_path)
    rows = read_rows(tmp_path)
    [result] = compare(rows)
    assert result.data == HOSTILE
    path = tmp_path / f"{HOSTILE.replace('/', '')}.html"
    page = write_comparison([Compared([result], compare_all(rows))], path).read_text()
    assert "alert(" in page
    assert HOSTILE not in page
    assert "<img src=x" not in page
    assert '<script>alert("1")' not in page
    monkeypatch.setattr(sys, "argv", ["experiments", "compare", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"^0$"):
        main()
    said = " ".join(capsys.readouterr().out.split())
    assert "[/bold]: epsilon by accuracy" in said  # the title of a table
    assert "[/bold]: N" in said or "[/bold]: Y" in said  # the answer

"""The command compare: one sentence, and a table that says never where a mechanism never arrives."""

import json
from pathlib import Path

from rich.console import Console

import ringfence as ringfence_package
from experiments.__main__ import terminal_table
from experiments.comparison.comparison import compare
from experiments.comparison.page import comparison_table
from tests.afresh import afresh
from tests.experiments.comparison.test_comparison import sweep
from tests.shell import experiments


def test_the_table_holds_the_numbers() -> None:
    result = compare(sweep("gaussian", 1.0) + sweep("truncated", 0.5, best=0.6))
    console = Console(width=80)
    with console.capture() as text:
        console.print(terminal_table(comparison_table(result)))
    lines = {line[:9].strip(): line[9:].split() for line in text.get().splitlines()}
    assert lines["45 %"] == ["2.03", "1.02"]  # 10 * 0.45^2 = 2.025, rounded up
    assert lines["90 %"] == ["8.11", "never"]
    assert "toy: per-instance epsilon by accuracy on a validation part" in " ".join(text.get().split())


def test_compare_says_yes_or_no_in_one_sentence(swept: Path) -> None:
    run = experiments("compare", swept / "out")
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(("toy: Yes", "toy: No"))
    assert max(map(len, run.stdout.splitlines())) <= 80
    said = " ".join(run.stdout.split())
    assert "the cost of tuning is not in epsilon" in said
    assert "different numbers of settings" in said  # the Gaussian had 2, the truncated law 4
    found = json.loads(experiments("compare", swept / "out", "--json").stdout)
    (one,) = found["comparisons"]
    assert found["winners"][0]["sentence"] in said
    assert found["winners"][0].keys() == {
        "data",
        "targets",
        "counts_from",
        "reference",
        "candidates",
        "sentence",
    }
    assert one.keys() == {
        *("data", "kind", "rows", "helped", "sentence", "warnings", "validated", "counts_from")
    }
    assert one["data"] == "toy"
    assert {row["mechanism"] for row in one["rows"]} >= {"Gaussian", "truncated"}


def test_comparing_finished_sweeps_loads_neither_training_nor_scikit_learn(swept: Path) -> None:
    """Whoever receives a sweep compares it without what made it."""
    program = (
        "import sys, types, pathlib\n"
        # The package without its __init__, which exports training too: what the files themselves import.
        "package = types.ModuleType('ringfence')\n"
        "package.__path__, package.__version__ = [sys.argv[1]], ''\n"
        "sys.modules['ringfence'] = package\n"
        "from experiments.__main__ import compared, terminal_table\n"
        "from experiments.comparison.page import comparison_table, write_comparison\n"
        "import ringfence.mechanisms.gaussian, ringfence.mechanisms.truncated  # as __init__ does\n"
        "[([one], best)] = compared([pathlib.Path(sys.argv[2])], 'per-instance')\n"
        "terminal_table(comparison_table(one))\n"
        "write_comparison([([one], best)], pathlib.Path(sys.argv[2]) / 'report.html')\n"
        "print(one.data, [name for name in sys.modules if name.startswith('ringfence.training')])"
    )
    run = afresh(program, Path(ringfence_package.__file__).parent, swept / "out", without=["sklearn"])
    assert run.stdout == "toy []\n", run.stderr

"""The tool that looks for missing tests: what it changes, and that its verdict can go either way."""

import json
import os
from pathlib import Path

import pytest

from tests.breakages import ROOT
from tests.mutants import __main__ as main
from tests.mutants.__main__ import report, sampled, target_files
from tests.mutants.mutations import SIZES, mutants
from tests.mutants.selection import Selection

SOURCE = '''
"""A docstring with 1 number."""
if TYPE_CHECKING:
    import a
LIMIT: Final = 2.0
Kind = Literal["a", "b"]

def rate(x: Literal[3], y: int = 4) -> float:
    """Another, 5."""
    if x <= y and not done:
        raise ValueError(f"6 {x + 7}")
    return min(x, -y) * pow(8, x)[zip(x, strict=True)]

@lru_cache(maxsize=9)
def kept(): ...
'''


def test_changes() -> None:
    found = {(one.line, one.before, one.after) for one in mutants("a.py", SOURCE)}
    assert found == {
        (5, "2.0", "3.0"),
        (8, "4", "5"),
        (10, "x <= y and not done", "True"),
        (10, "x <= y and not done", "False"),
        (10, "<=", "<"),
        (10, "and", "or"),
        (10, "not ", ""),
        (12, "min(x, -y) * pow(8, x)[zip(x, strict=True)]", "None"),
        (12, "min", "max"),
        (12, "8, x", "x, 8"),
        (12, "-", ""),
        (12, "*", "/"),
        (12, "8", "9"),
    }


def test_applied_in_bytes_and_still_python() -> None:
    source = "def f(x):\n    return 'θ', x + 1, x.clamp(min=0, max=9)\n"
    found = {(one.before, one.after): one for one in mutants("a.py", source)}
    assert found["+", "-"].apply(source) == source.replace("+", "-")
    assert ("min", "max") not in found  # one keyword twice
    assert not found["+", "-"].everywhere
    assert [one.everywhere for one in mutants("a.py", "@cache\ndef f():\n    return 1\n")] == [True, True]


def test_same_share_of_every_file() -> None:
    files = [file for file in target_files() if "/numerics/" in file]
    everything = {file: mutants(file, (ROOT / file).read_text()) for file in files}
    chosen = sampled(everything, 100, seed=0)
    assert chosen == sampled(everything, 100, seed=0) != sampled(everything, 100, seed=1)
    total = sum(map(len, everything.values()))
    for file, found in everything.items():
        share = sum(one.file == file for one in chosen)
        assert abs(share - 100 / total * len(found)) <= 0.5


def test_tests_of_the_file_come_first_then_quick_ones_and_the_budget_holds() -> None:
    one = next(one for one in mutants("src/ringfence/sign.py", "def f():\n    return 1\n"))
    names = (
        "tests/test_z.py::quick",
        "tests/test_sign.py::slow",
        "tests/test_z.py::slower[sign]",
        "tests/b.py::slow",
    )
    seconds = dict(zip(names, (0.1, 2.0, 3.0, 4.0), strict=True))
    selection = Selection(seconds, {"src/ringfence/sign.py": {2: set(names)}})
    assert selection.tests(one, budget=100.0) == [names[1], names[2], names[0], names[3]]
    assert selection.tests(one, budget=5.5) == [names[1], names[2], names[0]]
    assert selection.tests(one, budget=1.0) == [names[1]]


def test_a_file_changed_since_it_was_measured_is_given_all_of_its_tests(tmp_path: Path) -> None:
    from coverage import CoverageData

    file, durations = "src/ringfence/a.py", tmp_path / "durations"
    names = [
        "tests/test_a.py::one",
        "tests/test_a.py::two",
        "tests/test_a.py::failed",
        "tests/gone.py::three",
    ]
    for path in (tmp_path / file, tmp_path / "tests/test_a.py"):
        path.parent.mkdir(parents=True)
        path.write_text("one\ntwo\n")
    outcomes = zip(names, ("passed", "passed", "failed", "passed"), strict=True)
    durations.write_text("".join(json.dumps([name, outcome, 2.0]) + "\n" for name, outcome in outcomes))
    data = CoverageData(str(tmp_path / "coverage"))
    for line, some in enumerate((names[:1], names[1:]), 1):
        for name in some:
            data.set_context(f"{name}|run")
            data.add_lines({str(tmp_path / file): [line]})
    data.write()
    for changed, first in ((0, set(names[:1])), (2**40, set(names[:2]))):
        os.utime(tmp_path / file, (changed, changed))
        selection = Selection.measured(tmp_path / "coverage", tmp_path, [file], durations)
        assert selection.files[file][1] == first
        assert selection.seconds[names[0]] == 2.0


def test_sizes_left_alone_are_constants_of_their_files() -> None:
    for file, names in SIZES.items():
        source = (ROOT / file).read_text()
        found, without_the_table = mutants(file, source), mutants("a.py", source)
        for name in names:
            at = source.index(f"\n{name} = ") + 1
            line = source.count("\n", 0, at) + 1
            assert not any(one.line == line for one in found)
            assert any(one.line == line for one in without_the_table)


def test_report_fails_below_nine_in_ten(capsys: pytest.CaptureFixture[str]) -> None:
    file, other = "src/ringfence/training/a.py", "src/ringfence/noise.py"
    killed, survived = [(file, "killed")], [(file, "survived")]
    assert report(9 * killed + survived) == 0
    assert report(8 * killed + [(file, "timeout")] + survived) == 0
    assert report(8 * killed + 2 * survived) == 1
    assert report(8 * killed + [(file, "uncovered")] + [(file, "error")]) == 1
    assert "8 of    10   80.0%  all" in capsys.readouterr().out
    assert (
        report(99 * [(other, "killed")] + killed + survived) == 1
    )  # one package is not made up for by others
    assert "1 of     2   50.0%  training" in capsys.readouterr().out


SMALL = {
    "src/a.py": "def least(x):\n    while x < 0:\n        x += 1\n    return x\n",
    "test_a.py": "from a import least\ndef test_it():\n    assert least(-2) == 0\n    assert least(3) == 3\n",
    "conftest.py": "from hypothesis import settings\nsettings.register_profile('first')\n",
}


def test_verdict_can_go_either_way_and_what_loops_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_SLACK", 20.0)
    (tmp_path / "src").mkdir()
    for name, content in SMALL.items():
        (tmp_path / name).write_text(content)
    found = {(one.before, one.after): one for one in mutants("src/a.py", SMALL["src/a.py"])}
    asked = {
        ("x < 0", "False"): ("killed", "test_a.py::test_it"),
        ("1", "2"): ("survived", ""),
        ("<", "<="): ("uncovered", ""),
        ("+", "-"): ("timeout", ""),
    }
    jobs = [
        (found[change], ["test_a.py::test_it"] if outcome != "uncovered" else [], -4.0)
        for change, (outcome, _) in asked.items()
    ]
    done = list(main.verdicts(jobs, tmp_path, workers=1))
    assert [(outcome, test) for _, outcome, test, _ in done] == list(asked.values())
    [(_, outcome, *_)] = main.verdicts([(jobs[0][0], ["test_b.py"], 0.0)], tmp_path, workers=1)
    assert outcome == "error"
    assert (tmp_path / "src/a.py").read_text() == SMALL["src/a.py"]

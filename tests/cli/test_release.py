"""``ringfence release``: one command from a CSV file to files that may be published."""

import json
from pathlib import Path

import pytest

from tests.shell import ringfence

HEAD = "id,region,age,income\n"
BUDGET = ["--epsilon", 1, "--delta", 1e-6]
REGIONS = ["--by", "region", "--domain", "region=north,south,west"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    north = (f"{number},north,{number % 90},1000\n" for number in range(300))
    south = (f"{number},south,{number % 90},3000\n" for number in range(300, 500))
    (folder / "1.csv").write_text(HEAD + "".join(north))
    (folder / "2.csv").write_text(HEAD + "".join(south))
    return folder


def test_counts_of_many_files(people: Path, tmp_path: Path) -> None:
    command = [people / "*.csv", "--by", "region,age", "--domain", "region=north,south,west"]
    options = ["--bins", "age=0,18,65,inf", "--suppress", 20, "--person", "id", "--out", tmp_path]
    run = ringfence("release", "counts", *command, *options, *BUDGET)
    assert run.returncode == 0, run.stderr
    assert "for each person: random noise" in run.stdout
    assert run.stdout.count("<20") == 3  # the west
    assert f"{tmp_path / 'account.json'}  (private)" in run.stdout
    assert {path.name for path in tmp_path.iterdir()} == {
        *("table.csv", "statement.txt", "chart.png", "chart.pdf", "report.html", "account.json")
    }
    private = json.loads((tmp_path / "account.json").read_text())
    assert sum(private["cell_values"]) == 500
    assert "cell_values" not in run.stdout


def test_means_as_json_hold_nothing_private(people: Path, tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text('region = ["north", "south"]\n')
    command = [people / "1.csv", people / "2.csv", "--of", "income", "--by", "region"]
    options = ["--domain", tmp_path / "domain.toml", "--lower", 0, "--upper", 4000, "--out", tmp_path]
    run = ringfence("release", "means", *command, *options, *BUDGET, "--json")
    assert run.returncode == 0, run.stderr
    read = json.loads(run.stdout)
    assert read.keys() == {"statement", "epsilon", "delta", "columns", "errors", "files"}
    assert read["epsilon"] <= 1.0
    assert read["columns"]["mean"] == pytest.approx([1000, 3000], abs=500)


def test_counts_that_were_aggregated(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("region,n\nnorth,100\nsouth,50\n")
    options = ["--counts", "n", "--sigma", 2, "--out", tmp_path]
    run = ringfence("release", "counts", tmp_path / "counts.csv", *REGIONS, *options)
    assert run.returncode == 0, run.stderr
    assert "came aggregated" in (tmp_path / "statement.txt").read_text()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (["--by", "region"], "domain= must list the public values of column 'region'"),
        (["--by", "region", "--domain", "region=north"], "column 'region' has the value 'south', which its"),
        ([*REGIONS, "--domain", "region=east"], "--domain must give each column once, got 'region' twice"),
        (["--by", "region", "--domain", "regions.txt"], "--domain must be NAME=VALUE,VALUE or a .toml"),
        (["--by", "region", "--domain", "none.toml"], "No such file or directory: none.toml"),
        (["--by", "age", "--bins", "age=0,old"], "--bins must be NAME=EDGE,EDGE with numbers as edges"),
        (["--by", "age", "--bins", "age=0,50"], "column 'age' has the value '"),
        ([*REGIONS, "--person", "name"], "person names the column 'name', which the table lacks"),
        ([*REGIONS, "--suppress", "-1"], "suppress_below must be >= 0, got -1"),
        ([*REGIONS, "--sigma", "3"], "epsilon or sigma must be given, and not both"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_no_file(
    people: Path, change: list[str], complaint: str, tmp_path: Path
) -> None:
    run = ringfence("release", "counts", people / "*.csv", *change, *BUDGET, "--out", tmp_path / "out")
    assert (run.returncode, run.stdout) == (2, "")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_bad_files_of_domains(people: Path, tmp_path: Path) -> None:
    for text, complaint in (("region = 3", "must hold a list of values"), ("region", "domain.toml: ")):
        (tmp_path / "domain.toml").write_text(text)
        options = ["--by", "region", "--domain", tmp_path / "domain.toml"]
        run = ringfence("release", "counts", people / "1.csv", *options, *BUDGET)
        assert run.returncode == 2
        assert complaint in run.stderr

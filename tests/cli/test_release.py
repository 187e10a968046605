"""``ringfence release``: one command from a CSV file to files that may be published."""

import json
import sys
from pathlib import Path

import pytest

import ringfence.releases.counts as ringfence_counts
from ringfence.cli.app import main
from ringfence.cli.release import read_domains
from tests.afresh import written_to
from tests.forks import forked
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
    options = ["--bins", "age=0,18,65,inf", "--suppress-below", 20, "--person", "id", "--out", tmp_path]
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
    before = (tmp_path / "table.csv").read_bytes()
    again = ringfence("release", "counts", *command, *options, *BUDGET)
    assert (again.returncode, again.stdout) == (2, "")
    assert "must be a new folder or an empty one: give another name" in again.stderr
    assert (tmp_path / "table.csv").read_bytes() == before


def test_means_as_json_hold_nothing_private(people: Path, tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text('region = ["north", "south"]\n')
    command = [people / "1.csv", people / "2.csv", "--of", "income", "--by", "region"]
    options = ["--domain", tmp_path / "domain.toml", "--lower", 0, "--upper", 4000, "--out", tmp_path / "out"]
    run = ringfence("release", "means", *command, *options, *BUDGET, "--json")
    assert run.returncode == 0, run.stderr
    read = json.loads(run.stdout)
    assert read.keys() == {"statement", "epsilon", "delta", "columns", "errors", "files"}
    assert read["epsilon"] <= 1.0
    assert read["columns"]["mean"] == pytest.approx([1000, 3000], abs=500)


def test_counts_that_were_aggregated(tmp_path: Path) -> None:
    (tmp_path / "counts.csv").write_text("region,n\nnorth,100\nsouth,50\n")
    options = ["--counts", "n", "--sigma", 2, "--out", tmp_path / "out"]
    run = ringfence("release", "counts", tmp_path / "counts.csv", *REGIONS, *options)
    assert run.returncode == 0, run.stderr
    assert "came aggregated" in (tmp_path / "out" / "statement.txt").read_text()


def test_votes_and_winners_keep_their_chances_of_error(tmp_path: Path) -> None:
    """They depend on the ballots: in the private account, and in nothing that is printed."""
    ballots = "".join(f"{row},{1 if row % 3 else -1},{-1 if row % 4 else ''},x\n" for row in range(90))
    (tmp_path / "votes.csv").write_text(f"id,trees,cars,note\n{ballots}")
    options = ["--person", "id", "--ignore", "note", "--sigma", 3, "--publish-epsilon"]
    run = ringfence("release", "votes", tmp_path / "votes.csv", *options, "--out", tmp_path / "v", "--json")
    assert run.returncode == 0, run.stderr
    read = json.loads(run.stdout)
    assert read.keys() == {"statement", "epsilon", "delta", "columns", "files"}
    assert read["columns"] == {"question": ["trees", "cars"], "answer": ["yes", "no"]}
    assert len(json.loads((tmp_path / "v" / "account.json").read_text())["chances_of_error"]) == 2
    assert "this number together" in (tmp_path / "v" / "statement.txt").read_text()
    (tmp_path / "counts.csv").write_text("place,cat,dog\na,200,3\nb,4,150\nc,60,50\n")
    options = ["--query", "place", "--sigma", 5, "--confident-above", 120, "--threshold-sigma", 5]
    run = ringfence("release", "winners", tmp_path / "counts.csv", *options, "--out", tmp_path / "w")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "w" / "table.csv").read_text() == "query,winner\na,cat\nb,dog\nc,no answer\n"
    assert "chance_of_error" not in run.stdout
    (tmp_path / "ballots.csv").write_text("lunch,dinner\n" + "soup,pasta\n" * 300 + "soup,\n" * 90)
    options = ["--candidates", "soup,pasta", "--epsilon", 3, "--neighbours", "added", "--at-most", 1]
    run = ringfence("release", "winners", tmp_path / "ballots.csv", *options, "--out", tmp_path / "b")
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "b" / "table.csv").read_text() == "query,winner\nlunch,soup\ndinner,pasta\n"


@pytest.mark.parametrize(
    ("job", "text", "options", "complaint"),
    [
        ("votes", "a,b\n1,2\n", [], "column 'b' must hold 1 (yes), -1 (no) or 0, got '2'"),
        ("votes", "a,b\n", [], "the table must have at least one row, got none"),
        ("votes", "a\n1\n", ["--person", "id"], "person names the column 'id', which the table lacks"),
        ("votes", "a\n1\n", ["--neighbours", "both"], "neighbours must be"),
        ("winners", "a\n1\n", [], "data must have at least 2 candidates (columns), got 1"),
        ("winners", "a,b\n1,0.5\n", [], "column 'b' must hold counts (0, 1, 2, ...), got '0.5'"),
        ("winners", "a,b\n1,-2\n", [], "column 'b' must hold counts (0, 1, 2, ...), got '-2'"),
        ("winners", "a\nx\n", ["--candidates", "y,z"], "column 'a' must hold a candidate, got 'x'"),
        ("winners", "a,b\n1,2\n", ["--at-most", "1"], "at_most must be left out where neighbours is"),
    ],
)
def test_bad_ballots_are_one_line_and_no_file(
    job: str, text: str, options: list[str], complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text(text)
    run = ringfence("release", job, tmp_path / "in.csv", *options, *BUDGET, "--out", tmp_path / "out")
    assert (run.returncode, run.stdout) == (2, "")
    assert complaint in run.stderr
    assert run.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


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
        ([*REGIONS, "--suppress-below", "-1"], "suppress_below must be at least 0, got -1"),
        ([*REGIONS, "--sigma", "3"], "epsilon or sigma must be given, and not both"),
        ([*REGIONS, "--suppress", "3"], "No such option: --suppress (Possible options: --suppress-below)"),
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


def release(words: list[str], files: tuple[Path, Path]) -> None:
    """The command, in a process of its own."""
    written_to(files)
    sys.argv = ["ringfence", *words]
    main()


def test_one_of_three_processes_gets_the_folder(people: Path, tmp_path: Path) -> None:
    """What the others would have released is not released: they are refused before."""
    out, output = tmp_path / "releases" / "release", tmp_path / "output"
    command = ["release", "counts", people / "*.csv", *REGIONS, "--suppress-below", 20, *BUDGET, "--out", out]
    output.mkdir()
    files = [(output / f"{number}.out", output / f"{number}.err") for number in range(3)]
    runs = [forked(release, [*map(str, command), "--json"], pair) for pair in files]
    for run in runs:
        run.join(120)
    said = [(out.read_text(), err.read_text()) for out, err in files]
    (done,) = (number for number, run in enumerate(runs) if run.exitcode == 0)
    released = json.loads(said[done][0])
    assert all("another process" in err or "give another" in err for out, err in said if not out)
    table = (out / "table.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in table] == [
        "<20" if count is None else str(count) for count in released["columns"]["count"]
    ]
    assert [path.name for path in out.parent.iterdir()] == ["release"]


def test_a_folder_that_is_taken_is_refused_before_anything_is_released(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringfence_counts, "release_counts", pytest.fail)
    (tmp_path / "out.tmp").mkdir()
    run = ringfence("release", "counts", people / "1.csv", *REGIONS, *BUDGET, "--out", tmp_path / "out")
    assert "out.tmp is being written by another process, or one that was killed left it" in run.stderr
    assert run.returncode == 2


@pytest.mark.parametrize(
    ("text", "complaint"), [("region = 3", "must hold a list of values"), ("region", r"domain\.toml: ")]
)
def test_bad_files_of_domains(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        read_domains([str(tmp_path / "domain.toml")])


def test_domains_in_files(tmp_path: Path) -> None:
    (tmp_path / "domain.json").write_text('{"region": ["north", 7]}')
    assert read_domains([str(tmp_path / "domain.json"), "a=x,"]) == {"region": ["north", 7], "a": ["x", None]}

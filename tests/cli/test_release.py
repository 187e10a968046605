"""``ringfence release``: one command from a CSV file to files that may be published."""

import inspect
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import ringfence as rf
from ringfence.cli.app import main
from ringfence.cli.release import read_domains
from ringfence.cli.release import release as release_commands
from ringfence.releases.budget import Budget
from tests.afresh import written_to
from tests.forks import forked
from tests.shell import ran, refused, ringfence

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


@pytest.mark.parametrize("job", ["counts", "shares", "means", "sums", "quantiles", "votes", "winners"])
def test_the_shell_has_every_argument_but_a_seed(job: str) -> None:
    (command,) = (one for one in release_commands.registered_commands if one.name == job)
    assert command.callback is not None
    _, *arguments = inspect.signature(getattr(rf, f"release_{job}")).parameters
    assert {*arguments} - {*inspect.signature(command.callback).parameters} == {"seed"}


def test_counts_of_many_files(people: Path, tmp_path: Path) -> None:
    command = [people / "*.csv", "--by", "region,age", "--domain", "region=north,south,west"]
    public, own = tmp_path / "public", tmp_path / "own"
    options = ["--bins", "age=0,18,65,inf", "--suppress-below", 20, "--person", "id", "--out", public]
    options += ["--private", own]
    said = ran("release", "counts", *command, *options, *BUDGET)
    assert "for each person: Laplace noise" in said
    assert said.count("<20") == 3  # the west
    assert f"{own / 'account.json'}  (private)" in said
    assert {path.name for path in public.iterdir()} == {
        *("table.csv", "table_wide.csv", "statement.txt", "chart.png", "report.html")
    }
    private = json.loads((own / "account.json").read_text())
    assert sum(private["cell_values"]) == 500
    assert "cell_values" not in said
    before = (public / "table.csv").read_bytes()
    again = refused("release", "counts", *command, *options, *BUDGET)
    assert "must be a new folder or an empty one: give another name" in again
    assert (public / "table.csv").read_bytes() == before


def test_means_as_json_hold_nothing_private(people: Path, tmp_path: Path) -> None:
    (tmp_path / "domain.toml").write_text('region = ["north", "south"]\n')
    command = [people / "1.csv", people / "2.csv", "--of", "income", "--by", "region"]
    options = ["--domain", tmp_path / "domain.toml", "--lower", 0, "--upper", 4000, "--out", tmp_path / "out"]
    said = ran("release", "means", *command, *options, *BUDGET, "--json")
    read = json.loads(said)
    assert read.keys() == {"statement", "epsilon", "delta", "columns", "errors", "files"}
    assert read["epsilon"] <= 1.0
    assert read["columns"]["mean"] == pytest.approx([1000, 3000], abs=500)


def test_votes_and_winners_keep_their_chances_of_error(tmp_path: Path) -> None:
    """They depend on the ballots: in the private account, and in nothing that is printed."""
    questions = ["trees", "cars", *(f"q{number}" for number in range(40))]
    rest = ",1" * 40
    ballots = "".join(f"{row},{1 if row % 3 else -1},{-1 if row % 4 else ''}{rest},x\n" for row in range(90))
    (tmp_path / "votes.csv").write_text(f"id,{','.join(questions)},note\n{ballots}")
    options = ["--person", "id", "--ignore", "note", "--sigma", 6, "--publish-epsilon"]
    where = ["--out", tmp_path / "v", "--private", tmp_path / "own"]
    said = ran("release", "votes", tmp_path / "votes.csv", *options, *where, "--json")
    read = json.loads(said)
    assert read.keys() == {"statement", "epsilon", "delta", "columns", "files"}
    assert read["columns"] == {"question": questions, "answer": ["yes", "no", *["yes"] * 40]}
    assert len(json.loads((tmp_path / "own" / "account.json").read_text())["chances_of_error"]) == 42
    assert "this number together" in (tmp_path / "v" / "statement.txt").read_text()
    (tmp_path / "counts.csv").write_text("place,cat,dog\na,200,3\nb,4,150\nc,60,50\n")
    options = ["--query", "place", "--sigma", 5, "--confident-above", 120, "--threshold-sigma", 5]
    said = ran("release", "winners", tmp_path / "counts.csv", *options, "--out", tmp_path / "w")
    assert (tmp_path / "w" / "table.csv").read_text() == "place,winner\na,cat\nb,dog\nc,no answer\n"
    assert "chance_of_error" not in said
    (tmp_path / "ballots.csv").write_text("lunch,dinner\n" + "soup,pasta\n" * 300 + "soup,\n" * 90)
    options = ["--candidates", "soup,pasta", "--epsilon", 3, "--neighbours", "added", "--at-most", 1]
    said = ran("release", "winners", tmp_path / "ballots.csv", *options, "--out", tmp_path / "b")
    assert (tmp_path / "b" / "table.csv").read_text() == "query,winner\nlunch,soup\ndinner,pasta\n"


def test_long_files_surveys_and_what_the_owner_is_told(tmp_path: Path) -> None:
    """Values with commas, a file of more domains, rows without a value; private sentences are in no file."""
    votes = [
        f'{row},"{"east, far" if row % 2 else "west"}",{"green" if row % 5 else "blue"}' for row in range(400)
    ]
    votes += ["1,west,blue", "3,,green", "5,west,"]
    (tmp_path / "votes.csv").write_text("\n".join(["id,district,party", *votes, ""]))
    (tmp_path / "domains.json").write_text('{"district": ["east, far", "west"], "other": [1]}')
    options = shlex.split("--by district --of party --candidates green,blue --person id --at-most 1")
    for number, domain in enumerate((tmp_path / "domains.json", 'district="east, far",west')):
        out = tmp_path / f"long{number}"
        where = ["--domain", domain, "--missing", "drop", "--out", out]
        run = ringfence("release", "winners", tmp_path / "votes.csv", *options, *BUDGET, *where)
        assert (out / "table.csv").read_text() == 'district,winner\n"east, far",green\nwest,green\n'
        private = [
            line for line in run.stderr.splitlines() if line.startswith("private, not to be published: ")
        ]
        assert "Rows left out, which have no value in a column of the cells: 2." in private[0]
        assert "People of whom at_most=1 leaves something out, who would count more often: 1." in private[1]
        assert "of 2 decisions are expected to be wrong" in private[2]
        public = run.stdout + "".join(
            path.read_text() for path in out.iterdir() if path.suffix in (".csv", ".txt")
        )
        assert not any(line.split(": ", 1)[1] in public for line in private)
    (tmp_path / "survey.csv").write_text("q1,q2\n" + "1,0\n" * 300 + "0,0\n" * 50 + "9,1\n" * 50)
    coding = ["--yes", 1, "--no", 0, "--neither", "8,9", "--epsilon", 2]
    ran("release", "votes", tmp_path / "survey.csv", *coding, "--out", tmp_path / "s")
    assert (tmp_path / "s" / "table.csv").read_text() == "question,answer\nq1,yes\nq2,no\n"


def test_a_table_of_an_engine(tmp_path: Path) -> None:
    import duckdb

    with duckdb.connect(tmp_path / "people.db") as engine:
        engine.execute("CREATE TABLE people AS SELECT i % 2 AS region FROM range(1000) AS t(i)")
    words = [f"duckdb://{tmp_path / 'people.db'}", "--table", "people", "--by", "region"]
    options = ["--domain", "region=0,1", "--epsilon", 1, "--json", "--out", tmp_path / "out"]
    read = json.loads(ran("release", "counts", *words, *options))
    assert read["columns"]["count"] == pytest.approx([500, 500], abs=30)


def test_labels_of_counts_and_of_predictions(tmp_path: Path) -> None:
    np.save(tmp_path / "votes.npy", [[200, 3, 2], [4, 150, 51], [70, 70, 65]] * 60)
    options = ["--sigma", 5, "--threshold", 120, "--threshold-sigma", 5, "--publish-epsilon"]
    options += ["--private", tmp_path / "own"]
    read = json.loads(
        ran("release", "labels", tmp_path / "votes.npy", *options, "--out", tmp_path / "v", "--json")
    )
    assert read["columns"] == {"query": [*range(1, 181)], "label": [0, 1, None] * 60}
    assert read["epsilon"] == json.loads((tmp_path / "own" / "account.json").read_text())["epsilon"]
    said = (tmp_path / "v" / "statement.txt").read_text()
    assert "this number together" in said
    assert "one teacher alone" in said
    (tmp_path / "counts.csv").write_text("cat,dog\n200,3\n4,199\n")
    ran("release", "labels", tmp_path / "counts.csv", "--epsilon", 2, "--out", tmp_path / "c")
    assert (tmp_path / "c" / "table.csv").read_text() == "query,label\n1,cat\n2,dog\n"
    np.save(tmp_path / "predictions.npy", np.full((200, 2), [7, 9]))
    for file in ("predictions.npy", "predictions.csv"):
        (tmp_path / "predictions.csv").write_text("a,b\n" + "7,9\n" * 200)
        options = ["--classes", "7,8,9", "--epsilon", 2, "--out", tmp_path / file[-3:]]
        ran("release", "labels", tmp_path / file, *options)
        assert (tmp_path / file[-3:] / "table.csv").read_text() == "query,label\n1,7\n2,9\n"


@pytest.mark.parametrize(
    ("job", "change", "complaint"),
    [
        ("counts", ["--by", "region"], "domain= must list the public values of column 'region'"),
        (
            "counts",
            [*REGIONS, "--domain", "region=east"],
            "--domain must give each column once, got 'region'",
        ),
        ("counts", ["--by", "region", "--domain", "regions.txt"], "--domain must be NAME=VALUE,VALUE or a"),
        ("counts", ["--by", "region", "--domain", "none.toml"], "No such file or directory: none.toml"),
        ("counts", ["--by", "age", "--bins", "age=0,old"], "an edge of the bins of column 'age' must be"),
        ("counts", ["--by", "age", "--bins", "age=0,50"], "column 'age' has the value '"),
        ("counts", [*REGIONS, "--sigma", "3"], "epsilon or sigma must be given, and not both"),
        (
            "counts",
            [*REGIONS, "--suppress", "3"],
            "No such option: --suppress (Possible options: --suppress-",
        ),
        (
            "votes",
            [],
            "must hold 1 (yes), -1 (no) or 0, or yes and no in words, or what yes= and no= say, got ",
        ),
        ("counts", [*REGIONS, "--table", "people"], "--table must be given with the URL of one engine, got"),
        ("votes", ["--neighbours", "both"], "neighbours must be"),
        ("winners", ["--ignore", "id,region,age"], "data must have at least 2 columns of counts"),
        ("labels", ["--classes", "y,z"], "column 'id' must hold one of the classes, got '"),
        ("labels", ["--threshold-sigma", "3"], "column 'region' must hold counts"),
        ("winners", ["--candidates", "y,z"], "column 'id' must hold one of the candidates, got '"),
    ],
)
def test_bad_input_is_one_line_and_no_file(
    job: str, people: Path, change: list[str], complaint: str, tmp_path: Path
) -> None:
    words = [people / "*.csv", *change, *BUDGET, "--out", tmp_path / "out"]
    assert complaint in refused("release", job, *words)
    assert not (tmp_path / "out").exists()


def release(words: list[str], files: tuple[Path, Path]) -> None:
    """The command, in a process of its own."""
    written_to(files)
    sys.argv = ["ringfence", *words]
    main()


def test_one_of_two_processes_gets_the_folder(people: Path, tmp_path: Path) -> None:
    """What the other would have released is not released: it is refused before."""
    out, output = tmp_path / "releases" / "release", tmp_path / "output"
    command = ["release", "counts", people / "*.csv", *REGIONS, "--suppress-below", 20, *BUDGET, "--out", out]
    output.mkdir()
    files = [(output / f"{number}.out", output / f"{number}.err") for number in range(2)]
    runs = [forked(release, [*map(str, command), "--json"], pair) for pair in files]
    for run in runs:
        run.join(120)
    said = [(out.read_text(), err.read_text()) for out, err in files]
    (done,) = (number for number, run in enumerate(runs) if run.exitcode == 0)
    released = json.loads(said[done][0])
    assert all("another process" in err or "give another" in err for out, err in said if not out)
    table = (out / "table.csv").read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in table] == [
        "" if count is None else str(count) for count in released["columns"]["count"]
    ]
    assert [path.name for path in out.parent.iterdir()] == ["release"]


def test_a_folder_that_is_taken_is_refused_before_anything_is_released(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Budget, "checked", pytest.fail)
    (tmp_path / "out.tmp").mkdir()
    said = refused("release", "counts", people / "1.csv", *REGIONS, *BUDGET, "--out", tmp_path / "out")
    assert "out.tmp is being written by another process, or one that was killed left it" in said


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

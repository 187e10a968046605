"""A newcomer in a clone: an empty environment, the README followed to the letter, and a watch.

    python scripts/newcomer.py dist              installs from the clone, then runs the three examples
    python scripts/newcomer.py dist --borrow     the last example, with the dependencies that this Python has
    python scripts/newcomer.py dist --extras     instead: one empty environment per extra, or per extra named

``dist`` is the folder of the wheel. With ``--borrow`` pip still resolves every requirement, the extras too,
and installs the wheel, but nothing is downloaded or built. An example that takes five minutes or more,
installation included, is a failure, and so is a command that fails.
"""

import argparse
import os
import re
import subprocess
import sysconfig
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMIT = 300.0  # seconds until a newcomer has a useful number
_PIP = "#!{python}\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n"
_TABLE = """import pyarrow, ringfence as rf
print(rf.release_counts(pyarrow.table({'smoker': [True] * 99}), by='smoker', epsilon=1.0))"""
_ACCOUNT = """import numba, torch, ringfence as rf
rf.PerInstanceAccountant(rf.StochasticSign(1.0), sensitivity=1.0).step(torch.ones(5))"""
_PAGE = """from pathlib import Path
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.page import Report, Section
from ringfence.report.page import write_report
chart = Chart('c', 'A chart', '', (Panel('', 'x', 'y', (Line('sign', (1.0, 2.0), (1.0, 2.0)),)),))
write_report(Report('A page', (Section('One', charts=(chart,)),)), Path('page.html'))"""
# What each extra is for, done once. An extra that is not here is imported.
USES = {
    "fast": f'python -c "{_ACCOUNT}"',
    "report": f'python -c "{_PAGE}"',
    "tables": f'python -c "{_TABLE}"',
    "docs": "mkdocs --version",
    "compare": "python -c 'import opacus, opendp, riskcal'",  # diffprivlib needs an older scikit-learn
    **{name: f"python -c 'import ringfence.{name}'" for name in ("opacus", "huggingface", "lightning")},
}
_MODULES = {"pillow": "PIL"}


def environment(folder: Path, borrow: bool) -> dict[str, str]:
    """The variables of a shell in a new environment: empty, or with all of this Python but ringfence."""
    venv.create(folder, with_pip=not borrow)
    programs = folder / "bin"
    if borrow:
        here, there = (Path(sysconfig.get_path("purelib")), folder / "borrowed")
        there.mkdir()
        for entry in here.iterdir():
            if "ringfence" not in entry.name and entry.suffix != ".pth":
                (there / entry.name).symlink_to(entry)
        (packages,) = folder.glob("lib/python*/site-packages")
        (packages / "borrowed.pth").write_text(f"{there}\n")
        (programs / "pip").write_text(_PIP.format(python=programs / "python"))
        (programs / "pip").chmod(0o755)
    outside = ("PYTHON", "VIRTUAL_ENV", "COV")  # of the environment that this runs in
    kept = {name: value for name, value in os.environ.items() if not name.startswith(outside)}
    variables = {**kept, "PATH": f"{programs}:{kept['PATH']}", "PIP_QUIET": "1"}
    return variables | ({"PIP_NO_INDEX": "1"} if borrow else {})


def run(command: list[str], folder: Path, variables: dict[str, str]) -> float:
    """Runs a command in a folder and says how many seconds it took."""
    begun = time.monotonic()
    subprocess.run(command, cwd=folder, env=variables, check=True)
    return time.monotonic() - begun


def examples(readme: str) -> tuple[str, dict[str, str]]:
    """The command that installs, and the code of each example by its heading."""
    # the first block installs; others use what is installed
    install, *_ = re.findall(r"```bash\n(.*?)```", readme, re.S)
    found = re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)```", readme, re.M | re.S)
    return install, dict(found)


def follow_the_readme(folder: Path, wheel: Path, borrow: bool) -> None:
    variables = environment(folder / "environment", borrow)
    variables["PIP_FIND_LINKS"] = f"{wheel.parent.resolve()} {variables.get('PIP_FIND_LINKS', '')}".strip()
    install, code = examples((ROOT / "README.md").read_text())
    if borrow:  # the wheel instead of a build in an environment of its own, which would be downloaded
        installing = run(["bash", "-ec", install.replace("'.[", "'ringfence[")], folder, variables)
    else:
        installing = run(["bash", "-ec", install], ROOT, variables)
    print(f"{installing:6.1f} s  {install.strip()}", flush=True)
    for name, lines in list(code.items())[-1 if borrow else 0 :]:
        place = folder / name.replace(" ", "_")
        place.mkdir()
        seconds = run(["python", "-c", lines], place, variables)
        print(f"{seconds:6.1f} s  {name}", flush=True)
        if installing + seconds >= LIMIT:
            raise SystemExit(
                f"{name}: {installing + seconds:.0f} s until the first number, {LIMIT:.0f} allowed"
            )


def use_extras(folder: Path, wheel: Path, asked: list[str]) -> None:
    """Those that were asked for, or all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, requirements in project["optional-dependencies"].items():
        if extra == "dev" or (asked and extra not in asked):
            continue
        place = folder / extra
        variables = environment(place / "environment", borrow=False)
        names = [re.match(r"[\w-]+", line)[0] for line in requirements]
        modules = ", ".join(_MODULES.get(name, name.replace("-", "_")) for name in names)
        seconds = run(["pip", "install", f"{wheel.resolve()}[{extra}]"], place, variables)
        run(["pip", "check"], place, variables)
        run(["bash", "-ec", USES.get(extra, f"python -c 'import ringfence, {modules}'")], place, variables)
        print(f"{seconds:6.1f} s  ringfence[{extra}]", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dist", type=Path)
    parser.add_argument("--borrow", action="store_true")
    parser.add_argument("--extras", nargs="*", metavar="NAME")
    asked = parser.parse_args()
    (wheel,) = asked.dist.glob("ringfence-*.whl")
    with tempfile.TemporaryDirectory() as empty:
        if asked.extras is not None:
            use_extras(Path(empty), wheel, asked.extras)
        else:
            follow_the_readme(Path(empty), wheel, asked.borrow)

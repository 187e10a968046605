"""What a user installs: the wheel has every file of the package, and says what it needs."""

import runpy
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

import ringfence

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (path,) = folder.glob("*.whl")
    return ZipFile(path)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: ZipFile) -> None:
    source = ROOT / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files
    for ending in ("/page.html", "/page.css", "/py.typed"):
        assert any(name.endswith(ending) for name in packed), ending


def test_the_wheel_says_what_it_is(wheel: ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    about = Parser().parsestr(wheel.read(name).decode())
    assert about["Name"] == "ringfence"
    assert about["Version"] == ringfence.__version__
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Author"] == "The ringfence authors"
    assert "Typing :: Typed" in about.get_all("Classifier")
    assert any(name.endswith("/LICENSE") for name in wheel.namelist())


def test_what_follows_the_readme_finds_its_command_and_its_examples() -> None:
    install, code = runpy.run_path(str(ROOT / "scripts" / "newcomer.py"))["examples"](
        (ROOT / "README.md").read_text()
    )
    assert install.startswith("pip install ")
    assert list(code) == ["Release a statistic", "Train a model", "Account for or audit a release"]

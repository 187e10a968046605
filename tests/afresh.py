"""Programs that import the package anew, in a process that does not spend seconds on importing torch.

The process is a fork of a server that has everything loaded. It forgets the package and the tests, so that
both are imported again, and whatever is to seem as if it were not installed.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import ringfence
from tests.forks import forked

ROOT = Path(__file__).parent.parent
SOURCE = Path(ringfence.__file__).parent.parent


def afresh(
    program: str, *words: object, without: Sequence[str] = (), tree: tuple[Path, Path] = (ROOT, SOURCE)
) -> "CompletedProcess[str]":
    """What a shell would see of ``python -c PROGRAM WORDS``: exit status, output, errors.

    ``without`` are packages that cannot be imported. The folders of ``tree`` are where the program runs and
    finds the tests, and where it finds the package.
    """
    with begun(program, *words, without=without, tree=tree) as (process, out, err):
        process.join(120)
        assert process.exitcode is not None, "the process does not end"
        return CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


@contextmanager
def begun(
    program: str, *words: object, without: Sequence[str] = (), tree: tuple[Path, Path] = (ROOT, SOURCE)
) -> Iterator[tuple[Any, Path, Path]]:
    """The process, and the files of its output and its errors."""
    with tempfile.TemporaryDirectory() as folder:
        files = (Path(folder, "out"), Path(folder, "err"))
        yield forked(_begin, program, ["-c", *map(str, words)], tuple(without), tree, files), *files


def written_to(files: Sequence[Path]) -> None:
    """From here on all output of this process, and all errors, are written to two files."""
    for number, file in enumerate(files, 1):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, number)
        os.close(descriptor)


def _begin(
    program: str,
    arguments: list[str],
    without: tuple[str, ...],
    tree: tuple[Path, Path],
    files: tuple[Path, Path],
) -> None:
    written_to(files)
    for name in [
        name for name in sys.modules if name.split(".")[0] in ("ringfence", "experiments", "tests", *without)
    ]:
        del sys.modules[name]
    sys.modules.update(dict.fromkeys(without))  # type: ignore[arg-type]  # None: importing it is an error
    os.chdir(tree[0])
    sys.path[:0] = map(str, tree)
    sys.argv = arguments
    exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})

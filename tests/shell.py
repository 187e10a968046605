"""The command line without a process: starting one takes seconds, nearly all of them imports."""

import contextlib
import io
import sys
from collections.abc import Callable
from subprocess import CompletedProcess
from unittest import mock

from experiments.__main__ import main as experiments_main
from ringfence.cli.app import main


def ringfence(*arguments: object) -> "CompletedProcess[str]":
    """What a shell would see of ``ringfence ARGUMENTS``: exit status, output, errors."""
    return _run(main, "ringfence", *arguments)


def ran(*arguments: object) -> str:
    """The output of ``ringfence ARGUMENTS``, which must succeed."""
    run = ringfence(*arguments)
    assert run.returncode == 0, run.stderr
    return run.stdout


def refused(*arguments: object) -> str:
    """The one line of ``ringfence ARGUMENTS``, which must be refused as bad input and print nothing else."""
    run = ringfence(*arguments)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    return run.stderr.removeprefix("ringfence: ").rstrip("\n")


def experiments(*arguments: object) -> "CompletedProcess[str]":
    """What a shell would see of ``python -m experiments ARGUMENTS``."""
    return _run(experiments_main, "experiments", *arguments)


def _run(command: Callable[[], None], *arguments: object) -> "CompletedProcess[str]":
    words = list(map(str, arguments))
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            command()
        except SystemExit as end:
            return CompletedProcess(words, int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("main returned")

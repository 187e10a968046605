"""The command line without a process: starting one takes seconds, nearly all of them imports."""

import contextlib
import io
import sys
from subprocess import CompletedProcess
from unittest import mock

from ringfence.cli.app import main


def ringfence(*arguments: object) -> "CompletedProcess[str]":
    """What a shell would see of ``ringfence ARGUMENTS``: exit status, output, errors."""
    words = ["ringfence", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            return CompletedProcess(words, int(end.code or 0), out.getvalue(), err.getvalue())
    raise AssertionError("main returned")

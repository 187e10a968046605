"""The command line: the typer app that holds the commands, and how errors are printed.

Each command is a file: it parses, makes one library call and prints. The commands import the library inside
their functions, because scikit-learn and matplotlib take seconds to load, and neither
``ringfence --help`` nor the other commands should wait for them.
"""

import sys
from typing import Annotated

import typer

from ringfence import __version__
from ringfence.cli.account import account
from ringfence.cli.audit import audit
from ringfence.cli.certificate import certificate
from ringfence.cli.ledger import ledger
from ringfence.cli.probe import probe
from ringfence.cli.release import release

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_INTERRUPTED = 130  # the exit status


# Help shows what has no heading first, and a newcomer needs to release something.
app.add_typer(release, name="release")
app.add_typer(ledger, name="ledger")
for command in (probe, account, audit, certificate):
    app.command(rich_help_panel="Train, and say what it cost")(command)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ringfence {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Release statistics and train models with differential privacy, and say what it cost.

    Begin with: ringfence release counts --help
    """


def main() -> None:
    """Entry point of ``ringfence``."""
    run(app, "ringfence")


def run(commands: typer.Typer, name: str) -> None:
    """Runs a command and exits: status 2 and one line for bad input, 130 for an interrupt.

    ``name`` begins the line. Nothing else is caught: an error of this package keeps its traceback.
    """
    try:
        status = commands(prog_name=name, standalone_mode=False)
    except (ValueError, TypeError, OSError, ModuleNotFoundError, FloatingPointError) as error:
        _fail(name, _one_line(error))
    except (KeyboardInterrupt, typer.Abort):
        status = _INTERRUPTED
    except Exception as error:
        # typer's own complaints about the call: all know how to say themselves.
        if hasattr(error, "format_message"):
            _fail(name, error.format_message())
        if str(error) != "Query interrupted":  # a KeyboardInterrupt inside DuckDB
            raise
        status = _INTERRUPTED
    if status == _INTERRUPTED:  # typer's answer to a KeyboardInterrupt, too
        _fail(name, "interrupted; files that were written are whole", status)
    sys.exit(status if isinstance(status, int) else 0)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _fail(name: str, message: str, status: int = 2) -> None:
    if message:  # empty where the help was printed instead
        typer.echo(f"{name}: {' '.join(message.split())}", err=True)
    sys.exit(status)

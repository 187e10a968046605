"""The command line of ringfence: each command is a file that parses, makes one library call and prints."""

import sys


def main() -> None:
    """Entry point of ``ringfence``. The version is printed before anything is imported that takes long."""
    if sys.argv[1:] == ["--version"]:
        from ringfence import __version__

        print(f"ringfence {__version__}")
    else:
        from ringfence.cli import app

        app.main()

"""A PostgreSQL server of its own for tests: on loopback, in a temporary folder, gone afterwards."""

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
_PROGRAM = shutil.which("pg_ctl", path=os.pathsep.join(map(str, reversed(_INSTALLED)))) or shutil.which(
    "pg_ctl"
)
MISSING = _PROGRAM is None or shutil.which("initdb", path=str(Path(_PROGRAM).parent)) is None


@contextmanager
def server() -> Iterator[str]:
    """Starts a server and yields the URL of its database; the servers of the machine are left alone."""
    with TemporaryDirectory() as place, socket.socket() as free:
        folder = Path(place)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        if getpass.getuser() == "root":  # as whom no server runs
            shutil.chown(folder, "postgres")
        _run("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-N")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= "
        try:
            _run("pg_ctl", "-D", folder / "data", "-l", folder / "log", "-w", "-o", options, "start")
            yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
        finally:
            _run("pg_ctl", "-D", folder / "data", "-m", "immediate", "stop")


def _run(name: str, *arguments: object) -> None:
    command = [str(Path(_PROGRAM or "").with_name(name)), *map(str, arguments)]
    if getpass.getuser() == "root":
        command = ["runuser", "-u", "postgres", "--", *command]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")

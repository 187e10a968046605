"""A file is replaced as a whole, or it stays what it was; a folder appears with all of its files."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

OWNER_ALONE = 0o600
AS_THE_SYSTEM_SAYS = 0o666  # the process's umask takes the rest away


@contextmanager
def replacing(path: str | os.PathLike[str], *, mode: int = OWNER_ALONE) -> Iterator[BinaryIO]:
    """Opens a file for writing that takes the place of ``path`` when the block ends without an error.

    The bytes are written to a ``.tmp`` file beside ``path``. An error inside the block removes that file; a
    process that is killed leaves it there. An error of the operating system names ``path``.

    Guarantee: at every moment, also after a crash or a power cut, ``path`` is the old file or the new one and
    never a part of either. When the block has ended, the new file and its name are on the disk.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "greeting")
    ...     with replacing(path) as file:
    ...         _ = file.write(b"good day")
    ...     path.read_bytes()
    b'good day'
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:  # a device or a pipe: it is written to, and never replaced
            yield file
        return
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()  # a full disk needs the room
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Makes a folder to write to, which gets the name ``path`` when the block ends without an error.

    Until then it is ``path`` with the ending .tmp, which belongs to one process at a time. An error removes
    it; a process that is killed leaves it there, and it is then refused by name.

    Guarantee: ``path`` holds all files or none at every moment, and what another block wrote is not touched.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as parent:
    ...     with new_folder(Path(parent, "release")) as folder:
    ...         _ = (folder / "table.csv").write_text("1")
    ...     [file.name for file in Path(parent, "release").iterdir()], folder.exists()
    (['table.csv'], False)
    """
    path = Path(path).resolve()  # a link stands for the folder it leads to
    beside = path.with_name(f"{path.name}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        beside.mkdir()
    except FileExistsError:
        left = "is being written by another process, or one that was killed left it: remove it then"
        raise FileExistsError(f"{beside} {left}") from None
    try:
        if os.path.ismount(path) or path == Path.cwd() or (path.exists() and os.listdir(path)):
            raise FileExistsError(f"{path} must be a new folder or an empty one: give another name")
        if path.exists():
            shutil.copymode(path, beside)
        yield beside
        beside.rename(path)
        _sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Returns when the names in the folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

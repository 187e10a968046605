"""A file is the old one or the new one, whatever goes wrong in between."""

import errno
import os
from pathlib import Path

import pytest

from ringfence.files.atomic import AS_THE_SYSTEM_SAYS, new_folder, replacing
from tests.faults.conditions import folder_for_anyone, no_room_beyond, read_only


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


def write(path: Path, data: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(data[:1])
        file.write(memoryview(data)[1:])


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def alone(path: Path) -> bytes:
    """What is in the file, which has no others beside it."""
    assert list(path.parent.iterdir()) == [path]
    return path.read_bytes()


def test_the_new_file_takes_the_place_of_the_old(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"ne")
        file.flush()
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert alone(path) == b"new"


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/file'$"):
        write(path)
    monkeypatch.undo()
    assert alone(path) == b"old"


@pytest.mark.parametrize("size", [2000, 10**6])  # below and above what is gathered before it is written
def test_a_disk_with_some_room_leaves_the_old_file_and_nothing_else(path: Path, size: int) -> None:
    with no_room_beyond(100), pytest.raises(OSError, match=r"File too large: '.*/file'$"):
        write(path, b"x" * size)
    assert alone(path) == b"old"


def test_an_error_inside_leaves_the_old_file_and_nothing_else(path: Path) -> None:
    def broken_off(error: BaseException) -> None:
        with replacing(path) as file:
            file.write(b"x" * 10**6)
            raise error

    for error in (KeyboardInterrupt("by hand"), OSError("no number"), ValueError("other")):
        with pytest.raises(type(error), match=f"^{error}$"):
            broken_off(error)
        assert alone(path) == b"old"


def test_the_file_is_on_disk_before_its_name_and_its_name_before_the_return(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def logged_fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        size = os.fstat(descriptor).st_size
        calls.append("sync folder" if target == str(path.parent) else f"sync file of {size}")
        fsync(descriptor)

    def logged_replace(source: Path, target: Path) -> None:
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", logged_fsync)
    monkeypatch.setattr(os, "replace", logged_replace)
    write(path, b"x" * 10**6)
    assert calls == ["sync file of 1000000", "replace", "sync folder"]


def test_the_file_is_its_owners_alone_unless_the_mode_says_otherwise(path: Path) -> None:
    write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    umask = os.umask(0o027)
    with replacing(path, mode=AS_THE_SYSTEM_SAYS):
        pass
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_read_only_folder_is_the_systems_error() -> None:
    with folder_for_anyone() as folder:
        write(folder / "file", b"old")
        with read_only(folder), pytest.raises(PermissionError, match=r"/file'$"):
            write(folder / "file")
        assert alone(folder / "file") == b"old"


def test_a_folder_that_is_none_is_the_systems_error(path: Path) -> None:
    with pytest.raises(NotADirectoryError, match=r"file/other'$"):
        write(path / "other")
    with pytest.raises(FileNotFoundError, match=r"nowhere/file'$"):
        write(path.parent / "nowhere" / "file")


def test_a_folder_appears_with_all_of_its_files(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder"
    with new_folder(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists()
    assert [file.name for file in path.iterdir()] == ["a"]
    (tmp_path / "empty").mkdir(mode=0o700)
    os.symlink(tmp_path / "empty", tmp_path / "link")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").write_text("2")
    assert (tmp_path / "empty" / "a").read_text() == "2"
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o700


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text(str(1 / 0))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_or_belongs_to_another_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_folder(tmp_path / "folder") as folder:
        (folder / "a").write_text("1")
        with pytest.raises(FileExistsError, match=r"folder\.tmp is being written by another process"):
            new_folder(tmp_path / "folder").__enter__()
    with pytest.raises(FileExistsError, match="must be a new folder or an empty one"):
        new_folder(tmp_path / "folder").__enter__()
    assert (tmp_path / "folder" / "a").read_text() == "1"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (".", "../folder/a"):
        with pytest.raises(OSError, match=r"must be a new folder|Not a directory|Permission denied"):
            new_folder(path).__enter__()
    assert sorted(os.listdir(tmp_path)) == ["folder", "here"]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "pipe")
    assert os.read(reader, 9) == b"new"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()

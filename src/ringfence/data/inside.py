"""The names of other files that a file gives must stay inside its folder."""

from pathlib import Path


def inside(folder: Path, name: str, what: str) -> Path:
    """Returns ``folder``/``name``, and refuses a name that leads out of the folder, also through a link.

    >>> inside(Path("data"), "public.npz", "public_statistics").as_posix()
    'data/public.npz'
    >>> inside(Path("data"), "../secret.npz", "public_statistics")
    Traceback (most recent call last):
    ValueError: public_statistics must stay inside data, got '../secret.npz'
    """
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{what} must stay inside {folder}, got {name!r}")
    return path

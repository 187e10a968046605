"""Names that a file gives of other files: they stay in its folder."""

from pathlib import Path


def inside(folder: Path, name: str, what: str) -> Path:
    """``folder``/``name``, unless that leads out of the folder: up, to the root or through a link.

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

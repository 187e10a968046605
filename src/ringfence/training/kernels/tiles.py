"""How the clamped sum of one layer is cut into programs on a GPU: by the shape alone, so results repeat."""

from typing import NamedTuple


class Tile(NamedTuple):
    """How the work is cut: rows and columns of the weight, places at a time; warps, loads ahead, programs."""

    rows: int
    columns: int
    places: int
    warps: int
    stages: int
    programs: int


_H200 = 227 * 1024  # bytes of shared memory that a program may use there


def choose_tile(
    rows: int, columns: int, places: int, *, split: bool, point: bool, shared: int = _H200
) -> Tile:
    """The fastest tile on an H200, within a tenth, for layers of a WRN-16-4, a ViT-S/16 and a small BERT.

    ``split`` says that factors are in float32, ``point`` that the window is one place wide. Where
    there is less ``shared`` memory, fewer loads are under way, of fewer places.

    >>> choose_tile(64, 576, 1024, split=False, point=False)
    Tile(rows=64, columns=64, places=64, warps=4, stages=4, programs=264)
    """
    tile = _fastest(rows, columns, places, split=split, point=point)
    while bytes_held(tile, split=split) > shared:
        fewer = {"stages": tile.stages - 1} if tile.stages > 2 else {"places": tile.places // 2}
        tile = tile._replace(**fewer)
    return tile


def bytes_held(tile: Tile, *, split: bool) -> int:
    """The shared memory of one program: two bytes for each number that is loaded ahead."""
    return 2 * (tile.rows + tile.columns) * tile.places * tile.stages * (2 if split else 1)


def _fastest(rows: int, columns: int, places: int, *, split: bool, point: bool) -> Tile:
    high, wide = (max(16, 1 << (side - 1).bit_length()) for side in (rows, columns))
    if split:
        if high >= 128 and wide >= 128 and not point:
            return Tile(128, 128, 64, 8, 3, 264)
        return Tile(min(64, high), min(128, wide), 32, 4, 4, 528)
    if high < 64 or wide < 64:
        return Tile(min(64, high), min(64, wide), 128, 4, 3, 264)
    if high < 128 or rows * columns <= 2**16:
        return Tile(64, 64, 64, 4, 4, 264)
    if places >= 128 and rows * columns > 2**18:
        return Tile(128, 128, 128, 8, 3, 264)
    return Tile(128, 64, 64, 4, 4, 528 if rows * columns > 2**19 else 264)

"""Tiles are such as the kernel takes: powers of two, wide enough for tensor cores, and no larger than fits."""

import itertools

from ringfence.training.kernels.tiles import choose_tile


def test_every_tile_fits() -> None:
    sizes = (1, 3, 16, 27, 64, 100, 384, 2304)
    for rows, columns, places in itertools.product(sizes, sizes, (2, 64, 197, 1024)):
        for split, point in itertools.product((False, True), repeat=2):
            tile = choose_tile(rows, columns, places, split=split, point=point)
            assert all(16 <= side == side & -side for side in tile[:3])
            assert tile.rows < 2 * max(16, rows)
            assert tile.columns < 2 * max(16, columns)
            factors = (tile.rows + tile.columns) * tile.places * (2 if split else 1)
            assert 2 * factors * tile.stages <= 227 * 1024  # bytes of shared memory
            assert (
                2 * tile.rows * tile.columns <= 128 * 32 * tile.warps
            )  # registers for the product and its sum

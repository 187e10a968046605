"""Tiles are such as the kernel takes: powers of two, wide enough for tensor cores, no larger than fits."""

import itertools

from ringfence.training.kernels.tiles import bytes_held, choose_tile


def test_every_tile_fits() -> None:
    sizes = (1, 3, 16, 27, 64, 100, 384, 2304)
    for rows, columns, places in itertools.product(sizes, sizes, (2, 64, 197, 1024)):
        for split, point in itertools.product((False, True), repeat=2):
            tile = choose_tile(rows, columns, places, split=split, point=point)
            assert all(16 <= side == side & -side for side in tile[:3])
            assert tile.rows < 2 * max(16, rows)
            assert tile.columns < 2 * max(16, columns)
            for shared in (227, 163, 99, 64):  # KiB, from an H200 to a T4
                smaller = choose_tile(rows, columns, places, split=split, point=point, shared=shared * 1024)
                assert bytes_held(smaller, split=split) <= shared * 1024
                assert smaller.places >= 16
            assert (
                2 * tile.rows * tile.columns <= 128 * 32 * tile.warps
            )  # registers for the product and its sum

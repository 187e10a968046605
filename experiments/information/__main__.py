"""Figure 4's networks where there is only torch, numpy, scipy and safetensors: trains, and keeps rows.

    python -m experiments.information IMAGES.npz --out DIR --device cuda
    python -m experiments.information --draw DIR --out DIR

It may be stopped at any moment (``timeout 60m python ...``), and the same command again goes on with what is
not finished. Drawing a folder also writes its rows as CSV, with their epsilons.
"""

import argparse
import sys
from pathlib import Path

from experiments.information.networks import ROUNDS, run_networks, write_rows
from experiments.sweep.runner import Workers


def main(words: list[str]) -> None:
    """Does what the words of a command line ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.information", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("images", nargs="?", type=Path, help="a .npz file of images")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the rows; it may hold some")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="settings for every method")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--engine", default="local", choices=["local", "ray"])
    parser.add_argument("--address", help="of a Ray cluster")
    parser.add_argument("--per-gpu", type=int, default=1, help="with --engine ray: networks that share a GPU")
    parser.add_argument("--draw", type=Path, metavar="CSV", help="draw this file, or the rows of this folder")
    parser.add_argument("--probe", type=Path, metavar="CSV", help="with --draw: rows of the probe's panels")
    asked = parser.parse_args(words)
    if asked.draw is not None:
        file = write_rows(asked.draw) if asked.draw.is_dir() else asked.draw
        from experiments.information.chart import draw_networks

        print(*draw_networks(file, asked.out, asked.probe), sep="\n")
        return
    if asked.images is None:
        raise ValueError("IMAGES must be given: a .npz file of images")
    workers = Workers(asked.engine, asked.address, asked.device, asked.per_gpu)
    print(run_networks(asked.images, asked.out, rounds=asked.rounds, workers=workers))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, TypeError, OSError, RuntimeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)

"""Figure 4's networks where there is only torch, numpy, scipy and safetensors: trains, and prints rows.

    python -m experiments.information IMAGES.npz --out DIR --device cuda --workers 4
    python -m experiments.information --draw DIR --out DIR

It may be stopped at any moment (``timeout 60m python ...``), and the same command again goes on with what is
not finished. Epsilons need dp-accounting and are also made when a folder is drawn.
"""

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.drawing import read_csv
from experiments.information.network import MODELS, NetworkSettings
from experiments.information.networks import ROUNDS, NetworkRow, complete, run_networks, write_rows
from experiments.sweep.runner import Workers

_COUNTS = ("batch_size", "examples", "moments", "probes")


def main(words: list[str]) -> None:
    """Does what the words of a command line ask for."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.information", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("images", nargs="?", type=Path, help="a .npz file of images")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder of the rows; it may hold some")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="settings for every method")
    parser.add_argument("--epochs", type=int, nargs="+", help="tried as a dimension of the search")
    parser.add_argument("--seeds", type=int, nargs="+", help="the first is that of the search")
    parser.add_argument("--range", nargs=3, action="append", default=[], metavar=("NAME", "LOW", "HIGH"))
    parser.add_argument("--model", choices=list(MODELS))
    parser.add_argument("--least-accuracy", type=float, help="below it, eta is not measured")
    for name in _COUNTS:
        default = getattr(NetworkSettings(), name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"{default} by default")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--workers", type=int, default=0, help="processes that share the GPUs")
    parser.add_argument("--engine", default="local", choices=["local", "ray"])
    parser.add_argument("--address", help="of a Ray cluster")
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
    own = {name: getattr(asked, name) for name in (*_COUNTS, "model", "least_accuracy")}
    own |= {name: tuple(getattr(asked, name)) for name in ("epochs", "seeds") if getattr(asked, name)}
    settings = replace(NetworkSettings(), **{name: value for name, value in own.items() if value is not None})
    ranges: dict[str, Any] = {name: (float(low), float(high)) for name, low, high in asked.range}
    settings = replace(settings, search=replace(settings.search, **ranges))
    workers = Workers(asked.engine, asked.address, asked.device, asked.workers)
    run_networks(asked.images, asked.out, settings, rounds=asked.rounds, workers=workers)
    file = write_rows(asked.out)
    _show(read_csv(file, NetworkRow))
    print(file)


def _show(rows: list[NetworkRow]) -> None:
    """Prints the rows, the most accurate first, and how many there are."""
    for row in sorted(rows, key=lambda row: -(row.validation_accuracy or 0.0)):
        if row.test_accuracy is None:
            print(f"{row.method:18} round {row.round:3} seed {row.seed}: {row.error}")
            continue
        etas = (row.spectral_max, row.spectral_median, row.trace_max, row.estimate_max, row.estimate_median)
        shown = " ".join("     -" if eta is None else f"{eta:6.3g}" for eta in etas)
        print(
            f"{row.method:18} round {row.round:3} seed {row.seed} epochs {row.epochs:2} "
            f"c {row.clip:7.3g} s/c {row.noise_multiplier:6.3g} lr {row.learning_rate:8.3g} "
            f"test {100 * row.test_accuracy:5.1f} % eta {shown} "
            f"{row.training_seconds:5.1f} + {row.measuring_seconds:5.1f} s {row.error or ''}"
        )
    counts = ", ".join(f"{name} {count}" for name, count in Counter(row.method for row in rows).items())
    print(f"{len(rows)} rows ({counts}), {len({row.round for row in complete(rows)})} whole rounds")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (ValueError, TypeError, OSError, RuntimeError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)

"""The network of De et al. on a few images: a run stops, goes on, and costs what a whole one does."""

import csv
from pathlib import Path

import numpy as np
import torch

from experiments.wrn_cifar10 import Training, crop_and_flip, main, settings


def test_a_run_that_is_broken_off_costs_what_a_whole_one_does(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    parts = {
        f"x_{part}": draw.integers(0, 256, (n, 8, 8, 3), np.uint8) for part, n in (("train", 40), ("test", 9))
    }
    parts |= {f"y_{part}": draw.integers(0, 10, len(parts[f"x_{part}"])) for part in ("train", "test")}
    np.savez(tmp_path / "images.npz", **parts)
    how = ["--data", str(tmp_path / "images.npz")]
    how += ["--sigma=1", "--steps=2", "--batch=8", "--augmentations=2", "--rows=10", "--depth=10"]
    how += ["--width=1", "--seed=7"]
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    main([*how, "--out", str(whole)])
    main([*how, "--out", str(halves), "--minutes", "0"])
    main([*how, "--out", str(halves), "--resume"])
    lines = [
        list(csv.DictReader((folder / "curve.csv").read_text().splitlines())) for folder in (whole, halves)
    ]
    assert [line["steps"] for line in lines[1]] == ["1", "2"]
    assert lines[0][-1]["epsilon"] == lines[1][-1]["epsilon"]
    resumed = Training(settings([*how, "--out", str(halves), "--resume"]))
    assert int(resumed.averaged.n_averaged) == resumed.engine.steps == 2
    main(["--draw", str(whole), str(halves), "--out", str(tmp_path)])
    drawn = (tmp_path / "wrn_cifar10.csv").read_text()
    assert drawn.count("halves") == 2
    assert (tmp_path / "wrn_cifar10.png").stat().st_size > 10_000


def test_crops_are_shifted_mirrored_and_flipped() -> None:
    image = torch.arange(64.0).view(1, 1, 8, 8)
    rows, columns = image[0, 0, :, 0] / 8, image[0, 0, 0]
    wide = [torch.cat([line[:4].flip(0), line, line[4:].flip(0)]) for line in (rows, columns)]
    torch.manual_seed(0)
    for made in crop_and_flip(image.expand(50, 1, 8, 8)):
        y, x = made[0, :, 0] // 8, made[0, 0] % 8
        assert any(torch.equal(y, wide[0][i : i + 8]) for i in range(9))
        assert any(torch.equal(side, wide[1][i : i + 8]) for i in range(9) for side in (x, x.flip(0)))
        assert torch.equal(made[0], 8 * y[:, None] + x)

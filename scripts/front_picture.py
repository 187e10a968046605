"""Draws the picture of the README: ``python -m scripts.front_picture docs``.

The left half is computed. The right half has numbers of docs/results/README.md and of
docs/decisions_against_peers.md.
"""

import sys
from pathlib import Path

import torch

import ringfence as rf
from experiments.motivation import worst_case_renyi
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

LAWS = {
    "Gaussian": rf.Gaussian(1.0),
    "rectified": rf.RectifiedGaussian(1.0, 1.0),
    "sign": rf.StochasticSign(1.0),
}
# epsilon of the best bounded law over that of the Gaussian at the same accuracy, L2 clip, and its 95 % band
TRAINED = {
    "CIFAR-10": (1.00, 0.96, 1.35),
    "CIFAR-100": (1.00, 0.89, 1.49),
    "Pets": (0.96, 0.83, 1.36),
    "digits": (1.09, 0.91, 1.43),
}
# the same at 1 % wrong decisions: tight and per-instance over the Gaussian's
DECIDED = {"votes": 1.06 / 4.93, "labels": 0.792 / 4.89}


def chart() -> Chart:
    """Two panels: where the gain comes from, and where it is left when usefulness is equal."""
    theta = torch.linspace(-5, 5, 201, dtype=torch.float64)
    gaussian = worst_case_renyi(LAWS["Gaussian"], theta, 0.1, 8.0)
    lines = tuple(
        Line(name, tuple(theta.tolist()), tuple((worst_case_renyi(law, theta, 0.1, 8.0) / gaussian).tolist()))
        for name, law in LAWS.items()
    )
    idea = Panel(
        title="What one person's share shows",
        x_label="true value / \N{GREEK SMALL LETTER SIGMA}",
        y_label="leak, the Gaussian's is 1",
        lines=lines,
        y_from_zero=True,
        shaded=(-1.0, 1.0),
        shaded_name="interval",
    )
    value, low, high = (tuple(row[k] for row in TRAINED.values()) for k in range(3))
    place = tuple(float(k) for k in range(len(TRAINED) + len(DECIDED)))
    trained = Line(
        "training a model", place[: len(TRAINED)], value, low, high, mechanism="rectified", bars=True
    )
    decided = Line(
        "releasing decisions", place[len(TRAINED) :], tuple(DECIDED.values()), mechanism="sign", bars=True
    )
    found = Panel(
        title="Measured at equal accuracy",
        x_label="",
        y_label="ε, the Gaussian's is 1",
        lines=(trained, decided),
        y_from_zero=True,
        reference=1.0,
        x_names=(*TRAINED, *DECIDED),
    )
    return Chart("front", "", "", (idea, found), columns=2)


if __name__ == "__main__":
    for file in save_chart(chart(), Path(sys.argv[1])):
        if file.suffix == ".pdf":
            file.unlink()  # the README shows the PNG

"""Figure 1 of the paper: what each mechanism gives away, as a function of theta."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.report.chart import Chart, Line, Panel

_LABELS = {0.5: "½", 1.0: "1"}
_CAPTION = (
    "What one coordinate gives away, against where it lies. The Gaussian gives away the same everywhere; "
    "with a bounded support far less leaves where theta is far outside. Solid: the true worst case over both "
    "signs of the shift and both directions. Dashed: the paper's one-sided curve, too low where they part."
)


@dataclass(frozen=True)
class MotivationSettings:
    """The paper's settings: support [-1, 1], sigma 1/2 and 1, sensitivity 1, order 2.

    >>> MotivationSettings().mechanisms(0.5)["sign"]
    StochasticSign(sigma=0.5)
    """

    sigmas: tuple[float, ...] = (0.5, 1.0)
    bound: float = 1.0
    levels: int = 5
    sensitivity: float = 1.0
    alpha: float = 2.0
    farthest: float = 4.0
    points: int = 401

    def mechanisms(self, sigma: float) -> dict[str, Mechanism]:
        """The laws of the figure at one sigma, by the name that the legend shows."""
        return {
            "Gaussian": Gaussian(sigma),
            "rectified": RectifiedGaussian(sigma, self.bound),
            "truncated": TruncatedGaussian(sigma, self.bound),
            "sign": StochasticSign(sigma),
            f"quantised, {self.levels} levels": QuantizedGaussian(sigma, self.bound, self.levels),
        }


@dataclass(frozen=True)
class MotivationRow:
    """One mechanism at one theta: eta, the paper's one-sided divergence, and the true worst case."""

    mechanism: str
    sigma: float
    theta: float
    fisher_information_loss: float
    renyi_one_sided: float
    renyi_worst: float


def motivation(settings: MotivationSettings) -> Iterator[MotivationRow]:
    """Yields one row for every mechanism, sigma and theta.

    >>> rows = list(motivation(MotivationSettings(sigmas=(1.0,), points=3)))
    >>> [row.theta for row in rows if row.mechanism == "sign"]
    [-4.0, 0.0, 4.0]
    """
    theta = torch.linspace(-settings.farthest, settings.farthest, settings.points, dtype=torch.float64)
    for sigma in settings.sigmas:
        for name, law in settings.mechanisms(sigma).items():
            columns = (
                theta,
                law.fisher_information(theta).sqrt(),
                law.renyi_divergence(theta, settings.sensitivity, settings.alpha),
                worst_case_renyi(law, theta, settings.sensitivity, settings.alpha),
            )
            for values in zip(*(column.tolist() for column in columns), strict=True):
                yield MotivationRow(name, sigma, *values)


def worst_case_renyi(law: Mechanism, theta: Tensor, sensitivity: float, alpha: float) -> Tensor:
    """The largest divergence over both signs of the shift and both directions.

    The paper takes D(theta || theta + c) alone and understates the loss (docs/errata.md, A7).

    >>> worst_case_renyi(Gaussian(1.0), torch.zeros(1), sensitivity=1.0, alpha=2.0)
    tensor([1.])
    """
    worst = torch.zeros_like(theta)
    for shift in (sensitivity, -sensitivity):
        forward = law.renyi_divergence(theta, shift, alpha)
        backward = law.renyi_divergence(theta + shift, -shift, alpha)
        worst = torch.maximum(worst, torch.maximum(forward, backward))
    return worst


_Curves = dict[str, list[MotivationRow]]  # the rows of each mechanism at one sigma


def motivation_chart(rows: Sequence[MotivationRow], settings: MotivationSettings) -> Chart:
    """Panels of the Fisher information loss for each sigma, then panels of the Rényi divergence.

    Solid lines are the true worst case. Dashed lines are the paper's one-sided curve, which is too low
    where the two part.

    >>> settings = MotivationSettings(points=3)
    >>> chart = motivation_chart(list(motivation(settings)), settings)
    >>> len(chart.panels), chart.panels[2].y_label
    (4, 'ε at order 2, sensitivity 1')
    """
    by_sigma: dict[float, _Curves] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        by_sigma[row.sigma][row.mechanism].append(row)
    divergence = f"ε at order {settings.alpha:g}, sensitivity {settings.sensitivity:g}"
    left = (
        _panel("Fisher information loss", sigma, "η", _information(curves), settings)
        for sigma, curves in by_sigma.items()
    )
    right = (
        _panel("Per-instance RDP", sigma, divergence, _divergence(curves), settings)
        for sigma, curves in by_sigma.items()
    )
    return Chart(
        name="motivation",
        title="What each mechanism gives away",
        caption=_CAPTION,
        panels=(*left, *right),
        columns=2 * len(by_sigma),
    )


def _panel(
    title: str, sigma: float, y_label: str, lines: tuple[Line, ...], settings: MotivationSettings
) -> Panel:
    return Panel(
        title=f"{title}, \N{GREEK SMALL LETTER SIGMA} = {_LABELS.get(sigma, f'{sigma:g}')}",
        x_label="θ",
        y_label=y_label,
        lines=lines,
        y_from_zero=True,
        shaded=(-settings.bound, settings.bound),
        shaded_name="support",
    )


def _information(curves: _Curves) -> tuple[Line, ...]:
    return tuple(
        Line(name, _theta(rows), tuple(row.fisher_information_loss for row in rows))
        for name, rows in curves.items()
    )


def _divergence(curves: _Curves) -> tuple[Line, ...]:
    worst = (
        Line(name, _theta(rows), tuple(row.renyi_worst for row in rows)) for name, rows in curves.items()
    )
    one_sided = (
        Line(
            f"{name}, one-sided",
            _theta(rows),
            tuple(row.renyi_one_sided for row in rows),
            dashed=True,
            in_legend=False,
        )
        for name, rows in curves.items()
    )
    said_once = Line("paper's one-sided curve, D(θ‖θ+c) only", (), (), mechanism="any", dashed=True)
    return (*worst, *one_sided, said_once)


def _theta(rows: list[MotivationRow]) -> tuple[float, ...]:
    return tuple(row.theta for row in rows)

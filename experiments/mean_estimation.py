"""Figure 2 of the paper: estimating a mean, and how a bounded support changes its cost and its error."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from pandas import DataFrame
from torch import Tensor

from experiments.drawing import SIGMA, Drawn, flat
from experiments.progress import track
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.truncated import TruncatedGaussian
from ringfence.numerics.normal import TruncatedNormal, cumulative
from ringfence.report.chart import Chart, Line, Panel

ALPHA = 2.0  # the order of the divergence, which the paper calls epsilon
LARGEST_SIGMA = 100.0
_BISECTIONS = 32

ErrorOf = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # of theta, sigma, bound and the true mean


@dataclass(frozen=True)
class MeanEstimationSettings:
    """Section 6.1: n records, N(mean, 1) in each of d coordinates, clipped to [-1, 1], averaged, released.

    The paper prints neither the noise nor the bounds it tuned over. ``sigmas`` are the Gaussian's.
    ``bounds`` are the same for all means; the first of them is the one compared at equal error (1 is the
    range of the records, known beforehand).
    """

    records: int = 900
    dimensions: int = 100
    trials: int = 5
    seed: int = 0
    means: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    sigmas: tuple[float, ...] = (0.1, 0.4)
    bounds: tuple[float, ...] = (1.0, 0.5)

    @property
    def sensitivity(self) -> float:
        """2 / n: how far one record more or less moves a coordinate of the mean.

        The mean divides by its own number of records. One more moves it by (z - mean) / (n + 1), up to
        2 / (n + 1); one less by (mean of the others - z) / n, up to 2 / n. The 1 / n that comes to
        mind holds only for a sum over a public constant (docs/errata.md, A14).
        """
        return 2 / self.records


def mean_estimation(settings: MeanEstimationSettings) -> DataFrame:
    """A row for every comparison, mean, noise and trial where the law can reach the error.

    ``comparison`` is "equal noise" (the paper's) or "equal error" (with a fixed bound). The mechanism
    "Gaussian" is the Gaussian's release, clamped afterwards at no cost. Errors are mean squared errors
    against the true mean, as in the paper; a formula averages over the noise. ``renyi`` is the divergence of
    order ALPHA, over both signs and directions.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    shape = (settings.trials, settings.records, settings.dimensions)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    rows: list[dict[str, Any]] = []
    for mean in track(settings.means, "mean-estimation"):
        # The draws are the same at every mean, so that trends are not luck.
        thetas = (mean + noise).clamp(-1, 1).mean(dim=1)
        for sigma in settings.sigmas:
            rows += _rows(settings, sigma, mean, thetas)
    return DataFrame(rows)


def rectified_error(theta: Tensor, sigma: Tensor, bound: Tensor, mean: float) -> Tensor:
    """E (clamp(theta + N(0, sigma^2)) - mean)^2 of each coordinate: two atoms and what lies between them."""
    inside = _inside(theta, sigma, bound)
    lower, upper = inside.lower, inside.upper
    between = truncated_error(theta, sigma, bound, mean)
    atoms = cumulative(lower) * (-bound - mean) ** 2 + cumulative(-upper) * (bound - mean) ** 2
    return torch.exp(inside.log_mass()) * between + atoms


def truncated_error(theta: Tensor, sigma: Tensor, bound: Tensor, mean: float) -> Tensor:
    """E (X - mean)^2 of each coordinate, for X ~ N(theta, sigma^2) given -bound <= X <= bound."""
    inside = _inside(theta, sigma, bound)
    return (theta + sigma * inside.mean() - mean) ** 2 + sigma**2 * inside.variance()


def matched_sigma(error: ErrorOf, theta: Tensor, bound: float, mean: float, targets: Tensor) -> Tensor:
    """The sigma whose error is the target, for each row of theta, which has its own target.

    NaN where even the smallest noise errs more, because the bound cuts off too much. ``LARGEST_SIGMA`` where
    even that much noise errs less, because the support alone answers.
    """
    low = 1e-3 * targets.sqrt()
    high = torch.full_like(low, LARGEST_SIGMA)

    def exceeds(sigmas: Tensor) -> Tensor:
        return error(theta, sigmas.unsqueeze(1), theta.new_tensor(bound), mean).mean(dim=1) > targets

    never, always = exceeds(low), ~exceeds(high)
    for _ in range(_BISECTIONS):
        middle = (low * high).sqrt()
        over = exceeds(middle)
        low, high = torch.where(over, low, middle), torch.where(over, middle, high)
    return torch.where(never, torch.nan, torch.where(always, LARGEST_SIGMA, low))


def _inside(theta: Tensor, sigma: Tensor, bound: Tensor) -> TruncatedNormal:
    theta, sigma, bound = torch.broadcast_tensors(theta, sigma, bound)
    return TruncatedNormal((-bound - theta) / sigma, (bound - theta) / sigma, 2 * bound / sigma)


# For each name, the law that is accounted for and the error of the value that is read. The reader clamps the
# Gaussian's release, so that its account is the Gaussian's.
_LAWS: dict[str, tuple[Callable[[float, float], Mechanism], ErrorOf]] = {
    "Gaussian": (lambda sigma, _: Gaussian(sigma), rectified_error),
    "rectified": (RectifiedGaussian, rectified_error),
    "truncated": (TruncatedGaussian, truncated_error),
}
_BOUNDED = ("rectified", "truncated")


def _rows(
    settings: MeanEstimationSettings, sigma: float, mean: float, thetas: Tensor
) -> Iterator[dict[str, Any]]:
    targets, fixed = (thetas - mean).square().mean(dim=1) + sigma**2, settings.bounds[0]
    matched = {
        name: matched_sigma(error, thetas, fixed, mean, targets).tolist()
        for name, (_, error) in _LAWS.items()
    }
    for trial, (theta, target) in enumerate(zip(thetas, targets.tolist(), strict=True)):
        gaussian = _renyi(settings, Gaussian(sigma), theta)
        chosen = [("equal noise", name, sigma, a) for name in _BOUNDED for a in settings.bounds]
        chosen += [
            ("equal error", name, sigmas[trial], fixed)
            for name, sigmas in matched.items()
            if not math.isnan(sigmas[trial])
        ]
        for comparison, name, noise, bound in chosen:
            law, error = _LAWS[name]
            read = error(theta, theta.new_tensor(noise), theta.new_tensor(bound), mean)
            yield {
                "comparison": comparison,
                "mechanism": name,
                "gaussian_sigma": sigma,
                "mean": mean,
                "trial": trial,
                "sigma": noise,
                "bound": bound,
                "error": float(read.mean()),
                "gaussian_error": target,
                "renyi": _renyi(settings, law(noise, bound), theta),
                "gaussian_renyi": gaussian,
            }


def _renyi(settings: MeanEstimationSettings, law: Mechanism, theta: Tensor) -> float:
    account = PerInstanceAccountant(law, settings.sensitivity, (ALPHA,))
    account.step(theta)
    return float(account.worst[0])


def draw_mean_estimation(settings: MeanEstimationSettings | None = None) -> Drawn:
    """Cost and error at equal noise, then cost at equal error: three panels for each noise level.

    Bands run from the smallest to the largest value of the trials. Panels that are flat at 1 are not drawn.
    """
    settings = MeanEstimationSettings() if settings is None else settings
    rows = mean_estimation(settings)
    shares = rows.assign(cost=rows.renyi / rows.gaussian_renyi, errs=rows.error / rows.gaussian_error)
    drawn = [_panels(own, settings, sigma) for sigma, own in shares.groupby("gaussian_sigma")]
    seen = [[panel for panel in panels if not flat(panel)] for panels in drawn]
    seen.sort(key=len, reverse=True)  # whole rows of panels first
    left_out = "; ".join(panel.title for panels in drawn for panel in panels if flat(panel))
    details = (
        f"n = {settings.records}, d = {settings.dimensions}, records clipped to [-1, 1], "
        f"{settings.trials} trials (band: smallest to largest). The sensitivity is 2/n, what one record more "
        "or less can do to a mean (erratum A14). ε is the Rényi divergence of order "
        f"{ALPHA:g}, both signs and directions; it goes like 1/{SIGMA}², so a ratio of 0.81 is one "
        "of about 0.9 in (ε, δ). That the bounded laws cost less the larger |μ| is, is the opposite of what "
        "the paper says (erratum A13). At equal error every law has the noise with which it errs as much as "
        "the plain Gaussian, and the Gaussian is clamped to the same interval afterwards, which costs "
        "nothing. The rectified law is the clamped Gaussian under another account."
    )
    chart = Chart(
        "mean_estimation",
        "Mean estimation",
        "At equal noise bounded laws cost less the larger |μ| is, but err more where the support cuts off "
        f"the mean. At equal error and a = {settings.bounds[0]:g} (solid), this is left of the Gaussian's "
        f"cost: {'; '.join(_extremes(shares))}.",
        tuple(panel for panels in seen for panel in panels),
        columns=3,
        details=details + (f" Not drawn, because they are flat at 1: {left_out}." if left_out else ""),
    )
    return Drawn(chart, rows)


def _panels(rows: DataFrame, settings: MeanEstimationSettings, sigma: float) -> list[Panel]:
    noise, fixed = (rows[rows.comparison == kind] for kind in ("equal noise", "equal error"))
    cost, noted = f"ε of order {ALPHA:g}, over the Gaussian's", f"{SIGMA} = {sigma:g}"
    common: dict[str, Any] = {"reference": 1.0, "reference_name": "Gaussian", "y_from_zero": True}

    def panel(title: str, y_label: str, lines: list[Line]) -> Panel:
        return Panel(f"{title}, {noted}", "biasedness |μ|", y_label, tuple(lines), **common)

    error = "mean squared error, over the Gaussian's"
    at_equal_error = [
        _line("Gaussian, clamped afterwards" if name == "Gaussian" else name, own, "cost")
        for name, own in fixed.groupby("mechanism", sort=False)
    ]
    return [
        panel("Cost at equal noise", cost, _by_bound(noise, settings, "cost")),
        panel("Error at equal noise", error, _by_bound(noise, settings, "errs")),
        panel(f"Cost at equal error, a = {settings.bounds[0]:g}", cost, at_equal_error),
    ]


def _by_bound(rows: DataFrame, settings: MeanEstimationSettings, column: str) -> list[Line]:
    """Colours are the laws' and dashes the smaller support's: the legend names each once."""
    lines = []
    for (mechanism, bound), own in rows.groupby(["mechanism", "bound"], sort=False):
        dashed = bound != settings.bounds[0]
        lines.append(_line(f"{mechanism}, a = {bound:g}" if dashed else mechanism, own, column, dashed))
    smaller = settings.bounds[1:]
    return lines + [Line(f"a = {bound:g}", (), (), mechanism="any", dashed=True) for bound in smaller]


def _line(name: str, rows: DataFrame, column: str, dashed: bool = False) -> Line:
    """The mean over the trials, in a band from the smallest to the largest."""
    trials = rows.groupby("mean")[column]
    ends = tuple(trials.min()), tuple(trials.max())
    look: dict[str, Any] = {"mechanism": rows.mechanism.iloc[0], "dashed": dashed, "in_legend": not dashed}
    return Line(name, tuple(trials.groups), tuple(trials.mean()), *ends, **look)


def _extremes(rows: DataFrame) -> list[str]:
    """The share of the Gaussian's cost at equal error: of each law at each noise level, from and to."""
    equal = rows[(rows.comparison == "equal error") & rows.mechanism.isin(_BOUNDED)]
    return [
        f"{name} at {SIGMA}={sigma:g}: {costs.min():.2f} to {costs.max():.2f}"
        for (sigma, name), costs in equal.groupby(["gaussian_sigma", "mechanism"]).cost
    ]

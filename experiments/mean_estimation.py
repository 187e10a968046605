"""Figure 2 of the paper: estimating a mean, and how a bounded support changes its cost and its error."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from experiments.drawing import SIGMA, Drawn, flat, grouped
from experiments.progress import Progress
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
    range of the records, known beforehand). ``candidates`` are the bounds that "tuned" picks from.
    """

    records: int = 900
    dimensions: int = 100
    trials: int = 5
    seed: int = 0
    means: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    sigmas: tuple[float, ...] = (0.1, 0.4)
    bounds: tuple[float, ...] = (1.0, 0.5)
    candidates: tuple[float, ...] = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)

    @property
    def sensitivity(self) -> float:
        """2 / n: how far one record more or less moves a coordinate of the mean.

        The mean divides by its own number of records. One more moves it by (z - mean) / (n + 1), up to
        2 / (n + 1); one less by (mean of the others - z) / n, up to 2 / n. The 1 / n that comes to
        mind holds only for a sum over a public constant (docs/errata.md, A14).
        """
        return 2 / self.records


@dataclass(frozen=True)
class MeanEstimationRow:
    """One law on one dataset, beside the Gaussian without a bound.

    ``comparison`` is "equal noise" (the paper's), "equal error" (with a fixed bound) or "tuned" (with equal
    error, and that candidate bound which leaks least here: a choice that looks at the data and is not
    charged). The mechanism "Gaussian" is the Gaussian's release, clamped afterwards at no cost.
    Errors are mean squared errors against the true mean, as in the paper; a formula averages over the noise.
    """

    comparison: str
    mechanism: str
    gaussian_sigma: float
    mean: float
    trial: int
    sigma: float
    bound: float
    error: float
    gaussian_error: float
    renyi: float  # the divergence of order ALPHA, over both signs and directions
    gaussian_renyi: float

    @property
    def cost(self) -> float:
        """The divergence over the Gaussian's."""
        return self.renyi / self.gaussian_renyi


def mean_estimation(
    settings: MeanEstimationSettings, progress: Progress | None = None
) -> Iterator[MeanEstimationRow]:
    """Yields a row for every comparison, mean, noise and trial where the law can reach the error.

    >>> small = MeanEstimationSettings(records=50, dimensions=2, trials=1, means=(0.5,), sigmas=(0.4,))
    >>> [row.mechanism for row in mean_estimation(small) if row.comparison == "tuned"]
    ['Gaussian', 'rectified', 'truncated']
    """
    generator = torch.Generator().manual_seed(settings.seed)
    shape = (settings.trials, settings.records, settings.dimensions)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    for done, mean in enumerate(settings.means):
        # The draws are the same at every mean, so that trends are not luck.
        thetas = (mean + noise).clamp(-1, 1).mean(dim=1)
        for sigma in settings.sigmas:
            yield from _rows(settings, sigma, mean, thetas)
        if progress is not None:
            progress("mean-estimation", (done + 1) / len(settings.means))


def rectified_error(theta: Tensor, sigma: Tensor, bound: Tensor, mean: float) -> Tensor:
    """E (clamp(theta + N(0, sigma^2)) - mean)^2 of each coordinate: two atoms, and the stretch between them.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(float(rectified_error(one, 0.1 * one, 50 * one, mean=1.0)), 12)  # no bound to speak of
    0.01
    """
    inside = _inside(theta, sigma, bound)
    lower, upper = inside.ends
    between = truncated_error(theta, sigma, bound, mean)
    atoms = cumulative(lower) * (-bound - mean) ** 2 + cumulative(-upper) * (bound - mean) ** 2
    return torch.exp(inside.log_mass()) * between + atoms


def truncated_error(theta: Tensor, sigma: Tensor, bound: Tensor, mean: float) -> Tensor:
    """E (X - mean)^2 of each coordinate, for X ~ N(theta, sigma^2) given -bound <= X <= bound.

    >>> one = torch.ones(1, dtype=torch.float64)
    >>> round(float(truncated_error(0 * one, 1e3 * one, one, mean=0.0)), 6)  # uniform on [-1, 1]
    0.333333
    """
    inside = _inside(theta, sigma, bound)
    return (theta + sigma * inside.mean() - mean) ** 2 + sigma**2 * inside.variance()


def matched_sigma(error: ErrorOf, theta: Tensor, bounds: Tensor, mean: float, targets: Tensor) -> Tensor:
    """The sigma whose error is the target, for each row of theta (which has its own target) and each bound.

    NaN where even the smallest noise errs more, because the bound cuts off too much. ``LARGEST_SIGMA`` where
    even that much noise errs less, because the support alone answers.

    >>> theta, bounds = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([9.0], dtype=torch.float64)
    >>> targets = torch.tensor([0.25], dtype=torch.float64)
    >>> round(float(matched_sigma(truncated_error, theta, bounds, 0.0, targets)), 6)
    0.5
    """
    targets = targets.unsqueeze(1)
    low = 1e-3 * targets.sqrt() * torch.ones_like(bounds)
    high = torch.full_like(low, LARGEST_SIGMA)

    def exceeds(sigmas: Tensor) -> Tensor:
        values = error(theta.unsqueeze(1), sigmas.unsqueeze(2), bounds.unsqueeze(1), mean)
        return values.mean(dim=2) > targets

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
) -> Iterator[MeanEstimationRow]:
    targets = (thetas - mean).square().mean(dim=1) + sigma**2
    bounds = tuple(dict.fromkeys((settings.bounds[0], *settings.candidates)))
    limits = thetas.new_tensor(bounds)
    matched = {
        error: matched_sigma(error, thetas, limits, mean, targets).tolist() for _, error in _LAWS.values()
    }
    for trial, (theta, target) in enumerate(zip(thetas, targets.tolist(), strict=True)):
        gaussian = _renyi(settings, Gaussian(sigma), theta)
        chosen = [("equal noise", name, sigma, a) for name in _BOUNDED for a in settings.bounds]
        for name, (law, error) in _LAWS.items():
            sigmas = dict(zip(bounds, matched[error][trial], strict=True))
            for comparison, some in (("equal error", settings.bounds[:1]), ("tuned", settings.candidates)):
                reached = [(sigmas[a], a) for a in some if not math.isnan(sigmas[a])]
                if reached:
                    # Shifts are small compared with sigma: the law with the least information costs least.
                    costs = [float(law(*pair).fisher_information(theta).sum()) for pair in reached]
                    chosen.append((comparison, name, *reached[costs.index(min(costs))]))
        for comparison, name, noise, bound in chosen:
            law, error = _LAWS[name]
            read = error(theta, theta.new_tensor(noise), theta.new_tensor(bound), mean)
            yield MeanEstimationRow(
                comparison=comparison,
                mechanism=name,
                gaussian_sigma=sigma,
                mean=mean,
                trial=trial,
                sigma=noise,
                bound=bound,
                error=float(read.mean()),
                gaussian_error=target,
                renyi=_renyi(settings, law(noise, bound), theta),
                gaussian_renyi=gaussian,
            )


def _renyi(settings: MeanEstimationSettings, law: Mechanism, theta: Tensor) -> float:
    account = PerInstanceAccountant(law, settings.sensitivity, (ALPHA,))
    account.step(theta)
    return float(account.worst[0])


def draw_mean_estimation(
    settings: MeanEstimationSettings | None = None, progress: Progress | None = None
) -> Drawn:
    """Cost and error at equal noise, then cost at equal error: four panels for each noise level.

    Bands run from the smallest to the largest value of the trials. Panels that are flat at 1 are not drawn.

    >>> small = MeanEstimationSettings(records=50, dimensions=2, trials=1, means=(0.0, 0.5), sigmas=(0.4,))
    >>> chart = draw_mean_estimation(small).chart
    >>> len(chart.panels), chart.panels[2].lines[0].name
    (4, 'Gaussian, clamped afterwards')
    """
    settings = MeanEstimationSettings() if settings is None else settings
    rows = list(mean_estimation(settings, progress))
    drawn = [_panels(own, settings, sigma) for sigma, own in grouped(rows, "gaussian_sigma").items()]
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
        "nothing. The rectified law is the clamped Gaussian under another account. "
        "Tuning a for each μ uses what is to be estimated and is not charged: where |μ| is below "
        f"{SIGMA} the answer 0 errs no more than the Gaussian, and any tuned support looks free."
    )
    chart = Chart(
        "mean_estimation",
        "Mean estimation",
        "At equal noise bounded laws cost less the larger |μ| is, but err more where the support cuts off "
        f"the mean. At equal error and a = {settings.bounds[0]:g} (solid), this is left of the Gaussian's "
        f"cost: {'; '.join(_extremes(rows))}.",
        tuple(panel for panels in seen for panel in panels),
        details=details + (f" Not drawn, because they are flat at 1: {left_out}." if left_out else ""),
    )
    return Drawn(chart, rows)


def _panels(rows: Sequence[MeanEstimationRow], settings: MeanEstimationSettings, sigma: float) -> list[Panel]:
    kinds = grouped(rows, "comparison")
    noise, fixed, tuned = (kinds.get(kind, []) for kind in ("equal noise", "equal error", "tuned"))
    cost, noted = f"ε of order {ALPHA:g}, over the Gaussian's", f"{SIGMA} = {sigma:g}"
    common: dict[str, Any] = {"reference": 1.0, "reference_name": "Gaussian", "y_from_zero": True}
    trivial: dict[str, Any] = {
        "shaded": (0.0, min(sigma, max(settings.means))),
        "shaded_name": "answering 0 errs no more",
    }

    def panel(title: str, y_label: str, lines: list[Line], **more: Any) -> Panel:
        return Panel(f"{title}, {noted}", "biasedness |μ|", y_label, tuple(lines), **common, **more)

    return [
        panel("Cost at equal noise", cost, _by_bound(noise, settings, lambda row: row.cost)),
        panel(
            *("Error at equal noise", "mean squared error, over the Gaussian's"),
            _by_bound(noise, settings, lambda row: row.error / row.gaussian_error),
        ),
        panel(f"Cost at equal error, a = {settings.bounds[0]:g}", cost, _by_mechanism(fixed)),
        panel("The same, a tuned for each μ", cost, _by_mechanism(tuned), **trivial),
    ]


def _by_bound(
    rows: Sequence[MeanEstimationRow],
    settings: MeanEstimationSettings,
    value: Callable[[MeanEstimationRow], float],
) -> list[Line]:
    """Colours are the laws' and dashes the smaller support's: the legend names each once."""
    lines = []
    for mechanism, laws in grouped(rows, "mechanism").items():
        for bound, own in grouped(laws, "bound").items():
            dashed = bound != settings.bounds[0]
            lines.append(_line(f"{mechanism}, a = {bound:g}" if dashed else mechanism, own, value, dashed))
    smaller = settings.bounds[1:]
    return lines + [Line(f"a = {bound:g}", (), (), mechanism="any", dashed=True) for bound in smaller]


def _by_mechanism(rows: Sequence[MeanEstimationRow]) -> list[Line]:
    return [
        _line("Gaussian, clamped afterwards" if name == "Gaussian" else name, own, lambda row: row.cost)
        for name, own in grouped(rows, "mechanism").items()
    ]


def _line(
    name: str,
    rows: Sequence[MeanEstimationRow],
    value: Callable[[MeanEstimationRow], float],
    dashed: bool = False,
) -> Line:
    """The mean over the trials, in a band from the smallest to the largest."""
    trials = {mean: [value(row) for row in own] for mean, own in grouped(rows, "mean").items()}
    low, middle, high = (tuple(map(of, trials.values())) for of in (min, fmean, max))
    look: dict[str, Any] = {"mechanism": rows[0].mechanism, "dashed": dashed, "in_legend": not dashed}
    return Line(name, tuple(trials), middle, low, high, **look)


def _extremes(rows: Sequence[MeanEstimationRow]) -> list[str]:
    """The share of the Gaussian's cost at equal error: of each law at each noise level, from and to."""
    found = []
    equal = [row for row in rows if row.comparison == "equal error" and row.mechanism in _BOUNDED]
    for sigma, laws in sorted(grouped(equal, "gaussian_sigma").items()):
        for name, own in grouped(laws, "mechanism").items():
            costs = [row.cost for row in own]
            found.append(f"{name} at {SIGMA}={sigma:g}: {min(costs):.2f} to {max(costs):.2f}")
    return found

"""The budget of a release, and the noise of its numbers: Gaussian or Laplace, whichever is smaller."""

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.calibration import smallest_sigma
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.induction import dominated_epsilon
from ringfence.accounting.ledger import Ledger
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms.base import Mechanism
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.laplace import Laplace
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.secure import SecureRelease
from ringfence.noise import CipherDraws, Noise
from ringfence.numerics.normal import cumulative

if TYPE_CHECKING:
    from ringfence.releases.release import ReleaseAccount

NoiseKind = Literal["auto", "gaussian", "laplace"]
NOISES = ("auto", "gaussian", "laplace")

_FINEST = 2.0**-20  # of sigma: the step of a secure release
_LARGEST_SCALE = 2.0**30  # of Laplace noise: with more, too many draws leave a doubt
_MOST_COMPOSED = 1024  # cells of one person; with more, Laplace noise is not competitive
_ROUNDED = 1 + 1e-10  # what accounts add for rounding
_SMOOTH = 2.0**-10  # deviations that the grid of fine noise may take from an interval
_WIDER = 1 + 1e-3  # than the deviations of continuous noise
_SUMMED = 40.0  # deviations to either side, within which the law of a sum is computed
_MOST_SUMMED, _MOST_ALONE = 1 << 22, 1 << 16  # points of that law, and of the law of one number
_GAIN = 0.999  # of the scale: less than that is not looked for
_LARGEST_DELTA = 0.1
_LARGEST = 2.0**60  # standard deviation of noise, so that what is drawn can be written down


def gaussian_loss(mu: float, *, steps: int = 1) -> PrivacyLoss:
    """The loss, for every dataset, of a Gaussian release, or of a function of it.

    ``mu`` is the L2 norm of what one person moves, each number in units of its sigma.

    >>> round(gaussian_loss(0.2).epsilon(1e-5), 2)
    0.73
    """
    zcdp = 0.5 * mu * mu * (1 + 1e-12)  # infinite where a power would raise an error
    return PrivacyLoss.of_zcdp(zcdp, zcdp, steps=steps)


@dataclass(frozen=True)
class Budget:
    """The most that a release may cost, and the source of its randomness.

    ``multiplier`` is the standard deviation of Gaussian noise for a move of norm 1: given as ``sigma``, or
    found to meet the target ``epsilon`` at ``delta``, infinite at delta = 0. ``noise`` is seeded in tests
    alone.

    Guarantee: with a target, noise of the multiplier times the L2 norm of the longest move costs at most
    ``epsilon`` at ``delta``, for every dataset, whatever is computed from the noisy values.

    >>> round(Budget.checked(1.0, 1e-6).multiplier, 2), Budget.checked(None, 1e-6, sigma=8.0).multiplier
    (4.22, 8.0)
    >>> Budget.checked(1.0, 1e-6, sigma=8.0)
    Traceback (most recent call last):
    ValueError: epsilon or sigma must be given, and not both, got epsilon=1.0 and sigma=8.0
    """

    epsilon: float | None
    delta: float
    multiplier: float
    noise: Noise
    ledger: Ledger | None
    what: str | None = None  # the name of the ledger's entry, that of the job if left out
    kind: NoiseKind = "gaussian"

    @classmethod
    def checked(
        cls,
        epsilon: Any,
        delta: Any,
        sigma: Any = None,
        seed: Any = None,
        ledger: Any = None,
        what: Any = None,
        kind: NoiseKind = "gaussian",
    ) -> "Budget":
        """The budget that the arguments of a job describe, which are refused before anything is charged.

        delta = 0 is possible where the ``kind`` of noise may be Laplace.
        """
        checks.one_of("noise", kind, NOISES)
        if ledger is not None:
            checks.instance("ledger", ledger, Ledger)
        if what is not None and not (checks.instance("what", what, str).strip() and ledger is not None):
            raise ValueError(f"what must be some words, with the ledger whose entry it names, got {what!r}")
        noise = seed if isinstance(seed, Noise) else Noise(seed)
        within = checks.probability if kind == "gaussian" else checks.probability_or_zero
        delta = within("delta", delta)
        if delta > _LARGEST_DELTA:
            raise ValueError(
                f"delta must be at most {_LARGEST_DELTA}, got {delta:g}: with that chance the promise may "
                "fail, and it should be below 1 / the number of people"
            )
        if (epsilon is None) == (sigma is None):
            raise ValueError(
                f"epsilon or sigma must be given, and not both, got epsilon={epsilon!r} and sigma={sigma!r}"
            )
        if epsilon is None:
            multiplier = checks.number("sigma", sigma, checks.positive)
            if multiplier > _LARGEST:
                raise ValueError(
                    f"sigma must be at most {_LARGEST:g}, got {sigma!r}: no grid holds such noise"
                )
            return cls(None, delta, multiplier, noise, ledger, what, kind)
        target = checks.number("epsilon", epsilon, checks.positive)
        if delta == 0:
            return cls(target, delta, math.inf, noise, ledger, what, kind)
        far = math.sqrt(-2 * math.log(delta))
        enough = (far + math.sqrt(far * far + 2 * target)) / (2 * target)  # by a tail bound of the loss
        found = smallest_sigma(
            lambda sigma: gaussian_epsilon(1 / sigma, delta), target, start=enough, tolerance=1e-7
        )
        # a little more noise than was found: products with norms are rounded
        return cls(target, delta, found * (1 + 1e-9), noise, ledger, what, kind)

    def sigma(self, norm: float) -> float:
        """The noise of every number, where one person moves all of them together by at most ``norm``."""
        return self.multiplier if self.epsilon is None else self.multiplier * norm

    def charge(self, account: "ReleaseAccount", what: str) -> "ReleaseAccount":
        """Charges the ledger, before anything is released; an account over the target raises an error.

        A ledger keeps the cost to the data at hand too, which is computed for it here.

        >>> import numpy as np
        >>> import ringfence as rf
        >>> account = rf.release_counts(np.ones(3), sigma=1.0).account
        >>> Budget.checked(0.5, 1e-6).charge(account, "a table")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        FloatingPointError: the release would cost 4.88..., more than epsilon=0.5
        """
        cost = account.epsilon
        if self.epsilon is not None and not cost <= self.epsilon:
            raise FloatingPointError(f"the release would cost {cost!r}, more than epsilon={self.epsilon!r}")
        if self.ledger is not None:
            self.ledger.charge(self.what or what, account.cost)
        return account

    def draws(
        self, law: Mechanism | Decision, values: Tensor, what: str, step: float | None = None
    ) -> CipherDraws:
        """Random numbers that belong to one release: to what is released, its law and its values.

        Guarantee: two releases with the same seed share no randomness unless law and values are the same, and
        then the release is the same: the difference of two releases tells nothing that each of them does not.

        >>> import torch
        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> budget, theta = Budget.checked(None, 1e-6, sigma=4.0, seed=7), torch.zeros(3).double()
        >>> places = [(theta, "votes"), (theta, "votes"), (theta, "counts"), (theta + 1, "votes")]
        >>> words = [budget.draws(Gaussian(4.0), *place).word() for place in places]
        >>> words[0] == words[1], len(set(words))
        (True, 3)
        """
        digest = self.noise.digest(values)
        return self.noise.at("decisions", what, repr(law.state_dict()), repr(step), digest)

    def release(self, law: Mechanism, theta: Tensor, what: str, step: float | None = None) -> Tensor:
        """Draws a secure release of theta."""
        return SecureRelease(law, step).draw(theta, self.draws(law, theta, what, step))


@dataclass(frozen=True)
class GaussianNoise:
    """Gaussian noise of numbers: rounded to whole ones where ``units`` is 1, and as good as smooth otherwise.

    >>> noise = GaussianNoise(4.24)
    >>> noise.law(20), [round(value, 2) for value in noise.shown(15, 20)]
    (RectifiedGaussian(sigma=4.24, bound=(19.0, inf)), [0.14, 6.68])
    """

    deviation: float
    units: int = 1

    name: ClassVar[str] = "Gaussian"

    @property
    def step(self) -> float | None:
        """The step of the grid for whole numbers: the smallest that a secure release takes, at least 1."""
        return max(1.0, 2.0 ** math.ceil(math.log2(self.deviation * _FINEST))) if self.units == 1 else None

    @staticmethod
    def deviations(coverage: float) -> float:
        """The standard deviations that sums of such noise exceed with at most the chance 1 - ``coverage``."""
        return NormalDist().inv_cdf(0.5 + 0.5 * coverage) + _SMOOTH

    def chances(self, points: Tensor) -> Tensor:
        """The chances that a released number is so far above the true one, at whole numbers."""
        ends = (points.unsqueeze(0) + torch.tensor([[-0.5], [0.5]])) / self.deviation
        low, high = cumulative(-ends.abs())
        return torch.where(points == 0, 1 - low - high, (high - low).abs())

    def law(self, threshold: int | None = None) -> Mechanism:
        """The law of a number that is not shown below the threshold."""
        if threshold is None:
            return Gaussian(self.deviation)
        return RectifiedGaussian(self.deviation, (threshold - (self.step or 0.0), math.inf))

    def draw(self, budget: Budget, numbers: Tensor, what: str, threshold: int | None = None) -> Tensor:
        """The noisy numbers of ``numbers``, which are counted in units."""
        return budget.release(self.law(threshold), numbers.double() / self.units, what, self.step)

    def loss(self, theta: Tensor, at_most: int) -> PrivacyLoss:
        """The loss for every dataset, where one person moves ``at_most`` numbers by at most 1."""
        return gaussian_loss(math.sqrt(at_most) / self.deviation)

    def shown(self, count: float, threshold: int) -> tuple[float, float]:
        """The chance that a true count is shown, and how much too large it then is on average."""
        least = (threshold - 0.5 - count) / self.deviation  # what rounds up to the threshold is shown
        chance = NormalDist().cdf(-least)
        return chance, self.deviation * NormalDist().pdf(least) / chance if chance else 0.0


@dataclass(frozen=True)
class LaplaceNoise:
    """Laplace noise on the multiples of 1 / ``units``.

    >>> noise = LaplaceNoise(1.0)
    >>> round(noise.deviation, 4), [round(value, 4) for value in noise.shown(1, 10)]
    (1.357, [0.0001, 9.582])
    """

    scale: float
    units: int = 1

    name: ClassVar[str] = "Laplace"
    step: ClassVar[None] = None  # the law has its own points

    @property
    def ratio(self) -> float:
        """The chance of one step more, over that of the step before."""
        return math.exp(-1 / (self.scale * self.units))

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise."""
        return math.sqrt(2 * self.ratio) / -math.expm1(-1 / (self.scale * self.units)) / self.units

    @staticmethod
    def deviations(coverage: float) -> float:
        """The standard deviations that sums of such noise exceed with at most the chance 1 - ``coverage``.

        A weighted sum of any number of Laplace variables lies between one of them and a Gaussian. The larger
        quantile of these two is never exceeded: computed for sums of up to 51, not proved.

        >>> [round(LaplaceNoise.deviations(coverage), 3) for coverage in (0.5, 0.95)]
        [0.676, 2.121]
        """
        alone = -math.log1p(-coverage) / math.sqrt(2)
        return max(alone, NormalDist().inv_cdf(0.5 + 0.5 * coverage)) * _WIDER + _SMOOTH

    def chances(self, points: Tensor) -> Tensor:
        """The chances that a released number is so far above the true one, at whole numbers."""
        return -math.expm1(-1 / self.scale) / (1 + self.ratio) * torch.exp(-points.abs() / self.scale)

    def law(self, threshold: int | None = None) -> Laplace:
        """The law of a number that is not shown below the threshold."""
        support = math.inf if threshold is None else (threshold - 1.0, math.inf)
        return Laplace(self.scale * self.units, support)

    def draw(self, budget: Budget, numbers: Tensor, what: str, threshold: int | None = None) -> Tensor:
        """The noisy numbers of ``numbers``, which are counted in units."""
        return budget.release(self.law(threshold), numbers.double(), what) / self.units

    def loss(self, theta: Tensor, at_most: int) -> PrivacyLoss:
        """The loss for every dataset, where one person moves ``at_most`` numbers by at most 1: it is pure."""
        law, moved = Laplace(self.scale), min(at_most, theta.numel())
        up = 1 + 1e-12  # rounded
        each = float(law.pure_epsilon(torch.ones((), dtype=torch.float64))) * up
        gaussian, bounded = (0.5 * moved / float(unit) ** 2 * up for unit in (law.sigma, law.scale))
        return PrivacyLoss.of_zcdp(gaussian, bounded, dominating=(("pure", each, moved),))

    def shown(self, count: float, threshold: int) -> tuple[float, float]:
        """The chance that a true count is shown, and how much too large it then is on average."""
        least = threshold - count
        far = least if least > 0 else 1 - least  # steps away from 0, where the tail is geometric
        tail = self.ratio**far / (1 + self.ratio)
        mean = far + self.ratio / -math.expm1(-1 / self.scale)
        return (tail, mean) if least > 0 else (1 - tail, mean * tail / (1 - tail))


TableNoise = GaussianNoise | LaplaceNoise


def count_noise(budget: Budget, at_most: int, units: int = 1) -> TableNoise:
    """The noise of numbers of which one person moves ``at_most`` by at most 1: the smaller one.

    >>> budget = Budget.checked(1.0, 1e-6, kind="auto")
    >>> [count_noise(budget, cells).name for cells in (1, 8, 64)]
    ['Laplace', 'Laplace', 'Gaussian']
    """
    sigma = budget.sigma(math.sqrt(at_most))
    if budget.kind != "gaussian":
        laplace = LaplaceNoise(laplace_scale(budget, at_most, units), units)
        if is_better(budget, laplace.scale * units, laplace.deviation, sigma):
            return laplace
    return GaussianNoise(sigma, units)


@cache
def errors_of_sum(noise: TableNoise, coverage: float, numbers: int) -> tuple[float, float]:
    """The standard error of a sum of this many released whole numbers, and the half width of its interval.

    The error is that of the noise and of rounding. The sum is farther from the true one than the half width
    with at most the chance 1 - ``coverage``: its law is the power of a Fourier transform.

    >>> [round(error, 3) for numbers in (1, 4) for error in errors_of_sum(LaplaceNoise(1.0), 0.95, numbers)]
    [1.357, 3.0, 2.714, 5.0]
    """
    error = math.hypot(noise.deviation, (noise.step or 0.0) / math.sqrt(12)) * math.sqrt(numbers)
    far = math.ceil(_SUMMED * error)
    if 2 * far > (_MOST_ALONE if numbers == 1 else _MOST_SUMMED):
        smooth = noise.deviations(coverage) * noise.deviation * math.sqrt(numbers)
        return error, smooth + (noise.step or 1.0) / 2 * numbers
    points = torch.arange(-far, far, dtype=torch.float64)
    law = torch.fft.rfft(torch.fft.ifftshift(noise.chances(points))) ** numbers
    summed = torch.fft.irfft(law, n=2 * far)[:far].clamp(min=0)  # at 0, 1, 2, ...
    beyond = 2 * summed.flip(0).cumsum(0).flip(0)[1:]
    return error, float((beyond > 1 - coverage - 1e-12).sum())


def is_better(budget: Budget, scale: float, error: float, gaussian_error: float) -> bool:
    """Whether Laplace noise is taken: by its name, or where its error is the smaller one.

    It is a public rule: epsilon, delta and how many cells one person moves decide. With ``sigma`` the noise
    is Gaussian unless it is named, and so it is with a ledger at a delta, whose budget counts Gaussians.
    """
    pure = budget.delta == 0
    if scale > _LARGEST_SCALE and (pure or budget.kind == "laplace"):
        raise ValueError(
            f"epsilon must be larger with Laplace noise, got {budget.epsilon!r}: its scale would be "
            f"{scale:.3g}, above {_LARGEST_SCALE:g}. Give a delta and noise='gaussian'"
        )
    if budget.kind == "laplace" or pure:
        return True
    counted = budget.epsilon is None or (budget.ledger is not None and budget.ledger.delta > 0)
    return not counted and scale <= _LARGEST_SCALE and error < gaussian_error


def laplace_scale(budget: Budget, at_most: int, units: int = 1) -> float:
    """The scale of Laplace noise for a move by 1, where one person moves ``at_most`` numbers.

    Guarantee: with a target epsilon, the cost at delta was computed and is at most that. At delta = 0 it is
    the sum of all epsilons; with a delta, the smaller one of that sum and of what the losses compose to.

    >>> budget = Budget.checked(1.0, 1e-6)
    >>> [round(laplace_scale(budget, cells), 2) for cells in (1, 4, 64)]
    [1.0, 4.0, 33.13]
    """
    if budget.epsilon is None:
        return scale_of(budget.multiplier * units) / units
    target, delta = budget.epsilon, budget.delta
    added = at_most / target * _ROUNDED
    if delta == 0 or at_most > _MOST_COMPOSED:
        return added

    def cost(scale: float) -> float:
        return dominated_epsilon((("pure", (1 + 1e-12) / scale, at_most),), delta)

    return min(added, smallest_sigma(cost, target, start=added)) if cost(_GAIN * added) <= target else added


def scale_of(deviation: float) -> float:
    """The scale of the discrete Laplace law with this standard deviation.

    >>> round(LaplaceNoise(scale_of(3.0)).deviation, 9)
    3.0
    """
    # deviation = sqrt(1/2) / sinh(1 / (2 scale))
    return 0.5 / math.asinh(math.sqrt(0.5) / deviation)

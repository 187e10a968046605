"""Figure 5a: yes/no votes. How often is the sign of a noisy surplus wrong, and what does it cost?

Each voter adds -1, 0 or +1 to the surplus (yes minus no) of every question. Whichever law makes the noisy
surplus, only its sign is read. Laws are therefore compared at an equal chance of a wrong answer:

    Gaussian, sign and rectified    Phi(-surplus / sigma)           the same release, three accounts
    truncated                       P(X < 0), X ~ N(surplus, sigma^2) given |X| <= bound
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.conversion import gaussian_epsilon
from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.accounting.profile.dominating_pair import repeated_delta
from ringfence.accounting.profile.few_moves import single_epsilons
from ringfence.accounting.profile.profile import PrivacyProfile
from ringfence.mechanisms.base import Mechanism
from ringfence.numerics.truncated_normal import TruncatedNormal
from ringfence.progress import Progress

_BISECTIONS = 60


@dataclass(frozen=True)
class VotesSettings:
    """n voters decide every question by the same margin (yes minus no, over n).

    ``errors`` are compared at every margin, ``curve_errors`` only at ``curve_margin``. ``bound`` is that of
    the rectified and the truncated law, in units of sigma. ``sigma`` is the noise of the comparison in which
    the noise was fixed before anyone voted.
    """

    voters: int = 1000
    margins: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2, 0.4)
    questions: tuple[int, ...] = (1, 10, 100)
    errors: tuple[float, ...] = (0.05, 0.01, 0.001)
    curve_margin: float = 0.1
    curve_errors: tuple[float, ...] = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
    bound: float = 1.0
    sigma: float = 40.0
    sigma_margins: tuple[float, ...] = (0.01, 0.04, 0.07, 0.1, 0.12, 0.14, 0.16, 0.2, 0.4)
    delta: float = 1e-5


@dataclass(frozen=True)
class VotesRow:
    """One law at one margin, beside the Gaussian whose sign, taken afterwards, is wrong as often.

    ``comparison`` is "equal error", or "equal noise" where sigma is the same whatever the margin.
    """

    comparison: str
    mechanism: str
    questions: int
    margin: float
    error: float  # the chance that one answer is wrong
    sigma: float
    bound: float | None
    epsilon: float
    gaussian_epsilon: float

    @property
    def ratio(self) -> float:
        """The Gaussian's epsilon over this epsilon; infinite where delta covers everything."""
        return self.gaussian_epsilon / self.epsilon if self.epsilon > 0 else math.inf


def votes(settings: VotesSettings, progress: Progress | None = None) -> Iterator[VotesRow]:
    """Yields a row for every law, margin, error and number of questions.

    >>> few = VotesSettings(margins=(0.1,), questions=(100,), errors=(0.01,), curve_errors=())
    >>> rows = votes(few)
    >>> [f"{row.mechanism} {row.ratio:.1f}" for row, _ in zip(rows, range(4))]
    ['Gaussian 1.0', 'sign 2.7', 'rectified 1.5', 'truncated 2.1']
    """
    pairs = [(margin, error) for margin in settings.margins for error in settings.errors]
    pairs += [(settings.curve_margin, error) for error in settings.curve_errors]
    designs = [design for pair in dict.fromkeys(pairs) for design in _equal_error(settings, *pair)]
    designs += [design for margin in settings.sigma_margins for design in _equal_noise(settings, margin)]
    singles = _singles(settings, designs) if 1 in settings.questions else [math.inf] * len(designs)
    for done, (design, single) in enumerate(zip(designs, singles, strict=True)):
        for questions in settings.questions:
            yield _row(settings, design, questions, single)
        if progress is not None:
            progress("votes", (done + 1) / len(designs))


def wrong_answer(surplus: float, sigma: float) -> float:
    """P(surplus + N(0, sigma^2) < 0), the chance of a wrong answer for a surplus above 0.

    Clamping to an interval around 0 afterwards does not change the sign.

    >>> round(wrong_answer(100.0, 50.0), 6)
    0.02275
    """
    return 0.5 * math.erfc(surplus / sigma / math.sqrt(2))


def truncated_wrong_answer(surplus: float, sigma: float, bound: float) -> float:
    """P(X < 0) for X ~ N(surplus, sigma^2) given |X| <= bound.

    >>> round(truncated_wrong_answer(100.0, 50.0, 1e6), 6), round(truncated_wrong_answer(0.0, 1.0, 1.0), 6)
    (0.02275, 0.5)
    """
    low, zero, high = (_vector((end - surplus) / sigma) for end in (-bound, 0.0, bound))
    below = TruncatedNormal(low, zero, zero - low).log_mass()
    return float(torch.exp(below - TruncatedNormal(low, high, high - low).log_mass()))


def sigma_for_error(surplus: float, error: float) -> float:
    """The sigma with which the sign is wrong this often.

    >>> round(wrong_answer(100.0, sigma_for_error(100.0, 0.01)), 12)
    0.01
    """
    error = checks.probability("error", error)
    if error >= 0.5:
        raise ValueError(f"error must be below 0.5, got {error!r}")
    return surplus / -NormalDist().inv_cdf(error)


def truncated_sigma_for_error(surplus: float, error: float, bound: float) -> float:
    """The sigma with which the truncated law is wrong this often, if its bound is ``bound`` times sigma.

    >>> sigma = truncated_sigma_for_error(100.0, 0.01, bound=1.0)
    >>> round(truncated_wrong_answer(100.0, sigma, sigma), 9)
    0.01
    """
    high = sigma_for_error(surplus, error)  # conditioning brings 0 closer, so that less noise is allowed
    low = high / 1000
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if truncated_wrong_answer(surplus, middle, bound * middle) <= error:
            low = middle
        else:
            high = middle
    return low


@dataclass(frozen=True)
class _Design:
    """What is released at one margin, before the number of questions is known."""

    comparison: str
    mechanism: str
    margin: float
    error: float
    gaussian_sigma: float
    sigma: float
    bound: float | None = None

    @property
    def law(self) -> Mechanism:
        return Mechanism.by_name(self.mechanism.lower(), sigma=self.sigma, bound=self.bound)


def _equal_error(settings: VotesSettings, margin: float, error: float) -> Iterator[_Design]:
    surplus = margin * settings.voters
    sigma = sigma_for_error(surplus, error)
    truncated = truncated_sigma_for_error(surplus, error, settings.bound)
    for mechanism, noise, bound in (
        ("Gaussian", sigma, None),
        ("sign", sigma, None),
        ("rectified", sigma, settings.bound * sigma),
        ("truncated", truncated, settings.bound * truncated),
    ):
        yield _Design("equal error", mechanism, margin, error, sigma, noise, bound)


def _equal_noise(settings: VotesSettings, margin: float) -> Iterator[_Design]:
    """All laws but the truncated one, which errs more often at the same sigma."""
    error = wrong_answer(margin * settings.voters, settings.sigma)
    bounds = {"Gaussian": None, "sign": None, "rectified": settings.bound * settings.sigma}
    for mechanism, bound in bounds.items():
        yield _Design("equal noise", mechanism, margin, error, settings.sigma, settings.sigma, bound)


def _singles(settings: VotesSettings, designs: list[_Design]) -> list[float]:
    """For each design the exact epsilon of one question; all designs of a law are computed in one pass."""
    found = [math.inf] * len(designs)
    for mechanism in ("sign", "rectified", "truncated"):
        chosen = [at for at, design in enumerate(designs) if design.mechanism == mechanism]
        if not chosen:
            continue
        some = [designs[at] for at in chosen]
        bounds = [design.bound for design in some if design.bound is not None]
        law = Mechanism.by_name(
            mechanism,
            sigma=_vector(*(design.sigma for design in some)),
            bound=_vector(*bounds) if bounds else None,
        )
        surplus = _vector(*(design.margin * settings.voters for design in some))
        for at, epsilon in zip(chosen, single_epsilons(law, surplus, 1.0, settings.delta), strict=True):
            found[at] = float(epsilon)
    return found


def _row(settings: VotesSettings, design: _Design, questions: int, single: float) -> VotesRow:
    gaussian = gaussian_epsilon(math.sqrt(questions) / design.gaussian_sigma, settings.delta)
    epsilon = gaussian  # exact: taking the sign afterwards does not change the Gaussian's account
    if design.mechanism != "Gaussian":
        surplus = _vector(design.margin * settings.voters)
        epsilon = votes_epsilon(design.law, surplus, questions, settings.delta)
        epsilon = min(epsilon, single) if questions == 1 else epsilon
    return VotesRow(
        comparison=design.comparison,
        mechanism=design.mechanism,
        questions=questions,
        margin=design.margin,
        error=design.error,
        sigma=design.sigma,
        bound=design.bound,
        epsilon=epsilon,
        gaussian_epsilon=gaussian,
    )


def votes_epsilon(law: Mechanism, surplus: Tensor, questions: int, delta: float) -> float:
    """The smallest per-instance epsilon of one release of this many questions with the same surplus.

    Guarantee: the smallest epsilon of several proofs, each of which holds for every voter, however they vote
    on each question: the realised Rényi sums, the data-independent bound, and backward induction.

    >>> from ringfence.mechanisms.sign import StochasticSign
    >>> hundred = torch.tensor([100.0], dtype=torch.float64)
    >>> round(votes_epsilon(StochasticSign(40.0), hundred, 10, 1e-5), 3)
    0.135
    """
    sums = PerInstanceAccountant(law, 1.0)
    sums.step(surplus, count=questions)  # n equal coordinates cost as much as n releases of one
    claim = sums.guarantee(delta)
    tight = PrivacyProfile({"backward induction": repeated_delta(law, surplus, _vector(1.0), questions)})
    return min(claim.epsilon_pdp, claim.epsilon_data_independent, tight.epsilon(delta))


def _vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)

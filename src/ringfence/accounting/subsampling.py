"""Random batches: what releases of Poisson samples and of randomly allocated epochs cost, for every dataset.

In a Poisson sample each record enters the batch with probability q, independently; with random allocation it
is in one batch of every epoch. Theta is the sum over the batch. Which records are in the released batch is
random and unknown, so that of theta only the shape counts.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Self, get_args

from torch import Tensor

from ringfence import checks
from ringfence.accounting.gaussian_releases import GaussianRelease, Releases, merged_releases
from ringfence.accounting.guarantee import ADDED_OR_REMOVED
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import Accountant, PrivacyLoss, releases_from_state
from ringfence.accounting.sensitivity import Sensitivity, ceilings
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism


def chance_of_cut(records: float, sampling_rate: float, maximum: int) -> float:
    """An upper bound of the chance that a Poisson sample of at most this many records reaches ``maximum``.

    Let each record enter with probability q, and keep the ``maximum`` = B of smallest priorities, which are
    drawn for each record by itself. A record more changes nothing where it does not enter. Where it does, and
    fewer than B others did, it is added: the pair of ordinary sampling. Where B others entered, it takes the
    place of one of them, if its priority is small enough: given the others and their priorities, with a
    probability of at most q, it moves the sum by no more than two records do. That B others entered has the
    same probability with and without it, which grows with their number, and the second pair dominates the
    first. So the release is dominated by their mixture, in which one sees which of them was used.

    >>> chance_of_cut(1000, 0.1, 150), chance_of_cut(1000, 0.1, 100) > 0.5
    (4.489442863939484e-07, True)
    """
    from scipy.stats import binom  # type: ignore[import-untyped]

    return min(1.0, float(binom.sf(maximum - 1, math.ceil(records), sampling_rate)) * (1 + 1e-9))


class SampledAccountant(Accountant):
    """Adds up releases of Poisson samples and says what they cost every dataset.

    Call ``step_worst_case(theta)`` once for each release; of theta only the shape counts. A record must enter
    theta with a contribution that depends only on the record and on earlier releases, within ``sensitivity``:
    a number for the largest move of each coordinate, or a ``Sensitivity``. ``cut`` is the chance that a
    sample of the other records reaches the public maximum of a batch (``chance_of_cut``), 0 where there is
    none.

    Guarantee: a release costs no more than that of a sample with Gaussian noise of the same sigma, and no
    more than ``gaussian_releases`` proves from what the law proves for every theta.

    >>> import ringfence as rf
    >>> account = SampledAccountant(rf.TruncatedGaussian(1.0, bound=2.0), 0.1, sampling_rate=0.5)
    >>> account.step_worst_case([0.0, 1.0], count=100)
    >>> claim = account.guarantee(delta=1e-5)
    >>> round(claim.epsilon, 3), round(claim.per_instance.gaussian_epsilon, 3)
    (2.908, 2.992)
    """

    _SETTINGS: ClassVar = ("mechanism", "sensitivity", "sampling_rate", "cut")
    _COUNTED: ClassVar = ("steps", "releases")

    releases: Releases = ()

    def __init__(
        self, mechanism: Mechanism, sensitivity: Real | Sensitivity, sampling_rate: float, *, cut: float = 0.0
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self.cut = checks.number("cut", cut, checks.share)

    def step_worst_case(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases, with the account's own settings unless others are given.

        Of ``theta`` only the shape counts.
        """
        law = self.mechanism if mechanism is None else checked_mechanism(mechanism)
        size = self.sensitivity if sensitivity is None else Sensitivity.of(sensitivity)
        rate = self.sampling_rate if sampling_rate is None else checks.rate("sampling_rate", sampling_rate)
        count = checks.count("count", count, at_least=1)
        moved = size.times(2) if self.cut else size  # by a record that takes another's place
        gaussian, bounded = ceilings(law, checks.tensor("theta", theta), moved)
        release = GaussianRelease(math.sqrt(2 * gaussian), bounded, rate, self.cut, count=count)
        self.releases = merged_releases((*self.releases, release))
        self.steps += count

    def charge(self, theta: Tensor) -> None:
        """Charges one release of a Poisson sample in training, with what holds for every dataset.

        Of ``theta``, the released batch itself, only the shape counts.
        """
        self.step_worst_case(theta)

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        return replace(PrivacyLoss.of_gaussian(*self.releases), steps=self.steps)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; one of version 0.6 is refused by name."""
        if "spent" in checks.mapping("state", state):
            raise ValueError(
                "state must be of this version, got one of version 0.6: finish with that version, or charge "
                "the pair (epsilon, delta) that it claims"
            )
        account = super().from_state_dict(state)
        if sum(release.count for release in account.releases) != account.steps:
            raise ValueError(f"releases must count {account.steps} steps, got {state['releases']!r}")
        return account

    def _read(self, name: str, value: Any) -> Any:
        return releases_from_state(value) if name == "releases" else super()._read(name, value)

    def __repr__(self) -> str:
        return (
            f"SampledAccountant({self.mechanism!r}, sampling_rate={self.sampling_rate}, steps={self.steps})"
        )


class AllocatedAccountant(Accountant):
    """Adds up epochs, in each of which every record is in one of ``steps_an_epoch`` releases.

    Which one is drawn at random for each record by itself. An epoch counts as a whole once it was begun
    (``enter``), and what is charged holds for every dataset. Two draws for the same steps are two epochs.

    Guarantee: all releases of an epoch together are dominated as ``allocation.epoch_losses`` says. Each of
    its Rényi divergences is at most that of one Gaussian release of the longest move, by convexity.

    >>> import ringfence as rf
    >>> account = AllocatedAccountant(rf.Gaussian(1.0), rf.Sensitivity(norm=1.0), steps_an_epoch=100)
    >>> account.step_worst_case([0.0], count=1000)
    >>> round(account.guarantee(delta=1e-5).epsilon, 2), account.epochs
    (1.7, 10)
    """

    _SETTINGS: ClassVar = ("mechanism", "sensitivity", "steps_an_epoch")
    _COUNTED: ClassVar = ("steps", "epochs", "mu")

    epochs = 0
    mu = 0.0  # the longest move, in units of sigma

    def __init__(self, mechanism: Mechanism, sensitivity: Real | Sensitivity, steps_an_epoch: int) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self.steps_an_epoch = checks.count("steps_an_epoch", steps_an_epoch, at_least=1)
        self._entered: tuple[int, ...] | None = None

    def enter(self, epoch: tuple[int, ...]) -> None:
        """Counts one epoch more, unless it is the one that was entered last."""
        if epoch != self._entered:
            self.epochs += 1
            self._entered = epoch

    def before(self, epoch: tuple[int, ...]) -> int:
        """The number of epochs that were entered before this one."""
        return self.epochs - (epoch == self._entered)

    def charge(self, theta: Tensor) -> None:
        """Counts one release, in training, of the epoch that was entered last."""
        if self._entered is None:
            raise ValueError("enter must be called before charge: which epoch a release is in is not known")
        self._add(theta, 1, 0)

    def step_worst_case(self, theta: Real, *, count: int = 1) -> None:
        """Adds ``count`` releases, epoch after epoch. Of ``theta`` only the shape counts."""
        count = checks.count("count", count, at_least=1)
        before, after = (math.ceil(steps / self.steps_an_epoch) for steps in (self.steps, self.steps + count))
        self._add(checks.tensor("theta", theta), count, after - before)

    def _add(self, theta: Tensor, count: int, epochs: int) -> None:
        self.mu = max(self.mu, math.sqrt(2 * ceilings(self.mechanism, theta, self.sensitivity)[0]))
        self.epochs += epochs
        self.steps += count

    def privacy_loss(self) -> PrivacyLoss:
        """The steps so far as one value, which adds up with that of other accounts."""
        if not self.epochs:
            return PrivacyLoss(steps=self.steps, change=ADDED_OR_REMOVED)
        epochs = GaussianRelease(self.mu, epoch=self.steps_an_epoch, count=self.epochs)
        return replace(PrivacyLoss.of_gaussian(epochs), steps=self.steps)

    def __repr__(self) -> str:
        return f"AllocatedAccountant({self.mechanism!r}, steps={self.steps}, epochs={self.epochs})"


# Training charges one of these before each release (``charge``).
Account = PerInstanceAccountant | SampledAccountant | AllocatedAccountant

_KINDS: dict[str, type[Account]] = {kind.__name__: kind for kind in get_args(Account)}


def accountant_from_state_dict(state: dict[str, Any]) -> Account:
    """The account that a ``state_dict`` describes; its ``kind`` chooses the class.

    An unknown kind or version is an error that names it.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> saved = PerInstanceAccountant(Gaussian(1.0), sensitivity=0.1).state_dict()
    >>> accountant_from_state_dict(saved)
    PerInstanceAccountant(Gaussian(sigma=1.0), steps=0)
    """
    kind = checks.one_of("kind", checks.mapping("state", state).get("kind"), _KINDS)
    return _KINDS[kind].from_state_dict(state)

"""The accountant that Opacus knows as "ringfence", with the claim in the words of this package."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from opacus.accountants import IAccountant, register_accountant

from ringfence.accounting.claim.conversion import sampled_gaussian_epsilon
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.training.assumptions import FLOATS

SIZE = (
    "The number of records counts as public: Opacus divides what it releases by a batch size that it "
    "computes from that number."
)
History = Iterable[tuple[float, float, int]]  # noise multiplier, sample rate and number of steps


class RingfenceAccountant(IAccountant):  # type: ignore[misc]
    """For ``opacus.PrivacyEngine(accountant="ringfence")``; importing ``ringfence.opacus`` registers it.

    Guarantee: ``get_epsilon`` is that of Poisson-sampled Gaussian releases, by dp-accounting's privacy loss
    distributions, for every dataset and every record added or removed. It is as pessimistic as they are and
    holds for the history of steps that Opacus reports, with noise_multiplier times max_grad_norm as sigma.

    >>> account = RingfenceAccountant()
    >>> for _ in range(100):
    ...     account.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> round(account.get_epsilon(delta=1e-5), 3), len(account)
    (0.718, 100)
    """

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Takes note of one release."""
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, *args: object, **kwargs: object) -> float:
        """The epsilon of ordinary differential privacy at this delta, of everything released so far."""
        settings: dict[tuple[float, float], int] = {}
        for noise_multiplier, rate, steps in self.history:
            place = (1 / Gaussian(noise_multiplier).sigma.item(), rate)
            settings[place] = settings.get(place, 0) + steps
        return sampled_gaussian_epsilon(settings, delta) if settings else 0.0

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about everything released so far, in the words of this package."""
        return replace(account_of(self.history).guarantee(delta), assumptions=(SIZE, FLOATS))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name by which Opacus finds this accountant."""
        return "ringfence"


def account_of(history: History) -> SampledAccountant:
    """The account of releases that Opacus made; lengths are in units of max_grad_norm.

    >>> account_of([(1.0, 0.01, 100)]).steps
    100
    """
    account = SampledAccountant(Gaussian(1.0), Sensitivity(norm=1.0), 1.0)
    for noise_multiplier, rate, steps in history:
        charge(account, noise_multiplier, rate, steps)
    return account


def charge(account: SampledAccountant, noise_multiplier: float, sample_rate: float, steps: int = 1) -> None:
    """Charges releases of a sum that one record moves by at most max_grad_norm, with that much noise.

    >>> charge(account := account_of([]), 2.0, 0.1)
    >>> account.steps
    1
    """
    one = Sensitivity(norm=1.0)
    account.step_of_any(
        torch.zeros(1),
        mechanism=Gaussian(noise_multiplier),
        sensitivity=one,
        sampling_rate=sample_rate,
        count=steps,
    )


register_accountant(RingfenceAccountant.mechanism(), RingfenceAccountant, force=True)

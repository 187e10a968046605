"""Accounting for releases of Poisson samples: running sums, and what may be said about them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.accounting.claim.conversion import epsilon_from_rdp, sampled_gaussian_epsilon
from ringfence.accounting.claim.data_independent import GAUSSIAN, SAMPLED, ZCDP, DataIndependent
from ringfence.accounting.claim.guarantee import ADDED_OR_REMOVED, Guarantee, guarantee
from ringfence.accounting.claim.trade_off import TradeOff
from ringfence.accounting.costs.account_cost import at_orders
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.per_instance import DivergenceTables
from ringfence.accounting.sampled.divergence import SampledDivergence, checked_integer_orders
from ringfence.accounting.sampled.poisson_mixture import knots
from ringfence.accounting.sampled.subsampling import SAMPLED_ORDERS, averaged_over
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.checks import Real
from ringfence.mechanisms.base import Mechanism, checked_mechanism

_SUMS = ("forward", "backward", "gaussian", "data_independent")
_STATE = {
    *("mechanism", "sensitivity", "sampling_rate", "orders", "failure_probability", *_SUMS),
    *("settings", "steps", "spent"),
}


class SampledAccountant:
    """Adds up releases of Poisson samples and says what they cost.

    Call ``step(batches)`` once for each release, with the thetas of auxiliary batches: independent
    Poisson samples that are drawn for the purpose at the same model parameters as the release, and never
    the released batch itself (``subsampled_rdp``). A record must enter theta with a contribution that
    depends only on the record and on earlier releases, within ``sensitivity``: a number for the largest move
    of each coordinate, or a ``Sensitivity``. Mechanism, sensitivity and sampling rate may differ from step
    to step.

    Guarantee: for each order there is one running sum per direction. Each is an upper bound except with
    probability ``spent``, to which every step adds ``failure_probability``, and is never above the sum of
    the Poisson-sampled Gaussian. ``spent`` is paid out of delta. ``docs/guarantees.md`` says what the sums
    promise.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> batches = torch.randn(10, 2, generator=torch.Generator().manual_seed(0)).double()
    >>> account = SampledAccountant(TruncatedGaussian(1.0, bound=2.0), 0.1, 0.5, orders=[8, 16, 32])
    >>> account.step(batches, count=100)
    >>> own = account.guarantee(delta=1e-5).per_instance
    >>> own.epsilon < own.gaussian_epsilon, own.failure_probability
    (True, 1e-09)
    """

    def __init__(
        self,
        mechanism: Mechanism,
        sensitivity: Real | Sensitivity,
        sampling_rate: float,
        orders: Sequence[float] | Tensor = SAMPLED_ORDERS,
        failure_probability: float = 1e-9,
    ) -> None:
        self.mechanism = checked_mechanism(mechanism)
        self.sensitivity = Sensitivity.of(sensitivity)
        self.sampling_rate = checks.rate("sampling_rate", sampling_rate)
        self._orders = checked_integer_orders(orders).clone()
        self.failure_probability = checks.probability("failure_probability", failure_probability)
        self.forward = torch.zeros_like(self._orders)
        self.backward = torch.zeros_like(self._orders)
        self.gaussian = torch.zeros_like(self._orders)  # of the sampled Gaussian with the same sigma
        self.data_independent = torch.zeros_like(self._orders)  # what the law proves for every theta
        self.settings: dict[tuple[float, float], int] = {}  # (shift / sigma, sampling rate): releases
        self.steps = 0
        self.spent = 0.0
        self._tables = DivergenceTables(knots(self._orders))
        # what a release with the account's own settings costs for any dataset, by the shape of theta
        self._costs_of_any: dict[torch.Size, _Cost] = {}

    def step(
        self,
        batches: Tensor | Iterable[Real],
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases, with the account's own settings unless others are given.

        They are ``count`` samples of the same dataset at the same model parameters: the average over batches
        is the same number, which is estimated once.
        """
        count = checks.count("count", count, at_least=1)
        release = self._divergence(mechanism, sensitivity, sampling_rate)
        rdp, theta = averaged_over(batches, release, self.failure_probability)
        self._add(_Cost.of(release, theta, rdp.forward, rdp.backward), count)
        self.spent += rdp.failure_probability

    def step_of_any(
        self,
        theta: Real,
        *,
        mechanism: Mechanism | None = None,
        sensitivity: Real | Sensitivity | None = None,
        sampling_rate: float | None = None,
        count: int = 1,
    ) -> None:
        """Adds ``count`` releases, charged with what holds for every dataset: nothing is estimated.

        Of ``theta`` only the shape counts.
        """
        count = checks.count("count", count, at_least=1)
        theta = checks.tensor("theta", theta)
        own = mechanism is None and sensitivity is None and sampling_rate is None
        cost = self._costs_of_any.get(theta.shape) if own else None
        if cost is None:
            release = self._divergence(mechanism, sensitivity, sampling_rate)
            cost = _Cost.of(release, theta, *release.divergence(release.ceilings(theta)))
        if own:
            self._costs_of_any = {theta.shape: cost}
        self._add(cost, count)

    def charge(self, theta: Tensor, batches: Iterable[Tensor] | None = None) -> None:
        """Charges one release of a Poisson sample, as ``Account.charge``.

        The release costs what ``batches`` of auxiliary samples say, and what holds for every dataset where
        there are none. Of ``theta``, the released batch itself, only the shape counts.
        """
        if batches is None:
            self.step_of_any(theta)
        else:
            self.step(batches)

    def _divergence(
        self, mechanism: Mechanism | None, sensitivity: Real | Sensitivity | None, sampling_rate: float | None
    ) -> SampledDivergence:
        return SampledDivergence(
            self.mechanism if mechanism is None else mechanism,
            self.sensitivity if sensitivity is None else sensitivity,
            self.sampling_rate if sampling_rate is None else sampling_rate,
            self._orders,
            self._tables,
        )

    def _add(self, cost: "_Cost", count: int) -> None:
        self.forward = self.forward + count * cost.forward
        self.backward = self.backward + count * cost.backward
        self.gaussian = self.gaussian + count * cost.gaussian
        self.data_independent = self.data_independent + count * cost.ceiling
        self.settings[cost.setting] = self.settings.get(cost.setting, 0) + count
        self.steps += count

    @property
    def orders(self) -> Tensor:
        """The Rényi orders, fixed at construction: the ex-post bound pays for these and no others."""
        return self._orders.clone()

    @property
    def worst(self) -> Tensor:
        """The larger of the two running sums, order by order."""
        return torch.maximum(self.forward, self.backward)

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about all the steps so far, at this delta.

        The ex-post numbers and those of Rényi sums hold at delta less what was spent on estimating, so that
        they hold at delta altogether.
        """
        delta = checks.probability("delta", delta)
        if delta <= self.spent:
            raise ValueError(
                f"delta must be above the {self.spent!r} spent on estimating averages over batches, "
                f"got {delta!r}: use a smaller failure_probability"
            )
        ceiling, _ = epsilon_from_rdp(self._orders, self.data_independent, delta)
        exact = sampled_gaussian_epsilon(self.settings, delta)
        attacks = TradeOff(
            tuple((mu, rate, count) for (mu, rate), count in self.settings.items()),
            orders=tuple(self._orders.tolist()),
            divergences=tuple(self.data_independent.tolist()),
        )
        proof = GAUSSIAN if all(rate == 1 for _, rate in self.settings) else SAMPLED
        return guarantee(
            orders=self._orders,
            worst=self.worst,
            gaussian=self.gaussian,
            data_independent=DataIndependent(*min((exact, proof), (ceiling, ZCDP)), exact, attacks),
            steps=self.steps,
            delta=delta,
            spent=self.spent,
        )

    def fresh(self) -> Self:
        """An account with the same settings and no steps."""
        settings = (self.mechanism, self.sensitivity, self.sampling_rate, self._orders)
        return type(self)(*settings, self.failure_probability)

    def cost(self) -> Cost:
        """The steps so far in a form that adds up with those of other accounts (``Ledger``)."""
        return Cost(
            releases=tuple((mu, rate, count) for (mu, rate), count in self.settings.items()),
            zcdp=math.inf,
            ceiling=at_orders(self._orders, self.data_independent),
            forward=at_orders(self._orders, self.forward),
            backward=at_orders(self._orders, self.backward),
            gaussian=at_orders(self._orders, self.gaussian),
            steps=self.steps,
            change=ADDED_OR_REMOVED,
            spent=self.spent,
        )

    def state_dict(self) -> dict[str, Any]:
        """The account as plain data, which JSON keeps; ``from_state_dict`` restores it exactly."""
        return {
            "kind": type(self).__name__,
            "version": 1,
            "mechanism": self.mechanism.state_dict(),
            "sensitivity": self.sensitivity.state(),
            "sampling_rate": self.sampling_rate,
            "orders": self._orders.tolist(),
            "failure_probability": self.failure_probability,
            **{name: getattr(self, name).tolist() for name in _SUMS},
            "settings": [[mu, rate, count] for (mu, rate), count in self.settings.items()],
            "steps": self.steps,
            "spent": self.spent,
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> Self:
        """The account that a ``state_dict`` describes; an unknown kind, version or key is an error."""
        checks.state("SampledAccountant", 1, state, _STATE)
        account = cls(
            Mechanism.from_state_dict(state["mechanism"]),
            Sensitivity.from_state(state["sensitivity"]),
            state["sampling_rate"],
            state["orders"],
            state["failure_probability"],
        )
        for name in _SUMS:
            setattr(account, name, checks.sums(name, state[name], len(account.orders)))
        for entry in checks.listed("settings", state["settings"]):
            mu, rate, count = checks.listed("settings", entry, length=3)
            setting = (checks.number("settings", mu, checks.not_negative), checks.rate("settings", rate))
            account.settings[setting] = checks.count("settings", count, at_least=1)
        account.steps = checks.count("steps", state["steps"], at_least=0)
        if sum(account.settings.values()) != account.steps:
            raise ValueError(f"settings must count {account.steps} steps, got {state['settings']!r}")
        account.spent = checks.number("spent", state["spent"], checks.not_negative)
        return account

    def __repr__(self) -> str:
        return (
            f"SampledAccountant({self.mechanism!r}, sampling_rate={self.sampling_rate}, steps={self.steps})"
        )


class _Cost(NamedTuple):
    """What one release adds to the sums of an account."""

    forward: Tensor
    backward: Tensor
    gaussian: Tensor
    ceiling: Tensor
    setting: tuple[float, float]

    @classmethod
    def of(cls, release: SampledDivergence, theta: Tensor, forward: Tensor, backward: Tensor) -> "_Cost":
        ceiling = release.divergence(release.ceilings(theta).amax(dim=0))
        setting = (release.gaussian_mu(theta), release.sampling_rate)
        return cls(forward, backward, release.gaussian(theta), ceiling, setting)

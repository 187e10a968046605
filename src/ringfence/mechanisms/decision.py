"""Decisions: releases with few outcomes that are drawn from a row of counts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.base import without_nan
from ringfence.noise import CipherDraws, Draws, Noise
from ringfence.numerics.blocks import at_once
from ringfence.numerics.largest_normal import FARTHEST

_DRAWN = 1 << 20  # noisy values that are held at once


class Decision(ABC):
    """A law whose input is a row of K counts, the last dimension, and whose outcome is a number.

    The winner has the largest of counts with independent noises of one law whose distribution function is
    log-concave, and everything else depends on the largest count alone: accounts with many candidates rely on
    that. It is no ``Mechanism``: those are applied to each coordinate by itself. Counts may be integers and
    need not be counts: any finite numbers will do. Everything is computed in float64. P is the law at
    ``counts``, Q the law at ``counts + move``; the move is an argument, because a difference of counts would
    lose its digits.

    >>> import ringfence as rf
    >>> isinstance(rf.NoisyWinner(8.0), Decision), isinstance(rf.NoisyWinner(8.0), rf.Mechanism)
    (True, False)
    """

    name: ClassVar[str]  # one word, for files and the command line
    label: ClassVar[str]  # for tables and charts
    noise: ClassVar[str] = "Gaussian"  # of every count
    # alpha times the move, in sigma: up to here it does not matter that candidates far behind are clamped
    steepest: ClassVar[float] = 0.1 * FARTHEST

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of the arguments that the constructor takes, all of them numbers.

        >>> import ringfence as rf
        >>> rf.ConfidentWinner.fields()
        ('sigma', 'threshold', 'threshold_sigma')
        """
        return tuple(signature(cls).parameters)

    def pair(self, counts: Real, move: Real) -> tuple[Tensor, Tensor]:
        """log P and log P/Q of every outcome, which is the first dimension; the other ones are the queries.

        ``counts`` and ``move`` broadcast against each other. Where counts are (queries, 1, K) and moves
        (moves, K), what depends on the counts alone is computed once for all moves.

        >>> import ringfence as rf
        >>> log_p, rho = rf.NoisyWinner(sigma=1.0).pair([5, 4, 0], [-1, 0, 1])
        >>> [round(float(value), 4) for value in log_p], [round(float(value), 4) for value in rho]
        ([-0.2741, -1.4282, -10.451], [0.4217, -0.7324, -4.5329])
        """
        both = self._pair(*self._arguments(counts, move))
        log_p, rho = (without_nan(self, "pair", part) for part in both)
        return log_p, rho

    def log_prob(self, winner: Real, counts: Real) -> Tensor:
        """The log mass of an outcome.

        >>> import ringfence as rf
        >>> round(float(rf.NoisyWinner(sigma=1.0).log_prob(1, [3.0, 3.0]).exp()), 12)
        0.5
        """
        values = self._checked(counts)
        log_p = self._log_masses(values)
        outcome = checks.finite("winner", winner).double().to(values.device)
        candidates = values.shape[-1]
        lowest = candidates - len(log_p)  # -1 where there may be no answer
        fits = (outcome >= lowest) & (outcome < candidates) & (outcome == outcome.round())
        checks.require("winner", f"must be an integer from {lowest} to {candidates - 1}", outcome, fits)
        shape = checks.broadcast(("winner", "counts without candidates"), (outcome, log_p[0]))
        index = (outcome.long() % len(log_p)).expand(shape).unsqueeze(0)
        return without_nan(
            self, "log_prob", _aligned(outcome, log_p)[0].expand(-1, *shape).gather(0, index).squeeze(0)
        )

    def renyi_divergence(self, counts: Real, move: Real, alpha: Real) -> Tensor:
        """D_alpha(M(counts) || M(counts + move)) of each query.

        Guarantee: never above what holds for all counts, up to rounding: that of the Gaussian releases of
        which the decision is a function, or of its range.

        >>> import ringfence as rf
        >>> round(float(rf.NoisyWinner(sigma=8.0).renyi_divergence([40, 9, 2], [-1, 1, 0], 8.0)), 6)
        0.001758
        """
        values, shift = self._arguments(counts, move)
        order = checks.order("alpha", alpha).double().to(values.device)
        bound = self._renyi_bound(values, shift)
        bound = bound.expand(np.broadcast_shapes(values.shape, shift.shape)[:-1])
        checks.broadcast(("alpha", "counts without candidates"), (order, bound))
        steep = order * bound.sqrt()
        if bool((steep > self.steepest).any()):
            raise ValueError(
                f"alpha |move| / sigma must be at most {self.steepest:g}, got {float(steep.amax()):g}"
            )
        if not steep.numel():
            return steep
        log_p, rho = _aligned(order, *self._pair(values, shift))
        found = torch.minimum(pieces.renyi(log_p, rho, order), 0.5 * order * bound)
        return without_nan(self, "renyi_divergence", found)

    def chance_of_error(self, counts: Real) -> Tensor:
        """The chance that a candidate is announced who does not have the largest count. It is sensitive.

        >>> import ringfence as rf
        >>> round(float(rf.NoisyWinner(sigma=8.0).chance_of_error([40, 9, 2])), 6)
        0.003407
        """
        values = self._checked(counts)
        log_p = self._log_masses(values)[: values.shape[-1]]
        behind = (values < values.amax(dim=-1, keepdim=True)).movedim(-1, 0)
        return without_nan(self, "chance_of_error", (torch.exp(log_p) * behind).sum(dim=0))

    @abstractmethod
    def lead(self, others: int, chance: float) -> float:
        """The lead over each of ``others`` with which a candidate is passed over with at most this chance.

        >>> import ringfence as rf
        >>> [round(law.lead(9, 0.01), 2) for law in (rf.NoisyWinner(8.0), rf.GumbelWinner(8.0))]
        [34.61, 54.34]
        """

    @property
    @abstractmethod
    def deviation(self) -> float:
        """The standard deviation of the noise of every count."""

    def sample(self, counts: Real, *, generator: torch.Generator | Draws) -> Tensor:
        """One outcome for each query, int64. For simulation: an adversary gets ``release``.

        >>> import ringfence as rf
        >>> generator = torch.Generator().manual_seed(0)
        >>> rf.NoisyWinner(1.0).sample([[90, 1], [1, 90]], generator=generator).tolist()
        [0, 1]
        """
        values = self._checked(counts)
        draws = Draws.of(generator, "counts", values)
        return _drawn(values, lambda rows: self._sample(draws, rows))

    def release(self, counts: Real, *, draws: CipherDraws | None = None) -> Tensor:
        """One outcome for each query to hand out, int64, drawn exactly.

        Random bits come from AES-256 in counter mode, under a fresh key of the operating system, unless
        ``draws`` are given: those of a seed can be repeated by anyone who knows it.

        Guarantee: the outcome has exactly the law that ``pair`` describes (docs/security.md). Time is not
        covered.

        >>> import ringfence as rf
        >>> rf.NoisyWinner(1.0).release([[90, 1, 1], [1, 90, 1]]).tolist()
        [0, 1]
        """
        values = self._checked(counts)
        bits = Noise().at("release") if draws is None else checks.instance("draws", draws, CipherDraws)
        return _drawn(values.cpu(), lambda rows: self._release(bits, rows)).to(values.device)

    def state_dict(self) -> dict[str, Any]:
        """Plain data that says which law this is.

        >>> import ringfence as rf
        >>> rf.NoisyWinner(8.0).state_dict()
        {'law': 'NoisyWinner', 'sigma': 8.0}
        """
        return {"law": type(self).__name__, **{name: getattr(self, name) for name in self.fields()}}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Decision":
        """The law that a ``state_dict`` describes. Raises ValueError naming what is missing or unknown."""
        laws = {law.__name__: law for law in Decision.__subclasses__()}
        name = checks.one_of("law", checks.mapping("decision state", state).get("law"), laws)
        checks.keys("decision state", state, {"law", *laws[name].fields()})
        return laws[name](**{key: value for key, value in state.items() if key != "law"})

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields())
        return f"{type(self).__name__}({arguments})"

    def _checked(self, counts: object) -> Tensor:
        """Counts in float64, with at least two candidates."""
        values = checks.finite("counts", counts).double()
        if not values.ndim or values.shape[-1] < 2:
            got = values.shape[-1] if values.ndim else "a single number"
            raise ValueError(f"counts must have at least 2 candidates, got {got}")
        return values

    def _arguments(self, counts: object, move: object) -> tuple[Tensor, Tensor]:
        """Counts and moves that broadcast, in float64 on the device of the counts."""
        values, shift = self._checked(counts), checks.finite("move", move).double()
        candidates = values.shape[-1]
        if not shift.ndim or shift.shape[-1] != candidates:
            raise ValueError(f"move must have {candidates} candidates, got shape {list(shift.shape)}")
        checks.broadcast(("counts", "move"), (values, shift))
        return values, shift.to(values.device)

    @abstractmethod
    def _pair(self, counts: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
        """``pair`` of checked arguments."""

    @abstractmethod
    def _log_masses(self, counts: Tensor) -> Tensor:
        """log P of every outcome, the first dimension; "no answer", where it may happen, comes last."""

    @abstractmethod
    def _renyi_bound(self, counts: Tensor, move: Tensor) -> Tensor:
        """An upper bound of 2 D / alpha at all counts whose largest one moves as it does here."""

    @abstractmethod
    def zcdp(self, move: Tensor) -> float:
        """D / alpha of a Gaussian release that tells at least as much in every test, for this move.

        >>> import ringfence as rf
        >>> laws = rf.NoisyWinner(8.0), rf.GumbelWinner(8.0)
        >>> [round(law.zcdp(torch.tensor([1.0, -1.0])), 6) for law in laws]
        [0.015625, 0.012265]
        """

    def loss_range(self, move: Tensor) -> float:
        """The length eta of an interval that holds 0 and log P/Q of all outcomes, whatever the counts are.

        Where it is finite, D / alpha is at most eta^2 / 8.

        >>> import ringfence as rf
        >>> laws = rf.GumbelWinner(8.0), rf.NoisyWinner(8.0)
        >>> [law.loss_range(torch.tensor([1.0, -1.0])) for law in laws]
        [0.25, inf]
        """
        return math.inf

    @abstractmethod
    def _sample(self, draws: Draws, counts: Tensor) -> Tensor:
        """One outcome for each row of counts."""

    @abstractmethod
    def _release(self, bits: CipherDraws, counts: Tensor) -> Tensor:
        """One outcome for each row of counts, exactly."""


def _drawn(counts: Tensor, outcomes: Callable[[Tensor], Tensor]) -> Tensor:
    """One outcome for each query, some rows of counts at a time."""
    blocks = counts.reshape(-1, counts.shape[-1]).split(at_once(_DRAWN, each=counts.shape[-1]))
    return torch.cat([outcomes(rows) for rows in blocks]).view(counts.shape[:-1])


def _aligned(value: Tensor, *rows: Tensor) -> tuple[Tensor, ...]:
    """Rows whose dimensions after the first broadcast against the value, which may have more of them."""
    more = (1,) * (value.ndim + 1 - rows[0].ndim)
    return tuple(row.reshape(len(row), *more, *row.shape[1:]) for row in rows)

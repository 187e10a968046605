"""Winners: of a row of noisy counts, only who has the largest is released."""

import math
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms import pieces
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.secure import Normal, Points, largest, numbers
from ringfence.noise import CipherDraws, Draws
from ringfence.numerics.largest_normal import completed, log_chances, log_chances_and_ratios
from ringfence.numerics.normal import log_tail
from ringfence.numerics.rounding import ROUNDING, UNIT

_FARTHEST = 1e4  # sigma: the grid of an evaluation covers the way of every candidate


class NoisyWinner(Decision):
    """argmax over k of counts_k + N(0, sigma^2), with independent noises: a number from 0 to K - 1.

    Guarantee: a function of the Gaussian release of all counts, hence never worse than it: the divergence is
    at most alpha |move|^2 / (2 sigma^2).

    >>> import ringfence as rf
    >>> winner = rf.NoisyWinner(sigma=8.0)
    >>> winner, round(float(winner.log_prob(0, [40, 9, 2]).exp()), 6)
    (NoisyWinner(sigma=8.0), 0.996593)
    """

    name = "winner"
    label = "noisy winner"

    def __init__(self, sigma: float) -> None:
        self.sigma = checks.number("sigma", sigma, checks.positive)

    @property
    def deviation(self) -> float:
        return self.sigma

    def lead(self, others: int, chance: float) -> float:
        return math.sqrt(2) * self.sigma * NormalDist().inv_cdf(1 - chance / others)  # their chances add up

    def _pair(self, counts: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
        shift = move / self.sigma
        checks.require("move", f"must be at most {_FARTHEST:g} sigma", move, shift.abs() <= _FARTHEST)
        shape = np.broadcast_shapes(counts.shape, shift.shape)
        counts, shift = torch.atleast_2d(counts), torch.atleast_2d(shift)
        if counts.shape[-2] != 1:  # nothing to share: one move for each row of counts
            counts, shift = counts.unsqueeze(-2), shift.unsqueeze(-2)
        leading = np.broadcast_shapes(counts.shape[:-2], shift.shape[:-2])
        location = self._location(counts.squeeze(-2).expand(*leading, -1))
        moves = shift.expand(*leading, -1, -1).reshape(len(location), shift.shape[-2], shape[-1])
        log_p, rho = log_chances_and_ratios(location, moves)
        log_p = log_p.unsqueeze(2).expand_as(rho)
        rho = pieces.sharpened(log_p, rho)
        rows = (shape[-1], *shape[:-1])
        return log_p.reshape(rows), rho.reshape(rows)

    def _location(self, counts: Tensor) -> Tensor:
        """Rows of counts as the largest of each row sees them, in units of sigma."""
        gaps = (counts - counts.amax(dim=-1, keepdim=True)) / self.sigma
        return gaps.reshape(-1, counts.shape[-1])

    def _log_masses(self, counts: Tensor) -> Tensor:
        return log_chances(self._location(counts)).reshape(counts.shape[-1], *counts.shape[:-1])

    def _renyi_bound(self, counts: Tensor, move: Tensor) -> Tensor:
        return (move / self.sigma).square().sum(dim=-1)

    def zcdp(self, move: Tensor) -> float:
        return 0.5 * float((move.double() / self.sigma).square().sum())

    def _sample(self, draws: Draws, counts: Tensor) -> Tensor:
        return (counts + self.sigma * draws.normals(counts.shape)).argmax(dim=1)

    def _release(self, bits: CipherDraws, counts: Tensor) -> Tensor:
        return largest(counts, self.sigma, bits)


class GumbelWinner(Decision):
    """argmax over k of counts_k + Gumbel noise of this scale: candidate k with chance e^(counts_k / scale) /
    sum_j e^(counts_j / scale), which is the exponential mechanism.

    Guarantee: with eta = (largest move - smallest move) / scale, the log ratios of all outcomes lie within an
    interval of length eta that contains 0. Hence it is eta-differentially private, the divergence is at most
    alpha eta^2 / 8 (Dong, Durfee and Rogers 2020; Cesar and Rogers 2021), and no test tells more than a
    Gaussian release with mu = 2 Phi^-1(1 / (1 + e^(-eta / 2))) does (docs/guarantees.md).

    >>> import ringfence as rf
    >>> winner = rf.GumbelWinner(scale=8.0)
    >>> winner, round(float(winner.log_prob(0, [40, 9, 2]).exp()), 6)
    (GumbelWinner(scale=8.0), 0.971434)
    """

    name = "gumbel-winner"
    label = "Gumbel winner"
    noise = "Gumbel"
    steepest = math.inf  # nothing is clamped

    def __init__(self, scale: float) -> None:
        self.scale = checks.number("scale", scale, checks.positive)

    @classmethod
    def of_deviation(cls, deviation: float) -> "GumbelWinner":
        """The law whose noise has this standard deviation, pi / sqrt(6) times the scale."""
        return cls(deviation * math.sqrt(6) / math.pi)

    @property
    def deviation(self) -> float:
        return self.scale * math.pi / math.sqrt(6)

    def lead(self, others: int, chance: float) -> float:
        return self.scale * (math.log(others) + math.log1p(-chance) - math.log(chance))

    def _pair(self, counts: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
        limit = pieces.far(counts)
        log_p = self._log_masses(counts).movedim(0, -1)
        shift = (move / self.scale).clamp(-limit, limit)
        log_p, shift = torch.broadcast_tensors(log_p, shift)
        # seen from the likeliest outcome: log sum_k p_k e^shift_k = log1p(sum_k p_k expm1(shift_k)), in which
        # its own term is 0, so that what is small beside 1 keeps its digits
        shift = shift - shift.gather(-1, log_p.argmax(dim=-1, keepdim=True))
        terms = log_p + shift.clamp(min=0) + torch.log(-torch.expm1(-shift.abs()))
        largest_term = terms.amax(dim=-1, keepdim=True).clamp(min=0)
        total = (shift.sign() * torch.exp(terms - largest_term)).sum(dim=-1, keepdim=True)
        normaliser = torch.where(
            largest_term > 0, largest_term + torch.log(torch.exp(-largest_term) + total), torch.log1p(total)
        )
        return log_p.movedim(-1, 0), (normaliser - shift).movedim(-1, 0)

    def _log_masses(self, counts: Tensor) -> Tensor:
        gaps = (counts - counts.amax(dim=-1, keepdim=True)) / self.scale
        return completed(torch.log_softmax(gaps.clamp(min=-pieces.far(counts)), dim=-1).movedim(-1, 0))

    def _renyi_bound(self, counts: Tensor, move: Tensor) -> Tensor:
        return 0.25 * ((move.amax(dim=-1) - move.amin(dim=-1)) / self.scale).square()

    def zcdp(self, move: Tensor) -> float:
        eta = self.loss_range(move)
        # Phi^-1(logistic(z)) is concave for z > 0, and Phi(-x) <= e^(-x^2 / 2) / 2: two bounds where floats
        # do not hold the logistic function
        unlikely = torch.sigmoid(torch.tensor(-0.5 * eta, dtype=torch.float64))
        half = -float(torch.special.ndtri(unlikely)) * (1 + ROUNDING) + UNIT
        return 2 * min(half, 0.25 * math.sqrt(2 * math.pi) * 0.5 * eta, math.sqrt(eta)) ** 2

    def loss_range(self, move: Tensor) -> float:
        values = torch.cat((move.double(), move.new_zeros(1)))  # of candidates that do not move
        return float(values.max() - values.min()) / self.scale

    def _sample(self, draws: Draws, counts: Tensor) -> Tensor:
        return (counts - self.scale * torch.log(-torch.log(draws.uniforms(counts.shape)))).argmax(dim=1)

    def _release(self, bits: CipherDraws, counts: Tensor) -> Tensor:
        return largest(counts, self.scale, bits, gumbel=True)


class ConfidentWinner(Decision):
    """The noisy winner if the largest count + N(0, threshold_sigma^2) is at least the threshold, else -1: no
    answer.

    It has K + 1 outcomes, and both questions are charged: whether there is an answer, and which one it is.
    Their noises are independent. This is the confident aggregation of PATE (Papernot et al. 2018, algorithm
    1). In a ``pair`` the row of "no answer" is the last one.

    Guarantee: a function of the Gaussian releases of the largest count and of all counts, hence never worse
    than both. With m the change of the largest count, the divergence is at most alpha (m^2 /
    threshold_sigma^2 + |move|^2 / sigma^2) / 2.

    >>> import ringfence as rf
    >>> confident = rf.ConfidentWinner(sigma=4.0, threshold=30.0, threshold_sigma=10.0)
    >>> [round(float(confident.log_prob(outcome, [40, 9, 2]).exp()), 6) for outcome in (-1, 0, 1, 2)]
    [0.158655, 0.841345, 0.0, 0.0]
    """

    name = "confident-winner"
    label = "confident winner"

    def __init__(self, sigma: float, threshold: float, threshold_sigma: float) -> None:
        self.sigma = checks.number("sigma", sigma, checks.positive)
        self.threshold = checks.number("threshold", threshold)
        self.threshold_sigma = checks.number("threshold_sigma", threshold_sigma, checks.positive)

    @property
    def deviation(self) -> float:
        return self.sigma

    def lead(self, others: int, chance: float) -> float:
        return NoisyWinner(self.sigma).lead(others, chance)

    def _pair(self, counts: Tensor, move: Tensor) -> tuple[Tensor, Tensor]:
        winner = NoisyWinner(self.sigma).pair(counts, move)
        shift = self._top_move(counts, move) / self.threshold_sigma
        edge = self._edge(counts).expand_as(shift)
        answer = pieces.atoms(edge, edge, shift)
        log_p, rho = (_joined(*parts) for parts in zip(winner, answer, strict=True))
        log_p = completed(log_p)
        return log_p, pieces.sharpened(log_p, rho)

    def _log_masses(self, counts: Tensor) -> Tensor:
        edge = self._edge(counts)
        answer = torch.stack((log_tail(-edge), log_tail(edge)))
        return completed(_joined(NoisyWinner(self.sigma)._log_masses(counts), answer))

    def _renyi_bound(self, counts: Tensor, move: Tensor) -> Tensor:
        top = (self._top_move(counts, move) / self.threshold_sigma).square()
        return top + (move / self.sigma).square().sum(dim=-1)

    def zcdp(self, move: Tensor) -> float:
        top = float(move.abs().max()) / self.threshold_sigma  # the largest count moves no farther
        return 0.5 * top * top + NoisyWinner(self.sigma).zcdp(move)

    def _sample(self, draws: Draws, counts: Tensor) -> Tensor:
        top = counts.amax(dim=1)
        noisy = top + self.threshold_sigma * draws.normals(top.shape)
        winner = (counts + self.sigma * draws.normals(counts.shape)).argmax(dim=1)
        return torch.where(noisy < self.threshold, -1, winner)

    def _release(self, bits: CipherDraws, counts: Tensor) -> Tensor:
        top = Normal(counts.amax(dim=1), torch.tensor([self.threshold_sigma], dtype=torch.float64))
        below_or_above = Points((0.0, 1.0), (torch.tensor(self.threshold, dtype=torch.float64),))
        answered = numbers(top, below_or_above, bits, len(counts))
        return torch.where(answered == 0, -1, largest(counts, self.sigma, bits))

    def _edge(self, counts: Tensor) -> Tensor:
        """The threshold as the largest count sees it, in units of its noise."""
        limit = pieces.far(counts)
        return ((self.threshold - counts.amax(dim=-1)) / self.threshold_sigma).clamp(-limit, limit)

    def _top_move(self, counts: Tensor, move: Tensor) -> Tensor:
        """The distance by which the largest count moves."""
        return (counts - counts.amax(dim=-1, keepdim=True) + move).amax(dim=-1)


def _joined(winner: Tensor, answer: Tensor) -> Tensor:
    """Rows of a winner and rows of (no answer, answer), logarithms both, as rows of the confident winner."""
    no, yes = answer.expand(2, *winner.shape[1:])
    return torch.cat((winner + yes, no.unsqueeze(0)))

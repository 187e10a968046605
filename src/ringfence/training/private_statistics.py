"""Private statistics for a linear model: where features lie, how far they spread, and counts of classes.

Each is a sum over examples plus Gaussian noise, released before training. What a feature is shifted and
divided by is computed from what was released alone.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.blocks import at_once
from ringfence.numerics.rounding import UP
from ringfence.training.clipping import Norm
from ringfence.training.linear import run_noise

_OCTAVES = 30  # magnitudes are told apart from 2^-30 to 2^30; others count with the ends
_BINS = 2 * _OCTAVES + 1
_LONG = 0.05  # the share of the entries of all features that may be above the scale of those in doubt
_ROUNDS = 2
_TYPICAL = 0.45  # norm of the features and their squares, over sqrt(p), beyond which a row is scaled down
COUNTS_SHARE = 0.03
MEAN_SHARE = 0.1
_MAGNITUDES_SHARE = 0.15
_APART = 4.0  # octaves between a row's features, in the root mean square, beyond which it is scaled down
FARTHEST = 2.0  # scaled rows whose entries have a larger root mean square are drawn nearer for a score
_LEAST_VARIANCE = 0.0025  # by more than its root no round divides a scale
_MANY = 256  # features and more are taken to be of one kind
_HIDDEN = 0.04  # noise of one sum of all features, over n, beyond which it hides how far each spreads
_ENTRIES = 1 << 22  # how many numbers are held at once


class PlannedSum(NamedTuple):
    """A sum that will be released once: how many numbers it has, how far a record moves it, and the noise."""

    width: int
    clip: Norm
    law: Gaussian

    @classmethod
    def of(cls, width: int, norm: float, mu: float) -> "PlannedSum":
        """Returns a sum that a record moves by at most this norm, with the noise that makes it mu-GDP."""
        return cls(width, Norm(norm), Gaussian(norm / mu))


def planned_sums(
    mu: float, share: float, features: int, classes: int, *, unit_rows: bool = False
) -> dict[str, PlannedSum]:
    """Returns the sums that will be released, by name, in their order.

    ``share`` of mu^2 is spent on the scaling of the features, half of it on their magnitudes, and
    COUNTS_SHARE on the counts of the classes; where their number is 0 nothing is. Of rows that have norm 1
    MEAN_SHARE is spent on the mean, and what is left of ``share`` on magnitudes within a row.

    >>> sums = planned_sums(1.0, 0.2, features=4, classes=2)
    >>> [(name, each.width) for name, each in sums.items()]
    [('magnitudes', 244), ('moments 1', 8), ('moments 2', 8), ('classes', 2)]
    >>> round(sum((each.clip.norm / float(each.law.sigma)) ** 2 for each in sums.values()), 3)
    0.23
    """
    sums, root = {}, math.sqrt(features) * UP
    if share > 0 and unit_rows:
        if share > MEAN_SHARE:
            own = mu * math.sqrt(share - MEAN_SHARE)
            sums["relative magnitudes"] = PlannedSum.of(features, _APART * root, own)
        sums["mean"] = PlannedSum.of(features, 1.0, mu * math.sqrt(min(share, MEAN_SHARE)))
    elif share > 0:
        sums["magnitudes"] = PlannedSum.of(_BINS * features, root, mu * math.sqrt(share / 2))
        for number in range(1, _ROUNDS + 1):
            own = mu * math.sqrt(share / 2 / _ROUNDS)
            sums[f"moments {number}"] = PlannedSum.of(2 * features, _TYPICAL * root, own)
    if classes:
        sums["classes"] = PlannedSum.of(classes, 1.0, mu * math.sqrt(COUNTS_SHARE))
    return sums


def features_are_alike(features: int) -> bool:
    """Returns whether this many features are taken to be of one kind, as pixels, words and embeddings are.

    >>> [features_are_alike(features) for features in (30, 200, 1280)]
    [False, False, True]
    """
    return features >= _MANY


def rows_are_divided(mu: float, public_size: float, features: int) -> bool:
    """Returns whether rows are divided by their norm: where features are alike, or noise hides their spread.

    >>> [rows_are_divided(0.27, 1000, features) for features in (30, 200, 1280)]
    [False, True, True]
    """
    return features_are_alike(features) or math.sqrt(features) > _HIDDEN * mu * public_size


def scaling_share(
    mu: float, public_size: float, features: int, *, unit_rows: bool = False, alike: bool = True
) -> float:
    """Returns the share of mu^2 for the scaling.

    Of single features it is from a tenth to 35 %, and more where there is more noise; of rows of norm 1 it is
    that of their mean, and where features are not ``alike`` that of their magnitudes within a row too.

    >>> [scaling_share(mu, 1000, 100) for mu in (0.1, 0.5, 2.0)]
    [0.35, 0.2, 0.1]
    """
    if unit_rows:
        return MEAN_SHARE + (0.0 if alike else _MAGNITUDES_SHARE)
    return min(max(10 * math.sqrt(features) / (mu * public_size), 0.1), 0.35)


class ReleasedSum(NamedTuple):
    """A sum that was released, and what is needed to account for it; ``theta`` and ``parts`` are private.

    ``parts()`` yields what each example added, (m, width), some examples at a time.
    """

    planned: PlannedSum
    theta: Tensor
    parts: Callable[[], Iterable[Tensor]]


@dataclass(frozen=True)
class PrivateSums:
    """Releases the planned sums of a run, each once, and keeps what their account needs.

    ``data`` is the digest of the data, to which the noise of a ``seed`` belongs.

    Guarantee: a sum is released with the law that was planned for it, with noise of its own, and cannot be
    released twice.
    """

    plan: Mapping[str, PlannedSum]
    public_size: float
    seed: int | None
    data: bytes = b""
    secure: bool = False
    released: dict[str, ReleasedSum] = field(default_factory=dict)

    def mean(
        self, name: str, parts: Callable[[], Iterable[Tensor]], theta: Tensor | None = None
    ) -> tuple[Tensor, float]:
        """Releases a sum; returns it and the standard deviation of its noise, both over ``public_size``.

        ``theta`` is the sum of all rows of all parts, where there is a quicker way to it.
        """
        planned = self.plan[name]
        if name in self.released:
            raise ValueError(f"{name} must be released once")
        if theta is None:
            theta = torch.stack([part.sum(dim=0) for part in parts()]).sum(dim=0)
        self.released[name] = ReleasedSum(planned, theta, parts)
        if self.secure:
            released = planned.law.release(theta)
        else:
            noise = run_noise(self.seed, self.data, planned.law, planned.clip, (self.public_size,))
            draws = noise.draws(name, device=theta.device)
            released = planned.law.sample(theta, generator=draws)
        return released / self.public_size, float(planned.law.sigma) / self.public_size


def _chunks(rows: Tensor, width: int) -> Iterator[Tensor]:
    """Yields the rows in float64, as many at a time as can be held with ``width`` numbers for each."""
    for some in rows.split(at_once(_ENTRIES, each=width)):
        yield some.double()


def private_scaling(rows: Tensor, sums: PrivateSums) -> tuple[Tensor, Tensor]:
    """Returns (center, scale) of the features of rows (n, p): about their means and standard deviations.

    First the numbers of rows whose entry is in [2^(k-1), 2^k), for each feature and k: a record adds at most
    one to one count of each feature. A feature gets the magnitude of most of its entries where the noise
    leaves no doubt, and otherwise that of the largest entries of all features: a feature that is thought
    to be larger than it is says little, and one that is thought to be smaller drowns the others. Then,
    twice, the sums of z = (x - center) / scale, held in [-1, 1], and of z^2. Means are shrunk towards 0 and
    variances towards their mean as their noise deserves (James and Stein), and no variance is taken to be
    below its noise.

    Guarantee: the result depends on the rows through released sums only.

    >>> generator = torch.Generator().manual_seed(0)
    >>> rows = torch.randn(20_000, 3, generator=generator) * torch.tensor([1e-3, 1.0, 50.0])
    >>> plan = planned_sums(2.0, 0.2, 3, 0)
    >>> sums = PrivateSums(plan, 2e4, seed=0)
    >>> center, scale = private_scaling(rows + 30 * rows.std(0), sums)
    >>> ((center / rows.std(0)).round().tolist(), (scale / rows.std(0)).round().tolist())
    ([30.0, 30.0, 30.0], [1.0, 1.0, 1.0])
    """
    width = rows.shape[1]
    bins = _BINS * width

    def places(some: Tensor) -> Tensor:
        octave = torch.frexp(some).exponent.long().clamp(-_OCTAVES, _OCTAVES) + _OCTAVES
        return octave + _BINS * torch.arange(width, device=rows.device)

    def one_hot() -> Iterator[Tensor]:
        for some in _chunks(rows, bins):
            yield some.new_zeros(len(some), bins).scatter_(1, places(some), (some != 0).double())

    counts = rows.new_zeros(bins, dtype=torch.float64)
    for some in _chunks(rows, width):
        counts += torch.bincount(places(some)[some != 0], minlength=bins)
    released, noise = sums.mean("magnitudes", one_hot, counts)
    found = released.view(width, _BINS)
    above = found.mean(dim=0).flip(0).cumsum(0).flip(0)
    summed = torch.arange(_BINS, 0, -1, device=rows.device)
    clear = above > _LONG * above[0].clamp(min=0) + 4 * noise * (summed / width).sqrt()
    padded = torch.nn.functional.pad(found, (1, 1))
    found, noise = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:], noise * math.sqrt(3)
    octaves = torch.arange(-_OCTAVES, _OCTAVES + 1, device=rows.device)
    best, place = found.max(dim=1)
    common = int(found.mean(dim=0).argmax()) + 1  # above the magnitude of most entries
    common = max(common, int(clear.nonzero().max()) if clear.any() else 0)
    doubt = noise * (1 + math.sqrt(2 * math.log(bins)))  # about the largest of as many normal numbers
    scale = torch.exp2(octaves[torch.where(best > doubt, place + 1, common).clamp(max=_BINS - 1)].double())

    center = torch.zeros_like(scale)
    for number in range(1, _ROUNDS + 1):
        name = f"moments {number}"

        def moments(
            c: Tensor = center, s: Tensor = scale, clip: Norm = sums.plan[name].clip
        ) -> Iterator[Tensor]:
            for some in _chunks(rows, 2 * width):
                z = ((some - c) / s).clamp(-1, 1)
                yield clip(torch.cat((z, z.square()), dim=1))

        released, noise = sums.mean(name, moments)
        mean, square = released.split(width)
        mean = mean * _james_stein_factor(width * noise**2, mean)
        variance = square - mean.square()
        level = variance.mean().clamp(min=0)
        variance = level + (variance - level) * _james_stein_factor(width * noise**2, variance - level)
        variance = variance.clamp(min=min(max(noise, _LEAST_VARIANCE), 1.0), max=1)
        center = center + scale * mean
        scale = scale * variance.sqrt() * (2 if number < _ROUNDS else 1)
    return center, scale


def private_magnitudes(rows: Tensor, sums: PrivateSums) -> Tensor:
    """Returns numbers (p,) to divide the features of rows (n, p) by, so that none is far larger than others.

    Each entry of a row that is not 0 says how many powers of two it is above the mean of that row, and one
    that is 0 says nothing. What is found is shrunk towards equal magnitudes as its noise deserves. That bears
    more noise than what ``private_scaling`` finds, and says less: nothing about where features lie.

    Guarantee: the result depends on the rows through one released sum only.

    >>> generator = torch.Generator().manual_seed(0)
    >>> rows = torch.randn(1000, 3, generator=generator) * torch.tensor([0.1, 1.0, 10.0])
    >>> plan = planned_sums(0.5, 0.25, 3, 0, unit_rows=True)
    >>> found = private_magnitudes(rows, PrivateSums(plan, 1e3, seed=0))
    >>> found.log10().round().int().tolist()
    [-1, 0, 1]
    """
    width, clip = rows.shape[1], sums.plan["relative magnitudes"].clip

    def apart() -> Iterator[Tensor]:
        for some in _chunks(rows, width):
            there, octave = some != 0, torch.frexp(some).exponent.double()
            mean = (there * octave).sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True).clamp(min=1)
            yield clip(there * (octave - mean))

    found, noise = sums.mean("relative magnitudes", apart)
    return torch.exp2((found * _james_stein_factor(width * noise**2, found)).clamp(-_OCTAVES, _OCTAVES))


def private_row_scaling(rows: Tensor, sums: PrivateSums) -> tuple[Tensor, Tensor]:
    """Returns (center, scale) of the features of rows (n, p) of norm 1; the scale is the same for all.

    The center is their mean, shrunk towards 0 as its noise deserves. It leaves about sqrt(1 - |center|^2) of
    the norm of a row, which the scale makes 1.

    Guarantee: the result depends on the rows through one released sum only.

    >>> rows = torch.nn.functional.normalize(torch.tensor([[3.0, 1.0], [1.0, 3.0]]).repeat(5000, 1))
    >>> sums = PrivateSums(planned_sums(2.0, 0.1, 2, 0, unit_rows=True), 1e4, seed=0)
    >>> [part.numpy().round(2).tolist() for part in private_row_scaling(rows, sums)]
    [[0.63, 0.63], [0.32, 0.32]]
    """
    width, clip = rows.shape[1], sums.plan["mean"].clip
    mean, noise = sums.mean("mean", lambda: map(clip, _chunks(rows, width)))
    center = mean * _james_stein_factor(width * noise**2, mean)
    left = max(1 - float(center.square().sum()), noise, _LEAST_VARIANCE)
    return center, torch.full_like(center, math.sqrt(left / width))


def _james_stein_factor(noise: float, found: Tensor) -> float:
    """Returns what James and Stein leave of a vector whose noise has this expected squared norm."""
    square = float(found.square().sum())
    return max(0.0, 1 - noise / square) if square > 0 else 0.0


def private_log_shares(labels: Tensor, classes: int, *, sums: PrivateSums) -> Tensor:
    """Returns the logarithms of the classes' shares of all examples, from noisy counts.

    The counts are shrunk towards each other as their noise deserves, and no class is taken to have fewer
    examples than the noise has standard deviations.

    >>> sums = PrivateSums(planned_sums(1.0, 0.0, 0, 2), 1e3, seed=0)
    >>> private_log_shares(torch.tensor([0] * 900 + [1] * 100), 2, sums=sums).exp().round(decimals=1).tolist()
    [0.9, 0.1]
    """

    def one_hot() -> Iterator[Tensor]:
        for some in labels.split(at_once(_ENTRIES, each=classes)):
            yield torch.nn.functional.one_hot(some, classes).double()

    shares, noise = sums.mean("classes", one_hot, torch.bincount(labels, minlength=classes).double())
    apart = shares - shares.mean()
    left = apart * _james_stein_factor((classes - 1) * noise**2, apart)
    shares = (shares.mean() + left).clamp(min=max(noise, 1 / sums.public_size))
    return torch.log(shares / shares.sum())

"""Many settings of private softmax regression on the same data, trained side by side."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from experiments.grid_accounts import GridAccountant, GridTable, stacked
from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.divergence_sums import kind_of
from ringfence.accounting.equivalent_information import EQUIVALENT_INFORMATION
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Draws, Noise
from ringfence.numerics.blocks import block_length, row_lengths
from ringfence.training.clipping import Clip, Norm, norm_outer_sums
from ringfence.training.kernels.clipped_sums import clipped_outer_sum
from ringfence.training.linear import LinearRun, LinearSettings, Step, checked_examples, data_digest

# How many scores, n times classes times settings, are held at once; there are three such tensors. A
# GPU needs long launches.
_ENTRIES = {"cpu": 1 << 24}
_ENTRIES_ELSEWHERE = 1 << 28
Together = tuple[list[int], Mechanism, list[Noise]]  # settings, their laws as one, and the noise of each


def train_linear_grid(
    features: Tensor,
    labels: Tensor,
    classes: int,
    settings: Sequence[LinearSettings],
    *,
    public_size: float,
    trajectories: bool = False,
) -> list[LinearRun]:
    """Trains every setting as ``train_linear`` does, many at a time, and returns the runs in their order.

    Each run is the one that ``train_linear`` gives with the setting's seed, whatever the other settings
    are, up to the rounding of sums and of the account's bound. Clips are clamps or norms, and parameters of
    laws are single numbers. ``trajectories`` keeps every run's steps.

    Guarantee: that of ``train_linear``, setting by setting: every release is charged before it is made.
    The settings' costs add up if more than one of the runs is published. No two settings share noise,
    whatever their seeds, unless they are the same setting twice.
    """
    features, labels = checked_examples(features, labels, classes)
    size = checks.number("public_size", public_size, checks.positive)
    seeded = any(setting.seed is not None for setting in settings)
    data = data_digest(features, labels) if seeded else b""
    noise = [setting.noise(data, size, classes) for setting in settings]
    targets, lengths = one_hot(labels, classes).to(features.dtype), row_lengths(features)
    orders = checked_orders(DEFAULT_ORDERS)
    tables = (GridTable(orders, features.device), GridTable(orders, features.device, EQUIVALENT_INFORMATION))
    runs: dict[int, LinearRun] = {}
    for block in _blocks(settings, _settings_at_once(features, classes)):
        own, its_noise = [settings[i] for i in block], [noise[i] for i in block]
        trained = _train(features, lengths, targets, own, its_noise, size, tables, trajectories)
        runs.update(zip(block, trained, strict=True))
    return [runs[i] for i in range(len(settings))]


def accuracies(runs: Sequence[LinearRun], features: Tensor, labels: Tensor) -> Tensor:
    """The share of examples whose largest score is their label's, one number per run, float64 on the CPU."""
    classes = len(runs[0].weights)
    shares = []
    at_once = _settings_at_once(features, classes)
    for start in range(0, len(runs), at_once):
        weights = torch.stack([run.weights for run in runs[start : start + at_once]])
        best = _scores(features, weights).argmax(dim=2)
        shares.append((best == labels.unsqueeze(1)).double().mean(dim=0).cpu())
    return torch.cat(shares)


def _train(
    features: Tensor,
    lengths: Tensor,
    targets: Tensor,
    settings: Sequence[LinearSettings],
    noise: Sequence[Noise],
    size: float,
    tables: tuple[GridTable, GridTable],
    trajectories: bool,
) -> Iterator[LinearRun]:
    """Trains one block of settings, which come with the most steps first: those that are done leave it."""
    shape = (targets.shape[1], features.shape[1])
    clips = [setting.clip for setting in settings]
    accounts = GridAccountant(
        [setting.mechanism for setting in settings], [clip.sensitivity for clip in clips], shape, *tables
    )
    rates, momenta = (
        torch.tensor(values, dtype=torch.float64).to(features).view(-1, 1, 1)
        for values in (
            [float(setting.learning_rate) / size for setting in settings],
            [setting.momentum for setting in settings],
        )
    )
    weights = features.new_zeros(len(settings), *shape)
    velocity = torch.zeros_like(weights)
    kept: list[list[Step]] = [[] for _ in settings]
    active, groups = 0, list[Together]()
    for step in range(settings[0].steps):
        if active != (active := sum(setting.steps > step for setting in settings)):
            groups = list(_alike(settings[:active], noise, weights[0]))
        residuals = _residuals(weights[:active], features, targets)
        theta = _clipped_sums(residuals, features, lengths, clips[:active])
        accounts.step(theta)  # charged before it is released
        if trajectories:
            for mine, before, its_theta in zip(kept, weights.clone(), theta, strict=False):
                mine.append(Step(before, its_theta))
        velocity[:active] = momenta[:active] * velocity[:active] + _released(theta, groups, step)
        weights[:active] -= rates[:active] * velocity[:active]
    for mine, account, steps, setting in zip(weights, accounts.accounts(), kept, settings, strict=True):
        sensitivity = Sensitivity.of(setting.clip.sensitivity)
        run = LinearRun(mine.clone(), tuple(steps), setting.mechanism, sensitivity)
        vars(run)["account"] = account  # charged already, side by side with the others
        yield run


def _scores(features: Tensor, weights: Tensor) -> Tensor:
    """W x of every setting, (n, settings, classes), by one matrix product."""
    return (features @ weights.flatten(0, 1).T).view(len(features), *weights.shape[:2])


def _residuals(weights: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """softmax(W x) - e_y of every setting, (n, settings, classes)."""
    return torch.softmax(_scores(features, weights), dim=2).sub_(targets.unsqueeze(1))


def _clipped_sums(residuals: Tensor, features: Tensor, lengths: Tensor, clips: Sequence[Clip]) -> Tensor:
    """The clipped outer sums, (settings, classes, features), of clips of one kind: all norms, or all clamps.

    Norms need one matrix product for all settings, clamps one call of the kernel that clamps. ``lengths``
    are those of the features.
    """
    norms = [clip for clip in clips if isinstance(clip, Norm)]
    if norms:
        return norm_outer_sums(norms, residuals, features, lengths)
    _, count, classes = residuals.shape
    limits = torch.tensor([clip.largest for clip in clips]).repeat_interleave(classes)
    columns = checks.finite("residuals", residuals.flatten(1))
    return clipped_outer_sum(columns, features, limits).view(count, classes, -1)


def _alike(settings: Sequence[LinearSettings], noise: Sequence[Noise], like: Tensor) -> Iterator[Together]:
    """Groups settings whose laws are of one kind, as many as a mechanism handles in one of its blocks."""
    kinds: dict[object, list[int]] = {}
    for i, setting in enumerate(settings):
        kinds.setdefault(kind_of(setting.mechanism), []).append(i)
    at_once = max(1, block_length(like.device) // like.numel())
    for members in kinds.values():
        for start in range(0, len(members), at_once):
            some = members[start : start + at_once]
            yield some, stacked([settings[i].mechanism for i in some], like.dim()), [noise[i] for i in some]


class SideBySide(Draws):
    """The numbers of several sources, each of which fills an equal share of the last dimension.

    >>> both = SideBySide([Noise(seed).at("noise") for seed in (1, 2)]).uniforms((6,))
    >>> bool((both[3:] == Noise(2).at("noise").uniforms((3,))).all())
    True
    """

    def __init__(self, draws: Sequence[Draws]) -> None:
        self._draws, self.device = draws, draws[0].device

    def uniforms(self, shape: Sequence[int]) -> Tensor:
        return torch.cat([one.uniforms(self._share(shape)) for one in self._draws], dim=-1)

    def normals(self, shape: Sequence[int]) -> Tensor:
        return torch.cat([one.normals(self._share(shape)) for one in self._draws], dim=-1)

    def _share(self, shape: Sequence[int]) -> tuple[int, ...]:
        return (*shape[:-1], shape[-1] // len(self._draws))


def _released(theta: Tensor, groups: Sequence[Together], step: int) -> Tensor:
    """A sample of each setting's mechanism at its theta, with its own noise."""
    result = torch.empty_like(theta)
    for members, law, noise in groups:
        draws = SideBySide([one.draws(step, device=theta.device) for one in noise])
        # in float64, in which the noise is drawn, and rounded once
        result[members] = law.sample(theta[members].double(), generator=draws).to(theta.dtype)
    return result


def _blocks(settings: Sequence[LinearSettings], at_once: int) -> Iterator[list[int]]:
    """Yields the settings that are trained together: clips of one kind, and many steps with many."""
    kinds = [type(setting.clip).__name__ for setting in settings]
    order = sorted(range(len(settings)), key=lambda i: (kinds[i], -settings[i].steps))
    for _, group in groupby(order, key=lambda i: kinds[i]):
        members = list(group)
        yield from (members[start : start + at_once] for start in range(0, len(members), at_once))


def _settings_at_once(features: Tensor, classes: int) -> int:
    entries = _ENTRIES.get(features.device.type, _ENTRIES_ELSEWHERE)
    return max(1, entries // (len(features) * classes))

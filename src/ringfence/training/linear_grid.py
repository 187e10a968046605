"""Many settings of private softmax regression on the same data, trained side by side."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from torch.overrides import TorchFunctionMode

from ringfence import checks
from ringfence.accounting.conversion import DEFAULT_ORDERS, checked_orders
from ringfence.accounting.divergence_pages import DivergencePages, kind_of, stacked
from ringfence.accounting.grid_accounts import GridAccounts
from ringfence.blocks import block_length
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.training.clipping import Clamp, Clip
from ringfence.training.kernels.outer_sum import finite_outer_sum
from ringfence.training.linear import LinearRun, _check, train_linear

# Scores held at once, n times classes times settings; there are three such tensors. A GPU wants
# long launches.
_ENTRIES = {"cpu": 1 << 24}
_ENTRIES_ELSEWHERE = 1 << 28


@dataclass(frozen=True)
class LinearSettings:
    """What may differ between runs on the same data; ``seed`` is that of the run's noise.

    >>> from ringfence import Clamp, Gaussian
    >>> LinearSettings(Gaussian(1.0), Clamp(0.1), learning_rate=1.0, steps=3, seed=0).momentum
    0.0
    """

    mechanism: Mechanism
    clip: Clip
    learning_rate: float
    steps: int
    seed: int
    momentum: float = 0.0

    def __post_init__(self) -> None:
        checked_mechanism(self.mechanism)
        if not isinstance(self.clip, Clip):
            raise TypeError(f"clip must be a ringfence clip, got {self.clip!r}")
        checks.positive("learning_rate", self.learning_rate)
        checks.count("steps", self.steps, at_least=1)
        checks.count("seed", self.seed, at_least=0)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")

    def train(self, features: Tensor, labels: Tensor, classes: int, *, public_size: float) -> LinearRun:
        """This setting alone, its trajectory kept."""
        return train_linear(
            features,
            labels,
            classes,
            mechanism=self.mechanism,
            clip=self.clip,
            learning_rate=self.learning_rate,
            steps=self.steps,
            momentum=self.momentum,
            public_size=public_size,
            generator=torch.Generator(features.device).manual_seed(self.seed),
        )


def train_linear_grid(
    features: Tensor, labels: Tensor, classes: int, settings: Sequence[LinearSettings], *, public_size: float
) -> list[LinearRun]:
    """``train_linear`` for every setting, in the order given, many at a time.

    Each run is the one that ``train_linear`` gives with a generator of the setting's seed, whatever
    the other settings, up to the rounding of sums and of the account's bound. Trajectories are not kept.

    Guarantee: as ``train_linear``, setting by setting: every release is charged before it is made.
    The settings' costs add up if more than one of the runs is published.

    >>> from ringfence import Clamp, Gaussian, RectifiedGaussian
    >>> features, labels = torch.tensor([[1.0], [-1.0]] * 50), torch.tensor([1, 0] * 50)
    >>> settings = [LinearSettings(law, Clamp(1.0), learning_rate=1.0, steps=3, seed=0)
    ...     for law in (Gaussian(1.0), RectifiedGaussian(1.0, bound=60.0))]
    >>> runs = train_linear_grid(features, labels, 2, settings, public_size=100)
    >>> [run.account.steps for run in runs], accuracies(runs, features, labels).tolist()
    ([3, 3], [1.0, 1.0])
    """
    _check(features, labels, classes)
    size = checks.number("public_size", public_size, checks.positive)
    shape = (classes, features.shape[1])
    for i, setting in enumerate(settings):
        _check_shape(i, setting.mechanism, shape)
    targets = one_hot(labels, classes).to(features.dtype)
    pages = DivergencePages(checked_orders(DEFAULT_ORDERS), features.device)
    runs: dict[int, LinearRun] = {}
    for block in _blocks(settings, _settings_at_once(features, classes)):
        runs.update(
            zip(block, _train(features, targets, [settings[i] for i in block], size, pages), strict=True)
        )
    return [runs[i] for i in range(len(settings))]


def accuracies(runs: Sequence[LinearRun], features: Tensor, labels: Tensor) -> Tensor:
    """The share of examples whose largest score is their label's, a run each: float64, on the CPU.

    >>> from ringfence import Gaussian, PerInstanceAccountant
    >>> run = LinearRun(torch.eye(2), PerInstanceAccountant(Gaussian(1.0), 1.0), ())
    >>> accuracies([run], torch.eye(2), torch.tensor([0, 0])).tolist()
    [0.5]
    """
    if not runs:
        return torch.zeros(0, dtype=torch.float64)
    classes = len(runs[0].weights)
    shares = []
    at_once = _settings_at_once(features, classes)
    for start in range(0, len(runs), at_once):
        weights = torch.stack([run.weights for run in runs[start : start + at_once]])
        best = _scores(features, weights).argmax(dim=2)
        shares.append((best == labels.unsqueeze(1)).double().mean(dim=0).cpu())
    return torch.cat(shares)


def _train(
    features: Tensor, targets: Tensor, settings: Sequence[LinearSettings], size: float, pages: DivergencePages
) -> Iterator[LinearRun]:
    """A block of settings, those with more steps first: the others leave it when they are done."""
    shape = (targets.shape[1], features.shape[1])
    clips = [setting.clip for setting in settings]
    accounts = GridAccounts(
        [setting.mechanism for setting in settings], [clip.sensitivity for clip in clips], shape, pages
    )
    generators = [torch.Generator(features.device).manual_seed(setting.seed) for setting in settings]
    rates, momenta = (
        torch.tensor(values, dtype=torch.float64).to(features).view(-1, 1, 1)
        for values in (
            [float(setting.learning_rate) / size for setting in settings],
            [setting.momentum for setting in settings],
        )
    )
    weights = features.new_zeros(len(settings), *shape)
    velocity = torch.zeros_like(weights)
    active, samplers = 0, []
    for step in range(settings[0].steps):
        if active != (active := sum(setting.steps > step for setting in settings)):
            samplers = list(_samplers(settings[:active], generators, weights[0]))
        residuals = _residuals(weights[:active], features, targets)
        theta = _clipped_sums(residuals, features, clips[:active])
        accounts.step(theta)  # charged before it is released
        velocity[:active] = momenta[:active] * velocity[:active] + _released(theta, samplers)
        weights[:active] -= rates[:active] * velocity[:active]
    return (
        LinearRun(mine.clone(), account, ())
        for mine, account in zip(weights, accounts.accounts(), strict=True)
    )


def _scores(features: Tensor, weights: Tensor) -> Tensor:
    """(n, settings, classes), by one matrix product."""
    return (features @ weights.flatten(0, 1).T).view(len(features), *weights.shape[:2])


def _residuals(weights: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """softmax(W x) - e_y of every setting: (n, settings, classes)."""
    return torch.softmax(_scores(features, weights), dim=2).sub_(targets.unsqueeze(1))


def _clipped_sums(residuals: Tensor, features: Tensor, clips: Sequence[Clip]) -> Tensor:
    """(settings, classes, features): the clipped outer sums, by one kernel where all clips clamp."""
    _, count, classes = residuals.shape
    if not _all_clamp(clips):
        each = residuals.unbind(dim=1)
        return torch.stack([clip.outer_sum(own, features) for clip, own in zip(clips, each, strict=True)])
    limits = torch.tensor([clip.largest for clip in clips]).repeat_interleave(classes)
    columns = checks.finite("residuals", residuals.flatten(1))
    return finite_outer_sum(columns, features, limits).view(count, classes, -1)


@dataclass(frozen=True)
class _Sampler:
    """Settings whose laws are drawn from in one call, each from its own generator."""

    members: list[int]
    law: Mechanism
    generators: list[torch.Generator]

    def __call__(self, theta: Tensor) -> Tensor:
        # float64, as the noise is drawn; rounded once by whoever asked
        with _OwnGenerators(self.generators):
            return self.law.sample(theta.double(), generator=self.generators[0])


class _OwnGenerators(TorchFunctionMode):
    """Random numbers for equal shares of one vector, each share from its own generator.

    A law draws for all settings at once from the generator it is given; here torch is told where
    each setting's numbers come from, so that they do not depend on the settings beside it.
    """

    def __init__(self, generators: list[torch.Generator]) -> None:
        super().__init__()
        self._generators = generators

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if len(self._generators) == 1 or function not in (torch.rand, torch.randn):
            return function(*args, **kwargs)
        ((total,),) = args
        share = total // len(self._generators)
        return torch.cat([function(share, **{**kwargs, "generator": own}) for own in self._generators])


def _samplers(
    settings: Sequence[LinearSettings], generators: Sequence[torch.Generator], like: Tensor
) -> Iterator[_Sampler]:
    """Settings with laws of one kind together, as many as a mechanism takes in one of its blocks."""
    alike: dict[object, list[int]] = {}
    for i, setting in enumerate(settings):
        kind = kind_of(setting.mechanism)
        alike.setdefault(i if kind is None else kind, []).append(i)
    at_once = max(1, block_length(like.device) // like.numel())
    for members in alike.values():
        for start in range(0, len(members), at_once):
            some = members[start : start + at_once]
            laws = [settings[i].mechanism for i in some]
            law = laws[0] if len(some) == 1 else stacked(laws, like.dim())
            yield _Sampler(some, law, [generators[i] for i in some])


def _released(theta: Tensor, samplers: Sequence[_Sampler]) -> Tensor:
    """What the mechanisms give for theta, setting by setting."""
    result = torch.empty_like(theta)
    for sampler in samplers:
        result[sampler.members] = sampler(theta[sampler.members]).to(theta.dtype)
    return result


def _blocks(settings: Sequence[LinearSettings], at_once: int) -> Iterator[list[int]]:
    """Which settings are trained together: clamps with clamps, many steps with many."""
    order = sorted(
        range(len(settings)), key=lambda i: (not _all_clamp([settings[i].clip]), -settings[i].steps)
    )
    for _, group in groupby(order, key=lambda i: _all_clamp([settings[i].clip])):
        members = list(group)
        yield from (members[start : start + at_once] for start in range(0, len(members), at_once))


def _all_clamp(clips: Sequence[Clip]) -> bool:
    return all(type(clip) is Clamp for clip in clips)


def _settings_at_once(features: Tensor, classes: int) -> int:
    entries = _ENTRIES.get(features.device.type, _ENTRIES_ELSEWHERE)
    return max(1, entries // (len(features) * classes))


def _check_shape(index: int, mechanism: Mechanism, shape: tuple[int, int]) -> None:
    parameters = mechanism.parameters()
    own = torch.broadcast_shapes(*(value.shape for value in parameters.values()))
    whole = checks.broadcast(("weights", "mechanism"), (torch.empty(shape), torch.empty(own)))
    if whole != shape:
        raise ValueError(
            f"settings[{index}].mechanism must fit weights of shape {list(shape)}, its own is {list(whole)}"
        )

"""The batches of a run: which units are in a step, which rows the model sees of them, and what steps cost."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from ringfence import checks
from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import Account, AllocatedAccountant, SampledAccountant, chance_of_cut
from ringfence.mechanisms.base import Mechanism
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip, secure_sensitivity
from ringfence.training.jacobian import Loss
from ringfence.training.target import Target

if TYPE_CHECKING:
    from ringfence.training.engine.engine import PrivacyEngine

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Units:
    """One unit, many rows: several augmentations of one example, or all records of one person.

    ``augmentations`` is how many rows ``transform`` makes of each example. ``units`` says whose each row of
    the dataset is, or names the column that does, and ``rows_per_unit`` how many rows a step takes of a unit.
    Of n rows and m = rows_per_unit, step s takes those of numbers s m, ..., s m + m - 1 modulo n; where n is
    below m, rows that come again count 0. ``members`` are the rows of each unit, once the dataset is known.

    Guarantee: which rows of a unit are in a step depends on its own number of rows and on the step alone.

    >>> people = Units(units=["ann", "bob", "ann", "ann"], rows_per_unit=2).of(range(4), 4)
    >>> people.count, people.rows((0, 1), step=0), people.rows((0,), step=1)
    (2, [0, 2, 1, 1], [3, 0])
    """

    augmentations: int = 1
    transform: Transform | None = None
    units: Any = None
    rows_per_unit: int | None = None
    members: tuple[tuple[int, ...], ...] | None = None
    count: int = 0

    def __post_init__(self) -> None:
        checks.count("augmentations", self.augmentations, at_least=1, at_most=10**4)
        if self.transform is None and self.augmentations > 1:
            raise ValueError(f"augmentations {self.augmentations} needs transform, a function of a batch")
        if self.transform is not None and not callable(self.transform):
            raise TypeError(f"transform must be a function of a batch, got {self.transform!r}")
        if (self.units is None) != (self.rows_per_unit is None):
            raise ValueError(f"units and rows_per_unit must be given together, got {self.rows_per_unit!r}")
        if self.rows_per_unit is not None:
            checks.count("rows_per_unit", self.rows_per_unit, at_least=1, at_most=10**4)
            if self.transform is not None:
                raise ValueError("transform must be None with units: what is clipped together is one of them")

    @property
    def per_unit(self) -> int:
        """How many rows of each unit go through the model."""
        return self.augmentations if self.rows_per_unit is None else self.rows_per_unit

    @property
    def name(self) -> str:
        """The unit that every claim protects, in words."""
        if self.units is not None:
            return "unit with all its rows"
        return "record" if self.transform is None else "example with all its augmentations"

    @property
    def are_rows(self) -> bool:
        """Whether each row of the dataset is a unit that the model sees as it is."""
        return self.units is None and self.transform is None

    def of(self, dataset: Any, rows: int) -> "Units":
        """Returns the units of a dataset with this number of rows."""
        if self.units is None:
            return replace(self, count=rows)
        given = dataset[self.units] if isinstance(self.units, str) else self.units
        given = given.tolist() if hasattr(given, "tolist") else given
        names = checks.instance("units", given, Sequence)
        if len(names) != rows:
            raise ValueError(f"units must name the unit of each of the {rows} rows, got {len(names)} names")
        members: dict[int | str, list[int]] = {}
        for row, name in enumerate(names):
            if not isinstance(name, int | str):
                raise TypeError(f"units must be integers or strings, got {name!r} for row {row}")
            members.setdefault(name, []).append(row)
        return replace(self, members=tuple(map(tuple, members.values())), count=len(members))

    def rows(self, units: Sequence[int], step: int) -> list[int]:
        """Returns the rows of the dataset that a step takes of these units, ``rows_per_unit`` of each."""
        if self.members is None:
            return list(units)
        taken = range(step * self.per_unit, (step + 1) * self.per_unit)
        return [own[i % len(own)] for own in map(self.members.__getitem__, units) for i in taken]

    def averaged(self, cotangents: Tensor, units: Sequence[int]) -> Tensor:
        """The cotangents of all rows such that those of a unit add up to a mean; a row counts once."""
        if self.members is not None:
            real = [i < len(self.members[unit]) for unit in units for i in range(self.per_unit)]
            fits = torch.tensor(real, dtype=torch.bool, device=cotangents.device)
            cotangents = torch.where(fits.view(-1, *(1,) * (cotangents.dim() - 1)), cotangents, 0.0)
        return cotangents if self.per_unit == 1 else cotangents / self.per_unit

    def augmented(self, values: Any, device: torch.device) -> Any:
        """Returns a batch with as many rows for each example as there are augmentations, on a device.

        The batch is a tuple or a list whose first entry is what the transform takes.
        """
        assert self.transform is not None
        if not isinstance(values, list | tuple) or not isinstance(values[0], Tensor):
            raise ValueError(f"with transform, loader must give (inputs, ...), got {type(values).__name__}")
        inputs, *others = tree_map(
            lambda value: value.to(device, non_blocking=True).repeat_interleave(self.augmentations, dim=0),
            list(values),
        )
        if len(inputs):
            made = self.transform(inputs)
            if not isinstance(made, Tensor) or len(made) != len(inputs):
                what = list(made.shape) if isinstance(made, Tensor) else type(made).__name__
                raise ValueError(f"transform must give a row for each of its {len(inputs)} rows, got {what}")
            inputs = made
        return [inputs, *others]


@dataclass(frozen=True)
class MicroBatch:
    """Units that go through the model together."""

    number: int  # of the release that they are for
    part: int  # the number of this micro-batch in its step, counted from 0
    indices: tuple[int, ...]  # of units
    last: bool  # True for the last part of a step, after which the step is released


@dataclass(frozen=True)
class Batches:
    """The micro-batches of each step, of which each process has a share.

    "full" takes every example in every step, ``batch_size`` at a time. "poisson" takes each with probability
    batch_size / public_size, independently of the others, so that a batch may be empty.
    "random_allocation" puts each into one of the ``steps_an_epoch`` batches of every epoch. ``count`` is the
    number of examples, and ``public_size`` the same as far as it is public. A Poisson sample comes in as many
    parts as are needed for at most ``at_once`` examples each, nearly always; None makes one. Of a sample that
    is larger than ``at_most``, those with the smallest random priorities are kept.

    Guarantee: which examples are in the Poisson sample of a step depends on the key of the noise, on the step
    and on nothing else; priorities are independent. Each example's probability is at most the sampling rate
    that is accounted for, and within 2^-53 of it, before a sample is cut. In which step of an epoch an
    example is depends on the key and on the epoch alone, and every step has the same chance within 2^-53.

    >>> [batch.indices for batch in Batches("full", 5, 2, public_size=5).of_step(0, Noise(7))]
    [(0, 1), (2, 3), (4,)]
    >>> batches = Batches("poisson", 1000, 100, public_size=1000)
    >>> [len(batches.of_step(step, Noise(7))[0].indices) for step in range(3)]
    [115, 113, 106]
    >>> batches = Batches("random_allocation", 6, 2, public_size=6)
    >>> sorted(index for step in range(3) for index in batches.of_step(step, Noise(7))[0].indices)
    [0, 1, 2, 3, 4, 5]
    """

    sampling: str
    count: int
    batch_size: int
    public_size: float
    at_once: int | None = None
    at_most: int | None = None

    def __post_init__(self) -> None:
        if self.is_full:
            return
        if self.at_most is not None and self.at_most < self.batch_size:
            raise ValueError(f"max_batch_size must be >= batch_size {self.batch_size}, got {self.at_most}")
        if self.at_most is not None and self.count > self.public_size:
            size = f"{self.public_size:g}"
            raise ValueError(f"max_batch_size needs a public_size that no dataset exceeds, got {size}")
        if self.batch_size > self.public_size:
            size = f"{self.public_size:g}, got {self.batch_size} of all processes together"
            raise ValueError(f"batch_size must be at most public_size {size}")

    @property
    def is_full(self) -> bool:
        """Whether every example is in every step."""
        return self.sampling == "full"

    @property
    def sampling_rate(self) -> float:
        """The probability with which an example is in a step."""
        is_poisson = self.sampling == "poisson"
        return self.batch_size / self.public_size if is_poisson else 1 / self.steps_an_epoch

    @property
    def is_allocated(self) -> bool:
        """Whether every example is in one step of each epoch."""
        return self.sampling == "random_allocation"

    @property
    def divisor(self) -> float:
        """The public constant by which the sum is divided."""
        is_poisson = self.sampling == "poisson"
        return float(self.batch_size) if is_poisson else self.public_size / self.steps_an_epoch

    @property
    def steps_an_epoch(self) -> int:
        """The number of steps in which an example is once, or is expected once."""
        return 1 if self.is_full else math.ceil(self.public_size / self.batch_size)

    @property
    def rows(self) -> int:
        """How many examples of this process's share go through the model together, nearly always."""
        if self.is_full:
            return self.batch_size
        multiple = 8 if self.at_most is None else 1
        return multiple * math.ceil(self._most / self._parts / multiple)

    @property
    def _most(self) -> float:
        """The number of examples that this process's share of a sample nearly always stays below."""
        if self.at_most is not None:
            return math.ceil(self.at_most / distributed.world_size())
        share = self.batch_size / distributed.world_size()
        return share + 2.5 * math.sqrt(share)

    @property
    def _parts(self) -> int:
        """The number of parts of a Poisson sample."""
        return 1 if self.at_once is None else math.ceil(self._most / self.at_once)

    def epoch(self, number: int, begun: int) -> int:
        """Returns the first release of the epoch that a release is in, where they begin with that number."""
        return number - (number - begun) % self.steps_an_epoch

    def of_step(self, number: int, noise: Noise, begun: int = 0) -> list[MicroBatch]:
        """Returns this process's share of the step of a release: one micro-batch or more, maybe empty."""
        everyone = self._drawn(number, noise, begun)
        mine = everyone[distributed.rank() :: distributed.world_size()]
        if self.is_full:
            most = math.ceil(self.count / distributed.world_size())  # every process has as many parts
            parts = [mine[start : start + self.batch_size] for start in range(0, most, self.batch_size)]
        else:
            parts = [mine[part :: self._parts] for part in range(self._parts)]
        return [MicroBatch(number, i, tuple(part), i == len(parts) - 1) for i, part in enumerate(parts)]

    def _drawn(self, number: int, noise: Noise, begun: int) -> Sequence[int]:
        """Returns who is in the step of a release, on all processes."""
        if self.is_full:
            return range(self.count)
        if self.is_allocated:
            first = self.epoch(number, begun)
            steps = (noise.at("allocation", first).uniforms((self.count,)) * self.steps_an_epoch).long()
            return (first + steps == number).nonzero().flatten().tolist()
        everyone = noise.at("sample", number).chosen(self.count, self.sampling_rate)
        if self.at_most is not None and len(everyone) > self.at_most:
            priorities = noise.at("priorities", "sample", number).uniforms((len(everyone),))
            kept = priorities.argsort()[: self.at_most].sort().values
            everyone = [everyone[i] for i in kept.tolist()]
        return everyone


def largest_batch(batch_size: int) -> int:
    """Returns how many examples a mean loss is charged for; a Poisson sample is larger once in 10^12 times.

    >>> largest_batch(100)
    240
    """
    return 2 * batch_size + 40


def collated(dataset: Any, collate: Callable[[Any], Any], examples: Any) -> Any:
    """Returns examples of a dataset as a batch; one of them, put together alone, must have the same shapes.

    Otherwise an example's shape would depend on the others, such as the length of the longest. A batch
    without examples has the shapes of others, with length 0. What is no list is a whole batch already, of a
    dataset whose ``__getitems__`` hands those out.

    >>> collated([1.0], torch.tensor, [2.0]), collated([1.0], torch.tensor, [])
    (tensor([2.]), tensor([]))
    """
    if not isinstance(examples, list):
        return collate(examples)
    if not examples:
        return tree_map(lambda value: value[:0], collate([dataset[0]]))
    batch = collate(examples)
    for whole, one in zip(tree_leaves(batch), tree_leaves(collate(examples[-1:])), strict=True):
        if isinstance(whole, Tensor) and whole.shape[1:] != one.shape[1:]:
            raise ValueError(
                f"collate_fn makes rows of shape {list(whole.shape[1:])} in a batch and "
                f"{list(one.shape[1:])} alone: pad to a length that does not depend on the batch, "
                'such as padding="max_length"'
            )
    return batch


@dataclass(frozen=True)
class RunPlan:
    """Everything that the releases of a run depend on, beside the model and the noise.

    ``sensitivity`` is how far one example moves the sum of a step, rounding included.

    >>> from ringfence import Clamp, Gaussian, PrivacyEngine
    >>> loader = DataLoader(range(1000), batch_size=100)
    >>> plan = RunPlan.of(PrivacyEngine(Gaussian(1.0), Clamp(0.1)), loader, rounding=2.0**-24)
    >>> plan.batches.sampling_rate, plan.account()
    (0.1, SampledAccountant(Gaussian(sigma=1.0), sampling_rate=0.1, steps=0))
    """

    loader: DataLoader[Any]
    batches: Batches
    mechanism: Mechanism
    clip: Clip
    sensitivity: Sensitivity
    loss_reduction: str
    loss: Loss | None  # that of each example, whose gradients take the place of the loop's
    secure: bool
    units: Units

    @classmethod
    def of(cls, asked: "PrivacyEngine", loader: object, rounding: float) -> "RunPlan":
        """Returns the plan of an engine for a loader. ``rounding`` is the relative error of one operation.

        A mean loss in the loop divides each example's gradient by n: three roundings that another n would
        make differently, for n examples; where there are several rows to a unit, one more. They are relative
        to the gradient of each output of each row, and charged relative to their clipped sum. A loader's
        batch_size is that of each process, so that a Poisson sample is as large as all of theirs.
        """
        loader, rows, batch_size = checked_loader(loader)
        batch_size *= 1 if asked.sampling == "full" else distributed.world_size()
        units = Units(asked.augmentations, asked.transform, asked.units, asked.rows_per_unit)
        units = units.of(loader.dataset, rows)
        count = units.count
        size = float(
            checks.positive("public_size", count if asked.public_size is None else asked.public_size)
        )
        sensitivity = Sensitivity.of(asked.clip.sensitivity)
        if asked.loss_reduction == "mean" and asked.loss is None:
            roundings = 4 if units.per_unit == 1 else 5
            sensitivity = sensitivity.times(1 + 2 * roundings * largest_batch(batch_size) * rounding)
        if asked.secure:
            sensitivity = secure_sensitivity(sensitivity, count, size)
        parts = asked.micro_batch_size, asked.max_batch_size
        return cls(
            loader=loader,
            batches=Batches(asked.sampling, count, batch_size, size, *parts),
            mechanism=asked.mechanism,
            clip=asked.clip,
            sensitivity=sensitivity,
            loss_reduction=asked.loss_reduction,
            loss=asked.loss,
            secure=asked.secure,
            units=units,
        )

    def settings(self) -> dict[str, Any]:
        """Returns what a run that goes on must share with the one that was saved, in plain data."""
        return {
            "sampling": self.batches.sampling,
            "public_size": self.batches.public_size,
            "batch_size": self.batches.batch_size,
            "examples": self.batches.count,
            "secure": self.secure,
            "mechanism": self.mechanism.state_dict(),
            "clip": repr(self.clip),
            "loss_reduction": self.loss_reduction,
            **({} if self.loss is None else {"loss": "of the engine"}),
            **({} if self.batches.at_most is None else {"max_batch_size": self.batches.at_most}),
            **({} if self.units.are_rows else {"rows_per_unit": self.units.per_unit}),
        }

    def account(self) -> Account:
        """Returns an account for such steps."""
        if self.batches.is_full:
            return PerInstanceAccountant(self.mechanism, self.sensitivity)
        batches = self.batches
        if batches.is_allocated:
            return AllocatedAccountant(self.mechanism, self.sensitivity, batches.steps_an_epoch)
        rate, most = batches.sampling_rate, batches.at_most
        cut = 0.0 if most is None else chance_of_cut(batches.public_size, rate, most)
        return SampledAccountant(self.mechanism, self.sensitivity, rate, cut=cut)

    def cost(self, numbers: int, steps: int) -> PrivacyLoss:
        """Returns what ``steps`` steps cost that release ``numbers`` numbers each, for every dataset."""
        account = self.account()
        account.step_worst_case(torch.zeros(()).expand(numbers), count=steps)
        return account.privacy_loss()

    def for_target(self, target: Target, numbers: int, steps: int) -> "RunPlan":
        """Returns the plan with the smallest sigma with which this number of steps meets the target."""

        def law(plan: RunPlan) -> Mechanism:
            return target.law(
                plan.mechanism,
                lambda law, delta: replace(plan, mechanism=law).cost(numbers, steps).guarantee(delta),
            )

        # releases of everything cost more than those of samples, and their sigma is found sooner
        found = replace(self, mechanism=law(replace(self, batches=replace(self.batches, sampling="full"))))
        return found if self.batches.is_full else replace(self, mechanism=law(found))


def loading_options(loader: DataLoader[Any]) -> dict[str, Any]:
    """Returns how a loader loads, as arguments of another that draws other batches."""
    names = ("num_workers", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor")
    return {name: getattr(loader, name) for name in names}


def checked_loader(loader: object) -> tuple[DataLoader[Any], int, int]:
    """Returns the loader, its number of examples and its batch size; refuses what cannot be accounted for.

    >>> checked_loader(DataLoader([1.0, 2.0], batch_size=2, drop_last=True))
    Traceback (most recent call last):
    ValueError: loader must have drop_last=False, got True: ...
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(f"loader must be a torch.utils.data.DataLoader, got {type(loader).__name__}")
    dataset, sampler = loader.dataset, loader.sampler
    try:
        count = None if isinstance(dataset, IterableDataset) else len(dataset)  # type: ignore[arg-type]
    except (NotImplementedError, TypeError):
        count = None
    if count is None:
        raise ValueError(
            f"loader must have a dataset of known size, got {type(dataset).__name__}: the sampling rate of a "
            "stream (IterableDataset) is not known; give it a dataset with __len__ and __getitem__"
        )
    if count == 0:
        raise ValueError("loader must have at least one example, got none")
    if loader.batch_size is None:
        raise ValueError("loader must have a batch_size, got a batch_sampler or none")
    if loader.drop_last:
        raise ValueError("loader must have drop_last=False, got True: no example is left out for its place")
    plain = isinstance(sampler, (SequentialSampler, RandomSampler))
    if not plain or getattr(sampler, "replacement", False):
        raise ValueError(
            f"loader draws its examples with {type(sampler).__name__}, which would be replaced: use "
            "shuffle=True or False, also where several processes train, of which each takes its share"
        )
    drawn = len(sampler)  # type: ignore[arg-type]
    if drawn != count:
        raise ValueError(f"loader draws {drawn} of its {count} examples: give it a torch.utils.data.Subset")
    return loader, count, loader.batch_size

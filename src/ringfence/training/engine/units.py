"""Units: what privacy protects, and the rows of it that the model sees in a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from ringfence import checks

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Units:
    """One unit, many rows: several augmentations of one example, or all records of one person.

    ``augmentations`` is how many rows ``transform`` makes of each example. ``units`` says whose each row of
    the dataset is, or names the column that does, and ``rows_per_unit`` how many rows of a unit a step takes
    at most. Where a unit has n more than m = rows_per_unit rows, step s takes those of numbers s m, ...,
    s m + m - 1 modulo n. ``members`` are the rows of each unit, once the dataset is known.

    Guarantee: which rows of a unit are in a step depends on its own number of rows and on the step alone.

    >>> people = Units(units=["ann", "bob", "ann", "ann"], rows_per_unit=2).of(range(4), 4)
    >>> people.count, people.rows((0, 1), step=0), people.rows((0,), step=1)
    (2, [0, 2, 1], [3, 0])
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
            raise ValueError(
                "units and rows_per_unit must be given together, got "
                f"{'no' if self.units is None else 'some'} units and rows_per_unit {self.rows_per_unit!r}"
            )
        if self.rows_per_unit is not None:
            checks.count("rows_per_unit", self.rows_per_unit, at_least=1, at_most=10**4)
            if self.transform is not None:
                raise ValueError(
                    "transform must be None with units: what is clipped together is one or the other"
                )

    @property
    def per_unit(self) -> int:
        """How many rows of each unit go through the model; missing ones are filled up and count zero."""
        return self.augmentations if self.rows_per_unit is None else self.rows_per_unit

    @property
    def name(self) -> str:
        """What every claim is about, in words."""
        if self.units is not None:
            return "unit with all its rows"
        return "record" if self.transform is None else "example with all its augmentations"

    @property
    def are_rows(self) -> bool:
        """Whether each row of the dataset is a unit that the model sees as it is."""
        return self.units is None and self.transform is None

    def of(self, dataset: Any, rows: int) -> "Units":
        """Returns the units of a dataset of so many rows."""
        if self.units is None:
            return replace(self, count=rows)
        given = dataset[self.units] if isinstance(self.units, str) else self.units
        names = (
            given.tolist() if hasattr(given, "tolist") else list(checks.instance("units", given, Sequence))
        )
        if len(names) != rows:
            raise ValueError(f"units must name the unit of each of the {rows} rows, got {len(names)} names")
        members: dict[int | str, list[int]] = {}
        for row, name in enumerate(names):
            if not isinstance(name, int | str):
                raise TypeError(f"units must be integers or strings, got {name!r} for row {row}")
            members.setdefault(name, []).append(row)
        return replace(self, members=tuple(map(tuple, members.values())), count=len(members))

    def rows(self, units: Sequence[int], step: int) -> list[int]:
        """Returns the rows of the dataset that a step takes of these units."""
        return [row for unit in units for row in self._taken(unit, step)]

    def _taken(self, unit: int, step: int) -> Sequence[int]:
        if self.members is None or self.rows_per_unit is None:
            return (unit,)
        own, most = self.members[unit], self.rows_per_unit
        if len(own) <= most:
            return own
        return [own[(step * most + i) % len(own)] for i in range(most)]

    def places(self, units: Sequence[int], step: int) -> tuple[Tensor, Tensor] | None:
        """Returns which row stands at each of the places of these units, and at which places real rows stand.

        Every unit has ``per_unit`` places, of which the last ones are filled up with its first row. None
        where there is nothing to fill up.
        """
        if self.members is None:
            return None
        counts = torch.tensor([len(self._taken(unit, step)) for unit in units], dtype=torch.long)
        if bool((counts == self.per_unit).all()):
            return None
        starts, number = (counts.cumsum(0) - counts).unsqueeze(1), torch.arange(self.per_unit)
        real = number < counts.unsqueeze(1)
        return torch.where(real, starts + number, starts).flatten(), real.flatten().nonzero().squeeze(1)

    def augmented(self, values: Any, device: torch.device) -> Any:
        """Returns a batch with so many rows for each example as there are augmentations, on a device.

        The batch is a tuple or a list whose first entry is what the transform takes.
        """
        assert self.transform is not None
        if not isinstance(values, list | tuple) or not isinstance(values[0], Tensor):
            raise ValueError(
                f"with transform, the loader must give (inputs, ...), got {type(values).__name__}"
            )
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

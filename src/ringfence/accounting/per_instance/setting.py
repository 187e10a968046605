"""A setting: a law whose parameters are single numbers, and how far a record may move a coordinate."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ringfence.accounting.coordinates import distinct, with_numbers
from ringfence.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Setting:
    """Equal settings have equal divergences at every theta, so a table keeps them once.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> Setting.of(Gaussian(1.0), 0.1) == Setting.of(Gaussian(torch.tensor(1.0)), 0.1)
    True
    """

    kind: Hashable
    parameters: tuple[float, ...]  # sigma first
    sensitivity: float
    mechanism: Mechanism = field(compare=False)

    @classmethod
    def of(cls, mechanism: Mechanism, sensitivity: float) -> "Setting":
        """A law with tensors of parameters is an error."""
        kind = kind_of(mechanism)
        if kind is None:
            raise ValueError(f"the parameters of a mechanism must be single numbers, got {mechanism!r}")
        return cls(kind, tuple(map(float, mechanism.parameters().values())), sensitivity, mechanism)

    @property
    def sigma(self) -> float:
        """The noise of the law."""
        return self.parameters[0]


def kind_of(mechanism: Mechanism) -> Hashable:
    """Equal for laws that differ in single numbers alone; None for a law with tensors of parameters.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> kind_of(Gaussian(1.0)) == kind_of(Gaussian(2.0)), kind_of(Gaussian(torch.ones(3)))
    (True, None)
    """
    if any(value.numel() != 1 for value in mechanism.parameters().values()):
        return None
    return (type(mechanism).__name__, *mechanism.settings().items())


def stacked(mechanisms: Sequence[Mechanism], dimensions: int) -> Mechanism:
    """One law for several of one kind: parameters along the first of 1 + ``dimensions`` dimensions.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> stacked([Gaussian(1.0), Gaussian(2.0)], 1).fisher_information(torch.zeros(2, 3))[:, 0]
    tensor([1.0000, 0.2500])
    """
    rows = [[float(value) for value in mechanism.parameters().values()] for mechanism in mechanisms]
    columns = torch.tensor(rows, dtype=torch.float64).T.reshape(-1, len(rows), *(1,) * dimensions)
    first = mechanisms[0]
    return first.with_parameters(dict(zip(first.parameters(), columns, strict=True)))


def settings_of(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, most: int
) -> Iterator[tuple[Setting, Tensor]] | None:
    """theta split by setting: each setting with its coordinates; None if there are more than ``most``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> parts = settings_of(Gaussian(torch.tensor([1.0, 2.0, 1.0])), torch.arange(3.0), torch.tensor(0.1), 2)
    >>> [(setting.mechanism, coordinates.tolist()) for setting, coordinates in parts]
    [(Gaussian(sigma=1.0), [0.0, 2.0]), (Gaussian(sigma=2.0), [1.0])]
    """
    values = (*mechanism.parameters().values(), sensitivity)
    if all(value.numel() == 1 for value in values):
        return iter([(Setting.of(mechanism, float(sensitivity)), theta)])
    rows, index = distinct(*values)
    if len(rows) > most:
        return None
    theta, index = torch.broadcast_tensors(theta, index.to(theta.device))
    return (
        (Setting.of(with_numbers(mechanism, row[:-1]), float(row[-1])), theta[index == i])
        for i, row in enumerate(rows)
    )

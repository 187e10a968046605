"""Coordinates of a release: how many there are, which are alike, and where they are measured from."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ringfence import checks
from ringfence.mechanisms.base import Mechanism

Push = tuple[Tensor, Tensor]

_NEAR = 256.0  # sigma; nearer to 0 the rounding of theta + shift is below what accounts charge for rounding


def released_shape(law: Mechanism, theta: Tensor, sensitivity: Tensor) -> torch.Size:
    """The shape of what is released: theta's, after broadcasting with sensitivity and parameters.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> released_shape(Gaussian(1.0), torch.zeros(2, 1), torch.ones(3))
    torch.Size([2, 3])
    """
    values = {"theta": theta, "sensitivity": sensitivity, **law.parameters()}
    return checks.broadcast(tuple(values), tuple(values.values()))


def pushes(theta: Tensor, move: Tensor) -> tuple[tuple[Push, Push], tuple[Push, Push]]:
    """(theta, shift) of the pushes up and down: with M(theta) as P, then with M(theta) as Q.

    Guarantee: every account takes its neighbours from here, both signs and both directions.

    >>> pushes(torch.tensor(1.0), torch.tensor(0.25))[1]
    ((tensor(1.2500), tensor(-0.2500)), (tensor(0.7500), tensor(0.2500)))
    """
    forward = (theta, move), (theta, -move)
    backward = (theta + move, -move), (theta - move, move)
    return forward, backward


def distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of these numbers, and for each coordinate the index of its row.

    The columns broadcast against each other; the index has their common shape. Both are on the CPU.

    >>> rows, index = distinct(torch.tensor([1.0, 2.0, 1.0]), torch.tensor(5.0))
    >>> rows.tolist(), index.tolist()
    ([[1.0, 5.0], [2.0, 5.0]], [0, 1, 0])
    """
    table = torch.stack(torch.broadcast_tensors(*(column.double().cpu() for column in columns)), dim=-1)
    if all(column.numel() == 1 for column in columns):
        return table.reshape(1, -1), torch.zeros(table.shape[:-1], dtype=torch.int64)
    rows, index = torch.unique(table.reshape(-1, table.shape[-1]), dim=0, return_inverse=True)
    return rows, index.reshape(table.shape[:-1])


def with_numbers(law: Mechanism, numbers: Tensor) -> Mechanism:
    """The law with single numbers for parameters, in the order of ``law.parameters()``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> with_numbers(Gaussian(torch.ones(3)), torch.tensor([2.0]))
    Gaussian(sigma=2.0)
    """
    return law.with_parameters(dict(zip(law.parameters(), numbers.unbind(), strict=True)))


def recentre(law: Mechanism, theta: Tensor) -> tuple[Mechanism, Tensor]:
    """Recentres theta on a distant support to avoid cancellation: same divergences, numbers near 0.

        D(theta, shift; [lower, upper]) = D(theta - a, shift; [lower - a, upper - a])

    At theta = 1e13 sigma float64 holds theta + shift only to 1e-3 sigma, while the difference between theta
    and the nearer end a is exact wherever theta is closer to that end than to 0. Where coordinates lie near
    different ends, the law that comes back has its own ends for each coordinate.

    >>> from ringfence.mechanisms.truncated import TruncatedGaussian
    >>> far = TruncatedGaussian(1.0, bound=(1e13, 1e13 + 2))
    >>> recentre(far, torch.tensor([1e13 + 0.5], dtype=torch.float64))
    (TruncatedGaussian(sigma=1.0, bound=(0.0, 2.0)), tensor([0.5000], dtype=torch.float64))
    """
    parameters = law.parameters()
    if "lower" not in parameters or not theta.numel():
        return law, theta
    # parameters are looked at where they are: on a GPU every question about a number waits for the device
    sigma, lower, upper = (parameters[name].double() for name in ("sigma", "lower", "upper"))
    if not any(bool(((end.abs() > _NEAR * sigma) & torch.isfinite(end)).any()) for end in (lower, upper)):
        return law, theta
    sigma, lower, upper, theta = (value.to(theta.device) for value in (sigma, lower, upper, theta.double()))
    near = _NEAR * sigma
    nearer = torch.where((theta - lower).abs() <= (theta - upper).abs(), lower, upper)
    # only where theta is closer to that end than to 0: then the difference is exact, and a theta near 0,
    # where a quantised law may have a cut, keeps its digits
    closer = (theta - nearer).abs() <= theta.abs() / 2
    anchor = torch.where((nearer.abs() > near) & closer, nearer, 0.0)
    if bool((anchor == anchor.reshape(-1)[0]).all()):
        anchor = anchor.reshape(-1)[0]  # a law with single numbers keeps them
    ends = {"lower": lower - anchor, "upper": upper - anchor}
    return law.with_parameters({**parameters, **ends}), theta - anchor


@dataclass(frozen=True)
class Setting:
    """A law whose parameters are single numbers, and how far a record may move a coordinate.

    Equal settings have equal divergences at every theta, so a table keeps them once.

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


def split_by_setting(
    mechanism: Mechanism, theta: Tensor, sensitivity: Tensor, most: int
) -> Iterator[tuple[Setting, Tensor]] | None:
    """Each setting with its coordinates of theta; None if there are more than ``most``.

    >>> from ringfence.mechanisms.gaussian import Gaussian
    >>> law, theta = Gaussian(torch.tensor([1.0, 2.0, 1.0])), torch.arange(3.0)
    >>> parts = split_by_setting(law, theta, torch.tensor(0.1), 2)
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

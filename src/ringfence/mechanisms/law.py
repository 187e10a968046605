"""Interface every mechanism implements. No other package keeps a list of mechanisms or asks for their class.

``Law`` is what the file of a law fills in: its names, its parameters, its kernels, and how it is released on
a public grid. ``Mechanism`` (base.py) is what users call; it checks the arguments, then calls the kernels.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Protocol, Self

from torch import Tensor


@dataclass(frozen=True)
class Support:
    """The support of a law: the interval that carries a density, if any, and the atoms.

    >>> import ringfence as rf
    >>> support = rf.RectifiedGaussian(sigma=1.0, bound=2.0).support
    >>> [float(end) for end in support.interval], [float(atom) for atom in support.atoms]
    ([-2.0, 2.0], [-2.0, 2.0])
    """

    interval: tuple[Tensor, Tensor] | None
    atoms: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class LossMoments:
    """Moments of the privacy loss L = log p/q under P: its spread, its skew, and how far it can go.

    >>> import ringfence as rf
    >>> moments = rf.Gaussian(sigma=2.0).loss_moments(0.0, shift=1.0)
    >>> float(moments.variance), float(moments.third), float(moments.extent)
    (0.25, 0.0, inf)
    """

    variance: Tensor
    third: Tensor  # E (L - E L)^3, signed
    fourth: Tensor  # E (L - E L)^4
    extent: Tensor  # sup L - inf L over the support; may be infinite


@dataclass(frozen=True)
class Look:
    """The look of a law in charts: colour, marker on its lines ("" for none), marker of its single points.

    >>> from ringfence import Gaussian
    >>> Gaussian.look
    Look(color='#000000', marker='', point='x')
    """

    color: str
    marker: str
    point: str


class PublicPoints(Protocol):
    """The points that a secure release may return, numbered by integers, each with a cell of the line.

    The cell of a point lies between the cut of the point before it and its own cut; the first and the last
    cell reach to the ends of the support. Points and cuts depend on public parameters only.
    """

    @property
    def first(self) -> Tensor:
        """The number of the lowest point, int64."""

    @property
    def last(self) -> Tensor:
        """The number of the highest point, int64."""

    def nearest(self, value: Tensor) -> Tensor:
        """The number of the point whose cell holds the value, up to rounding."""

    def point(self, number: Tensor) -> Tensor:
        """The point itself."""

    def cut(self, number: Tensor) -> Tensor:
        """The upper end of the cell of each point but the last."""

    def select(self, place: int) -> Self:
        """The points of one coordinate."""


class Distribution(Protocol):
    """The law of the noisy value whose cell is released, by its distribution function."""

    def guess(self, uniform: Tensor) -> Tensor:
        """The quantile, as well as float64 gives it."""

    def below(self, x: Tensor) -> Tensor:
        """P(X <= x) for x in the support: NaN, or off by less than 2^-41."""

    def exactly(self, x: float, place: int) -> Any:
        """P(X <= x) of one coordinate, off by less than 2^-400."""


class Law(ABC):
    """The declarations of one law M(theta), which is applied to each coordinate independently.

    The file of a law supplies ``name``, ``support``, ``_parameters`` and the six kernels, and whatever below
    is different for it. Kernels receive tensors that broadcast against each other: vectors, but for
    ``renyi_curve``, where they are rows and alpha is a column.
    """

    name: ClassVar[str]  # one word, for the command line, sweeps and saved accounts
    label: ClassVar[str]  # one word, for tables and charts; the name unless the law says otherwise
    look: ClassVar[Look | None] = None  # without one, a chart gives the law a look that is free

    # Whether the laws of all theta form an exponential family (log p/q is linear in the output).
    # Then every divergence is an average of the information over a window around theta, which
    # is what proves the sharper bounds of an account (docs/notation.md).
    exponential_family: ClassVar[bool] = False

    # Whether the mass is on finitely many atoms alone, so that every divergence is a finite sum. Such a law
    # supplies ``_masses``, and its profiles are those of decisions.
    atoms_alone: ClassVar[bool] = False

    # For every setting (a constructor argument that is no tensor), the values that the audit attacks.
    attacked_settings: ClassVar[dict[str, tuple[int, ...]]] = {}

    sigma: Tensor  # checked, whatever the law

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in vars(cls) and "label" not in vars(cls):
            cls.label = cls.name

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """The names of the arguments that the constructor takes, sigma first.

        >>> from ringfence import QuantizedGaussian
        >>> QuantizedGaussian.fields()
        ('sigma', 'bound', 'levels')
        """
        return tuple(signature(cls).parameters)

    @property
    @abstractmethod
    def support(self) -> Support:
        """The support: the interval and the atoms."""

    @abstractmethod
    def _parameters(self) -> dict[str, Tensor]:
        """Parameters by name, sigma first, as the constructor checked them."""

    def parameters(self) -> dict[str, Tensor]:
        """The parameters by name: sigma, and the two ends of the interval where the law has one."""
        return dict(self._parameters())

    def settings(self) -> dict[str, int]:
        """Those arguments of the constructor that are not tensors, by name."""
        return {}

    def turning_points(self) -> tuple[Tensor, ...]:
        """The places near which the divergence varies with theta: the parameters other than sigma.

        Many sigma away from all of them it hardly varies. A law that turns elsewhere says so.
        """
        return tuple(value for name, value in self._parameters().items() if name != "sigma")

    def information_bound(self) -> Tensor:
        """A factor that bounds the cost whatever theta: D <= alpha shift^2 / 2 times it, for every alpha > 1.

        It is the Gaussian's 1 / sigma^2 unless the law proves a smaller one.
        """
        return self.sigma.double() ** -2

    # What follows is called positionally; Any lets each law name its own parameters.
    def distribution(self, *arguments: Any, **_: Any) -> Distribution | None:
        """The law of the noisy value that a secure release rounds to a cell, from (theta, *parameters).

        ``Normal`` for every law that is a function of the Gaussian release. None: there is no secure release.
        """
        return None

    def public_points(self, *parameters: Any, **_: Any) -> PublicPoints | None:
        """The law's own points and their cells, from its parameters; None for a law with a density.

        A law with a density is rounded to the multiples of a public step. A law of atoms that gives no points
        has no secure release: where its cells end cannot be guessed from the atoms.
        """
        return None

    def values_per_coordinate(self) -> int:
        """The number of values that a kernel holds for each coordinate."""
        return 1

    def _masses(self, *arguments: Any, **_: Any) -> tuple[Tensor, Tensor]:
        """log P and log P/Q of every atom, one row each, from (theta, *parameters, shift).

        Only a law of ``atoms_alone`` has it.
        """
        raise NotImplementedError(f"the law {self.name!r} is not one of atoms alone")

    @abstractmethod
    def _sample(self, *arguments: Any, **_: Any) -> Tensor:
        """One draw for each coordinate, from (draws, theta, *parameters), all in float64.

        ``draws`` is a ``ringfence.noise.Draws``; no random number comes from anywhere else.
        """

    @abstractmethod
    def _log_prob(self, *arguments: Any, **_: Any) -> Tensor:
        """The log density or log mass, from (value, theta, *parameters)."""

    @abstractmethod
    def _fisher_information(self, *arguments: Any, **_: Any) -> Tensor:
        """The information, from (theta, *parameters)."""

    @abstractmethod
    def _renyi_divergence(self, *arguments: Any, **_: Any) -> Tensor:
        """The divergence, from (theta, *parameters, shift, alpha)."""

    @abstractmethod
    def _hockey_stick(self, *arguments: Any, **_: Any) -> Tensor:
        """The hockey stick, from (theta, *parameters, shift, epsilon) with shift != 0 and epsilon >= 0."""

    @abstractmethod
    def _loss_moments(self, *arguments: Any, **_: Any) -> Tensor:
        """The four rows of LossMoments, from (theta, *parameters, shift)."""

"""What every mechanism is: parameters, a sampler, a law, and what the law gives away."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ringfence import checks
from ringfence.checks import Real
from ringfence.noise import Draws, GeneratorDraws
from ringfence.numerics.blocks import blockwise


@dataclass(frozen=True)
class Support:
    """Where the mass is: the interval that carries a density, if any, and the points with mass.

    >>> import ringfence as rf
    >>> support = rf.RectifiedGaussian(sigma=1.0, bound=2.0).support
    >>> [float(end) for end in support.interval], [float(atom) for atom in support.atoms]
    ([-2.0, 2.0], [-2.0, 2.0])
    """

    interval: tuple[Tensor, Tensor] | None
    atoms: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class LossMoments:
    """Of the privacy loss L = log p/q under P: its spread, its skew and how far it can go.

    >>> import ringfence as rf
    >>> moments = rf.Gaussian(sigma=2.0).loss_moments(0.0, shift=1.0)
    >>> float(moments.variance), float(moments.third), float(moments.extent)
    (0.25, 0.0, inf)
    """

    variance: Tensor
    third: Tensor  # E (L - E L)^3, signed
    fourth: Tensor  # E (L - E L)^4
    extent: Tensor  # sup L - inf L over the support; may be infinite


class Mechanism(ABC):
    """A noise law M(theta), applied to each coordinate independently.

    Public methods check their arguments, bring parameters to theta's dtype and device, and work
    in blocks. A law supplies ``_parameters``, ``support`` and the six kernels below, which receive
    tensors that broadcast against each other: vectors, but for ``renyi_curve``, where they are rows
    and alpha a column.

    ``sigma`` is a checked tensor, whatever the law. Results carry no gradient. theta is a float32
    or float64 tensor (a number counts as float64).

    >>> import ringfence as rf
    >>> law = rf.Mechanism.by_name("truncated", sigma=1.0, bound=2.0)
    >>> law, isinstance(law, rf.TruncatedGaussian)
    (TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), True)
    """

    name: ClassVar[str]  # in one word, for the command line and for tables

    # Whether the laws of all theta form an exponential family (log p/q linear in the output).
    # Then every divergence is an average of the information over a window around theta, which
    # is what proves the sharper bounds of an account (docs/notation.md).
    exponential_family: ClassVar[bool] = False

    sigma: Tensor

    @property
    @abstractmethod
    def support(self) -> Support:
        """Where the mass is: interval and atoms."""

    @abstractmethod
    def _parameters(self) -> dict[str, Tensor]:
        """Parameters by name, sigma first, as the constructor checked them."""

    def settings(self) -> dict[str, int]:
        """Further arguments of the constructor that are not tensors."""
        return {}

    def _values_per_coordinate(self) -> int:
        """How many numbers a kernel holds for each coordinate, if it is many."""
        return 1

    # Kernels are called positionally; Any lets each law name its own parameters.
    @abstractmethod
    def _sample(self, *arguments: Any, **_: Any) -> Tensor:
        """One draw of each coordinate, from (draws, theta, *parameters), all in float64.

        ``draws`` is a ``ringfence.noise.Draws``; no random number comes from anywhere else.
        """

    @abstractmethod
    def _log_prob(self, *arguments: Any, **_: Any) -> Tensor:
        """From (value, theta, *parameters)."""

    @abstractmethod
    def _fisher_information(self, *arguments: Any, **_: Any) -> Tensor:
        """From (theta, *parameters)."""

    @abstractmethod
    def _renyi_divergence(self, *arguments: Any, **_: Any) -> Tensor:
        """From (theta, *parameters, shift, alpha)."""

    @abstractmethod
    def _hockey_stick(self, *arguments: Any, **_: Any) -> Tensor:
        """From (theta, *parameters, shift, epsilon) with shift != 0 and epsilon >= 0."""

    @abstractmethod
    def _loss_moments(self, *arguments: Any, **_: Any) -> Tensor:
        """The four rows of LossMoments, from (theta, *parameters, shift)."""

    def sample(self, theta: Real, *, generator: torch.Generator | Draws) -> Tensor:
        """One draw of M(theta) for each coordinate: theta's shape, device and dtype.

        Noise is drawn and shaped in float64 and rounded once at the end, so that float32 has
        float64's tails. The generator must live on theta's device.

        What a ``torch.Generator`` is worth: on the CPU it keeps 32 bits of its seed, so that whoever
        sees a release can try every seed in hours, and two seeds that agree modulo 2^32 give the same
        noise; on a GPU it keeps 64. It is for simulation. ``Noise().at("release")`` of
        ``ringfence.noise`` has a key of 256 bits; ``release`` is for an adversary.
        """
        theta = checks.finite("theta", theta)
        if not isinstance(generator, torch.Generator | Draws):
            raise TypeError(f"generator must be a torch.Generator, got {generator!r}")
        draws = GeneratorDraws([generator]) if isinstance(generator, torch.Generator) else generator
        if draws.device.type != theta.device.type:
            raise ValueError(f"generator is on {draws.device}, theta on {theta.device}")
        _broadcast(self._arguments(theta))  # also refuses what theta's dtype cannot hold
        parameters = (value.to(theta.device).double() for value in self._parameters().values())

        def draw(where: Tensor, *block: Tensor) -> Tensor:
            return self._sample(draws, where.double(), *block)

        return _no_nan(blockwise(draw, theta, *parameters), self, "sample", theta)

    def release(
        self,
        theta: Real,
        *,
        secure: bool = True,
        step: Real | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """One draw of M(theta) to hand out: theta's shape, device and dtype.

        Rounded to a public grid of spacing ``step`` and drawn exactly, with randomness from the
        operating system (``ringfence.mechanisms.secure.release.SecureRelease``). ``secure=False`` is
        ``sample``, whose doubles tell an adversary more than the account says.

        >>> from ringfence.mechanisms.rectified import RectifiedGaussian
        >>> released = RectifiedGaussian(1.0, bound=2.0).release(torch.zeros(1000), step=0.25)
        >>> bool((4 * released == (4 * released).round()).all())
        True
        """
        if not checks.flag("secure", secure):
            if generator is None or step is not None:
                raise TypeError("secure=False needs a generator and takes no step")
            return self.sample(theta, generator=generator)
        if generator is not None:
            raise TypeError("generator must be None: a secure release has no seed")
        from ringfence.mechanisms.secure.release import (
            SecureRelease,  # which is written in terms of this class
        )

        return SecureRelease(self, step).draw(theta)

    def log_prob(self, value: Real, theta: Real) -> Tensor:
        """log density at ``value`` inside the support, log mass on an atom, -inf elsewhere."""
        theta = checks.finite("theta", theta)
        value = checks.like(theta, "value", value, checks.real)
        arguments = {"value": value, **self._arguments(theta)}
        return self._evaluate("log_prob", self._log_prob, theta, arguments)

    def fisher_information(self, theta: Real) -> Tensor:
        """Fisher information of theta, eta squared: never above the Gaussian's 1 / sigma^2."""
        theta = checks.finite("theta", theta)
        arguments = self._arguments(theta)
        return self._evaluate("fisher_information", self._fisher_information, theta, arguments)

    def renyi_divergence(self, theta: Real, shift: Real, alpha: Real) -> Tensor:
        """D_alpha(M(theta) || M(theta + shift)) of each coordinate; the shift is signed.

        Guarantee: never above the Gaussian's alpha shift^2 / (2 sigma^2), up to rounding. For the
        other direction ask at the other end: ``renyi_divergence(theta + shift, -shift, alpha)``.
        """
        theta = checks.finite("theta", theta)
        arguments = {
            **self._arguments(theta),
            "shift": checks.like(theta, "shift", shift, checks.finite),
            "alpha": checks.like(theta, "alpha", alpha, checks.order),
        }
        return self._evaluate("renyi_divergence", self._renyi_divergence, theta, arguments)

    def renyi_curve(self, theta: Real, shift: Real, orders: Real) -> Tensor:
        """``renyi_divergence`` at many orders, the first dimension of the result.

        What does not depend on the order is evaluated once, so that 60 orders cost little more
        than one.

        >>> from ringfence.mechanisms.gaussian import Gaussian
        >>> Gaussian(1.0).renyi_curve(torch.zeros(3), 1.0, torch.tensor([2.0, 8.0]))[:, 0]
        tensor([1., 4.])
        """
        theta = checks.finite("theta", theta)
        alpha = checks.like(theta, "orders", orders, checks.order).reshape(-1)
        if not alpha.numel():
            raise ValueError("orders must hold at least one order, got none")
        arguments = {**self._arguments(theta), "shift": checks.like(theta, "shift", shift, checks.finite)}

        def kernel(*block: Tensor) -> Tensor:
            columns = (value.unsqueeze(0) for value in block)
            return self._renyi_divergence(*columns, alpha.unsqueeze(1))

        return self._evaluate("renyi_curve", kernel, theta, arguments, rows=len(alpha))

    def hockey_stick(self, theta: Real, shift: Real, epsilon: Real) -> Tensor:
        """sup over sets S of P(S) - e^epsilon Q(S), P = M(theta), Q = M(theta + shift).

        It is the smallest delta for which this pair, in this direction, is (epsilon, delta)-close.
        """
        theta = checks.finite("theta", theta)
        arguments = {
            **self._arguments(theta),
            "shift": checks.like(theta, "shift", shift, checks.finite),
            "epsilon": checks.like(theta, "epsilon", epsilon, checks.finite),
        }
        value = self._evaluate("hockey_stick", self._hockey_stick_anywhere, theta, arguments)
        return value.clamp(max=1)  # rounding

    def loss_moments(self, theta: Real, shift: Real) -> LossMoments:
        """Moments of log P/Q under P = M(theta), Q = M(theta + shift), each coordinate."""
        theta = checks.finite("theta", theta)
        arguments = {**self._arguments(theta), "shift": checks.like(theta, "shift", shift, checks.finite)}
        return LossMoments(*self._evaluate("loss_moments", self._loss_moments, theta, arguments, rows=4))

    def information_bound(self) -> Tensor:
        """What bounds the cost whatever theta: D <= alpha shift^2 / 2 times this, every alpha > 1.

        The Gaussian's 1 / sigma^2 unless a law proves a smaller one.
        """
        return self.sigma.double() ** -2

    def _hockey_stick_anywhere(self, theta: Tensor, *rest: Tensor) -> Tensor:
        """Reduces to a shift that is not 0 and epsilon >= 0, which is what the kernels handle.

        P(S) - e^eps Q(S) = 1 - e^eps + e^eps (Q(S') - e^-eps P(S')), S' the complement of S.
        """
        *parameters, shift, epsilon = rest
        turned = epsilon < 0
        start = torch.where(turned, theta + shift, theta)
        still = shift == 0
        moved = torch.where(still, torch.ones_like(shift), torch.where(turned, -shift, shift))
        size = epsilon.abs()
        value = torch.where(still, 0.0, self._hockey_stick(start, *parameters, moved, size))
        return torch.where(turned, -torch.expm1(-size) + torch.exp(-size) * value, value)

    def _arguments(self, theta: Tensor) -> dict[str, Tensor]:
        """theta and the parameters as theta's dtype and device hold them."""
        arguments = {"theta": theta}
        for name, value in self._parameters().items():
            check = checks.positive if name == "sigma" else checks.real
            arguments[name] = checks.like(theta, name, value, check)
        if "lower" in arguments:
            checks.interval("bound", (arguments["lower"], arguments["upper"]))
        return arguments

    def _evaluate(
        self,
        name: str,
        kernel: Callable[..., Tensor],
        theta: Tensor,
        arguments: dict[str, Tensor],
        rows: int | None = None,
    ) -> Tensor:
        _broadcast(arguments)
        values = self._values_per_coordinate() * (rows or 1)
        result = blockwise(kernel, *arguments.values(), values_per_coordinate=values, rows=rows)
        return _no_nan(result, self, name, theta)

    def __repr__(self) -> str:
        shown = {name: _shown(value) for name, value in self._parameters().items()}
        if "lower" in shown:
            shown["bound"] = f"({shown.pop('lower')}, {shown.pop('upper')})"
        shown |= {name: str(value) for name, value in self.settings().items()}
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in shown.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as plain data: equal laws have equal bytes."""
        return _rebuilt, (type(self), self.state_dict())

    @staticmethod
    def by_name(name: str, **arguments: Any) -> "Mechanism":
        """The law of this name; arguments that are None count as not given.

        >>> import ringfence
        >>> Mechanism.by_name("rectified", sigma=1.0, bound=2.0, levels=None)
        RectifiedGaussian(sigma=1.0, bound=(-2.0, 2.0))
        """
        # a class that only inherits its name is not the law of that name
        laws = {law.name: law for law in _descendants(Mechanism) if "name" in vars(law)}
        if not isinstance(name, str) or name not in laws:
            raise ValueError(f"mechanism must be one of {', '.join(sorted(laws))}, got {name!r}")
        given = {key: value for key, value in arguments.items() if value is not None}
        wanted = list(signature(laws[name]).parameters)
        for problem, keys in (
            ("needs", [key for key in wanted if key not in given]),
            ("does not take", [key for key in given if key not in wanted]),
        ):
            if keys:
                raise ValueError(f"mechanism {name} {problem} {', '.join(keys)}")
        law: Mechanism = laws[name](**given)
        return law

    def with_parameters(self, parameters: dict[str, Tensor]) -> Self:
        """The same law with other values of the parameters it lists under ``parameters()``."""
        law: Self = _constructed(type(self), parameters, self.settings())
        return law

    def parameters(self) -> dict[str, Tensor]:
        """sigma, and the two ends of the interval where the law has one, by name."""
        return dict(self._parameters())

    def state_dict(self) -> dict[str, Any]:
        """Plain data that says which law this is: for accounts that are saved.

        A parameter that is a tensor becomes nested lists; infinities stay floats.
        """
        parameters = {
            name: {"value": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
            for name, value in self._parameters().items()
        }
        return {"law": type(self).__name__, "parameters": parameters, "settings": self.settings()}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Mechanism":
        """The law a ``state_dict`` describes; refuses what it does not know by name."""
        laws = {law.__name__: law for law in _descendants(Mechanism)}
        checks.keys("mechanism state", state, {"law", "parameters", "settings"})
        if not isinstance(state["law"], str) or state["law"] not in laws:
            raise ValueError(f"law must be one of {sorted(laws)}, got {state['law']!r}")
        return _rebuilt(laws[state["law"]], state)


def checked_mechanism(value: object) -> Mechanism:
    """What an account or a training run may be about.

    >>> checked_mechanism(1.0)
    Traceback (most recent call last):
    TypeError: mechanism must be a ringfence mechanism, got 1.0
    """
    if not isinstance(value, Mechanism):
        raise TypeError(f"mechanism must be a ringfence mechanism, got {value!r}")
    return value


def _rebuilt(law: Any, state: dict[str, Any]) -> Mechanism:
    ends = {"lower", "upper"}
    wanted = {name for key in signature(law).parameters for name in (ends if key == "bound" else {key})}
    settings = checks.mapping("settings", state["settings"])
    given = {**checks.mapping("parameters", state["parameters"]), **settings}
    checks.keys("parameters and settings", given, wanted)
    parameters = {}
    for name, entry in state["parameters"].items():
        checks.keys(f"parameter {name}", entry, {"value", "dtype"})
        if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPE_NAMES:
            raise ValueError(f"dtype of {name} must be one of {list(_DTYPE_NAMES)}, got {entry['dtype']!r}")
        value = checks.real(f"parameter {name}", entry["value"])
        parameters[name] = value.to(_DTYPE_NAMES[entry["dtype"]])
    rebuilt: Mechanism = _constructed(law, parameters, settings)
    return rebuilt


def _constructed(law: Any, parameters: dict[str, Tensor], settings: dict[str, int]) -> Any:
    """A constructor takes the two ends of the interval as one bound."""
    arguments: dict[str, Any] = dict(parameters)
    if "lower" in arguments:
        arguments["bound"] = (arguments.pop("lower"), arguments.pop("upper"))
    return law(**arguments, **settings)


_DTYPE_NAMES = {"float32": torch.float32, "float64": torch.float64}


def _descendants(law: Any) -> list[Any]:
    """Classes defined later come first, so that none takes over the name of an earlier one."""
    return [found for child in reversed(law.__subclasses__()) for found in (*_descendants(child), child)]


def _broadcast(arguments: dict[str, Tensor]) -> None:
    checks.broadcast(list(arguments), list(arguments.values()))


def _no_nan(result: Tensor, mechanism: Mechanism, name: str, theta: Tensor) -> Tensor:
    if bool(torch.isnan(result).any()):
        raise FloatingPointError(
            f"{type(mechanism).__name__}.{name} cannot be represented in {theta.dtype} at these arguments"
        )
    return result


def _shown(value: Tensor) -> str:
    return repr(float(value)) if value.numel() == 1 else f"tensor{list(value.shape)}"

"""The interface of every mechanism. No other package keeps a list of mechanisms or asks for their class.

The file of a law has its names, its kernels, and how it is released on a public grid.
The public methods of ``Mechanism`` check the arguments, then call the kernels.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from ringfence import checks
from ringfence.checks import Real
from ringfence.mechanisms import pieces
from ringfence.mechanisms.secure import Distribution, PublicPoints, SecureRelease
from ringfence.noise import Draws
from ringfence.numerics.blocks import blockwise

Kernel = Callable[..., Tensor]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


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


class Mechanism(ABC):
    """A noise law M(theta), applied to each coordinate independently.

    Public methods check their arguments, bring the parameters to theta's dtype and device, and work in
    blocks. theta is a float32 or float64 tensor (a number counts as float64). Results carry no gradient.

    A law supplies ``name``, ``support`` and the six kernels, keeps its parameters in public attributes, and
    overrides what else is different for it. Kernels receive tensors that broadcast against each other:
    vectors, but for ``renyi_curve``, where they are rows and alpha is a column.

    >>> import ringfence as rf
    >>> law = rf.Mechanism.by_name("truncated", sigma=1.0, bound=2.0)
    >>> law, isinstance(law, rf.TruncatedGaussian)
    (TruncatedGaussian(sigma=1.0, bound=(-2.0, 2.0)), True)
    """

    name: ClassVar[str]  # one word, for ``by_name`` and the command line
    label: ClassVar[str]  # one word, for tables and charts

    # Whether the laws of all theta form an exponential family (log p/q is linear in the output).
    # Then every divergence is an average of the information over a window around theta, which
    # is what proves the sharper bounds of an account (docs/notation.md).
    exponential_family: ClassVar[bool] = False

    # Whether the mass is on finitely many atoms alone, so that every divergence is a finite sum. Such a law
    # supplies ``_masses``, and its profile is composed from them (``induction.atoms_delta``).
    atoms_alone: ClassVar[bool] = False

    # Whether the law is one of whole numbers: its divergences have kinks in theta, so that accounts evaluate
    # every theta and no table bounds them, and only whole numbers added to theta and bound leave it as it is.
    whole: ClassVar[bool] = False

    # Whether no divergence depends on theta, so that what holds for every theta is what a release costs.
    same_everywhere: ClassVar[bool] = False

    sigma: Tensor  # checked, whatever the law

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

    def parameters(self) -> dict[str, Tensor]:
        """The tensors that the constructor keeps, in its order: sigma first, then lower and upper, the ends
        of the interval where the law has one."""
        return {name: value for name, value in self._kept() if isinstance(value, Tensor)}

    def settings(self) -> dict[str, int]:
        """The other arguments that the constructor keeps, by name: those that are not tensors."""
        return {name: value for name, value in self._kept() if not isinstance(value, Tensor)}

    def _kept(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in vars(self).items() if not name.startswith("_")]

    def turning_points(self) -> tuple[Tensor, ...]:
        """The places near which the divergence varies with theta: the parameters other than sigma.

        Many sigma away from all of them it hardly varies. A law that turns elsewhere says so.
        """
        return tuple(value for name, value in self.parameters().items() if name != "sigma")

    def information_bound(self) -> Tensor:
        """A factor that bounds the cost whatever theta: D <= alpha shift^2 / 2 times it, for every alpha > 1.

        It is the Gaussian's 1 / sigma^2 unless the law proves a smaller one.
        """
        return self.sigma.double() ** -2

    def pure_epsilon(self, move: Tensor) -> Tensor:
        """The largest log ratio of two outcomes, whatever theta, where a coordinate moves by up to ``move``.

        It is infinite unless the law proves pure differential privacy, and not negative.
        """
        return torch.where(move > 0, torch.inf, 0.0).to(move)

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

    def outcomes(self, shift: Tensor) -> int:
        """The most outcomes that ``_masses`` tells apart for these shifts."""
        return len(self.support.atoms)

    def _masses(self, *arguments: Any, **_: Any) -> tuple[Tensor, Tensor]:
        """log P and log P/Q of every atom, one row each, from (theta, *parameters, shift).

        A law of ``atoms_alone`` has it, and leaves the last three kernels as they are here.
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

    def _renyi_divergence(self, *arguments: Any, **_: Any) -> Tensor:
        """The divergence, from (theta, *parameters, shift, alpha)."""
        return pieces.renyi(*self._masses(*arguments[:-1]), arguments[-1])

    def _hockey_stick(self, *arguments: Any, **_: Any) -> Tensor:
        """The hockey stick, from (theta, *parameters, shift, epsilon) with shift != 0 and epsilon >= 0."""
        return pieces.hockey_stick(*self._masses(*arguments[:-1]), arguments[-1])

    def _loss_moments(self, *arguments: Any, **_: Any) -> Tensor:
        """The four rows of LossMoments, from (theta, *parameters, shift)."""
        return pieces.loss_moments(*self._masses(*arguments))

    def sample(self, theta: Real, *, generator: torch.Generator | Draws) -> Tensor:
        """One draw of M(theta) for each coordinate: theta's shape, device and dtype.

        Noise is drawn and shaped in float64 and rounded once at the end, so that float32 has
        float64's tails. The generator must live on theta's device.

        How much a ``torch.Generator`` protects: on the CPU it keeps 32 bits of its seed, so that anyone who
        sees a release can try every seed in hours, and two seeds that agree modulo 2^32 give the same
        noise; on a GPU it keeps 64. It is for simulation. ``Noise().at("release")`` of
        ``ringfence.noise`` has a key of 256 bits; ``release`` is for an adversary.
        """
        theta = checks.finite("theta", theta)
        draws = Draws.of(generator, "theta", theta)
        return without_nan(self, "sample", Sampler(self, theta.dtype, theta.device).draw(theta, draws))

    def release(
        self,
        theta: Real,
        *,
        secure: bool = True,
        step: Real | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """One draw of M(theta) to hand out: theta's shape, device and dtype.

        The draw is rounded to a public grid of spacing ``step`` and is exact, with randomness from the
        operating system (``ringfence.mechanisms.secure.SecureRelease``). ``secure=False`` is
        ``sample``, whose doubles tell an adversary more than the account says.

        >>> from ringfence.mechanisms.rectified import RectifiedGaussian
        >>> released = RectifiedGaussian(1.0, bound=2.0).release(torch.zeros(1000), step=0.25)
        >>> bool((4 * released == (4 * released).round()).all())
        True
        """
        return self.prepared(theta, secure=secure, step=step, generator=generator)()

    def prepared(
        self, theta: Real, *, secure: bool, step: Real | None, generator: torch.Generator | None
    ) -> Callable[[], Tensor]:
        """``release`` with its arguments checked and nothing drawn, to be called once."""
        if not checks.flag("secure", secure):
            if not isinstance(generator, torch.Generator | Draws) or step is not None:
                raise TypeError(f"secure=False needs a generator, got {generator!r}, and takes no step")
            return partial(self.sample, theta, generator=generator)
        if generator is not None:
            raise TypeError("generator must be None: a secure release has no seed")
        return SecureRelease(self, step).prepared(theta)

    def log_prob(self, value: Real, theta: Real) -> Tensor:
        """The log density at ``value`` inside the support, the log mass on an atom, -inf elsewhere.

        >>> from ringfence import StochasticSign
        >>> round(float(StochasticSign(1.0).log_prob(1.0, theta=0.0).exp()), 12)
        0.5
        """
        theta = checks.finite("theta", theta)
        value = checks.like(theta, "value", value, checks.real)
        return self._evaluate("log_prob", self._log_prob, {"value": value, **self._arguments(theta)})

    def fisher_information(self, theta: Real) -> Tensor:
        """Fisher information of theta, eta squared: never above the Gaussian's 1 / sigma^2."""
        arguments = self._arguments(checks.finite("theta", theta))
        return self._evaluate("fisher_information", self._fisher_information, arguments)

    def renyi_divergence(self, theta: Real, shift: Real, alpha: Real) -> Tensor:
        """D_alpha(M(theta) || M(theta + shift)) of each coordinate; the shift is signed.

        Guarantee: never above the Gaussian's alpha shift^2 / (2 sigma^2), up to rounding. For the
        other direction ask at the other end: ``renyi_divergence(theta + shift, -shift, alpha)``.
        """
        theta = checks.finite("theta", theta)
        arguments = self._arguments(theta, shift)
        arguments["alpha"] = checks.like(theta, "alpha", alpha, checks.order)
        return self._evaluate("renyi_divergence", self._renyi_divergence, arguments)

    def renyi_curve(self, theta: Real, shift: Real, orders: Real) -> Tensor:
        """``renyi_divergence`` at many orders, which are the first dimension of the result.

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
        arguments = self._arguments(theta, shift)

        def kernel(*block: Tensor) -> Tensor:
            columns = (value.unsqueeze(0) for value in block)
            return self._renyi_divergence(*columns, alpha.unsqueeze(1))

        return self._evaluate("renyi_curve", kernel, arguments, rows=len(alpha))

    def hockey_stick(self, theta: Real, shift: Real, epsilon: Real) -> Tensor:
        """The supremum over sets S of P(S) - e^epsilon Q(S), with P = M(theta) and Q = M(theta + shift).

        It is the smallest delta for which this pair, in this direction, is (epsilon, delta)-close.
        """
        theta = checks.finite("theta", theta)
        arguments = self._arguments(theta, shift)
        arguments["epsilon"] = checks.like(theta, "epsilon", epsilon, checks.finite)
        value = self._evaluate("hockey_stick", self._hockey_stick_anywhere, arguments)
        return value.clamp(max=1)  # rounding

    def _hockey_stick_anywhere(self, theta: Tensor, *rest: Tensor) -> Tensor:
        """The hockey stick at any shift and epsilon.

        P(S) - e^eps Q(S) = 1 - e^eps + e^eps (Q(S') - e^-eps P(S')), where S' is the complement of S.
        """
        *parameters, shift, epsilon = rest
        turned = epsilon < 0
        start = torch.where(turned, theta + shift, theta)
        still = shift == 0
        moved = torch.where(still, torch.ones_like(shift), torch.where(turned, -shift, shift))
        size = epsilon.abs()
        value = torch.where(still, 0.0, self._hockey_stick(start, *parameters, moved, size))
        return torch.where(turned, -torch.expm1(-size) + torch.exp(-size) * value, value)

    def pair(self, theta: Real, shift: Real) -> tuple[Tensor, Tensor]:
        """log P and log P/Q of every outcome of a law of atoms alone, P = M(theta) and Q = M(theta + shift).

        The outcomes are the first dimension, in any order.

        >>> from ringfence import StochasticSign
        >>> log_p, rho = StochasticSign(1.0).pair(0.0, shift=0.5)
        >>> log_p.exp().round(decimals=3).tolist(), rho.round(decimals=3).tolist()
        ([0.5, 0.5], [0.483, -0.324])
        """
        arguments = self._arguments(checks.finite("theta", theta), shift)
        outcomes = self.outcomes(arguments["shift"])

        def kernel(*block: Tensor) -> Tensor:
            log_p, rho = torch.broadcast_tensors(*self._masses(*block))
            missing = (0,) * (2 * log_p.dim() - 1) + (outcomes - len(log_p),)
            return torch.cat((pad(log_p, missing, value=-torch.inf), pad(rho, missing)))

        log_p, rho = self._evaluate("pair", kernel, arguments, rows=2 * outcomes).chunk(2)
        return log_p, rho

    def loss_moments(self, theta: Real, shift: Real) -> LossMoments:
        """Moments of log P/Q under P = M(theta), with Q = M(theta + shift), of each coordinate."""
        arguments = self._arguments(checks.finite("theta", theta), shift)
        return LossMoments(*self._evaluate("loss_moments", self._loss_moments, arguments, rows=4))

    @staticmethod
    def known() -> "dict[str, type[Mechanism]]":
        """Every law by its name, in alphabetical order.

        >>> import ringfence
        >>> Mechanism.known()["sign"].label, Mechanism.known()["quantized"].label
        ('sign', 'quantised')
        """
        # a class that only inherits its name is not the law of that name
        laws = {law.name: law for law in _laws_below(Mechanism) if "name" in vars(law)}
        return dict(sorted(laws.items()))

    @staticmethod
    def by_name(name: str, **arguments: Any) -> "Mechanism":
        """The law of this name; arguments that are None count as not given.

        >>> import ringfence
        >>> Mechanism.by_name("rectified", sigma=1.0, bound=2.0, levels=None)
        RectifiedGaussian(sigma=1.0, bound=(-2.0, 2.0))
        """
        laws = Mechanism.known()
        if not isinstance(name, str) or name not in laws:
            raise ValueError(f"mechanism must be one of {', '.join(laws)}, got {name!r}")
        given = {key: value for key, value in arguments.items() if value is not None}
        wanted = signature(laws[name]).parameters
        for problem, keys in (
            ("needs", [key for key, own in wanted.items() if own.default is own.empty and key not in given]),
            ("does not take", [key for key in given if key not in wanted]),
        ):
            if keys:
                raise ValueError(f"mechanism {name} {problem} {', '.join(keys)}")
        return laws[name](**given)

    def with_parameters(self, parameters: dict[str, Tensor]) -> Self:
        """The same law with other values of the parameters that it lists under ``parameters()``."""
        return self._constructed(parameters, self.settings())

    def state_dict(self) -> dict[str, Any]:
        """Plain data that says which law this is: its class, its parameters and its settings.

        A parameter that is a tensor becomes nested lists; infinities stay floats.

        >>> from ringfence import StochasticSign
        >>> StochasticSign(2.0).state_dict()["parameters"]
        {'sigma': {'value': 2.0, 'dtype': 'float64'}}
        """
        parameters = {
            name: {"value": value.tolist(), "dtype": str(value.dtype).removeprefix("torch.")}
            for name, value in self.parameters().items()
        }
        return {"law": type(self).__name__, "parameters": parameters, "settings": self.settings()}

    @staticmethod
    def from_state_dict(state: dict[str, Any]) -> "Mechanism":
        """The law that a ``state_dict`` describes. Raises ValueError naming what is missing or unknown."""
        laws: dict[str, type[Mechanism]] = {law.__name__: law for law in _laws_below(Mechanism)}
        checks.keys("mechanism state", state, {"law", "parameters", "settings"})
        return laws[checks.one_of("law", state["law"], laws)]._rebuilt(state)

    @classmethod
    def _rebuilt(cls, state: dict[str, Any]) -> Self:
        """The law of this class with the parameters and settings of a ``state_dict``."""
        ends = {"lower", "upper"}
        wanted = {name for key in cls.fields() for name in (ends if key == "bound" else {key})}
        settings = checks.mapping("settings", state["settings"])
        given = {**checks.mapping("parameters", state["parameters"]), **settings}
        checks.keys("parameters and settings", given, wanted)
        parameters = {}
        for name, entry in state["parameters"].items():
            checks.keys(f"parameter {name}", entry, {"value", "dtype"})
            dtype = _DTYPES[checks.one_of(f"dtype of {name}", entry["dtype"], _DTYPES)]
            parameters[name] = checks.real(f"parameter {name}", entry["value"]).to(dtype)
        return cls._constructed(parameters, settings)

    @classmethod
    def _constructed(cls, parameters: dict[str, Tensor], settings: dict[str, int]) -> Self:
        """A law of this class. Its constructor takes the two ends of the interval as one bound."""
        arguments: dict[str, Any] = dict(parameters)
        if "lower" in arguments:
            arguments["bound"] = (arguments.pop("lower"), arguments.pop("upper"))
        return cls(**arguments, **settings)

    def __repr__(self) -> str:
        """The call that builds the law; of a tensor with several entries, its shape."""
        texts = {
            name: repr(float(value)) if value.numel() == 1 else f"tensor{list(value.shape)}"
            for name, value in self.parameters().items()
        }
        if "lower" in texts:
            texts["bound"] = f"({texts.pop('lower')}, {texts.pop('upper')})"
        texts |= {name: str(value) for name, value in self.settings().items()}
        return f"{type(self).__name__}({', '.join(f'{name}={text}' for name, text in texts.items())})"

    def __getstate__(self) -> dict[str, Any]:
        """Plain data, for libraries that save objects by their state, as skops does."""
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(vars(self._rebuilt(state)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled and copied as plain data: equal laws have equal bytes."""
        return type(self)._rebuilt, (self.state_dict(),)

    def _arguments(self, theta: Tensor, shift: Real | None = None) -> dict[str, Tensor]:
        """theta, the parameters and a shift by name, as theta's dtype and device hold them."""
        parameters = _checked_parameters(self, theta.dtype)
        arguments = {"theta": theta} | {name: value.to(theta.device) for name, value in parameters.items()}
        if shift is not None:
            arguments["shift"] = checks.like(theta, "shift", shift, checks.finite)
        return arguments

    def _evaluate(
        self, name: str, kernel: Kernel, arguments: dict[str, Tensor], rows: int | None = None
    ) -> Tensor:
        """The kernel at these arguments, block by block; ``name`` is the public method that asks for it."""
        checks.broadcast(list(arguments), list(arguments.values()))
        shift = arguments.get("shift", torch.zeros(()))
        held = (self.outcomes(shift) if self.atoms_alone else 1) * (rows or 1)
        result = blockwise(kernel, *arguments.values(), values_per_coordinate=held, rows=rows)
        return without_nan(self, name, result)


class Sampler:
    """Draws from a law for many thetas of one dtype on one device: parameters are checked and moved once.

    >>> from ringfence import RectifiedGaussian
    >>> from ringfence.noise import Noise
    >>> sampler = Sampler(RectifiedGaussian(1.0, bound=2.0), torch.float32, torch.device("cpu"))
    >>> float(sampler.draw(torch.full((1,), 1e6), Noise(seed=7).at("release")))
    2.0
    """

    def __init__(self, law: Mechanism, dtype: torch.dtype, device: torch.device) -> None:
        _checked_parameters(law, dtype)  # as theta's dtype holds them; noise is shaped in float64
        self._law = law
        self._parameters = {name: value.to(device).double() for name, value in law.parameters().items()}

    def draw(self, theta: Tensor, draws: Draws) -> Tensor:
        """One draw of M(theta) for each coordinate of a finite theta; whether one is NaN is not looked at."""
        arguments = {"theta": theta, **self._parameters}
        checks.broadcast(list(arguments), list(arguments.values()))

        def drawn(where: Tensor, *block: Tensor) -> Tensor:
            return self._law._sample(draws, where.double(), *block)

        return blockwise(drawn, *arguments.values())


def checked_mechanism(value: object) -> Mechanism:
    """The value, if it is a mechanism: what an account or a training run may be about.

    >>> checked_mechanism(1.0)
    Traceback (most recent call last):
    TypeError: mechanism must be a ringfence mechanism such as Gaussian(sigma=1.0), got 1.0
    """
    if not isinstance(value, Mechanism):
        raise TypeError(f"mechanism must be a ringfence mechanism such as Gaussian(sigma=1.0), got {value!r}")
    return value


def _checked_parameters(law: Mechanism, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters of the law by name, as this dtype holds them, on the device where they are."""
    parameters = {}
    for name, value in law.parameters().items():
        check = checks.positive if name == "sigma" else checks.real
        parameters[name] = checks.rounded(dtype, name, value, check)
    if "lower" in parameters:
        checks.interval("bound", (parameters["lower"], parameters["upper"]))
    return parameters


def without_nan(law: object, name: str, result: Tensor) -> Tensor:
    """The result, or an error where it holds NaN: no privacy quantity may be NaN."""
    if bool(torch.isnan(result).any()):
        raise FloatingPointError(
            f"{type(law).__name__}.{name} cannot be represented in {result.dtype} at these arguments"
        )
    return result


def _laws_below(kind: Any) -> Iterator[Any]:
    """Every class that derives from this one.

    Classes defined later come first: in a dict an earlier class then keeps its name.
    """
    for child in reversed(kind.__subclasses__()):
        yield from _laws_below(child)
        yield child

"""Private training of any torch model: three objects in, three private objects out."""

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, Optimizer
from torch.utils.data import DataLoader

from ringfence import checks
from ringfence.accounting.guarantee import EpsilonKind, Guarantee
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import Account
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.noise import Noise
from ringfence.training import assumptions, distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.batches import RunPlan, Transform, Units
from ringfence.training.engine.opacus_words import answers_opacus
from ringfence.training.engine.run import (
    Layout,
    PrivateLoader,
    PrivateModule,
    PrivateOptimizer,
    StepReport,
    TrainingRun,
)
from ringfence.training.information import FisherTracking
from ringfence.training.jacobian import Loss
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.layers import refuse_layers, refuse_random_layers
from ringfence.training.per_example.recording import RecordedGradients
from ringfence.training.target import Target

Private = tuple[PrivateModule, PrivateOptimizer, PrivateLoader]  # what a training loop works with


@answers_opacus
@dataclass(eq=False, repr=False)
class PrivacyEngine:
    """Trains any torch model with a mechanism on the sum of clipped gradients.

    Batches. ``sampling`` "poisson" puts each example into a batch with probability batch_size / public_size;
    "random_allocation" puts each into one of the batches of every epoch, drawn at random by itself, and
    "full" takes every example in every step, the loader's batch_size at a time. ``public_size`` is the number
    of examples as far as it is public; where it is None, the dataset's length counts as public, which the
    statement says and a secure run refuses. The released sum is divided by batch_size (poisson) or by
    public_size (full), never by the number of examples that happen to be in the batch. With
    ``max_batch_size`` a Poisson sample never has more examples: of a larger one, some are drawn by lot. On a
    GPU all batches then go through the model in one shape. The account pays for it, hardly anything where the
    maximum is rarely reached (batch_size and four times its square root), and needs ``public_size`` or fewer
    examples. Where several processes train, the loader's batch_size is that of each, and batch_size here that
    times their number, as ``max_batch_size`` is; every process loads all data, and takes its share of a step.

    Loss. ``loss_reduction`` says what the loss in your loop does over a batch, "mean" or "sum"; the loss must
    not mix examples in any other way. With ``loss``, the same loss as a function of outputs and targets, the
    engine takes the gradients of each example's own loss itself, and those of your loop are only compared
    with them. A secure run with a mean needs it, and so does what follows. With ``fisher_every`` k, the
    Fisher information loss of the examples in the batch is measured in every k-th step. ``on_step`` receives
    a ``StepReport`` after each step.
    With ``track_examples`` and "full", another pass in each step takes the clipped gradient of every example,
    and ``example_epsilons`` says what each one paid; the inputs of a whole step are held until then.
    ``memory_budget`` is the number of bytes for the gradients of a chunk of examples; None means 1 GiB, or
    three quarters of what is free on a GPU.

    Units. With ``augmentations`` K the loader gives K rows of each example, on the model's device, of which
    ``transform`` has changed the inputs: a function of a batch that treats rows apart, such as random crops.
    With ``units``, an integer or string for each row of the dataset, or the name of its column, a unit is all
    rows of the same name, such as a person and all her records. A step takes at most ``rows_per_unit`` of
    them, in turn. Batches, sampling and ``public_size`` then count units, and so does every account. The
    gradient of a unit is the sum over its rows divided by K or ``rows_per_unit``, and that is clipped; the
    loss in your loop is still the mean or the sum over rows. With ``micro_batch_size`` a Poisson sample comes
    in parts of at most that many units, nearly always: call ``optimizer.step()`` after each, as with "full".

    Speed. The model runs under vmap, so that its code sees one example whatever the batch. Known layers take
    all examples at once and add up their clipped sums themselves, at about the cost of ordinary training.
    With ``secure`` the gradient of every example is formed. Where vmap cannot run a model,
    each example goes through a copy of it; ``fallback_reason`` says why. With ``cuda_graphs`` a GPU repeats
    the passes from a recording of the second one, which saves the work of Python: what the model decides
    there, such as a rate of dropout that falls from step to step, is then decided once. Where nothing can be
    recorded, ``not_recorded_because`` says why.

    Randomness. ``seed`` None takes 256 bits from the operating system; those who know the seed know the
    noise. With ``secure``, batches and noise come from fresh cryptographic streams and releases lie on a
    public grid (``Mechanism.release``). Sums are then taken in float64, their rounding is charged, and there
    is no seed (docs/security.md).

    Guarantee: the parameters depend on the data through the mechanism only, and the sum of each step is
    charged before it is released. What the model computes for an example depends on that example alone, by
    construction, and a pass leaves nothing of its inputs on the model. The set of trained parameters stays as
    ``make_private`` saw it. That the code that puts batches together treats examples apart is assumed, and so
    is it of the loss in your loop unless ``loss`` is given; every statement says so. The accounts are those
    of ``docs/guarantees.md``. An engine serves one run.

    >>> import torch
    >>> from ringfence import Clamp, RectifiedGaussian
    >>> data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
    >>> model = nn.Linear(3, 2)
    >>> engine = PrivacyEngine(RectifiedGaussian(1.0, bound=4.0), Clamp(0.1), sampling="full", seed=0)
    >>> model, optimizer, loader = engine.make_private(
    ...     model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(data, batch_size=16))
    >>> for inputs, labels in loader:
    ...     optimizer.zero_grad()
    ...     nn.functional.cross_entropy(model(inputs), labels).backward()
    ...     optimizer.step()
    >>> engine.steps, engine.guarantee(delta=1e-3).steps
    (1, 1)
    """

    mechanism: Mechanism
    clip: Clip
    _: KW_ONLY
    sampling: Literal["poisson", "full", "random_allocation"] = "poisson"
    public_size: float | None = None
    loss_reduction: Literal["mean", "sum"] = "mean"
    loss: Loss | None = None
    fisher_every: int = 0
    augmentations: int = 1
    transform: Transform | None = None
    units: Any = None
    rows_per_unit: int | None = None
    micro_batch_size: int | None = None
    max_batch_size: int | None = None
    track_examples: bool = False
    on_step: Callable[[StepReport], None] | None = None
    memory_budget: int | None = None
    cuda_graphs: bool | Literal["auto"] = False
    seed: int | None = None
    secure: bool = False

    def __post_init__(self) -> None:
        checked_mechanism(self.mechanism)
        if not isinstance(self.clip, Clip):
            raise TypeError(f"clip must be a ringfence Clip such as Norm(1.0), got {self.clip!r}")
        checks.one_of("sampling", self.sampling, ("poisson", "full", "random_allocation"))
        checks.one_of("loss_reduction", self.loss_reduction, ("mean", "sum"))
        checks.count("fisher_every", self.fisher_every, at_least=0)
        checks.flag("track_examples", self.track_examples)
        if self.cuda_graphs != "auto":  # which is True
            checks.flag("cuda_graphs", self.cuda_graphs)
        for name in ("micro_batch_size", "max_batch_size", "memory_budget"):
            if (size := getattr(self, name)) is not None:
                checks.count(name, size, at_least=1)
        are_rows = Units(self.augmentations, self.transform, self.units, self.rows_per_unit).are_rows
        assumptions.refuse_secure(self.secure, "seed", self.seed, self.public_size)
        self._refuse_together(are_rows)
        self.seed_given = self.seed is not None
        self._noise = Noise(self.seed)
        self.seed = self._noise.seed
        self._run: TrainingRun | None = None
        self.planned_steps: int | None = None  # after how many steps the target is spent

    def _refuse_together(self, are_rows: bool) -> None:
        """Raises a ValueError that names the first two settings that do not go together."""
        sampling = f"sampling {self.sampling!r}"
        if self.fisher_every and self.loss is None:
            raise ValueError("fisher_every needs loss, a function of outputs and targets, got None")
        if self.fisher_every and not are_rows:
            raise ValueError(
                f"fisher_every must be 0 with transform or units, got {self.fisher_every}: it is about rows"
            )
        if self.micro_batch_size is not None and self.sampling == "full":
            raise ValueError(
                f"micro_batch_size must be None with {sampling}, got {self.micro_batch_size}: use batch_size"
            )
        if self.max_batch_size is not None and self.sampling != "poisson":
            raise ValueError(f"max_batch_size needs sampling 'poisson', got {sampling}")
        if self.track_examples and self.sampling != "full":
            raise ValueError(
                f"track_examples must be False with {sampling}, got True: gradients that were not drawn count"
            )
        if self.secure and self.loss_reduction == "mean" and self.loss is None:
            raise ValueError(
                "a secure run needs loss, a function of outputs and targets, or loss_reduction 'sum', got a "
                "mean without loss: the rounding of a mean over a batch tells how many examples are in it"
            )

    def make_private(self, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]) -> Private:
        """Returns the three objects for the loop. Everything is checked here, before anything is released."""
        return self._begun(optimizer, *self._checked(model, optimizer, loader))

    def make_private_with_epsilon(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        loader: DataLoader[Any],
        *,
        target_epsilon: float,
        target_delta: float,
        epochs: int | None = None,
        steps: int | None = None,
    ) -> Private:
        """``make_private`` with the smallest sigma for which all steps are (epsilon, delta)-private.

        The engine's mechanism gives the law, its bound, and a sigma to begin with. Give either ``steps``, or
        ``epochs`` as the loader counts them: public_size / batch_size steps each, rounded up, or one with
        ``sampling`` "full". ``planned_steps`` says how many they are; a run of fewer spends less.

        Guarantee: ``guarantee(target_delta).epsilon`` after that many steps is at most the target and at most
        0.1 % below it, and sigma is at most 0.1 % larger than it needs to be. Further steps cost more.
        """
        target = Target.asked(target_epsilon, target_delta)
        if target is None:
            raise ValueError("target_epsilon and target_delta must be given, got None")
        if (epochs is None) == (steps is None):
            raise ValueError(f"either epochs or steps must be given, got {epochs!r} and {steps!r}")
        plan, gradients, layout = self._checked(model, optimizer, loader)
        if epochs is not None:
            epochs = checks.count("epochs", epochs, at_least=1, at_most=10**6)
            steps = epochs * plan.batches.steps_an_epoch
        steps = checks.count("steps", steps, at_least=1, at_most=10**7)
        plan = plan.for_target(target, gradients.size, steps)
        self.planned_steps, self.mechanism = steps, plan.mechanism
        return self._begun(optimizer, plan, gradients, layout)

    def _checked(
        self, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]
    ) -> tuple[RunPlan, ExampleGradients, Layout]:
        """Returns what a run of these objects needs, after everything that is refused was refused."""
        self._noise.require_own_process()
        if self._run is not None:
            raise ValueError("this engine already serves a run: make another for another model")
        module = _unwrapped(model)
        layout, parameters = _layout_of(module), list(module.parameters())
        rounding = max((torch.finfo(p.dtype).eps / 2 for p in parameters), default=0.0)
        plan = RunPlan.of(self, loader, rounding)
        on_gpu, sharded = any(parameter.is_cuda for parameter in parameters), bool(layout.settings)
        if sharded and self.fisher_every:
            raise ValueError(f"fisher_every must be 0 with a sharded model, got {self.fisher_every}")
        if self.track_examples and distributed.world_size() > 1:
            raise ValueError("track_examples must be False with several processes, got True")
        records = self.cuda_graphs and on_gpu and not self.secure and not sharded
        kind = RecordedGradients if records else ExampleGradients
        per_unit = plan.units.per_unit
        rows = plan.batches.rows * per_unit if on_gpu else None  # on a GPU in passes of one shape
        gradients = kind(module, self.memory_budget, rows, per_unit)
        with layout.gathered():
            _check(gradients, layout, optimizer, self.mechanism)
        if self.fisher_every:
            refuse_random_layers(module)
        return plan, gradients, layout

    def _begun(
        self, optimizer: Optimizer, plan: RunPlan, gradients: ExampleGradients, layout: Layout
    ) -> Private:
        """Begins the run and returns its private objects."""
        layout.begin()
        self.seed = int(distributed.text_from_first(str(self.seed)))
        fisher = None
        if self.loss is not None and self.fisher_every:
            fisher = FisherTracking(self.loss, plan.batches.count, self.fisher_every)
        self._run = run = TrainingRun(
            *(plan, gradients, optimizer, layout),
            fisher=fisher,
            track_examples=self.track_examples,
            on_step=self.on_step,
            seed=self.seed,
            seed_given=self.seed_given,
            assumptions=assumptions.those(
                {
                    assumptions.SIZE: self.public_size is None,
                    assumptions.APART: True,
                    assumptions.LOSS: self.loss is None,
                    assumptions.PASSES: self.secure and self.memory_budget != 1,
                    assumptions.UNITS: self.units is not None,
                    assumptions.CUT.format(plan.batches.public_size): self.max_batch_size is not None,
                    assumptions.ALLOCATED: plan.batches.is_allocated,
                    assumptions.SEED: self.seed_given,
                    assumptions.FLOATS: not self.secure,
                }
            ),
        )
        module = gradients.model
        return PrivateModule(module, run), PrivateOptimizer(optimizer, run), PrivateLoader(plan.loader, run)

    @property
    def run(self) -> TrainingRun:
        """The run that ``make_private`` began."""
        self._noise.require_own_process()
        if self._run is None:
            raise ValueError("the engine has no model yet: call make_private first")
        return self._run

    @property
    def steps(self) -> int:
        """The number of steps that the model has taken."""
        return 0 if self._run is None else self._run.steps

    @property
    def fallback_reason(self) -> str | None:
        """Why examples go through copies of the model, as of the first batch; None if they do not."""
        return self.run.gradients.fallback_reason

    @property
    def not_recorded_because(self) -> str | None:
        """Why a GPU did not repeat the last pass from a recording; None if it did, or is about to."""
        if isinstance(self.run.gradients, RecordedGradients):
            return self.run.gradients.not_recorded_because
        return "cuda_graphs is False, the run is secure, or the model is sharded or not on a GPU"

    @property
    def slower_layers(self) -> dict[str, str]:
        """Parameters of which a pass takes a copy for each example, and why, as of the first batch."""
        return self.run.gradients.slower_layers

    @property
    def account(self) -> Account:
        """The account of everything that was ever released in this run."""
        return self.run.releases.account

    def guarantee(self, delta: float) -> Guarantee:
        """Returns what training has cost so far, and what may be said about it."""
        return self.run.releases.guarantee(delta)

    def planned_cost(self, steps: int) -> PrivacyLoss:
        """Returns what this number of further steps will cost, for every dataset, to charge a ``Ledger``."""
        return self.run.releases.planned_cost(checks.count("steps", steps, at_least=1, at_most=10**7))

    def fisher_information_loss(self) -> Tensor:
        """Returns eta of every training example over the measured steps; NaN where it was never measured."""
        if self.run.fisher is None:
            raise ValueError("fisher_information_loss needs fisher_every and loss to be given to the engine")
        return self.run.fisher.fisher_information_loss()

    def example_epsilons(self, delta: float, kind: EpsilonKind = "ex_post") -> Tensor:
        """Returns the epsilon of each training example, or unit, in the order of the dataset.

        It is that of an ``ExampleAccountant``, whose ``statement`` says what it means: for this run, and with
        kind "ex_post" along it. It needs ``track_examples=True``. The numbers are sensitive.
        """
        return self.run.example_epsilons(delta, kind)

    def save(self, path: str | PathLike[str], **others: Any) -> None:
        """Writes the whole run to one file: model, optimizer, account, sampler and random state.

        ``others`` are further objects with a ``state_dict``, such as a scheduler. From now on the
        account is written to PATH.journal before each release. Both files are as private as the data.
        """
        self.run.save(checks.path("path", path), others)

    def load(self, path: str | PathLike[str], **others: Any) -> None:
        """Goes on where ``save`` was called, after ``make_private`` with the same settings.

        What was released after the save is in the account already. When the loop gets there again, these
        steps are other releases, of other samples and with other noise, and are charged as well: save often.
        With a given seed a run goes on to the bit where as many releases were charged as there are steps.
        """
        self.run.load(checks.path("path", path), others)

    def close(self) -> None:
        """Closes the files of ``save`` and ``load``, so that another engine may have them.

        This one releases and saves nothing more until it loads them.
        """
        if self._run is not None:
            self.run.releases.close()

    __reduce__ = Noise.__reduce__


# ``dataclasses.replace`` would make another engine with the same seed, which would draw the same numbers
del PrivacyEngine.__dataclass_fields__


def _unwrapped(model: nn.Module) -> nn.Module:
    """Returns the model inside of DistributedDataParallel and ``torch.compile``, whose layers are watched."""
    checks.instance("model", model, nn.Module)
    if isinstance(model, DistributedDataParallel):
        return _unwrapped(model.module)
    inside = getattr(model, "_orig_mod", None)  # of what torch.compile returns
    return _unwrapped(inside) if isinstance(inside, nn.Module) else model


def _layout_of(model: nn.Module) -> Layout:
    """Returns how the parameters of a model lie on the processes."""
    if "torch.distributed.tensor" in sys.modules:  # imported where a model is sharded, and slow to import
        from ringfence.training.sharding import Sharded, is_sharded

        if is_sharded(model):
            return Sharded(model)
    return distributed.Whole(model)


def _check(gradients: ExampleGradients, layout: Layout, optimizer: Optimizer, mechanism: Mechanism) -> None:
    """Raises an error that names what cannot be trained privately in the model or with the optimizer."""
    refuse_layers(gradients.model)
    parameters = gradients.parameters
    if not parameters:
        raise ValueError("model must have parameters that require a gradient, got none")
    kinds = {(p.device, p.dtype) for p in parameters.values()}
    if len(kinds) > 1:
        raise ValueError(f"model must have one device and dtype, got {sorted(map(str, kinds))}")
    device, dtype = kinds.pop()
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"model must be float32 or float64, got {dtype}")
    if isinstance(optimizer, LBFGS):
        raise ValueError("LBFGS asks for several gradients in a step, each would be a release: use SGD")
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, got {type(optimizer).__name__}")
    names = {id(p): name for name, p in layout.trained.items()}
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    missing = [name for key, name in names.items() if key not in held]
    if missing:
        raise ValueError(f"optimizer must hold every trained parameter, {missing[0]!r} is missing")
    if held - set(names):
        raise ValueError(f"optimizer holds {len(held - set(names))} parameters that are not the model's")
    theta = torch.zeros(1 if layout.settings else gradients.size, dtype=dtype, device=device)
    shape = mechanism.fisher_information(theta).shape
    if shape != theta.shape:
        raise ValueError(
            f"mechanism must fit the model's {gradients.size} trained parameters as one vector, "
            f"its own shape is {list(shape)}"
            + ("; a sharded model takes single numbers" * bool(layout.settings))
        )

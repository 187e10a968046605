"""Private training of any torch model: three objects in, three private objects out."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ringfence import checks
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.per_instance.accountant import PerInstanceAccountant
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.files.journal import Journal
from ringfence.mechanisms.base import Mechanism, checked_mechanism
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.assumptions import assumptions
from ringfence.training.clipping import Clip
from ringfence.training.engine.auxiliary import AuxiliarySums, each_loss, targets_of
from ringfence.training.engine.loop import Loop
from ringfence.training.engine.model_checks import checked_model, refuse_random_layers
from ringfence.training.engine.private_objects import PrivateModule, PrivateOptimizer
from ringfence.training.engine.releases import Account, Releases
from ringfence.training.engine.run_file import RunFile
from ringfence.training.engine.sampling import (
    Batches,
    FullBatches,
    MicroBatch,
    PoissonBatches,
    PrivateLoader,
    checked_loader,
)
from ringfence.training.per_example.fisher_tracking import FisherTracking
from ringfence.training.per_example.gradients import ExampleGradients, Inputs
from ringfence.training.per_example.jacobian_operator import Loss
from ringfence.training.secure_run import NEEDS_SIZE, largest_count, secure_guarantee, stretched


@dataclass(frozen=True)
class StepReport:
    """After a release: how many there were, the loss of its batch, and what they cost.

    ``loss`` is None unless the engine knows the loss. It comes from private data: for your eyes only.

    >>> import ringfence as rf
    >>> account = rf.PerInstanceAccountant(rf.Gaussian(1.0), sensitivity=0.1)
    >>> account.step(0.0)
    >>> report = StepReport(account.steps, None, account.guarantee)
    >>> report.steps, round(report.guarantee(1e-5).epsilon_data_independent, 3)
    (1, 0.341)
    """

    steps: int
    loss: float | None
    guarantee: Callable[[float], Guarantee]


class PrivacyEngine:
    """Trains any torch model with a mechanism on the sum of clipped gradients.

    ``sampling``: "poisson", every example in a batch with probability batch_size / public_size; or
    "full", every example in every step, the loader's batch_size at a time. ``public_size``: the
    number of examples as far as it is public; where it is None, the dataset's length counts as
    public, which the statement says and a secure run refuses. The released sum is divided by
    batch_size (poisson) or public_size (full), never by the number of examples that happen to be in
    the batch.

    ``loss_reduction`` says what the loss in your loop does over a batch, "mean" or "sum"; it must not
    mix examples otherwise. ``loss``, the same as a function of outputs and targets, is only needed
    for what follows. ``fisher_every``: measure the Fisher information loss of the examples in the
    batch every so many steps, "spectral" or "trace" as ``fisher_kind`` says. ``auxiliary_batches``:
    so many more Poisson samples are drawn a step, never released, to estimate the per-instance
    cost (``SampledAccountant``); with 0 a sampled step is charged with what holds for every
    dataset. ``on_step`` hears a ``StepReport``. ``memory_budget``: bytes for the gradients of a chunk of
    examples; None takes 1 GiB, or a quarter of what is free on a GPU. ``seed``: None takes 256
    bits from the operating system; whoever knows it knows the noise. ``secure``: batches and noise come
    from fresh cryptographic streams and releases lie on a public grid (``Mechanism.release``). Sums are
    then taken in float64, their rounding and the finite randomness are charged, there is no seed, and a
    run that is resumed pays again for steps it makes again (docs/security.md).

    Guarantee: the parameters depend on the data through the mechanism only, each step's sum being
    charged before it is released. Clipping looks at one example alone, and every example goes
    through the model alone. The accounts are those of ``docs/guarantees.md``. An engine serves one run.

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

    def __init__(
        self,
        mechanism: Mechanism,
        clip: Clip,
        *,
        sampling: Literal["poisson", "full"] = "poisson",
        public_size: float | None = None,
        loss_reduction: Literal["mean", "sum"] = "mean",
        loss: Loss | None = None,
        fisher_every: int = 0,
        fisher_kind: InformationNorm = "spectral",
        auxiliary_batches: int = 0,
        on_step: Callable[[StepReport], None] | None = None,
        memory_budget: int | None = None,
        seed: int | None = None,
        secure: bool = False,
    ) -> None:
        checked_mechanism(mechanism)
        if not isinstance(clip, Clip):
            raise TypeError(f"clip must be a ringfence Clip such as Clamp(1e-3), got {clip!r}")
        _one_of("sampling", sampling, ("poisson", "full"))
        _one_of("loss_reduction", loss_reduction, ("mean", "sum"))
        _one_of("fisher_kind", fisher_kind, ("spectral", "trace"))
        checks.count("fisher_every", fisher_every, at_least=0)
        checks.count("auxiliary_batches", auxiliary_batches, at_least=0)
        if auxiliary_batches and (sampling == "full" or auxiliary_batches < 2):
            raise ValueError(
                f"auxiliary_batches must be 0, or at least 2 with sampling 'poisson', got {auxiliary_batches}"
            )
        for name, value in (("fisher_every", fisher_every), ("auxiliary_batches", auxiliary_batches)):
            if value and loss is None:
                raise ValueError(f"{name} needs loss, a function of outputs and targets, got None")
        self.mechanism, self.clip = mechanism, clip
        self.sampling, self.public_size, self.loss_reduction = sampling, public_size, loss_reduction
        self.loss, self.auxiliary_batches = loss, auxiliary_batches
        self.fisher_every, self.fisher_kind = fisher_every, fisher_kind
        self.on_step = on_step
        self.memory_budget = memory_budget
        self.given_seed = None if seed is None else checks.seed(seed)
        self.seed = Noise(seed).seed
        if checks.flag("secure", secure) and seed is not None:
            raise ValueError(f"seed must be None, got {seed!r}: secure releases have no seed")
        if secure and public_size is None:
            raise ValueError(NEEDS_SIZE)
        self.secure = secure
        self.assumptions = assumptions(size_given=public_size is not None, seed_given=seed is not None)
        self.steps = 0
        self.run_id = secrets.token_hex(16)
        self.settings: dict[str, Any] = {}
        self._gradients: ExampleGradients | None = None

    def make_private(
        self, model: nn.Module, optimizer: Optimizer, loader: DataLoader[Any]
    ) -> tuple[PrivateModule, PrivateOptimizer, PrivateLoader]:
        """The three objects for the loop; everything is checked here, before anything is released."""
        if self._gradients is not None:
            raise ValueError("this engine already serves a run: make another for another model")
        module = model.module if isinstance(model, DistributedDataParallel) else model
        gradients = ExampleGradients(module, self.memory_budget)
        device, dtype = checked_model(gradients, optimizer)
        self._check_shape(torch.zeros(gradients.size, dtype=dtype, device=device))
        loader, count, batch_size = checked_loader(loader)
        size = float(checks.positive("public_size", count if self.public_size is None else self.public_size))

        self._batches: Batches = (
            FullBatches(count, batch_size, size)
            if self.sampling == "full"
            else PoissonBatches(count, batch_size, size)
        )
        self.fisher: FisherTracking | None = None
        if self.loss is not None and self.fisher_every:
            refuse_random_layers(module)
            self.fisher = FisherTracking(self.loss, count, self.fisher_every, self.fisher_kind)
        self.settings = {
            "mechanism": self.mechanism.state_dict(),
            "clip": repr(self.clip),
            "sampling": self.sampling,
            "public_size": size,
            "batch_size": batch_size,
            "examples": count,
            "loss_reduction": self.loss_reduction,
            "auxiliary_batches": self.auxiliary_batches,
            "secure": self.secure,
            "parameters": {name: list(p.shape) for name, p in gradients.parameters.items()},
        }
        for value in module.state_dict().values():
            distributed.from_first(value)
        self.seed = int(distributed.text_from_first(str(self.seed)))
        self.noise = self._own_noise()
        self.run_id = distributed.text_from_first(self.run_id)
        self._sensitivity = self.clip.sensitivity
        if self.secure:
            self._sensitivity = stretched(self._sensitivity, largest_count(count, size))
        self.releases = Releases(self.mechanism, self._new_account(), self.noise, secure=self.secure)
        self.model, self.optimizer, self._gradients = module, optimizer, gradients
        self._loop = Loop(
            gradients,
            self.clip,
            self.loss_reduction,
            self._note,
            self._release,
            torch.float64 if self.secure else None,
        )
        private_loader = PrivateLoader(loader, self._batches, self._begin, self._loop.announce)
        if self.loss is not None and isinstance(self._batches, PoissonBatches):
            self._auxiliary = AuxiliarySums(
                gradients, self.clip, self.loss, self._batches, private_loader, device
            )
        return (
            PrivateModule(module, self._loop.forward),
            PrivateOptimizer(optimizer, self._loop.finish),
            private_loader,
        )

    @property
    def account(self) -> Account:
        """Everything that was ever released in this run."""
        self._require_run()
        return self.releases.account

    def guarantee(self, delta: float) -> Guarantee:
        """What training has cost so far, and what may be said about it."""
        if self.secure:
            numbers = self.account.steps * self._require_run().size
            claim = secure_guarantee(self.account.guarantee, self.mechanism, numbers, delta)
        else:
            claim = self.account.guarantee(delta)
        return replace(claim, assumptions=self.assumptions)

    def fisher_information_loss(self) -> Tensor:
        """eta of every training example over the measured steps, in the order of the dataset."""
        self._require_run()
        if self.fisher is None:
            raise ValueError("fisher_information_loss needs fisher_every and loss to be given to the engine")
        return self.fisher.fisher_information_loss()

    def _begin(self) -> tuple[int, Noise]:
        """An epoch starts, or goes on."""
        self._loop.begin(self.noise, self.steps)
        if self.fisher is not None:
            self.fisher.forget()
        self._losses: list[tuple[float, int]] = []
        return self.steps, self.noise

    def _note(self, batch: MicroBatch, values: Any, inputs: Inputs, outputs: Tensor) -> None:
        """For the eyes of the user: the loss, and the examples whose information is measured."""
        if self.loss is None or not batch.indices:
            return
        targets = targets_of(values).to(outputs.device)
        if self.on_step is not None:
            self._losses.append((float(each_loss(self.loss, outputs, targets).mean()), len(targets)))
        if self.fisher is not None and self.fisher.wants(batch.step):
            self.fisher.keep(batch.indices, inputs, targets)

    def _release(self, theta: Tensor) -> None:
        """The sum of a step is complete: charge it, release it, hand it to the optimizer."""
        gradients = self._require_run()
        theta = distributed.summed(theta)
        released = self.releases.release(self.steps, theta, self._charge) / self._batches.divisor
        if self.fisher is not None:
            self.fisher.measure(
                gradients.model,
                self.mechanism,
                self.clip,
                theta,
                noise=self.noise,
                step=self.steps,
                memory=gradients.memory_budget,
            )
        for name, value in gradients.split(released).items():
            gradients.parameters[name].grad = value.to(gradients.parameters[name].dtype, copy=True)
        self.steps += 1
        losses, self._losses = self._losses, []
        if self.on_step is not None:
            count = sum(number for _, number in losses)
            mean = sum(value * number for value, number in losses) / count if count else None
            self.on_step(StepReport(self.steps, mean, self.guarantee))

    def _new_account(self) -> Account:
        if self.sampling == "full":
            return PerInstanceAccountant(self.mechanism, self._sensitivity)
        return SampledAccountant(self.mechanism, self._sensitivity, self._batches.sampling_rate)

    def _charge(self, theta: Tensor) -> None:
        account = self.releases.account
        if isinstance(account, PerInstanceAccountant):
            account.step(theta)
        elif self.auxiliary_batches:
            account.step(self._auxiliary.sums(self.auxiliary_batches, self.noise, self.steps))
        else:
            account.step_of_any(theta)

    def save(self, path: str | PathLike[str], **others: Any) -> None:
        """The whole run in one file: model, optimizer, account, sampler and random state.

        ``others`` are further objects with a ``state_dict``, such as a scheduler. From now on every
        release is written to PATH.journal before it is made. Both files are as private as the data.
        """
        self._require_run()
        RunFile(Path(path)).save(self, others)

    def load(self, path: str | PathLike[str], **others: Any) -> None:
        """Goes on where ``save`` was, after ``make_private`` with the same settings.

        What was released after the save is in the account already; when the loop gets there again
        the same sums give the same releases and are not charged twice. Secure releases are new ones, of
        new batches, and are charged.
        """
        self._require_run()
        RunFile(Path(path)).load(self, others)

    def close(self) -> None:
        """Lets go of the files of ``save`` and ``load``, so that another engine may have them."""
        if self._gradients is not None and self.releases.journal is not None:
            self.releases.journal.close()
            self.releases.journal = None

    def resume(
        self,
        run_id: str,
        steps: int,
        seed: int,
        account: Account,
        known: set[tuple[int, str]],
        journal: Journal | None,
    ) -> None:
        """Takes over what a file holds (``RunFile``)."""
        self.run_id, self.steps = run_id, steps
        if not self.secure:  # a batch that is released twice would not be two samples
            self.seed = seed
            self.noise = self._own_noise()
        self.releases = Releases(self.mechanism, account, self.noise, journal, known, self.secure)
        self._begin()

    def _own_noise(self) -> Noise:
        """Of the seed and of whatever a release depends on: engines that differ in it share no noise."""
        released = {name: value for name, value in self.settings.items() if name != "auxiliary_batches"}
        return Noise(self.seed).of("engine", repr(sorted(released.items())))

    def _require_run(self) -> ExampleGradients:
        if self._gradients is None:
            raise ValueError("the engine has no model yet: call make_private first")
        return self._gradients

    def _check_shape(self, theta: Tensor) -> None:
        shape = self.mechanism.fisher_information(theta).shape
        if shape != theta.shape:
            raise ValueError(
                f"mechanism must fit the model's {theta.numel()} trained parameters as one vector, "
                f"its own shape is {list(shape)}"
            )


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")

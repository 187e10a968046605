"""One run of an engine: its releases, the sum of each step, and the private model, optimizer and loader."""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Union

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, Dataset

from ringfence import checks
from ringfence.accounting.examples import ExampleAccountant
from ringfence.accounting.guarantee import EpsilonKind, Guarantee
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.accounting.subsampling import Account, AllocatedAccountant, accountant_from_state_dict
from ringfence.mechanisms.base import Sampler
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.engine.batches import MicroBatch, RunPlan, collated, largest_batch, loading_options
from ringfence.training.engine.run_file import RunFile, Spent, State
from ringfence.training.information import FisherTracking
from ringfence.training.jacobian import Loss
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import Inputs
from ringfence.training.per_example.layers import is_frozen, refuse_layers, refuse_other_parameters

if TYPE_CHECKING:
    from ringfence.training.sharding import Sharded

Layout = Union[distributed.Whole, "Sharded"]  # how the parameters lie on the processes

_LOSS_ROUNDING = 1e-3  # of the largest gradient: a loss that mixes examples is off by far more


@dataclass(frozen=True)
class StepReport:
    """Report of a release: the number of releases, the loss of the batch, and the cost of all.

    ``loss`` is None unless the engine knows the loss. The loss comes from private data: do not publish it.
    """

    steps: int
    loss: float | None
    guarantee: Callable[[float], Guarantee]


class Findings:
    """Checks of numbers that a GPU may still be working on: those are read later, without waiting for it.

    A check on the CPU raises at once. One on a GPU raises in ``settle``, which is called a step later.
    """

    def __init__(self) -> None:
        self._later: list[tuple[Tensor, torch.cuda.Event, str]] = []

    def require(self, good: Tensor, message: str) -> None:
        """Raises a ValueError with this message, now or in ``settle``, unless ``good`` is true."""
        if good.is_cuda:
            copy, there = torch.empty((), dtype=torch.bool, pin_memory=True), torch.cuda.Event()
            copy.copy_(good, non_blocking=True)
            there.record()
            self._later.append((copy, there, message))
        elif not good:
            raise ValueError(message)

    def settle(self) -> None:
        """Raises what was found, once the GPU has come so far."""
        later, self._later = self._later, []
        for good, there, message in later:
            there.synchronize()
            if not good:
                raise ValueError(message)


class Releases:
    """The releases of a run: each is charged, then written to the journal where there is one, then drawn.

    A release has a number, that of the charges before it. Its sample, its masks of dropout and its random
    augmentations belong to the key of the run and to that number. A step that is begun again after it was
    charged, in this process or after a load, has another number, so it draws another sample, and is charged
    again: two sums of one sample are not those of two. An engine that loads a run after releases of its own
    has another key from then on.

    Noise is drawn from a fresh key of the operating system. Where a seed was given, it belongs to the seed,
    the settings, the number and the sum, so that two different sums never share it.

    On a GPU, a step with a Poisson sample does not wait for the numbers of the one before. In the place of a
    sum that is not finite zeros are released, and the error comes with the next step or claim, ``save`` or
    ``close``.

    ``settings`` describes the run in plain data and must be the same in a file that is loaded. ``most`` is
    the number of releases, or epochs, that may be charged in all.

    Guarantee: a release is charged, and the charge is on disk where the run has a file, before it is drawn.
    No sample is released twice under one key.
    """

    def __init__(
        self,
        plan: RunPlan,
        layout: Layout,
        settings: dict[str, Any],
        numbers: int,
        *,
        seed: int,
        seed_given: bool,
        assumptions: tuple[str, ...],
    ) -> None:
        self.plan, self.layout, self.settings, self.numbers = plan, layout, settings, numbers
        self.assumptions, self.seed_given = assumptions, seed_given
        self.run_id = distributed.text_from_first(secrets.token_hex(16))
        self.account: Account = plan.account()
        self.noise = run_noise(seed, settings)
        self.file: RunFile | None = None  # which the first process writes
        self.most: int | None = None
        self.begun = 0  # where epochs of random allocation begin: a run that is loaded begins one
        self.findings = Findings()
        self._loading: Path | None = None  # the file whose run is not, or only half, in the place of this one
        self._sampler: Sampler | None = None  # for the device of the first sum: the model may be moved to it

    @property
    def number(self) -> int:
        """The number of the next release."""
        return self.account.steps

    def release(self, theta: Tensor) -> Tensor:
        """Returns what the mechanism gives for the sum over all processes, after it is charged.

        ``theta`` is as much of the sum as this process holds.
        """
        self._require_open()
        self.findings.settle()
        number = self.number
        finite = self._finite(number, theta)
        not_finite = (
            f"the sum of clipped gradients of step {number} is not finite and was not released: look at the "
            "inputs, the loss and the learning rate"
        )
        self._require(finite, not_finite)
        if self.most is not None and self._charged() >= self.most:
            most = f"{self.most} {'epochs' if self.plan.batches.is_allocated else 'steps'}"
            raise ValueError(f"step {number} is beyond the {most} that were charged beforehand")
        if isinstance(self.account, AllocatedAccountant):
            self.account.enter(self._epoch(number))
        self.layout.charge(self.account, theta)
        self._write_down()
        if self.plan.secure:
            return self.layout.released(self.plan.mechanism.release(theta))
        if self._sampler is None:
            self._sampler = Sampler(self.plan.mechanism, theta.dtype, theta.device)
        noise, name = (self.noise, self.noise.digest(theta)) if self.seed_given else (Noise(), b"")
        draws = noise.draws("noise", number, name, *self.layout.place, device=theta.device)
        released = self._sampler.draw(theta, draws)
        self.findings.require(~released.isnan().any(), not_finite)
        return self.layout.released(torch.where(finite, released, 0.0))

    def _finite(self, number: int, theta: Tensor) -> Tensor:
        """Returns whether the whole sum is finite, and of one sample.

        After an error or an interrupt that not all processes had at the same place, they may be at different
        releases or samples, of which an example can be in several shares.
        """
        bad = (~torch.isfinite(theta).all()).long()
        if distributed.world_size() == 1:
            return bad.logical_not()
        own = self.noise.at("together", number).word() >> 33  # 31 bits, of which sums are exact
        sums = distributed.summed(torch.stack((bad, bad.new_tensor(own))))
        together = sums[1] == own * distributed.world_size()
        self._require(
            together,
            f"the processes are not all at the same sample of step {number}, which was not released: end "
            "them all, start them again and load",
        )
        return together.logical_and(sums[0].logical_not())

    def _require(self, good: Tensor, message: str) -> None:
        """Raises a ValueError unless ``good`` is true, now where the step waits for theta all the same."""
        waits = self.plan.secure or self.plan.batches.is_full
        self.findings.require(good.cpu() if waits else good, message)

    # ------------------------------------------------------------------ the cost

    def guarantee(self, delta: float) -> Guarantee:
        """Returns what training has cost so far, and what may be said about it."""
        if self._loading is not None:
            self._require_open()
        self.findings.settle()
        claim = self.account.guarantee(delta)
        return replace(claim.about(self.plan.units.name), assumptions=self.assumptions)

    def planned_cost(self, steps: int) -> PrivacyLoss:
        """Returns what this number of further steps will cost, whatever the data.

        With random allocation, an epoch that has begun counts as a whole.
        """
        done, until = self.charged_until(steps)
        return self.charged_cost(until - done)

    def charged_until(self, steps: int) -> tuple[int, int]:
        """Returns the number of charges before this number of further steps, and after them.

        Charges are releases, or draws of an epoch where examples are allocated: the one that the first of
        these steps is in comes with them.
        """
        if self.plan.batches.is_allocated:
            (first,), (last,) = self._epoch(self.number), self._epoch(self.number + steps - 1)
            steps = (last - first) // self.plan.batches.steps_an_epoch + 1
        return self._charged(), self._charged() + steps

    def charged_cost(self, count: int) -> PrivacyLoss:
        """Returns what this number of charges of ``charged_until`` costs, whatever the data."""
        each = self.plan.batches.steps_an_epoch if self.plan.batches.is_allocated else 1
        return self.plan.cost(self.numbers, count * each)

    def stop_at(self, most: int) -> None:
        """Refuses all beyond ``most``, as ``charged_until`` counts; a run that goes on keeps to it."""
        self.most = most
        self._write_down()

    def _charged(self) -> int:
        """How many releases, or epochs of random allocation, were charged before the one that is due."""
        if isinstance(self.account, AllocatedAccountant):
            return self.account.before(self._epoch(self.number))
        return self.number

    def _epoch(self, number: int) -> tuple[int]:
        """The epoch of random allocation that a release is in."""
        return (self.plan.batches.epoch(number, self.begun),)

    # ------------------------------------------------------------------ the file

    def save(self, path: Path, state: State) -> None:
        """Writes the run to a file, with this state. The first process writes; all wait for it."""
        self._require_open()
        self.findings.settle()
        state = {
            **state,
            "run": self.run_id,
            "settings": self.settings,
            "assumptions": list(self.assumptions),
            "charged": self.number,
        }
        old, new = self.file, RunFile(path)
        if old is not None and old.path == new.path:
            old.save(state)
        else:
            self.file = new
            try:
                new.begin(state, self._spent(), old)
            finally:
                if not new.is_taken:
                    self.file = old
            if old is not None:
                old.close()
        distributed.wait()

    def load(self, path: Path, others: Iterable[str], restore: Callable[[State], None]) -> None:
        """Goes on with the run in a file, of which ``restore`` takes the state.

        Every process reads it; the first one has it from now on. ``others`` are the names of what the state
        must have beside the engine. Until all of it is restored nothing is released, saved or claimed.
        """
        file = RunFile(path)
        state = file.read()
        self._refuse_other_settings(path, state, sorted(others))
        self.findings = Findings()  # those of a past that is left
        self.close()
        self._loading = path
        file.lock()
        self.file = file
        distributed.wait()
        try:
            spent = file.spent(state)
            account = accountant_from_state_dict(spent["account"])
            restore(state)
        except BaseException:
            self.close()
            raise
        if self.number:  # another number may be one that this engine has drawn for
            fresh = distributed.text_from_first(str(secrets.randbits(256)))
            self.noise = run_noise(int(fresh), self.settings)
        self.run_id, self.account, self.most = state["run"], account, spent["most"]
        self.begun = self.number
        # what the run took for granted before it was saved still holds, such as a seed that was given
        self.assumptions = tuple(dict.fromkeys((*self.assumptions, *state["assumptions"])))
        self._loading = None
        distributed.wait()

    def _refuse_other_settings(self, path: Path, state: State, others: list[str]) -> None:
        """Raises a ValueError that names what differs between the file and the run that is to go on."""
        for name in {**self.settings, **state["settings"]}:
            ours, theirs = self.settings.get(name), state["settings"].get(name)
            if theirs != ours:
                raise ValueError(f"{path} was written with {name} {theirs!r}, this engine has {ours!r}")
        saved = sorted(state["objects"]["others"])
        if saved != others:
            raise ValueError(f"{path} was saved with {saved} beside the engine, load was given {others}")
        if self.most is not None and state["run"] != self.run_id:
            raise ValueError(f"a ledger was charged for another run than {path}: load before ledger.train")

    def close(self) -> None:
        """Lets go of the file, so that another run may have it: without it, nothing more is released."""
        if self.file is not None:
            self.file.close()
        self.findings.settle()

    def _require_open(self) -> None:
        """Raises a ValueError where nothing may be released or saved."""
        if self._loading is not None:
            raise ValueError(f"{self._loading} could not be loaded: load it, or make another engine")
        if self.file is not None and not self.file.is_taken:
            raise ValueError(f"{self.file.path} was closed: load its run to go on, in this engine too")

    def _write_down(self) -> None:
        """Returns when the file says what was spent, where there is one."""
        if self.file is not None:
            self.file.charge(self._spent())

    def _spent(self) -> Spent:
        return {"run": self.run_id, "account": self.account.state_dict(), "most": self.most}


@dataclass
class Handed:
    """A batch that the loader handed out and, once the model was called, its inputs and outputs."""

    batch: MicroBatch
    values: Any
    inputs: Inputs | None = None
    outputs: Any = None


@dataclass
class OpenStep:
    """What the micro-batches of a step have added so far."""

    part: int = 0  # which is due
    sum: Tensor | None = None
    parts: list[tuple[MicroBatch, Inputs, Any]] = field(default_factory=list)  # with cotangents of units
    losses: list[Tensor] = field(default_factory=list)  # of the examples of each micro-batch


class TrainingRun:
    """A model in training. ``PrivacyEngine.make_private`` begins it, and the three private objects drive it.

    A step is: ``announce`` and ``forward`` for each of its micro-batches, then ``finish``, which adds the
    clipped gradients to the sum. When the sum is complete it is released (``Releases``) and handed to the
    optimizer as the gradient. Loops that would count an example twice are refused.

    ``theta`` is the sum of clipped gradients that was released last, without its noise, as far as this
    process holds it: it is private. While ``on_step`` is called, the model still has the parameters that
    these gradients were taken at.

    Guarantee: the model's parameters receive no gradient but the released one.
    """

    def __init__(
        self,
        plan: RunPlan,
        gradients: ExampleGradients,
        optimizer: Optimizer,
        layout: Layout,
        *,
        fisher: FisherTracking | None,
        track_examples: bool,
        on_step: Callable[[StepReport], None] | None,
        **of_releases: Any,
    ) -> None:
        self.plan, self.gradients, self.optimizer, self.layout = plan, gradients, optimizer, layout
        self.fisher, self.on_step = fisher, on_step
        shapes = {name: list(p.shape) for name, p in gradients.parameters.items()}
        settings = {**plan.settings(), "parameters": shapes, **layout.settings}
        self.releases = Releases(plan, layout, settings, gradients.size, **of_releases)
        self.examples = ExampleAccountant(plan.mechanism) if track_examples else None
        self.steps = 0
        self.theta: Tensor | None = None
        self.begin()

    # ------------------------------------------------------------------ the loop

    def begin(self) -> None:
        """Begins an epoch, or goes on with one; discards a partly accumulated step."""
        self._step = OpenStep()
        self._handed: Handed | None = None
        if self.fisher is not None:
            self.fisher.forget()

    def announce(self, batch: MicroBatch, values: Any) -> None:
        """Takes note of a batch that the loader hands out."""
        self._handed = Handed(batch, values)

    def augmented(self, batch: MicroBatch, values: Any) -> Any:
        """Returns the rows that the model sees of a batch."""
        if self.plan.units.transform is None:
            return values
        device = next(iter(self.gradients.parameters.values())).device
        with self._seeded("transform", batch, device):
            return self.plan.units.augmented(values, device)

    def forward(self, inputs: Inputs) -> Any:
        """Returns the outputs of the model in training, of which the user's loop takes the loss."""
        handed = self._handed
        if handed is None:
            raise ValueError(
                "the model in training was called outside of the private loader's loop: call eval()"
            )
        if handed.inputs is not None:
            raise ValueError("the model was called twice for one batch: an example may count only once")
        batch = handed.batch
        self._require_due(batch)
        for parameter in self.layout.trained.values():
            parameter.grad = None  # what is there later comes from the loop
        args, kwargs = inputs
        count = len(batch.indices) * self.plan.units.per_unit
        for name, value in (*enumerate(args), *kwargs.items()):
            if len(value) != count:
                raise ValueError(
                    f"input {name} has {len(value)} rows, the batch {count}: give the model all of it"
                )
            if value.is_floating_point() and not value.is_cuda:  # on a GPU the sum is looked at
                checks.require(f"input {name}", "must be finite", value, torch.isfinite(value))
        with self._pass_of(batch, inputs):
            outputs = self.gradients.forward(inputs)
        # of half precision no mean may be taken: the rounding of 1/n shows n
        halves = (torch.bfloat16, torch.float16)
        outputs = tree_map(lambda output: output.float() if output.dtype in halves else output, outputs)
        for output in tree_leaves(outputs):
            if output.is_floating_point():
                output.requires_grad_()
        handed.inputs, handed.outputs = inputs, outputs
        return outputs

    def finish(self) -> bool:
        """Adds the batch to the sum; returns whether the step is complete and was released."""
        batch, part = self._clipped_sum()
        self._handed = None  # first: a loop that goes on after an interrupt adds it once
        step = self._step
        step.sum = part if step.sum is None else step.sum + part
        step.part += 1
        if not batch.last:
            return False
        self._step = OpenStep()  # first: a release that fails is not tried again with another sum
        self._complete(step)
        return True

    def _clipped_sum(self) -> tuple[MicroBatch, Tensor]:
        """Returns the batch that is due and the sum of its clipped gradients."""
        handed = self._handed
        if handed is None or handed.inputs is None:
            raise ValueError(
                "optimizer.step() needs a batch: call the private model and loss.backward() first"
            )
        batch, inputs, outputs = handed.batch, handed.inputs, handed.outputs
        if all(output.grad is None for output in tree_leaves(outputs)):
            raise ValueError("optimizer.step() needs a gradient: call loss.backward() first")
        self._refuse_penalties()
        is_mean, count = self.plan.loss_reduction == "mean", len(batch.indices)
        if is_mean and self.plan.loss is None and count > largest_batch(self.plan.batches.batch_size):
            raise ValueError(f"a mean over {count} examples is not charged for: give loss or take the 'sum'")
        cotangents = tree_map(
            lambda output: (
                torch.zeros_like(output)
                if output.grad is None
                else output.grad * (len(output) if is_mean else 1)
            ),
            outputs,
        )
        if self.plan.loss is not None and batch.indices:
            cotangents = self._own_cotangents(self.plan.loss, handed, cotangents)
        cotangents = tree_map(lambda each: self.plan.units.averaged(each, batch.indices), cotangents)
        if self.examples is not None:
            self._step.parts.append((batch, inputs, cotangents))
        dtype = torch.float64 if self.plan.secure else None
        with self._pass_of(batch, inputs):
            return batch, self.gradients.clipped_sum(inputs, cotangents, self.plan.clip, dtype)

    def _refuse_penalties(self) -> None:
        """Raises a ValueError where the loss in the loop also depends on the parameters themselves."""
        for name, p in self.layout.trained.items():
            if p.grad is not None and bool(p.grad.any()):
                raise ValueError(
                    f"the loss in the loop has a gradient by {name} that does not go through the model's "
                    "outputs, such as that of a penalty: use the optimizer's weight_decay"
                )

    def _own_cotangents(self, loss: Loss, handed: Handed, cotangents: Any) -> Tensor:
        """Returns the cotangents of each example's own loss, in the place of those of the loop.

        None was divided by the number of examples in the batch, and those of a secure run have no rounding
        that depends on it. The loop's are refused where they are others. Notes loss and examples of the step.
        """
        batch, inputs, outputs, values = handed.batch, handed.inputs, handed.outputs, handed.values
        assert inputs is not None
        if not isinstance(outputs, Tensor):
            raise ValueError(f"with loss, the model must return one tensor, got {type(outputs).__name__}")
        if not isinstance(values, list | tuple) or len(values) != 2 or not isinstance(values[1], Tensor):
            kind = type(values).__name__
            raise ValueError(f"with loss, loader must give pairs (inputs, targets), got {kind}")
        outputs = outputs.detach()
        targets = values[1].to(outputs.device)
        apart = _cotangents(loss, outputs, targets, one_by_one=self.plan.secure)
        self.releases.findings.require(
            (cotangents - apart).abs().max() <= _LOSS_ROUNDING * apart.abs().max(),
            "the loss in the loop is not the engine's loss of each example by itself, reduced as "
            "loss_reduction says. Take a loss that treats examples apart: neither mixup nor a mean with "
            "CrossEntropyLoss(weight=) does; the sum of weighted losses does",
        )
        if self.on_step is not None:
            self._step.losses.append(_each_loss(loss, outputs, targets))
        if self.fisher is not None and self.fisher.wants(batch.number):
            self.fisher.keep(batch.indices, inputs, targets)
        return apart

    def _require_due(self, batch: MicroBatch) -> None:
        """Raises a ValueError for a batch that is not the next one.

        Two batches that are summed before one release are another mechanism, and so is a step that lacks some
        of its examples. After a skipped step, a sample would be handed out, and released, twice.
        """
        number, part = self.releases.number, self._step.part
        if (batch.number, batch.part) != (number, part):
            raise ValueError(
                f"optimizer.step() was not called for every batch of the loader (step {number}, part {part} "
                f"is due, got step {batch.number}, part {batch.part}): call it after each, also an empty one"
            )

    def _seeded(self, purpose: str, batch: MicroBatch, device: torch.device) -> AbstractContextManager[None]:
        """Makes what draws from torch's global generators draw the same numbers for a batch, each time."""
        place = (purpose, batch.number, batch.part, distributed.rank())
        return self.releases.noise.global_draws(*place, device=device)

    @contextmanager
    def _pass_of(self, batch: MicroBatch, inputs: Inputs) -> Iterator[None]:
        """For a pass of a batch, forward or back: all parameters are here, masks of dropout are the same."""
        with self._seeded("forward", batch, tree_leaves(inputs)[0].device), self.layout.gathered():
            yield

    # ------------------------------------------------------------------ a complete step

    def _complete(self, step: OpenStep) -> None:
        """Releases the sum of a complete step and hands the result to the optimizer as the gradient."""
        assert step.sum is not None
        theta, number = self.layout.summed(step.sum), self.releases.number
        self.theta = theta
        released = self.releases.release(theta) / self.plan.batches.divisor
        self.steps += 1
        if self.fisher is not None:
            model, memory = self.gradients.model, self.gradients.memory_budget
            place: dict[str, Any] = {"noise": self.releases.noise, "step": number, "memory": memory}
            self.fisher.measure(model, self.plan.mechanism, self.plan.clip, theta, **place)
        if self.examples is not None:
            self.examples.step(theta, self._clipped_gradients(step))
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # nothing but the released sum moves a parameter
        for parameter, value in self.layout.parts(released):
            # as the parameter lies in memory, without which GPU optimizers take each by itself
            same = value.dtype == parameter.dtype and value.stride() == parameter.stride()
            parameter.grad = value if same else torch.empty_like(parameter).copy_(value)
        if self.on_step is not None:
            mean = float(torch.cat(step.losses).mean()) if step.losses else None
            self.on_step(StepReport(self.steps, mean, self.releases.guarantee))

    def _clipped_gradients(self, step: OpenStep) -> Iterator[Tensor]:
        """Yields what each unit added to the sum of the step, from another pass over its parts."""
        for batch, inputs, cotangents in step.parts:
            with self._pass_of(batch, inputs):
                for rows in self.gradients.each(inputs, cotangents):
                    yield self.plan.clip(rows)

    def example_epsilons(self, delta: float, kind: EpsilonKind) -> Tensor:
        """Returns the epsilon of each unit, in the order of the dataset."""
        if self.examples is None:
            raise ValueError("example_epsilons needs track_examples=True to be given to the engine")
        if self.examples.steps != self.releases.number:
            raise ValueError(
                f"example_epsilons needs every release, got {self.examples.steps} of {self.releases.number}"
            )
        return self.examples.epsilons(delta, kind)

    def save(self, path: Path, others: dict[str, Any]) -> None:
        """Writes the run to a file, with the states of the objects beside it."""
        objects = {
            **self.layout.state(self.optimizer),
            "others": {name: dict(other.state_dict()) for name, other in others.items()},
            "examples": None if self.examples is None else self.examples.state_dict(),
            "fisher": {} if self.fisher is None else self.fisher.state_dict(),
            "random": {  # torch's global generators, which the user's own code may draw from
                "cpu": torch.get_rng_state(),
                "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
            },
        }
        self.releases.save(path, {"steps": self.steps, "objects": objects})

    def load(self, path: Path, others: dict[str, Any]) -> None:
        """Goes on with the run in a file."""

        def restore(state: State) -> None:
            objects = state["objects"]
            self.layout.load(objects, self.optimizer)
            for name, other in others.items():
                other.load_state_dict(objects["others"][name])
            if self.fisher is not None:
                self.fisher.load_state_dict(objects["fisher"])
            if self.examples is not None:
                known, own = objects["examples"], ExampleAccountant(self.plan.mechanism)
                self.examples = own if known is None else ExampleAccountant.from_state_dict(known)
            random = objects["random"]
            torch.set_rng_state(random["cpu"])
            if random["cuda"] and len(random["cuda"]) == torch.cuda.device_count():
                torch.cuda.set_rng_state_all(random["cuda"])
            self.steps = state["steps"]

        self.releases.load(path, others, restore)
        self.begin()


class PrivateModule(nn.Module):
    """The user's model; what it computes in training goes through the run, which makes the private step.

    A copy is the model alone: it holds what was released, and averages of it may be kept and evaluated.

    The outputs in training are leaves of the graph: ``loss.backward()`` stops there, and the parameters
    get no gradient but the released one. Evaluation, and anything under ``torch.no_grad``, goes to the
    model directly, or to a copy while it is in training mode. A normalisation that was frozen (in eval mode)
    stays frozen under ``train()``. The set of trained parameters stays as it was: any change is refused.
    """

    def __init__(self, module: nn.Module, run: TrainingRun) -> None:
        super().__init__()
        self.module = module
        self._run_forward = torch.compiler.disable(run.forward)  # layers are watched one by one
        self.training = module.training
        self._frozen = [layer for layer in module.modules() if is_frozen(layer)]
        self._trained, self._gathered = run.gradients.parameters, run.layout.gathered

    def train(self, mode: bool = True) -> Self:
        """Sets the mode of all layers but the frozen ones."""
        super().train(mode)
        for layer in self._frozen:
            layer.eval()
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return self.module(*args, **kwargs)
        if not torch.is_grad_enabled():  # a pass in training mode may write to the model
            with self._gathered():
                refuse_layers(self.module)
                refuse_other_parameters(self.module, self._trained)
                return deepcopy(self.module)(*args, **kwargs)
        for name, value in (*enumerate(args), *kwargs.items()):
            if not isinstance(value, Tensor) or not value.dim():
                kind = type(value).__name__
                raise TypeError(f"the model in training takes tensors of rows, got {kind} as input {name}")
        return self._run_forward((args, kwargs))

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        return deepcopy(self.module, memo)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class PrivateOptimizer(Optimizer):
    """The user's optimizer, which moves the parameters when a gradient was released.

    Everything else (param_groups, state, schedulers) is the user's optimizer itself.
    """

    def __init__(self, optimizer: Optimizer, run: TrainingRun) -> None:
        # Optimizer.__init__ is not called, because groups and state are those of the optimizer inside.
        self.optimizer = optimizer
        self._run = run

    def release(self) -> bool:
        """Adds the batch to the sum; returns whether the step is complete and its gradient was released.

        ``step`` does this itself. It is for trainers that call the step of the optimizer inside.
        """
        return self._run.finish()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Adds the batch to the sum, and moves the parameters if it was the last part of its step."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        if self.release():
            self.optimizer.step()
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Removes the gradients, which are the last released ones."""
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises a ValueError: a release has a place for each parameter that the engine began with."""
        raise ValueError("parameters cannot be added to a private optimizer: make a new engine")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["optimizer"], name)

    def __repr__(self) -> str:
        return f"PrivateOptimizer({self.optimizer!r})"


class PrivateLoader:
    """Iterates like a DataLoader over the rest of the epoch that the run is in."""

    def __init__(self, loader: DataLoader[Any], run: TrainingRun) -> None:
        self.dataset: Dataset[Any] = loader.dataset
        self._run, self._options = run, loading_options(loader)
        self._collated = partial(collated, loader.dataset, loader.collate_fn)

    @property
    def batches_a_step(self) -> int:
        """The number of micro-batches that make one step."""
        return len(self._run.plan.batches.of_step(0, Noise(0)))

    def __len__(self) -> int:
        """Returns the number of micro-batches in a whole epoch."""
        return self._run.plan.batches.steps_an_epoch * self.batches_a_step

    def __iter__(self) -> Iterator[Any]:
        self._run.begin()
        batches, releases = self._run.plan.batches, self._run.releases
        start, noise, begun = releases.number, releases.noise, releases.begun
        left = batches.steps_an_epoch - self._run.steps % batches.steps_an_epoch
        numbers = range(start, start + left)
        # workers ask for batches ahead of time
        asked, announced = tee(batch for number in numbers for batch in batches.of_step(number, noise, begun))
        loader = DataLoader(
            self.dataset,
            batch_sampler=(self._run.plan.units.rows(batch.indices, batch.number) for batch in asked),
            collate_fn=self._collated,
            # of our own, so that iterating draws nothing from torch's global one; workers draw from its seed
            generator=torch.Generator().manual_seed(noise.torch_seed("loader", start, distributed.rank())),
            **self._options,
        )
        for given, batch in zip(loader, announced, strict=False):
            values = self._run.augmented(batch, given)
            self._run.announce(batch, values)
            yield values
            if releases.noise is not noise:  # a file was loaded in the middle of the loop
                yield from self
                return


def run_noise(seed: int, settings: dict[str, Any]) -> Noise:
    """Returns the noise of a run: it depends on the seed and on every setting that a release depends on.

    Engines that differ in one of these settings share no noise.

    >>> one, other = (run_noise(7, {"sampling": name}) for name in ("full", "poisson"))
    >>> one.at("noise", 0).word() == other.at("noise", 0).word()
    False
    """
    return Noise(seed).of("engine", repr(sorted(settings.items())))


def _each_loss(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the loss of every example by itself."""
    return vmap(lambda output, target: loss(output.unsqueeze(0), target.unsqueeze(0)))(outputs, targets)


def _cotangents(loss: Loss, outputs: Tensor, targets: Tensor, one_by_one: bool = False) -> Tensor:
    """Returns the gradient of every example's own loss by its output.

    Taken ``one_by_one``, that of an example is the same to the bit whatever else is in its batch.
    """
    if one_by_one:
        pairs = zip(outputs.split(1), targets.split(1), strict=True)
        return torch.cat([grad(loss)(output, target) for output, target in pairs])
    result: Tensor = grad(lambda out: _each_loss(loss, out, targets).sum())(outputs)
    return result

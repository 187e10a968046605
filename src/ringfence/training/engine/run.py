"""One run of an engine: the private model, optimizer and loader, the sum of each step, and its release."""

import secrets
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
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
from ringfence.training.engine.batches import Examples, MicroBatch, RunPlan, largest_batch, loading_options
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


class TrainingRun:
    """A model in training. ``PrivacyEngine.make_private`` begins it, and the three private objects drive it.

    A step is: ``announce`` and ``forward`` for each of its micro-batches, then ``finish``, which adds the
    clipped gradients to the sum. When the sum is complete it is charged, written to the journal, released,
    and handed to the optimizer as the gradient. Loops that would count an example twice are refused.

    Every release draws its noise from a fresh key of the operating system. Where a seed was given, the noise
    belongs to the seed, the settings, the step and the sum, so that two different sums never share it. A
    Poisson sample is released once: two sums of one sample are not those of two samples. A step that is begun
    again after it was charged, in this process or after a load, draws another sample and is charged again.

    On a GPU, a step with a Poisson sample does not wait for the numbers of the one before. In the place of a
    sum that is not finite zeros are released, and the error comes with the next step or claim, ``save`` or
    ``close``.

    ``settings`` describes the run in plain data and must be the same in a file that is loaded. ``seed`` is
    the seed in use, and ``given_seed`` is the one that the user gave, if any. ``theta`` is the sum of clipped
    gradients that was released last, without its noise, as far as this process holds it: it is private. While
    ``on_step`` is called, the model still has the parameters that these gradients were taken at.

    Guarantee: the model's parameters receive no gradient but the released one. A release is charged, and
    written to the journal where there is one, before it is made.
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
        seed: int,
        given_seed: int | None,
        assumptions: tuple[str, ...],
    ) -> None:
        self.plan, self.gradients, self.optimizer, self.layout = plan, gradients, optimizer, layout
        self.fisher, self.on_step, self.assumptions = fisher, on_step, assumptions
        shapes = {name: list(p.shape) for name, p in gradients.parameters.items()}
        self.settings = {**plan.settings(), "parameters": shapes, **layout.settings}
        self.run_id = distributed.text_from_first(secrets.token_hex(16))
        self.seed, self.given_seed = seed, given_seed
        self.steps = 0
        self.theta: Tensor | None = None
        self.account: Account = plan.account()
        self.examples = ExampleAccountant(plan.mechanism) if track_examples else None
        # of samples and dropout, and of releases where a seed was given
        self.noise = run_noise(seed, self.settings)
        self.file: RunFile | None = None  # which the first process writes
        self.most: int | None = None  # how many releases, or epochs, may be charged in all
        self.findings = Findings()
        self._refused: str | None = None  # the reason why nothing may be released or saved
        self._half_loaded = False  # whether the model may be that of a file, and the account is not
        self._charged: int | None = None  # the step that was charged last
        self._sampler: Sampler | None = None  # made with the first theta
        self.begin()

    # ------------------------------------------------------------------ the loop

    def begin(self) -> tuple[int, Noise]:
        """Begins an epoch, or goes on with one; returns the step that is due and the noise of the run.

        Discards a partly accumulated step. One that was charged and failed is made with another sample.
        """
        if self._charged == self.steps:
            self._charged, self.noise = None, self.noise.of("another sample")
        self._due = (self.steps, 0)  # the step, and the part of it, that must be added next
        self._sum: Tensor | None = None
        self._batch: tuple[MicroBatch, Any] | None = None  # what the loader handed out last
        self._output: tuple[Inputs, Any] | None = None  # what the model made of that batch
        self._real: Tensor | None = None  # which rows of its inputs are real, where some are filled up
        self._before: list[tuple[Tensor | None, int]] = []  # gradients of parameters before the loss
        self._parts: list[tuple[MicroBatch, Inputs, Any]] = []  # of the step, with cotangents of units
        self._losses: list[Tensor] = []  # of the examples of each micro-batch
        if self.fisher is not None:
            self.fisher.forget()
        return self.steps, self.noise

    def announce(self, batch: MicroBatch, values: Any) -> None:
        """Takes note of a batch that the loader hands out."""
        self._batch, self._output, self._real = (batch, values), None, None

    def augmented(self, batch: MicroBatch, values: Any) -> Any:
        """Returns the rows that the model sees of a batch."""
        if self.plan.units.transform is None:
            return values
        device = next(iter(self.gradients.parameters.values())).device
        place = ("transform", batch.step, batch.part, distributed.rank())
        with self.noise.global_draws(*place, device=device):
            return self.plan.units.augmented(values, device)

    def forward(self, inputs: Inputs) -> Any:
        """Returns the outputs of the model in training, of which the user's loop takes the loss."""
        if self._batch is None:
            raise ValueError(
                "the model was called in training outside of the private loader's loop: call "
                "model.eval() first to evaluate it"
            )
        if self._output is not None:
            raise ValueError("the model was called twice for one batch: an example may count only once")
        batch, _ = self._batch
        self._require_due(batch)
        self._before = [(p.grad, _version(p.grad)) for p in self.layout.trained.values()]
        args, kwargs = inputs
        units = self.plan.units
        count = len(units.rows(batch.indices, batch.step)) * units.augmentations
        for name, value in (*enumerate(args), *kwargs.items()):
            if len(value) != count:
                raise ValueError(
                    f"input {name} has {len(value)} rows, the batch {count}: give the model every "
                    "batch of the private loader whole"
                )
            if value.is_floating_point() and not value.is_cuda:  # on a GPU the sum is looked at
                checks.require(f"input {name}", "must be finite", value, torch.isfinite(value))
        places = units.places(batch.indices, batch.step)
        if places is not None:  # units of fewer rows are filled up
            which, self._real = (each.to(tree_leaves(inputs)[0].device) for each in places)
            inputs = tree_map(lambda value: value[which], inputs)
        with self._seeded(batch, inputs), self.layout.gathered():
            outputs = self.gradients.forward(inputs)
        if self._real is not None:
            outputs = tree_map(lambda output: output[self._real], outputs)
        # of half precision no mean may be taken: the rounding of 1/n shows n
        halves = (torch.bfloat16, torch.float16)
        outputs = tree_map(lambda output: output.float() if output.dtype in halves else output, outputs)
        for output in tree_leaves(outputs):
            if output.is_floating_point():
                output.requires_grad_()
        self._output = (inputs, outputs)
        return outputs

    def finish(self) -> bool:
        """Adds the batch to the sum; returns whether the step is complete and was released."""
        batch, part = self._clipped_sum()
        self._batch = self._output = None  # first: a loop that goes on after an interrupt adds it once
        self._sum = part if self._sum is None else self._sum + part
        if not batch.last:
            self._due = (batch.step, batch.part + 1)
            return False
        total, self._sum = self._sum, None
        self._complete(total)
        self._due = (batch.step + 1, 0)
        return True

    def _clipped_sum(self) -> tuple[MicroBatch, Tensor]:
        """Returns the batch that is due and the sum of its clipped gradients."""
        if self._batch is None or self._output is None:
            raise ValueError(
                "optimizer.step() needs a batch: call model(inputs), of the model that "
                "make_private returned, and loss.backward() first"
            )
        (batch, values), (inputs, outputs) = self._batch, self._output
        if all(output.grad is None for output in tree_leaves(outputs)):
            raise ValueError("optimizer.step() needs a gradient: call loss.backward() first")
        self._refuse_penalties()
        is_mean, count = self.plan.loss_reduction == "mean", len(batch.indices)
        if is_mean and self.plan.loss is None and count > largest_batch(self.plan.batches.batch_size):
            raise ValueError(
                f"a mean over {count} examples is not charged for: give loss, or use loss_reduction='sum'"
            )
        cotangents = tree_map(
            lambda output: (
                torch.zeros_like(output)
                if output.grad is None
                else output.grad * (len(output) if is_mean else 1)
            ),
            outputs,
        )
        if self.plan.loss is not None and batch.indices:
            cotangents = self._own_cotangents(
                batch, values, inputs, tree_map(torch.detach, outputs), cotangents
            )
        dtype = torch.float64 if self.plan.secure else None
        rows = len(tree_leaves(inputs)[0])
        cotangents = tree_map(lambda each: self._unit_cotangents(each, rows), cotangents)
        if self.examples is not None:
            self._parts.append((batch, inputs, cotangents))
        with self._seeded(batch, inputs), self.layout.gathered():
            return batch, self.gradients.clipped_sum(inputs, cotangents, self.plan.clip, dtype)

    def _refuse_penalties(self) -> None:
        """Raises a ValueError where the loss in the loop also depends on the parameters themselves."""
        for (name, p), (before, version) in zip(self.layout.trained.items(), self._before, strict=True):
            untouched = p.grad is None or (p.grad is before and _version(before) == version)
            if not untouched and bool(p.grad.any()):
                raise ValueError(
                    f"the loss in the loop has a gradient by {name} that does not go through the model's "
                    "outputs, such as that of a penalty on parameters, or of clip_grad_norm_ where gradients "
                    "were not zeroed: nothing was released. Use the optimizer's weight_decay, or move the "
                    "parameters after optimizer.step()"
                )

    def _unit_cotangents(self, cotangents: Tensor, rows: int) -> Tensor:
        """The cotangents of all rows, 0 for those that fill up, so that those of a unit add up to a mean."""
        if self._real is not None:
            zeros = cotangents.new_zeros(rows, *cotangents.shape[1:])
            cotangents = zeros.index_copy(0, self._real, cotangents)
        per_unit = self.plan.units.per_unit
        return cotangents if per_unit == 1 else cotangents / per_unit

    def _own_cotangents(
        self, batch: MicroBatch, values: Any, inputs: Inputs, outputs: Any, cotangents: Any
    ) -> Tensor:
        """Returns the cotangents of each example's own loss, in the place of those of the loop.

        None was divided by the number of examples in the batch, and those of a secure run have no rounding
        that depends on it. The loop's are refused where they are others. Notes loss and examples of the step.
        """
        loss = self.plan.loss
        assert loss is not None
        if not isinstance(outputs, Tensor):
            raise ValueError(f"with loss, the model must return one tensor, got {type(outputs).__name__}")
        targets = _targets(values).to(outputs.device)
        apart = _cotangents(loss, outputs, targets, one_by_one=self.plan.secure)
        self.findings.require(
            (cotangents - apart).abs().max() <= _LOSS_ROUNDING * apart.abs().max(),
            "the loss in the loop is not the engine's loss of each example by itself, reduced as "
            "loss_reduction says. Take a loss that treats examples apart: neither mixup nor a mean with "
            "CrossEntropyLoss(weight=) does; the sum of weighted losses does",
        )
        if self.on_step is not None:
            self._losses.append(_each_loss(loss, outputs, targets))
        if self.fisher is not None and self.fisher.wants(batch.step):
            self.fisher.keep(batch.indices, inputs, targets)
        return apart

    def _require_due(self, batch: MicroBatch) -> None:
        """Raises a ValueError for a batch that is not the next one.

        Two batches that are summed before one release are another mechanism, and so is a step that lacks some
        of its examples. After a skipped step, a sample would be handed out, and released, twice.
        """
        if (batch.step, batch.part) != self._due:
            step, part = self._due
            raise ValueError(
                f"optimizer.step() was not called for every batch of the loader (step {step}, part {part} is "
                f"due, got step {batch.step}, part {batch.part}): call it after every batch, also an empty "
                "one; it moves the parameters when the step is complete"
            )

    def _seeded(self, batch: MicroBatch, inputs: Inputs) -> Any:
        """Makes the forward and the backward pass of a batch draw the same dropout masks."""
        place = ("forward", batch.step, batch.part, distributed.rank())
        return self.noise.global_draws(*place, device=tree_leaves(inputs)[0].device)

    # ------------------------------------------------------------------ the release

    def _complete(self, theta: Tensor) -> None:
        """Releases the sum of a complete step and hands the result to the optimizer as the gradient."""
        theta = self.theta = self.layout.summed(theta)
        step = self.steps
        released = self.release(step, theta) / self.plan.batches.divisor
        self.steps += 1
        if self.fisher is not None:
            model, memory = self.gradients.model, self.gradients.memory_budget
            place: dict[str, Any] = {"noise": self.noise, "step": step, "memory": memory}
            self.fisher.measure(model, self.plan.mechanism, self.plan.clip, theta, **place)
        if self.examples is not None:
            self.examples.step(theta, self._clipped_gradients())
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # nothing but the released sum moves a parameter
        for parameter, value in self.layout.parts(released):
            parameter.grad = _laid_out(value, parameter)
        losses, self._losses = self._losses, []
        if self.on_step is not None:
            mean = float(torch.cat(losses).mean()) if losses else None
            self.on_step(StepReport(self.steps, mean, self.guarantee))

    def _clipped_gradients(self) -> Iterator[Tensor]:
        """Yields what each unit added to the sum of the step, from another pass over its parts."""
        parts, self._parts = self._parts, []
        for batch, inputs, cotangents in parts:
            with self._seeded(batch, inputs):
                for rows in self.gradients.each(inputs, cotangents):
                    yield self.plan.clip(rows)

    def release(self, step: int, theta: Tensor) -> Tensor:
        """Returns what the mechanism gives for the sum over all processes, after it is charged.

        ``theta`` is as much of the sum as this process holds.
        """
        if self._refused is not None:
            raise ValueError(self._refused)
        self.findings.settle()
        finite = self._finite(step, theta)
        not_finite = (
            f"the sum of clipped gradients of step {step} is not finite and was not released: look at the "
            "inputs, the loss and the learning rate"
        )
        self._require(finite, not_finite)
        if self.most is not None and self._charged_before(step) >= self.most:
            what = "epochs" if self.plan.batches.is_allocated else "steps"
            raise ValueError(
                f"step {step} is beyond the {self.most} {what} that were charged beforehand: nothing was "
                "released"
            )
        if isinstance(self.account, AllocatedAccountant):
            self.account.enter(self._epoch(step))
        self._charged = step
        self.layout.charge(self.account, theta)
        self._write_down()
        if self.plan.secure:
            return self.layout.released(self.plan.mechanism.release(theta))
        if self._sampler is None:
            self._sampler = Sampler(self.plan.mechanism, theta.dtype, theta.device)
        noise, name = (Noise(), b"") if self.given_seed is None else (self.noise, self.noise.digest(theta))
        draws = noise.draws("noise", step, name, *self.layout.place, device=theta.device)
        released = self._sampler.draw(theta, draws)
        self.findings.require(~released.isnan().any(), not_finite)
        return self.layout.released(torch.where(finite, released, 0.0))

    def _finite(self, step: int, theta: Tensor) -> Tensor:
        """Returns whether the whole sum is finite, and of one sample.

        After an error or an interrupt that not all processes had at the same place, they may be at different
        steps or samples, of which an example can be in several shares.
        """
        bad = (~torch.isfinite(theta).all()).long()
        if distributed.world_size() == 1:
            return bad.logical_not()
        own = self.noise.at("together", step).word() >> 33  # 31 bits, of which sums are exact
        sums = distributed.summed(torch.stack((bad, bad.new_tensor(own))))
        together = sums[1] == own * distributed.world_size()
        self._require(
            together,
            f"the processes are not all at the same sample of step {step}, which was not released: end "
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
        if self._half_loaded:
            raise ValueError(self._refused)
        self.findings.settle()
        claim = self.account.guarantee(delta)
        return replace(claim.about(self.plan.units.name), assumptions=self.assumptions)

    def example_epsilons(self, delta: float, kind: EpsilonKind) -> Tensor:
        """Returns the epsilon of each unit, in the order of the dataset."""
        if self.examples is None:
            raise ValueError("example_epsilons needs track_examples=True to be given to the engine")
        if self.examples.steps != self.account.steps:
            raise ValueError(
                f"example_epsilons needs every release, got {self.examples.steps} of {self.account.steps}: "
                "others were made after a save or without track_examples, and never again"
            )
        return self.examples.epsilons(delta, kind)

    def planned_cost(self, steps: int) -> PrivacyLoss:
        """Returns what this number of further steps will cost, whatever the data.

        With random allocation, an epoch that has begun counts as a whole.
        """
        begun = self.steps % self.plan.batches.steps_an_epoch if self.plan.batches.is_allocated else 0
        return self.plan.cost(self.gradients.size, begun + steps)

    def charged_until(self, steps: int) -> tuple[int, int]:
        """Returns the number of charges before this number of further steps, and after them.

        Charges are releases, or draws of an epoch where examples are allocated: the one that the first of
        these steps is in comes with them.
        """
        if self.plan.batches.is_allocated:
            steps = self._epoch(self.steps + steps - 1)[1] - self._epoch(self.steps)[1] + 1
        done = self._charged_before(self.steps)
        return done, done + steps

    def charged_cost(self, count: int) -> PrivacyLoss:
        """Returns what this number of charges of ``charged_until`` costs, whatever the data."""
        each = self.plan.batches.steps_an_epoch if self.plan.batches.is_allocated else 1
        return self.plan.cost(self.gradients.size, count * each)

    def _charged_before(self, step: int) -> int:
        """How many releases, or epochs of random allocation, were charged before the one of a step."""
        if isinstance(self.account, AllocatedAccountant):
            return self.account.before(self._epoch(step))
        return self.account.steps

    def _epoch(self, step: int) -> tuple[int, int]:
        """The draw of an epoch that a step is in: by another key it is another draw."""
        return self.noise.at("draw").word(), step // self.plan.batches.steps_an_epoch

    def stop_at(self, most: int) -> None:
        """Refuses all beyond ``most``, as ``charged_until`` counts; a run that goes on keeps to it."""
        self.most = most
        self._write_down()

    # ------------------------------------------------------------------ the file

    def save(self, path: Path, others: dict[str, Any]) -> None:
        """Writes the run to a file. The first process writes; all wait for it."""
        if self._refused is not None:
            raise ValueError(self._refused)
        self.findings.settle()
        state, old, new = self._state(others), self.file, RunFile(path)
        first = distributed.rank() == 0
        if old is not None and old.path == new.path:
            if first:
                old.save(state)
        else:
            self.file = new
            try:
                if first:
                    new.begin(state, self._spent(), old)
            finally:
                if first and not new.is_taken:
                    self.file = old
            if first and old is not None:
                old.close()
        distributed.wait()

    def load(self, path: Path, others: dict[str, Any]) -> None:
        """Goes on with the run in a file. Every process reads it; the first one has it from now on."""
        file = RunFile(path)
        state = file.read()
        self._refuse_other_settings(path, state, others)
        self.findings = Findings()  # those of a past that is left
        self.close()
        # a release before all is restored would be written down nowhere
        self._refused = f"{path} could not be loaded: load it, or make another engine"
        if distributed.rank() == 0:
            file.lock()
        self.file = file
        distributed.wait()
        try:
            spent = file.spent(state)
            account = accountant_from_state_dict(spent["account"])
            self._half_loaded = True
            self._restore(state["objects"], others)
        except BaseException:
            self.close()
            raise
        # a given seed goes on to the bit where every release was a step that is still there
        goes_on = account.steps == state["steps"] and not self.account.steps
        fresh = int(distributed.text_from_first(str(secrets.randbits(256))))
        self.noise = run_noise(self.seed if goes_on else fresh, self.settings)
        self._charged = None
        self.run_id, self.steps, self.account = state["run"], state["steps"], account
        # what the run took for granted before it was saved still holds, such as a seed that was given
        self.assumptions = tuple(dict.fromkeys((*self.assumptions, *state["assumptions"])))
        self.most = spent["most"]
        self.begin()
        self._half_loaded, self._refused = False, None
        distributed.wait()

    def _refuse_other_settings(self, path: Path, state: State, others: dict[str, Any]) -> None:
        """Raises a ValueError that names what differs between the file and the run that is to go on."""
        for name in {**self.settings, **state["settings"]}:
            ours, theirs = self.settings.get(name), state["settings"].get(name)
            if theirs != ours:
                raise ValueError(f"{path} was written with {name} {theirs!r}, this engine has {ours!r}")
        saved, given = sorted(state["objects"]["others"]), sorted(others)
        if saved != given:
            raise ValueError(f"{path} was saved with {saved} beside the engine, load was given {given}")
        if self.most is not None and state["run"] != self.run_id:
            raise ValueError(f"a ledger was charged for another run than {path}: load before ledger.train")

    def close(self) -> None:
        """Lets go of the file, so that another run may have it: without it, nothing more is released."""
        if self.file is not None:
            path = self.file.path
            self._refused = self._refused or f"{path} was closed: load its run to go on, in this engine too"
            self.file.close()
            self.file = None
        self.findings.settle()

    def _write_down(self) -> None:
        """Returns when the file says what was spent, where there is one."""
        if self.file is not None and distributed.rank() == 0:
            self.file.charge(self._spent())

    def _spent(self) -> Spent:
        return {"run": self.run_id, "account": self.account.state_dict(), "most": self.most}

    def _state(self, others: dict[str, Any]) -> State:
        return {
            "run": self.run_id,
            "settings": self.settings,
            "steps": self.steps,
            "assumptions": list(self.assumptions),
            "charged": self.account.steps,
            "objects": {
                **self.layout.state(self.optimizer),
                "others": {name: dict(other.state_dict()) for name, other in others.items()},
                "examples": None if self.examples is None else self.examples.state_dict(),
                "fisher": {} if self.fisher is None else self.fisher.state_dict(),
                "random": {  # torch's global generators, which the user's own code may draw from
                    "cpu": torch.get_rng_state(),
                    "cuda": list(torch.cuda.get_rng_state_all()) if torch.cuda.is_available() else [],
                },
            },
        }

    def _restore(self, objects: dict[str, Any], others: dict[str, Any]) -> None:
        self.layout.load(objects, self.optimizer)
        for name, other in others.items():
            other.load_state_dict(objects["others"][name])
        if self.fisher is not None:
            self.fisher.load_state_dict(objects["fisher"])
        if self.examples is not None:
            known = objects.get("examples")
            own = ExampleAccountant(self.plan.mechanism)
            self.examples = own if known is None else ExampleAccountant.from_state_dict(known)
        random = objects["random"]
        torch.set_rng_state(random["cpu"])
        if random["cuda"] and len(random["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(random["cuda"])


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
                raise TypeError(
                    "in training the model takes tensors with one row for each example, got "
                    f"{type(value).__name__} as input {name}"
                )
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
        self._run, self._examples, self._options = run, Examples(loader), loading_options(loader)

    @property
    def batches_a_step(self) -> int:
        """The number of micro-batches that make one step."""
        return len(self._run.plan.batches.of_step(0, Noise(0)))

    def __len__(self) -> int:
        """Returns the number of micro-batches in a whole epoch."""
        return self._run.plan.batches.steps_an_epoch * self.batches_a_step

    def __iter__(self) -> Iterator[Any]:
        batches, (start, noise) = self._run.plan.batches, self._run.begin()
        epoch = batches.steps_an_epoch
        steps = range(start, (start // epoch + 1) * epoch)
        # workers ask for batches ahead of time
        asked, announced = tee(batch for step in steps for batch in batches.of_step(step, noise))
        loader = DataLoader(
            self.dataset,
            batch_sampler=(self._run.plan.units.rows(batch.indices, batch.step) for batch in asked),
            collate_fn=self._examples.collated,
            # of our own, so that iterating draws nothing from torch's global one; workers draw from its seed
            generator=torch.Generator().manual_seed(noise.torch_seed("loader", start, distributed.rank())),
            **self._options,
        )
        for given, batch in zip(loader, announced, strict=False):
            values = self._run.augmented(batch, given)
            self._run.announce(batch, values)
            yield values
            if self._run.noise is not noise:  # a file was loaded in the middle of the loop
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


def _targets(values: Any) -> Tensor:
    """Returns the targets of a batch, which is a pair of inputs and targets."""
    if not isinstance(values, list | tuple) or len(values) != 2 or not isinstance(values[1], Tensor):
        raise ValueError(
            f"with loss, the loader must give pairs (inputs, targets), got {type(values).__name__}"
        )
    return values[1]


def _version(value: Tensor | None) -> int:
    """Returns how often a tensor was written to."""
    return 0 if value is None else value._version


def _laid_out(value: Tensor, parameter: Tensor) -> Tensor:
    """Returns the value as the parameter lies in memory, without which GPU optimizers take each by itself."""
    same = value.dtype == parameter.dtype and value.stride() == parameter.stride()
    return value if same else torch.empty_like(parameter).copy_(value)

"""One run of an engine: a model in training, its steps, and what it takes to stop and go on."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.costs.cost import Cost
from ringfence.accounting.costs.finite_randomness import secure_guarantee
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.clipping import Clip
from ringfence.training.engine.auxiliary import AuxiliarySums
from ringfence.training.engine.ledger import Ledger, ReleasedBeforeError
from ringfence.training.engine.loop import Loop
from ringfence.training.engine.observer import Observer
from ringfence.training.engine.run_file import RunFile, RunState
from ringfence.training.engine.sampling import Batches, largest_batch
from ringfence.training.per_example.gradients import ExampleGradients


def run_noise(seed: int, settings: dict[str, Any], attempt: int | None = None) -> Noise:
    """Returns the noise of a run: it depends on the seed and on every setting that a release depends on.

    Engines that differ in one of these settings share no noise, and neither do attempts.

    >>> one, other = (run_noise(7, {"sampling": name}) for name in ("full", "poisson"))
    >>> one.at("noise", 0).word() == other.at("noise", 0).word()
    False
    """
    released = {name: value for name, value in settings.items() if name != "auxiliary_batches"}
    return Noise(seed).of("engine", repr(sorted(released.items())), *([attempt] if attempt else []))


class TrainingRun:
    """A model in training. ``PrivacyEngine.make_private`` begins it, and the private objects drive it.

    ``settings`` describes the run in plain data and must be the same in a file that is loaded. ``seed`` is
    the seed in use, and ``given_seed`` is the one that the user gave, if any. ``theta`` is the sum of clipped
    gradients that was released last, without its noise: it is private. While ``on_step`` is called, the model
    still has the parameters that these gradients were taken at.

    Guarantee: the model's parameters receive no gradient but the one that ``ledger`` released.
    """

    def __init__(
        self,
        gradients: ExampleGradients,
        optimizer: Optimizer,
        clip: Clip,
        batches: Batches,
        auxiliary: AuxiliarySums | None,
        ledger: Ledger,
        observer: Observer,
        *,
        settings: dict[str, Any],
        run_id: str,
        seed: int,
        given_seed: int | None,
        assumptions: tuple[str, ...],
    ) -> None:
        self.gradients, self.optimizer, self.clip = gradients, optimizer, clip
        self.batches, self.auxiliary = batches, auxiliary
        self.ledger, self.observer = ledger, observer
        self.settings, self.run_id = settings, run_id
        self.seed, self.given_seed = seed, given_seed
        self.assumptions = assumptions
        self.steps = 0
        self.theta: Tensor | None = None
        dtype = torch.float64 if ledger.secure else None
        callbacks, largest = (observer.note, self.release), largest_batch(settings["batch_size"])
        self.loop = Loop(gradients, clip, settings["loss_reduction"], *callbacks, largest, dtype)

    def begin(self) -> tuple[int, Noise]:
        """Begins an epoch, or goes on with one, at the step and with the noise that are returned."""
        self.loop.begin(self.ledger.noise, self.steps)
        self.observer.begin()
        return self.steps, self.ledger.noise

    def finish(self) -> bool:
        """``Loop.finish``; a step whose sample was released before, with another sum, gets a new sample."""
        try:
            return self.loop.finish()
        except ReleasedBeforeError as error:
            warnings.warn(f"{error}: the step is made and charged with a new one", stacklevel=3)
            self._go_on(replace(self.ledger, attempt=(self.ledger.attempt or 0) + 1))
            return False

    def release(self, theta: Tensor) -> None:
        """Releases the sum of a complete step and hands the result to the optimizer as the gradient."""
        theta = self.theta = distributed.summed(theta)
        noise, step = self.ledger.noise, self.steps
        self.batches.draw_ahead(step + 1, noise)
        batches = None if self.auxiliary is None else self.auxiliary.sums(noise, step)
        released = self.ledger.release(step, theta, batches) / self.batches.divisor
        self.steps += 1
        if self.observer.fisher is not None:
            self.observer.fisher.measure(
                self.gradients.model,
                self.ledger.mechanism,
                self.clip,
                theta,
                noise=noise,
                step=step,
                memory=self.gradients.memory_budget,
            )
        parameters = self.gradients.parameters
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None  # nothing but the released sum moves a parameter
        for name, value in self.gradients.split(released).items():
            parameters[name].grad = _laid_out(value, parameters[name])
        self.observer.report(self.steps, self.guarantee)

    def guarantee(self, delta: float) -> Guarantee:
        """What training has cost so far, and what may be said about it."""
        account, numbers = self.ledger.account, self.gradients.size * self.ledger.secure
        claim = secure_guarantee(account.guarantee, account.steps * numbers, delta)
        return replace(claim, assumptions=self.assumptions)

    def planned_cost(self, steps: int) -> Cost:
        """What so many further steps will cost, whatever the data."""
        account, numbers = self.ledger.account.fresh(), self.gradients.size
        account.step_of_any(torch.zeros(()).expand(numbers), count=steps)
        spent = 0.0 if self.auxiliary is None else steps * getattr(account, "failure_probability", 0.0)
        return account.cost() + Cost(spent=spent, numbers=steps * numbers if self.ledger.secure else 0)

    def steps_until(self, steps: int) -> int:
        """How many releases the account has after so many further steps; repeated ones are not charged."""
        repeated = {step for step, _ in self.ledger.known if step >= self.steps and not self.ledger.secure}
        return self.ledger.account.steps + max(0, steps - len(repeated))

    def stop_at(self, most: int) -> None:
        """Refuses every release that brings the account above so many; a run that goes on keeps to it."""
        self.ledger.most = most
        if self.ledger.journal is not None:
            self.ledger.journal.append({"most": most})

    def save(self, path: Path, others: dict[str, Any]) -> None:
        """Writes the run to a file. The first process writes; all wait for it."""
        if distributed.rank() == 0:
            self.ledger.journal = RunFile(path).save(self._state(others), self.ledger.journal)
        distributed.wait()

    def load(self, path: Path, others: dict[str, Any]) -> None:
        """Goes on with the run in a file. Every process reads it; the first one opens the journal."""
        file = RunFile(path)
        state = file.read()
        file.refuse_other_settings(state, self.settings, self.given_seed)
        saved, given = sorted(state.objects["others"]), sorted(others)
        if saved != given:
            raise ValueError(f"{path} was saved with {saved} beside the engine, load was given {given}")
        if self.ledger.most is not None and state.run_id != self.run_id:
            raise ValueError(f"a ledger was charged for another run than {path}: load before ledger.train")
        self.ledger.close()
        # a release before all is restored would be written down nowhere
        self.ledger.refused = f"{path} could not be loaded: load it, or make another engine"
        if distributed.rank() == 0:
            self.ledger.journal = file.opened()
        distributed.wait()
        try:
            account, known = file.released(state)
            self._restore(state.objects, others)
        except BaseException:
            self.ledger.close()
            raise
        self.run_id, self.steps = state.run_id, state.steps
        # what the run took for granted before it was saved still holds, such as a seed that was given
        self.assumptions = tuple(dict.fromkeys((*self.assumptions, *state.assumptions)))
        attempt: int | None = (self.ledger.attempt or 0) + 1
        if self.ledger.secure:  # a secure batch that is released twice would not be two samples
            known = {}
        else:
            self.seed, attempt = state.seed, state.objects.get("attempt", self.ledger.attempt)
        self.ledger.most = state.objects.get("most")
        self._go_on(replace(self.ledger, account=account, known=known, attempt=attempt, refused=None))
        distributed.wait()

    def _go_on(self, ledger: Ledger) -> None:
        self.ledger = replace(ledger, noise=run_noise(self.seed, self.settings, ledger.attempt))
        self.begin()

    def _state(self, others: dict[str, Any]) -> RunState:
        fisher, known = self.observer.fisher, self.ledger.known
        return RunState(
            run_id=self.run_id,
            settings=self.settings,
            steps=self.steps,
            assumptions=self.assumptions,
            seed=0 if self.ledger.secure else self.seed,
            account=self.ledger.account.state_dict(),
            objects={
                "model": dict(self.gradients.model.state_dict()),
                "optimizer": self.optimizer.state_dict(),
                "others": {name: other.state_dict() for name, other in others.items()},
                "fisher": {} if fisher is None else fisher.state_dict(),
                "random": _random_states(),
                "known": [(*place, known[place]) for place in known if place[0] >= self.steps],
                "attempt": self.ledger.attempt,
                "most": self.ledger.most,
            },
        )

    def _restore(self, objects: dict[str, Any], others: dict[str, Any]) -> None:
        self.gradients.model.load_state_dict(objects["model"])
        self.optimizer.load_state_dict(objects["optimizer"])
        for name, other in others.items():
            other.load_state_dict(objects["others"][name])
        if self.observer.fisher is not None:
            self.observer.fisher.load_state_dict(objects["fisher"])
        _set_random_states(objects["random"])


def _random_states() -> dict[str, Any]:
    """The states of torch's global generators, which the user's own code may draw from."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": list(cuda)}


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    if states["cuda"] and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


def _laid_out(value: Tensor, parameter: Tensor) -> Tensor:
    """The value as the parameter lies in memory: otherwise optimizers on a GPU go one parameter at a time.

    >>> _laid_out(torch.ones(3, 2), torch.ones(2, 3).T).stride()
    (1, 3)
    """
    same = value.dtype == parameter.dtype and value.stride() == parameter.stride()
    return value if same else torch.empty_like(parameter).copy_(value)

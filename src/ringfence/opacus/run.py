"""An Opacus run that is watched: what it cost, as a whole and each example, without changing a bit of it."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opacus import PrivacyEngine as OpacusEngine
from ringfence import checks
from ringfence.accounting.claim.guarantee import Guarantee
from ringfence.accounting.fisher.loss import InformationNorm
from ringfence.accounting.sampled.examples import SampledExampleAccountant
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.numerics.lengths import row_lengths
from ringfence.opacus.accountant import History, RingfenceAccountant
from ringfence.opacus.loader import WatchedLoader
from ringfence.opacus.parts import Parts, checked_parts
from ringfence.opacus.twin import Twin
from ringfence.training.clipping import Norm
from ringfence.training.engine.model_checks import refuse_random_layers
from ringfence.training.per_example.fisher_tracking import FisherTracking
from ringfence.training.per_example.jacobian_operator import Loss

_LONGER = 1 + 2.0**-18  # Opacus computes lengths and factors in float32


def watch(
    engine: OpacusEngine,
    model: object,
    optimizer: object,
    loader: object,
    *,
    loss: Loss | None = None,
    lengths_every: int = 0,
    fisher_every: int = 0,
    fisher_kind: InformationNorm = "spectral",
) -> "OpacusRun":
    """Watches the three objects that ``engine.make_private`` returned.

    What ``engine`` released before is charged, to every example as if its gradient had been at the clip.
    Train as before, and take the batches from ``run.loader``. The lengths of the gradients in each batch are
    noted. With ``lengths_every`` k, those of all examples are measured in every k-th step, which takes a pass
    over the data: see ``SampledExampleAccountant`` for why this makes the numbers of single examples smaller.
    With ``fisher_every`` k, the Fisher information loss of the examples in the batch is measured in every
    k-th step. Both need ``loss``, the loss as a function of outputs and targets.

    Guarantee: the parameters, the optimizer, the batches and torch's random numbers are the same to the bit
    with and without watching.

    >>> import opacus, torch, warnings; warnings.simplefilter("ignore")
    >>> data = torch.utils.data.TensorDataset(torch.randn(64, 3), torch.randint(0, 2, (64,)))
    >>> module, engine = torch.nn.Linear(3, 2), opacus.PrivacyEngine()
    >>> model, optimizer, loader = engine.make_private(
    ...     module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
    ...     data_loader=torch.utils.data.DataLoader(data, batch_size=16),
    ...     noise_multiplier=1.0, max_grad_norm=1.0)
    >>> run = watch(engine, model, optimizer, loader)
    >>> for inputs, labels in run.loader:
    ...     optimizer.zero_grad()
    ...     torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    ...     optimizer.step()
    >>> run.steps, len(run.example_epsilons(delta=1e-3))
    (4, 64)
    """
    parts = checked_parts(model, optimizer, loader)
    return OpacusRun(
        parts,
        engine.accountant.history,
        loss=loss,
        lengths_every=lengths_every,
        fisher_every=fisher_every,
        fisher_kind=fisher_kind,
    )


class OpacusRun:
    """An Opacus run that is watched; ``watch`` makes it, and ``close`` lets go of the optimizer.

    Guarantee: ``guarantee`` is about Poisson samples at Opacus' sampling rate, with sigma
    noise_multiplier times max_grad_norm as they are at each step, and takes the sum that Opacus computes to
    have sensitivity max_grad_norm, as Opacus' own accountants do: what float32 rounds there is not charged.
    Numbers of single examples are those of ``SampledExampleAccountant``.

    >>> import opacus, torch, warnings; warnings.simplefilter("ignore")
    >>> engine, module = opacus.PrivacyEngine(), torch.nn.Linear(3, 1)
    >>> model, optimizer, loader = engine.make_private(
    ...     module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
    ...     data_loader=torch.utils.data.DataLoader(torch.ones(8, 3), batch_size=8),
    ...     noise_multiplier=2.0, max_grad_norm=1.0)
    >>> run = watch(engine, model, optimizer, loader)
    >>> for inputs in run.loader:
    ...     model(inputs).mean().backward()
    ...     optimizer.step()
    >>> round(run.guarantee(delta=1e-3).mu, 3), len(run.example_epsilons(delta=1e-3))
    (0.5, 8)
    """

    def __init__(
        self,
        parts: Parts,
        history: History,
        *,
        loss: Loss | None,
        lengths_every: int,
        fisher_every: int,
        fisher_kind: InformationNorm,
    ) -> None:
        for name, value in {"fisher_every": fisher_every, "lengths_every": lengths_every}.items():
            if checks.count(name, value, at_least=0) and loss is None:
                raise ValueError(f"{name} needs loss, a function of outputs and targets, got None")
        self._parts, self._lengths_every = parts, lengths_every
        self.random_layers: str | None = None  # why nothing is said of single examples
        try:
            refuse_random_layers(parts.module)
        except ValueError as error:
            self.random_layers = str(error)
        if self.random_layers is not None and (lengths_every or fisher_every):
            raise ValueError(self.random_layers)
        self.loader = WatchedLoader(parts.loader, parts.sampler)
        count = parts.sampler.num_samples
        self.account = RingfenceAccountant()
        self.examples = SampledExampleAccountant(count, parts.sampler.sample_rate)
        for noise_multiplier, rate, steps in history:
            self.account.history.append((noise_multiplier, rate, steps))
            nobody = torch.zeros(0, dtype=torch.int64)
            release = {"sigma": noise_multiplier, "longest": 1.0, "sampling_rate": rate}
            self.examples.step(torch.zeros(0), nobody, **release, count=steps)
        self.fisher: FisherTracking | None = None
        if loss is not None and fisher_every:
            checks.one_of("fisher_kind", fisher_kind, ("spectral", "trace"))
            self.fisher = FisherTracking(loss, count, fisher_every, fisher_kind)
        self._twin = None if loss is None else Twin(parts, loss)
        self._lengths: list[Tensor] = []  # of the gradients of this step so far
        self._attach()

    @property
    def steps(self) -> int:
        """How many steps were made, before and since they are watched."""
        return len(self.account)

    def guarantee(self, delta: float) -> Guarantee:
        """What may be said about the run as a whole."""
        claim, left_out = self.account.guarantee(delta), self.loader.remembering.left_out
        batches = (
            f"Batches that made no step: {left_out}. Every sentence above holds only if they were not "
            "left out because of what was in them, such as no example at all."
        )
        return replace(claim, assumptions=(*claim.assumptions, batches)) if left_out else claim

    def example_epsilons(self, delta: float, *, estimated: bool = False) -> Tensor:
        """Each example's own epsilon, in the order of the dataset; ``statement`` says what it promises."""
        if self.random_layers is not None:
            raise ValueError(
                f"{self.random_layers.split(':')[0]}: an example's gradient does not depend on that example "
                "and on earlier releases alone, and epsilons of single examples do not hold"
            )
        return self.examples.epsilons(delta, estimated=estimated)

    def fisher_information_loss(self) -> Tensor:
        """Eta of each example over the measured steps, from above; NaN where it was never measured."""
        if self.fisher is None:
            raise ValueError("fisher_information_loss needs fisher_every and loss to be given to watch")
        return self.fisher.fisher_information_loss()

    def save(self, path: str | PathLike[str], *, delta: float, publishable: bool = False) -> Path:
        """Writes the run as one HTML page; ``publishable`` leaves out what depends on the data."""
        from ringfence.opacus.page import run_report
        from ringfence.report.page.page import write_report

        return write_report(run_report(self, delta), Path(path), publishable)

    def close(self) -> None:
        """Lets go of the optimizer, which then is as Opacus made it."""
        optimizer = self._parts.optimizer
        vars(optimizer).pop(self._method, None)
        optimizer.attach_step_hook(self._their_hook)

    @property
    def settings(self) -> dict[str, float]:
        """What Opacus was told."""
        optimizer = self._parts.optimizer
        return {
            "noise_multiplier": optimizer.noise_multiplier,
            "max_grad_norm": optimizer.max_grad_norm,
            "sample_rate": self._parts.sampler.sample_rate,
            "examples": self._parts.sampler.num_samples,
        }

    def _attach(self) -> None:
        """Listens to the optimizer: Opacus has one hook for whole steps and none for their parts."""
        optimizer = self._parts.optimizer
        self._method = "clip_and_accumulate" if self._parts.ghost is None else "accumulate"
        theirs: Callable[[], None] = getattr(optimizer, self._method)
        self._their_hook: Callable[[Any], None] | None = optimizer.step_hook

        def part() -> None:
            self._note_part()
            theirs()

        def step(of: Any) -> None:
            if self._their_hook is not None:
                self._their_hook(of)
            self._note_step()

        setattr(optimizer, self._method, part)
        optimizer.attach_step_hook(step)

    def _note_part(self) -> None:
        """Notes the lengths of the clipped gradients that Opacus is about to add up."""
        optimizer, ghost = self._parts.optimizer, self._parts.ghost
        if ghost is None:
            squares = [row_lengths(rows.flatten(1)).square() for rows in optimizer.grad_samples]
            lengths = torch.stack([square.cpu() for square in squares]).sum(dim=0).sqrt()
        else:
            lengths = ghost.per_sample_gradient_norms.detach().double().cpu()
        self._lengths.append(_clipped(lengths, optimizer.max_grad_norm))

    def _note_step(self) -> None:
        """Charges a step that Opacus has added noise to, before the parameters move."""
        optimizer, rate = self._parts.optimizer, self._parts.sampler.sample_rate
        if hasattr(optimizer, "_adjusted_noise_multiplier") or optimizer.accumulated_iterations != 1:
            raise ValueError("adaptive clipping and accumulated batches are not accounted for")
        noise, longest = float(optimizer.noise_multiplier), float(optimizer.max_grad_norm)
        lengths, self._lengths = torch.cat(self._lengths), []
        indices, number = self.loader.taken(len(lengths)), self.steps
        self.account.step(noise_multiplier=noise, sample_rate=rate)
        chosen: Tensor | None = torch.tensor(indices, dtype=torch.int64)
        if self._twin is not None and self._lengths_every and number % self._lengths_every == 0:
            lengths, chosen = _clipped(self._twin.lengths(), longest), None
        self.examples.step(lengths, chosen, sigma=noise * longest, longest=longest)
        if self._twin is not None and self.fisher is not None and self.fisher.wants(number):
            release = (Gaussian(noise * longest), Norm(longest))
            self._twin.measure(self.fisher, *release, indices, self.loader.batch, step=number)


def _clipped(lengths: Tensor, longest: float) -> Tensor:
    """The lengths after Opacus' clip, C / (length + 1e-6), from above and at most C."""
    factors = (longest / (lengths + 1e-6)).clamp(max=1.0)
    return (factors * lengths * _LONGER).clamp(max=longest)

"""Opacus runs: an accountant for them, and conversion to this package's engine."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.utils.data import DataLoader

try:
    from opacus import PrivacyEngine as OpacusEngine
    from opacus.accountants import IAccountant, register_accountant
    from opacus.data_loader import CollateFnWithEmpty
    from opacus.grad_sample.gsm_base import AbstractGradSampleHooks
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
except ModuleNotFoundError:
    raise ModuleNotFoundError("ringfence.opacus needs opacus: pip install 'ringfence[opacus]'") from None

from ringfence import checks
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.accounting.subsampling import SampledAccountant
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.training import assumptions
from ringfence.training.clipping import Norm
from ringfence.training.engine.batches import loading_options
from ringfence.training.engine.engine import PrivacyEngine, Private

__all__ = ["RingfenceAccountant", "convert"]

SIZE = (
    "The number of records counts as public: Opacus divides what it releases by a batch size that it "
    "computes from that number."
)
STEPS = (
    "A step was made for every batch that was drawn, an empty one included: none was left out because of "
    "what was in it."
)


class RingfenceAccountant(IAccountant):  # type: ignore[misc]
    """For ``opacus.PrivacyEngine(accountant="ringfence")``; importing ``ringfence.opacus`` registers it.

    Guarantee: ``get_epsilon`` is that of Poisson-sampled Gaussian releases, by dp-accounting's privacy loss
    distributions, for every dataset and every record added or removed. It is as pessimistic as they are and
    holds for the history of steps that Opacus reports, with noise_multiplier times max_grad_norm as sigma.

    >>> account = RingfenceAccountant()
    >>> for _ in range(100):
    ...     account.step(noise_multiplier=1.0, sample_rate=0.01)
    >>> round(account.get_epsilon(delta=1e-5), 3), len(account)
    (0.718, 100)
    """

    def __init__(self) -> None:
        super().__init__()

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Adds one release to the history."""
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def get_epsilon(self, delta: float, *args: object, **kwargs: object) -> float:
        """Returns the epsilon of (epsilon, delta)-DP of everything released so far."""
        return self.guarantee(delta).epsilon

    def guarantee(self, delta: float) -> Guarantee:
        """Returns what may be said about everything released so far, in the words of this package."""
        account = SampledAccountant(Gaussian(1.0), Sensitivity(norm=1.0), 1.0)
        _charge(account, self.history)
        return replace(account.guarantee(delta), assumptions=(SIZE, STEPS, assumptions.FLOATS))

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Returns the name by which Opacus finds this accountant."""
        return "ringfence"


register_accountant(RingfenceAccountant.mechanism(), RingfenceAccountant, force=True)


def _charge(account: SampledAccountant, history: Iterable[tuple[float, float, int]]) -> None:
    """Charges what Opacus released: noise multiplier, sampling rate and steps, in units of max_grad_norm."""
    for noise_multiplier, rate, steps in history:
        account.step_worst_case(
            torch.zeros(1),
            mechanism=Gaussian(noise_multiplier),
            sensitivity=Sensitivity(norm=1.0),
            sampling_rate=rate,
            count=steps,
        )


def convert(
    engine: OpacusEngine, model: Any, optimizer: Any, loader: Any, **options: Any
) -> tuple[PrivacyEngine, *Private]:
    """Converts an Opacus run to this package's engine, with three private objects for the same training loop.

    ``model``, ``optimizer`` and ``loader`` are what ``engine.make_private`` returned; the hooks of Opacus are
    taken off the model. ``options`` go to ``ringfence.PrivacyEngine``, such as ``seed`` and ``fisher_every``.
    Where ``engine`` is in secure_mode, ``loss`` must be among them: the loss as a function of outputs and
    targets, because the rounding of a mean would tell how many examples a batch has.

    Guarantee: the clip is ``Norm(max_grad_norm)``, the law ``Gaussian(noise_multiplier * max_grad_norm)``;
    the sampling rate and the number by which sums are divided are those of Opacus. What ``engine`` released
    so far is charged first. The noise and the batches are new draws.

    >>> import torch, warnings; warnings.simplefilter("ignore")
    >>> data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randint(0, 2, (100,)))
    >>> module, theirs = torch.nn.Linear(3, 2), OpacusEngine()
    >>> private = theirs.make_private(
    ...     module=module, optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
    ...     data_loader=DataLoader(data, batch_size=16), noise_multiplier=1.1, max_grad_norm=2.0)
    >>> engine, model, optimizer, loader = convert(theirs, *private)
    >>> engine.mechanism, engine.clip, len(loader) == len(private[2])
    (Gaussian(sigma=2.2), Norm(2.0), True)
    """
    _refuse_parts(model, optimizer, loader)
    module, clip, collate = model._module, float(optimizer.max_grad_norm), loader.collate_fn
    if isinstance(collate, CollateFnWithEmpty):
        collate = collate.wrapped_collator_fn
    batch_size = int(optimizer.expected_batch_size)
    ours = PrivacyEngine(
        Gaussian(float(optimizer.noise_multiplier) * clip),
        Norm(clip),
        public_size=float(batch_size * round(1 / loader.batch_sampler.sample_rate)),
        secure=engine.secure_mode,
        **options,
    )
    model.cleanup()
    for parameter in module.parameters():
        vars(parameter).pop("summed_grad", None)
        parameter.grad = None
    private = ours.make_private(
        module,
        optimizer.original_optimizer,
        DataLoader(loader.dataset, batch_size=batch_size, collate_fn=collate, **loading_options(loader)),
    )
    ours.run.releases.assumptions = (assumptions.SIZE, *ours.run.releases.assumptions)
    assert isinstance(ours.account, SampledAccountant)
    _charge(ours.account, engine.accountant.history)
    return ours, *private


def _refuse_parts(model: Any, optimizer: Any, loader: Any) -> None:
    """Raises an error that names what is not of a run with flat clipping, Poisson samples and one process."""
    for name, value, kind in (
        ("model", model, AbstractGradSampleHooks),
        ("optimizer", optimizer, DPOptimizer),
        ("loader", loader, DataLoader),
    ):
        if not isinstance(value, kind):
            raise TypeError(
                f"{name} must be what make_private of Opacus returned, got {type(value).__name__}"
            )
    if type(optimizer) not in (DPOptimizer, DPOptimizerFastGradientClipping):
        raise ValueError(
            f"optimizer must clip each gradient as a whole, in one process, got {type(optimizer).__name__}"
        )
    if not isinstance(loader.batch_sampler, UniformWithReplacementSampler):
        raise ValueError(
            f"loader must draw Poisson samples, got {type(loader).__name__}: use poisson_sampling=True"
        )
    checks.number("noise_multiplier", optimizer.noise_multiplier, checks.positive)
    checks.number("max_grad_norm", optimizer.max_grad_norm, checks.positive)
    if optimizer.loss_reduction != "mean":
        raise ValueError(
            f"loss_reduction must be 'mean', got {optimizer.loss_reduction!r}: the engine divides sums"
        )

"""The way over from Opacus: the same model, clip, noise and batches with the engine of this package."""

from typing import Any

from torch.utils.data import DataLoader

from opacus import PrivacyEngine as OpacusEngine
from ringfence.accounting.sampled.accountant import SampledAccountant
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.opacus.accountant import charge
from ringfence.opacus.parts import checked_parts
from ringfence.training.assumptions import SIZE
from ringfence.training.clipping import Norm
from ringfence.training.engine.engine import PrivacyEngine, Private


def convert(
    engine: OpacusEngine, model: object, optimizer: object, loader: object, **options: Any
) -> tuple[PrivacyEngine, *Private]:
    """The engine of this package in place of Opacus', and its three objects for the same training loop.

    ``model``, ``optimizer`` and ``loader`` are what ``engine.make_private`` returned; the hooks of Opacus are
    taken off the model. ``options`` go to ``ringfence.PrivacyEngine``, such as ``seed`` and ``fisher_every``.

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
    parts = checked_parts(model, optimizer, loader)
    theirs, rate = parts.optimizer, parts.sampler.sample_rate
    if theirs.loss_reduction != "mean":
        raise ValueError(
            f"loss_reduction must be 'mean', got {theirs.loss_reduction!r}: the engine divides what it "
            "releases by the batch size"
        )
    clip = float(theirs.max_grad_norm)
    law = Gaussian(float(theirs.noise_multiplier) * clip)
    model.cleanup()  # type: ignore[attr-defined]
    for parameter in parts.module.parameters():
        vars(parameter).pop("summed_grad", None)
        parameter.grad = None
    batch_size = int(theirs.expected_batch_size)
    ours = PrivacyEngine(
        law, Norm(clip), public_size=float(batch_size * round(1 / rate)), secure=engine.secure_mode, **options
    )
    private = ours.make_private(
        parts.module,
        theirs.original_optimizer,
        DataLoader(
            parts.loader.dataset,
            batch_size=batch_size,
            collate_fn=parts.collate,
            num_workers=parts.loader.num_workers,
            pin_memory=parts.loader.pin_memory,
            timeout=parts.loader.timeout,
            worker_init_fn=parts.loader.worker_init_fn,
            prefetch_factor=parts.loader.prefetch_factor,
        ),
    )
    ours.run.assumptions = (SIZE, *ours.run.assumptions)
    account = ours.account
    assert isinstance(account, SampledAccountant)
    for noise_multiplier, sampling_rate, steps in engine.accountant.history:
        charge(account, noise_multiplier, sampling_rate, steps)
    return ours, *private

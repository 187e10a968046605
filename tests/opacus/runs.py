"""Small Opacus runs that the tests of this room share."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

opacus = pytest.importorskip("opacus")

EXAMPLES = 40
SEED = 7  # of the batches; noise comes from torch's global generator


def examples() -> TensorDataset:
    generator = torch.Generator().manual_seed(5)
    # gradients of very different lengths, on both sides of the clip
    sizes = torch.logspace(-2, 1, EXAMPLES).unsqueeze(1)
    return TensorDataset(
        sizes * torch.randn(EXAMPLES, 3, generator=generator),
        torch.randint(0, 2, (EXAMPLES,), generator=generator),
    )


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))


def made_private(
    module: nn.Module, batch_size: int = 10, learning_rate: float = 0.5, **options: Any
) -> tuple[Any, ...]:
    """An Opacus engine and what it returns."""
    options = {"noise_multiplier": 0.8, "max_grad_norm": 0.5, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about random numbers that are not secure
        engine = opacus.PrivacyEngine(accountant="rdp")
        private = engine.make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=learning_rate),
            data_loader=DataLoader(
                examples(), batch_size=batch_size, generator=torch.Generator().manual_seed(SEED)
            ),
            criterion=nn.CrossEntropyLoss(),
            **options,
        )
    return engine, *private


def trained(loader: Any, model: nn.Module, optimizer: Any, criterion: Any = None, epochs: int = 2) -> None:
    criterion = nn.CrossEntropyLoss() if criterion is None else criterion
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about hooks on a module whose inputs need no gradient
        for _ in range(epochs):
            for inputs, labels in loader:
                optimizer.zero_grad()
                criterion(model(inputs), labels).backward()
                optimizer.step()


def gradient_lengths(module: nn.Module) -> Tensor:
    """The lengths of all examples' gradients, one example after the other."""
    lengths = []
    for inputs, label in examples():
        loss = nn.functional.cross_entropy(module(inputs.unsqueeze(0)), label.unsqueeze(0))
        gradients = torch.autograd.grad(loss, list(module.parameters()))
        lengths.append(torch.cat([gradient.flatten() for gradient in gradients]).double().norm())
    return torch.stack(lengths)


def times_drawn(epochs: int = 2, batches: int = 4) -> Tensor:
    """How often each example is in a batch: torch draws here what the loader of ``made_private`` draws."""
    generator = torch.Generator().manual_seed(SEED)
    drawn = torch.zeros(EXAMPLES, dtype=torch.int64)
    for _ in range(epochs):
        torch.empty((), dtype=torch.int64).random_(generator=generator)  # the seed of the loader's workers
        for _ in range(batches):
            drawn += torch.rand(EXAMPLES, generator=generator) < 1 / batches
    return drawn

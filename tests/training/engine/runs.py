"""Small runs of the engine for the tests: one model, one dataset, any settings."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf

INPUTS = torch.randn(60, 1, 4, 4, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS.mean(dim=(1, 2, 3)) > 0).long()
LAW = rf.TruncatedGaussian(0.5, 10.0)
CLIP = rf.Clamp(0.05)


def network(*extra: nn.Module) -> nn.Sequential:
    """The same weights every time."""
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), *extra, nn.Linear(18, 2))


class Run:
    """An engine with its three private objects, and the loop everyone writes."""

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: Any = lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9),
        inputs: Tensor = INPUTS,
        labels: Tensor = LABELS,
        batch_size: int = 16,
        workers: int = 0,
        **settings: Any,
    ) -> None:
        self.original = network() if model is None else model
        own = {"loss": nn.functional.cross_entropy} if settings.get("secure") else {}
        settings = {**own, "mechanism": LAW, "clip": CLIP, "seed": 3, "sampling": "full", **settings}
        self.engine = rf.PrivacyEngine(**settings)
        self.model, self.optimizer, self.loader = self.engine.make_private(
            self.original,
            optimizer(self.original.parameters()),
            DataLoader(TensorDataset(inputs, labels), batch_size, shuffle=True, num_workers=workers),
        )

    def train(self, steps: int) -> "Run":
        """Until there were so many releases."""
        while self.engine.steps < steps:
            for inputs, labels in self.loader:
                self.batch(inputs, labels)
                if self.engine.steps == steps:
                    break
        return self

    def batch(self, inputs: Tensor, labels: Tensor, reduction: str = "mean") -> None:
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(inputs), labels, reduction=reduction).backward()
        self.optimizer.step()

    def samples(self) -> list[tuple[int, tuple[int, ...]]]:
        """Number and examples of every release from now on, as far as each step is one batch."""
        released: list[tuple[int, tuple[int, ...]]] = []
        run, batches = self.engine.run, []
        announce, complete = run.announce, run._complete

        def announced(batch: Any, values: Any) -> None:
            batches.append((batch.number, batch.indices))
            announce(batch, values)

        def completed(step: Any) -> None:
            complete(step)
            released.append(batches[-1])

        run.announce, run._complete = announced, completed  # type: ignore[method-assign]
        return released

    def weights(self) -> Tensor:
        return torch.cat([p.detach().reshape(-1) for p in self.original.parameters()])


def clipped_sum(model: nn.Module, inputs: Tensor, labels: Tensor, clip: rf.Clip) -> Tensor:
    """By plain autograd, one example after the other."""
    trained, total = [p for p in model.parameters() if p.requires_grad], 0
    for x, y in zip(inputs, labels, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        each = torch.autograd.grad(loss, trained)
        total = total + clip(torch.cat([g.reshape(-1) for g in each])[None])[0]
    return total


def charged(sensitivity: Any, batch_size: int = 16) -> rf.Sensitivity:
    """The sensitivity of a sum under a mean loss in float32: four roundings, in either of two neighbours."""
    return rf.Sensitivity.of(sensitivity).times(1 + 8 * (2 * batch_size + 40) * 2.0**-24)


def refused(message: str, error: type[Exception] = ValueError) -> Any:
    """Expects an error whose message matches."""
    return pytest.raises(error, match=message)

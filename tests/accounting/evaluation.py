"""Sums for which every coordinate is evaluated and no table is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting import per_instance
from ringfence.accounting.divergence_sums import pushes
from ringfence.accounting.examples import ExampleSums
from ringfence.accounting.per_instance import PerInstanceRdp
from ringfence.numerics.rounding import ROUNDING


@contextmanager
def evaluated() -> Iterator[None]:
    """As if the coordinates of a release had too many different settings for tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(per_instance, "split_by_setting", lambda *_: None)
        yield


def exact_rdp(*release: Any) -> PerInstanceRdp:
    with evaluated():
        return rf.per_instance_rdp(*release)


class EvaluatedSums(ExampleSums):
    """Sums of single examples, every entry evaluated at every order."""

    def _bounds(self, block: Tensor, *_: Tensor) -> Tensor:
        (add, remove), (add_backward, remove_backward) = pushes(self.theta.to(block.device), block)
        variants = (remove, remove_backward, add, add_backward)
        columns = [
            torch.stack([self.law.renyi_divergence(*pair, alpha).sum(dim=1) for pair in variants])
            for alpha in self.orders.tolist()
        ]
        return torch.stack(columns, dim=2).cpu() * (1 + ROUNDING)

"""TF32 is refused where it would be used, and nowhere else."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ringfence.numerics.precision import refuse_tf32

ON_A_GPU: Any = SimpleNamespace(is_cuda=True, dtype=torch.float32)


def test_convolutions_are_refused_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    refuse_tf32(torch.ones(2), convolutions=True)
    refuse_tf32(SimpleNamespace(is_cuda=True, dtype=torch.float64), convolutions=True)  # type: ignore[arg-type]
    refuse_tf32(ON_A_GPU)
    with pytest.raises(ValueError, match=r"torch\.backends\.cudnn\.allow_tf32 must be False in float32"):
        refuse_tf32(ON_A_GPU, convolutions=True)


def test_matrix_products_are_refused() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        refuse_tf32(torch.ones(2))
        with pytest.raises(ValueError, match=r"torch\.backends\.cuda\.matmul\.allow_tf32 must be False"):
            refuse_tf32(ON_A_GPU)
    finally:
        torch.set_float32_matmul_precision(before)

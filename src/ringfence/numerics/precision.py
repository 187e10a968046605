"""Refuses products of float32 numbers that a GPU would compute with 10 bits."""

import torch
from torch import Tensor


def refuse_tf32(values: Tensor, *, convolutions: bool = False) -> None:
    """Raises an error where torch may multiply matrices of float32 numbers as TF32, or convolve them so.

    >>> refuse_tf32(torch.ones(2))
    """
    if values.is_cuda and values.dtype == torch.float32:
        settings = {"torch.backends.cuda.matmul.allow_tf32": torch.backends.cuda.matmul.allow_tf32}
        if convolutions:
            settings["torch.backends.cudnn.allow_tf32"] = torch.backends.cudnn.allow_tf32
        for name, allowed in settings.items():
            if allowed:
                raise ValueError(
                    f"{name} must be False in float32: its products have 3 digits, got {allowed}"
                )

"""The clipped outer sum on a CPU: one pass over the features, sums kept in cache."""

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROWS = 1024  # summed in float32 before they are added in float64


def outer_sum_cpu(residuals: Tensor, features: Tensor, clip: float) -> Tensor:
    """float32 sums of 1,024 examples, added in float64 and rounded once.

    The order of the additions does not depend on the number of threads, so neither does the result.
    """
    width, classes = features.shape[1], residuals.shape[1]
    total = np.zeros((classes, width), dtype=np.float64)
    tile = -(-width // (numba.get_num_threads() * 16)) * 16  # columns a thread takes
    _add(residuals.contiguous().numpy(), features.contiguous().numpy(), float(np.float32(clip)), tile, total)
    return torch.from_numpy(total).to(torch.float32)


# The compiler may fuse and reorder for the sake of vectors, within a run of four examples.
@numba.njit(parallel=True, fastmath={"contract", "reassoc", "nsz"}, cache=True)
def _add(
    residuals: NDArray[np.float32],
    features: NDArray[np.float32],
    clip: float,
    tile: int,
    total: NDArray[np.float64],
) -> None:
    count, classes = residuals.shape
    width = features.shape[1]
    for part in numba.prange((width + tile - 1) // tile):
        left, right = part * tile, min(width, (part + 1) * tile)
        sums = np.zeros((classes, right - left), dtype=np.float32)
        for start in range(0, count, _ROWS):
            stop = min(count, start + _ROWS)
            whole = stop - (stop - start) % 4
            sums[:] = 0
            for i in range(start, whole, 4):
                x0, x1 = features[i, left:right], features[i + 1, left:right]
                x2, x3 = features[i + 2, left:right], features[i + 3, left:right]
                for k in range(classes):
                    r0, r1, r2, r3 = (
                        residuals[i, k],
                        residuals[i + 1, k],
                        residuals[i + 2, k],
                        residuals[i + 3, k],
                    )
                    row = sums[k]
                    for j in range(right - left):
                        row[j] += (min(max(r0 * x0[j], -clip), clip) + min(max(r1 * x1[j], -clip), clip)) + (
                            min(max(r2 * x2[j], -clip), clip) + min(max(r3 * x3[j], -clip), clip)
                        )
            for i in range(whole, stop):
                for k in range(classes):
                    for j in range(right - left):
                        sums[k, j] += min(max(residuals[i, k] * features[i, left + j], -clip), clip)
            for k in range(classes):
                for j in range(right - left):
                    total[k, left + j] += sums[k, j]

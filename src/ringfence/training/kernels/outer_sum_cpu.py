"""The clipped outer sum on a CPU: one pass over the features, with the sums kept in cache."""

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ROWS = 1024  # how many examples are summed in float32 before the sum is added in float64
_SHORT = 1 << 24  # products up to which waiting for threads costs more than they save


def outer_sum_cpu(residuals: Tensor, features: Tensor, limits: Tensor) -> Tensor:
    """float32 sums of 1,024 examples, added in float64 and rounded once; ``limits`` has one per column.

    As many threads work as torch has, or one where there is little to do. The order of the additions does
    not depend on their number, so neither does the result.
    """
    torch_threads, numba_threads = torch.get_num_threads(), numba.get_num_threads()
    width, classes = features.shape[1], residuals.shape[1]
    threads = 1 if residuals.numel() * width <= _SHORT else min(torch_threads, numba_threads)
    total = np.zeros((classes, width), dtype=np.float64)
    tile = -(-width // (threads * 16)) * 16  # how many columns a thread takes
    r, x, c = (part.contiguous().numpy() for part in (residuals, features, limits))
    numba.set_num_threads(threads)
    try:
        _add(r, x, c, tile, total)
    finally:
        numba.set_num_threads(numba_threads)
        torch.set_num_threads(torch_threads)  # numba has set its own, and both use OpenMP
    return torch.from_numpy(total).to(torch.float32)


# Within a run of four examples the compiler may fuse and reorder operations to vectorise them, and it
# may take minima and maxima in one instruction: callers make sure that there is no NaN.
@numba.njit(parallel=True, fastmath={"contract", "reassoc", "nsz", "nnan", "ninf"}, cache=True)
def _add(
    residuals: NDArray[np.float32],
    features: NDArray[np.float32],
    limits: NDArray[np.float32],
    tile: int,
    total: NDArray[np.float64],
) -> None:
    # clamp(r x, -c, c) = r clamp(x, -t, t) with t = c / |r|: a minimum, a maximum and a multiply-add.
    # c is shrunk a little, so that no product is above it once rounded.
    count, classes = residuals.shape
    width = features.shape[1]
    shrink, tiny = np.float32(1 - 2.0**-22), np.float32(1e-30)
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
                    r0, r1 = residuals[i, k], residuals[i + 1, k]
                    r2, r3 = residuals[i + 2, k], residuals[i + 3, k]
                    c = limits[k] * shrink
                    t0, t1 = c / max(abs(r0), tiny), c / max(abs(r1), tiny)
                    t2, t3 = c / max(abs(r2), tiny), c / max(abs(r3), tiny)
                    row = sums[k]
                    for j in range(right - left):
                        row[j] += (r0 * min(max(x0[j], -t0), t0) + r1 * min(max(x1[j], -t1), t1)) + (
                            r2 * min(max(x2[j], -t2), t2) + r3 * min(max(x3[j], -t3), t3)
                        )
            for i in range(whole, stop):
                x = features[i, left:right]
                for k in range(classes):
                    r = residuals[i, k]
                    t = limits[k] * shrink / max(abs(r), tiny)
                    for j in range(right - left):
                        sums[k, j] += r * min(max(x[j], -t), t)
            for k in range(classes):
                for j in range(right - left):
                    total[k, left + j] += sums[k, j]

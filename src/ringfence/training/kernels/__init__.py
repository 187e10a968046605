"""Fused kernels for the clipped outer sum: the same sums in less time and memory."""

"""Fused kernels: the same sums in less time and memory."""

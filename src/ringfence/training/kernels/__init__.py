"""Sums of clipped gradients that are never held: the same sums in less time and memory."""

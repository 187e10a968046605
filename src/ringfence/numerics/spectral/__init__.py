"""Certified bounds of largest singular values, largest eigenvalues and traces. No privacy words."""

"""Gradients of single examples, clipped and summed in one pass over a batch."""

"""Bounded-support Gaussian privacy: mechanisms, and what they give away."""

from ringfence.mechanisms import (
    Gaussian,
    Mechanism,
    QuantizedGaussian,
    RectifiedGaussian,
    StochasticSign,
    Support,
    TruncatedGaussian,
)

__version__ = "0.1.0"

__all__ = [
    "Gaussian",
    "Mechanism",
    "QuantizedGaussian",
    "RectifiedGaussian",
    "StochasticSign",
    "Support",
    "TruncatedGaussian",
]

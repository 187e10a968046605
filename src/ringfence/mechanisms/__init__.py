"""The five laws."""

from ringfence.mechanisms.base import Mechanism, Support
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian

__all__ = [
    "Gaussian",
    "Mechanism",
    "QuantizedGaussian",
    "RectifiedGaussian",
    "StochasticSign",
    "Support",
    "TruncatedGaussian",
]

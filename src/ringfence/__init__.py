"""Bounded-support Gaussian privacy: mechanisms, and what they give away."""

from ringfence.mechanisms.base import Mechanism as Mechanism
from ringfence.mechanisms.base import Support as Support
from ringfence.mechanisms.gaussian import Gaussian as Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian as QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian as RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign as StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian as TruncatedGaussian

__version__ = "0.1.0"

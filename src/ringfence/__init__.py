"""Bounded-support Gaussian privacy: mechanisms, and what they give away."""

from ringfence.accounting.guarantee import Guarantee as Guarantee
from ringfence.accounting.per_instance import PerInstanceAccountant as PerInstanceAccountant
from ringfence.accounting.per_instance import PerInstanceRdp as PerInstanceRdp
from ringfence.accounting.per_instance import per_instance_rdp as per_instance_rdp
from ringfence.mechanisms.base import LossMoments as LossMoments
from ringfence.mechanisms.base import Mechanism as Mechanism
from ringfence.mechanisms.base import Support as Support
from ringfence.mechanisms.gaussian import Gaussian as Gaussian
from ringfence.mechanisms.quantized import QuantizedGaussian as QuantizedGaussian
from ringfence.mechanisms.rectified import RectifiedGaussian as RectifiedGaussian
from ringfence.mechanisms.sign import StochasticSign as StochasticSign
from ringfence.mechanisms.truncated import TruncatedGaussian as TruncatedGaussian

__version__ = "0.1.0"

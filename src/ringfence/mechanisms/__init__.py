"""Mechanisms, one law per file. Importing any of them makes every law known by its name."""

from ringfence.mechanisms import gaussian as gaussian
from ringfence.mechanisms import quantized as quantized
from ringfence.mechanisms import rectified as rectified
from ringfence.mechanisms import sign as sign
from ringfence.mechanisms import truncated as truncated
from ringfence.mechanisms import winner as winner

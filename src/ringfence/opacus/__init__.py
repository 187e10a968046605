"""Opacus runs, watched: each example's epsilon and eta, what may be said of the run, and the way over."""

try:
    import opacus as _opacus  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError("ringfence.opacus needs opacus: pip install 'ringfence[opacus]'") from None

from ringfence.opacus.accountant import RingfenceAccountant as RingfenceAccountant
from ringfence.opacus.conversion import convert as convert
from ringfence.opacus.run import OpacusRun as OpacusRun
from ringfence.opacus.run import watch as watch

__all__ = ["OpacusRun", "RingfenceAccountant", "convert", "watch"]

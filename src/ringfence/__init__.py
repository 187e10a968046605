"""Differential privacy with noise of bounded support: mechanisms, accounts, training and releases."""

import ast as _ast
import importlib as _importlib
import pathlib as _pathlib
import typing as _typing
import warnings as _warnings

# What is exported. Type checkers run these imports; Python loads a name when it is first used, since torch
# takes seconds to import and scikit-learn another one.
if _typing.TYPE_CHECKING:
    from ringfence.accounting.calibration import calibrate_bound as calibrate_bound
    from ringfence.accounting.calibration import calibrate_sigma as calibrate_sigma
    from ringfence.accounting.calibration import calibrate_steps as calibrate_steps
    from ringfence.accounting.decisions import DecisionAccountant as DecisionAccountant
    from ringfence.accounting.examples import ExampleAccountant as ExampleAccountant
    from ringfence.accounting.fisher import FisherAccountant as FisherAccountant
    from ringfence.accounting.fisher import fisher_information_loss as fisher_information_loss
    from ringfence.accounting.ledger import Ledger as Ledger
    from ringfence.accounting.per_instance import PerInstanceAccountant as PerInstanceAccountant
    from ringfence.accounting.per_instance import per_instance_rdp as per_instance_rdp
    from ringfence.accounting.privacy_loss import PrivacyLoss as PrivacyLoss
    from ringfence.accounting.profile import privacy_profile as privacy_profile
    from ringfence.accounting.publication import publishable_epsilon as publishable_epsilon
    from ringfence.accounting.sensitivity import Sensitivity as Sensitivity
    from ringfence.accounting.subsampling import SampledAccountant as SampledAccountant
    from ringfence.auditing.function import audit as audit
    from ringfence.auditing.scores import audit_scores as audit_scores
    from ringfence.auditing.training import audit_training as audit_training
    from ringfence.mechanisms.base import Mechanism as Mechanism
    from ringfence.mechanisms.gaussian import Gaussian as Gaussian
    from ringfence.mechanisms.laplace import Laplace as Laplace
    from ringfence.mechanisms.quantized import QuantizedGaussian as QuantizedGaussian
    from ringfence.mechanisms.rectified import RectifiedGaussian as RectifiedGaussian
    from ringfence.mechanisms.sign import StochasticSign as StochasticSign
    from ringfence.mechanisms.truncated import TruncatedGaussian as TruncatedGaussian
    from ringfence.mechanisms.winner import ConfidentWinner as ConfidentWinner
    from ringfence.mechanisms.winner import GumbelWinner as GumbelWinner
    from ringfence.mechanisms.winner import NoisyWinner as NoisyWinner
    from ringfence.releases.counts import release_counts as release_counts
    from ringfence.releases.decisions import release_votes as release_votes
    from ringfence.releases.decisions import release_winners as release_winners
    from ringfence.releases.means import release_means as release_means
    from ringfence.releases.means import release_shares as release_shares
    from ringfence.releases.means import release_sums as release_sums
    from ringfence.releases.pate import Pate as Pate
    from ringfence.releases.quantiles import release_quantiles as release_quantiles
    from ringfence.releases.release import Release as Release
    from ringfence.training.clipping import Clamp as Clamp
    from ringfence.training.clipping import Clip as Clip
    from ringfence.training.clipping import Norm as Norm
    from ringfence.training.engine.engine import PrivacyEngine as PrivacyEngine
    from ringfence.training.probe import LinearProbe as LinearProbe
    from ringfence.training.regression import LinearRegression as LinearRegression
    from ringfence.training.tune import tune as tune

__version__ = "0.6.0"

# Exported until 0.6: these still work from here in 0.7, with a warning that says where they are.
_MOVED = {
    "PerInstanceCalibrationWarning": "ringfence.accounting.calibration",
    "FisherGuarantee": "ringfence.accounting.fisher",
    "reconstruction_error_bound": "ringfence.accounting.fisher",
    "PerInstanceRdp": "ringfence.accounting.per_instance",
    "PrivacyProfile": "ringfence.accounting.profile",
    "PublishableEpsilon": "ringfence.accounting.publication",
    "LossMoments": "ringfence.mechanisms.base",
    "Support": "ringfence.mechanisms.base",
    "StepReport": "ringfence.training.engine.run",
    "LinearRun": "ringfence.training.linear",
    "train_linear": "ringfence.training.linear",
    "Guarantee": "ringfence.accounting.guarantee",
    "Noise": "ringfence.noise",
    "SecureRelease": "ringfence.mechanisms.secure",
}
_SAMPLES = "ringfence.SampledAccountant, which charges samples with what holds for every dataset"
_INSTEAD = {  # of names that are gone
    "fisher_information_bounds": "ringfence.fisher_information_loss",
    "fixed_batch_rdp": _SAMPLES,
    "poisson_information_factor": "the information without sampling, which is an upper bound",
    "Scale": "ringfence.Clamp, or ringfence.Norm, which keeps the direction of a gradient",
    "SubsampledRdp": _SAMPLES,
    "subsampled_rdp": _SAMPLES,
}


def _exports() -> dict[str, str]:
    """Where each exported name is, as the imports above say."""
    source = _pathlib.Path(__file__).read_text(encoding="utf-8")
    imports = (node for node in _ast.walk(_ast.parse(source)) if isinstance(node, _ast.ImportFrom))
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_MODULES = _exports()
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> _typing.Any:
    if name in _MODULES:
        value = globals()[name] = getattr(_importlib.import_module(_MODULES[name]), name)
        return value
    if name in _MOVED:
        _warnings.warn(
            f"ringfence.{name} is deprecated: import it from {_MOVED[name]}", DeprecationWarning, stacklevel=2
        )
        return getattr(_importlib.import_module(_MOVED[name]), name)
    if name in _INSTEAD:
        raise AttributeError(f"ringfence.{name} is gone: use {_INSTEAD[name]}")
    raise AttributeError(f"module 'ringfence' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

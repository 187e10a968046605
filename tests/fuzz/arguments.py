"""Every public function and method with one argument replaced by every hostile value.

    python -m tests.fuzz.arguments [FUNCTION ...]

Counts the calls whose error is not ours (raised by another library, or by Python inside our code), or names
no argument, and the calls that do not end; the exit status is 1 if there is one.
"""

import atexit
import datetime
import shutil
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import ringfence as rf
from ringfence.accounting.fisher import (
    fisher_information_bounds,
    poisson_information_factor,
    reconstruction_error_bound,
)
from ringfence.accounting.profile import PrivacyProfile
from ringfence.accounting.subsampling import fixed_batch_rdp
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.operators import LinearOperator
from ringfence.training.linear import train_linear
from tests.fuzz.contract import ContractError, calls_well
from tests.fuzz.strategies import HOSTILE

SECONDS = 20  # more is a hang: every call ends in a second when its arguments are good
_ZONE = datetime.UTC
_LOOP: list[Any] = []
_LOOP.append(_LOOP)
_WORDS = np.array(["a", "b", "a"], dtype=object)
MORE = (
    *(np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]), np.ma.masked, np.ma.masked_array(1.0, True)),
    *(pd.NA, pd.NaT, pd.Timestamp("2020-01-01", tz="UTC"), datetime.datetime(2020, 1, 1, tzinfo=_ZONE)),
    *(
        pd.Series(pd.date_range("2020", periods=3, tz="Europe/Berlin")),
        pd.Series([1.0, None], dtype="Float64"),
    ),
    *(pd.DataFrame({"at": pd.date_range("2020", periods=3, tz="UTC")}), pd.Series([1j, 2.0])),
    *(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": _WORDS}), pd.DataFrame(), pd.Series([], dtype=float)),
    *(pd.Categorical(["a", "b"]), pd.Series(["a", "b", "a"], dtype="category"), pd.Interval(0, 1)),
    *(
        _WORDS,
        np.array(None),
        np.array([[1.0], [1.0, 2.0]], dtype=object),
        np.array([1, 10**400], dtype=object),
    ),
    *(np.ones((3, 2), np.float16), np.ones((3, 2), complex), np.ones((3, 2), np.longdouble), np.ones((3, 2))),
    *(
        np.ones((0, 2)),
        np.ones((3, 0)),
        np.full((3, 2), np.inf),
        np.ones((3, 2), dtype=int),
        np.ones((3, 2, 2)),
    ),
    *(torch.ones(3, 2, dtype=torch.float16), torch.ones(3, 2), torch.ones(3, 2, dtype=torch.complex64)),
    *("\ud800", "\0", "a" * 10_000, _LOOP, {1: 2}, {"a": _LOOP}, [{}], (None, None), (1.0, "a"), ("a",)),
    *(np.int32(2), np.uint8(1), np.int64(-1), np.float32(0.5), np.array(2), np.array([0.5])),
    *(nn.Linear(2, 2), torch.Generator(), rf.Gaussian(1.0), rf.Norm(1.0), rf.Noise(0), object, rf.Gaussian),
    *(lambda *args: None, (x for x in [1.0]), memoryview(b"12345678"), 2**70, 1e23, sys.float_info.max),
)
VALUES = (*HOSTILE, *MORE)


# Some values are taken as names of files: every call is made in this folder.
PLACE = Path(mkdtemp(prefix="ringfence-arguments-"))
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)


LAW = rf.RectifiedGaussian(1.0, 2.0)
THETA = torch.linspace(-1, 1, 4, dtype=torch.float64)
X = np.linspace(-1, 1, 12).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 1, 0])
FRAME = pd.DataFrame({"region": ["n", "s", "n", "s"], "age": [1.0, 2.0, 30.0, 4.0], "who": [1, 2, 3, 4]})
BALLOTS = pd.DataFrame({"q1": [1, -1, 1], "q2": [1, 1, -1]})
COUNTS = torch.tensor([[5.0, 1.0, 0.0], [2.0, 2.0, 9.0]], dtype=torch.float64)
GENERATOR = torch.Generator()
ORDERS = [2.0, 8.0]


def _probe(**changed: Any) -> Any:
    return rf.LinearProbe(LAW, 0.1, 1.0, 2, public_size=6, **changed)


def _fitted() -> Any:
    return _probe(random_state=0).fit(X, Y)


@cache
def _kept_probe() -> Any:
    return _fitted()


@cache
def _profile() -> PrivacyProfile:
    return rf.privacy_profile(LAW, THETA, 0.1)


def _account() -> rf.PerInstanceAccountant:
    account = rf.PerInstanceAccountant(LAW, 0.1, ORDERS)
    account.step(THETA)
    return account


def _labelled() -> rf.Pate:
    pate = rf.Pate(2.0)
    pate.label([[5, 3], [8, 0]])
    return pate


def _fit(**arguments: Any) -> Any:
    return rf.LinearProbe(**arguments).fit(X, Y)


def _private(name: str, **arguments: Any) -> Any:
    engine = rf.PrivacyEngine(LAW, rf.Clamp(0.1), seed=0)
    return getattr(engine, name)(**arguments)


def _engine() -> Any:
    engine = rf.PrivacyEngine(LAW, rf.Clamp(0.1), seed=0)
    return engine, engine.make_private(**_objects())


def _objects() -> dict[str, Any]:
    model = nn.Linear(2, 2)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return {"model": model, "optimizer": optimizer, "loader": torch.utils.data.DataLoader(data, batch_size=3)}


def _step(**arguments: Any) -> Any:
    """One step of training with this input."""
    _, (model, optimizer, loader) = _engine()
    next(iter(loader))
    try:
        outputs = model(arguments["input"])
    except RuntimeError as error:
        if "shapes cannot be multiplied" in str(error):  # the model's own error, about rows it does not take
            return None
        raise
    outputs.sum().backward()
    return optimizer.step()


def _ledger(name: str, **arguments: Any) -> Any:
    return getattr(rf.Ledger(epsilon=99.0, delta=1e-6, planned=True), name)(**arguments)


_LAW_AND_THETA = {"mechanism": LAW, "theta": THETA, "sensitivity": 0.1}
_TARGET = {**_LAW_AND_THETA, "epsilon": 1.0, "delta": 1e-5, "kind": "data_independent"}
_TARGET |= {"coordinates": None, "sampling_rate": 1.0}
_PROBE = {"mechanism": LAW, "clip": 0.1, "learning_rate": 1.0, "steps": 2, "momentum": 0.0}
_PROBE |= {"target_epsilon": None, "target_delta": None, "fit_intercept": False, "public_center": 0.0}
_PROBE |= {"public_scale": 1.0, "unit_rows": None, "public_projection": None, "public_size": 6}
_PROBE |= {"public_classes": [0, 1], "class_weight": None, "public_largest_weight": 1.0}
_PROBE |= {"random_state": 0, "device": "cpu", "secure": False}
_ENGINE = {"mechanism": LAW, "clip": rf.Clamp(0.1), "sampling": "poisson", "public_size": None}
_ENGINE |= {"loss_reduction": "mean", "loss": None, "fisher_every": 0, "fisher_kind": "spectral"}
_ENGINE |= {"auxiliary_batches": 0, "on_step": None, "memory_budget": None}
_ENGINE |= {"cuda_graphs": False, "seed": 0, "secure": False}
_RELEASE = {"epsilon": 1.0, "delta": 1e-6, "sigma": None, "seed": None, "ledger": None}
_TABLE = {"data": FRAME, "by": ["region"], "domain": {"region": ["n", "s"]}, "bins": None, "person": None}
_TABLE |= {"at_most": 1, "suppress_below": None, **_RELEASE}
_VOTES = {"at_most": None, "person": None, "ignore": (), "publish_epsilon": False, **_RELEASE}
_JACOBIAN = torch.ones(4, 2, dtype=torch.float64)

# name: the call, and arguments that are good; a function gives new ones for every call
Arguments = dict[str, Any] | Callable[[], dict[str, Any]]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Arguments]] = {
    "Gaussian": (rf.Gaussian, {"sigma": 1.0}),
    "RectifiedGaussian": (rf.RectifiedGaussian, {"sigma": 1.0, "bound": 2.0}),
    "TruncatedGaussian": (rf.TruncatedGaussian, {"sigma": 1.0, "bound": (-1.0, 2.0)}),
    "QuantizedGaussian": (rf.QuantizedGaussian, {"sigma": 1.0, "bound": 2.0, "levels": 5}),
    "StochasticSign": (rf.StochasticSign, {"sigma": 1.0}),
    "NoisyWinner": (rf.NoisyWinner, {"sigma": 1.0}),
    "GumbelWinner": (rf.GumbelWinner, {"scale": 1.0}),
    "ConfidentWinner": (rf.ConfidentWinner, {"sigma": 1.0, "threshold": 2.0, "threshold_sigma": 1.0}),
    "Mechanism.by_name": (rf.Mechanism.by_name, {"name": "rectified", "sigma": 1.0, "bound": 2.0}),
    "Mechanism.sample": (LAW.sample, {"theta": THETA, "generator": GENERATOR}),
    "Mechanism.release": (
        LAW.release,
        {"theta": THETA, "secure": False, "step": None, "generator": GENERATOR},
    ),
    "Mechanism.release secure": (LAW.release, {"theta": THETA, "secure": True, "step": None}),
    "Mechanism.log_prob": (LAW.log_prob, {"value": 0.5, "theta": THETA}),
    "Mechanism.fisher_information": (LAW.fisher_information, {"theta": THETA}),
    "Mechanism.renyi_divergence": (LAW.renyi_divergence, {"theta": THETA, "shift": 0.1, "alpha": 2.0}),
    "Mechanism.renyi_curve": (LAW.renyi_curve, {"theta": THETA, "shift": 0.1, "orders": ORDERS}),
    "Mechanism.hockey_stick": (LAW.hockey_stick, {"theta": THETA, "shift": 0.1, "epsilon": 1.0}),
    "Mechanism.loss_moments": (LAW.loss_moments, {"theta": THETA, "shift": 0.1}),
    "Mechanism.pair": (rf.StochasticSign(1.0).pair, {"theta": THETA, "shift": 0.1}),
    "Mechanism.from_state_dict": (rf.Mechanism.from_state_dict, {"state": LAW.state_dict()}),
    "SecureRelease": (SecureRelease, {"law": LAW, "step": None}),
    "SecureRelease.draw": (SecureRelease(LAW).draw, {"theta": THETA, "draws": None}),
    "SecureRelease.delta": (SecureRelease(LAW).delta, {"coordinates": 3, "epsilon": 1.0}),
    "Decision.release": (rf.NoisyWinner(1.0).release, {"counts": COUNTS, "draws": None}),
    "Decision.sample": (rf.NoisyWinner(1.0).sample, {"counts": COUNTS, "generator": GENERATOR}),
    "Decision.log_prob": (rf.NoisyWinner(1.0).log_prob, {"winner": 1, "counts": COUNTS}),
    "Decision.renyi_divergence": (
        rf.NoisyWinner(1.0).renyi_divergence,
        {"counts": COUNTS, "move": torch.ones(3), "alpha": 2.0},
    ),
    "Decision.hockey_stick": (
        rf.NoisyWinner(1.0).hockey_stick,
        {"counts": COUNTS, "move": torch.ones(3), "epsilon": 1.0},
    ),
    "Decision.chance_of_error": (rf.NoisyWinner(1.0).chance_of_error, {"counts": COUNTS}),
    "Decision.from_state_dict": (Decision.from_state_dict, {"state": rf.NoisyWinner(1.0).state_dict()}),
    "Clamp": (rf.Clamp, {"sensitivity": 0.1}),
    "Scale": (rf.Scale, {"sensitivity": 0.1}),
    "Norm": (rf.Norm, {"norm": 0.1, "each": None}),
    "Sensitivity": (rf.Sensitivity, {"each": 1.0, "at_most": 1, "norm": None}),
    "Sensitivity.of": (rf.Sensitivity.of, {"value": 1.0}),
    "Noise": (rf.Noise, {"seed": 0}),
    "Ledger": (rf.Ledger, {"epsilon": 1.0, "delta": 1e-6, "neighbours": "added", "planned": False}),
    "Ledger.release": (
        partial(_ledger, "release"),
        {**_LAW_AND_THETA, "what": "a", "secure": True, "step": None, "generator": None},
    ),
    "Ledger.charge": (partial(_ledger, "charge"), {"what": "a", "cost": (0.1, 1e-9), "numbers": 0}),
    "Ledger.guarantee": (partial(_ledger, "guarantee"), {"delta": 1e-6}),
    "Ledger.train": (partial(_ledger, "train"), lambda: {"engine": _engine()[0], "steps": 3, "what": None}),
    "Ledger.fit": (
        lambda **given: rf.Ledger(epsilon=99.0, delta=1e-3, planned=True).fit(given["estimator"], X, Y),
        lambda: {"estimator": _probe()},
    ),
    "per_instance_rdp": (rf.per_instance_rdp, {**_LAW_AND_THETA, "orders": ORDERS, "exact": False}),
    "privacy_profile": (rf.privacy_profile, {**_LAW_AND_THETA, "steps": 1}),
    "PrivacyProfile.epsilon": (lambda **given: _profile().epsilon(**given), {"delta": 1e-5}),
    "PrivacyProfile.delta": (lambda **given: _profile().delta(**given), {"epsilon": 1.0}),
    "PerInstanceAccountant": (
        rf.PerInstanceAccountant,
        {"mechanism": LAW, "sensitivity": 0.1, "orders": ORDERS},
    ),
    "PerInstanceAccountant.step": (
        lambda **given: _account().step(**given),
        {"theta": THETA, "mechanism": None, "sensitivity": None, "count": 1, "exact": False},
    ),
    "PerInstanceAccountant.guarantee": (lambda **given: _account().guarantee(**given), {"delta": 1e-5}),
    "PerInstanceAccountant.from_state_dict": (
        rf.PerInstanceAccountant.from_state_dict,
        {"state": _account().state_dict()},
    ),
    "Guarantee.trade_off": (
        lambda **given: _account().guarantee(1e-5).trade_off(**given),
        {"false_positive_rates": 0.1},
    ),
    "Guarantee.true_positive_rate": (
        lambda **given: _account().guarantee(1e-5).true_positive_rate(**given),
        {"false_positive_rate": 0.1},
    ),
    "ExampleAccountant.step": (
        lambda **given: rf.ExampleAccountant(LAW, ORDERS).step(**given),
        {"theta": THETA, "gradients": _JACOBIAN.T / 10, "mechanism": None, "count": 1, "exact": False},
    ),
    "ExampleAccountant": (rf.ExampleAccountant, {"mechanism": LAW, "orders": ORDERS}),
    "FisherAccountant": (rf.FisherAccountant, {"mechanism": LAW, "gram_limit": 64}),
    "FisherAccountant.step": (
        lambda **given: rf.FisherAccountant(LAW).step(**given),
        {
            "theta": THETA,
            "jacobian": _JACOBIAN,
            "mechanism": None,
            "sampling_rate": 1.0,
            "pure_epsilon": None,
        },
    ),
    "fisher_information_loss": (
        rf.fisher_information_loss,
        {"mechanism": LAW, "theta": THETA, "jacobian": _JACOBIAN, "kind": "spectral"},
    ),
    "fisher_information_bounds": (
        fisher_information_bounds,
        {
            **{"mechanism": LAW, "theta": THETA, "jacobian": _JACOBIAN, "generator": GENERATOR},
            **{"failure_probability": 1e-6, "tolerance": 0.01, "maximum_degree": 16},
        },
    ),
    "poisson_information_factor": (poisson_information_factor, {"sampling_rate": 0.1, "pure_epsilon": 1.0}),
    "reconstruction_error_bound": (reconstruction_error_bound, {"fisher_information_loss": 1.0}),
    "LinearOperator.of": (LinearOperator.of, {"matrix": _JACOBIAN}),
    "calibrate_sigma": (rf.calibrate_sigma, {**_TARGET, "steps": 1}),
    "calibrate_bound": (rf.calibrate_bound, {**_TARGET, "steps": 1, "kind": "per_instance", "epsilon": 0.6}),
    "calibrate_steps": (rf.calibrate_steps, _TARGET),
    "subsampled_rdp": (
        rf.subsampled_rdp,
        {
            **{"mechanism": LAW, "batches": THETA.expand(3, 4), "sensitivity": 0.1, "sampling_rate": 0.1},
            **{"orders": [2, 8], "failure_probability": 1e-6},
        },
    ),
    "fixed_batch_rdp": (
        fixed_batch_rdp,
        {**_LAW_AND_THETA, "sampling_rate": 0.1, "orders": [2, 8], "record": "added"},
    ),
    "SampledAccountant": (
        rf.SampledAccountant,
        {
            **{"mechanism": LAW, "sensitivity": 0.1, "sampling_rate": 0.1, "orders": [2, 8]},
            "failure_probability": 1e-9,
        },
    ),
    "SampledAccountant.step": (
        lambda **given: rf.SampledAccountant(LAW, 0.1, 0.1, [2, 8]).step(**given),
        {
            **{"batches": THETA.expand(3, 4), "mechanism": None, "sensitivity": None},
            **{"sampling_rate": None, "count": 1},
        },
    ),
    "DecisionAccountant": (
        rf.DecisionAccountant,
        {"law": rf.NoisyWinner(1.0), "neighbours": "added", "at_most": None, "orders": ORDERS},
    ),
    "DecisionAccountant.step": (
        lambda **given: rf.DecisionAccountant(rf.NoisyWinner(1.0), neighbours="added").step(**given),
        {"votes": COUNTS},
    ),
    "decision_profile": (
        rf.decision_profile,
        {"law": rf.NoisyWinner(1.0), "votes": COUNTS, "neighbours": "added", "at_most": None},
    ),
    "voter_epsilons": (
        rf.voter_epsilons,
        {"law": rf.NoisyWinner(1.0), "ballots": [[0, 1], [1, 1]], "delta": 1e-5, "candidates": 3},
    ),
    "publishable_decision_epsilon": (
        rf.publishable_decision_epsilon,
        {
            **{"law": rf.StochasticSign(9.0), "votes": COUNTS[0] * 100, "neighbours": "added", "delta": 1e-5},
            **{"at_most": 1, "failure_probability": 1e-3, "publishing_zcdp": 0.1, "smoothness": None},
            "order": None,
        },
    ),
    "publishable_epsilon": (
        rf.publishable_epsilon,
        {
            **{"mechanism": LAW, "thetas": [THETA], "sensitivity": 0.1, "delta": 1e-5},
            **{"publishing_zcdp": 0.1, "failure_probability": 1e-3, "order": None},
        },
    ),
    "PublicProjection": (rf.PublicProjection, {"mean": np.zeros(2), "components": np.eye(2)}),
    "PublicProjection.of": (rf.PublicProjection.of, {"features": X + [[0, 1]] * 6, "components": 1}),
    "PublicProjection.save": (rf.PublicProjection.of(X, 1).save, {"path": "p.npz"}),
    "PublicProjection.load": (rf.PublicProjection.load, {"path": "nowhere.npz"}),
    "train_linear": (
        train_linear,
        {
            **{"features": torch.from_numpy(X), "labels": torch.from_numpy(Y), "classes": 2},
            **{"mechanism": LAW, "clip": rf.Clamp(0.1), "learning_rate": 1.0, "steps": 2},
            **{"public_size": 6, "seed": 0, "momentum": 0.0, "secure": False},
        },
    ),
    "LinearProbe": (_fit, _PROBE),
    "LinearProbe.fit": (lambda **given: _probe().fit(**given), {"X": X, "y": Y, "sample_weight": None}),
    "LinearProbe.predict": (lambda **given: _kept_probe().predict(**given), {"X": X}),
    "LinearProbe.predict_proba": (lambda **given: _kept_probe().predict_proba(**given), {"X": X}),
    "LinearProbe.guarantee": (lambda **given: _kept_probe().guarantee(**given), {"delta": 1e-5}),
    "LinearProbe.example_epsilons": (
        lambda **given: _kept_probe().example_epsilons(**given),
        {"delta": 1e-5, "kind": "ex_post"},
    ),
    "LinearProbe.fisher_information_loss": (
        lambda **given: _kept_probe().fisher_information_loss(**given),
        {"kind": "spectral"},
    ),
    "tune": (
        rf.tune,
        {
            **{"features": X, "labels": Y, "grid": {"steps": [1, 2]}, "target_epsilon": 8.0},
            **{"target_delta": 1e-3, "expected_runs": 2.0, "score_share": 0.1, "random_state": 0},
        },
    ),
    "PrivacyEngine": (rf.PrivacyEngine, _ENGINE),
    "PrivacyEngine.make_private": (partial(_private, "make_private"), _objects),
    "PrivacyEngine.make_private_with_epsilon": (
        partial(_private, "make_private_with_epsilon"),
        lambda: {**_objects(), "target_epsilon": 8.0, "target_delta": 1e-3, "epochs": 1},
    ),
    "PrivacyEngine.guarantee": (lambda **given: _engine()[0].guarantee(**given), {"delta": 1e-5}),
    "PrivacyEngine.planned_cost": (lambda **given: _engine()[0].planned_cost(**given), {"steps": 3}),
    "PrivacyEngine.save": (lambda **given: _engine()[0].save(**given), {"path": "run"}),
    "PrivacyEngine.load": (lambda **given: _engine()[0].load(**given), {"path": "nowhere"}),
    "PrivateModule": (_step, {"input": torch.ones(2, 2)}),
    "release_counts": (rf.release_counts, {**_TABLE, "counts": None}),
    "release_means": (
        rf.release_means,
        {**_TABLE, "of": "age", "lower": 0.0, "upper": 9.0, "coverage": 0.95},
    ),
    "release_votes": (
        rf.release_votes,
        {"ballots": BALLOTS, "questions": None, "neighbours": "added", **_VOTES},
    ),
    "Pate": (
        lambda **given: rf.Pate(**given).label([[5, 3], [8, 0]]),
        {
            **{"sigma": 2.0, "threshold": 4, "threshold_sigma": 2.0, "epsilon": None, "delta": 1e-5},
            **{"queries": None, "classes": ["a", "b"], "adaptive": True, "publish_epsilon": False},
            **{"seed": None, "ledger": None},
        },
    ),
    "Pate.label": (lambda **given: rf.Pate(2.0).label(**given), {"votes": [[5, 3], [8, 0]]}),
    "Pate.label of predictions": (
        lambda **given: rf.Pate(2.0, classes=[1, 0, 2]).label(**given),
        {"predictions": np.eye(3)},
    ),
    "Pate.publish": (
        lambda **given: _labelled().publish(**given),
        {"delta": 1e-5, "failure_probability": 0.1},
    ),
    "Pate.guarantee": (lambda **given: _labelled().guarantee(**given), {"delta": 1e-5}),
    "release_winners": (
        rf.release_winners,
        {
            **{"data": BALLOTS, "queries": None, "candidates": [1, -1], "confident_above": None},
            **{"threshold_sigma": None, "neighbours": "replaced", "query": None, "noise": "auto", **_VOTES},
        },
    ),
}


class HangError(Exception):
    """A call took longer than ``SECONDS``."""


@contextmanager
def _limit() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise HangError(f"no answer in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def good(name: str) -> dict[str, Any]:
    """Arguments that the function takes."""
    arguments = FUNCTIONS[name][1]
    return dict(arguments() if callable(arguments) else arguments)


def fault(name: str, argument: str, value: Any) -> str | None:
    """What a call with one hostile argument broke, or None.

    A refusal is a ValueError, a TypeError or a FloatingPointError that a ``raise`` of ours raised, and that
    names an argument; a file that cannot be read or written is an OSError.
    """
    call, _ = FUNCTIONS[name]
    arguments = {**good(name), argument: value}
    names = (*arguments, *_PARTS)
    try:
        with _limit(), chdir(PLACE):
            calls_well(call, names=names, ours=True, **arguments)
    except HangError as error:
        return f"{name}({argument}={_shown(value)}): {error}"
    except ContractError as error:
        if isinstance(error.__cause__, OSError) and argument in ("path", "data", "ballots"):
            return None
        return f"{name}({argument}={_shown(value)}): {str(error.__cause__ or error).splitlines()[0][:160]}"
    return None


# what else a refusal may name: the parts of an argument
_PARTS = (
    *("sigma", "bound", "lower", "upper", "theta", "mechanism", "orders", "each", "norm", "at_most", "state"),
    *("counts", "clip", "parameter", "parameters", "law", "kind", "weights", "features", "sensitivity"),
    *("file", "data", "column", "table", "columns"),
)


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:
        text = f"{type(value).__name__} without repr: {error}"
    return f"{type(value).__name__} {text[:60]}"


def main(names: list[str]) -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", DeprecationWarning)
    # scikit-learn's own warnings about data that it takes
    warnings.filterwarnings("ignore", "A column-vector y was passed")
    warnings.filterwarnings("ignore", "X has feature names")
    calls, bad = 0, Counter[str]()
    for name in names or FUNCTIONS:
        for argument in good(name):
            for value in VALUES:
                calls += 1
                wrong = fault(name, argument, value)
                if wrong:
                    bad[f"{name}.{argument}"] += 1
                    print(wrong, flush=True)
    for where, count in bad.most_common():
        print(f"{count:6} {where}")
    print(f"{calls:,} calls, {bad.total():,} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

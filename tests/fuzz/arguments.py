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
from functools import cache, wraps
from inspect import signature
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

import ringfence as rf
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import decision_profile
from ringfence.accounting.fisher import reconstruction_error_bound
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.profile import PrivacyProfile
from ringfence.mechanisms.decision import Decision
from ringfence.mechanisms.secure import SecureRelease
from ringfence.noise import Noise
from ringfence.training.linear import train_linear
from tests.fuzz.contract import PARTS, ContractError, as_in_the_tests, calls_well
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
    *(nn.Linear(2, 2), torch.Generator(), rf.Gaussian(1.0), rf.Norm(1.0), Noise(0), object, rf.Gaussian),
    *(lambda *args: None, (x for x in [1.0]), memoryview(b"12345678"), 2**70, 1e23, sys.float_info.max),
)
VALUES = (*HOSTILE, *MORE)


# Some values are taken as names of files: every call is made in this folder.
PLACE = Path(mkdtemp(prefix="ringfence-arguments-"))
atexit.register(shutil.rmtree, PLACE, ignore_errors=True)


LAW = rf.RectifiedGaussian(1.0, 2.0)
# whole numbers, which every container can hold (tests/test_containers.py)
THETA, ROW = torch.tensor([[-1.0, 0.0, 1.0, 2.0], [3.0, 1.0, 2.0, 4.0]], dtype=torch.float64)
X = np.arange(12.0).reshape(6, 2) % 5 - 2
Y = np.array([0, 1, 0, 1, 1, 0])
FRAME = pd.DataFrame({"region": ["n", "s", "n", "s"], "age": [1.0, 2.0, 30.0, 4.0], "who": [1, 2, 3, 4]})
BALLOTS = pd.DataFrame({"q1": [1, -1, 1], "q2": [1, 1, -1]})
COUNTS = torch.tensor([[5.0, 1.0, 0.0], [2.0, 2.0, 9.0]], dtype=torch.float64)
GENERATOR = torch.Generator()
ORDERS = torch.tensor([2.0, 8.0], dtype=torch.float64)


def _probe(**changed: Any) -> Any:
    return rf.LinearProbe(LAW, 0.1, 1.0, 2, public_size=6, random_state=0, **changed)


@cache
def _fitted() -> Any:
    return _probe().fit(X, Y)


@cache
def _profile() -> PrivacyProfile:
    return rf.privacy_profile(LAW, THETA, 0.1)


def _account() -> rf.PerInstanceAccountant:
    account = rf.PerInstanceAccountant(LAW, 0.1, ORDERS)
    account.step(THETA)
    return account


def _guarantee() -> Guarantee:
    return _account().guarantee(1e-5)


def _labelled() -> rf.Pate:
    pate = rf.Pate(2.0)
    pate.label([[5, 3], [8, 0]])
    return pate


def _ledger() -> rf.Ledger:
    return rf.Ledger(epsilon=99.0, delta=1e-3, planned=True)


def _engine() -> rf.PrivacyEngine:
    return rf.PrivacyEngine(LAW, rf.Clamp(0.1), seed=0)


def _private_engine() -> rf.PrivacyEngine:
    engine = _engine()
    engine.make_private(**_objects())
    return engine


def _objects() -> dict[str, Any]:
    model = nn.Linear(2, 2)
    data = torch.utils.data.TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return {"model": model, "optimizer": optimizer, "loader": torch.utils.data.DataLoader(data, batch_size=3)}


def _step(**arguments: Any) -> Any:
    """One step of training with this input."""
    model, optimizer, loader = _engine().make_private(**_objects())
    next(iter(loader))
    try:
        outputs = model(arguments["input"])
    except RuntimeError as error:
        if "shapes cannot be multiplied" in str(error):  # the model's own error, about rows it does not take
            return None
        raise
    outputs.sum().backward()
    return optimizer.step()


def _then(function: Callable[..., Any], use: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function, and what is asked of its answer."""

    @wraps(function)
    def call(**given: Any) -> Any:
        return use(function(**given))

    return call


def _of(make: Callable[[], Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of an object that is made for every call; of an account the state after its step."""

    @wraps(method)
    def call(**given: Any) -> Any:
        made = make()
        answer = getattr(made, method.__name__)(**given)
        if method.__name__ != "step":
            return answer
        return made.state_dict() if hasattr(made, "state_dict") else made.fisher_information_loss()

    return call


_LAW_AND_THETA = {"mechanism": LAW, "theta": THETA, "sensitivity": 0.1}
_TARGET = {**_LAW_AND_THETA, "epsilon": 1.0, "delta": 1e-5}
_TABLE = {"data": FRAME, "by": ["region"], "domain": {"region": ["n", "s"]}, "epsilon": 1.0}
_JACOBIAN = torch.ones(4, 2, dtype=torch.float64)
_WINNER = rf.NoisyWinner(1.0)

# name: the call, and good arguments in place of its defaults; a function gives new ones for every call
Arguments = dict[str, Any] | Callable[[], dict[str, Any]]
FUNCTIONS: dict[str, tuple[Callable[..., Any], Arguments]] = {
    "Gaussian": (rf.Gaussian, {"sigma": 1.0}),
    "RectifiedGaussian": (rf.RectifiedGaussian, {"sigma": ROW, "bound": 2.0}),
    "TruncatedGaussian": (rf.TruncatedGaussian, {"sigma": 1.0, "bound": (-1.0, 2.0)}),
    "QuantizedGaussian": (rf.QuantizedGaussian, {"sigma": 1.0, "bound": 2.0, "levels": 5}),
    "StochasticSign": (rf.StochasticSign, {"sigma": 1.0}),
    "NoisyWinner": (rf.NoisyWinner, {"sigma": 1.0}),
    "GumbelWinner": (rf.GumbelWinner, {"scale": 1.0}),
    "ConfidentWinner": (rf.ConfidentWinner, {"sigma": 1.0, "threshold": 2.0, "threshold_sigma": 1.0}),
    "Mechanism.by_name": (rf.Mechanism.by_name, {"name": "rectified", "sigma": 1.0, "bound": 2.0}),
    "Mechanism.sample": (LAW.sample, {"theta": THETA, "generator": GENERATOR}),
    "Mechanism.release": (LAW.release, {"theta": THETA, "secure": False, "generator": GENERATOR}),
    "Mechanism.release secure": (LAW.release, {"theta": THETA}),
    "Mechanism.log_prob": (LAW.log_prob, {"value": THETA, "theta": THETA}),
    "Mechanism.fisher_information": (LAW.fisher_information, {"theta": THETA}),
    "Mechanism.renyi_divergence": (LAW.renyi_divergence, {"theta": THETA, "shift": ROW, "alpha": ROW + 1}),
    "Mechanism.renyi_curve": (LAW.renyi_curve, {"theta": THETA, "shift": 0.1, "orders": ORDERS}),
    "Mechanism.hockey_stick": (LAW.hockey_stick, {"theta": THETA, "shift": ROW, "epsilon": ROW}),
    "Mechanism.loss_moments": (LAW.loss_moments, {"theta": THETA, "shift": 0.1}),
    "Mechanism.pair": (rf.StochasticSign(1.0).pair, {"theta": THETA, "shift": 0.1}),
    "Mechanism.from_state_dict": (rf.Mechanism.from_state_dict, {"state": LAW.state_dict()}),
    "SecureRelease": (SecureRelease, {"law": LAW}),
    "SecureRelease.draw": (SecureRelease(LAW).draw, {"theta": THETA}),
    "Decision.release": (_WINNER.release, {"counts": COUNTS}),
    "Decision.sample": (_WINNER.sample, {"counts": COUNTS, "generator": GENERATOR}),
    "Decision.log_prob": (_WINNER.log_prob, {"winner": 1, "counts": COUNTS}),
    "Decision.renyi_divergence": (
        _WINNER.renyi_divergence,
        {"counts": COUNTS, "move": torch.ones(3), "alpha": 2.0},
    ),
    "Decision.chance_of_error": (_WINNER.chance_of_error, {"counts": COUNTS}),
    "Decision.from_state_dict": (Decision.from_state_dict, {"state": _WINNER.state_dict()}),
    "Clamp": (rf.Clamp, {"sensitivity": ROW[:1]}),
    "Norm": (rf.Norm, {"norm": 0.1}),
    "Sensitivity": (rf.Sensitivity, {"each": ROW, "at_most": 1}),
    "Sensitivity.of": (rf.Sensitivity.of, {"value": 1.0}),
    "Noise": (Noise, {"seed": 0}),
    "Ledger": (rf.Ledger, {"epsilon": 1.0}),
    "Ledger.release": (_of(_ledger, rf.Ledger.release), {**_LAW_AND_THETA, "what": "a"}),
    "Ledger.charge": (_of(_ledger, rf.Ledger.charge), {"what": "a", "cost": (0.1, 1e-9)}),
    "Ledger.guarantee": (_of(_ledger, rf.Ledger.guarantee), {"delta": 1e-3}),
    "Ledger.train": (_of(_ledger, rf.Ledger.train), lambda: {"engine": _private_engine(), "steps": 3}),
    "Ledger.fit": (lambda **given: _ledger().fit(given["estimator"], X, Y), lambda: {"estimator": _probe()}),
    "per_instance_rdp": (rf.per_instance_rdp, {**_LAW_AND_THETA, "orders": ORDERS}),
    "privacy_profile": (_then(rf.privacy_profile, lambda found: found.delta(0.1)), _LAW_AND_THETA),
    "PrivacyProfile.epsilon": (_of(_profile, PrivacyProfile.epsilon), {"delta": 1e-5}),
    "PrivacyProfile.delta": (_of(_profile, PrivacyProfile.delta), {"epsilon": 1.0}),
    "PerInstanceAccountant": (
        rf.PerInstanceAccountant,
        {"mechanism": LAW, "sensitivity": 0.1, "orders": ORDERS},
    ),
    "PerInstanceAccountant.step": (_of(_account, rf.PerInstanceAccountant.step), {"theta": THETA}),
    "PerInstanceAccountant.guarantee": (_of(_account, rf.PerInstanceAccountant.guarantee), {"delta": 1e-5}),
    "PerInstanceAccountant.from_state_dict": (
        rf.PerInstanceAccountant.from_state_dict,
        {"state": _account().state_dict()},
    ),
    "Guarantee.trade_off": (
        _of(_guarantee, Guarantee.trade_off),
        {"false_positive_rates": np.array([0.0, 1.0])},
    ),
    "Guarantee.true_positive_rate": (_of(_guarantee, Guarantee.true_positive_rate), {}),
    "ExampleAccountant.step": (
        _of(lambda: rf.ExampleAccountant(LAW, ORDERS), rf.ExampleAccountant.step),
        {"theta": THETA, "gradients": _JACOBIAN.T},
    ),
    "ExampleAccountant": (rf.ExampleAccountant, {"mechanism": LAW, "orders": ORDERS}),
    "FisherAccountant": (rf.FisherAccountant, {"mechanism": LAW}),
    "FisherAccountant.step": (
        _of(lambda: rf.FisherAccountant(LAW), rf.FisherAccountant.step),
        {"theta": THETA, "jacobian": _JACOBIAN},
    ),
    "fisher_information_loss": (
        rf.fisher_information_loss,
        {"mechanism": LAW, "theta": THETA, "jacobian": _JACOBIAN},
    ),
    "reconstruction_error_bound": (reconstruction_error_bound, {"fisher_information_loss": ROW}),
    "calibrate_sigma": (rf.calibrate_sigma, _TARGET),
    "calibrate_bound": (rf.calibrate_bound, {**_TARGET, "kind": "per_instance", "epsilon": 0.6}),
    "calibrate_steps": (rf.calibrate_steps, _TARGET),
    "SampledAccountant": (
        rf.SampledAccountant,
        {"mechanism": LAW, "sensitivity": 0.1, "sampling_rate": 0.1, "cut": 0.01},
    ),
    "SampledAccountant.step_worst_case": (
        _of(lambda: rf.SampledAccountant(LAW, 0.1, 0.1), rf.SampledAccountant.step_worst_case),
        {"theta": THETA, "sampling_rate": 0.2, "count": 3},
    ),
    "DecisionAccountant": (rf.DecisionAccountant, {"law": _WINNER, "neighbours": "added", "orders": ORDERS}),
    "DecisionAccountant.step": (
        _of(lambda: rf.DecisionAccountant(_WINNER, neighbours="added"), rf.DecisionAccountant.step),
        {"votes": COUNTS},
    ),
    "decision_profile": (
        _then(decision_profile, lambda found: found.delta(0.1)),
        {"law": _WINNER, "votes": COUNTS, "neighbours": "added"},
    ),
    "publishable_decision_epsilon": (
        publishable_decision_epsilon,
        {
            **{"law": rf.StochasticSign(9.0), "neighbours": "added", "delta": 1e-5, "at_most": 100},
            "votes": torch.full((200,), 500.0, dtype=torch.float64),
        },
    ),
    "publishable_epsilon": (
        rf.publishable_epsilon,
        {
            **{"mechanism": LAW, "thetas": [THETA], "sensitivity": 0.1, "delta": 1e-5},
            **{"publishing_zcdp": 0.1, "failure_probability": 1e-3},
        },
    ),
    "train_linear": (
        train_linear,
        {
            **{"features": torch.from_numpy(X), "labels": torch.from_numpy(Y), "classes": 2},
            **{"mechanism": LAW, "clip": rf.Clamp(0.1), "learning_rate": 1.0, "steps": 2},
            **{"public_size": 6, "seed": 0},
        },
    ),
    "LinearProbe": (
        _then(rf.LinearProbe, lambda probe: probe.fit(X, Y).coef_),
        {
            **{"mechanism": LAW, "clip": 0.1, "learning_rate": 1.0, "steps": 2, "momentum": 0.0},
            **{"public_center": np.array([0, 1]), "public_scale": np.array([1, 2]), "public_size": 6},
            **{"public_classes": [0, 1], "random_state": 0},
        },
    ),
    "LinearProbe.fit": (_then(_of(_probe, rf.LinearProbe.fit), lambda probe: probe.coef_), {"X": X, "y": Y}),
    "LinearProbe.predict": (_of(_fitted, rf.LinearProbe.predict), {"X": X}),
    "LinearProbe.predict_proba": (_of(_fitted, rf.LinearProbe.predict_proba), {"X": X}),
    "LinearProbe.guarantee": (_of(_fitted, rf.LinearProbe.guarantee), {"delta": 1e-5}),
    "LinearProbe.example_epsilons": (_of(_fitted, rf.LinearProbe.example_epsilons), {"delta": 1e-5}),
    "LinearProbe.fisher_information_loss": (_of(_fitted, rf.LinearProbe.fisher_information_loss), {}),
    "tune": (
        rf.tune,
        {
            **{"features": X, "labels": Y, "grid": {"steps": [1, 2]}, "target_epsilon": 8.0},
            **{"target_delta": 1e-3, "expected_runs": 2.0, "random_state": 0},
        },
    ),
    "PrivacyEngine": (rf.PrivacyEngine, {"mechanism": LAW, "clip": rf.Clamp(0.1), "seed": 0}),
    "PrivacyEngine.make_private": (_of(_engine, rf.PrivacyEngine.make_private), _objects),
    "PrivacyEngine.make_private_with_epsilon": (
        _of(_engine, rf.PrivacyEngine.make_private_with_epsilon),
        lambda: {**_objects(), "target_epsilon": 8.0, "target_delta": 1e-3, "epochs": 1},
    ),
    "PrivacyEngine.guarantee": (_of(_private_engine, rf.PrivacyEngine.guarantee), {"delta": 1e-5}),
    "PrivacyEngine.planned_cost": (_of(_private_engine, rf.PrivacyEngine.planned_cost), {"steps": 3}),
    "PrivacyEngine.save": (_of(_private_engine, rf.PrivacyEngine.save), {"path": "run"}),
    "PrivacyEngine.load": (_of(_private_engine, rf.PrivacyEngine.load), {"path": "nowhere"}),
    "PrivateModule": (_step, {"input": torch.ones(2, 2)}),
    "release_counts": (rf.release_counts, _TABLE),
    "release_counts of counts": (
        _then(rf.release_counts, lambda made: made.columns["count"]),
        {"data": ROW, "epsilon": 1.0},
    ),
    "release_means": (rf.release_means, {**_TABLE, "of": "age", "lower": 0.0, "upper": 9.0}),
    "release_sums": (rf.release_sums, {**_TABLE, "of": "age", "lower": 0.0, "upper": 9.0}),
    "release_quantiles": (rf.release_quantiles, {**_TABLE, "of": "age", "candidates": [0.0, 4.0, 9.0]}),
    "release_shares": (rf.release_shares, {"data": BALLOTS, "answers": [1, -1], "epsilon": 1.0}),
    "release_votes": (rf.release_votes, {"ballots": BALLOTS, "epsilon": 1.0}),
    "release_votes of an array": (
        _then(rf.release_votes, lambda made: len(made.values)),
        {"ballots": np.sign(X), "epsilon": 1.0},
    ),
    "release_winners": (rf.release_winners, {"data": BALLOTS, "candidates": [1, -1], "epsilon": 1.0}),
    "release_winners of an array": (
        _then(rf.release_winners, lambda made: len(made.values)),
        {"data": COUNTS, "epsilon": 1.0},
    ),
    "Pate": (
        _then(rf.Pate, lambda pate: pate.label([[5, 3], [8, 0]])),
        {"sigma": 2.0, "threshold": 4, "threshold_sigma": 2.0, "delta": 1e-5, "classes": ["a", "b"]},
    ),
    "Pate.label": (lambda **given: len(rf.Pate(2.0).label(**given)), {"votes": np.array([[5, 3], [8, 0]])}),
    "Pate.label of predictions": (
        lambda **given: rf.Pate(2.0, classes=[1, 0, 2], seed=0).label(**given),
        {"predictions": np.eye(3)},
    ),
    "Pate.publish": (_of(_labelled, rf.Pate.publish), {"delta": 1e-5, "failure_probability": 0.1}),
    "Pate.guarantee": (_of(_labelled, rf.Pate.guarantee), {"delta": 1e-5}),
}
# These take up to a second for every call: the long run has them.
SLOW = {"tune", "calibrate_bound", "calibrate_steps", "publishable_epsilon", "privacy_profile"}


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


_FILES = ("path", "data", "ballots", "votes", "predictions")  # may be names of files
# parts of arguments that are tables, or that training takes
_TABLES = ("counts", "clip", "weights", "features", "file", "data", "column", "table", "columns")


def good(name: str) -> dict[str, Any]:
    """Arguments that the function takes: all that it has."""
    call, arguments = FUNCTIONS[name]
    parameters = signature(call).parameters.items()
    defaults = {one: given.default for one, given in parameters if given.default is not given.empty}
    return {**defaults, **(arguments() if callable(arguments) else arguments)}


def fault(name: str, argument: str, value: Any) -> str | None:
    """What a call with one hostile argument broke, or None.

    A refusal is a ValueError, a TypeError or a FloatingPointError that a ``raise`` of ours raised, and that
    names an argument; a file that cannot be read or written is an OSError.
    """
    call, _ = FUNCTIONS[name]
    arguments = {**good(name), argument: value}
    names = (*arguments, *PARTS, *_TABLES)
    try:
        with _limit(), chdir(PLACE):
            calls_well(call, names=names, ours=True, **arguments)
    except HangError as error:
        return f"{name}({argument}={_shown(value)}): {error}"
    except ContractError as error:
        if isinstance(error.__cause__, OSError) and argument in _FILES:
            return None
        return f"{name}({argument}={_shown(value)}): {str(error.__cause__ or error).splitlines()[0][:160]}"
    return None


def _shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:
        text = f"{type(value).__name__} without repr: {error}"
    return f"{type(value).__name__} {text[:60]}"


def main(names: list[str]) -> int:
    as_in_the_tests()
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

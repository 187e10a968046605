"""Training: hostile data, hostile settings; nothing is released before all of it was checked."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import ringfence as rf
from ringfence.noise import Noise
from ringfence.training.engine.batches import FullBatches, PoissonBatches
from ringfence.training.linear import train_linear
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import calls_well
from tests.fuzz.properties import fuzzed

NAMES = (
    *("mechanism", "clip", "learning_rate", "steps", "momentum", "public_size", "public_classes", "features"),
    *(
        "public_center",
        "public_scale",
        "random_state",
        "labels",
        "sigma",
        "bound",
        "theta",
        "X",
        "y",
        "delta",
    ),
    *("device", "classes", "levels", "generator", "fit_intercept", "weights"),
)
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(6, 2)
Y = np.array([0, 1, 0, 1, 1, 0])
laws = fuzz.mostly(fuzz.mechanisms(), one_in=10)


SETTINGS = {
    "mechanism": laws,
    "clip": fuzz.mostly(st.one_of(fuzz.extreme_sizes(), st.builds(rf.Clamp, fuzz.sizes(1e-3, 1.0)))),
    "learning_rate": fuzz.mostly(fuzz.extreme_sizes()),
    "steps": fuzz.mostly(st.integers(1, 3)).filter(lambda steps: not (isinstance(steps, int) and steps > 99)),
}


@fuzzed(
    "training",
    share=0.2,
    few=8,
    settings=st.fixed_dictionaries(
        {
            **SETTINGS,
            "momentum": fuzz.mostly(st.floats(0, 0.99)),
            "public_size": st.one_of(st.none(), fuzz.mostly(fuzz.extreme_sizes())),
            "public_center": fuzz.mostly(fuzz.signed()),
            "public_scale": fuzz.mostly(fuzz.extreme_sizes()),
            "public_classes": st.one_of(st.none(), fuzz.mostly(st.just([0, 1]))),
            "random_state": fuzz.mostly(st.integers(0, 9), one_in=8),
        }
    ),
    features=fuzz.mostly(st.just(X), one_in=3),
    labels=fuzz.mostly(st.just(Y), one_in=4),
    delta=fuzz.mostly(fuzz.deltas),
)
def test_probes(settings: dict[str, Any], features: Any, labels: Any, delta: Any) -> None:
    probe = rf.LinearProbe(**settings)
    # scikit-learn's own checks of X and y speak of arrays, samples and targets
    words = ("array", "samples", "Input", "input", "target", "label", "Sparse", "sparse", "dtype", "numeric")
    words += ("float", "Complex", "ScalarType", "convert", "complex")
    if calls_well(probe.fit, features, labels, names=(*NAMES, *words)) is not None:
        assert np.isfinite(probe.coef_).all()
        calls_well(probe.guarantee, delta)


@fuzzed(
    "training",
    share=0.2,
    few=5,
    settings=st.fixed_dictionaries(
        {
            **SETTINGS,
            "clip": st.just(rf.Clamp(0.1)),
            "learning_rate": fuzz.mostly(fuzz.sizes(1e-3, 10.0)),
            "seed": fuzz.mostly(st.none() | st.integers(0, 2**200), one_in=8),
        }
    ),
    features=fuzz.mostly(st.just(torch.from_numpy(X)), one_in=3),
    labels=fuzz.mostly(st.just(torch.from_numpy(Y)), one_in=3),
    classes=fuzz.mostly(st.just(2)).filter(lambda classes: not (isinstance(classes, int) and classes > 99)),
)
def test_linear_training(settings: dict[str, Any], features: Any, labels: Any, classes: Any) -> None:
    run = calls_well(train_linear, features, labels, classes, public_size=6, **settings, names=NAMES)
    assert run is None or bool(torch.isfinite(run.weights).all())


@fuzzed("training", share=5, few=20, size=fuzz.hostile(), kind=st.sampled_from((rf.Clamp, rf.Scale)))
def test_clips(size: Any, kind: Any) -> None:
    clip = calls_well(kind, size, names=("clip",))
    if clip is not None:
        assert float(clip(torch.tensor([[3e38, -1.0], [0.0, 1e-45]])).abs().max()) <= clip.sensitivity


@fuzzed(
    "training",
    share=0.3,
    few=20,
    law=laws,
    clip=fuzz.mostly(st.just(rf.Clamp(0.1))),
    choices=st.fixed_dictionaries(
        {},
        optional={
            "sampling": fuzz.mostly(st.sampled_from(("poisson", "full"))),
            "public_size": fuzz.mostly(fuzz.extreme_sizes()),
            "loss_reduction": fuzz.mostly(st.sampled_from(("mean", "sum"))),
            "fisher_every": fuzz.mostly(st.integers(0, 3)),
            "fisher_kind": fuzz.mostly(st.sampled_from(("spectral", "trace"))),
            "auxiliary_batches": fuzz.mostly(st.integers(0, 3)),
            "memory_budget": fuzz.mostly(st.just(1 << 20)),
            "seed": fuzz.mostly(st.integers(0, 9)),
        },
    ),
)
def test_engines(law: Any, clip: Any, choices: dict[str, Any]) -> None:
    engine = calls_well(rf.PrivacyEngine, law, clip, **choices, names=("loss",))
    if engine is not None:
        data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
        model = torch.nn.Linear(2, 2)
        calls_well(
            engine.make_private,
            model,
            torch.optim.SGD(model.parameters(), lr=1.0),
            torch.utils.data.DataLoader(data, batch_size=3),
            names=(*NAMES, "lower", "upper", "batch_size", "memory_budget"),
        )


@fuzzed(
    "training",
    share=3,
    few=15,
    kind=st.sampled_from((FullBatches, PoissonBatches)),
    count=st.integers(0, 20),
    batch_size=st.integers(1, 30),
    public_size=fuzz.extreme_sizes(),
    step=st.integers(0, 5),
    seed=st.integers(0, 2**63),
)
def test_batches(kind: Any, count: int, batch_size: int, public_size: float, step: int, seed: int) -> None:
    batches = calls_well(kind, count, batch_size, public_size)
    if batches is not None:
        parts = batches.of_step(step, Noise(seed))
        assert [part.last for part in parts] == [*[False] * (len(parts) - 1), True]
        assert all(0 <= index < count for part in parts for index in part.indices)

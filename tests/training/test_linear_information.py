"""Fisher information loss of a linear model's examples: against jacobians by automatic differentiation."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.numerics import diagonal_plus_low_rank
from ringfence.training import linear_information as subject
from ringfence.training.linear_information import linear_information
from tests.mechanisms.cases import CASES, Case

CLIPS = (rf.Clamp(0.3), rf.Norm(0.9), rf.Norm(0.9, each=0.3))
every_clip = pytest.mark.parametrize("clip", CLIPS, ids=repr)
SHAPES = ((4, 12), (2, 3), (3, 40), (5, 1))
# every clip with every shape under one law, and every law with one of them: a law is a weight of coordinates
MET = [
    *((CASES[0], clip, shape) for clip in CLIPS for shape in SHAPES),
    *((case, CLIPS[i % 3], SHAPES[i % 4]) for i, case in enumerate(CASES) if i),
]
GAP = 5e-3  # stated in the docstring, on eta^2
GAPS = {"spectral": GAP, "trace": 1e-4}  # of the trace: rounding, which weighs where weights are large


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def drawn(count: int, classes: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """theta, weights, features, labels."""
    labels = torch.randint(0, classes, (count,), generator=torch.Generator().manual_seed(seed))
    theta, weights = draw(classes, width, seed=seed + 1), draw(classes, width, seed=seed + 2)
    return theta, weights, draw(count, width, seed=seed + 3), labels


def jacobians(weights: Tensor, features: Tensor, labels: Tensor, clip: rf.Clip) -> Tensor:
    """(n, d, p): the gradient of the loss, clipped, differentiated by torch."""

    def clipped(record: Tensor, own: Tensor) -> Tensor:
        shares = torch.softmax(weights @ record, dim=0)
        # softmax - e_y without cancellation, so that confident examples can be compared too
        residual = torch.where(own, -torch.where(own, 0.0, shares).sum(), shares)
        return clip((residual[:, None] * record)[None])[0].flatten()

    own = torch.nn.functional.one_hot(labels, len(weights)).bool()
    return torch.func.vmap(torch.func.jacrev(clipped))(features, own)


def exact(law: rf.Mechanism, theta: Tensor, matrices: Tensor, kind: str = "spectral") -> Tensor:
    eta = law.fisher_information(theta.double()).flatten().sqrt()
    weighted = eta[:, None] * matrices
    if kind == "trace":
        return weighted.square().sum((1, 2)) / matrices.shape[2]
    return torch.linalg.svdvals(weighted)[:, 0] ** 2


def holds(bound: Tensor, truth: Tensor, gap: float = GAP) -> bool:
    return bool(((bound >= truth * (1 - 1e-13)) & (bound <= truth * (1 + gap) + 1e-200)).all())


@pytest.mark.parametrize(("case", "clip", "shape"), MET)
def test_is_above_the_largest_singular_value_and_near(
    case: Case, clip: rf.Clip, shape: tuple[int, int]
) -> None:
    law = case.make(0.7, -1.0, 1.5)
    theta, weights, features, labels = drawn(40, *shape)
    matrices = jacobians(weights, features, labels, clip)
    for kind, gap in GAPS.items():
        ours = linear_information(law, theta, weights, features, labels, clip, kind=kind)
        assert holds(ours, exact(law, theta, matrices, kind), gap)


@every_clip
@pytest.mark.parametrize(
    ("size", "reach"), [(0.0, 1.0), (0.1, 0.01), (1.0, 1.0), (1.0, 30.0), (10.0, 0.01), (10.0, 30.0)]
)
def test_weights_clips_and_rates_of_any_size(
    clip: rf.Clip, size: float, reach: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From no weights at all to examples that are certain, from all clipped to none; in chunks of seven."""
    if isinstance(clip, rf.Norm):
        clip = rf.Norm(clip.norm * reach, each=None if clip.each is None else clip.each * reach)
    else:
        clip = type(clip)(clip.largest * reach)  # type: ignore[call-arg]
    law = rf.TruncatedGaussian(1.0, 2.0)
    theta, weights, features, labels = drawn(60, 3, 20, seed=5)
    monkeypatch.setattr(subject, "_CPU_ENTRIES", 7 * weights.numel())
    features[:10] = features[:10].relu()
    features[:, -1] = 1.0  # an intercept, which is no attribute
    features[0, -1] = 100.0
    rates = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    rates[-1] = 0.0
    for given, some in ((None, slice(None)), (rates, slice(-1))):
        matrices = jacobians(size * weights, features, labels, clip)
        matrices = (matrices if given is None else matrices * given)[:, :, some]
        for kind, gap in GAPS.items():
            ours = linear_information(law, theta, size * weights, features, labels, clip, given, kind=kind)
            assert holds(ours, exact(law, theta, matrices, kind), gap)


@every_clip
def test_examples_that_are_certain_have_hardly_any_information(clip: rf.Clip) -> None:
    """softmax - e_y underflows; what is left is more than nothing, and not NaN."""
    weights, features = torch.eye(3, 4).double() * 1e3, torch.eye(3, 4).double()
    ours = linear_information(rf.Gaussian(1.0), 0 * weights, weights, features, torch.arange(3), clip)
    assert bool(((ours > 0) & (ours < 1e-290)).all())


def test_saturated_examples_give_nothing_away() -> None:
    theta, weights, features, labels = drawn(20, 3, 6)
    features[:10] = 50 * features[:10].sign()
    ours = linear_information(rf.Gaussian(1.0), theta, 0 * weights, features, labels, rf.Clamp(1e-2))
    assert ours[:10].tolist() == [0.0] * 10
    at_the_kink = torch.tensor([[0.5, 8.0]]).double()
    zero = torch.zeros(2, 2).double()
    ours = linear_information(rf.Gaussian(1.0), zero, zero, at_the_kink, torch.tensor([0]), rf.Clamp(0.25))
    assert float(ours) == pytest.approx(0.5, rel=1e-9)  # counted as not clipped


@pytest.mark.parametrize(("clip", "factors"), [(rf.Clamp(9.0), 16), (rf.Norm(99.0), 24)])
def test_what_rounding_may_have_done_is_charged(
    clip: rf.Clip, factors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without weights J is diagonal, and twice the trace errs by the factors of its products."""
    theta, weights, features, labels = drawn(20, 3, 6)
    monkeypatch.setattr(subject, "relative_error", lambda _, lengths: torch.full_like(lengths, 1e-5))
    matrices = jacobians(0 * weights, features, labels, clip)
    truth = exact(rf.Gaussian(1.0), theta, matrices, "trace")
    ours = linear_information(rf.Gaussian(1.0), theta, 0 * weights, features, labels, clip, kind="trace")
    charged = torch.full_like(ours, 2 * factors * 1e-5)
    torch.testing.assert_close(ours / truth - 1, charged, rtol=1e-3, atol=0)


def test_every_trial_proves_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    theta, weights, features, labels = drawn(60, 3, 20, seed=7)
    law, clip = rf.TruncatedGaussian(1.0, 2.0), rf.Clamp(0.3)
    truth = exact(law, theta, jacobians(weights, features, labels, clip))
    gaps = []
    for trials in (0, 1, 2, 12):
        monkeypatch.setattr(diagonal_plus_low_rank, "_TRIALS", trials)
        ours = linear_information(law, theta, weights, features, labels, clip)
        assert bool((ours >= truth).all())
        gaps.append(float((ours / truth).max() - 1))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.5 > GAP > gaps[-1]


def test_scores_that_have_no_digits_are_refused() -> None:
    theta, weights, features, labels = drawn(5, 3, 4)
    with pytest.raises(ValueError, match="must be smaller"):
        linear_information(rf.Gaussian(1.0), theta, 1e8 * weights, 1e8 * features, labels, rf.Clamp(1.0))
    with pytest.raises(ValueError, match="must be smaller"):
        linear_information(rf.Gaussian(1.0), theta, 0 * weights, 1e200 * features, labels, rf.Clamp(1e38))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "worst"}, r"kind must be one of .*, got 'worst'"),
        (
            {"labels": torch.tensor([0, 1, 2, 1, 3])},
            r"labels must be integers in 0 \.\. 2, got 3\.0 at index \[4\]",
        ),
        ({"labels": torch.tensor([0, 1])}, "labels must be 5 numbers, got shape"),
        ({"features": torch.zeros(5, 3)}, "features \\(n, p\\), got shapes \\[3, 4\\] and \\[5, 3\\]"),
        ({"features": torch.full((5, 4), torch.nan)}, "features must not be NaN"),
        ({"weights": torch.full((3, 4), torch.inf)}, "weights must be finite"),
        ({"theta": torch.zeros(5)}, "theta must have shape \\[3, 4\\], got \\[5\\]"),
        ({"attributes": torch.ones(3)}, "attributes must be 4 numbers, got shape \\[3\\]"),
        ({"attributes": -torch.ones(4)}, "attributes must be >= 0, got -1.0 at index \\[0\\]"),
    ],
)
def test_bad_arguments_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    theta, weights, features, labels = drawn(5, 3, 4)
    arguments: dict[str, Any] = {"theta": theta, "weights": weights, "features": features, "labels": labels}
    arguments = {"mechanism": rf.Gaussian(1.0), "clip": rf.Clamp(1.0), **arguments, **changes}
    with pytest.raises(ValueError, match=message):
        linear_information(**arguments)


# ------------------------------------------------------------------ the probe

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 60)
FEATURES = RNG.normal(size=(60, 6)).astype(np.float32) + 2 * np.eye(3, 6, dtype=np.float32)[LABELS]


def fitted(labels: Any = LABELS, features: Any = FEATURES, **changes: Any) -> rf.LinearProbe:
    law = rf.TruncatedGaussian(1.0, 10.0)
    arguments = {"clip": 0.2, "learning_rate": 8.0, "steps": 3, "random_state": 0, **changes}
    return rf.LinearProbe(law, **arguments).fit(features, labels)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("labels", [LABELS, (LABELS > 0).astype(int)], ids=["three", "two"])
@pytest.mark.parametrize("clip", [0.2, rf.Norm(0.5)], ids=repr)
def test_of_a_probe_is_about_the_raw_features_over_all_steps(
    intercept: bool, labels: Any, clip: float | rf.Clip
) -> None:
    scale = np.arange(1.0, 7.0)
    probe = fitted(labels, clip=clip, fit_intercept=intercept, public_center=0.5, public_scale=scale)
    run = probe._training
    codes, rule, trajectory = run.data.labels, run.plan.settings.clip, run.run.trajectory
    raw = torch.from_numpy(FEATURES).double()

    def scaled(record: Tensor) -> Tensor:
        inside = (record - 0.5) / torch.from_numpy(scale)
        return torch.cat((inside, torch.ones(1).double())) if intercept else inside

    inner, outer = torch.func.vmap(scaled)(raw), torch.func.vmap(torch.func.jacrev(scaled))(raw)
    steps = [(s.theta, jacobians(s.weights.double(), inner, codes, rule) @ outer) for s in trajectory]
    for kind, gap in (("spectral", GAP), ("trace", 1e-5)):
        total = sum(exact(probe.mechanism, theta, matrices, kind) for theta, matrices in steps)
        ours = torch.from_numpy(probe.fisher_information_loss(kind=kind)).square()
        # training rounded the scaled features to float32
        assert bool(((ours >= total * (1 - 1e-5)) & (ours <= total * (1 + gap))).all())


def test_of_a_probe_is_in_the_order_of_fit() -> None:
    probe = fitted(steps=1)
    losses = probe.fisher_information_loss()
    order = np.random.default_rng(1).permutation(60)
    shuffled = fitted(LABELS[order], FEATURES[order], steps=1).fisher_information_loss()
    assert np.allclose(shuffled, losses[order], rtol=1e-3)
    assert not np.allclose(shuffled, losses, rtol=1e-3)
    assert (probe.fisher_information_loss("trace") <= losses).all()


def test_a_saved_probe_does_not_hold_the_data() -> None:
    with pytest.raises(ValueError, match="fisher_information_loss needs the training data"):
        pickle.loads(pickle.dumps(fitted())).fisher_information_loss()
    with pytest.raises(ValueError, match="kind must be"):
        fitted().fisher_information_loss(kind="worst")

"""Secure runs: points of a public grid, no seed, and the rounding of sums in the account."""

from copy import deepcopy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import ringfence as rf
from ringfence.mechanisms.secure import SecureRelease
from ringfence.training import linear
from ringfence.training.clipping import secure_sensitivity
from ringfence.training.linear import train_linear
from ringfence.training.per_example.gradients import ExampleGradients
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, network, refused

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 200)
X = RNG.normal(size=(200, 4)) + Y[:, None]
PROBE_LAW = rf.TruncatedGaussian(2.0, 20.0)


def _probe(**changes: Any) -> rf.LinearProbe:
    settings = {
        "clip": 0.1,
        "learning_rate": 8.0,
        "steps": 3,
        "public_center": 1.0,
        "public_size": 200,
        "secure": True,
    }
    return rf.LinearProbe(PROBE_LAW, **{**settings, **changes})


def stretched(size: Any, count: int, spread: float = 0.0) -> rf.Sensitivity:
    """The sensitivity with the rounding of so many examples."""
    return secure_sensitivity(size, 1, count / 2, spread)


def _stretched(size: float, count: int, spread: float = 0.0) -> float:
    return float(stretched(size, count, spread).farthest)


def _on_the_grid(values: torch.Tensor, law: rf.Mechanism) -> bool:
    step = float(SecureRelease(law).step)
    return bool((values / step == (values / step).round()).all())


@pytest.mark.parametrize("count", [3, 1000, 100_000])
def test_rounded_sums_stay_within_the_stretched_sensitivity(count: int) -> None:
    """Against exact rational sums, over the orders that float64 sums are taken in."""
    values = torch.rand(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64) * 2 - 1
    values[0] = 1.0
    sums = [values.sum(), values[1:].sum(), values[1:].flip(0).cumsum(0)[-1], values.cumsum(0)[-1]]
    with_it, without = (float(sums[0]), float(sums[3])), (float(sums[1]), float(sums[2]))
    largest = max(abs(Fraction(a) - Fraction(b)) for a in with_it for b in without)
    assert largest <= Fraction(_stretched(1.0, count))
    assert 1 < _stretched(1.0, count) < 1 + 1e-5
    exact = sum(map(Fraction, values.tolist()))
    bound = (Fraction(_stretched(1.0, count)) - 1) / 2
    assert all(abs(Fraction(one) - exact) <= bound for one in with_it)


def test_rounded_sums_of_vectors_stay_within_the_stretched_length() -> None:
    values = torch.randn(1000, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values /= values.norm(dim=1, keepdim=True) * (1 + 1e-15)
    allowed = stretched(rf.Sensitivity(norm=1.0), 1000).norm
    assert allowed is not None
    assert 1 < allowed < 1 + 1e-9
    with_it, without = values.cumsum(0)[-1].tolist(), values[1:].flip(0).cumsum(0)[-1].tolist()
    square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(with_it, without, strict=True))
    assert square <= Fraction(allowed) ** 2
    both = stretched(rf.Sensitivity(each=0.5, norm=1.0), 1000)
    assert both == rf.Sensitivity(each=allowed / 2, norm=allowed)


def test_the_slack_is_the_formula() -> None:
    count, spread = 10**6 + 1, 2.0**-32
    unit = 2.0**-53
    wanted = 0.1 * (1 + 2 * count * (count * unit / (1 - count * unit) + spread))
    assert _stretched(0.1, 10**6, spread) == pytest.approx(wanted, rel=1e-14, abs=0)
    assert _stretched(0.1, 10**6, spread) >= wanted


def test_rounding_is_charged_for_a_public_number_of_examples() -> None:
    assert secure_sensitivity(1.0, 10, 7.5) == secure_sensitivity(1.0, 15, 7.5) == stretched(1.0, 15)
    with pytest.raises(ValueError, match=r"public_size must be at least half .* got 4"):
        secure_sensitivity(1.0, 10, 4)


def test_the_rounding_of_an_engine_is_charged_by_the_public_size_and_not_by_the_examples() -> None:
    """The account of a secure run would otherwise tell how many records there are."""
    for examples in (60, 40):
        run = Run(inputs=INPUTS[:examples], labels=LABELS[:examples], public_size=50, secure=True, seed=None)
        assert run.engine.account.sensitivity == stretched(CLIP.sensitivity, 100)


def test_probe_releases_are_points_of_the_public_grid() -> None:
    probe = _probe(steps=1).fit(X, Y)
    released = -torch.from_numpy(probe.coef_) * len(X) / 8.0
    assert torch.allclose(released, (released * 1024).round() / 1024, atol=1e-12)
    assert float(released.abs().max()) <= 20.0
    assert not np.array_equal(probe.coef_, _probe(steps=1).fit(X, Y).coef_)  # there is no seed


def test_a_secure_probe_costs_a_little_more_and_not_less() -> None:
    secure = _probe(steps=1).fit(X, Y)
    plain = _probe(steps=1, secure=False, random_state=0).fit(X, Y)
    assert secure.account_.sensitivity == stretched(0.1, 400, linear._SPREAD)
    assert plain.account_.sensitivity == rf.Sensitivity(0.1)
    ours, theirs = secure.guarantee(1e-5), plain.guarantee(1e-5)
    assert theirs.epsilon < ours.epsilon
    assert ours.epsilon == pytest.approx(theirs.epsilon, rel=1e-5)
    assert ours.delta == 1e-5
    assert len(secure.example_epsilons(1e-5)) == len(X)


def test_a_seed_and_secure_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="random_state must be None, got 3"):
        _probe(random_state=3).fit(X, Y)
    with pytest.raises(TypeError, match="secure must be True or False, got 1"):
        _probe(secure=1).fit(X, Y)
    with pytest.raises(ValueError, match=r"^seed must be None, got 3"):
        rf.PrivacyEngine(LAW, CLIP, seed=3, secure=True)
    features, labels = torch.from_numpy(X), torch.from_numpy(Y)
    settings = {"mechanism": PROBE_LAW, "clip": CLIP, "learning_rate": 1.0, "steps": 1, "public_size": 200}
    with pytest.raises(ValueError, match="seed must be None, got 0: secure releases have no seed"):
        train_linear(features, labels, 3, **settings, seed=0, secure=True)


def test_features_whose_scores_lose_their_digits_are_refused() -> None:
    with pytest.raises(ValueError, match="features and weights must be smaller in a secure run"):
        _probe(steps=2, clip=1e3, learning_rate=1e3).fit(X * 1e3, Y)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_engine_releases_are_points_of_the_public_grid(sampling: str) -> None:
    run = Run(seed=None, secure=True, public_size=60, sampling=sampling)
    gradients: list[torch.Tensor] = []
    release = run.engine.run.releases.release

    def seen(*args: Any) -> torch.Tensor:
        gradients.append(release(*args))
        return gradients[-1]

    run.engine.run.releases.release = seen  # type: ignore[method-assign]
    run.train(2)
    assert all(value.dtype == torch.float64 and _on_the_grid(value, LAW) for value in gradients)
    assert run.engine.account.sensitivity == stretched(CLIP.sensitivity, 120)
    plain = Run(sampling=sampling, loss=torch.nn.functional.cross_entropy).train(2).engine.guarantee(1e-5)
    ours = run.engine.guarantee(1e-5)
    assert ours.epsilon >= plain.epsilon
    assert ours.epsilon == pytest.approx(plain.epsilon, rel=1e-6)


def test_an_example_computed_alone_adds_the_same_whoever_shares_its_batch() -> None:
    def added(batch: list[int]) -> torch.Tensor:
        """By example 5: the others' cotangents are 0."""
        gradients = ExampleGradients(network(), memory_budget=1)
        outputs = gradients.forward(((INPUTS[batch],), {})).requires_grad_()
        torch.nn.functional.cross_entropy(outputs, LABELS[batch], reduction="sum").backward()
        assert outputs.grad is not None
        mine = torch.tensor([[float(i == 5)] for i in batch])
        return gradients.clipped_sum(((INPUTS[batch],), {}), outputs.grad * mine, CLIP, torch.float64)

    alone = added([5])
    assert alone.abs().max() > 0
    assert torch.equal(alone, added(list(range(60))))
    assert torch.equal(alone, added(list(range(3, 20))))


def product(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A loss whose gradient by an output is its target, divided by the number of rows."""
    return (outputs * targets).mean()


def sums_with_and_without_a_person(**settings: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Twenty people whose two rows nearly cancel, each row 2^21 times the clip, and one who adds nothing."""
    large = 2.0**21 * (1 + torch.rand(20, generator=torch.Generator().manual_seed(0)))
    targets = torch.stack((large, 1 - large), dim=1).flatten().unsqueeze(1)
    sums = []
    for rows in (torch.cat((targets, torch.zeros(2, 1))), targets):
        people = {"units": [i // 2 for i in range(len(rows))], "rows_per_unit": 2, "public_size": 20.0}
        how: dict[str, Any] = {"clip": rf.Norm(1.0), "mechanism": rf.Gaussian(1.0), "batch_size": 64}
        data: dict[str, Any] = {"inputs": torch.ones(len(rows), 1), "labels": rows}
        run = Run(torch.nn.Linear(1, 1, bias=False), **data, **people, **how, **settings)
        for inputs, labels in run.loader:
            product(run.model(inputs), labels).backward()
            run.optimizer.step()
        assert run.engine.run.theta is not None
        sums.append(run.engine.run.theta.double())
    return sums[0], sums[1]


def test_rows_that_cancel_show_nothing_of_the_number_of_examples() -> None:
    """Divided by n and rounded, they moved everybody's gradient: by more than is charged."""
    with_it, without = sums_with_and_without_a_person()
    assert abs(float(with_it - without)) > 0.1
    for secure in (False, True):
        own = {"loss": product, "secure": secure, "seed": None, "memory_budget": 1}
        with_it, without = sums_with_and_without_a_person(**own)
        assert torch.equal(with_it, without)
        assert float(without) == pytest.approx(10.0, rel=1e-5)  # twenty halves


def test_what_an_example_adds_is_the_same_to_the_bit_whoever_shares_its_batch() -> None:
    """Powers of the last few of many numbers are computed in another way than those of the others."""

    def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return ((outputs * targets).abs() + 1).pow(1.7).mean()

    given = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    model, sums = torch.nn.Linear(3, 3), []
    for kept in (given[left:] for left in range(6)):
        own: dict[str, Any] = {
            "loss": loss,
            "secure": True,
            "seed": None,
            "memory_budget": 1,
            "batch_size": 61,
        }
        run = Run(deepcopy(model), inputs=kept, labels=kept, public_size=20, **own)
        seen: list[torch.Tensor] = []
        taken = run.engine.run.gradients.clipped_sum
        run.engine.run.gradients.clipped_sum = lambda *given, seen=seen, taken=taken: (  # type: ignore[method-assign]
            seen.append(given[1]),
            taken(*given),
        )[1]
        for inputs, labels in run.loader:
            loss(run.model(inputs), labels).backward()
            run.optimizer.step()
        sums.append(seen[0])
    assert all(torch.equal(sums[0][left:], sums[left]) for left in range(6))


def test_a_secure_mean_without_a_loss_is_refused() -> None:
    with refused("needs loss, a function of outputs and targets, or loss_reduction 'sum'"):
        rf.PrivacyEngine(LAW, CLIP, secure=True, public_size=60)
    assert rf.PrivacyEngine(LAW, CLIP, secure=True, public_size=60, loss_reduction="sum").loss is None

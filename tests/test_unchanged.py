"""Numbers that users see stay as they are: a release that moves one has to say so.

    python -m tests.test_unchanged    records the numbers again and prints which have moved

These tests know no truth, only what was printed before: that the numbers are right is for the tests beside
the code. A change that was not meant to matter is seen to matter here. If a number was meant to move,
record it again and say in CHANGELOG.md which moved and why.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.accounting.calibration import PerInstanceCalibrationWarning
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import decision_profile
from ringfence.accounting.fisher import coordinate_losses
from ringfence.accounting.guarantee import Guarantee
from ringfence.accounting.selection import selection_epsilon
from ringfence.numerics.operators import spectral_bounds, trace_bounds
from tests.accounting.matrices import batched
from tests.tensors import float64, seeded_releases

RECORD = Path(__file__).parent / "unchanged.json"
TOLERANCE = 1e-12  # relative; across the instruction sets that torch knows the largest difference was 4e-13
DELTA = 1e-5
LAWS: dict[str, Callable[[], rf.Mechanism]] = {
    "gaussian": lambda: rf.Gaussian(0.5),
    "rectified": lambda: rf.RectifiedGaussian(0.5, bound=1.0),
    "truncated": lambda: rf.TruncatedGaussian(0.5, bound=1.0),
    "sign": lambda: rf.StochasticSign(0.5),
    "quantized": lambda: rf.QuantizedGaussian(0.5, bound=1.0, levels=5),
}
THETA = float64([-1.7, -0.6, 0.0, 0.25, 0.9, 1.3])
ORDERS = [1.5, 2.0, 8.0, 64.0]


def spread(*shape: int) -> Tensor:
    """Numbers that fill [-1, 1] evenly, in no order, the same on every machine."""
    count = torch.Size(shape).numel()
    return (2 * ((0.5 + (5**0.5 - 1) / 2 * torch.arange(count).double()) % 1) - 1).reshape(shape)


def claims(guarantee: Guarantee) -> list[float]:
    own = guarantee.per_instance
    return [
        *(own.ex_post_epsilon, own.epsilon, own.renyi_epsilon),
        *(guarantee.epsilon, own.gaussian_ex_post_epsilon, own.gaussian_epsilon),
    ]


def numbers_of_a_law(law: rf.Mechanism) -> Iterator[tuple[str, Any]]:
    """What a user can ask of one law, without randomness."""
    yield "divergence", law.renyi_divergence(THETA, 0.3, 8.0)
    yield "hockey stick", law.hockey_stick(THETA, 0.3, 0.2)
    yield "information", law.fisher_information(THETA)
    yield "one step", rf.per_instance_rdp(law, spread(500), 1e-3, ORDERS).worst
    account = rf.PerInstanceAccountant(law, 1e-3)
    account.step(spread(500), count=10)
    claim = account.guarantee(DELTA)
    yield "account", claims(claim)
    yield "attacks", [claim.mu, claim.advantage, claim.true_positive_rate(), *claim.trade_off([0.01, 0.5])]
    profile = rf.privacy_profile(law, spread(40), 1e-2, steps=3)
    yield "profile", [profile.epsilon(DELTA), profile.delta(0.1)]
    few = rf.privacy_profile(law, float64([0.3, -1.2]), 0.2, steps=2)
    yield "profile of two", [few.epsilon(1e-3), *(proof(0.3) for proof in few.proofs.values())]
    examples = rf.ExampleAccountant(law)
    examples.step(THETA, float64([[1e-4], [1e-2], [0.1], [1.0]]) * spread(4, 6))
    yield "examples", [examples.epsilons(DELTA), examples.epsilons(DELTA, kind="per_instance")]
    fisher = rf.FisherAccountant(law)
    fisher.step(THETA, spread(3, 6, 2))
    fisher.step(THETA + 0.1, spread(3, 6, 2))
    yield "information loss", fisher.fisher_information_loss()
    operator = batched((coordinate_losses(law, THETA, 6)[:, None] * spread(6, 9))[None])
    found = spectral_bounds(operator, generator=torch.Generator().manual_seed(0), probes=4, tolerance=0.0125)
    yield "information bounds", found.sqrt()
    sampled = rf.SampledAccountant(law, 0.05, 0.2)
    sampled.step_worst_case(THETA, count=5)
    yield "sampled", claims(sampled.guarantee(DELTA))
    with seeded_releases():
        chosen = {"delta": DELTA, "publishing_zcdp": 1e-4, "failure_probability": 1e-3}
        numbers = [rf.publishable_epsilon(law, spread(200), move, **chosen) for move in (1e-3, 0.1)]
    yield "published", [[one.ex_post_epsilon, one.epsilon, one.order] for one in numbers]


def numbers_of_training() -> Iterator[tuple[str, Any]]:
    """A probe with a seed, and noise for a target."""
    labels = np.arange(120) % 3
    features = np.eye(3)[labels] + 0.1 * spread(120, 3).numpy()
    law = rf.TruncatedGaussian(4.0, bound=32.0)
    probe = rf.LinearProbe(law, 0.05, learning_rate=8.0, steps=5, fit_intercept=False, random_state=1).fit(
        features, labels
    )
    yield "weights", probe.coef_
    yield "probe", claims(probe.guarantee(DELTA))
    yield "probe examples", probe.example_epsilons(DELTA)[:5]
    yield "probe information loss", probe.fisher_information_loss()[:5]
    target = {"epsilon": 0.7, "delta": DELTA}
    yield "sigma", rf.calibrate_sigma(law, None, 0.05, steps=3, coordinates=100, **target)
    yield (
        "sampled sigma",
        rf.calibrate_sigma(law, None, 0.05, steps=30, coordinates=100, sampling_rate=0.1, **target),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerInstanceCalibrationWarning)
        yield (
            "bound",
            rf.calibrate_bound(law, spread(100), 0.2, kind="per_instance", epsilon=0.6, delta=DELTA),
        )


SURPLUSES = float64([15.0, -3.0, 40.0, 0.0])
COUNTS = float64([[40, 9, 2], [22, 20, 6], [12, 12, 12], [60, 1, 0]])
DECISIONS: dict[str, tuple[Any, Tensor]] = {
    "yes or no": (rf.StochasticSign(6.0), SURPLUSES),
    "winner": (rf.NoisyWinner(6.0), COUNTS),
    "confident winner": (rf.ConfidentWinner(6.0, threshold=25.0, threshold_sigma=8.0), COUNTS),
}


def numbers_of_decisions(law: Any, votes: Tensor) -> Iterator[tuple[str, Any]]:
    """What a user can ask of decisions on votes."""
    for neighbours in ("replaced", "added"):
        account = rf.DecisionAccountant(law, neighbours=neighbours, orders=ORDERS)  # type: ignore[arg-type]
        account.step(votes)
        account.step(votes[:2])
        claim = account.guarantee(DELTA)
        yield f"sums, {neighbours}", account.worst
        yield f"account, {neighbours}", claims(claim)
        yield f"attacks, {neighbours}", [claim.mu, claim.advantage, *claim.trade_off([0.01, 0.5])]
        profile = decision_profile(law, votes, neighbours=neighbours)
        yield (
            f"profile, {neighbours}",
            [profile.epsilon(1e-3), *(proof(0.3) for proof in profile.proofs.values())],
        )
    few = decision_profile(law, votes, neighbours="added", at_most=2)
    yield "profile of two", [few.epsilon(1e-3), *(proof(0.3) for proof in few.proofs.values())]
    if not isinstance(law, rf.Mechanism):
        move = float64([[-1.0, 1.0, 0.0], [0.0, 0.5, 0.0]]).unsqueeze(1)
        yield "divergence", law.renyi_divergence(votes, move, 8.0)


def numbers_of_moves_together() -> Iterator[tuple[str, Any]]:
    """Records that move few coordinates, or all of them together so far."""
    for name, thetas in (("rectified", [THETA]), ("sign", [THETA, spread(300)])):
        law = LAWS[name]()
        for size in (rf.Sensitivity(0.2, at_most=2), rf.Sensitivity(0.2, norm=0.3)):
            rdp = [rf.per_instance_rdp(law, theta, size, [1.5, 8.0]).worst for theta in thetas]
            yield f"{name}, {size!r}", torch.stack(rdp)
        few = rf.privacy_profile(law, 2 * spread(5), rf.Sensitivity(0.3, at_most=2), steps=2)
        yield f"{name}, profile", [few.epsilon(1e-3), *(proof(0.3) for proof in few.proofs.values())]


def numbers_of_costs() -> Iterator[tuple[str, Any]]:
    """The best of several runs, releases of several kinds, and many matrices."""
    yield "selection", [selection_epsilon(0.17, 10, DELTA), selection_epsilon(2.0, 3, DELTA)]
    released = rf.PerInstanceAccountant(LAWS["rectified"](), 0.1)
    released.step(THETA, count=3)
    with rf.Ledger(delta=DELTA) as ledger:
        ledger.charge("releases", released)
        ledger.charge("something else", (0.3, 1e-7))
        claim = ledger.guarantee()
    yield "ledger", [*claims(claim), claim.advantage, *claim.trade_off([1e-4, 1e-3, 0.01, 0.1, 0.5])]
    with seeded_releases():  # of what everybody is rather sure of
        sure = {"votes": [30.0] * 400, "neighbours": "added", "delta": DELTA, "at_most": 300}
        one = publishable_decision_epsilon(rf.StochasticSign(6.0), **sure)  # type: ignore[arg-type]
    yield "published decisions", [one.ex_post_epsilon, one.per_instance_epsilon, one.epsilon]
    operator, generator = batched(spread(3, 6, 9)), torch.Generator().manual_seed(0)
    yield "singular values", spectral_bounds(operator, generator=generator, tolerance=0.01).sqrt()
    yield "traces", trace_bounds(operator, generator=generator, probes=5)[0]


CASES: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    **{name: lambda make=make: numbers_of_a_law(make()) for name, make in LAWS.items()},  # type: ignore[misc]
    **{name: lambda own=own: numbers_of_decisions(*own) for name, own in DECISIONS.items()},  # type: ignore[misc]
    "moves together": numbers_of_moves_together,
    "costs": numbers_of_costs,
    "training": numbers_of_training,
}


def computed(case: str) -> dict[str, list[float]]:
    return {
        name: [float(number) for number in np.asarray(_plain(values), dtype=np.float64).reshape(-1)]
        for name, values in CASES[case]()
    }


def _plain(values: Any) -> Any:
    """Tensors as lists, however deep."""
    return [_plain(value) for value in values] if isinstance(values, list) else np.asarray(values).tolist()


def moved(before: dict[str, list[float]], after: dict[str, list[float]]) -> list[str]:
    """What is no longer the same, in words."""
    found = [f"names {sorted(names)}"] if (names := before.keys() ^ after.keys()) else []
    for name in before.keys() & after.keys():
        if len(before[name]) != len(after[name]):
            found.append(f"{name}: {len(before[name])} numbers, now {len(after[name])}")
        found += [
            f"{name}[{i}]: {old!r}, now {new!r}"
            for i, (old, new) in enumerate(zip(before[name], after[name], strict=False))
            if not math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=0.0)
        ]
    return sorted(found)


@pytest.mark.parametrize("case", CASES)
def test_is_what_it_was(case: str) -> None:
    assert not moved(json.loads(RECORD.read_text())[case], computed(case)), "meant? see the docstring above"


def test_sees_what_moves() -> None:
    before = {"a": [1.0, 2.0], "b": [float("inf"), 0.0]}
    assert moved(before, before) == []
    more = 2.0 * (1 + 2 * TOLERANCE)
    assert moved(before, {**before, "a": [1.0, more]}) == [f"a[1]: 2.0, now {more!r}"]
    assert moved(before, {**before, "b": [float("inf"), 1e-300]}) == ["b[1]: 0.0, now 1e-300"]
    assert moved(before, {**before, "a": [1.0]}) == ["a: 2 numbers, now 1"]
    assert moved(before, {"a": [1.0, 2.0]}) == ["names ['b']"]


if __name__ == "__main__":
    torch.set_num_threads(1)
    now = {case: computed(case) for case in CASES}
    for case, values in json.loads(RECORD.read_text()).items() if RECORD.exists() else ():
        for line in moved(values, now[case]):
            print(f"{case}: {line}")
    RECORD.write_text(json.dumps(now, indent=1) + "\n")
    print(f"{sum(len(row) for values in now.values() for row in values.values())} numbers in {RECORD.name}")

"""Laws: built from anything, asked anything."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

import ringfence as rf
from ringfence.mechanisms.secure import SecureRelease
from tests.fuzz import strategies as fuzz
from tests.fuzz.contract import ContractError, calls_well, nan_in
from tests.fuzz.properties import fuzzed

PARAMETERS = ("sigma", "bound", "lower", "upper", "levels", "step", "orders")

sigmas = fuzz.mostly(fuzz.spread(fuzz.extreme_sizes()))
thetas = fuzz.mostly(fuzz.spread(fuzz.signed()))
shifts = fuzz.mostly(fuzz.spread(fuzz.signed()))
orders = fuzz.mostly(fuzz.spread(st.one_of(fuzz.sizes(1.0001, 2048.0), st.sampled_from((1e16, 1e300)))))
epsilons = fuzz.mostly(fuzz.spread(fuzz.signed()))


@fuzzed(
    "mechanisms",
    share=2,
    few=60,
    law=st.sampled_from(fuzz.LAWS),
    sigma=sigmas,
    bound=fuzz.mostly(fuzz.bounds()),
    levels=fuzz.mostly(st.integers(2, 33)),
    surplus=st.integers(0, 9),
)
def test_a_law_is_built_or_refused(law: Any, sigma: Any, bound: Any, levels: Any, surplus: int) -> None:
    arguments = {"sigma": sigma, "bound": bound, "levels": levels}
    taken = 1 if law in (rf.Gaussian, rf.StochasticSign) else 3 if law is rf.QuantizedGaussian else 2
    wanted = dict(list(arguments.items())[:taken] if surplus else arguments.items())
    made = calls_well(law, **wanted, names=PARAMETERS)
    calls_well(rf.Mechanism.by_name, law.name, **wanted, names=PARAMETERS)
    if made is not None:
        assert repr(made)
        assert nan_in(made.support) is None
        assert rf.Mechanism.from_state_dict(made.state_dict()).state_dict() == made.state_dict()


@fuzzed("mechanisms", share=1, few=20, name=fuzz.hostile(), sigma=sigmas)
def test_a_name_is_known_or_refused(name: Any, sigma: Any) -> None:
    calls_well(rf.Mechanism.by_name, name, sigma=sigma, names=("mechanism", *PARAMETERS))


@fuzzed("mechanisms", share=2.5, few=20, law=fuzz.mechanisms(), state=st.data())
def test_a_saved_law_is_read_or_refused(law: rf.Mechanism, state: Any) -> None:
    saved = state.draw(fuzz.changed(copy.deepcopy(law.state_dict())))
    made = calls_well(
        rf.Mechanism.from_state_dict,
        saved,
        names=("law", "parameters", "settings", "dtype", "parameter", *PARAMETERS),
    )
    if made is not None:
        assert nan_in(made.parameters()) is None


@fuzzed("mechanisms", share=1.5, few=40, law=fuzz.mechanisms(), theta=thetas, shift=shifts, alpha=orders)
def test_divergences(law: rf.Mechanism, theta: Any, shift: Any, alpha: Any) -> None:
    value = calls_well(law.renyi_divergence, theta, shift, alpha, names=PARAMETERS)
    assert value is None or bool((value >= 0).all())
    value = calls_well(law.renyi_curve, theta, shift, alpha, names=PARAMETERS)
    assert value is None or bool((value >= 0).all())


@fuzzed("mechanisms", share=1.5, few=60, law=fuzz.mechanisms(), theta=thetas, shift=shifts, epsilon=epsilons)
def test_hockey_sticks(law: rf.Mechanism, theta: Any, shift: Any, epsilon: Any) -> None:
    value = calls_well(law.hockey_stick, theta, shift, epsilon, names=PARAMETERS)
    assert value is None or bool(((value >= 0) & (value <= 1)).all())


@fuzzed("mechanisms", share=1.2, few=40, law=fuzz.mechanisms(), theta=thetas, shift=shifts)
def test_information_and_moments(law: rf.Mechanism, theta: Any, shift: Any) -> None:
    value = calls_well(law.fisher_information, theta, names=PARAMETERS)
    assert value is None or bool((value >= 0).all())
    calls_well(law.information_bound, names=PARAMETERS)
    moments = calls_well(law.loss_moments, theta, shift, names=PARAMETERS)
    assert moments is None or bool((moments.variance >= 0).all() and (moments.fourth >= 0).all())


@fuzzed(
    "mechanisms",
    share=1.2,
    few=40,
    law=fuzz.mechanisms(),
    theta=thetas,
    value=fuzz.mostly(fuzz.spread(fuzz.signed())),
    generator=fuzz.mostly(fuzz.generators, one_in=8),
)
def test_samples_and_their_densities(law: rf.Mechanism, theta: Any, value: Any, generator: Any) -> None:
    calls_well(law.log_prob, value, theta, names=PARAMETERS)
    drawn = calls_well(law.sample, theta, generator=generator, names=PARAMETERS)
    if drawn is not None:
        calls_well(law.log_prob, drawn, theta, names=PARAMETERS)


@fuzzed(
    "mechanisms",
    share=1.5,
    few=30,
    law=fuzz.mechanisms(),
    theta=thetas,
    secure=fuzz.mostly(st.booleans(), one_in=8),
    step=st.one_of(st.none(), fuzz.mostly(fuzz.spread(fuzz.extreme_sizes()))),
    generator=st.one_of(st.none(), fuzz.mostly(fuzz.generators)),
)
def test_releases(law: rf.Mechanism, theta: Any, secure: Any, step: Any, generator: Any) -> None:
    drawn = calls_well(law.release, theta, secure=secure, step=step, generator=generator, names=PARAMETERS)
    if drawn is not None and secure is True:
        assert bool(torch.isfinite(drawn).all())


@fuzzed("mechanisms", share=0.5, few=10, law=fuzz.mechanisms(), coordinates=fuzz.hostile(), epsilon=epsilons)
def test_what_a_secure_release_adds(law: rf.Mechanism, coordinates: Any, epsilon: Any) -> None:
    secure = calls_well(SecureRelease, law, names=PARAMETERS)
    if secure is not None:
        added = calls_well(secure.delta, coordinates, epsilon)
        assert added is None or 0 <= added <= 1


def test_the_contract_sees_a_nan_a_nameless_error_and_a_wrong_kind() -> None:
    def bad(theta: float) -> Any:
        if theta == 0:
            return {"epsilon": [float("nan")]}
        raise (ValueError("no good") if theta == 1 else RuntimeError("theta is bad"))

    for theta, words in ((0, "gave a NaN"), (1, "names none of theta"), (2, "neither ours nor")):
        with pytest.raises(ContractError, match=words):
            calls_well(bad, theta)

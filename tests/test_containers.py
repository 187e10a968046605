"""Series, DataFrames, integer tensors and lists are accepted wherever numbers are, and mean the same."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import ringfence as rf
from ringfence import checks
from ringfence.accounting.fisher import fisher_information_bounds, reconstruction_error_bound
from ringfence.mechanisms.secure import SecureRelease
from ringfence.numerics.operators import LinearOperator
from ringfence.training.linear import train_linear

LAW = rf.RectifiedGaussian(1.0, bound=4.0)
COUNTS = np.array([[9, 4, 0], [5, 5, 3], [0, 2, 7]])  # integers: what every container here can hold
ROW = COUNTS[0]
LABELS = np.array([0, 1, 1])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def stepped(account: Any, *values: Any) -> Any:
    account.step(*values)
    return account


# Every public entry that takes numbers. ``of`` is how the numbers come.
ENTRIES: dict[str, Callable[[Callable[[Any], Any]], Any]] = {
    "sample": lambda of: LAW.sample(of(ROW), generator=generator()),
    "release": lambda of: LAW.release(of(ROW)).shape,
    "SecureRelease": lambda of: SecureRelease(LAW).draw(of(ROW)).shape,
    "log_prob": lambda of: LAW.log_prob(of(ROW), of(ROW)),
    "fisher_information": lambda of: LAW.fisher_information(of(ROW)),
    "renyi_divergence": lambda of: LAW.renyi_divergence(of(ROW), of(ROW), of(ROW + 2)),
    "renyi_curve": lambda of: LAW.renyi_curve(of(ROW), 1, of(ROW + 2)),
    "hockey_stick": lambda of: LAW.hockey_stick(of(ROW), of(ROW), of(ROW)),
    "loss_moments": lambda of: LAW.loss_moments(of(ROW), 1),
    "sigma and bound": lambda of: rf.RectifiedGaussian(of(ROW + 1), (of(-ROW - 1), of(ROW + 1))),
    "NoisyWinner.sample": lambda of: rf.NoisyWinner(2.0).sample(of(COUNTS), generator=generator()),
    "NoisyWinner.log_prob": lambda of: rf.NoisyWinner(2.0).log_prob(0, of(COUNTS)),
    "Sensitivity": lambda of: rf.Sensitivity(each=of(ROW)),
    "per_instance_rdp": lambda of: rf.per_instance_rdp(LAW, of(ROW), 0.1, orders=of(ROW + 2)),
    "PerInstanceAccountant": lambda of: stepped(rf.PerInstanceAccountant(LAW, 0.1), of(ROW)).worst,
    "SampledAccountant": lambda of: stepped(rf.SampledAccountant(LAW, 0.1, 0.5, [2, 4]), of(COUNTS)).worst,
    "subsampled_rdp": lambda of: rf.subsampled_rdp(
        LAW, of(COUNTS), 0.1, 0.5, orders=[2, 4], failure_probability=1e-6
    ),
    "ExampleAccountant": lambda of: stepped(rf.ExampleAccountant(LAW), of(ROW), of(COUNTS)).epsilons(1e-5),
    "privacy_profile": lambda of: rf.privacy_profile(rf.Gaussian(1.0), of(ROW), 0.1).delta(0.1),
    "calibrate_sigma": lambda of: rf.calibrate_sigma(rf.Gaussian(1.0), of(ROW), 0.1, epsilon=1.0, delta=1e-5),
    "publishable_epsilon": lambda of: (
        rf.publishable_epsilon(
            LAW, [of(ROW)], 0.1, delta=1e-5, publishing_zcdp=1e-3, failure_probability=1e-3
        ).order
    ),
    "fisher_information_loss": lambda of: rf.fisher_information_loss(LAW, of(ROW), of(COUNTS)),
    "fisher_information_bounds": lambda of: fisher_information_bounds(LAW, of(ROW), of(COUNTS)),
    "FisherAccountant": lambda of: stepped(
        rf.FisherAccountant(LAW), of(ROW), of(COUNTS)
    ).fisher_information_loss(),
    "LinearOperator": lambda of: LinearOperator.of(of(COUNTS)).apply(torch.eye(3).double()),
    "reconstruction_error_bound": lambda of: reconstruction_error_bound(of(ROW + 1)),
    "trade_off": lambda of: (
        stepped(rf.PerInstanceAccountant(LAW, 0.1), of(ROW)).guarantee(1e-5).trade_off(of(LABELS))
    ),
    "DecisionAccountant": lambda of: (
        stepped(rf.DecisionAccountant(rf.NoisyWinner(2.0), neighbours="added"), of(COUNTS)).worst
    ),
    "decision_profile": lambda of: rf.decision_profile(
        rf.NoisyWinner(2.0), of(COUNTS), neighbours="added"
    ).epsilon(1e-5),
    "publishable_decision_epsilon": lambda of: (
        rf.publishable_decision_epsilon(
            rf.NoisyWinner(2.0), of(COUNTS), neighbours="added", delta=1e-5, order=2.0
        ).publishing_zcdp
    ),
    "voter_epsilons": lambda of: rf.voter_epsilons(
        rf.NoisyWinner(2.0), of(COUNTS % 3), delta=1e-5, candidates=3
    ),
    "Clamp": lambda of: rf.Clamp(of(ROW[:1])),
    "train_linear": lambda of: (
        train_linear(
            of(COUNTS),
            of(LABELS),
            2,
            mechanism=LAW,
            clip=rf.Clamp(0.1),
            learning_rate=1.0,
            steps=2,
            public_size=3,
            seed=0,
        ).weights
    ),
    "LinearProbe": lambda of: (
        rf.LinearProbe(LAW, public_center=of(ROW), public_scale=of(ROW + 1), steps=2, random_state=0)
        .fit(of(COUNTS), of(LABELS))
        .coef_
    ),
    "PublicProjection": lambda of: rf.PublicProjection.of(of(COUNTS), 2)(of(COUNTS)),
    "release_counts": lambda of: list(rf.release_counts(of(ROW), sigma=2.0, seed=3).columns.values()),
    "release_winners": lambda of: len(rf.release_winners(of(COUNTS[:1]), sigma=2.0).values),
    "Pate": lambda of: len(rf.Pate(2.0).label(of(COUNTS[:1]))),
    "release_votes": lambda of: len(rf.release_votes(of(np.sign(COUNTS[:, :1])), sigma=2.0).values),
}


def series(numbers: Any) -> Any:
    """A Series, or a DataFrame where there are rows; the index is not the order of the rows."""
    values = np.asarray(numbers)
    return (pd.Series if values.ndim < 2 else pd.DataFrame)(values, index=range(len(values), 0, -1))


def polars(numbers: Any) -> Any:
    values = np.asarray(numbers)
    return pl.Series(values) if values.ndim < 2 else pl.DataFrame(values)


@cache
def of_floats(entry: str) -> str:
    return repr(ENTRIES[entry](lambda numbers: np.asarray(numbers, dtype=np.float64)))


CONTAINERS: list[Callable[[Any], Any]] = [series, polars, torch.from_numpy, np.ndarray.tolist]


@pytest.mark.parametrize("of", CONTAINERS, ids=["pandas", "polars", "integer tensor", "list"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_numbers_are_taken_from_any_container(entry: str, of: Callable[[Any], Any]) -> None:
    assert repr(ENTRIES[entry](of)) == of_floats(entry)


def test_masked_cells_are_refused_and_backward_arrays_taken() -> None:
    """A masked cell is no data: its value would be released."""
    hidden = np.ma.masked_array([1.0, 99.0], [False, True])
    with pytest.raises(TypeError, match="theta must not hold masked values"):
        rf.Gaussian(1.0).release(hidden)
    assert checks.tensor("theta", np.ma.masked_array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert checks.tensor("theta", np.array([1.0, 2.0])[::-1]).tolist() == [2.0, 1.0]

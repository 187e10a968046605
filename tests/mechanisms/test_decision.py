"""What every decision does with its arguments: shapes, kinds, saved states, and bad input in one line."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.mechanisms.decision import Decision
from ringfence.noise import Noise

LAWS = (
    *(rf.NoisyWinner(2.0), rf.GumbelWinner(2.0)),
    rf.ConfidentWinner(2.0, threshold=10.0, threshold_sigma=3.0),
)
COUNTS, MOVE = [12.0, 11.0, 3.0], [-1.0, 0.0, 1.0]


@pytest.mark.parametrize("law", LAWS)
def test_it_survives_being_written_down(law: Decision) -> None:
    for again in (
        Decision.from_state_dict(law.state_dict()),
        pickle.loads(pickle.dumps(law)),
        copy.deepcopy(law),
        eval(repr(law), vars(rf)),
    ):
        assert again.state_dict() == law.state_dict()
    assert law.label != law.name or law.name == "winner"


def test_states_that_say_something_else_are_refused() -> None:
    with pytest.raises(ValueError, match="law must be one of"):
        Decision.from_state_dict({"law": "Gaussian", "sigma": 1.0})
    with pytest.raises(ValueError, match="unknown keys \\['bound'\\]"):
        Decision.from_state_dict({"law": "NoisyWinner", "sigma": 1.0, "bound": 2.0})


@pytest.mark.parametrize("law", LAWS)
def test_counts_may_be_any_numbers_of_any_kind(law: Decision) -> None:
    expected = law.pair(COUNTS, MOVE)
    kinds = (torch.tensor, lambda row: torch.tensor(row, dtype=torch.float32), np.array)
    kinds += (lambda row: torch.tensor(row).long(), lambda row: np.array(row).astype(int))
    for kind in kinds:
        found = law.pair(kind(COUNTS), kind(MOVE))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("law", LAWS)
def test_queries_and_moves_broadcast(law: Decision) -> None:
    """Each entry is what the law says about that row and that move alone."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.randint(0, 30, (2, 3, 1, 4), generator=generator)
    moves = torch.tensor([[1, 0, 0, -1], [0, -1, 0, 0]])
    log_p, rho = law.pair(counts, moves)
    outcomes = 4 + isinstance(law, rf.ConfidentWinner)
    assert log_p.shape == rho.shape == (outcomes, 2, 3, 2)
    one = law.pair(counts[1, 2, 0], moves[1])
    assert torch.allclose(log_p[:, 1, 2, 1], one[0], rtol=1e-12)
    assert torch.allclose(rho[:, 1, 2, 1], one[1], rtol=1e-9)
    turned = law.pair(counts.squeeze(2), moves.view(2, 1, 1, 4))[1]
    assert torch.allclose(turned.movedim(1, -1), rho, rtol=1e-9)
    orders = torch.tensor([2.0, 8.0], dtype=torch.float64)
    assert law.renyi_divergence(counts, moves, orders.view(2, 1, 1, 1)).shape == (2, 2, 3, 2)
    assert law.log_prob(torch.tensor([[0], [3]]), counts.squeeze(2)).shape == (2, 3)
    both = law.log_prob([0, 1], [5.0, 3.0])  # more outcomes than rows, and as many as candidates
    assert both.tolist() == [float(law.log_prob(outcome, [5.0, 3.0])) for outcome in (0, 1)]
    assert law.sample(counts, generator=generator).shape == (2, 3, 1)
    assert law.release(counts, draws=Noise(1).at("test")).dtype == torch.int64


@pytest.mark.parametrize("law", LAWS)
def test_so_many_noisy_values_are_drawn_at_once(law: Decision, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by a seed: another number would change what it repeats."""
    drawn = []

    def recorded(_: Decision, draws: object, rows: Tensor) -> Tensor:
        drawn.append(len(rows))
        return torch.zeros(len(rows), dtype=torch.int64)

    monkeypatch.setattr(type(law), "_sample", recorded)
    monkeypatch.setattr(type(law), "_release", recorded)
    counts = torch.zeros(1, 4, dtype=torch.float64).expand(2**18 + 1, -1)
    law.sample(counts, generator=torch.Generator())
    law.release(counts)
    assert drawn == 2 * [2**18, 1]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", ["pair", "log_prob", "renyi_divergence", "chance_of_error"])
def test_what_cannot_be_represented_is_refused_by_name(
    name: str, law: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = torch.full((4,), torch.nan, dtype=torch.float64)
    monkeypatch.setattr(type(law), "_pair", lambda *_: (lost, lost))
    monkeypatch.setattr(type(law), "_log_masses", lambda *_: lost)
    arguments = {
        "pair": (COUNTS, MOVE),
        "log_prob": (0, COUNTS),
        "renyi_divergence": (COUNTS, MOVE, 2.0),
        "chance_of_error": (COUNTS,),
    }[name]
    with pytest.raises(FloatingPointError, match=rf"^{type(law).__name__}\.{name} cannot be represented"):
        getattr(law, name)(*arguments)


@pytest.mark.parametrize("law", LAWS)
def test_no_queries_no_outcomes(law: Decision) -> None:
    nothing = torch.zeros(0, 3)
    assert law.renyi_divergence(nothing, MOVE, 2.0).shape == (0,)
    assert law.sample(nothing, generator=torch.Generator()).shape == law.release(nothing).shape == (0,)


BAD = (
    ("log_prob", (0, [7.0]), "counts must have at least 2 candidates, got 1"),
    ("log_prob", (0, 7.0), "counts must have at least 2 candidates, got a single number"),
    ("log_prob", (0, [7.0, float("nan")]), "counts must not be NaN, got nan at index [1]"),
    ("log_prob", (0, [7.0, float("inf")]), "counts must be finite, got inf at index [1]"),
    ("log_prob", (3, COUNTS), "winner must be an integer from "),
    ("log_prob", (0.5, COUNTS), "winner must be an integer from "),
    ("pair", (COUNTS, 1.0), "move must have 3 candidates, got shape []"),
    ("pair", (COUNTS, [1.0, 0.0]), "move must have 3 candidates, got shape [2]"),
    ("pair", (torch.ones(2, 3), torch.ones(5, 3)), "shapes do not broadcast: counts [2, 3], move [5, 3]"),
    ("renyi_divergence", (COUNTS, MOVE, 1.0), "alpha must be > 1, got 1.0"),
    ("chance_of_error", ([1.0],), "counts must have at least 2 candidates, got 1"),
    ("release", ([1.0],), "counts must have at least 2 candidates, got 1"),
)


FAR = (  # of laws whose masses are integrals on a grid
    ("pair", (COUNTS, [1e9, 0.0, 0.0]), "move must be at most 10000 sigma, got 1000000000.0 at index [0]"),
    ("renyi_divergence", (COUNTS, MOVE, [2.0, 1e9]), "alpha |move| / sigma must be at most 100000, got "),
)


@pytest.mark.parametrize(
    ("law", "method", "arguments", "words"),
    [(law, *bad) for law in LAWS for bad in BAD + (FAR if law.steepest < math.inf else ())],
)
def test_bad_input_is_named(law: Decision, method: str, arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}.*$"):
        getattr(law, method)(*arguments)


def test_what_is_no_count_is_refused_by_kind() -> None:
    for counts in (torch.tensor([True, False]), ["a", "b"], None):
        with pytest.raises(TypeError, match="counts must be"):
            rf.NoisyWinner(1.0).chance_of_error(counts)
    with pytest.raises(TypeError, match="got 7"):
        rf.NoisyWinner(1.0).sample(COUNTS, generator=7)

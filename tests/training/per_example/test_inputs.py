"""Trees of outputs, and draws that do not count."""

import torch

from ringfence.training.per_example.inputs import joined, mapped, same_draws


def test_outputs_of_several_passes_are_joined_leaf_by_leaf() -> None:
    first, second = ({"a": torch.full((n, 2), n), "b": (torch.zeros(n),)} for n in (1, 2))
    whole = joined([first, second])
    assert whole["a"].tolist() == [[1, 1], [2, 2], [2, 2]]
    assert whole["b"][0].shape == (3,)
    assert joined([first]) is first


def test_draws_do_not_count() -> None:
    inputs = ((torch.zeros(2),), {})
    before = torch.get_rng_state()
    with same_draws(inputs):
        torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    assert mapped(len, inputs) == ((2,), {})

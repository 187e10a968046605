"""Ballots: how far one person can go."""

import pytest
import torch

import ringfence as rf
from ringfence.decisions.ballots.ballots import Ballots, public_choices


def test_which_marks_count_depends_on_the_person_alone_and_is_fair() -> None:
    marks = torch.randint(-1, 2, (4000, 5), generator=torch.Generator().manual_seed(0))
    ballots = Ballots(list("abcde"), ("yes", "no"), marks, None)
    kept = ballots.limited(2, rf.Noise(seed=1)).marks
    assert bool(((kept == marks) | (kept == -1)).all())
    assert torch.equal((kept >= 0).sum(dim=1), (marks >= 0).sum(dim=1).clamp(max=2))
    fewer = Ballots(list("abcde"), ("yes", "no"), marks[:-1], None).limited(2, rf.Noise(seed=1)).marks
    assert torch.equal(fewer, kept[:-1])
    full = (marks >= 0).all(dim=1)
    shares = (kept[full] >= 0).double().mean(dim=0)  # of 2 in 5
    assert float((shares - 0.4).abs().max()) < 4 * (0.24 / int(full.sum())) ** 0.5
    assert ballots.limited(5, None) is ballots


def test_values_in_files_are_text() -> None:
    assert public_choices("candidates", range(2), text=True) == ((0, 1), {"0": 0, "1": 1})
    with pytest.raises(ValueError, match="candidates must hold each value once"):
        public_choices("candidates", [1, "1"], text=True)

"""The kept numbers are those that the contract asks for, and those that the oracle gives."""

import json
import random
from datetime import date

from tests.mechanisms.recorded import asked, computed, differ, recorded


def test_everything_that_is_asked_is_kept_and_nothing_else() -> None:
    """A law may be missing altogether: it gets its numbers from the oracle, which takes longer."""
    laws = {json.loads(name)[1] for name in recorded()}
    wanted = [name for name in asked() if json.loads(name)[1] in laws]
    assert sorted(recorded()) == sorted(wanted), "run python -m tests.mechanisms.recorded"


def test_a_few_of_them_computed_again() -> None:
    """Other ones every day. All of them: ``make oracle``."""
    today = date.today().isoformat()
    for name in random.Random(today).sample(sorted(recorded()), 12):
        assert not differ(computed(name), recorded()[name]), (today, name)


def test_a_difference_is_seen() -> None:
    (value,) = recorded()[min(name for name in recorded() if "renyi" in name)]
    assert not differ([value], [value])
    assert differ([value], [value.replace(".", ".1", 1)])

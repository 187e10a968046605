"""The breakages still apply: each names a piece of source that stands exactly once."""

import pytest

from tests.breakages import BREAKAGES, ROOT, Breakage


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda breakage: breakage.name)
def test_breakage_applies(breakage: Breakage) -> None:
    assert (ROOT / breakage.file).read_text().count(breakage.before) == 1
    assert breakage.before != breakage.after

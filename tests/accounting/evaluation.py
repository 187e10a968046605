"""Sums over moves for which every coordinate is evaluated and no table is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import ringfence as rf
from ringfence.accounting import per_instance
from ringfence.accounting.per_instance import PerInstanceRdp


@contextmanager
def evaluated() -> Iterator[None]:
    """As if the coordinates of a release had too many different settings for tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(per_instance, "split_by_setting", lambda *_: None)
        yield


def exact_rdp(*release: Any) -> PerInstanceRdp:
    with evaluated():
        return rf.per_instance_rdp(*release)

"""What is special to the Gaussian: theta does not matter."""

import math

import ringfence as rf


def test_support_is_the_line() -> None:
    support = rf.Gaussian(1.0).support
    assert [float(end) for end in support.interval] == [-math.inf, math.inf]
    assert support.atoms == ()

"""What is said about a Fisher information loss: its numbers, printed so that they still hold."""

import re

import pytest

import ringfence as rf
from ringfence.accounting.fisher.accountant import FisherAccountant
from tests.accounting.drawing import draw


def test_the_statement_says_what_is_proved_and_what_is_not() -> None:
    law, theta, jacobians = rf.TruncatedGaussian(1.0, 1.0), draw(9), draw(3, 9, 2, seed=1)
    account = FisherAccountant(law)
    account.step(theta, jacobians)
    account.step(theta, jacobians)
    claim = account.guarantee()
    worst = float(claim.fisher_information_loss.max())
    assert float(claim.reconstruction_error.min()) == pytest.approx(worst**-2, rel=1e-12, abs=0)
    printed = re.search(
        r"Over 2 releases .* worst of 3 records is at most (\S+) "
        r"\(computed to within (\S+) %\): .* below (\S+) in",
        claim.statement,
    )
    assert printed is not None
    upper, gap, error = map(float, printed.groups())
    assert worst <= upper <= worst * 1.001
    assert gap == pytest.approx(
        100 * float(claim.gap[claim.fisher_information_loss.argmax()]), rel=1e-3, abs=0
    )
    assert worst**-2 * 0.999 <= error <= float(claim.reconstruction_error.min())
    for clause in (
        "unbiased",
        "this dataset, if no step depends on earlier outputs",
        "average of such sums over runs",
        "prior knowledge",
        "not differential privacy",
        "do not publish",
    ):
        assert clause in claim.statement
    assert "probability" not in claim.statement

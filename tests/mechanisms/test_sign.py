"""What is special to the stochastic sign: two atoms, whatever sigma."""

import ringfence as rf


def test_a_confident_vote_costs_almost_nothing() -> None:
    """The margin decides: at 6 sigma one vote moves the odds by 1e-9 of what the Gaussian gives."""
    sign, gaussian = rf.StochasticSign(1.0), rf.Gaussian(1.0)
    cost = sign.renyi_divergence(6.0, -0.1, 2.0) / gaussian.renyi_divergence(6.0, -0.1, 2.0)
    assert 0 < float(cost) < 1e-6

"""Upper confidence bounds for a mean of bounded numbers, from independent draws: the smallest of three."""

import math

import torch
from torch import Tensor

from ringfence import checks


def upper_confidence_bound(log_values: Tensor, log_ceiling: Tensor, failure_probability: float) -> Tensor:
    """The logarithm of an upper confidence bound for the mean of exp(value).

    The first dimension of ``log_values`` counts n independent draws. exp(value) lies in
    [0, exp(log_ceiling)]. With m and s^2 the mean and sample variance of the values divided by the
    ceiling, and beta a third of the failure probability, the bound is the smallest of

        m + sqrt(log(1/beta) / 2n)                                             (Hoeffding 1963)
        m + sqrt(2 s^2 log(2/beta) / n) + 7 log(2/beta) / (3 (n - 1))          (Maurer, Pontil 2009, Thm 4)
        1 - (beta prod_i (1 - value_i))^(1/n)                                  (Markov)

    Proof of the last bound: Y_i = 1 - value_i >= 0 are independent and E prod Y_i = (E Y)^n, so
    prod Y_i exceeds (E Y)^n / beta with probability at most beta. This bound is the sharp one for values
    that vary little and lie near the ceiling, as do the divergences of a law that is little better than
    the Gaussian: it keeps the share beta^(1/n) of the distance to the ceiling.

    Guarantee: for each entry, the true mean exceeds the bound with probability at most
    ``failure_probability``.

    >>> draws, ceiling = torch.full((200,), 0.9).double(), torch.ones(()).double()
    >>> round(float(upper_confidence_bound(draws.log(), ceiling.log(), 1e-6).exp()), 3)
    0.907
    """
    n, share = len(log_values), checks.probability("failure_probability", failure_probability / 3)
    nothing = log_ceiling == -torch.inf
    scaled = torch.exp(log_values - torch.where(nothing, 0.0, log_ceiling)).clamp(max=1)
    mean, wide, wider = scaled.mean(dim=0), math.log(1 / share), math.log(2 / share)
    hoeffding = mean + math.sqrt(wide / (2 * n))
    bernstein = mean + torch.sqrt(2 * wider / n * scaled.var(dim=0)) + 7 * wider / (3 * (n - 1))
    markov = -torch.expm1(torch.log1p(-scaled).mean(dim=0) - wide / n)
    best = torch.minimum(torch.minimum(hoeffding, bernstein), markov).clamp(max=1)
    return log_ceiling + torch.log(best)

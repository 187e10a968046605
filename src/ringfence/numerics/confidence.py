"""What a mean is at most, from independent draws."""

import math

import torch
from torch import Tensor


def upper_confidence_bound(log_values: Tensor, log_ceiling: Tensor, failure_probability: float) -> Tensor:
    """log of what the mean of exp(value) is at most, from n independent draws (first dimension).

    Values lie in [0, exp(log_ceiling)]. Divided by the ceiling, with mean m, sample variance s^2 and
    a third of the failure probability beta for each, the smallest of

        m + sqrt(log(1/beta) / 2n)                                             (Hoeffding 1963)
        m + sqrt(2 s^2 log(2/beta) / n) + 7 log(2/beta) / (3 (n - 1))          (Maurer, Pontil 2009, Thm 4)
        1 - (beta prod_i (1 - value_i))^(1/n)                                  (Markov)

    The last: Y_i = 1 - value_i >= 0 are independent, E prod Y_i = (E Y)^n, so prod Y_i exceeds
    (E Y)^n / beta with probability at most beta. It is the sharp one for values that vary little and
    lie near the ceiling, as divergences of a law little better than the Gaussian do: of the distance
    to the ceiling beta^(1/n) is kept.

    Guarantee: exceeded by the true mean with probability at most ``failure_probability``, each entry.

    >>> draws, ceiling = torch.full((200,), 0.9).double(), torch.ones(()).double()
    >>> round(float(upper_confidence_bound(draws.log(), ceiling.log(), 1e-6).exp()), 3)
    0.907
    """
    n, share = len(log_values), failure_probability / 3
    nothing = log_ceiling == -torch.inf
    scaled = torch.exp(log_values - torch.where(nothing, 0.0, log_ceiling)).clamp(max=1)
    mean, wide, wider = scaled.mean(dim=0), math.log(1 / share), math.log(2 / share)
    hoeffding = mean + math.sqrt(wide / (2 * n))
    bernstein = mean + torch.sqrt(2 * wider / n * scaled.var(dim=0)) + 7 * wider / (3 * (n - 1))
    markov = -torch.expm1(torch.log1p(-scaled).mean(dim=0) - wide / n)
    best = torch.minimum(torch.minimum(hoeffding, bernstein), markov).clamp(max=1)
    return log_ceiling + torch.log(best)

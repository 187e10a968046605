"""A law P against the mixture (1 - q) P + q Q: Poisson sampling with rate q.

P is the release without a record, Q the release with it. Results are log(E - 1), where
E = exp((alpha - 1) D_alpha), because E - 1 may be as small as 1e-9 or as large as 1e300.

``PoissonMixture`` bounds both directions by the moments M_k = E_P[(Q/P)^k] alone. The direction with the
mixture first is exact.
"""

import math

import torch
from torch import Tensor

from ringfence.mechanisms.pieces import log_expm1

_SUM_ROUNDING = 1e-12  # of sums and differences of exponentials, charged upwards
_SHARES = 33  # values of p / q tried


class PoissonMixture:
    """Both divergences between P and the mixture, at integer orders >= 2 and sampling rate q.

    q is below 1. Moments are given as ``log_moments``: the last dimension holds log M_k for k = 2, 3, ... up
    to the largest order, and at least up to 4.

    >>> orders = torch.tensor([2.0, 8.0], dtype=torch.float64)
    >>> mixture = PoissonMixture(0.1, orders)
    >>> k = torch.arange(2, 9).double()
    >>> gaussian = 0.5 * k * (k - 1) * 0.1**2  # shift / sigma = 0.1
    >>> excess = mixture.mixture_first(gaussian).exp()
    >>> (torch.log1p(excess) / (orders - 1) / orders * 1e5).round(decimals=3).tolist()
    [5.025, 5.052]
    """

    def __init__(self, sampling_rate: float, orders: Tensor) -> None:
        self.orders = orders
        log_in, log_out = math.log(sampling_rate), math.log1p(-sampling_rate)
        k, alpha = moments(orders), orders.unsqueeze(1)
        weights = _log_binomial(alpha, k.clamp(max=alpha)) + k * log_in + (alpha - k) * log_out
        self._weights = torch.where(k <= alpha, weights, -torch.inf)
        # Taylor coefficients of (1 + x)^-b at x = q (r - 1), and bounds of the remainders
        b = orders - 1
        self._second = _log_binomial(b + 1, 2) + 2 * log_in
        self._third = _log_binomial(b + 2, 3) + 3 * log_in
        self._rest_of_2 = _log_remainder(b, 2, log_in, log_out)
        self._rest_of_4 = _log_remainder(b, 4, log_in, log_out)
        # for the bound between means: powers p b of P/Q, and b KL(p || q)
        share = torch.linspace(0, 1, _SHARES, dtype=torch.float64)
        p, b = sampling_rate * share, b.unsqueeze(1)
        self._power = p * b
        self._price = b * (torch.xlogy(p, share) + (1 - p) * (torch.log1p(-p) - log_out))

    def mixture_first(self, log_moments: Tensor) -> Tensor:
        """log(E_P[(1 - q + q r)^alpha] - 1), exactly; increasing in every moment.

        It is the binomial theorem, less its value 1 at Q = P, so that nothing cancels:
        E - 1 = sum over k >= 2 of C(alpha, k) q^k (1 - q)^(alpha - k) (M_k - 1).
        """
        terms = self._weights + log_expm1(log_moments).unsqueeze(-2)
        return torch.logsumexp(terms, dim=-1) + _SUM_ROUNDING

    def mixture_second(
        self, log_moments: Tensor, log_third_below: Tensor, log_reverse_moments: Tensor
    ) -> Tensor:
        """log of an upper bound of E_P[(1 - q + q r)^-b] - 1, b = alpha - 1: the smallest of three bounds.

        ``log_moments`` bound M2 and M4 from above, ``log_third_below`` bounds M3 from below, and
        ``log_reverse_moments`` bound log E_Q[(P/Q)^k], k = 2, 3, ..., from above.

        Two of the bounds are expansions of h(x) = (1 + x)^-b at x = q (r - 1) >= -q. For even m,
        h(x) = T(x) + x^m R(x), where T is the Taylor polynomial of degree m - 1 and
        R(x) = int_0^1 (1 - u)^(m-1) / (m-1)! h^(m)(u x) du. The m-th derivative is positive and decreasing,
        so R(x) <= R(-q). T(0) = 1 and E x = 0 leave of E h - 1, with V_k = E (r - 1)^k,

            m = 2:  q^2 R(-q) V2
            m = 4:  C(b+1, 2) q^2 V2 - C(b+2, 3) q^3 V3 + q^4 R(-q) V4.

        The third bound, for large b q, is the one between weighted means.
        """
        between_means = self._between_means(log_reverse_moments) + _SUM_ROUNDING
        second, fourth = (log_expm1(log_moments[..., k - 2]).unsqueeze(-1) for k in (2, 4))
        third = log_expm1(log_third_below).unsqueeze(-1)
        quadratic = self._rest_of_2 + second
        quartic = self._quartic(second, third, fourth)
        return torch.minimum(torch.minimum(quadratic, quartic) + _SUM_ROUNDING, between_means)

    def _quartic(self, second: Tensor, third: Tensor, fourth: Tensor) -> Tensor:
        """log of the expansion with m = 4, from the logarithms of m_k = M_k - 1.

        V2 = m2, V3 = m3 - 3 m2 and V4 = m4 - 4 m3 + 6 m2. The expansion is therefore linear in the moments:
        it increases with M2 and M4, which are bounded from above, and decreases with M3, which is bounded
        from below.
        """
        of_second = _log_sum(self._second, self._third + math.log(3), self._rest_of_4 + math.log(6))
        of_third = _log_sum(self._third, self._rest_of_4 + math.log(4))
        positive = torch.logaddexp(of_second + second, self._rest_of_4 + fourth)
        negative = of_third + third - _SUM_ROUNDING
        # nothing is lost below 0: the difference is at least the true E - 1 >= 0, up to rounding
        ratio = torch.where(negative == -torch.inf, -torch.inf, negative - positive).clamp(max=-_SUM_ROUNDING)
        return positive + torch.log(-torch.expm1(ratio))

    def _between_means(self, log_reverse_moments: Tensor) -> Tensor:
        """log of e^(b KL(p||q)) E_P[r^(-p b)] - 1, the smallest over shares p / q in [0, 1].

        1 - q + q r >= e^-KL(p||q) r^p, the inequality between weighted means. The moments of r^-1 under P
        are E_P[r^-(k-1)] = E_Q[(P/Q)^k]; their logarithm is convex in k, so between two k its chord is above.
        """
        known = torch.cat((torch.zeros_like(log_reverse_moments[..., :1]), log_reverse_moments), dim=-1)
        below = self._power.floor().long()
        above = self._power.ceil().long()
        moment = torch.lerp(known[..., below], known[..., above], self._power - below)
        return log_expm1((self._price + moment).amin(dim=-1))


def moments(orders: Tensor) -> Tensor:
    """The k of the moments that are needed: from 2 to the largest order, and to 4 for the reverse direction.

    >>> moments(torch.tensor([2.0, 3.0])), moments(torch.tensor([2.0, 6.0]))[-1]
    (tensor([2., 3., 4.], dtype=torch.float64), tensor(6., dtype=torch.float64))
    """
    return torch.arange(2, max(4, int(orders.max())) + 1, dtype=torch.float64)


def _log_binomial(n: Tensor, k: Tensor | int) -> Tensor:
    """log C(n, k)."""
    k = torch.as_tensor(k, dtype=torch.float64)
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _log_remainder(b: Tensor, m: int, log_in: float, log_out: float) -> Tensor:
    """log of q^m R(-q) = sum over i >= m of C(b + i - 1, i) q^i.

    It is (1 - q)^-b P(negative binomial >= m) = (1 - q)^-b P(Binomial(m + b - 1, q) >= m), which for an
    integer b is a finite sum of positive terms. Lagrange's form h^(m)(-q) q^m / m! is far larger: 120
    times at q = 0.1, alpha = 64, m = 4.
    """
    trials = (b + m - 1).unsqueeze(1)
    i = torch.arange(m, int(trials.max()) + 1, dtype=torch.float64)
    terms = _log_binomial(trials, i.clamp(max=trials)) + i * log_in + (trials - i) * log_out
    return torch.logsumexp(torch.where(i <= trials, terms, -torch.inf), dim=1) - b * log_out


def _log_sum(*terms: Tensor) -> Tensor:
    return torch.logsumexp(torch.stack(terms), dim=0)

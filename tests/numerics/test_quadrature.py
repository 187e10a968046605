import pytest
import torch
from mpmath import mp, mpf

from ringfence.numerics.normal import gauss_legendre

LIKE = torch.zeros(1, dtype=torch.float64)


@pytest.mark.parametrize("count", [2, 3, 8, 14, 48])
def test_nodes_are_roots_to_the_last_bit(count: int) -> None:
    nodes, weights = (part.tolist() for part in gauss_legendre(count, LIKE))
    assert nodes == sorted(nodes)
    for node, weight in zip(nodes, weights, strict=True):
        root = mp.findroot(lambda x: mp.legendre(count, x), 2 * mpf(node) - 1)
        slope = mp.diff(lambda x: mp.legendre(count, x), root)
        assert node == pytest.approx(float((root + 1) / 2), rel=2.3e-16, abs=0)
        assert weight == pytest.approx(float(1 / ((1 - root**2) * slope**2)), rel=2.3e-16, abs=0)


@pytest.mark.parametrize("count", [2, 5, 30])
def test_exact_to_degree_twice_the_nodes_less_one(count: int) -> None:
    nodes, weights = gauss_legendre(count, LIKE)
    degree = 2 * count - 1
    assert float((weights * nodes**degree).sum()) * (degree + 1) == pytest.approx(1, abs=1e-14)
    missed = float((weights * nodes ** (degree + 1)).sum()) * (degree + 2)
    assert abs(missed - 1) > 1e-3 * 16.0**-count


def test_one_node_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 2, got 1"):
        gauss_legendre(1, LIKE)

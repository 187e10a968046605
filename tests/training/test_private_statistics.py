"""Sums released before training: what a record moves, by brute force, and what is made of them."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import ringfence as rf
from ringfence.mechanisms.secure import SecureRelease
from ringfence.training.private_statistics import (
    PrivateSums,
    planned_sums,
    private_log_shares,
    private_magnitudes,
    private_row_scaling,
    private_scaling,
)

# every row of small data: zeros, ends of magnitudes, numbers beyond all magnitudes, ordinary ones
ENTRIES = (0.0, 1.0, -0.75, 1e-30, 3e10, -2.5)
ROWS = torch.tensor(list(itertools.product(ENTRIES, repeat=2)))


def sums(features: int = 2, classes: int = 0, mu: float = 2.0, **changes: Any) -> PrivateSums:
    plan = planned_sums(mu, 0.3 if features else 0.0, features, classes)
    settings = {"public_size": 36.0, "seed": 0, **changes}
    return PrivateSums(plan, **settings)


def released(rows: Tensor, **changes: Any) -> PrivateSums:
    result = sums(rows.shape[1], **changes)
    private_scaling(rows, result)
    return result


def test_one_record_moves_no_sum_by_more_than_is_charged() -> None:
    """Neighbours by brute force, with the scaling that both have released: what adaptive composition asks."""
    whole = released(ROWS)
    for name in ("magnitudes", "moments 1", "moments 2"):
        each, norm = whole.released[name], whole.plan[name].clip.norm
        parts = torch.cat(list(each.parts()))
        assert torch.allclose(parts.sum(dim=0), each.theta)
        moved = torch.linalg.vector_norm(parts, dim=1)
        assert 0.99 * norm < float(moved.max()) <= norm
        assert whole.plan[name].width == each.theta.numel()
    for place in range(len(ROWS)):  # the first sum of the neighbour itself
        without = released(torch.cat((ROWS[:place], ROWS[place + 1 :]))).released["magnitudes"]
        moved = (whole.released["magnitudes"].theta - without.theta).norm()
        assert float(moved) <= without.planned.clip.norm


def test_one_record_moves_the_counts_of_classes_by_one() -> None:
    labels = torch.tensor([0, 2, 2, 1])
    own = sums(0, classes=3)
    private_log_shares(labels, 3, sums=own)
    each = own.released["classes"]
    parts = torch.cat(list(each.parts()))
    expected = torch.eye(3).double()[labels]
    assert torch.equal(parts, expected)
    assert torch.equal(each.theta, expected.sum(dim=0))
    assert each.planned.clip == rf.Norm(1.0)


def test_magnitudes_are_of_features_and_not_of_rows() -> None:
    """By brute force over neighbours; other units of whole rows change nothing, and zeros say nothing."""
    plan = planned_sums(2.0, 0.25, 2, 0, unit_rows=True)

    def found(rows: Tensor) -> PrivateSums:
        own = PrivateSums(plan, 36.0, seed=0)
        assert bool(private_magnitudes(rows, own).isfinite().all())
        return own

    whole = found(ROWS).released["relative magnitudes"]
    assert torch.equal(whole.theta, found(1024 * ROWS).released["relative magnitudes"].theta)
    parts = torch.cat(list(whole.parts()))
    assert torch.equal(parts[(ROWS == 0).any(dim=1)], torch.zeros(11, 2).double())
    for place in range(len(ROWS)):
        without = found(torch.cat((ROWS[:place], ROWS[place + 1 :]))).released["relative magnitudes"]
        moved = (whole.theta - without.theta).norm()
        assert float(moved) <= without.planned.clip.norm * (1 + 1e-12)
    assert float(parts.norm(dim=1).max()) == pytest.approx(whole.planned.clip.norm)


def test_all_sums_together_cost_their_share_of_mu() -> None:
    plan = planned_sums(0.7, 0.2, 5, 4)
    spent = sum((each.clip.norm / float(each.law.sigma)) ** 2 for each in plan.values())
    assert spent == pytest.approx(0.7**2 * 0.23)
    assert planned_sums(0.7, 0.0, 5, 0) == {}
    for share, names in ((0.1, ["mean"]), (0.25, ["relative magnitudes", "mean"])):
        plan = planned_sums(0.7, share, 5, 0, unit_rows=True)
        spent = sum((each.clip.norm / float(each.law.sigma)) ** 2 for each in plan.values())
        assert (list(plan), spent) == (names, pytest.approx(0.7**2 * share))


def test_the_noise_is_the_laws_and_belongs_to_seed_data_and_sum() -> None:
    def noise(name: str = "moments 1", **changes: Any) -> Tensor:
        own = sums(100, mu=1e-3, **changes)
        return 36 * own.mean(name, list, torch.zeros(200).double())[0]

    law = sums(100, mu=1e-3).plan["moments 1"].law
    assert float(noise().std()) == pytest.approx(float(law.sigma), rel=0.2)
    assert torch.equal(noise(), noise())
    for other in (noise("moments 2"), noise(seed=1), noise(data=b"other"), noise(seed=None)):
        assert abs(float(torch.corrcoef(torch.stack((noise(), other)))[0, 1])) < 0.3


def test_a_sum_is_released_once() -> None:
    own = sums()
    own.mean("moments 1", list, torch.zeros(4).double())
    with pytest.raises(ValueError, match="moments 1 must be released once"):
        own.mean("moments 1", list, torch.zeros(4).double())


def test_secure_sums_lie_on_a_grid() -> None:
    both = [sums(0, classes=9, seed=None, secure=True, public_size=1.0) for _ in range(2)]
    drawn = [each.mean("classes", list, torch.zeros(9).double())[0] for each in both]
    step = float(SecureRelease(both[0].plan["classes"].law).step)
    assert not torch.equal(*drawn)
    assert bool((drawn[0] / step == (drawn[0] / step).round()).all())


def test_the_result_is_about_means_and_deviations_whatever_the_units() -> None:
    generator = torch.Generator().manual_seed(0)
    plain = torch.randn(5000, 6, generator=generator).double()
    for shift, unit in ((0.0, 1.0), (10.0, 1e-4), (-300.0, 1e4)):
        factors = unit * 3.0 ** torch.arange(6).double()
        rows = (plain + shift) * factors
        center, scale = private_scaling(rows, sums(6, mu=3.0, public_size=5000.0))
        assert float(((center - rows.mean(0)) / rows.std(0)).abs().max()) < 0.2 * max(1, abs(shift) / 30)
        if abs(shift) < 100:  # two rounds do not find a spread 300 times smaller than its place
            assert float((scale / rows.std(0)).log2().abs().max()) < 0.6


def test_of_unit_rows_the_center_is_the_mean_and_what_is_left_of_a_row_has_norm_1() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(4000, 8, generator=generator).double() * 0.5 + torch.arange(8)
    rows = torch.cat(
        (rows / rows.norm(dim=1, keepdim=True), 9 * torch.ones(40, 8).double())
    )  # the last count as 1
    plan = planned_sums(3.0, 0.1, 8, 0, unit_rows=True)
    own = PrivateSums(plan, 4040.0, seed=0)
    center, scale = private_row_scaling(rows, own)
    assert float((center - rows[:4000].mean(dim=0)).abs().max()) < 0.01
    left = ((rows[:4000] - center) / scale / 8**0.5).norm(dim=1)
    assert float(left.square().mean().sqrt()) == pytest.approx(1.0, rel=0.15)
    nothing = PrivateSums(planned_sums(1e-4, 0.1, 8, 0, unit_rows=True), 4040.0, seed=3)
    center, scale = private_row_scaling(rows[:4000], nothing)
    assert float(center.norm()) < 3  # of noise whose norm is 13 on average
    assert float(scale.min()) * 8**0.5 >= 1.0


def test_where_all_is_noise_all_features_get_the_scale_that_is_common() -> None:
    rows = torch.randn(400, 50, generator=torch.Generator().manual_seed(1)).double() * 7
    scales = [private_scaling(rows, sums(50, mu=0.3, public_size=400.0, seed=s))[1] for s in (1, 2)]
    for scale in scales:
        assert float(scale.max() / scale.min()) < 4
        assert 7 / 4 < float(scale.median()) < 7 * 4


def test_shares_are_right_where_noise_is_small_and_even_where_it_is_large() -> None:
    labels = torch.tensor([0] * 970 + [1] * 30)
    shares = [
        private_log_shares(labels, 2, sums=sums(0, classes=2, mu=mu, seed=3)).exp() for mu in (5.0, 1e-4)
    ]
    assert float(shares[0][1]) == pytest.approx(0.03, abs=0.01)
    assert float(shares[1].min()) > 0.2
    assert all(float(share.sum()) == pytest.approx(1.0) for share in shares)


def test_what_is_made_of_noisy_sums_is_what_the_results_were_measured_with() -> None:
    """Recorded: docs/results compares this rule with a search, and no constant of it may move unnoticed."""
    rows = torch.randn(600, 4, generator=torch.Generator().manual_seed(2)).double()
    rows = rows * torch.tensor([1e-2, 1.0, 1.0, 30.0]) + 0.5
    for mu, center, scale in (
        (3.0, [0.471676, 0.467205, 0.425073, -0.774732], [0.050582, 0.726036, 0.72144, 21.778]),
        (0.4, [0.466457, 0.485277, 0.377486, -1.07671], [0.0486818, 0.683946, 0.765804, 21.0187]),
        (0.1, [0.349924, 0.278106, 0.155351, 0.275262], [0.219089, 0.729312, 0.456774, 2.298]),
    ):
        found = private_scaling(rows, sums(4, mu=mu, public_size=600.0))
        assert [part.tolist() for part in found] == [
            pytest.approx(center, rel=1e-5),
            pytest.approx(scale, rel=1e-5),
        ]
    own = PrivateSums(planned_sums(0.5, 0.1, 4, 0, unit_rows=True), 600.0, seed=0)
    center, scale = private_row_scaling(torch.nn.functional.normalize(rows), own)
    assert center.tolist() == pytest.approx([0.0347894, 0.0582093, 0.0533915, -0.0568836], rel=1e-5)
    assert scale.tolist() == pytest.approx([0.497322] * 4, rel=1e-5)
    own = PrivateSums(planned_sums(0.3, 0.25, 4, 3, unit_rows=True), 600.0, seed=0)
    assert private_magnitudes(rows, own).tolist() == pytest.approx(
        [0.411292, 0.469412, 0.473856, 13.4232], rel=1e-5
    )
    shares = private_log_shares(torch.tensor([0] * 400 + [1] * 190 + [2] * 10), 3, sums=own).exp()
    assert shares.tolist() == pytest.approx([0.650707, 0.30427, 0.0450233], rel=1e-5)

"""A job of a batch is the probe that scikit-learn's estimator fits; errors stay with whom they belong."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

import ringfence as rf
from experiments.sweep import batch as sweep_batch
from experiments.sweep.batch import linear_settings, measure
from experiments.sweep.data import sweep_data
from experiments.sweep.epsilons import epsilons
from experiments.sweep.settings import Grid, SweepSetting
from ringfence.accounting.claim.conversion import gaussian_delta
from tests.experiments.sweep.sweeps import DATA, GRID

JOBS = GRID.jobs("paper")


def test_a_job_is_what_the_probe_says(monkeypatch: pytest.MonkeyPatch) -> None:
    data = sweep_data(DATA, replace(GRID, center=0.5, scale=2.0), "fair")
    jobs = [JOBS[0], JOBS[-1], JOBS[16]]
    for job, result in zip(jobs, measure(data, jobs, fisher=True), strict=True):
        setting, seed = job
        assert (result.setting, result.seed, result.error) == (setting, seed, None)
        # the data is scaled already, so that attributes move by half as much: scale 2 of 2 x
        probe = rf.LinearProbe(
            setting.law, setting.clip, setting.learning_rate, setting.steps, public_scale=2.0
        )
        own = linear_settings(setting, seed).seed  # longer than a random_state may be
        monkeypatch.setattr("ringfence.training.probe.seed_of", lambda _, own=own: own)
        probe.fit(2 * data.train[0].numpy(), data.train[1].numpy())
        for (x, y), accuracy in (
            (data.test, result.test_accuracy),
            (data.validation, result.validation_accuracy),
        ):
            assert accuracy == probe.score(2 * x.numpy(), y.numpy())
        assert result.sums is not None
        found, claim = epsilons(result.sums, setting.steps, 1e-5), probe.guarantee(1e-5)
        assert found.epsilon_pdp == pytest.approx(claim.per_instance.renyi_epsilon, rel=1e-3)
        assert found.epsilon_ex_post == pytest.approx(claim.per_instance.ex_post_epsilon, rel=1e-3)
        assert found.epsilon_data_independent == pytest.approx(claim.epsilon, rel=1e-9)
        assert found.gaussian_epsilon_pdp == pytest.approx(claim.gaussian_epsilon_renyi, rel=1e-9)
        assert found.gaussian_epsilon_ex_post == pytest.approx(claim.gaussian_epsilon, rel=1e-9)
        eta = probe.fisher_information_loss()
        assert result.eta_max == pytest.approx(eta.max(), rel=1e-3)
        assert eta.min() < result.eta_median <= result.eta_max  # type: ignore[operator]
        assert (eta <= result.eta_median * (1 + 1e-3)).mean() >= 0.5  # type: ignore[operator]


def test_the_gaussian_has_the_gaussians_epsilon() -> None:
    [result] = measure(sweep_data(DATA, GRID, "paper"), JOBS[:1])
    assert result.sums is not None
    found = epsilons(result.sums, 2, 1e-5)
    assert found.epsilon_pdp == pytest.approx(found.gaussian_epsilon_pdp, rel=1e-9)
    assert found.epsilon_data_independent == found.gaussian_epsilon_data_independent
    # 2 releases of 15 coordinates at sigma = 5 clip: delta at this epsilon is the one asked for
    assert gaussian_delta(math.sqrt(30) / 5, found.epsilon_data_independent) == pytest.approx(1e-5, rel=1e-4)


def test_the_gaussian_under_an_l2_clip_costs_what_everyone_charges_for_it() -> None:
    jobs = [(SweepSetting(law, 0.5, 5.0, 1.0, 2, bound, clip_kind="norm"), 0)
            for law, bound in (("gaussian", None), ("truncated", 20.0))]  # fmt: skip
    result, bounded = measure(sweep_data(DATA, GRID, "paper"), jobs)
    assert result.sums is not None
    assert bounded.sums is not None
    orders = torch.tensor(result.sums.orders, dtype=torch.float64)
    assert result.sums.worst == pytest.approx((2 * orders / (2 * 5.0**2)).tolist(), rel=1e-11)
    found = epsilons(result.sums, 2, 1e-5)
    assert gaussian_delta(math.sqrt(2) / 5, found.epsilon_data_independent) == pytest.approx(1e-5, rel=1e-4)
    assert 0 < epsilons(bounded.sums, 2, 1e-5).epsilon_pdp <= found.epsilon_pdp
    assert linear_settings(*jobs[0]).clip == rf.Norm(0.5)


def test_one_bad_setting_does_not_end_the_others() -> None:
    bad = replace(JOBS[0][0], clip=1e-60)
    jobs = [*JOBS[:3], (bad, 7), *JOBS[3:6]]
    results = measure(sweep_data(DATA, GRID, "paper"), jobs)
    assert [result.error is None for result in results] == [True] * 3 + [False] + [True] * 3
    assert results[3].error == "ValueError: clip (as torch.float32) must be > 0, got 0.0"
    assert (results[3].setting, results[3].seed, results[3].sums) == (bad, 7, None)


def test_a_lost_device_is_not_the_settings_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(sweep_batch, "train_linear_grid", lost)
    with pytest.raises(RuntimeError, match="CUDA error"):
        measure(sweep_data(DATA, GRID, "paper"), JOBS[:4])


def test_noise_depends_on_setting_and_seed_alone() -> None:
    toy = Grid("toy", ("gaussian", "truncated"), (0.1,), (10.0,), (1.0,), (4.0,), (5,))
    one, other = toy.settings("paper")
    seeds = [linear_settings(one, 0).seed, linear_settings(one, 1).seed, linear_settings(other, 0).seed]
    assert len(set(seeds)) == 3
    assert linear_settings(SweepSetting(**vars(one)), 0).seed == seeds[0]
    # written down: a sweep begun with an older version goes on with the same noise
    assert one.key == "75f4c1dcece4301a14b3e84d3103590f"

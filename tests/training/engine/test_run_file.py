"""A run that dies and goes on is the run that never died; what it spent is never forgotten."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ringfence as rf
from ringfence.files.checkpoint import read_checkpoint, write_checkpoint
from tests.training.engine.runs import INPUTS, LABELS, Run, network

# few examples, because the information of each is measured; a full step has parts of 12 and 8
SMALL: dict[str, Any] = {
    "optimizer": lambda p: torch.optim.Adam(p, lr=0.01), "loss": nn.functional.cross_entropy,
    "inputs": INPUTS[:20], "labels": LABELS[:20], "batch_size": 12, "fisher_every": 2,
}  # fmt: skip
SECURE: dict[str, Any] = {"seed": None, "secure": True, "public_size": 60}


def run(**settings: Any) -> Run:
    return Run(**{**SMALL, **settings})


def resumed(path: Path, **settings: Any) -> Run:
    """The run of a file, after its process died."""
    one = Run(**settings)
    one.engine.load(path)
    return one


def state(one: Run) -> list[torch.Tensor]:
    known = one.engine.account.privacy_loss()._own()
    sums = [torch.tensor(known.forward), torch.tensor(known.backward), one.engine.fisher_information_loss()]
    moments = [v for s in one.optimizer.state_dict()["state"].values() for v in s.values()]
    return [one.weights(), *moments, *sums]


@pytest.fixture(scope="module", params=["full", "poisson"])
def uninterrupted(request: pytest.FixtureRequest) -> tuple[str, list[torch.Tensor]]:
    """The sampling of a run that nobody interrupts, and its state after five steps."""
    return request.param, state(run(sampling=request.param).train(5))


def test_resumed_equals_uninterrupted_to_the_bit(
    tmp_path: Path, uninterrupted: tuple[str, list[torch.Tensor]]
) -> None:
    sampling, whole = uninterrupted
    saved = {"full": 1, "poisson": 3}[sampling]  # before and after the information was first measured
    first = run(sampling=sampling).train(saved)
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()
    rest = run(sampling=sampling)
    rest.engine.load(tmp_path / "run.ckpt")
    assert rest.engine.steps == saved
    rest.train(5)
    assert all(torch.equal(a, b) for a, b in zip(whole, state(rest), strict=True))


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_dropout_goes_on_too(tmp_path: Path, sampling: str) -> None:
    def dropping() -> Run:
        return Run(network(nn.Dropout(0.3)), sampling=sampling)

    whole, first, rest = dropping().train(4), dropping().train(2), dropping()
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()
    rest.engine.load(tmp_path / "run.ckpt")
    assert torch.equal(whole.weights(), rest.train(4).weights())


def test_an_engine_whose_file_was_closed_neither_releases_nor_overwrites_what_another_one_released(
    tmp_path: Path,
) -> None:
    path, first = tmp_path / "run.ckpt", Run().train(3)
    first.engine.save(path)
    first.engine.close()
    other = resumed(path).train(5)
    other.engine.close()
    saves = [partial(first.engine.save, tmp_path / name) for name in ("run.ckpt", "other.ckpt")]
    for use in (partial(first.train, 4), *saves):
        with pytest.raises(ValueError, match=r"run\.ckpt was closed: load its run to go on"):
            use()
    first.engine.load(path)
    assert first.engine.account.steps == 5


def test_a_relative_name_is_one_file_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Saved in one folder and then in another: the first file does not forget what the second one knows."""
    one, two = (tmp_path / name for name in ("one", "two"))
    for folder in (one, two):
        folder.mkdir()
    run = Run()
    monkeypatch.chdir(one)
    run.engine.save("run.ckpt")
    monkeypatch.chdir(two)
    run.train(2).engine.save("run.ckpt")
    run.train(3).engine.close()
    with pytest.raises(ValueError, match=r"one/run\.ckpt is in it, or the run went on in another file"):
        Run().engine.load(one / "run.ckpt")
    (one / "link.ckpt").symlink_to(two / "run.ckpt")
    assert resumed(one / "link.ckpt").engine.account.steps == 3


def test_what_examples_of_another_run_paid_is_left_behind(tmp_path: Path) -> None:
    """The file says nothing about single examples, and the engine has made as many steps of its own."""
    first = Run().train(3)
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()
    other = Run(track_examples=True).train(3)
    other.engine.load(tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match="example_epsilons needs every release, got 0 of 3"):
        other.engine.example_epsilons(1e-5)
    other.engine.close()
    measured = run(fisher_every=1).train(1)
    unmeasured = run(fisher_every=0).train(1)
    unmeasured.engine.save(tmp_path / "unmeasured.ckpt")
    unmeasured.engine.close()
    measured.engine.load(tmp_path / "unmeasured.ckpt")
    assert measured.engine.fisher_information_loss().isnan().all()


def test_a_model_that_was_half_loaded_has_no_claim(tmp_path: Path) -> None:
    """Its weights are those of the file, of which the account of the engine knows nothing."""
    first = Run().train(3)
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()

    def in_two_groups(parameters: Any) -> torch.optim.Optimizer:
        weight, *others = parameters
        return torch.optim.SGD([{"params": [weight]}, {"params": others}], lr=1.0)

    other = Run(optimizer=in_two_groups)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        other.engine.load(tmp_path / "run.ckpt")
    assert torch.equal(other.weights(), first.weights())
    for call in (partial(other.engine.guarantee, 1e-5), partial(other.engine.save, tmp_path / "mixed.ckpt")):
        with pytest.raises(ValueError, match=r"run\.ckpt could not be loaded: load it, or make another"):
            call()


@pytest.mark.parametrize(
    ("sampling", "how"),
    [("full", {"seed": 3}), ("poisson", {"seed": 3}), ("poisson", {"seed": None}), ("full", SECURE)],
)
def test_what_was_released_after_the_save_is_spent_and_made_anew(
    tmp_path: Path, sampling: str, how: dict[str, Any]
) -> None:
    settings = {"sampling": sampling, **how}
    first = Run(**settings).train(2)
    first.engine.save(tmp_path / "run.ckpt")
    first.train(5)  # and then it dies
    first.engine.close()
    assert str(first.engine.seed).encode() not in (tmp_path / "run.ckpt").read_bytes() or how == {"seed": 3}
    again = resumed(tmp_path / "run.ckpt", **settings)
    assert again.engine.steps == 2
    assert again.engine.account.steps == 5  # all that was released
    assert again.engine.guarantee(1e-5) == first.engine.guarantee(1e-5)
    again.train(5)
    assert again.engine.account.steps == 8
    assert not torch.equal(first.weights(), again.weights())
    again.engine.close()
    first.engine.load(tmp_path / "run.ckpt")  # the engine that made the first releases
    assert first.train(3).engine.account.steps == 9


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_copies_of_a_file_share_neither_samples_nor_noise(tmp_path: Path, sampling: str) -> None:
    """Two sums under the same noise would give their difference away."""
    how: dict[str, Any] = {
        "sampling": sampling,
        "seed": None,
        "mechanism": rf.Gaussian(0.5),
        "batch_size": 30,
    }
    first = Run(**how).train(1)
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()
    shutil.copytree(tmp_path, tmp_path / "copy")
    one, two = resumed(tmp_path / "run.ckpt", **how), resumed(tmp_path / "copy" / "run.ckpt", **how)
    assert torch.equal(one.weights(), two.weights())
    samples = one.samples(), two.samples()
    moved = [each.train(2).weights() - first.weights() for each in (one, two)]
    assert (samples[0] == samples[1]) == (sampling == "full")
    divisor = one.engine.run.plan.batches.divisor
    assert float((divisor * (moved[0] - moved[1])).std()) > 0.5  # sqrt(2) sigma if the noise is independent
    assert [each.engine.account.steps for each in (one, two)] == [2, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sample_is_not_released_again(tmp_path: Path, workers: int) -> None:
    """Two sums of one sample are not those of two: of 300 repeated steps 3.82 was claimed, and 8.97 true."""
    first = Run(sampling="poisson", workers=workers)
    seen = first.samples()
    first.train(2).engine.save(tmp_path / "run.ckpt")
    first.train(6).engine.close()
    again = Run(sampling="poisson", workers=workers)
    more = again.samples()
    again.engine.load(tmp_path / "run.ckpt")
    again.train(7)
    assert again.engine.account.steps == 6 + 5
    charged = [*seen, *more]
    assert [number for number, _ in charged] == [*range(11)]
    assert len({indices for _, indices in charged}) == 11


@pytest.mark.parametrize("how", [{"seed": 3}, SECURE])
def test_a_file_that_is_loaded_within_a_loop_begins_the_loop_anew(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    """The same engine has the same key, and the sample of a step would be the one that it has released."""
    run = Run(sampling="poisson", **how).train(2)
    run.engine.save(tmp_path / "run.ckpt")
    seen = run.samples()
    for inputs, labels in run.loader:
        run.batch(inputs, labels)
        if len(seen) == 4:
            break
        run.engine.load(tmp_path / "run.ckpt")
    assert [number for number, _ in seen] == [2, 3, 4, 5]
    assert len({indices for _, indices in seen}) == 4
    assert run.engine.account.steps == 6


@pytest.mark.parametrize(("sampling", "there"), [("full", "other.ckpt"), ("poisson", "run.ckpt")])
def test_what_was_released_beyond_a_later_save_is_remembered(
    tmp_path: Path, sampling: str, there: str
) -> None:
    """Saved at 3, died at 7, saved at 5, died at 6: 12 steps, of which two and then one were made twice."""
    first = Run(sampling=sampling).train(3)
    first.engine.save(tmp_path / "run.ckpt")
    first.train(7).engine.close()
    second = resumed(tmp_path / "run.ckpt", sampling=sampling)
    second.train(5).engine.save(tmp_path / there)
    second.train(6).engine.close()
    third = resumed(tmp_path / there, sampling=sampling)
    assert third.train(12).engine.account.steps == 7 + 3 + 7


def test_an_engine_that_leaves_its_run_for_another_draws_other_samples(tmp_path: Path) -> None:
    other, run = (Run(sampling="poisson", seed=None) for _ in range(2))
    other.engine.save(tmp_path / "other.ckpt")
    other.engine.close()
    seen = run.samples()
    run.train(2).engine.load(tmp_path / "other.ckpt")
    run.train(2)
    assert [step for step, _ in seen] == [0, 1, 0, 1]
    assert len({indices for _, indices in seen}) == 4


def test_a_file_of_version_0_6_is_refused(tmp_path: Path) -> None:
    path, first = tmp_path / "run.ckpt", Run().train(1)
    first.engine.save(path)
    tensors, plain = read_checkpoint(path)
    plain["account"] = {"steps": plain.pop("charged")}
    write_checkpoint(path, tensors, plain)
    with pytest.raises(ValueError, match=r"run\.ckpt is a run of ringfence 0\.6: go on with that version"):
        Run().engine.load(path)


def test_schedulers_travel_along(tmp_path: Path) -> None:
    one, two = Run(), Run()
    schedulers = [torch.optim.lr_scheduler.StepLR(r.optimizer, step_size=2, gamma=0.5) for r in (one, two)]
    one.train(1)
    for _ in range(3):
        schedulers[0].step()
    one.engine.save(tmp_path / "run.ckpt", scheduler=schedulers[0])
    with pytest.raises(
        ValueError, match=r"saved with \['scheduler'\] beside the engine, load was given \[\]"
    ):
        two.engine.load(tmp_path / "run.ckpt")
    one.engine.close()
    two.engine.load(tmp_path / "run.ckpt", scheduler=schedulers[1])
    assert schedulers[1].last_epoch == 3
    assert two.optimizer.param_groups[0]["lr"] == one.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": rf.Clamp(0.06)}, r"clip 'Clamp\(0.05\)', this engine has 'Clamp\(0.06\)'"),
        ({"mechanism": rf.Gaussian(0.5)}, "mechanism {.*Truncated"),
        ({"sampling": "poisson"}, "sampling 'full', this engine has 'poisson'"),
        ({"batch_size": 8}, "batch_size 16, this engine has 8"),
        ({"public_size": 99}, "public_size 60.0, this engine has 99.0"),
        ({"model": network(nn.Linear(18, 18))}, "parameters {"),
        (SECURE, "secure False, this engine has True"),
        ({"loss_reduction": "sum"}, "loss_reduction 'mean', this engine has 'sum'"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    Run().train(1).engine.save(tmp_path / "run.ckpt")
    with pytest.raises(ValueError, match=f"was written with {message}"):
        Run(**change).engine.load(tmp_path / "run.ckpt")


def test_two_processes_do_not_share_a_run(tmp_path: Path) -> None:
    first, one, two = Run().train(1), Run(), Run()
    first.engine.save(tmp_path / "run.ckpt")
    first.engine.close()
    one.engine.load(tmp_path / "run.ckpt")
    with pytest.raises(OSError, match="in use by another process"):
        two.engine.load(tmp_path / "run.ckpt")
    one.engine.load(tmp_path / "run.ckpt")  # the same engine may


def test_an_older_file_of_a_run_that_went_on_elsewhere_is_refused(tmp_path: Path) -> None:
    one = Run().train(1)
    one.engine.save(tmp_path / "first.ckpt")
    one.train(2).engine.save(tmp_path / "second.ckpt")
    with pytest.raises(ValueError, match=r"first\.ckpt\.journal is missing: .* the run went on in another"):
        Run().engine.load(tmp_path / "first.ckpt")
    with pytest.raises(ValueError, match=r"first\.ckpt holds a run"):
        one.engine.save(tmp_path / "first.ckpt")
    assert one.train(3).engine.account.steps == 3  # in its second file
    one.engine.close()
    two = resumed(tmp_path / "second.ckpt")
    assert two.engine.steps == 2


def test_after_a_load_that_failed_nothing_is_released(tmp_path: Path) -> None:
    path = tmp_path / "run"
    run = Run().train(1)
    run.engine.save(path)
    run.engine.close()
    kept = path.with_name("run.journal").read_bytes()
    path.with_name("run.journal").unlink()
    other = Run()
    with pytest.raises(ValueError, match=r"run\.journal is missing"):
        other.engine.load(path)
    before = other.weights()
    with pytest.raises(ValueError, match=r"run could not be loaded: load it, or make another engine"):
        other.train(1)
    assert torch.equal(other.weights(), before)
    path.with_name("run.journal").write_bytes(kept)
    other.engine.load(path)
    assert other.train(2).engine.account.steps == 2
    other.engine.close()


@pytest.mark.parametrize(
    ("settings", "charged_first"), [({}, False), ({"sampling": "poisson"}, True), (SECURE, False)]
)
def test_a_run_that_goes_on_stops_where_its_charge_ends(
    tmp_path: Path, settings: Any, charged_first: bool
) -> None:
    path, ledger, first = tmp_path / "run.ckpt", rf.Ledger(delta=1e-5), Run(**settings)
    if charged_first:
        ledger.train(first.engine, 6)
    first.engine.save(path)
    if not charged_first:
        ledger.train(first.engine, 6)
        first.engine.close()  # before it has released anything
        first = resumed(path, **settings)
    first.train(4).engine.close()
    for _ in range(2):
        rest = resumed(path, **settings)
        with pytest.raises(ValueError, match="is beyond the 6 steps that were charged beforehand"):
            rest.train(33)
        assert rest.engine.account.steps == 6
        rest.engine.save(path)
        rest.engine.close()
    own = rest.engine.guarantee(1e-5).epsilon
    assert ledger.guarantee().epsilon == pytest.approx(own, rel=1e-9)


def test_what_a_run_that_died_makes_again_is_charged_to_the_same_entry(tmp_path: Path) -> None:
    path, ledger, one = tmp_path / "run.ckpt", rf.Ledger(epsilon=60.0, delta=1e-5), Run()
    for saved, death in ((3, 7), (5, 6), (9, 12)):
        assert ledger.train(one.engine, 12 - one.engine.steps) == 0  # as a script does when it begins
        one.train(saved).engine.save(path)
        one.train(death).engine.close()
        one = resumed(path)
    ledger.train(one.engine, 3)
    released = 7 + 3 + 7 + 3
    assert one.train(12).engine.account.steps == released
    assert [(entry.cost.steps, entry.until) for entry in ledger.entries] == [(released, released)]
    own = one.engine.guarantee(1e-5)
    assert ledger.guarantee().epsilon == pytest.approx(own.epsilon)
    ledger.settle(0, one.engine.account)
    assert ledger.guarantee().per_instance.ex_post_epsilon == pytest.approx(own.per_instance.ex_post_epsilon)


def test_what_a_run_makes_beyond_its_charge_is_charged_to_the_same_entry(tmp_path: Path) -> None:
    ledger, one = rf.Ledger(epsilon=4.0, delta=1e-5), Run(mechanism=rf.Gaussian(1.0))
    with pytest.raises(ValueError, match="PrivacyEngine would bring epsilon to"):
        ledger.train(one.engine, 500)
    assert one.train(2).engine.run.releases.most is None
    assert [ledger.train(one.engine, steps) for steps in (3, 2, 5)] == [0, 0, 0]
    assert [(entry.cost.steps, entry.until) for entry in ledger.entries] == [(5, 7)]
    ledger.charge("something else", one.engine.planned_cost(1))
    before = ledger.entries
    with pytest.raises(ValueError, match="PrivacyEngine would bring epsilon to"):
        ledger.train(one.engine, 500)
    assert ledger.entries == before
    assert ledger.train(one.engine, 6) == 0
    assert [entry.cost.steps for entry in ledger.entries] == [6, 1]
    with pytest.raises(ValueError, match="is beyond the 8 steps"):
        one.train(9)


def test_a_run_is_loaded_before_it_is_charged(tmp_path: Path) -> None:
    path, first = tmp_path / "run.ckpt", Run()
    rf.Ledger(delta=1e-5).train(first.engine, 6)
    first.engine.save(path)
    first.train(2).engine.load(path)  # its own file
    first.engine.close()
    other = Run()
    rf.Ledger(delta=1e-5).train(other.engine, 6)
    with pytest.raises(
        ValueError, match=r"a ledger was charged for another run than .*: load before ledger\.train"
    ):
        other.engine.load(path)


def test_a_file_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Run().engine.load(tmp_path / "none.ckpt")
    (tmp_path / "text").write_text("hello, this is no checkpoint")
    with pytest.raises(ValueError, match="not a ringfence checkpoint"):
        Run().engine.load(tmp_path / "text")

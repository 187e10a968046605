"""Several releases, one claim: written down before they are made, and never above the budget."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.accounting.costs.budget import BudgetExceededError
from ringfence.files.journal import Journal

LAW = rf.RectifiedGaussian(2.0, bound=4.0)
LABELS = np.arange(60) % 3
FEATURES = np.random.default_rng(0).normal(size=(60, 4)) + 2 * np.eye(3, 4)[LABELS]


def probe(**changes: Any) -> rf.LinearProbe:
    return rf.LinearProbe(LAW, **{"clip": 0.05, "steps": 3, "random_state": 0, **changes})


def engine(sampling: Any) -> tuple[rf.PrivacyEngine, Any]:
    made = rf.PrivacyEngine(rf.TruncatedGaussian(1.0, bound=2.0), rf.Clamp(0.1), sampling=sampling, seed=0)
    model = nn.Linear(4, 3)
    data = TensorDataset(torch.from_numpy(FEATURES).float(), torch.from_numpy(LABELS))
    objects = made.make_private(
        model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(data, batch_size=20)
    )
    return made, objects


def trained(objects: Any, epochs: int) -> None:
    model, optimizer, loader = objects
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def test_a_release_is_on_the_disk_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "study.ledger", []
    drawn = rf.Mechanism.release

    def watched(*arguments: Any, **more: Any) -> Any:
        seen.append([record["what"] for record in Journal.read(path)[1]])
        return drawn(*arguments, **more)

    monkeypatch.setattr(rf.Mechanism, "release", watched)
    with rf.Ledger(epsilon=5.0, delta=1e-5, path=path) as ledger:
        released = ledger.release(LAW, pandas.Series([1, 2]), 1.0, what="ages")
        ledger.fit(probe(random_state=None, secure=True, public_size=60), FEATURES, LABELS)
    assert released.shape == (2,)
    assert seen == [["ages"], *[["ages", "LinearProbe"]] * 3]


def test_what_exceeds_the_budget_is_refused_and_not_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = rf.Ledger(epsilon=2.5, delta=1e-5, path=tmp_path / "study.ledger")
    ledger.release(rf.Gaussian(2.0), 0.0, 1.0)
    monkeypatch.setattr(rf.Mechanism, "release", lambda *_, **__: pytest.fail("released"))
    with pytest.raises(
        BudgetExceededError, match=r"age would bring epsilon to 2\.9\d* at delta 1e-05, above the"
    ):
        ledger.release(rf.Gaussian(2.0), 0.0, 1.0, what="age")
    for job in (rf.release_counts, partial(rf.release_winners, neighbours="added"), rf.release_votes):
        with pytest.raises(BudgetExceededError, match=r"release_.* would bring epsilon to"):
            job(np.ones((3, 3)), sigma=1.0, ledger=ledger)
    with pytest.raises(BudgetExceededError, match="LinearProbe would bring"):
        ledger.fit(probe(clip=3.0), FEATURES, LABELS)
    assert len(ledger.entries) == len(Journal.read(tmp_path / "study.ledger")[1]) == 1


def test_every_job_is_charged_what_its_own_account_says() -> None:
    people = {"region": ["north", "south"] * 40, "income": [3.0, 5.0] * 40}
    import pandas

    frame, limits = (
        pandas.DataFrame(people),
        {"lower": 0, "upper": 10, "domain": {"region": ["north", "south"]}},
    )
    jobs: list[Any] = [
        lambda ledger: rf.release_counts([30, 4], sigma=3.0, suppress_below=5, ledger=ledger),
        lambda ledger: rf.release_votes(np.ones((50, 2)), sigma=9.0, ledger=ledger),
        lambda ledger: rf.release_winners(np.array([[40, 3], [9, 8]]), sigma=9.0, ledger=ledger),
        lambda ledger: rf.release_means(frame, of="income", by="region", sigma=3.0, **limits, ledger=ledger),
    ]
    for job, neighbours in zip(jobs, ("added", "added", "replaced", "added"), strict=True):
        ledger = rf.Ledger(delta=1e-6, neighbours=neighbours)
        own = job(ledger).account
        claim = ledger.guarantee(1e-6)
        assert claim.epsilon_data_independent == pytest.approx(own.epsilon, rel=1e-7)
        assert claim.epsilon == pytest.approx(own.guarantee.epsilon, rel=1e-7)


def test_who_takes_part_and_what_they_say_are_different_promises() -> None:
    winners = partial(rf.release_winners, np.array([[40, 3], [9, 8]]), sigma=20.0)
    with pytest.raises(ValueError, match="neighbours of the ledger must be 'replaced', got 'added'"):
        winners(ledger=rf.Ledger())
    ledger = rf.Ledger(neighbours="replaced")
    winners(ledger=ledger)
    rf.release_counts([30, 4], sigma=20.0, ledger=ledger)
    claim = ledger.guarantee()
    assert claim.change == "replaced by another one"
    assert claim.mu == pytest.approx(np.sqrt(2 * (2**0.5 / 20) ** 2 + (2 / 20) ** 2), rel=1e-6)


@pytest.mark.parametrize(
    "changes", [{}, {"target_epsilon": 1.0, "target_delta": 1e-5}, {"class_weight": {0: 3.0}}]
)
def test_a_fit_costs_what_was_planned_and_less_for_the_data_at_hand(changes: Any) -> None:
    ledger = rf.Ledger(delta=1e-5)
    planned = probe(**changes).planned_cost(FEATURES, LABELS).guarantee(1e-5)
    fitted = ledger.fit(probe(**changes), FEATURES, LABELS)
    claim, own = ledger.guarantee(), fitted.guarantee(1e-5)
    assert claim.epsilon_data_independent == pytest.approx(own.epsilon_data_independent, rel=1e-7)
    assert claim.epsilon == pytest.approx(own.epsilon, rel=1e-7)
    assert claim.epsilon <= planned.epsilon
    assert planned.epsilon_data_independent == pytest.approx(claim.epsilon_data_independent, rel=1e-7)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_an_engine_stops_where_its_charge_ends(sampling: Any) -> None:
    made, objects = engine(sampling)
    steps = {"full": 2, "poisson": 6}[sampling]
    ledger = rf.Ledger(delta=1e-5)
    entry = ledger.train(made, steps)
    charged = ledger.guarantee()
    trained(objects, 2)
    assert made.account.steps == steps
    assert charged.epsilon_data_independent == pytest.approx(made.guarantee(1e-5).epsilon_data_independent)
    ledger.settle(entry, made.account)
    assert ledger.guarantee().epsilon <= charged.epsilon
    with pytest.raises(ValueError, match=f"is beyond the {steps} steps that were charged beforehand"):
        trained(objects, 1)


def test_a_file_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    with rf.Ledger(epsilon=2.0, delta=1e-5, planned=True, path=path) as first:
        first.fit(probe(), FEATURES, LABELS)
        first.charge("another library's mean", (0.25, 0.0))
    # whatever version goes on with it finds it by these names
    named = {"kind": "Ledger", "version": 1, "neighbours": "added"}
    named |= {"epsilon": 2.0, "delta": 1e-5, "planned": True}
    assert named.items() <= Journal.read(path)[0].items()
    with rf.Ledger(epsilon=2.0, delta=1e-5, planned=True, path=path) as again:
        assert again.entries == first.entries
        assert again.guarantee() == first.guarantee()
    with pytest.raises(ValueError, match=r"is a ledger with epsilon 2\.0, not 3\.0"):
        rf.Ledger(epsilon=3.0, delta=1e-5, path=path)
    with pytest.raises(ValueError, match="the ledger is closed: a mean was not charged"):
        again.charge("a mean", (0.1, 0.0))


def test_the_statement_says_what_the_budget_covers() -> None:
    said = "also where releases were chosen by looking at earlier ones"
    empty = rf.Ledger(epsilon=4.0, delta=1e-5).statement
    assert said in empty
    assert f"private, {said}. Entries: nothing." in empty  # and nothing in between
    ledger = rf.Ledger(epsilon=4.0, delta=1e-5, planned=True)
    ledger.release(rf.Gaussian(2.0), 0.0, 1.0)
    ledger.charge("a mean of another library", (0.5, 1e-9))
    assert "provided that all releases were planned beforehand" in ledger.statement
    assert "Of 1 releases only epsilon and delta are known: these were added up" in ledger.statement


def test_what_is_no_cost_is_refused() -> None:
    ledger = rf.Ledger()
    with pytest.raises(TypeError, match=r"cost must be an account, a Cost or a pair .* got 1\.0"):
        ledger.charge("a mean", 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="estimator must be a LinearProbe, got Linear"):
        ledger.fit(nn.Linear(1, 1), FEATURES, LABELS)
    with pytest.raises(ValueError, match="number must be that of an entry, below 0, got 0"):
        ledger.settle(0, rf.PerInstanceAccountant(LAW, 1.0))


def test_entries_are_called_what_the_user_calls_them_or_what_they_are() -> None:
    class Stub:
        account_ = rf.PerInstanceAccountant(LAW, 0.1)

        def planned_cost(self, *_: object) -> rf.PerInstanceAccountant:
            return self.account_

        def fit(self, *_: object) -> "Stub":
            return self

        def stop_after(self, steps: int) -> None:
            stopped.append(steps)

    ledger, stopped = rf.Ledger(delta=1e-5), []
    for named in ({}, {"what": "mine"}):
        ledger.fit(Stub(), FEATURES, **named)
        assert ledger.train(Stub(), 7, **named) == len(ledger.entries) - 1
        ledger.release(LAW, [0.1, 0.2], 0.1, **named)
    ledger.release(LAW, 0.1, 0.1)
    assert [entry.what for entry in ledger.entries] == [
        *("Stub", "Stub", "release of 2 numbers", "mine", "mine", "mine", "release of 1 number")
    ]
    assert stopped == [7, 7]


def test_a_plain_sample_is_called_what_it_is() -> None:
    ledger, generator = rf.Ledger(), torch.Generator().manual_seed(0)
    ledger.release(rf.Gaussian(1.0), 0.0, 1.0, what="a mean", secure=False, generator=generator)
    ledger.release(rf.Gaussian(1.0), 0.0, 1.0, what="a sum")
    assert "a mean (in floating point, whose last bits may tell more); a sum." in ledger.statement

"""Several releases, one claim: written down before they are made, and never above the budget."""

import copy
import json
import os
import pickle
import random
import shutil
import signal
import sqlite3
import sys
import threading
from contextlib import closing
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
from ringfence.accounting.ledger import BudgetExceededError, Entry
from ringfence.accounting.privacy_loss import PrivacyLoss
from ringfence.mechanisms import secure
from tests.forks import FORK, ended

LAW = rf.RectifiedGaussian(2.0, bound=4.0)
LABELS = np.arange(60) % 3
FEATURES = np.random.default_rng(0).normal(size=(60, 4)) + 2 * np.eye(3, 4)[LABELS]


PEOPLE = pandas.DataFrame({"region": ["north", "south"] * 40, "income": [3.0, 5.0] * 40})
JOBS: dict[str, Any] = {
    "counts": partial(rf.release_counts, [30, 4], suppress_below=5),
    "votes": partial(rf.release_votes, np.ones((50, 2))),
    "winners": partial(rf.release_winners, np.array([[40, 3], [9, 8]])),
    "means": partial(
        rf.release_means,
        PEOPLE,
        of="income",
        by="region",
        lower=0,
        upper=10,
        domain={"region": ["north", "south"]},
    ),
}


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


def written(path: Path) -> list[Entry]:
    """The entries of a file, whatever its budget is."""
    return rf.Ledger(f"sqlite:///{path}").entries


def test_a_release_is_on_the_disk_before_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "study.ledger", []
    drawn = secure.numbers

    def watched(*arguments: Any) -> Any:
        seen.append([entry.what for entry in written(path)])
        return drawn(*arguments)

    monkeypatch.setattr(secure, "numbers", watched)
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
    monkeypatch.setattr(secure, "numbers", lambda *_: pytest.fail("released"))
    with pytest.raises(
        BudgetExceededError, match=r"age would bring epsilon to 2\.9\d* at delta 1e-05, above the"
    ):
        ledger.release(rf.Gaussian(2.0), 0.0, 1.0, what="age")
    for job in (rf.release_counts, rf.release_winners, rf.release_votes):
        with pytest.raises(BudgetExceededError, match=r"release_.* would bring epsilon to"):
            job(np.ones((3, 3)), sigma=1.0, ledger=ledger)
    with pytest.raises(BudgetExceededError, match="LinearProbe would bring"):
        ledger.fit(probe(clip=3.0), FEATURES, LABELS)
    assert len(ledger.entries) == len(written(tmp_path / "study.ledger")) == 1


def test_every_job_is_charged_what_its_own_account_says() -> None:
    for name, job in JOBS.items():
        ledger = rf.Ledger(delta=1e-6, neighbours="replaced" if name == "winners" else "added")
        own = job(sigma=9.0, ledger=ledger).account
        claim = ledger.guarantee(1e-6)
        assert claim.epsilon == pytest.approx(own.epsilon, rel=1e-7)
        assert claim.per_instance.ex_post_epsilon == pytest.approx(
            own.guarantee.per_instance.ex_post_epsilon, rel=1e-7
        )


def test_who_takes_part_and_what_they_say_are_different_promises() -> None:
    winners = partial(rf.release_winners, np.array([[40, 3], [9, 8]]), sigma=20.0)
    with pytest.raises(ValueError, match="neighbours of the ledger must be 'replaced', got 'added'"):
        winners(neighbours="replaced", ledger=rf.Ledger())
    votes = partial(rf.release_votes, np.ones((9, 2)), sigma=20.0)
    for job, usual in ((winners, "replaced"), (votes, "added")):
        for said in ("added", "replaced"):  # what is left out is what the ledger protects
            assert job(ledger=rf.Ledger(neighbours=said)).account.replaced == (said == "replaced")
        assert job().account.replaced == (usual == "replaced")
    ledger = rf.Ledger(neighbours="replaced")
    winners(ledger=ledger)
    rf.release_counts([30, 4], sigma=20.0, ledger=ledger)
    claim = ledger.guarantee()
    assert claim.change == "replaced by another one"
    assert claim.mu == pytest.approx(np.sqrt(2 * (2**0.5 / 20) ** 2 + (2 / 20) ** 2), rel=1e-6)


@pytest.mark.parametrize("changes", [{}, {"target_epsilon": 1.0, "target_delta": 1e-5}])
def test_a_fit_costs_what_was_planned_and_less_for_the_data_at_hand(changes: Any) -> None:
    ledger = rf.Ledger(delta=1e-5)
    planned = probe(**changes).planned_cost(FEATURES, LABELS).guarantee(1e-5)
    fitted = ledger.fit(probe(**changes), FEATURES, LABELS)
    claim, own = ledger.guarantee(), fitted.guarantee(1e-5)
    assert claim.epsilon == pytest.approx(own.epsilon, rel=1e-7)
    assert claim.per_instance.ex_post_epsilon == pytest.approx(own.per_instance.ex_post_epsilon, rel=1e-7)
    assert claim.per_instance.ex_post_epsilon <= planned.per_instance.ex_post_epsilon
    assert planned.epsilon == pytest.approx(claim.epsilon, rel=1e-7)


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_an_engine_stops_where_its_charge_ends(sampling: Any) -> None:
    made, objects = engine(sampling)
    steps = {"full": 2, "poisson": 6}[sampling]
    ledger = rf.Ledger(delta=1e-5)
    entry = ledger.train(made, steps)
    charged = ledger.guarantee()
    trained(objects, 2)
    assert made.account.steps == steps
    assert charged.epsilon == pytest.approx(made.guarantee(1e-5).epsilon)
    ledger.settle(entry, made.account)
    assert ledger.guarantee().per_instance.ex_post_epsilon <= charged.per_instance.ex_post_epsilon
    with pytest.raises(ValueError, match=f"is beyond the {steps} steps that were charged beforehand"):
        trained(objects, 1)


def test_a_file_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    with rf.Ledger(epsilon=2.0, delta=1e-5, planned=True, path=path) as first:
        first.fit(probe(), FEATURES, LABELS)
        first.charge("another library's mean", (0.25, 0.0))
    # whatever version goes on with it finds it by these names
    named = {"kind": "Ledger", "version": 2, "neighbours": "added"}
    named |= {"epsilon": 2.0, "delta": 1e-5, "planned": True}
    with closing(sqlite3.connect(path)) as connection:
        header, *rows = connection.execute("SELECT content FROM ringfence_ledger ORDER BY number").fetchall()
    assert named.items() <= json.loads(header[0]).items()
    assert [sorted(json.loads(row[0])) for row in rows[:2]] == [["cost", "what"], ["cost", "settles"]]
    assert [file.stat().st_mode & 0o777 for file in tmp_path.iterdir()] == [0o600] * 2
    with rf.Ledger(epsilon=2.0, delta=1e-5, planned=True, path=path) as again:
        assert again.entries == first.entries
        assert again.guarantee() == first.guarantee()
    with pytest.raises(ValueError, match=r"is a ledger with epsilon 2\.0, not 3\.0"):
        rf.Ledger(epsilon=3.0, delta=1e-5, path=path)
    with pytest.raises(ValueError, match="the ledger is closed: a mean was not charged"):
        again.charge("a mean", (0.1, 0.0))


def test_a_database_that_is_there_is_opened_by_its_url(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    with pytest.raises(FileNotFoundError, match="holds no ledger: give epsilon to make one"):
        rf.Ledger(url)
    assert not list(tmp_path.iterdir())
    first = rf.Ledger(url, epsilon=2.0, delta=1e-5, neighbours="replaced", planned=True)
    first.charge("another library's mean", (0.25, 0.0))
    again = rf.Ledger(url)
    assert (again.epsilon, again.delta, again.neighbours, again.planned) == (2.0, 1e-5, "replaced", True)
    assert again.entries == first.entries
    for changed in (
        {"epsilon": 3.0},
        {"epsilon": np.inf},
        {"delta": 1e-6},
        {"neighbours": "added"},
        {"planned": False},
    ):
        with pytest.raises(ValueError, match=rf"study\.db is a ledger with {next(iter(changed))} .*, not "):
            rf.Ledger(url, **changed)
    endless = rf.Ledger(f"sqlite:///{tmp_path}/endless.db", epsilon=np.inf)
    assert (endless.epsilon, endless.remaining()) == (None, np.inf)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("study.db", "url must be like .* got what begins with 'study.db'"),
        ("sqlite://", "a ledger in memory has no URL"),
        ("sqlite:///:memory:", "a ledger in memory has no URL"),
        ("sqlite:///study.db?mode=ro", "url must be like .*mode=ro"),
        ("mysql://a:secret@b/c", r"url must be like .* got 'mysql://a:\*\*\*@b/c'"),
        ("postgresql://a:secret@b:port/c", "url must be like .* got what begins with 'postgresql'"),
        (1.0, r"url must be a str, got 1\.0"),
    ],
)
def test_what_is_no_url_of_a_known_database_is_refused(url: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error) as raised:
        rf.Ledger(url, epsilon=1.0)
    assert "secret" not in str(raised.value)


def test_a_database_without_its_library_says_what_to_install(tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "psycopg", None)
        with pytest.raises(
            ModuleNotFoundError, match=r"x needs psycopg: pip install 'ringfence\[postgresql\]'"
        ):
            rf.Ledger("postgresql://server/x")
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs SQLAlchemy: pip install 'ringfence\[tables\]'"):
        rf.Ledger(f"sqlite:///{tmp_path}/study.db", epsilon=1.0)
    assert rf.Ledger(epsilon=1.0).charge("a mean", MEAN) == 0


@pytest.mark.parametrize("neighbours", ["added", "replaced"])
@pytest.mark.parametrize(("law", "noise"), [(rf.Gaussian, "gaussian"), (rf.Laplace, "laplace")])
def test_what_remains_fits_and_more_does_not(law: Any, noise: Any, neighbours: Any) -> None:
    """A release that protects added people costs twice in a ledger of replaced ones."""
    share = 0.25 if neighbours == "replaced" else 0.6
    ledger = rf.Ledger(epsilon=1.0, delta=1e-6, neighbours=neighbours)
    rf.release_counts([30, 4], epsilon=share, noise=noise, ledger=ledger)
    left = ledger.remaining(law)
    assert 0.1 < left < 1.0
    factor = 1.0 if neighbours == "added" else 0.4
    target = {"epsilon": factor * left, "noise": noise, "ledger": ledger}
    with pytest.raises(BudgetExceededError):
        rf.release_counts([30, 4], **{**target, "epsilon": 1.01 * left})
    rf.release_counts(np.arange(500), **target)
    assert ledger.guarantee().epsilon <= 1.0
    if neighbours == "added":
        assert ledger.remaining(law) < 0.05


def test_nothing_remains_of_what_is_spent() -> None:
    ledger = rf.Ledger(epsilon=1.0, delta=1e-5)
    spend(ledger)
    assert 0 < ledger.remaining() < 0.4
    pure = rf.Ledger(epsilon=1.0, delta=0.0)
    assert pure.remaining() == 0.0  # Gaussian noise has no epsilon at delta = 0
    assert pure.remaining(rf.Laplace) == pytest.approx(1.0, rel=2e-3)


def test_a_job_names_its_entry() -> None:
    ledger = rf.Ledger(neighbours="replaced")
    for name, job in JOBS.items():
        job(sigma=20.0, ledger=ledger, what=f"the {name}")
    pate = rf.Pate(20.0, ledger=ledger, what="labels of May")
    pate.label([[240, 10]])
    assert [entry.what for entry in ledger.entries] == [*(f"the {name}" for name in JOBS), "labels of May"]
    for bad in ({"what": "table 1"}, {"what": "", "ledger": ledger}, {"what": 3, "ledger": ledger}):
        with pytest.raises((ValueError, TypeError), match="what must be"):
            JOBS["counts"](sigma=20.0, **bad)


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
    with pytest.raises(TypeError, match=r"cost must be an account, a PrivacyLoss or a pair .* got 1\.0"):
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

    ledger = rf.Ledger(delta=1e-5)
    for named in ({}, {"what": "mine"}):
        ledger.fit(Stub(), FEATURES, **named)
        assert ledger.train(engine("full")[0], 7, **named) == len(ledger.entries) - 1
        ledger.release(LAW, [0.1, 0.2], 0.1, **named)
    ledger.release(LAW, 0.1, 0.1)
    assert [entry.what for entry in ledger.entries] == [
        *("Stub", "PrivacyEngine", "release of 2 numbers", "mine", "mine", "mine", "release of 1 number")
    ]


def test_a_plain_sample_is_called_what_it_is() -> None:
    ledger, generator = rf.Ledger(), torch.Generator().manual_seed(0)
    ledger.release(rf.Gaussian(1.0), 0.0, 1.0, what="a mean", secure=False, generator=generator)
    ledger.release(rf.Gaussian(1.0), 0.0, 1.0, what="a sum")
    assert "a mean (in floating point, whose last bits may tell more); a sum." in ledger.statement


MEAN = rf.PerInstanceAccountant(rf.Gaussian(10.0), 1.0)
MEAN.step([0.0])
MOST = 7  # of them, at an epsilon of 1


def opened(place: Any) -> rf.Ledger:
    """The ledger of a path or a URL, with a budget of 1."""
    return rf.Ledger(place if isinstance(place, str) else f"sqlite:///{place}", epsilon=1.0, delta=1e-5)


def spend(place: Any, times: int = MOST + 1) -> None:
    """Charges until the budget is spent, in whatever thread or process this is."""
    ledger = place if isinstance(place, rf.Ledger) else opened(place)
    for _ in range(times):
        try:
            ledger.charge("a mean", MEAN)
        except BudgetExceededError:
            return


def spent(place: Any) -> float:
    return float(opened(place).guarantee().epsilon)


@pytest.mark.parametrize("in_memory", [False, True])
def test_threads_share_one_budget(in_memory: bool, tmp_path: Path) -> None:
    ledger = rf.Ledger(epsilon=1.0, delta=1e-5, path=None if in_memory else tmp_path / "study.ledger")
    threads = [threading.Thread(target=spend, args=(ledger,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.entries) == MOST
    assert 0.9 < ledger.guarantee().epsilon <= 1.0


def test_processes_and_objects_share_the_budget_of_a_file(tmp_path: Path) -> None:
    path, link = tmp_path / "study.ledger", tmp_path / "link.ledger"
    link.symlink_to(path)
    processes = [FORK.Process(target=spend, args=(each,)) for each in (path, link, path, link)]
    for process in processes:
        process.start()  # none has found a file there, and all begin one
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(written(path)) == len(written(link)) == MOST
    assert 0.9 < spent(path) <= 1.0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork")
def test_a_forked_child_spends_the_same_budget_or_none(tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    shared, own = rf.Ledger(epsilon=1.0, delta=1e-5, path=path), rf.Ledger(epsilon=1.0, delta=1e-5)
    for ledger in (shared, own):
        ledger.charge("before", MEAN)
    child = os.fork()
    if not child:  # pragma: no cover
        status = 1
        try:
            spend(shared, 2)
            try:
                own.charge("in the child", MEAN)
            except ValueError as error:
                status = 0 if "a ledger in memory belongs to one process" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert len(shared.entries) == 3  # also where they were written by the child
    spend(shared)
    assert len(shared.entries) == MOST
    assert 0.9 < spent(path) <= 1.0


def die_after_the_charge(place: Any) -> None:
    secure.numbers = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    opened(place).release(rf.Gaussian(10.0), [0.0], 1.0, what="a mean")


def die_before_the_charge(place: Any) -> None:
    ledger = opened(place)
    with ledger._table.transaction() as append:
        append({"what": "a mean", "cost": MEAN.privacy_loss().state()})
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_after_the_charge_leaves_it_and_one_before_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    assert ended(die_before_the_charge, path) == -signal.SIGKILL
    assert written(path) == []
    assert ended(die_after_the_charge, path) == -signal.SIGKILL
    assert [entry.what for entry in written(path)] == ["a mean"]


def test_a_ledger_is_not_copied(tmp_path: Path) -> None:
    for path in (None, tmp_path / "study.ledger"):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=r"a Ledger is not copied or pickled.*open the same URL"):
                copied(rf.Ledger(epsilon=1.0, path=path))


def test_a_ledger_that_went_or_is_another_one_is_refused(tmp_path: Path) -> None:
    path, other, old = (tmp_path / name for name in ("study.ledger", "other.ledger", "old.ledger"))
    ledgers = [rf.Ledger(epsilon=1.0, delta=1e-5, path=each) for each in (path, other)]
    for ledger in ledgers:
        spend(ledger, 2)
    shutil.copy(path, old)
    for ledger in ledgers:
        spend(ledger, 1)  # the other one has a row of the same number
    for bad in (old, other, None):  # an older one, another one, none
        path.unlink()
        if bad is not None:
            shutil.copy(bad, path)
        with pytest.raises(
            ValueError, match=r"study\.ledger was removed, .* since its row 4 was written: put"
        ):
            rf.Ledger(epsilon=1.0, delta=1e-5, path=path)
        with pytest.raises((ValueError, OSError), match=r"since its row 4 was|cannot be"):
            ledgers[0].charge("a mean", MEAN)
    path.unlink(missing_ok=True)
    path.with_name("study.ledger.lock").unlink()
    assert rf.Ledger(epsilon=1.0, delta=1e-5, path=path).entries == []


@pytest.mark.parametrize(
    "command",
    [
        "UPDATE ringfence_ledger SET content = spliced.content FROM other.ringfence_ledger AS spliced "
        "WHERE ringfence_ledger.number = 3 AND spliced.number = 3",
        "UPDATE ringfence_ledger SET content = spliced.content, hash = spliced.hash "
        "FROM other.ringfence_ledger AS spliced WHERE ringfence_ledger.number = 3 AND spliced.number = 3",
        "INSERT INTO ringfence_ledger SELECT 5, content, hash FROM other.ringfence_ledger WHERE number = 4",
        "UPDATE ringfence_ledger SET content = replace(content, '0.1', '0.0') WHERE number = 2",
        "DELETE FROM ringfence_ledger WHERE number = 3",
        "DELETE FROM ringfence_ledger WHERE number = 4",
    ],
)
def test_rows_of_another_ledger_or_changed_ones_are_refused(command: str, tmp_path: Path) -> None:
    path, other = tmp_path / "study.ledger", tmp_path / "other.ledger"
    for each, account in ((path, MEAN), (other, rf.PerInstanceAccountant(LAW, 0.1))):
        with rf.Ledger(epsilon=1.0, delta=1e-5, path=each) as ledger:
            for _ in range(3):
                ledger.charge("a mean", account)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ATTACH ? AS other", (str(other),))
        connection.execute(command)
        connection.commit()
    with pytest.raises(ValueError, match=r"is damaged, or row . was not written by it|was removed, cut"):
        rf.Ledger(epsilon=1.0, delta=1e-5, path=path)


def test_a_ledger_of_version_0_6_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    path.write_text('0123456789abcdef 41 {"format": "ringfence journal", "header": {}}\n')
    with pytest.raises(ValueError, match=r"study\.ledger is no database: a ledger of version 0\.6 is a text"):
        rf.Ledger(epsilon=1.0, delta=1e-5, path=path)


@pytest.mark.parametrize("text", [b"hello", b"SQLite format 3\x00 and more", b"x" * 5000])
def test_other_files_are_no_ledgers(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "study.ledger"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"is no database|file is not a database"):
        rf.Ledger(path=path)
    assert path.read_bytes() == text


def test_totals_are_the_sums_of_entries_however_they_were_settled() -> None:
    ledger, costs = rf.Ledger(delta=1e-5), []
    for number in range(6):
        account = rf.PerInstanceAccountant(LAW, 0.1 * (number + 1))
        account.step([float(number)])
        costs.append(account.privacy_loss())
        ledger.charge("a mean", account)
    for number in (5, 2, 5, 0):
        ledger.settle(number, costs[1])
        costs[number] = costs[number].realised(costs[1])
    total = PrivacyLoss()
    for cost in costs:
        total = total + cost
    assert [entry.cost for entry in ledger.entries] == costs
    assert ledger.total == total


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_numbers_of_numpy_are_numbers(job: Any) -> None:
    for target in ({"epsilon": np.int64(2)}, {"epsilon": np.float32(2)}, {"sigma": np.int64(20)}):
        for more in ({}, {"delta": np.float64(1e-6)}):
            ledger = rf.Ledger(epsilon=np.int64(9), delta=np.float64(1e-5), neighbours="replaced")
            released = job(**target, **more, ledger=ledger)
            assert len(ledger.entries) == 1
            json.loads(released.account.to_json())
    assert isinstance(ledger.epsilon, float)


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize(
    "bad",
    [
        *({"seed": -3}, {"seed": "x"}, {"sigma": 1e300}, {"sigma": np.nan}, {"epsilon": np.ones(2)}),
        *(
            {"epsilon": "1"},
            {"epsilon": 1.0, "delta": 2},
            {"sigma": 20.0, "at_most": "x"},
            {"sigma": [1.0, 2.0]},
        ),
    ],
)
def test_bad_arguments_of_a_job_are_not_charged(job: Any, bad: Any) -> None:
    ledger = rf.Ledger(delta=1e-5, neighbours="replaced")
    with pytest.raises((ValueError, TypeError), match=f"^{list(bad)[-1]} must"):
        job(**{**({} if {"epsilon", "sigma"} & set(bad) else {"sigma": 20.0}), **bad}, ledger=ledger)
    assert ledger.entries == []


@pytest.mark.parametrize(
    "bad",
    [
        *({"step": -1}, {"step": "a"}, {"step": [1.0, 2.0, 3.0]}, {"step": 1e-30}, {"step": 100.0}),
        *({"secure": "yes"}, {"secure": False}, {"secure": False, "generator": 3}),
        *({"generator": torch.Generator()}, {"secure": False, "generator": torch.Generator(), "step": 1.0}),
        *({"theta": [np.nan]}, {"theta": "x"}, {"sensitivity": -1}, {"mechanism": rf.Gaussian(1e300)}),
    ],
)
def test_bad_arguments_of_a_release_are_not_charged(bad: Any) -> None:
    ledger = rf.Ledger(delta=1e-5)
    with pytest.raises((ValueError, TypeError)):
        ledger.release(**{"mechanism": LAW, "theta": [1.0, 2.0], "sensitivity": 1.0, **bad})
    assert ledger.entries == []


def test_bad_arguments_of_a_fit_and_of_training_are_not_charged() -> None:
    ledger, made = rf.Ledger(delta=1e-5), engine("full")[0]
    for bad in (probe(random_state="x"), probe(learning_rate=-1), probe(steps=0)):
        with pytest.raises(ValueError, match=r"must|cannot be used"):
            ledger.fit(bad, FEATURES, LABELS)
    for steps in (0, -1, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="steps must be"):
            ledger.train(made, steps)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="engine must be a PrivacyEngine, got LinearProbe"):
        ledger.train(probe(), 3)
    with pytest.raises(ValueError, match="call make_private first"):
        ledger.train(rf.PrivacyEngine(LAW, rf.Clamp(0.1)), 3)
    assert ledger.entries == []
    ledger.train(made, np.int64(3))  # type: ignore[arg-type]
    ledger.fit(probe(steps=np.int64(3)), FEATURES, LABELS)
    assert [entry.cost.steps for entry in ledger.entries] == [3, 3]


def test_a_flipped_bit_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path, chance = tmp_path / "study.ledger", random.Random(0)
    with rf.Ledger(epsilon=1.0, delta=1e-5, path=path) as ledger:
        spend(ledger, 4)
    good, refused = path.read_bytes(), 0
    for _ in range(100):
        place = chance.randrange(8 * len(good))
        path.write_bytes(
            bytes(
                byte ^ (1 << place % 8) if number == place // 8 else byte for number, byte in enumerate(good)
            )
        )
        try:
            assert rf.Ledger(epsilon=1.0, delta=1e-5, path=path).entries == ledger.entries
        except (ValueError, OSError):
            refused += 1
    assert refused > 40  # the others fell where nothing is stored

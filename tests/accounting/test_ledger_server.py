"""A ledger on PostgreSQL: many processes, one budget, and nothing that a kill leaves behind."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

import ringfence as rf
from ringfence.accounting.ledger import BudgetExceededError
from tests.accounting.test_ledger import MEAN, MOST, die_after_the_charge, die_before_the_charge, spend, spent
from tests.forks import FORK, ended, forked
from tests.postgresql import MISSING, server

pytestmark = pytest.mark.skipif(MISSING, reason="PostgreSQL is not installed")
TABLE = "ringfence_ledger"


@pytest.fixture(scope="module")
def machine() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def url(machine: str) -> str:
    sql(machine, f"DROP TABLE IF EXISTS {TABLE}, kept")
    return machine


def sql(url: str, *commands: str) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    with engine.begin() as connection:
        for command in commands:
            connection.execute(text(command))


def release_until_refused(url: str, done: Path, times: int) -> None:
    """Charges, and writes a line for each release that followed; a kill may fall between the two."""
    ledger = rf.Ledger(url)
    for _ in range(times):
        try:
            ledger.charge("a mean", MEAN)
        except BudgetExceededError:
            return
        with done.open("ab", buffering=0) as file:
            file.write(b"released\n")


def test_ten_processes_never_overspend(url: str) -> None:
    processes = [FORK.Process(target=spend, args=(url,)) for _ in range(10)]
    for process in processes:
        process.start()  # none has found a table there, and all make one
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 10
    assert len(rf.Ledger(url).entries) == MOST
    assert 0.9 < spent(url) <= 1.0


def test_killed_processes_have_paid_for_what_they_released(url: str, tmp_path: Path) -> None:
    done, chance = tmp_path / "done", random.Random(0)
    rf.Ledger(url, epsilon=2.0, delta=1e-5)
    running, killed = [forked(release_until_refused, url, done, 20) for _ in range(4)], []
    for _ in range(6):
        time.sleep(chance.uniform(0.05, 0.2))
        victim = running.pop(0)
        victim.kill()  # unless it was refused already
        victim.join()
        killed.append(victim.exitcode)
        running.append(forked(release_until_refused, url, done, 20))
    for process in running:
        process.join(120)
        assert process.exitcode == 0
    assert -signal.SIGKILL in killed
    released, ledger = len(done.read_bytes().splitlines()), rf.Ledger(url)
    assert released <= len(ledger.entries) <= released + 6  # one for each kill at most
    assert ledger.guarantee().epsilon <= 2.0


def test_a_kill_after_the_charge_leaves_it_and_one_before_leaves_nothing(url: str) -> None:
    assert ended(die_before_the_charge, url) == -signal.SIGKILL
    assert rf.Ledger(url).entries == []  # and the lock is free
    assert ended(die_after_the_charge, url) == -signal.SIGKILL
    assert [entry.what for entry in rf.Ledger(url).entries] == ["a mean"]


@pytest.mark.parametrize(
    "commands",
    [
        [f"DELETE FROM {TABLE} WHERE number = 4"],
        [f"DROP TABLE {TABLE}"],
        [f"UPDATE {TABLE} SET hash = repeat('0', 64) WHERE number = 4"],
        [f"DELETE FROM {TABLE}", f"INSERT INTO {TABLE} SELECT number, content, md5(hash) FROM kept"],
    ],
)
def test_an_open_ledger_notices_that_it_was_cut_removed_or_replaced(url: str, commands: list[str]) -> None:
    ledger = rf.Ledger(url, epsilon=1.0, delta=1e-5)
    spend(ledger, 3)
    sql(url, f"CREATE TABLE kept AS SELECT * FROM {TABLE}", *commands)
    with pytest.raises(ValueError, match=r"since its row 4 was written|does not exist"):
        ledger.charge("a mean", MEAN)


@pytest.mark.parametrize(
    "command",
    [
        f"DELETE FROM {TABLE} WHERE number = 3",
        f"UPDATE {TABLE} SET content = replace(content, '0.1', '0.0') WHERE number = 2",
        f"UPDATE {TABLE} SET hash = repeat('0', 64) WHERE number = 4",
        f"INSERT INTO {TABLE} SELECT 5, content, hash FROM {TABLE} WHERE number = 4",
    ],
)
def test_rows_that_do_not_follow_are_refused_at_opening(url: str, command: str) -> None:
    spend(rf.Ledger(url, epsilon=1.0, delta=1e-5), 3)
    sql(url, command)
    with pytest.raises(ValueError, match=r"is damaged, or row . was not written by it"):
        rf.Ledger(url)


def test_who_may_only_insert_and_select_can_charge_and_cannot_take_back(url: str) -> None:
    rf.Ledger(url, epsilon=1.0, delta=1e-5)
    sql(
        url,
        "DROP ROLE IF EXISTS analyst",
        "CREATE ROLE analyst LOGIN",
        f"GRANT SELECT, INSERT ON {TABLE} TO analyst",
    )
    analyst = url.replace("postgres@", "analyst@")
    spend(analyst)
    assert len(rf.Ledger(analyst).entries) == MOST
    with pytest.raises(Exception, match="permission denied"):
        sql(analyst, f"DELETE FROM {TABLE}")
    sql(url, "DROP OWNED BY analyst")


def test_what_the_server_sets_by_default_does_not_weaken_a_charge(url: str) -> None:
    strict = f"{url}?options=-cdefault_transaction_isolation%3Dserializable%20-csynchronous_commit%3Doff"
    processes = [FORK.Process(target=spend, args=(strict,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(rf.Ledger(url).entries) == MOST


def test_a_server_that_is_not_there_is_one_error_without_the_password() -> None:
    with pytest.raises(OSError, match=r"ana:\*\*\*@127\.0\.0\.1:1/x cannot be read or written: .*refused"):
        rf.Ledger("postgresql://ana:secret@127.0.0.1:1/x", epsilon=1.0)

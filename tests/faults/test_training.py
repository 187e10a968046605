"""A run on a full disk, in a folder that cannot be written, with damaged or mixed-up files."""

import os
import shutil
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from ringfence.files.checkpoint import read_checkpoint
from ringfence.training.engine.run_file import RunFile
from tests.faults.conditions import flipped, folder_for_anyone, no_room_beyond, read_only, some, tried
from tests.faults.jobs import _spent
from tests.training.engine.runs import Run

STEPS = 5


@pytest.fixture(scope="module")
def whole() -> Run:
    return Run().train(STEPS)


def saved(path: Path, steps: int = 2, then: int = 4) -> Run:
    """A run with a checkpoint and releases after it, that has let go of its files."""
    run = Run().train(steps)
    run.engine.save(path)
    run.train(then).engine.close()
    return run


def resumed(path: Path) -> Run:
    run = Run()
    run.engine.load(path)
    return run


def test_a_full_disk_stops_the_run_before_it_releases(tmp_path: Path) -> None:
    path, run = tmp_path / "run.ckpt", Run()
    run.engine.save(path)
    run.train(stopped := 2)
    with no_room_beyond(1000), pytest.raises(OSError, match="File too large"):
        run.train(STEPS)
    assert run.engine.steps == stopped
    assert torch.equal(run.weights(), Run().train(stopped).weights())  # nothing more was released
    assert _spent(tmp_path)[0] >= stopped
    copies = tmp_path / "copies"
    shutil.copytree(tmp_path, copies)
    # there is room again: it goes on, or another process does, and the step that failed is charged again
    charged = STEPS + 1, stopped + STEPS
    for one, steps in zip((run, resumed(copies / "run.ckpt")), charged, strict=True):
        assert one.train(STEPS).engine.account.steps == steps
        one.engine.close()
    assert resumed(path).engine.account.steps == STEPS + 1


def test_a_save_on_a_full_disk_leaves_the_run_as_it_was(tmp_path: Path, whole: Run) -> None:
    path, run = tmp_path / "run.ckpt", Run()
    run.engine.save(path)
    run.train(3)
    before = path.read_bytes()
    with no_room_beyond(1000), pytest.raises(OSError, match="File too large"):
        run.engine.save(path)
    assert path.read_bytes() == before
    assert _spent(tmp_path)[0] == 3
    run.train(STEPS)  # there is room in the journal again
    assert torch.equal(run.weights(), whole.weights())
    assert _spent(tmp_path)[0] == STEPS


@pytest.mark.parametrize(
    "moment", ["account.charge", "file.charge", "plan.mechanism.release", "_sampler.draw"]
)
@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_an_interrupted_step_can_be_made_again_or_loaded(
    sampling: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure = {"seed": None, "secure": True, "public_size": 60} if moment == "plan.mechanism.release" else {}
    run = Run(sampling=sampling, **secure).train(1)
    run.engine.save(tmp_path / "run.ckpt")
    run.train(2)
    owner, call = moment.rsplit(".", 1)
    drawn = next(
        batch.indices for batch in run.engine.run.plan.batches.of_step(2, run.engine.run.releases.noise)
    )
    target = type(attrgetter(owner)(run.engine.run.releases))
    monkeypatch.setattr(target, call, killing(getattr(target, call), "after"))
    with pytest.raises(Killed):
        run.train(3)
    monkeypatch.undo()
    assert run.engine.steps == 2
    shutil.copytree(tmp_path, tmp_path / "copy")
    again = Run(sampling=sampling, **secure)
    again.engine.load(tmp_path / "copy" / "run.ckpt")
    written = again.engine.account.steps
    assert written == (2 if moment == "account.charge" else 3)  # what may have been released is in the file
    samples = run.samples(), again.samples()
    assert run.train(STEPS).engine.account.steps == STEPS + 1  # the step is made, and charged, again
    assert again.train(STEPS).engine.account.steps == written + STEPS - 1
    if sampling == "poisson":  # with other samples than the one that may have been released
        paid = samples[0] if written == 2 else (*samples[0], *samples[1])
        assert drawn not in {indices for _, indices in paid}


def test_a_read_only_folder_is_refused_before_anything_is_released() -> None:
    with folder_for_anyone() as folder:
        saved(folder / "run.ckpt")
        with read_only(folder):
            with pytest.raises(PermissionError, match=r"other\.ckpt"):
                Run().engine.save(folder / "other.ckpt")
            with pytest.raises(PermissionError, match=r"run\.ckpt\.journal"):
                Run().engine.load(folder / "run.ckpt")
        assert resumed(folder / "run.ckpt").engine.account.steps == 4


def test_a_damaged_or_truncated_run_is_never_a_cheaper_one(tmp_path: Path) -> None:
    """Loading says what is wrong."""
    path = tmp_path / "run.ckpt"
    saved(path)
    for file in (path, tmp_path / "run.ckpt.journal"):
        data = file.read_bytes()
        cuts = [data[:length] for length in some(f"cut {file.name}", len(data), 10)]
        for damaged in [flipped(data, bit) for bit in some(file.name, 8 * len(data), 20)] + cuts:
            file.write_bytes(damaged)
            run = Run()
            _, why = tried(run.engine.load, path)
            run.engine.close()
            assert "run.ckpt" in why
            assert run.engine.steps == 0
        file.write_bytes(data)
    assert resumed(path).engine.account.steps == 4


def test_files_of_two_runs_do_not_mix(tmp_path: Path) -> None:
    for name in ("one.ckpt", "two.ckpt"):
        saved(tmp_path / name)
    (tmp_path / "one.ckpt.journal").replace(tmp_path / "two.ckpt.journal")
    (tmp_path / "two.ckpt.journal.lock").unlink()
    with pytest.raises(ValueError, match=r"two\.ckpt\.journal belongs to another run than .*two\.ckpt"):
        Run().engine.load(tmp_path / "two.ckpt")


def test_an_older_copy_of_the_checkpoint_has_spent_all_and_one_of_the_journal_is_refused(
    tmp_path: Path,
) -> None:
    path, journal, run = tmp_path / "run.ckpt", tmp_path / "run.ckpt.journal", Run()
    run.engine.save(path)
    old, older = path.read_bytes(), journal.read_bytes()
    run.train(3).engine.save(path)
    run.engine.close()
    new = path.read_bytes()
    path.write_bytes(old)
    again = resumed(path)
    assert (again.engine.steps, again.engine.account.steps) == (0, 3)
    again.engine.close()
    path.write_bytes(new)
    journal.write_bytes(older)
    with pytest.raises(ValueError, match=r"run\.ckpt\.journal is older than .*run\.ckpt: releases in betw"):
        Run().engine.load(path)


class Killed(BaseException):
    """In the place of a signal."""


def killing(call: Callable[..., Any], when: str, error: type[BaseException] = Killed) -> Callable[..., Any]:
    def killed(*args: Any, **kwargs: Any) -> Any:
        if when == "before":
            raise error
        call(*args, **kwargs)
        raise error

    return killed


@pytest.mark.parametrize("error", [Killed, OSError])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["lock", "save", "close"])
def test_killed_while_the_run_moves_to_another_file(
    call: str, when: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file can go on, and has all that was spent, also where it was an interrupt and not the end."""
    run = Run().train(1)
    run.engine.save(tmp_path / "first.ckpt")
    first = run.train(3).engine.run.releases.file
    monkeypatch.setattr(RunFile, call, killing(getattr(RunFile, call), when, error))
    with pytest.raises(error):
        run.engine.save(tmp_path / "second.ckpt")
    monkeypatch.undo()
    run.train(4).engine.close()
    first.close()
    spent = []
    for file in tmp_path.glob("*.ckpt"):
        again, why = tried(resumed, file)
        assert again or "the run went on in another file" in why
        if again:
            spent.append(again.engine.account.steps)
            again.engine.close()
    assert spent == [4]


def test_a_load_that_fails_half_way_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "run.ckpt")
    run = Run()
    monkeypatch.setattr(run.engine.run.optimizer, "load_state_dict", killing(print, "before"))
    with pytest.raises(Killed):
        run.engine.load(tmp_path / "run.ckpt")
    assert resumed(tmp_path / "run.ckpt").engine.account.steps == 4


def test_the_files_are_the_owners(tmp_path: Path) -> None:
    saved(tmp_path / "run.ckpt")
    assert {oct(os.stat(file).st_mode & 0o777) for file in tmp_path.iterdir()} == {"0o600"}
    assert read_checkpoint(tmp_path / "run.ckpt")[1]["steps"] == 2

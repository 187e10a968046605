"""Two processes train the model that one process trains, and the example for several processes runs."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

import ringfence as rf
from ringfence.training.distributed import from_first, summed
from tests.training.engine.runs import Run, network
from tests.training.processes import trained_by_two

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "several_processes.py"


def work(rank: int, folder: Path) -> None:
    """What one of two processes does: trainings and the example."""
    for sampling, sigma in (("full", 1e-7), ("poisson", 1e-7), ("full", 1.0)):
        model: nn.Module = network()
        if rank == 1:  # another start: the first process's counts
            for parameter in model.parameters():
                parameter.data.zero_()
        if sampling == "full":  # as users of several GPUs wrap it
            model = nn.parallel.DistributedDataParallel(model)
        run = Run(
            model, sampling=sampling, mechanism=rf.Gaussian(sigma), batch_size=10, seed=(3, 99)[rank],
            loss=nn.functional.cross_entropy, fisher_every=2 if sigma < 1 else 0,
        ).train(4)  # fmt: skip
        run.engine.save(folder / f"{sampling} {sigma}.ckpt")
        account = run.engine.account
        result = {
            "weights": run.weights().tolist(), "steps": account.steps,
            "forward": account.privacy_loss()._own().forward,
        }  # fmt: skip
        if sigma < 1:
            result["eta"] = run.engine.fisher_information_loss().tolist()
        (folder / f"{sampling} {sigma} {rank}.json").write_text(json.dumps(result))
    apart = Run(sampling="poisson", batch_size=10)
    apart.engine.account.steps = rank  # as if one had been interrupted before its charge
    try:
        apart.train(1)
    except ValueError as error:
        (folder / f"apart {rank}.json").write_text(
            json.dumps([str(error), apart.engine.account.steps - rank])
        )
    spread, turned = torch.full((1,), rank + 1.0).expand(3), torch.full((2, 3), float(rank)).T
    shared = [summed(spread).tolist(), from_first(turned).tolist(), turned.tolist()]
    (folder / f"shared {rank}.json").write_text(json.dumps(shared))
    # the example joins this group: a second one in the same processes waits for ever, now and then
    distributed.init_process_group = lambda backend: None
    distributed.destroy_process_group = lambda: None
    runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where two processes, started once, left what came of three trainings and of the example."""
    return trained_by_two(work, tmp_path_factory.mktemp("trained"))


def results(folder: Path, sampling: str, sigma: float) -> list[dict[str, Any]]:
    """Of the first process, and of the second."""
    return [json.loads((folder / f"{sampling} {sigma} {rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_two_processes_equal_one(trained: Path, sampling: str) -> None:
    """Hardly any noise, because sums that differ in the last bit are covered by other noise.

    A Poisson sample is as large as those of both processes together.
    """
    one, two = results(trained, sampling, 1e-7)
    alone = Run(
        sampling=sampling, mechanism=rf.Gaussian(1e-7), batch_size={"full": 10, "poisson": 20}[sampling],
        loss=torch.nn.functional.cross_entropy, fisher_every=2,
    ).train(4)  # fmt: skip
    assert one == two  # to the bit
    assert torch.allclose(torch.tensor(one["weights"]), alone.weights(), atol=1e-5)
    assert one["steps"] == 4
    assert one["forward"] == pytest.approx(
        alone.engine.account.privacy_loss()._own().forward, rel=1e-6, abs=0
    )
    eta = alone.engine.fisher_information_loss().tolist()
    assert one["eta"] == pytest.approx(eta, rel=0.1, abs=0, nan_ok=True)
    assert (trained / f"{sampling} 1e-07.ckpt").exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_processes_at_different_samples_release_nothing(trained: Path, rank: int) -> None:
    """An example may be in the share of both, and would count twice."""
    message, charged = json.loads((trained / f"apart {rank}.json").read_text())
    assert message.startswith(
        f"the processes are not all at the same sample of step {rank}, which was not released"
    )
    assert charged == 0


@pytest.mark.parametrize("rank", [0, 1])
def test_tensors_that_are_not_laid_out_row_by_row(trained: Path, rank: int) -> None:
    """gloo wrote three numbers where an expanded tensor has memory for one."""
    total, given, kept = json.loads((trained / f"shared {rank}.json").read_text())
    assert total == [3.0] * 3
    assert given == kept == [[0.0] * 2] * 3


def test_noise_comes_once(trained: Path) -> None:
    """With sigma = 1 on 48 coordinates the released sum is one sigma off, not sqrt(2)."""
    one, two = results(trained, "full", 1.0)
    assert one == two
    still, _ = results(trained, "full", 1e-7)
    moved = torch.tensor(one["weights"]) - torch.tensor(still["weights"])
    # momentum 0.9: the four releases enter with weights 3.439, 2.71, 1.9 and 1
    expected = (3.439**2 + 2.71**2 + 1.9**2 + 1) ** 0.5 / 60
    assert 0.75 < float(moved.std()) / expected < 1.25


def test_the_example_runs_and_speaks_once(trained: Path) -> None:
    printed = [(trained / f"printed {rank}").read_text() for rank in range(2)]
    assert [text.count("for every dataset") for text in printed] == [1, 0]

"""Two processes train the model that one process trains, and the example for several processes runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import ringfence as rf
from tests.training.engine.runs import Run

ROOT = Path(__file__).parent.parent.parent

_WORKER = """
import json, os, runpy, sys, torch
sys.path.insert(0, {root!r})
from pathlib import Path
from torch import nn
from tests.training.engine.runs import Run, network
import ringfence as rf
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
out = Path(sys.argv[1])
for sampling, sigma in (("full", 1e-7), ("poisson", 1e-7), ("full", 1.0)):
    model = network()
    if rank == 1:  # another start: the first process's counts
        for p in model.parameters():
            p.data.zero_()
    if sampling == "full":  # as users of several GPUs wrap it
        model = nn.parallel.DistributedDataParallel(model)
    run = Run(model, sampling=sampling, mechanism=rf.Gaussian(sigma), seed=3 if rank == 0 else 99,
              batch_size=20, loss=nn.functional.cross_entropy,
              fisher_every=2 if sigma < 1 else 0).train(4)
    run.engine.save(out / f"{{sampling}} {{sigma}}.ckpt")
    result = {{"weights": run.weights().tolist(), "forward": run.engine.account.forward.tolist(),
               "steps": run.engine.account.steps}}
    if sigma < 1:
        result["eta"] = run.engine.fisher_information_loss().tolist()
    (out / f"{{sampling}} {{sigma}} {{rank}}.json").write_text(json.dumps(result))
# the example joins this group: a second one in the same processes waits for ever, now and then
torch.distributed.init_process_group = lambda backend: None
# gloo's threads abort a process that takes its group down or ends, now and then: end without either
torch.distributed.destroy_process_group = lambda: None
runpy.run_path({example!r}, run_name="__main__")
sys.stdout.flush()
os._exit(0)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where two processes, started once, left what came of three trainings and of the example."""
    folder = tmp_path_factory.mktemp("trained")
    script = folder / "worker.py"
    script.write_text(_WORKER.format(root=str(ROOT), example=str(ROOT / "examples" / "several_processes.py")))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [*launch, str(script), str(folder)],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    (folder / "printed").write_text(ran.stdout)
    return folder


def results(folder: Path, sampling: str, sigma: float) -> list[dict[str, Any]]:
    """Of the first process, and of the second."""
    return [json.loads((folder / f"{sampling} {sigma} {rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("sampling", ["full", "poisson"])
def test_two_processes_equal_one(trained: Path, sampling: str) -> None:
    """Hardly any noise, because sums that differ in the last bit are covered by other noise."""
    one, two = results(trained, sampling, 1e-7)
    alone = Run(
        sampling=sampling, mechanism=rf.Gaussian(1e-7), batch_size=20,
        loss=torch.nn.functional.cross_entropy, fisher_every=2,
    ).train(4)  # fmt: skip
    assert one == two  # to the bit
    assert torch.allclose(torch.tensor(one["weights"]), alone.weights(), atol=1e-5)
    assert one["steps"] == 4
    assert one["forward"] == pytest.approx(alone.engine.account.forward.tolist(), rel=1e-6, abs=0)
    eta = alone.engine.fisher_information_loss().tolist()
    assert one["eta"] == pytest.approx(eta, rel=0.1, abs=0)
    assert (trained / f"{sampling} 1e-07.ckpt").exists()


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
    assert (trained / "printed").read_text().count("for every dataset") == 1

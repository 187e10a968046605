"""Two processes that hold half of a model each train it as one process does (``fully_shard``, FSDP2)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ringfence as rf
from ringfence.training.distributed import Whole
from tests.training.engine.runs import INPUTS, LABELS, Run, network
from tests.training.processes import trained_by_two

STILL, LOUD, BOUNDED = rf.Gaussian(1e-7), rf.Gaussian(1.0), rf.TruncatedGaussian(0.5, 10.0)
ADAM, RESTING = partial(torch.optim.Adam, lr=0.02), partial(torch.optim.SGD, lr=0.0)
FAR = rf.RectifiedGaussian(0.5, bound=(1.5, 2.5))  # no coordinate costs what it may cost elsewhere
# what both processes and one process train; hardly any noise where weights are compared
CASES: dict[str, dict[str, Any]] = {
    "full": {"mechanism": STILL, "batch_size": 20, "optimizer": ADAM},
    "norm": {"mechanism": STILL, "clip": rf.Norm(0.5), "batch_size": 20},
    "poisson": {"mechanism": STILL, "clip": rf.Norm(0.5), "sampling": "poisson", "batch_size": 10},
    # loud noise, which must not move the weights apart
    "bounded": {"mechanism": BOUNDED, "batch_size": 20, "optimizer": RESTING},
    "bounded norm": {
        **{"mechanism": FAR, "clip": rf.Norm(0.5, each=0.3)},
        **{"batch_size": 20, "optimizer": RESTING},
    },
    "loud": {"mechanism": LOUD, "batch_size": 20},
    "secure": {"mechanism": LOUD, "seed": None, "secure": True, "public_size": 60.0},
}
STEPS = 3


def model() -> nn.Sequential:
    """The same weights every time."""
    with torch.random.fork_rng([]):
        torch.manual_seed(2)
        return network(nn.Linear(18, 18), nn.Tanh())


def sharded(device: str = "cpu") -> Any:
    """The same model, of which each process holds a half; two of its layers are gathered together."""
    from torch.distributed.fsdp import fully_shard

    made = model().to(device)
    for part in ([made[0], made[3]], made):
        fully_shard(part)
    return made


def weights(of: nn.Module) -> Tensor:
    """All of them, on every process."""
    whole = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in of.parameters())
    return torch.cat([p.detach().flatten() for p in whole])


def found(run: Run) -> dict[str, Any]:
    account = run.engine.account
    return {
        "weights": weights(run.original),
        "forward": torch.tensor(account.privacy_loss()._own().forward),
        "epsilon": run.engine.guarantee(1e-5).epsilon,
        "steps": account.steps,
    }


def message(call: Callable[[], object]) -> str:
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    return "nothing was refused"


def by_columns(name: str, module: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    for own, value in list(module.named_parameters()):
        setattr(module, own, nn.Parameter(distribute_tensor(value.detach(), mesh, [Shard(0)])))


def refusals() -> dict[str, str]:
    """What is said where a model is sharded in another way, or an engine asks for what is not there."""
    from torch.distributed import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import distribute_module

    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards"))
    part, other, half, flat, spread = model(), model(), model(), model(), model()
    fully_shard(part[0])
    fully_shard(other, mesh=mesh)
    fully_shard(half, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    line = init_device_mesh("cpu", (2,))
    distribute_module(spread, line)
    columns = distribute_module(nn.Linear(18, 2), line, by_columns)
    loss = nn.functional.cross_entropy
    penalised = Run(sharded(), mechanism=LOUD, batch_size=60)
    inputs, labels = next(iter(penalised.loader))
    parameter = next(penalised.original.parameters())
    penalty = lambda: parameter.full_tensor().square().sum()  # noqa: E731
    (loss(penalised.model(inputs), labels) + penalty()).backward()
    return {
        "a part": message(lambda: Run(part)),
        "another mesh": message(lambda: Run(other)),
        "half precision": message(lambda: Run(half)),
        "flat": message(lambda: Run(FullyShardedDataParallel(flat, device_id=torch.device("cpu")))),
        "no fully_shard": message(lambda: Run(spread)),
        "columns": message(lambda: Run(columns)),
        "fisher": message(lambda: Run(sharded(), loss=loss, fisher_every=1)),
        "a law of many": message(lambda: Run(sharded(), mechanism=rf.Gaussian(torch.ones(390)))),
        "a penalty": message(penalised.optimizer.step),
    }


def work(rank: int, folder: Path) -> None:
    """What one of the two processes does, and leaves in the folder."""
    results: dict[str, Any] = {}
    for name, settings in CASES.items():
        run = Run(sharded(), **settings).train(STEPS)
        results[name] = found(run)
        run.engine.save(folder / f"{name}.ckpt")
        run.engine.close()
    # a run that stops after a step and goes on in another engine
    first = Run(sharded(), **CASES["full"]).train(1)
    first.engine.save(folder / "first.ckpt")
    first.engine.close()

    def evaluated(module: nn.Module) -> Tensor:
        module.eval()
        with torch.no_grad():
            result: Tensor = module(INPUTS)
        module.train()
        return result

    def reported(report: Any) -> None:
        evaluated(second.model)  # which must not leave a layer gathered while the optimizer moves shards

    second = Run(sharded(), **CASES["full"], on_step=reported)
    second.engine.load(folder / "first.ckpt")
    outputs = []
    for step in range(1, STEPS):
        second.train(step + 1)
        as_found = evaluated(second.model)
        with torch.no_grad():
            outputs.append((second.model(INPUTS), as_found))
    results["resumed"] = {**found(second), "outputs": outputs}
    state = second.optimizer.optimizer.state
    results["held"] = {
        "parameters": sum(p.to_local().numel() for p in second.original.parameters()),
        "moments": sum(s["exp_avg"].to_local().numel() for s in state.values()),
        "theta": second.engine.run.theta.numel(),
    }
    same = torch.zeros(second.engine.run.theta.numel())
    results["of a zero sum"] = second.engine.run.releases.release(same)[:100]
    theta = torch.full((second.engine.run.theta.numel(),), torch.nan if rank else 0.0)
    whole = Run(model(), **CASES["full"])
    results["refusals"] = {
        **refusals(),
        "a file": message(lambda: whole.engine.load(folder / "full.ckpt")),
        "nan": message(lambda: second.engine.run.releases.release(theta)),
    }
    torch.save(results, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the first process found, and the second."""
    folder = trained_by_two(work, tmp_path_factory.mktemp("sharded"))
    return [torch.load(folder / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("loud", "secure")])
def test_two_shards_give_the_sums_and_the_accounts_of_one_process(
    name: str, both: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dict(CASES[name])
    if name == "poisson":  # the same samples: their key depends on the settings of the run
        settings["batch_size"] *= 2
        monkeypatch.setattr(Whole, "settings", {"shards": 2})
    one, two = (each[name] for each in both)
    alone = found(Run(model(), **settings).train(STEPS))
    assert torch.equal(one["weights"], two["weights"])
    assert torch.equal(one["forward"], two["forward"])
    assert one["steps"] == STEPS == two["steps"]
    if settings["mechanism"] is STILL:
        assert torch.allclose(one["weights"], alone["weights"], atol=1e-5)
    assert one["epsilon"] == two["epsilon"] == pytest.approx(alone["epsilon"], rel=2e-3)
    assert torch.allclose(one["forward"], alone["forward"], rtol=2e-3)
    if "norm" in name:  # the worst move spreads over both shards
        assert torch.allclose(one["forward"], alone["forward"], rtol=1e-6)


def test_the_noise_of_two_shards_is_that_of_one_process(both: list[dict[str, Any]]) -> None:
    """N(0, 1) on each coordinate of the sum, independent from shard to shard."""
    loud = both[0]["loud"]["weights"]
    alone = Run(model(), **{**CASES["loud"], "mechanism": STILL}).train(STEPS).weights()
    # momentum 0.9: the three releases enter with weights 2.71, 1.9 and 1
    noise = (loud - alone) * 60 / (2.71**2 + 1.9**2 + 1) ** 0.5
    assert len(noise) == 390
    assert 0.85 < float(noise.std()) < 1.15
    assert abs(float(noise.mean())) < 0.2
    weight = noise[10:334].view(18, 18)  # nine rows of it lie on each process
    assert abs(float((weight[:9] * weight[9:]).mean())) < 0.25
    of_equal_parts = [each["of a zero sum"] for each in both]
    assert not torch.equal(*of_equal_parts)


def test_a_sharded_run_goes_on_where_it_was(both: list[dict[str, Any]]) -> None:
    for each in both:
        resumed, whole = each["resumed"], each["full"]
        assert torch.equal(resumed["weights"], whole["weights"])
        assert resumed["steps"] == STEPS
        assert resumed["epsilon"] == whole["epsilon"]
        for as_trained, evaluated in resumed["outputs"]:
            assert torch.equal(as_trained, evaluated)
    before, after = (outputs for outputs, _ in both[0]["resumed"]["outputs"])
    assert not torch.equal(before, after)


def test_what_a_process_holds_is_its_half(both: list[dict[str, Any]]) -> None:
    for name in ("parameters", "moments", "theta"):
        held = [each["held"][name] for each in both]
        assert sum(held) == 390
        assert max(held) <= 200


def test_secure_releases_are_charged_for_all_numbers(both: list[dict[str, Any]]) -> None:
    alone = Run(model(), **CASES["secure"]).train(STEPS).engine
    assert both[0]["secure"]["epsilon"] == pytest.approx(alone.guarantee(1e-5).epsilon, rel=1e-9)
    assert torch.equal(both[0]["secure"]["weights"], both[1]["secure"]["weights"])


def test_what_is_sharded_otherwise_is_refused_by_name(both: list[dict[str, Any]]) -> None:
    said = both[0]["refusals"]
    assert said == both[1]["refusals"]
    for name, words in {
        "a part": "is not sharded and others are: apply fully_shard to the model itself",
        "another mesh": "must be sharded by fully_shard over all 2 processes, got",
        "half precision": "model must be float32 or float64, got torch.bfloat16",
        "flat": "model must not have layers in FullyShardedDataParallel",
        "no fully_shard": "must be sharded by fully_shard over all 2 processes, got R",
        "columns": "must lie on cpu as a shard of fully_shard, got DTensor",
        "fisher": "fisher_every must be 0 with a sharded model, got 1",
        "a law of many": "its own shape is [390]; a sharded model takes single numbers",
        "a file": "was written with shards 2, this engine has None",
        "nan": "the sum of clipped gradients of step 4 is not finite",
        "a penalty": "does not go through the model's outputs",
    }.items():
        assert words in said[name], (name, said[name])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("clip", [rf.Clamp(0.05), rf.Norm(0.5)])
def test_a_model_that_is_gathered_on_the_gpu(clip: rf.Clip, tmp_path: Path) -> None:
    """One process, which holds all shards: streams and storage are those of several."""
    settings: dict[str, Any] = {"mechanism": STILL, "clip": clip, "batch_size": 20}
    settings |= {"inputs": INPUTS.cuda(), "labels": LABELS.cuda()}
    alone = Run(model().cuda(), **settings).train(STEPS)
    torch.distributed.init_process_group("nccl", f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        torch.cuda.set_device(0)
        run = Run(sharded("cuda"), **settings).train(STEPS)
        assert torch.allclose(weights(run.original), weights(alone.original), atol=1e-5)
    finally:
        torch.distributed.destroy_process_group()

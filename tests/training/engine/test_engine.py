"""What an engine cannot do is refused by name, and its fast way trains what its slow way trains."""

import copy
import dataclasses
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.accounting.subsampling import chance_of_cut
from tests.forks import ended
from tests.training.engine.runs import CLIP, INPUTS, LABELS, LAW, Run, network, refused

SECURE = {"secure": True, "loss": nn.functional.cross_entropy}


def test_settings_are_refused_by_name() -> None:
    with refused("mechanism must be a ringfence mechanism", TypeError):
        rf.PrivacyEngine("gaussian", CLIP)
    with refused("clip must be a ringfence Clip", TypeError):
        rf.PrivacyEngine(LAW, 0.1)
    with refused("clip must be > 0, got 0"):
        rf.PrivacyEngine(LAW, rf.Clamp(0))
    with refused(r"sampling must be one of \['full', 'poisson', 'random_allocation'\], got 'all'"):
        rf.PrivacyEngine(LAW, CLIP, sampling="all")
    with refused("fisher_every needs loss"):
        rf.PrivacyEngine(LAW, CLIP, fisher_every=1)
    with refused("public_size must be > 0, got -1"):
        Run(public_size=-1)
    with refused("call make_private first"):
        rf.PrivacyEngine(LAW, CLIP).guarantee(1e-5)
    with refused("fisher_information_loss needs fisher_every and loss"):
        Run().engine.fisher_information_loss()


@pytest.mark.parametrize("zeroed", [None, True, False])  # not at all, to None, to zeros
def test_a_penalty_on_parameters_is_refused(zeroed: bool | None) -> None:
    """Its gradient would be dropped in silence."""
    run = Run(batch_size=60)
    for penalty in (0.0, 0.0, 1.0):
        ((inputs, labels),) = run.loader
        outputs = run.model(inputs)
        if zeroed is not None:
            run.optimizer.zero_grad(set_to_none=zeroed)
        loss = nn.functional.cross_entropy(outputs, labels)
        if penalty:
            loss = loss + penalty * sum(p.square().sum() for p in run.original.parameters())
        loss.backward()
        if penalty:
            with refused("gradient by 0.weight that does not go through .* weight_decay"):
                run.optimizer.step()
        else:
            run.optimizer.step()
    assert run.engine.account.steps == 2


def test_models_and_optimizers_are_refused_by_name() -> None:
    with refused("parameters that require a gradient, got none"):
        Run(network().requires_grad_(False))
    with refused("must be float32 or float64, got torch.float16"):
        Run(network().half())
    with refused(r"must have one device and dtype, got \[.*torch.float32.*torch.float64"):
        Run(nn.Sequential(network(), nn.Linear(2, 2).double()))
    with refused("optimizer must be a torch optimizer, got int", TypeError):
        Run(optimizer=lambda _: 3)
    with refused("LBFGS asks for several gradients"):
        Run(optimizer=torch.optim.LBFGS)
    with refused("'0.weight' is missing"):
        Run(optimizer=lambda p: torch.optim.SGD(list(p)[1:], lr=1.0))
    with refused("holds 1 parameters that are not the model's"):
        Run(optimizer=lambda p: torch.optim.SGD([*p, nn.Parameter(torch.zeros(1))], lr=1.0))
    with refused("must fit the model's 48 trained parameters as one vector, .*its own shape is"):
        Run(mechanism=rf.Gaussian(torch.ones(2, 48)))
    with refused("shapes do not broadcast"):
        Run(mechanism=rf.Gaussian(torch.ones(7)))
    run = Run()
    with refused("already serves a run"):
        run.engine.make_private(run.original, run.optimizer, DataLoader(TensorDataset(INPUTS, LABELS)))
    with refused("parameters cannot be added"):
        run.optimizer.add_param_group({"params": []})


@pytest.mark.parametrize("sampling", ["full", "poisson"])
@pytest.mark.parametrize("clip", [CLIP, rf.Norm(0.2)])
@pytest.mark.filterwarnings("ignore:examples go through the model one by one")
def test_a_pass_trains_what_copies_of_the_model_train(sampling: str, clip: rf.Clip) -> None:
    """Hardly any noise, because sums that differ in the last bit are covered by other noise."""

    class Waiting(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.0 * x.sum().item()  # which vmap cannot do

    settings = {"sampling": sampling, "clip": clip, "mechanism": rf.Gaussian(1e-7)}
    fused, slow = (Run(network(layer), **settings).train(3) for layer in (nn.Identity(), Waiting()))
    assert torch.allclose(fused.weights(), slow.weights(), atol=1e-5)
    assert fused.engine.fallback_reason is None
    assert "vmap" in slow.engine.fallback_reason


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda e, *_: rf.PrivacyEngine(),
            r"write PrivacyEngine\(Gaussian\(noise_multiplier \* max_grad_norm",
        ),
        (lambda e, *_: rf.PrivacyEngine(noise_multiplier=1.0, max_grad_norm=1.0), "'noise_multiplier' as in"),
        (lambda e, *_: rf.PrivacyEngine(LAW, CLIP, secure_mode=True), r"write PrivacyEngine\(..., secure="),
        (lambda e, m, o, d: e.make_private(module=m, optimizer=o, data_loader=d), "'module' .* write model="),
        (lambda e, m, o, d: e.make_private(m, o, data_loader=d), "'data_loader' as in Opacus: write loader="),
        (lambda e, m, o, d: e.make_private_with_epsilon(m, o, d, max_grad_norm=1.0), r"Norm\(max_grad_norm"),
        (lambda e, *_: e.get_epsilon(1e-5), r"write engine.guarantee\(delta\).epsilon"),
        (lambda e, m, o, d: e.make_private(m, o, d, poisson_sampling=True), 'write .*sampling="poisson"'),
        (lambda e, *_: rf.PrivacyEngine(LAW, CLIP, colour=1), "unexpected keyword argument 'colour'"),
    ],
)
def test_what_users_of_opacus_write_is_answered_with_what_to_write(call: Any, message: str) -> None:
    model = network()
    objects = (model, torch.optim.SGD(model.parameters()), DataLoader(TensorDataset(INPUTS, LABELS)))
    with pytest.raises((TypeError, AttributeError), match=message):
        call(rf.PrivacyEngine(LAW, CLIP), *objects)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps, dataclasses.replace])
@pytest.mark.parametrize("secure", [False, True])
def test_an_engine_has_no_copies(copied: Callable[[Any], Any], secure: bool) -> None:
    """Eight copies drew the same Poisson samples: together they claimed 5.5, where up to 41 was true."""
    fresh = rf.PrivacyEngine(LAW, CLIP, secure=secure, public_size=60, loss=nn.functional.cross_entropy)
    run = Run(sampling="poisson", seed=None, secure=secure, public_size=60).train(1)
    for engine in (fresh, run.engine):
        said = "PrivacyEngine cannot be copied or pickled, .*: make another one .*, or load"
        with refused("dataclass instances" if copied is dataclasses.replace else said, TypeError):
            copied(engine)
    if copied is copy.deepcopy:  # the private objects lead to the run
        for held in (run.loader, [run.model, run.loader], run.engine.run):
            with refused("Noise cannot be copied or pickled", TypeError):
                copied(held)
    assert run.train(2).engine.account.steps == 2


def forks(path: Path) -> None:
    """A child of a training process goes on in each way that there is: it must not."""
    torch.set_num_threads(1)
    run, fresh = Run(sampling="poisson", seed=None).train(1), rf.PrivacyEngine(LAW, CLIP)
    run.engine.save(path)
    handed = iter(run.loader)
    batch = next(handed)
    model = nn.Linear(16, 2)
    objects = (model, torch.optim.SGD(model.parameters(), lr=1.0), DataLoader(TensorDataset(INPUTS, LABELS)))
    ways = [
        lambda: run.train(2),
        lambda: run.batch(*batch),
        lambda: next(handed),
        lambda: run.engine.save(path),
        lambda: run.engine.load(path),
        run.engine.close,
        lambda: fresh.make_private(*objects),
    ]
    for number, way in enumerate(ways, 1):
        child = os.fork()
        if not child:
            try:
                way()
                os._exit(number)
            except RuntimeError as error:
                os._exit(0 if str(error).startswith("Noise and engines serve the process") else 99)
        assert os.waitpid(child, 0)[1] == 0, f"way {number}"
    run.batch(*batch)
    run.engine.save(path)
    assert (run.engine.steps, run.engine.account.steps) == (2, 2)


def test_a_forked_engine_refuses(tmp_path: Path) -> None:
    assert ended(forks, tmp_path / "run.ckpt") == 0


def with_epsilon(epochs: int = 2, epsilon: float = 3.0, **settings: Any) -> rf.PrivacyEngine:
    """An engine after exactly the planned epochs."""
    engine = rf.PrivacyEngine(**{"mechanism": rf.Gaussian(1.0), "clip": rf.Norm(0.5), **settings})
    original = network()
    model, optimizer, loader = engine.make_private_with_epsilon(
        original,
        torch.optim.SGD(original.parameters(), lr=0.1),
        DataLoader(TensorDataset(INPUTS, LABELS), batch_size=16),
        target_epsilon=epsilon,
        target_delta=1e-5,
        epochs=epochs,
    )
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return engine


@pytest.mark.parametrize(
    "settings",
    [
        {"sampling": "full"},
        {"sampling": "full", "mechanism": LAW, "clip": CLIP, "public_size": 50, **SECURE},
        {"max_batch_size": 20, "epsilon": 30.0, "mechanism": rf.Gaussian(0.5)},
        # a small target: dp-accounting takes seconds to compose the losses of samples at large ones
        {"public_size": 64, "mechanism": rf.StochasticSign(7.0), "epsilon": 0.3, **SECURE},
    ],
    ids=["full", "full, secure", "poisson, cut", "poisson, secure"],
)
def test_the_planned_steps_cost_the_target_and_no_more(settings: dict[str, Any]) -> None:
    engine = with_epsilon(**settings)
    assert engine.steps == engine.planned_steps
    assert engine.steps == (2 if settings.get("sampling") == "full" else 8)
    target = settings.get("epsilon", 3.0)
    assert 0.999 * target <= engine.guarantee(1e-5).epsilon <= target
    assert engine.run.releases.settings["mechanism"] == engine.mechanism.state_dict()


def test_batches_of_a_public_size_are_charged_and_named(tmp_path: Path) -> None:
    how: dict[str, Any] = {"sampling": "poisson", "max_batch_size": 18, "seed": 5}
    run = Run(**how)
    sizes = {len(labels) for _ in range(9) for _, labels in run.loader}
    run.train(2).engine.save(tmp_path / "run.ckpt")
    run.engine.close()
    cut = chance_of_cut(60, 16 / 60, 18)
    (release,) = run.engine.account.releases
    assert (release.rate, release.cut) == (16 / 60, cut)
    assert release.mu == pytest.approx(2 * 0.05 * 48**0.5 / 0.5, rel=1e-3)
    said = [Run(**{**how, "max_batch_size": most}).engine.run.releases.assumptions for most in (18, None)]
    assert ["about datasets of at most 60 records" in " ".join(one) for one in said] == [True, False]
    assert max(sizes) <= 18
    again = Run(**how)
    again.engine.load(tmp_path / "run.ckpt")
    assert again.engine.account.releases == run.engine.account.releases
    again.engine.close()
    with refused("max_batch_size 18, this engine has None"):
        Run(**{**how, "max_batch_size": None}).engine.load(tmp_path / "run.ckpt")
    for changes, message in (
        ({"max_batch_size": 15}, "max_batch_size must be >= batch_size 16, got 15"),
        ({"public_size": 59}, "max_batch_size needs a public_size that no dataset exceeds, got 59"),
        ({"sampling": "full"}, "max_batch_size needs sampling 'poisson'"),
    ):
        with refused(message):
            Run(**{**how, **changes})


def test_the_bound_is_kept_and_the_given_sigma_does_not_matter() -> None:
    laws = [
        with_epsilon(mechanism=rf.TruncatedGaussian(s, 2.0), sampling="full").mechanism for s in (0.1, 90)
    ]
    assert [float(law.support.interval[1]) for law in laws] == [2.0, 2.0]
    assert float(laws[0].sigma) == pytest.approx(float(laws[1].sigma), rel=2e-3)


def test_what_cannot_be_planned_is_named_and_leaves_the_engine_as_it_was() -> None:
    for changes, message in (
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"epsilon": 0.0}, "target_epsilon must be > 0, got 0.0"),
        ({"epsilon": None}, "target_epsilon must be given together with target_delta, got None"),
        ({"clip": rf.Norm(1e14)}, "target_epsilon must be attainable, got 3.0: no sigma up to 1e"),
    ):
        with refused(message):
            with_epsilon(**changes)
    model, law = network(), rf.Gaussian(1.0)
    engine, loader = rf.PrivacyEngine(law, rf.Norm(1.0)), DataLoader(TensorDataset(INPUTS, LABELS))
    target = {"target_epsilon": 1.0, "target_delta": 1e-5, "epochs": 1}
    with refused("either epochs or steps must be given, got 1 and 3"):
        engine.make_private_with_epsilon(
            model, torch.optim.SGD(model.parameters()), loader, **target, steps=3
        )
    with refused("optimizer must hold every trained parameter"):
        optimizer = torch.optim.SGD(network().parameters(), lr=0.1)
        engine.make_private_with_epsilon(model, optimizer, loader, **target)
    assert engine.mechanism is law

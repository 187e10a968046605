"""One network: rounds are a fair search, the same job gives the same numbers, eta is that of jacobians."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from experiments.information import network
from experiments.information.network import (
    METHODS,
    GatheredImages,
    NetworkSettings,
    collate,
    exact_cross_entropy,
    fresh_model,
    read_images,
    run_etas,
    steps_per_epoch,
    train_and_measure,
)
from experiments.information.networks import write_rows
from ringfence import Clamp, Gaussian, TruncatedGaussian
from tests.accounting.drawing import draw
from tests.experiments.information import toys

SETTINGS = NetworkSettings()
SEARCH = toys.SETTINGS.search
INPUTS, TARGETS = draw(4, 1, 2, 3), torch.tensor([0, 1, 2, 0])
CLIP = Clamp(0.3)


def test_any_first_part_is_a_fair_search() -> None:
    rounds = SETTINGS.rounds(12, steps_per_epoch=225)
    assert SETTINGS.rounds(5, 225) == rounds[:5]  # whatever follows
    for one in rounds:
        assert tuple(setting.label for setting in one) == METHODS
        assert [setting.clip_kind for setting in one] == ["clamp"] * 3 + ["norm"]
        clamped = one[:3]
        shared = {(s.clip, s.noise_multiplier, s.learning_rate, s.steps) for s in clamped}
        assert len(shared) == 1
        assert one[0].bound is None
        assert one[1].bound == one[2].bound
        assert one[3].steps == one[0].steps
    assert {one[0].steps for one in rounds} == {2250, 4500}
    assert len({setting.key for one in rounds for setting in one}) == 48


def test_rows_are_compared_if_all_but_the_numbers_of_rounds_and_seeds_is_the_same() -> None:
    more = replace(SETTINGS, search=replace(SETTINGS.search, settings=999))
    assert more.identity() == replace(SETTINGS, seeds=(0,)).identity() == SETTINGS.identity()
    wider = replace(SETTINGS, search=replace(SETTINGS.search, clip=(0.1, 3.0)))
    assert len({one.identity() for one in (SETTINGS, wider, replace(SETTINGS, moments=4))}) == 3


def test_the_parts_are_those_of_the_file(tmp_path: Path) -> None:
    given = toys.arrays()
    data = read_images(toys.image_file(tmp_path), SEARCH)
    assert data.validation is not None
    assert [len(part[1]) for part in (data.train, data.validation, data.test)] == [225, 25, 70]
    both = torch.cat([data.train[0], data.validation[0]]).numpy()
    assert sorted(map(bytes, both)) == sorted(map(bytes, given["x_train"]))
    changed = given["x_test"].copy()
    changed[0, 0, 0, 0] ^= 1
    assert read_images(toys.image_file(tmp_path, x_test=changed), SEARCH).fingerprint != data.fingerprint


def test_a_batch_is_what_single_examples_are(tmp_path: Path) -> None:
    data = read_images(toys.image_file(tmp_path), SEARCH)
    loader = DataLoader(GatheredImages(*data.train), batch_size=40, collate_fn=collate)
    images, labels = next(iter(loader))
    assert images.is_contiguous(memory_format=torch.channels_last)
    expected = (data.train[0][:40].numpy().astype(np.float64) / 255 - 0.5) / 0.25
    np.testing.assert_allclose(images.permute(0, 2, 3, 1).numpy(), expected, atol=1e-6)
    assert torch.equal(labels, data.train[1][:40])
    assert torch.equal(loader.dataset[7][0], images[7])
    empty = loader.dataset.__getitems__([])  # type: ignore[attr-defined]
    assert [list(part.shape) for part in empty] == [[0, 3, 8, 8], [0]]
    assert torch.equal(loader.collate_fn([loader.dataset[3]])[0], images[3:4])


def test_images_need_a_test_split_of_the_same_size(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"images\.npz must hold arrays of images of one size"):
        read_images(toys.image_file(tmp_path, x_test=np.zeros((70, 8, 9, 3), np.uint8)), SEARCH)
    np.savez(tmp_path / "images.npz", x_train=np.zeros((4, 8, 8, 3), np.uint8), y_train=np.arange(4))
    with pytest.raises(ValueError, match="got no test images"):
        read_images(tmp_path / "images.npz", SEARCH)


def test_the_same_job_gives_the_same_numbers(swept: Path) -> None:
    data = read_images(swept / "images.npz", toys.SETTINGS.search)
    setting = toys.SETTINGS.rounds(1, steps_per_epoch(data, toys.SETTINGS))[0][0]
    again = train_and_measure(data, toys.SETTINGS, (setting, 0))
    row = pd.read_csv(write_rows(swept)).set_index("method").loc["Gaussian"]
    for name in ("validation_accuracy", "test_accuracy", "spectral_max", "trace_median", "estimate_max"):
        assert again[name] == pytest.approx(getattr(row, name), rel=1e-5), name


def test_what_is_measured(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = read_images(swept / "images.npz", toys.SETTINGS.search)
    settings = replace(toys.SETTINGS, moments=2, epochs=(2,))
    setting = settings.rounds(1, steps_per_epoch(data, settings))[0][3]
    seen: list[dict[str, Any]] = []

    def note(
        model: object, law: object, clip: object, moments: object, *examples: object, **how: object
    ) -> dict[str, float]:
        seen.append({"moments": moments, "examples": examples, **how})
        return {"spectral_max": 1.0}

    monkeypatch.setattr(network, "run_etas", note)
    train_and_measure(data, settings, (setting, 0))
    assert setting.steps == 10
    [call] = seen
    assert (call["steps"], call["sampling_rate"]) == (10, 50 / 225)
    images, labels = call["examples"]
    assert images.shape == (2, 3, 8, 8)
    assert torch.equal(labels, data.train[1][data.sample(2)])
    first, second = call["moments"]  # the middles of two halves
    assert all(float(theta.norm()) <= setting.clip * 225 for _, theta in call["moments"])
    before = fresh_model("small", data, 0).state_dict()
    assert len({float(weights["0.weight"].sum()) for weights in (before, first[0], second[0])}) == 3
    train_and_measure(data, replace(settings, least_accuracy=1.1), (setting, 0))
    assert len(seen) == 1  # what did not learn is not measured


def test_what_cannot_be_measured_keeps_its_accuracy(swept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise ValueError("rounding leaves nothing")

    data = read_images(swept / "images.npz", toys.SETTINGS.search)
    monkeypatch.setattr(network, "run_etas", refuse)
    setting = toys.SETTINGS.rounds(1, steps_per_epoch(data, toys.SETTINGS))[0][0]
    result = train_and_measure(data, toys.SETTINGS, (setting, 0))
    assert result["error"] == "not measured: rounding leaves nothing"
    assert 0 <= result["test_accuracy"] <= 1


def linear(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()


def clipped(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    loss = nn.functional.cross_entropy(model(x[None]), y[None])
    parts = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return CLIP(torch.cat([part.reshape(-1) for part in parts])[None])[0]


def test_the_run_is_q_times_all_steps_times_the_mean_of_the_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_BLOCK", 3)  # two blocks
    law, models = TruncatedGaussian(1.5, bound=1.0), [linear(seed) for seed in (1, 2)]
    theta = [draw(21, seed=seed) for seed in (3, 4)]
    spectral, trace = torch.zeros(4).double(), torch.zeros(4).double()
    for model, sums in zip(models, theta, strict=True):
        for i in range(4):
            jacobian = torch.autograd.functional.jacobian(
                lambda x, i=i, model=model: clipped(model, x, TARGETS[i]), INPUTS[i]
            ).reshape(21, 6)
            seen = law.fisher_information(sums).sqrt()[:, None] * jacobian
            spectral[i] += torch.linalg.matrix_norm(seen, 2) ** 2
            trace[i] += (seen**2).sum() / 6
    moments = [(m.state_dict(), sums) for m, sums in zip(models, theta, strict=True)]
    etas = run_etas(
        *(linear(9), law, CLIP, moments, INPUTS, TARGETS),
        sampling_rate=0.01,
        steps=500,
        probes=50,
        generator=torch.Generator().manual_seed(0),
    )
    expected = (spectral * 0.01 * 500 / 2).sqrt()
    assert expected.max() <= etas["spectral_max"] <= 1.1 * expected.max()
    assert etas["spectral_median"] <= 1.1 * expected.sort().values[2]
    exact = float((trace * 0.01 * 500 / 2).sqrt().max())
    assert etas["trace_max"] == pytest.approx(
        exact, rel=1e-6
    )  # as many probes as pixels: nothing is left to chance
    assert etas["estimate_max"] == pytest.approx(exact, rel=1e-6)


def test_a_network_that_is_sure_still_has_derivatives() -> None:
    outputs = draw(5, 4).mul(3).requires_grad_()
    targets = torch.tensor([0, 1, 2, 3, 0])
    ours, theirs = exact_cross_entropy(outputs, targets), nn.functional.cross_entropy(outputs, targets)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(*(torch.autograd.grad(loss, outputs) for loss in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other)
    sure = torch.tensor([[30.0, 0.0]], requires_grad=True)
    (gradient,) = torch.autograd.grad(exact_cross_entropy(sure, torch.tensor([0])), sure)
    assert float(gradient[0, 0]) == pytest.approx(-torch.exp(torch.tensor(-30.0)).item(), rel=1e-5)
    # in float32 torch's own has no digit left of this
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double()
    model[1].bias.data[0] += 25.0
    moment = (model.state_dict(), torch.zeros(21).double())
    etas = run_etas(
        *(model, Gaussian(1.0), CLIP, [moment], INPUTS, torch.zeros(4, dtype=torch.int64)),
        sampling_rate=1.0,
        steps=1,
        probes=2,
        generator=torch.Generator().manual_seed(0),
    )
    assert 0 < etas["spectral_max"] < 1e-8

"""Bounds of each example's information against dense jacobians and exact singular values."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev

import ringfence as rf
from ringfence.training import information as module
from ringfence.training.clipping import Clip
from ringfence.training.information import ExampleInformation, example_information
from tests.accounting.drawing import draw

COUNT = 6
CROSS_ENTROPY = nn.functional.cross_entropy
MECHANISMS = [
    rf.Gaussian(0.5),
    rf.RectifiedGaussian(1.0, 0.5),
    rf.TruncatedGaussian(1.0, (-0.3, 2.0)),
    rf.StochasticSign(0.7),
]
CLIPS = [rf.Clamp(0.05), rf.Clamp(1e3), rf.Norm(0.2, each=0.05)]
CLIPS.append(rf.Norm(1.63))  # makes some of the perceptron's gradients shorter, and leaves others alone


def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def convolutions() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3)).double()


MODELS = {"perceptron": perceptron, "convolutions": convolutions}
IMAGES = draw(COUNT, 1, 4, 4, seed=2)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}


def size(model: nn.Module) -> int:
    return sum(value.numel() for value in trained(model).values())


def jacobian(model: nn.Module, clip: Clip, x: Tensor, y: Tensor, loss: object = CROSS_ENTROPY) -> Tensor:
    """(d, p) of the clipped gradient, by reverse mode over reverse mode."""

    def value(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return loss(functional_call(model, weights, (x[None],)), y[None]).sum()

    def clipped(x: Tensor) -> Tensor:
        parts = grad(value)(trained(model), x)
        return clip(torch.cat([part.flatten() for part in parts.values()])[None])[0]

    return jacrev(clipped)(x).flatten(1)


def jacobians(model: nn.Module, clip: Clip) -> list[Tensor]:
    return [jacobian(model, clip, x, y) for x, y in zip(IMAGES, LABELS, strict=True)]


def exact(dense: list[Tensor], law: rf.Mechanism, theta: Tensor) -> tuple[Tensor, Tensor]:
    """(largest eigenvalue, trace / p) of J^T diag(eta^2) J of each example, from its J."""
    eta = law.fisher_information(theta.double()).sqrt()
    scaled = [eta[:, None] * one for one in dense]
    values = torch.stack([torch.linalg.svdvals(one)[0].square() for one in scaled])
    return values, torch.stack([one.square().sum() / one.shape[1] for one in scaled])


def bounds(
    model: nn.Module, clip: Clip = CLIPS[0], law: rf.Mechanism = MECHANISMS[1], **options: object
) -> ExampleInformation:
    given = {
        "clip": clip,
        "mechanism": law,
        "theta": draw(size(model), seed=3),
        "generator": torch.Generator().manual_seed(4),
        **options,
    }
    inputs, targets = given.pop("inputs", IMAGES), given.pop("targets", LABELS)
    return example_information(model, given.pop("loss", CROSS_ENTROPY), inputs, targets, **given)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("clip", CLIPS, ids=repr)
def test_bounds_hold_for_every_example_and_are_close(name: str, clip: Clip) -> None:
    model = MODELS[name]()
    dense = jacobians(model, clip)
    # half of them: every law meets every kind of clip, and a tight and a loose one
    for law in MECHANISMS[CLIPS.index(clip) in (1, 3) :: 2]:
        theta = draw(size(model), seed=3)
        spectral, trace = exact(dense, law, theta)
        found = bounds(model, clip, law)
        assert found.estimate is None
        assert bool((found.upper >= spectral * (1 - 1e-12)).all())
        assert bool((found.upper <= spectral * (1.05**2 + 1e-9)).all())
        whole = bounds(model, clip, law, kind="trace")
        torch.testing.assert_close(whole.upper, trace, rtol=1e-10, atol=0)
        assert bool((whole.upper >= trace * (1 - 1e-14)).all())
        torch.testing.assert_close(whole.estimate, trace, rtol=1e-10, atol=0)
        some = bounds(model, clip, law, kind="trace", probes=8)
        assert bool(((trace <= some.upper) & (some.estimate < some.upper)).all())


def test_some_of_the_clips_above_bite() -> None:
    """Else they would test nothing: parts of the gradients are at the clip, parts are not."""
    model = perceptron()
    tight, loose = (jacobian(model, clip, IMAGES[0], LABELS[0]) for clip in (CLIPS[0], CLIPS[1]))
    kept = (tight != 0).any(1)
    assert 0 < int(kept.sum()) < size(model)
    assert torch.equal(tight[kept], loose[kept])
    assert float((jacobian(model, CLIPS[2], IMAGES[0], LABELS[0]) - loose).abs().max()) > 1e-3


def test_theta_is_in_the_order_of_the_parameters() -> None:
    """One coordinate with noise far smaller than the others' has all the information."""
    model = perceptron()
    theta, clip = torch.zeros(size(model)).double(), rf.Clamp(1e3)
    for index in (0, 5, 50, 119, 130, size(model) - 1):
        sigma = torch.full_like(theta, 1e3)
        sigma[index] = 1e-3
        found = bounds(model, clip, rf.Gaussian(sigma), theta=theta)
        rows = [jacobian(model, clip, x, y)[index] for x, y in zip(IMAGES, LABELS, strict=True)]
        truth = torch.stack([row.square().sum() for row in rows]) * 1e6
        assert bool((found.upper >= truth).all())
        torch.testing.assert_close(found.upper, truth, rtol=0.11, atol=0)


def test_every_example_has_its_share_of_the_failure_probability() -> None:
    model = perceptron()
    six = bounds(model, memory=1, failure_probability=6e-4)
    one = bounds(model, inputs=IMAGES[:1], targets=LABELS[:1], failure_probability=1e-4)
    assert float(six.upper[0]) == pytest.approx(float(one.upper[0]), rel=1e-12)


@pytest.mark.parametrize("kind", ["spectral", "trace"])
def test_chunks_change_nothing_but_rounding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, chunks = convolutions(), []
    honest = module.jacobian_operator

    def counted(cast: object, clip: Clip, x: Tensor, *rest: object) -> object:
        chunks.append(len(x))
        return honest(cast, clip, x, *rest)

    monkeypatch.setattr(module, "jacobian_operator", counted)
    one, all_at_once = (bounds(model, kind=kind, probes=5, memory=memory) for memory in (1, 1 << 30))
    assert chunks == [1] * COUNT + [COUNT]
    torch.testing.assert_close(one.upper, all_at_once.upper, rtol=1e-8, atol=0)


def test_an_example_whose_gradient_is_all_clipped_has_no_information() -> None:
    for kind in ("spectral", "trace"):
        assert not bool(bounds(perceptron(), rf.Clamp(1e-12), kind=kind).upper.any())


@pytest.mark.parametrize("clip", [rf.Clamp(0.5), rf.Norm(0.5)], ids=repr)
def test_a_gradient_of_zero_may_still_move(clip: Clip) -> None:
    """Fitted exactly, the gradient (w x - y) x is 0, and has no direction, but J = x w^T is not 0."""
    model = nn.Linear(3, 1, bias=False).double()
    x, weight = torch.tensor([[1.0, 2.0, -0.5]]).double(), torch.tensor([[0.5, -1.0, 2.0]]).double()
    model.load_state_dict({"weight": weight})
    y = x @ weight.T
    found = bounds(
        model,
        clip,
        rf.Gaussian(1.0),
        loss=lambda output, target: (output - target).square() / 2,
        inputs=x,
        targets=y,
    )
    truth = float(x.square().sum() * weight.square().sum())
    assert truth <= float(found.upper) <= truth * 1.11


def test_tiny_information_does_not_vanish() -> None:
    """eta^2 of a rectified coordinate 15 sigma outside is 1e-50."""
    model = perceptron()
    far = torch.full((size(model),), 15.5, dtype=torch.float64)
    spectral, _ = exact(jacobians(model, rf.Clamp(1e3)), MECHANISMS[1], far)
    assert 0 < float(spectral.max()) < 1e-45
    found = bounds(model, rf.Clamp(1e3), theta=far)
    assert bool((found.upper >= spectral * (1 - 1e-12)).all())
    assert bool((found.upper <= spectral * 1.11).all())


@pytest.mark.parametrize("name", MODELS)
def test_a_float32_model_is_that_model_with_more_digits(name: str) -> None:
    model = MODELS[name]()
    spectral, _ = exact(jacobians(model, CLIPS[3]), MECHANISMS[1], draw(size(model), seed=3))
    found = bounds(model.float(), CLIPS[3], inputs=IMAGES.float())
    assert bool((found.upper >= spectral * (1 - 1e-5)).all())
    assert bool((found.upper <= spectral * 1.11).all())


def test_parameters_without_gradient_are_left_out() -> None:
    model = perceptron()
    model[1].requires_grad_(False)
    assert size(model) == 24
    theta = draw(24, seed=3)
    spectral, _ = exact(jacobians(model, CLIPS[0]), MECHANISMS[1], theta)
    found = bounds(model, theta=theta)
    assert bool(((spectral <= found.upper) & (found.upper <= 1.11 * spectral)).all())
    with pytest.raises(
        ValueError, match="a coordinate for each of the model's 24 trainable parameters, got 143"
    ):
        bounds(model, theta=torch.zeros(143))
    with pytest.raises(ValueError, match="model must have a parameter that requires a gradient, got none"):
        bounds(model.requires_grad_(False), theta=torch.zeros(1))


@pytest.mark.parametrize("training", [True, False])
def test_nothing_is_left_on_the_model_or_the_generator_of_torch(training: bool) -> None:
    model = convolutions().train(training)
    model[5].bias.requires_grad_(False)
    before, flags = copy.deepcopy(model.state_dict()), [one.requires_grad for one in model.parameters()]
    images, state = IMAGES.clone(), torch.get_rng_state()
    bounds(model)
    bounds(model, kind="trace")
    assert [one.requires_grad for one in model.parameters()] == flags
    assert all(one.grad is None and one.grad_fn is None for one in model.parameters())
    assert all(one.training is training and not one._forward_hooks for one in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(images, IMAGES)
    assert torch.equal(state, torch.get_rng_state())


def test_layers_that_mix_examples_are_refused_and_fixed_statistics_taken() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3)).float()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises((RuntimeError, ValueError), match=r"running_mean|more than 1 value per channel"):
        bounds(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    found = bounds(model.eval())
    spectral, _ = exact(jacobians(model.double(), CLIPS[0]), MECHANISMS[1], draw(size(model), seed=3))
    assert bool(((spectral <= found.upper) & (found.upper <= 1.11 * spectral)).all())


def test_bad_arguments_are_refused_by_name() -> None:
    model = perceptron()

    def refused(match: str, error: type[Exception] = ValueError, **options: object) -> None:
        with pytest.raises(error, match=match):
            bounds(model, **options)

    refused(
        "theta must have a coordinate for each of the model's 143 trainable parameters, got 7",
        theta=torch.zeros(7),
    )
    refused("theta must not be NaN", theta=torch.full((143,), math.nan))
    refused(r"kind must be one of \['spectral', 'trace'\], got 'norm'", kind="norm")
    refused("generator must be a torch.Generator, got 5", TypeError, generator=5)
    refused(r"failure_probability must be in \(0, 1\), got 0", failure_probability=0.0)
    refused("probes must be at least 1, got 0", probes=0)
    refused("memory must be at least 1, got 0", memory=0)
    refused("inputs must not be NaN", inputs=torch.full((6, 1, 4, 4), math.nan))
    refused(r"inputs must be \(n, ...\) and not empty, got shape \[0, 16\]", inputs=torch.zeros(0, 16))
    refused(r"targets must have 6 examples, got shape \[2\]", targets=torch.zeros(2))
    refused("model and loss must give finite gradients", loss=lambda output, target: output.sum() * math.nan)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_gives_what_a_cpu_gives() -> None:
    here = bounds(convolutions())
    there = bounds(
        convolutions().cuda(), inputs=IMAGES.cuda(), targets=LABELS.cuda(), theta=draw(99, seed=3).cuda()
    )
    assert there.upper.is_cuda
    torch.testing.assert_close(there.upper.cpu(), here.upper, rtol=1e-9, atol=0)

"""The fused pass on a GPU, as it is and repeated from a recording, against examples alone in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from experiments.networks import wide_resnet_16_4
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.recording import RecordedGradients
from ringfence.training.standardised import StandardisedConv2d
from tests.training.engine.runs import Run
from tests.training.per_example.alone import drawn, gradients_alone, seeded, words

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


class First(nn.Module):
    """The first result of a layer that is given its input as often as it wants it."""

    def __init__(self, layer: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(*(x,) * self.times)[0]
        return found


MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "dense": (lambda: nn.Sequential(nn.Linear(20, 33), nn.Tanh(), nn.Linear(33, 5)), drawn(12, 20)),
    "images": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, stride=2, groups=2), nn.InstanceNorm2d(32, affine=True), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(288, 5)),
        ),
        drawn(12, 3, 8, 8),
    ),
    "words": (
        lambda: nn.Sequential(
            nn.Embedding(50, 32),
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True),
            First(nn.MultiheadAttention(32, 2, batch_first=True), 3),
            nn.RMSNorm(32),
            nn.Linear(32, 5),
        ),
        words(12, 300, below=50),
    ),
    "recurrent": (
        lambda: nn.Sequential(
            First(nn.LSTM(8, 16, batch_first=True)), First(nn.GRU(16, 16, batch_first=True)), nn.Linear(16, 5)
        ),
        drawn(12, 6, 8),
    ),
    "wide residual": (wide_resnet_16_4, drawn(12, 3, 32, 32)),
    "standardised": (
        lambda: nn.Sequential(
            StandardisedConv2d(16, 32, 3, padding=1, groups=2),
            nn.Tanh(),
            StandardisedConv2d(32, 24, 3, 2),
            nn.Flatten(),
            nn.Linear(216, 5),
        ),
        drawn(12, 16, 8, 8),
    ),
}


@on_gpu
@pytest.mark.filterwarnings("ignore:Mismatch dtype")  # torch's own, about its RMSNorm under autocast
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("per_unit", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_sums_on_a_gpu(name: str, per_unit: int, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    make, inputs = MODELS[name]
    model = seeded(make).cuda()
    exact = seeded(make).double()
    given = ((inputs.double() if inputs.is_floating_point() else inputs,), {})
    slopes = drawn(*exact(*given[0]).shape)
    alone = gradients_alone(exact, given, [slopes.double()]).unflatten(0, (-1, per_unit)).sum(dim=1)
    scale = float(alone.abs().max())
    every = {}
    for clip in (rf.Clamp(0.1 * scale), rf.Norm(0.5 * scale), rf.Norm(0.5 * scale, each=0.1 * scale)):
        kinds = (ExampleGradients, RecordedGradients)
        fused, recorded = (kind(model, rows=15, per_unit=per_unit) for kind in kinds)
        for gradients in (fused, recorded, recorded, recorded, recorded):
            some = ((inputs.cuda().clone(),), {})
            with torch.autocast("cuda", torch.bfloat16, enabled=half):
                outputs = gradients.forward(some)
            assert gradients.fallback_reason is None, gradients.fallback_reason
            every[gradients] = gradients.clipped_sum(some, slopes.cuda(), clip)
            assert outputs.shape == slopes.shape
        assert recorded.not_recorded_because is None
        assert recorded._recording is not None
        ours, theirs = every[fused].double().cpu(), clip(alone).sum(dim=0)
        again = every[recorded].double().cpu()
        if half:  # attention adds up in any order, and bfloat16 shows it
            assert float((ours - theirs).norm() / theirs.norm()) < 0.1
            assert float((ours - again).norm() / theirs.norm()) < 1e-3
        else:  # float32 turns a few of the many ReLUs of the residual network on or off
            tolerance = 0.1 if name == "wide residual" else 1e-4
            assert float((ours - theirs).abs().max()) <= tolerance * clip.largest, clip
            assert torch.allclose(again, ours, rtol=1e-5, atol=1e-5 * clip.largest), clip
        enormous = fused.clipped_sum(some, 1e10 * slopes.cuda(), clip)
        assert float(enormous.abs().max()) <= 12 * clip.largest * (1 + 1e-6)  # the rounding of the sum


@on_gpu
def test_what_is_repeated_is_this_batch_with_its_own_masks() -> None:
    """A smaller batch, other weights, other masks of dropout: nothing of the recorded batch is left."""
    model = nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 3)).cuda()
    recorded, fused, clip = RecordedGradients(model, rows=16), ExampleGradients(model, rows=16), rf.Clamp(0.1)
    for seed, count in enumerate((16, 16, 16, 5, 1, 12)):
        inputs, sums = ((torch.randn(count, 8, device="cuda"),), {}), []
        for gradients in (recorded, fused):
            torch.manual_seed(seed)
            outputs = gradients.forward(inputs)
            sums.append((outputs, gradients.clipped_sum(inputs, torch.ones_like(outputs), clip)))
        assert (recorded._recording is not None) == (seed > 0)
        if seed == 0:
            assert torch.equal(sums[0][0], sums[1][0])
        assert torch.count_nonzero(sums[0][1]) > 0
        with torch.no_grad():
            model[2].weight += 0.1
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(recorded.forward(inputs))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@on_gpu
def test_a_model_that_waits_for_the_gpu_is_not_recorded_and_says_so() -> None:
    class Waiting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("factor", torch.ones(1))

        def forward(self, input: Tensor) -> Tensor:
            return input * float(self.factor[0])

    model = nn.Sequential(nn.Linear(4, 4), Waiting(), nn.Linear(4, 3)).cuda()
    recorded, inputs = RecordedGradients(model, rows=8), ((torch.randn(8, 4, device="cuda"),), {})
    plain = ExampleGradients(model, rows=8)

    def total(gradients: ExampleGradients) -> Tensor:
        outputs = gradients.forward(inputs)
        return gradients.clipped_sum(inputs, torch.ones_like(outputs), rf.Clamp(0.1))

    sums = [total(recorded)]
    with pytest.warns(UserWarning, match="passes are not recorded"):
        sums.append(total(recorded))
    sums += [total(recorded), total(plain)]
    assert plain.fallback_reason is None  # torch's generator works again
    assert all(torch.allclose(each, sums[0]) for each in sums)


@on_gpu
def test_an_engine_takes_the_same_steps_with_recordings() -> None:
    ends = []
    for cuda_graphs in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).cuda()
        data = TensorDataset(torch.randn(200, 6).cuda(), torch.randint(3, (200,)).cuda())
        engine = rf.PrivacyEngine(rf.Gaussian(0.01), rf.Clamp(0.1), seed=0, cuda_graphs=cuda_graphs)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        private, optimizer, loader = engine.make_private(model, optimizer, DataLoader(data, batch_size=20))
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(private(inputs), labels).backward()
            optimizer.step()
        ends.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
        last = len(labels)  # an empty batch, or one of more than the rows of a pass, is not repeated
        recorded = engine.not_recorded_because is None
        assert recorded == (cuda_graphs and 0 < last <= engine.run.plan.batches.rows)
    assert torch.allclose(ends[0], ends[1], atol=1e-5)


def test_a_run_trains_where_nothing_can_be_recorded_and_says_why() -> None:
    run, plain = (Run(cuda_graphs=value).train(1) for value in ("auto", False))
    assert torch.equal(run.weights(), plain.weights())
    for each in (run, plain):
        assert "cuda_graphs is False, the run is secure, or" in (each.engine.not_recorded_because or "")
    with pytest.raises(TypeError, match="cuda_graphs must be True or False, got 'always'"):
        Run(cuda_graphs="always")


def test_a_batch_that_is_not_one_pass_is_not_recorded_and_says_so() -> None:
    """Before anything asks for a GPU."""
    inputs = ((drawn(6, 4),), {})
    for rows, budget, why in (
        (4, None, "a batch of 6 rows is not one pass of 4"),
        (None, None, "a batch of 6 rows is not one pass of None"),
        (8, 1, "memory_budget holds 1 rows of 8"),
    ):
        recorded = RecordedGradients(nn.Linear(4, 2), rows=rows, memory_budget=budget)
        assert recorded.forward(inputs).shape == (6, 2)
        assert recorded.not_recorded_because == why
    recorded = RecordedGradients(nn.Linear(4, 2), rows=8)
    recorded.forward(inputs)
    assert recorded.not_recorded_because is None

"""The clipped sum of a network's gradients, against ordinary training and against Opacus.

    python -m benchmarks.networks [--device cuda] [--float32] [--networks wrn,cnn] [--batches 200,1000]
    python -m benchmarks.networks --per-unit 8 --batches 1600 --ways ordinary,clamp,norm

Everybody starts from a model, a batch and its labels. Ordinary training ends with the gradient of the mean
loss; the others end with the sum of clipped gradients: Clamp and Norm are ours, "hooks" and "ghost" are the
two ways of Opacus (Norm only), and "formed" adds in float64 as secure runs do, for which each example's
gradient is formed. All take turns, and a ratio is the median over rounds of the time over that of ordinary
training in the same round. "step" is a whole step of the engine: batch, gradients, noise, account, optimizer.
"recorded" ones repeat a CUDA graph; their ratio is to ordinary training without one, beside which each of
them runs alone, and their memory is what the process holds.

On a GPU everything runs under autocast in bfloat16, or in float32 with ``--float32``, in channels last where
the network has images, and with cudnn's search. Memory is the peak on the GPU, model and batch included, less
what earlier networks left behind.
"""

import argparse
import gc
import statistics
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from benchmarks.timing import seconds
from experiments.networks import wide_resnet_16_4
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.recording import RecordedGradients

CLAMP, NORM = rf.Clamp(0.01), rf.Norm(1.0)
Work = Callable[[], object]
EAGER = ("ordinary", "clamp", "norm", "hooks", "ghost", "formed", "step")
RECORDED = ("recorded ordinary", "recorded clamp", "recorded norm", "recorded step")


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.inward(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.outward(scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.second_norm = nn.LayerNorm(width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first_norm(x))
        return x + self.dense(self.second_norm(x))


class Transformer(nn.Module):
    """Patches of an image, or words, and their places; blocks; the mean over places; a linear layer."""

    def __init__(
        self, first: nn.Module, length: int, width: int, depth: int, heads: int, classes: int
    ) -> None:
        super().__init__()
        self.first, self.places = first, nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.first(inputs)
        x = x.flatten(2).transpose(1, 2) if x.dim() == 4 else x
        places = torch.arange(x.shape[1], device=x.device).expand(len(x), -1)
        return self.last(self.norm(self.blocks(x + self.places(places))).mean(dim=1))


@dataclass(frozen=True)
class Problem:
    """A network, the shape of an example, and the number of words, or 0 for images."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int = 0
    classes: int = 10

    def batch(self, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        labels = torch.randint(self.classes, (count,), device=device)
        if self.words:
            return torch.randint(self.words, (count, *self.shape), device=device), labels
        images = torch.randn(count, *self.shape, device=device)
        return images.contiguous(memory_format=torch.channels_last), labels


def tanh_cnn() -> nn.Module:
    """The CNN of Papernot et al. 2021 for CIFAR-10: 3 x 3 convolutions and tanh, 605,226 parameters.

    It has two layers each of 32, 64 and 128 filters, each pair followed by a 2 x 2 mean; then 256 filters,
    one filter per class, and the mean over the image.
    """
    wide = 3
    layers: list[nn.Module] = []
    for filters in (32, 64, 128):
        layers += [nn.Conv2d(wide, filters, 3, padding=1), nn.Tanh()]
        layers += [nn.Conv2d(filters, filters, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2)]
        wide = filters
    layers += [nn.Conv2d(wide, 256, 3, padding=1), nn.Tanh(), nn.Conv2d(256, 10, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


PROBLEMS = {
    "wrn": Problem(wide_resnet_16_4, (3, 32, 32)),
    "cnn": Problem(tanh_cnn, (3, 32, 32)),
    "vit": Problem(lambda: Transformer(nn.Conv2d(3, 384, 16, 16), 196, 384, 12, 6, 10), (3, 224, 224)),
    "bert": Problem(lambda: Transformer(nn.Embedding(30522, 256), 128, 256, 12, 4, 10), (128,), words=30522),
    "example": Problem(
        lambda: nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(72, 10)
        ),
        (1, 8, 8),
    ),
    "lenet": Problem(
        lambda: nn.Sequential(
            *(
                nn.Conv2d(3, 6, 5),
                nn.Tanh(),
                nn.AvgPool2d(2),
                nn.Conv2d(6, 16, 5),
                nn.Tanh(),
                nn.AvgPool2d(2),
            ),
            *(nn.Flatten(), nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
        ),
        (3, 32, 32),
    ),
    "transformer": Problem(lambda: Transformer(nn.Embedding(1000, 64), 32, 64, 2, 2, 10), (32,), words=1000),
}


def ordinary(model: nn.Module, inputs: Tensor, labels: Tensor, precision: Any) -> Work:
    def work() -> None:
        model.zero_grad()
        with precision():
            loss = cross_entropy(model(inputs), labels)
        loss.backward()

    return work


def recorded(model: nn.Module, inputs: Tensor, labels: Tensor, precision: Any) -> Work:
    """Ordinary training from a recording (a CUDA graph)."""
    work = ordinary(model, inputs, labels, precision)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    model.zero_grad()
    with precision():
        half = torch.is_autocast_enabled("cuda")
    uncached = torch.autocast("cuda", torch.bfloat16, enabled=half, cache_enabled=False)
    with torch.cuda.graph(graph, stream=stream), uncached:
        cross_entropy(model(inputs), labels).backward()

    def replay(model: nn.Module = model) -> None:  # the recording reads parameters, which must stay
        graph.replay()

    return replay


def ours(
    gradients: ExampleGradients,
    clip: rf.Clip,
    inputs: Tensor,
    labels: Tensor,
    precision: Any,
    dtype: torch.dtype | None = None,
) -> Work:
    given: Any = ((inputs,), {})

    def work() -> Tensor:
        with precision():
            outputs = gradients.forward(given).requires_grad_()
            cross_entropy(outputs, labels, reduction="sum").backward()
        return gradients.clipped_sum(given, outputs.grad, clip, dtype)

    return work


def opacus(model: nn.Module, inputs: Tensor, labels: Tensor, precision: Any, *, ghost: bool) -> Work:
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    kind = DPOptimizerFastGradientClipping if ghost else DPOptimizer
    wrapped = (
        GradSampleModuleFastGradientClipping(model, max_grad_norm=NORM.norm, loss_reduction="sum")
        if ghost
        else GradSampleModule(model, loss_reduction="sum")
    )
    optimizer = kind(
        torch.optim.SGD(wrapped.parameters(), lr=0.0),
        noise_multiplier=0.0,
        max_grad_norm=NORM.norm,
        expected_batch_size=len(labels),
        loss_reduction="sum",
    )
    loss = nn.CrossEntropyLoss(reduction="sum")
    criterion = DPLossFastGradientClipping(wrapped, optimizer, loss, loss_reduction="sum") if ghost else loss

    def work() -> None:
        with precision():
            value = criterion(wrapped(inputs), labels)
        value.backward()
        if not ghost:
            optimizer.clip_and_accumulate()
        optimizer.zero_grad()  # otherwise it holds its memory while others are measured

    return work


def engine_step(
    problem: Problem,
    model: nn.Module,
    batch: int,
    device: torch.device,
    precision: Any,
    cuda_graphs: bool = False,
) -> Work:
    """A step of an engine with Poisson batches, over a dataset of ten batches that is on the device."""
    inputs, labels = problem.batch(10 * batch, device)
    data = _Resident(inputs, labels)
    law = rf.RectifiedGaussian(1.0, bound=2.0)
    engine = rf.PrivacyEngine(law, CLAMP, cuda_graphs=cuda_graphs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    loader = DataLoader(data, batch_size=batch, collate_fn=lambda batch: batch)
    model, optimizer, loader = engine.make_private(model, optimizer, loader)

    def forever() -> Iterator[Any]:
        while True:
            yield from loader

    batches = forever()

    def work() -> None:
        some, theirs = next(batches)
        optimizer.zero_grad()
        with precision():
            loss = cross_entropy(model(some), theirs)
        loss.backward()
        optimizer.step()

    return work


class _Resident(TensorDataset):
    """Examples that are gathered where they are, a batch at a time."""

    def __getitems__(self, indices: list[int]) -> tuple[Tensor, ...]:
        device = self.tensors[0].device
        at = torch.tensor(indices, dtype=torch.int64, pin_memory=device.type == "cuda")
        at = at.to(device, non_blocking=True)  # from ordinary memory the copy would wait for the GPU
        return tuple(tensor[at] for tensor in self.tensors)

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index : index + 1] for tensor in self.tensors)


def candidates(
    problem: Problem, batch: int, device: torch.device, precision: Any, wanted: list[str], per_unit: int
) -> Iterator[tuple[str, Work]]:
    """The ways, each with a model of its own; those that fail are named and left out."""

    def model() -> nn.Module:
        torch.manual_seed(0)
        fresh = problem.make().to(device).train()
        return fresh if problem.words else fresh.to(memory_format=torch.channels_last)

    def repeated(clip: rf.Clip) -> Work:
        return ours(
            RecordedGradients(model(), rows=batch, per_unit=per_unit), clip, inputs, labels, precision
        )

    inputs, labels = problem.batch(batch, device)
    ways: dict[str, Callable[[], Work]] = {
        "ordinary": lambda: ordinary(model(), inputs, labels, precision),
        "clamp": lambda: ours(ExampleGradients(model(), per_unit=per_unit), CLAMP, inputs, labels, precision),
        "norm": lambda: ours(ExampleGradients(model(), per_unit=per_unit), NORM, inputs, labels, precision),
        "hooks": lambda: opacus(model(), inputs, labels, precision, ghost=False),
        "ghost": lambda: opacus(model(), inputs, labels, precision, ghost=True),
        "formed": lambda: ours(
            ExampleGradients(model(), per_unit=per_unit), CLAMP, inputs, labels, precision, torch.float64
        ),
        "step": lambda: engine_step(problem, model(), batch, device, precision),
        "recorded ordinary": lambda: recorded(model(), inputs, labels, precision),
        "recorded clamp": lambda: repeated(CLAMP),
        "recorded norm": lambda: repeated(NORM),
        "recorded step": lambda: engine_step(problem, model(), batch, device, precision, cuda_graphs=True),
    }
    for name in wanted:
        if problem.words and name == "recorded ordinary":
            print(f"  {name} fails: torch's gradient of an embedding ends in an illegal address")
            continue
        try:
            work = ways[name]()
            for _ in range(4):
                work()
        except Exception as error:
            print(f"  {name} fails: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
        else:
            yield name, work


def measured(work: Work, device: torch.device) -> tuple[float, float]:
    """Seconds and peak GiB of one call."""
    if device.type != "cuda":
        return seconds(work, device), float("nan")
    torch.cuda.reset_peak_memory_stats()
    return seconds(work, device), torch.cuda.max_memory_allocated() / 2**30


def show(
    rounds: list[dict[str, tuple[float, float]]], ways: Iterable[str], held: float, before: float
) -> None:
    """Prints the median ratios, times and the memory of some ways; recordings hold theirs all the time.

    ``before`` is the memory that was taken before there was any of them.
    """
    for way in ways:
        ratio = statistics.median(each[way][0] / each["ordinary"][0] for each in rounds)
        taken = statistics.median(each[way][0] for each in rounds)
        memory = (held if way in RECORDED else max(each[way][1] for each in rounds)) - before
        print(f"  {way:17s} {ratio:6.2f} times  {1e3 * taken:8.2f} ms  {memory:6.2f} GiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--networks")
    parser.add_argument("--batches")
    parser.add_argument("--ways", help=f"{', '.join((*EAGER, *RECORDED))}; all by default")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--per-unit", type=int, default=1, help="rows of a unit, for clamp, norm and formed")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = True
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus, as it is meant
    names = (asked.networks or ("wrn,cnn,vit,bert" if on_gpu else "example,lenet,transformer")).split(",")
    half = on_gpu and not asked.float32

    def precision() -> Any:
        return torch.autocast(device.type, torch.bfloat16, enabled=half)

    print(f"{asked.device}, {'bfloat16' if half else 'float32'}; ratios to ordinary training")
    for name in names:
        for batch in map(int, (asked.batches or ("200,1000" if on_gpu else "250")).split(",")):
            print(f"{name}, batch {batch}")
            wanted = asked.ways.split(",") if asked.ways else [*EAGER, *(RECORDED if on_gpu else ())]
            # a recording holds its memory: one at a time
            groups = [[way for way in wanted if way in EAGER]]
            groups += [["ordinary", way] for way in wanted if way in RECORDED]
            for group in groups:
                before = 0.0
                if on_gpu:
                    gc.collect()
                    torch.cuda.empty_cache()
                    before = torch.cuda.memory_allocated() / 2**30
                works = dict(candidates(PROBLEMS[name], batch, device, precision, group, asked.per_unit))
                if on_gpu:
                    torch.cuda.empty_cache()
                held = torch.cuda.memory_reserved() / 2**30 if on_gpu else float("nan")
                rounds = [
                    {way: measured(work, device) for way, work in works.items()} for _ in range(asked.rounds)
                ]
                show(rounds, [way for way in works if way != "ordinary" or group is groups[0]], held, before)
                del works


if __name__ == "__main__":
    main()

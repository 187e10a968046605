"""Who is in a step: everyone, or everyone with the same chance; what cannot be sampled is refused."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

import ringfence as rf
from ringfence.accounting.subsampling import chance_of_cut
from ringfence.noise import Noise
from ringfence.training import distributed
from ringfence.training.engine.batches import Batches, MicroBatch, Units
from ringfence.training.engine.run import PrivateLoader
from tests.training.engine.runs import CLIP, LAW, network

DATA = TensorDataset(torch.arange(20.0), torch.arange(20))


def loader(batches: Any, start: int = 0, **options: Any) -> tuple[PrivateLoader, list[MicroBatch]]:
    """A private loader of a run that only listens, and what it hears."""
    heard: list[MicroBatch] = []
    noise = Noise(7)
    run: Any = SimpleNamespace(
        plan=SimpleNamespace(batches=batches, units=Units()),
        releases=SimpleNamespace(noise=noise, number=start, begun=0),
        steps=start,
        begin=lambda: None,
        announce=lambda batch, _: heard.append(batch),
        augmented=lambda _, values: values,
    )
    return PrivateLoader(DataLoader(DATA, batch_size=4, **options), run), heard


def test_every_example_has_the_same_independent_chance() -> None:
    batches = Batches("poisson", 200, 20, public_size=200)
    member = torch.zeros(4000, 200)
    for step in range(4000):
        member[step, list(batches.of_step(step, Noise(1))[0].indices)] = 1
    rate = member.mean(dim=0)
    assert float((rate - 0.1).abs().max()) < 5 * (0.09 / 4000) ** 0.5
    sizes = member.sum(dim=1)
    assert abs(float(sizes.var()) / 18 - 1) < 0.15  # binomial, not fixed
    together = (member[:, 0] * member[:, 1]).mean()
    assert abs(float(together) - 0.01) < 5 * (0.0099 / 4000) ** 0.5


def test_nearly_every_batch_fits_into_the_rows_of_a_pass() -> None:
    batches = Batches("poisson", 45_000, 200, public_size=45_000)
    assert batches.rows == 240  # 200 and 2.5 deviations, in eights: one batch in 380 is larger
    sizes = [len(batches.of_step(step, Noise(1))[0].indices) for step in range(200)]
    assert sum(size > batches.rows for size in sizes) <= 3


def test_a_cut_sample_keeps_its_maximum_and_everyone_equally_often() -> None:
    free = Batches("poisson", 60, 20, public_size=60)
    cut = Batches("poisson", 60, 20, public_size=60, at_most=22)
    counts, cuts = torch.zeros(60), 0
    for step in range(3000):
        (whole,), (part,) = free.of_step(step, Noise(1)), cut.of_step(step, Noise(1))
        if len(whole.indices) <= 22:
            assert part == whole
            continue
        assert len(part.indices) == 22
        assert set(part.indices) < set(whole.indices)
        assert list(part.indices) == sorted(part.indices)
        counts[list(part.indices)] += 1
        cuts += 1
    assert cuts / 3000 == pytest.approx(0.25, abs=0.04)  # of all 60, which are one more than the others
    assert chance_of_cut(60, cut.sampling_rate, 22) == pytest.approx(0.3361, abs=1e-3)  # 22 of the others
    share = counts / cuts
    assert float((share - 22 / 60).abs().max()) < 5 * (22 / 60 * 38 / 60 / cuts) ** 0.5
    assert cut.rows == 22
    assert Batches("poisson", 60, 20, public_size=60, at_once=8, at_most=22).rows == 8


def test_every_process_has_as_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """They gather a sharded model together, part by part."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    shares = []
    for rank in (0, 1):
        monkeypatch.setattr(distributed, "rank", lambda: rank)  # noqa: B023
        shares.append(Batches("full", 41, 20, public_size=41).of_step(0, Noise(1)))
    assert [[len(part.indices) for part in share] for share in shares] == [[20, 1], [20, 0]]
    assert sorted(i for share in shares for part in share for i in part.indices) == list(range(41))


def test_samples_belong_to_seed_and_step() -> None:
    batches = Batches("poisson", 100, 50, public_size=100)
    assert batches.of_step(3, Noise(1)) == batches.of_step(3, Noise(1))
    assert batches.of_step(3, Noise(1))[0].indices != batches.of_step(4, Noise(1))[0].indices
    assert batches.of_step(3, Noise(1))[0].indices != batches.of_step(3, Noise(2))[0].indices


@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_announced_is_what_comes(workers: int) -> None:
    private, heard = loader(Batches("poisson", 20, 4, public_size=20), start=8, num_workers=workers)
    before = torch.get_rng_state()
    for values, indices in private:
        assert tuple(indices.tolist()) == heard[-1].indices
        assert values.tolist() == indices.tolist()
    assert [batch.number for batch in heard] == [8, 9]  # the rest of the epoch
    assert len(private) == 5
    assert torch.equal(before, torch.get_rng_state())


class _Augmented(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(())


def test_what_workers_draw_is_secret_and_new_in_every_epoch() -> None:
    """With a fresh torch.Generator() it was the same in all epochs of all runs, and known to everybody."""
    drawn = []
    for _ in range(2):
        run = rf.PrivacyEngine(LAW, CLIP, sampling="full")
        optimizer = torch.optim.SGD((model := network()).parameters())
        *_, private = run.make_private(model, optimizer, DataLoader(_Augmented(), 20, num_workers=1))
        for step in range(2):
            run.account.steps = step
            drawn += [values.tolist() for values in private]
    assert len({number for values in drawn for number in values}) == 4 * 20


def test_empty_batches_keep_their_shapes() -> None:
    private, heard = loader(Batches("poisson", 20, 1, public_size=100))
    shapes = [(values.shape, values.dtype, indices.dtype) for values, indices in private]
    assert any(not batch.indices for batch in heard)
    for (shape, *dtypes), batch in zip(shapes, heard, strict=True):
        assert shape == (len(batch.indices),)
        assert dtypes == [torch.float32, torch.int64]


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(3))


class _Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        raise NotImplementedError


LOADERS = [
    ([1, 2], "loader must be a torch.utils.data.DataLoader, got list"),
    (DataLoader(_Stream()), r"got _Stream: the sampling rate of a stream \(IterableDataset\)"),
    (DataLoader(_Unsized(), sampler=range(3)), "dataset of known size, got _Unsized"),
    (DataLoader(TensorDataset(torch.zeros(0))), "at least one example"),
    (DataLoader(DATA, batch_size=None), "must have a batch_size"),
    (DataLoader(DATA, batch_size=3, drop_last=True), "must have drop_last=False, got True"),
    (DataLoader(DATA, sampler=WeightedRandomSampler([1.0] * 20, 20)), "with WeightedRandomSampler, which"),
    (DataLoader(DATA, sampler=RandomSampler(DATA, replacement=True)), "with RandomSampler, which would be"),
    (DataLoader(DATA, sampler=DistributedSampler(DATA, 2, 0)), "with DistributedSampler, which would be"),
    (DataLoader(DATA, sampler=SequentialSampler(range(5))), "draws 5 of its 20 .* torch.utils.data.Subset"),
]


@pytest.mark.parametrize(("given", "message"), LOADERS)
def test_a_loader_that_is_refused_leaves_the_engine_as_it_was(given: Any, message: str) -> None:
    engine, model, state = rf.PrivacyEngine(LAW, CLIP), network(), torch.get_rng_state()
    before = dict(vars(engine))
    with pytest.raises((TypeError, ValueError), match=message):
        engine.make_private(model, torch.optim.SGD(model.parameters(), lr=1.0), given)
    assert vars(engine) == before
    assert torch.equal(state, torch.get_rng_state())


def test_more_than_everyone_is_refused() -> None:
    with pytest.raises(ValueError, match="batch_size must be at most public_size 10, got 20"):
        Batches("poisson", 20, 20, public_size=10)
    assert Batches("poisson", 20, 10, public_size=10).sampling_rate == 1

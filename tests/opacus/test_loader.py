"""The watched loader hands out what Opacus' loader hands out, and knows whose it is."""

import pytest
import torch

opacus = pytest.importorskip("opacus")

from ringfence.opacus.loader import WatchedLoader  # noqa: E402
from tests.opacus.runs import examples, made_private, network  # noqa: E402


@pytest.mark.parametrize("workers", [0, 1])
def test_the_examples_of_a_batch_are_known(workers: int) -> None:
    *_, loader = made_private(network())
    loader.num_workers = workers
    watched, (inputs, _) = WatchedLoader(loader, loader.batch_sampler), examples().tensors
    seen = 0
    for batch, _ in watched:
        assert torch.equal(inputs[watched.taken(len(batch))], batch)
        seen += 1
    assert seen == len(watched) == len(loader) == 4
    assert watched.remembering.left_out == 0


def test_a_batch_that_is_not_whole_is_refused() -> None:
    *_, loader = made_private(network())
    watched = WatchedLoader(loader, loader.batch_sampler)
    batch, _ = next(iter(watched))
    with pytest.raises(
        ValueError, match=f"the gradients of {len(batch) + 1} examples, its batch {len(batch)}"
    ):
        watched.taken(len(batch) + 1)
    with pytest.raises(ValueError, match="it is not known which examples"):
        watched.taken(len(batch))

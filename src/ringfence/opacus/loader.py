"""The loader of an Opacus run, which remembers whose batch it hands out and changes nothing about it."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader


class RememberingSampler(UniformWithReplacementSampler):  # type: ignore[misc]
    """Yields what ``sampler`` yields.

    ``pending`` are the batches that were yielded and not handed out yet, ``current`` is the one that was
    handed out last, until its step is made. ``left_out`` counts the batches that made no step.
    """

    def __init__(self, sampler: UniformWithReplacementSampler) -> None:
        self.sampler = sampler
        self.pending: deque[list[int]] = deque()
        self.current: list[int] | None = None
        self.left_out = 0
        self.num_samples, self.sample_rate = sampler.num_samples, sampler.sample_rate
        self.steps, self.generator = sampler.steps, sampler.generator

    def __iter__(self) -> Iterator[list[int]]:
        self.left_out += self.current is not None
        self.current = None
        self.pending.clear()
        for indices in self.sampler:
            self.pending.append(indices)
            yield indices

    def hand_out(self) -> None:
        """The next batch goes to the training loop."""
        self.left_out += self.current is not None
        self.current = self.pending.popleft()


class WatchedLoader(DataLoader[Any]):
    """The same batches in the same order, to the bit, from the same random numbers.

    ``batch`` is the batch that was handed out last; ``taken`` says which examples are in it.
    """

    def __init__(self, loader: DataLoader[Any], sampler: UniformWithReplacementSampler) -> None:
        self.remembering = RememberingSampler(sampler)
        self.batch: Any = None
        super().__init__(
            loader.dataset,
            batch_sampler=self.remembering,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )

    def __iter__(self) -> Any:
        # the iterator is made now, since making it draws a random number
        return self._handed_out(super().__iter__())

    def _handed_out(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            self.remembering.hand_out()
            self.batch = batch
            yield batch

    def taken(self, count: int) -> list[int]:
        """Which examples are in the batch of ``count`` examples whose step is made now.

        Where another loader goes through the sampler (the BatchMemoryManager of Opacus makes one), it is
        known whose batch it is only as long as nothing is loaded ahead.
        """
        drawn = self.remembering
        if drawn.current is None and self.num_workers == 0 and len(drawn.pending) == 1:
            drawn.hand_out()
            self.batch = None
        if drawn.current is None:
            raise ValueError(
                "it is not known which examples are in this step: go through run.loader, make one step for "
                "each of its batches, and use num_workers=0 with BatchMemoryManager"
            )
        indices, drawn.current = drawn.current, None
        if len(indices) != count:
            raise ValueError(f"this step has the gradients of {count} examples, its batch {len(indices)}")
        return indices

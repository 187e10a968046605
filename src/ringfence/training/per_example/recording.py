"""A pass that a GPU repeats from a recording (a CUDA graph), so that it does not wait for Python."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.clipping import Clip
from ringfence.training.per_example.gradients import ExampleGradients
from ringfence.training.per_example.isolation import Inputs


class RecordedGradients(ExampleGradients):
    """``ExampleGradients`` that a GPU repeats from a recording: Python works once for each shape.

    The first batch goes as in ``ExampleGradients``, and the second one is recorded. A recording is made anew
    where shapes, modes of layers, precision, or the places of parameters in memory change. Whatever else a
    model decides in Python, such as a rate of dropout that falls from step to step, is decided once.
    Batches that need several passes are not repeated; what else cannot be recorded is said in a warning.
    ``not_recorded_because`` says why the last batch was not repeated; None where it was, or will be the next
    time.

    Guarantee: that of ``ExampleGradients``, for the computation that was recorded.
    """

    _place = staticmethod(Tensor.data_ptr)  # where it lies in memory, which is recorded

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.not_recorded_because: str | None = None
        self._failed: str | None = None  # why no recording can be made
        self._clip: Clip | None = None  # that of the last sum, with which the next recording is made
        self._granted: object = None  # what the recording takes for granted, or will
        self._recording: Recording | None = None
        self._repeated: Inputs | None = None  # the inputs of the last repetition

    def forward(self, inputs: Inputs) -> Any:
        """The model's outputs, without a graph, in memory of their own."""
        self._repeated = None
        self._remember_autocast(inputs)
        self.not_recorded_because = self._why_not(inputs)
        if self.not_recorded_because is not None:
            return super().forward(inputs)
        count = len(tree_leaves(inputs)[0])
        some = self._fill_up(inputs, self.rows) if self.rows is not None and count < self.rows else inputs
        shapes = [(tuple(each.shape), each.dtype) for each in tree_leaves(some)]
        granted = (shapes, self._seen)
        if granted != self._granted:
            self._granted, self._recording = granted, None
        elif self._recording is None and self._clip is not None:
            self._recording = self._recorded(some, self._clip)
        if self._recording is None:
            return super().forward(inputs)
        self._kept, self._repeated = None, inputs
        return tree_map(lambda output: output[:count].clone(), self._recording.forward(some))

    def clipped_sum(
        self, inputs: Inputs, cotangents: Any, clip: Clip, dtype: torch.dtype | None = None
    ) -> Tensor:
        """The sum of ``ExampleGradients``; a repeated one if the last forward pass was repeated."""
        repeated, self._repeated = self._repeated is inputs, None
        if self._recording is None or not repeated or clip != self._clip or dtype is not None:
            if clip != self._clip:
                self._clip, self._recording = clip, None
            return super().clipped_sum(inputs, cotangents, clip, dtype)
        return self._recording.clipped_sum(tree_leaves(cotangents))

    def _why_not(self, inputs: Inputs) -> str | None:
        """Why one known pass does not do it all; None where it does."""
        count = len(tree_leaves(inputs)[0])
        if self._failed is not None:
            return self._failed
        if self.rows is None or not 0 < count <= self.rows:
            return f"a batch of {count} rows is not one pass of {self.rows}"
        if self._falls_back(inputs):
            return f"examples go through copies of the model: {self.fallback_reason}"
        fitting = self._at_once(inputs)
        return None if fitting >= self.rows else f"memory_budget holds {fitting} rows of {self.rows}"

    def _recorded(self, inputs: Inputs, clip: Clip) -> "Recording | None":
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        before, stream = generator.get_state(), torch.cuda.current_stream()
        try:
            return Recording(self, inputs, clip)
        except RuntimeError as error:  # such as a model that waits for a number from the GPU
            # what was begun belongs to the recording, and cannot be used any more
            torch.cuda.set_stream(stream)
            fresh = torch.Generator(generator.device)
            fresh.set_state(before)
            generator.graphsafe_set_state(fresh)
            self._failed = self.not_recorded_because = str(error).splitlines()[0]
            warnings.warn(f"passes are not recorded: {self.not_recorded_because}", stacklevel=4)
            return None


class Recording:
    """The forward and the backward pass over inputs of one shape, recorded when it is made, and repeated.

    Both must have run before, so that kernels are compiled and chosen.
    """

    def __init__(self, gradients: RecordedGradients, inputs: Inputs, clip: Clip) -> None:
        self._inputs, self._total = tree_map(torch.clone, inputs), gradients.zeros()
        self._forward, self._backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # errors of other threads, such as those that pin memory, are their own
        how: Any = {"stream": torch.cuda.Stream(), "capture_error_mode": "thread_local"}
        with torch.cuda.graph(self._forward, **how):
            one = gradients._pass(self._inputs, len(tree_leaves(inputs)[0]))
        self._outputs = tree_map(torch.detach, one.outputs)
        self._cotangents = [torch.zeros_like(output) for output in tree_leaves(self._outputs)]
        with torch.cuda.graph(self._backward, pool=self._forward.pool(), **how):
            self._total.zero_()
            gradients._add(self._total, one, self._cotangents, clip)

    def forward(self, inputs: Inputs) -> Any:
        """The outputs for these inputs, which the next pass overwrites."""
        for own, given in zip(tree_leaves(self._inputs), tree_leaves(inputs), strict=True):
            own.copy_(given)
        self._forward.replay()
        return self._outputs

    def clipped_sum(self, cotangents: list[Tensor]) -> Tensor:
        """The clipped sum of the last forward pass, in memory of its own; missing rows count zero."""
        for own, given in zip(self._cotangents, cotangents, strict=True):
            own[: len(given)].copy_(given)
            own[len(given) :].zero_()
        self._backward.replay()
        return self._total.clone()

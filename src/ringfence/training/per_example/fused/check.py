"""Compares the fused pass with examples that go through the model alone, on made-up inputs."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ringfence.training.per_example.fused.tape import Part
from ringfence.training.per_example.gradients import pulled_back
from ringfence.training.per_example.inputs import Inputs, example_count, mapped

_TOLERANCE = 1e-3  # relative to the largest entry: what is wrong is wrong by far more
_ROUNDING = 1e-5  # relative to the largest entry of all: gradients that would be zero but for rounding

_DROPOUTS = {
    getattr(nn.functional, name)
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
}
_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class WithoutDropout(TorchFunctionMode):
    """Dropout drops nothing, whatever mode the model is in.

    >>> with WithoutDropout():
    ...     nn.Dropout(0.9)(torch.ones(3))
    tensor([1., 1., 1.])
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is nn.functional.scaled_dot_product_attention:
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs |= {} if len(args) > 4 else {"dropout_p": 0.0}
        if func is nn.functional.multi_head_attention_forward:
            kwargs["training"] = False
        if func in _RECURRENT:  # (..., whether there are biases, how many layers, dropout, ...)
            at = next(i for i, value in enumerate(args) if isinstance(value, bool)) + 2
            args = (*args[:at], 0.0, *args[at + 1 :])
        return func(*args, **kwargs)


def made_up(inputs: Inputs, count: int) -> Inputs:
    """Returns inputs of the same kinds and shapes but no other likeness: normal numbers, zeros and ones.

    They are drawn from torch's global generator.

    >>> (tokens,), _ = made_up(((torch.tensor([[5, 7, 9]]),), {}), count=2)
    >>> tokens.shape, tokens.max()
    (torch.Size([2, 3]), tensor(1))
    """

    def made(value: Tensor) -> Tensor:
        shape = (count, *value.shape[1:])
        if value.is_floating_point():
            return torch.randn(shape).to(value)
        drawn = torch.randint(0, 2, shape)
        if drawn.dim() > 1:  # a mask that hides everything would make NaN, and some hide where they are 1
            drawn[..., -1] = 0
            drawn[..., 0] = 1
        return drawn.to(value)

    result: Inputs = mapped(made, inputs)
    return result


def difference(
    model: nn.Module,
    parameters: dict[str, nn.Parameter],
    rest: Collection[str],
    inputs: Inputs,
    run: Callable[[Inputs], Any],
) -> str | None:
    """Says how the passes that ``run`` makes over inputs differ from examples alone, or returns None.

    For every example: its output, and its gradient by every parameter, must be those of the example alone, up
    to rounding. No bit of its output may change when the other examples do, and the gradients of the other
    examples must be zero to the bit. The parameters in ``rest`` are left out.
    """
    with WithoutDropout(), _in_full_precision():
        for i in range(example_count(inputs)):
            one = run(inputs)
            outputs, cotangents, alone = _alone(model, parameters, mapped(lambda v: v[i : i + 1], inputs))  # noqa: B023
            if not all(bool(output.isfinite().all()) for output in outputs):
                return "its outputs are not finite on made-up inputs"
            theirs = tree_leaves(one.outputs)
            if any(_far(now[i], before[0]) for now, before in zip(theirs, outputs, strict=True)):
                return (
                    "the outputs of examples that pass together differ from those of examples that pass alone"
                )
            again = tree_leaves(run(_among_others(inputs, i)).outputs)
            if not all(torch.equal(now[i], then[i]) for now, then in zip(theirs, again, strict=True)):
                return "the outputs of an example change with the other examples, if only in the last bits"
            together = [torch.zeros_like(output) for output in theirs]
            for whole, cotangent in zip(together, cotangents, strict=True):
                whole[i] = cotangent[0]
            parts: list[Part] = []
            one.backward(together, parts.extend)
            others = torch.randn(one.tape.examples, device=theirs[0].device)  # no chance to cancel
            others[i] = 0
            sums = {name: torch.zeros_like(p) for name, p in parameters.items()}
            for name, rows, contribution in parts:
                if bool(contribution.sum(None, others).count_nonzero()):
                    return f"the layer of {name!r} comes after code that mixes examples"
                sums[name][rows] += contribution.sum(None)
            scale = max(float(alone[name].abs().max()) for name in parameters)
            for name in parameters.keys() - set(rest):
                error = float((sums[name] - alone[name]).abs().max())
                if not error <= _TOLERANCE * float(alone[name].abs().max()) + _ROUNDING * scale:
                    return f"the gradient by {name!r} differs from that of an example that passes alone"
    return None


def _alone(
    model: nn.Module, parameters: dict[str, nn.Parameter], inputs: Inputs
) -> tuple[list[Tensor], list[Tensor], dict[str, Tensor]]:
    """The outputs of one example, made-up gradients of them, and the gradients by the parameters."""
    with torch.enable_grad():
        outputs = tree_leaves(model(*inputs[0], **inputs[1]))
    cotangents = [torch.randn_like(output) for output in outputs]
    found = pulled_back(outputs, cotangents, list(parameters.values()))
    return outputs, cotangents, dict(zip(parameters, found, strict=True))


def _among_others(inputs: Inputs, i: int) -> Inputs:
    """Example i at its place, and other made-up examples around it."""
    others = made_up(inputs, example_count(inputs))
    result: Inputs = tree_map(
        lambda old, new: torch.cat([new[:i], old[i : i + 1], new[i + 1 :]]), inputs, others
    )
    return result


def _far(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    return not float((one - other).abs().max()) <= _TOLERANCE * float(other.abs().max())


@contextmanager
def _in_full_precision() -> Iterator[None]:
    """Matrix products and convolutions of float32 numbers with all of their digits, the same every time."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        enabled = torch.backends.cudnn.enabled
        with torch.backends.cudnn.flags(enabled=enabled, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before

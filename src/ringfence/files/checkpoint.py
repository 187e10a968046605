"""A training run in one file: safetensors with a JSON state in the header and a checksum of the whole."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from ringfence.files.atomic import replacing

Plain = Any  # what JSON can hold: dict, list, str, int, float, bool and None

_VERSION = 1
_FIELD = rb"\"sha256\":\""  # the field's name as the header spells it: our JSON is a string inside JSON
_BLANK = b"0" * 64
_LARGEST_HEADER = 100_000_000  # safetensors does not read a longer header
_DTYPES = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
}


def write_checkpoint(path: str | os.PathLike[str], tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Writes tensors, from any device, and a JSON state to one file that any safetensors reader opens.

    The checksum is the SHA-256 of the whole file in which the checksum itself is replaced by zeros.

    Guarantee: at every moment, also after a crash, ``path`` holds the whole old file or the whole new one.
    Only the owner of the file can read it, because a state may hold private numbers.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "run.ckpt")
    >>> write_checkpoint(path, {"weights": torch.zeros(2)}, {"steps": 3})
    >>> read_checkpoint(path)
    ({'weights': tensor([0., 0.])}, {'steps': 3})
    >>> folder.cleanup()
    """
    envelope = {"format": "checkpoint", "version": _VERSION, "sha256": _BLANK.decode(), "state": state}
    metadata = {"ringfence": exact_json("state", envelope)}
    data = safetensors.torch.save({name: _owned(name, tensor) for name, tensor in tensors.items()}, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    if end - 8 > _LARGEST_HEADER:
        raise ValueError(
            f"state must fit a header of {_LARGEST_HEADER:,} bytes, got {end - 8:,}: use tensors"
        )
    at = data.index(_FIELD, 8, end) + len(_FIELD)
    checksum = hashlib.sha256(data).hexdigest().encode()
    with replacing(path) as file:
        for piece in (data[:at], checksum, memoryview(data)[at + len(_BLANK) :]):
            file.write(piece)


def read_checkpoint(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Returns the tensors, on the CPU, and the state; a file of which any bit has changed is a ValueError.

    The checksum is not a signature: it notices damage but not a forger. Nothing is unpickled.

    >>> read_checkpoint(__file__)
    Traceback (most recent call last):
    ValueError: ...checkpoint.py is truncated or not a ringfence checkpoint
    """
    data = Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    if len(data) < max(9, end):
        raise ValueError(f"{path} is truncated or not a ringfence checkpoint")
    try:
        envelope = json.loads(json.loads(data[8:end])["__metadata__"]["ringfence"])
        known, newer = envelope["format"] == "checkpoint", envelope["version"] > _VERSION
    except (ValueError, KeyError, TypeError, RecursionError):
        known = newer = False
    if not known:
        raise ValueError(f"{path} is not a ringfence checkpoint")
    if newer:  # before the checksum is compared, because a later format may place it elsewhere
        raise ValueError(f"{path} was written by a newer ringfence: version {envelope['version']}")
    at = data.find(_FIELD, 8, end) + len(_FIELD)
    checksum = hashlib.sha256(data[:at] + _BLANK)
    checksum.update(memoryview(data)[at + len(_BLANK) :])
    if checksum.hexdigest().encode() != data[at : at + len(_BLANK)]:
        raise ValueError(f"{path} is damaged or truncated: its checksum does not match")
    return safetensors.torch.load(data), envelope["state"]


def flattened(state: Any) -> tuple[dict[str, Tensor], Plain]:
    """Turns nested dicts, lists, tuples, numbers, strings and tensors into named tensors and plain data.

    This is how an optimizer's ``state_dict()`` is saved; ``restored`` undoes it. The tensors are not copied.

    >>> tensors, plain = flattened({"optimizer": {0: torch.ones(1), "betas": (0.9, 0.99)}})
    >>> tensors
    {'optimizer.0': tensor([1.])}
    >>> restored(plain, tensors)
    {'optimizer': {0: tensor([1.]), 'betas': (0.9, 0.99)}}
    """
    tensors: dict[str, Tensor] = {}

    def walk(value: Any, *keys: int | str) -> Plain:
        path = ".".join(map(str, keys))
        # types are compared exactly, because a subclass would come back as something else
        if type(value) is Tensor:
            while path in tensors:  # as for {"a.b": ...} beside {"a": {"b": ...}}
                path += "'"
            tensors[path] = value.detach()
            return {"tensor": path}
        if type(value) is dict:
            for key in value:
                if type(key) not in (int, str):
                    raise TypeError(f"{path or 'state'} has the key {key!r}: cannot be saved")
            return {"dict": [[key, walk(item, *keys, key)] for key, item in value.items()]}
        if type(value) in (list, tuple):
            return {type(value).__name__: [walk(item, *keys, index) for index, item in enumerate(value)]}
        if value is not None and type(value) not in (bool, int, float, str):
            raise TypeError(f"{path or 'state'} is a {type(value).__name__}: cannot be saved")
        if value != value:
            raise ValueError(f"{path or 'state'} is NaN: cannot be saved")
        return value

    plain = walk(state)
    return tensors, plain


def restored(plain: Plain, tensors: dict[str, Tensor]) -> Any:
    """Returns what ``flattened`` was given, with the same types, around the tensors that are passed here.

    >>> restored({"tuple": [1, {"list": [None, {"tensor": "a"}]}]}, {"a": torch.tensor(2)})
    (1, [None, tensor(2)])
    """
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: restored(item, tensors) for key, item in content}
    return {"list": list, "tuple": tuple}[kind](restored(item, tensors) for item in content)


def exact_json(name: str, value: Any) -> str:
    """Writes the value as one line of JSON that reads back as an equal value; NaN is refused.

    >>> exact_json("state", {"sums": [0.1, float("inf")]})
    '{"sums":[0.1,Infinity]}'
    """
    try:
        text = json.dumps(value, separators=(",", ":"))
    except TypeError as error:
        raise TypeError(f"{name} must be plain data: {error}") from None
    if json.loads(text) != value:
        raise ValueError(f"{name} must be plain data: no NaN, no tuples, only strings as keys")
    return text


def with_checksum(values: dict[str, Any]) -> str:
    """The values as JSON that holds its own SHA-256, for ``refuse_changed``.

    >>> refuse_changed("a.json", json.loads(with_checksum({"mu": 0.5}).replace("0.5", "0.4")))
    Traceback (most recent call last):
    ValueError: a.json is damaged, or was changed after it was written: its checksum does not match
    """
    plain = json.loads(json.dumps(values, default=str))
    return json.dumps({**plain, "sha256": _checksum(plain)})


def refuse_changed(path: str | os.PathLike[str], state: dict[str, Any]) -> None:
    """Raises a ValueError unless the state is what ``with_checksum`` wrote. It is not a signature either."""
    if state.get("sha256") != _checksum({name: value for name, value in state.items() if name != "sha256"}):
        raise ValueError(
            f"{path} is damaged, or was changed after it was written: its checksum does not match"
        )


def _checksum(plain: Plain) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def _owned(name: str, tensor: Tensor) -> Tensor:
    """Copies the tensor, because safetensors refuses shared memory and ignores a pending sign."""
    if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided:
        raise ValueError(f"tensors[{name!r}] cannot be saved: {tensor.dtype}, {tensor.layout}")
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)

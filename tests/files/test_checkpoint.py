"""A checkpoint comes back exactly, or not at all; a crash leaves the old file or the new one."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ringfence.files import checkpoint
from ringfence.files.checkpoint import flattened, read_checkpoint, restored, write_checkpoint
from tests.faults.conditions import no_room_beyond, put

BASE = torch.arange(12, dtype=torch.float32)
TENSORS = {
    "plain": BASE,
    "shared": BASE,
    "slice": BASE[3:9],
    "transposed": BASE.reshape(3, 4).T,
    "expanded": torch.tensor([1.5]).expand(2, 3),
    "empty": torch.zeros(0, 3, dtype=torch.float64),
    "zero-dim": torch.tensor(7, dtype=torch.int64),
    "bfloat16": torch.tensor([1.0, -0.0, math.inf, math.nan], dtype=torch.bfloat16),
    "half": torch.tensor([1e-7], dtype=torch.float16),
    "bytes": torch.arange(256, dtype=torch.uint8),
    "flags": torch.tensor([True, False]),
    "negated": torch.tensor([1 + 2j]).conj().imag,
    "conjugate": torch.tensor([1 + 2j]).conj(),
    "needs gradient": torch.ones(2, requires_grad=True),
    'odd name "sha256":"é': torch.ones(1),
    "": torch.ones(2),
}
STATE = {
    "sums": [0.1, 1 / 3, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, -0.0],
    "steps": 2**70,
    "text": 'é \\ " \n \ud800 "sha256":"0000',
    "sha256": "0" * 64,
    "nested": {"": None, "flag": True, "list": [[], {}]},
}


def same(left: Any, right: Any) -> bool:
    """Equal with the same types all the way down; tensors bit by bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, Tensor):
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            return False
        return left.tolist() == right.tolist() or repr(left.tolist()) == repr(right.tolist())
    if isinstance(left, dict):
        return list(map(repr, left)) == list(map(repr, right)) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return repr(left) == repr(right)


@contextmanager
def flipped_bit(path: Path, position: int) -> Iterator[None]:
    """One bit the other way round, in place: a rewritten file would cost a trip to the disk."""
    with path.open("r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, position // 8)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1 << position % 8]), position // 8)
        yield
        os.pwrite(file.fileno(), byte, position // 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.ckpt"


def test_everything_comes_back_exactly(path: Path) -> None:
    write_checkpoint(path, TENSORS, STATE)
    tensors, state = read_checkpoint(path)
    assert same(state, STATE)
    assert set(tensors) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert same(tensors[name], tensor), name
    assert tensors["negated"].item() == -2.0  # safetensors alone would write 2
    tensors["plain"].add_(1)  # writable, and nobody else's memory
    assert tensors["shared"][0] == 0


def test_other_readers_of_safetensors_open_it(path: Path) -> None:
    write_checkpoint(path, {"weights": BASE}, {"steps": 3})
    with safe_open(path, framework="pt") as file:
        assert torch.equal(file.get_tensor("weights"), BASE)
        envelope = json.loads(file.metadata()["ringfence"])
    assert (envelope["format"], envelope["version"], envelope["state"]) == ("checkpoint", 1, {"steps": 3})


def test_every_flipped_bit_is_noticed(path: Path) -> None:
    write_checkpoint(path, {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)}, {"sums": [0.5], "run": "a"})
    data = path.read_bytes()
    for position in range(8 * len(data)):
        with flipped_bit(path, position), pytest.raises(ValueError, match=r"run\.ckpt (is|was)"):
            read_checkpoint(path)
    assert path.read_bytes() == data
    read_checkpoint(path)


def test_every_truncation_and_anything_added_is_noticed(path: Path) -> None:
    write_checkpoint(path, {"w": torch.tensor([1.0, 2.0])}, {"sums": [0.5]})
    data = path.read_bytes()
    for length in range(len(data)):
        put(path, data[:length])
        with pytest.raises(ValueError, match=r"run\.ckpt is .*truncated"):
            read_checkpoint(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(ValueError, match="checksum does not match"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"PK\x03\x04 a zip file", b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{}xxxx"]
)
def test_other_files_are_not_checkpoints(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"run\.ckpt is .*not a ringfence checkpoint"):
        read_checkpoint(path)


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}, {"ringfence": "[]"}, {"ringfence": "1"}])
def test_a_model_in_safetensors_is_not_a_checkpoint(path: Path, metadata: dict[str, str] | None) -> None:
    save_file({"w": BASE}, path, metadata)
    with pytest.raises(ValueError, match="is not a ringfence checkpoint"):
        read_checkpoint(path)


def test_a_newer_version_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "_VERSION", 2)
    write_checkpoint(path, {}, {})
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"run\.ckpt was written by a newer ringfence: version 2"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("tensors", "state", "message"),
    [
        ({}, {"a": [math.nan]}, "state must be plain data: no NaN"),
        ({}, {"a": (1, 2)}, "state must be plain data"),
        ({}, {"a": {1: 2}}, "state must be plain data"),
        ({}, {"a": {1}}, "state must be plain data: .*set"),
        ({}, {"a": BASE}, "state must be plain data: .*Tensor"),
        (
            {"w": torch.zeros(1, dtype=torch.complex128)},
            {},
            r"tensors\['w'\] cannot be saved: torch.complex128",
        ),
        ({"w": torch.eye(2).to_sparse()}, {}, r"tensors\['w'\] cannot be saved: .*sparse"),
    ],
)
def test_what_cannot_be_saved_is_refused_and_the_old_file_stays(
    path: Path, tensors: Any, state: Any, message: str
) -> None:
    write_checkpoint(path, {}, {"old": True})
    with pytest.raises((TypeError, ValueError), match=message):
        write_checkpoint(path, tensors, state)
    assert read_checkpoint(path)[1] == {"old": True}
    assert list(path.parent.iterdir()) == [path]


def test_a_header_that_could_not_be_read_back_is_not_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_LARGEST_HEADER", 1000)
    with pytest.raises(ValueError, match="state must fit a header of 1,000 bytes, got 1,"):
        write_checkpoint(path, {}, {"text": "x" * 1000})
    assert not path.exists()


def test_a_full_disk_leaves_the_old_file(path: Path) -> None:
    write_checkpoint(path, {}, {"old": True})
    with no_room_beyond(1000), pytest.raises(OSError, match=r"File too large: '.*run\.ckpt'"):
        write_checkpoint(path, TENSORS, STATE)
    assert read_checkpoint(path) == ({}, {"old": True})
    assert list(path.parent.iterdir()) == [path]


def optimizers() -> dict[str, Callable[[Any], torch.optim.Optimizer]]:
    return {
        "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        "Adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.9), amsgrad=True, capturable=False),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1)),
        "groups": lambda p: torch.optim.Adam([{"params": p[:1], "lr": 0.3}, {"params": p[1:]}]),
    }


@pytest.mark.parametrize("name", optimizers())
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_optimizer_goes_on_as_if_nothing_had_happened(path: Path, name: str, dtype: torch.dtype) -> None:
    def steps(optimizer: torch.optim.Optimizer, parameters: list[Tensor], count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            sum(((p - 3) ** 2).sum() for p in parameters).backward()
            optimizer.step()

    ours = [
        torch.ones(2, 3, dtype=dtype, requires_grad=True),
        torch.zeros(4, dtype=dtype, requires_grad=True),
    ]
    optimizer = optimizers()[name](ours)
    steps(optimizer, ours, 3)
    before = optimizer.state_dict()
    tensors, plain = flattened({"optimizer": before, "parameters": [p.detach() for p in ours]})
    write_checkpoint(path, tensors, {"plain": plain})
    tensors, state = read_checkpoint(path)
    after = restored(state["plain"], tensors)
    assert same(after["optimizer"], before)

    theirs = [p.clone().requires_grad_() for p in after["parameters"]]
    resumed = optimizers()[name](theirs)
    resumed.load_state_dict(after["optimizer"])
    steps(optimizer, ours, 3)
    steps(resumed, theirs, 3)
    assert same([p.detach() for p in ours], [p.detach() for p in theirs])


@pytest.mark.parametrize(
    "state",
    [
        {"a.b": torch.ones(1), "a": {"b": torch.zeros(1), 0: torch.ones(2), "0": torch.ones(3)}},
        {"tensor": "a", "dict": [["b", 1]], "list": {"tuple": ()}},
        {0: (1, (2.0, [True, None])), -1: [], "": {}, "inf": math.inf},
        {1: "integer", "1": "string"},
        torch.tensor(3),
        7,
        None,
    ],
)
def test_nested_states_come_back_with_their_types(state: Any) -> None:
    tensors, plain = flattened(state)
    assert same(restored(json.loads(json.dumps(plain)), tensors), state)


class Named(dict[str, int]):
    pass


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"optimizer": {"state": {0: {"foo": {1}}}}}, "optimizer.state.0.foo is a set: cannot be saved"),
        ({"groups": [1, (2, b"")]}, "groups.1.1 is a bytes: cannot be saved"),
        ({"a": torch.nn.Parameter(torch.ones(1))}, "a is a Parameter: cannot be saved"),
        ({"a": torch.Size([1])}, "a is a Size: cannot be saved"),
        ({"a": Named()}, "a is a Named: cannot be saved"),
        ({"a": torch.ones(2).numpy()}, "a is a ndarray: cannot be saved"),
        ({"a": {True: 1}}, "a has the key True: cannot be saved"),
        ({"a": {(1, 2): 1}}, r"a has the key \(1, 2\): cannot be saved"),
        ({"lr": [math.nan]}, "lr.0 is NaN: cannot be saved"),
        (len, "state is a builtin_function_or_method: cannot be saved"),
    ],
)
def test_anything_else_is_refused_with_its_path(state: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        flattened(state)

"""CIFAR's python batches are pickles. They are not unpickled but read instruction by instruction.

The reader knows dicts, lists, numbers, text and arrays of bytes, and refuses every other instruction.
"""

import pickletools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class _Name:
    """The name of a function or class in a pickle; it is never looked up."""

    text: str


class _Array:
    """An array of bytes that a pickle is putting together."""

    values: NDArray[np.uint8]


_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES"}
_CONSTANTS: dict[str, Callable[[], Any]] = {
    **{"NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False},
    **{"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple},
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_BYTE = _Name("numpy dtype u1")
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")


def read_batch(path: Path) -> dict[str, Any]:
    """Reads the dict in one of CIFAR's pickles. Its keys become text; texts of Python 2 are bytes.

    Guarantee: nothing that the file names is imported or called. Whatever does not belong in these files
    (another function, another kind of array, another instruction) is a ValueError.

    >>> import pickle, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "batch"
    ...     content = {"labels": [6, 9], "data": np.eye(2, dtype=np.uint8)}
    ...     _ = file.write_bytes(pickle.dumps(content, protocol=2))
    ...     read_batch(file)
    {'labels': [6, 9], 'data': array([[1, 0],
           [0, 1]], dtype=uint8)}
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # text with meaningless escapes gives warnings
            content = _interpreted(pickletools.genops(path.read_bytes()))
        if not isinstance(content, dict):
            raise ValueError(f"holds a {type(content).__name__}, not a dict")
        texts = {key.decode("latin-1") if isinstance(key, bytes) else key: content[key] for key in content}
        return {key: value.values if isinstance(value, _Array) else value for key, value in texts.items()}
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, Warning) as error:
        raise ValueError(f"{path} is not a CIFAR batch that can be read safely: {error}") from None


def _interpreted(operations: Any) -> Any:
    stack: list[Any] = []
    marks: list[int] = []
    memory: dict[int, Any] = {}

    def taken(count: int | None = None) -> list[Any]:
        at = marks.pop() if count is None else len(stack) - count
        if at < 0 or (marks and at < marks[-1]):
            raise ValueError("its stack runs empty")
        items = stack[at:]
        del stack[at:]
        return items

    for operation, argument, _ in operations:
        name = operation.name
        if name in _LITERALS:
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name in ("SHORT_BINSTRING", "BINSTRING"):
            stack.append(argument.encode("latin-1"))
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "TUPLE" or name in _TUPLES:
            stack.append(tuple(taken(_TUPLES.get(name))))
        elif name in ("APPEND", "APPENDS"):
            items = taken(1 if name == "APPEND" else None)
            _exactly(list, stack[-1]).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = taken(2 if name == "SETITEM" else None)
            _exactly(dict, stack[-1]).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("BINPUT", "LONG_BINPUT"):
            memory[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memory[argument])
        elif name == "REDUCE":
            function, arguments = taken(2)
            stack.append(_applied(_exactly(_Name, function).text, arguments))
        elif name == "BUILD":
            (state,) = taken(1)
            _built(stack[-1], state)
        elif name == "STOP":
            (result,) = taken(1)
            return result
        elif name != "PROTO":
            raise ValueError(f"instruction {name}")
    raise ValueError("no end")


def _exactly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"a {type(value).__name__} where a {kind.__name__.lstrip('_')} belongs")
    return value


def _applied(function: str, arguments: Any) -> Any:
    if function == "_codecs encode" and arguments[1:] == ("latin1",):
        return _exactly(str, arguments[0]).encode("latin-1")  # Python 3 writes bytes for Python 2 like this
    if function in _RECONSTRUCT and arguments[0] == _Name("numpy ndarray"):
        return _Array()
    if function == "numpy dtype" and arguments[0] in ("u1", b"u1"):
        return _BYTE
    raise ValueError(f"it calls {function.replace(' ', '.')}{arguments!r:.80}")


def _built(target: Any, state: Any) -> None:
    if target is _BYTE:
        return  # the state is byte order and alignment, of which a byte has neither
    _, shape, dtype, fortran, data = state
    if type(target) is not _Array or dtype is not _BYTE:
        raise ValueError("an array that is not of bytes")
    values = np.frombuffer(_exactly(bytes, data), np.uint8)
    target.values = values.reshape(shape, order="F" if fortran else "C")

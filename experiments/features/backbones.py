"""Frozen image models of transformers, which turn each image into one row of features.

A model comes from the Hugging Face hub (``hf:NAME``) or from a folder that ``save_pretrained`` wrote.
Weights are read from safetensors only: no pickle is loaded, and no code of the model's repository is run.
Images are prepared by Pillow as the model's own preprocessor configuration says.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ringfence.data.inside import inside

POOLINGS = ("pooler", "cls", "mean")


@dataclass(frozen=True)
class Backbone:
    """A frozen model: ``backbone(pictures)`` returns float32 features (n, ``width``).

    ``pooling`` says what the features are: ``pooler`` is the model's own pooled output, ``cls`` is the class
    token after the last layer, and ``mean`` is the mean of the patch tokens after the last layer.
    ``fingerprint`` is a SHA-256 of weights, configuration and preprocessing.

    >>> ones = Backbone("ones", "mean", 2, "", "cpu", lambda pictures: torch.ones(len(pictures), 2))
    >>> ones([np.zeros((4, 4, 3), np.uint8)])
    array([[1., 1.]], dtype=float32)
    """

    name: str
    pooling: str
    width: int
    fingerprint: str
    device: str
    forward: Callable[[Sequence[NDArray[np.uint8]]], Tensor]

    def __call__(self, pictures: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        with torch.inference_mode():
            features: NDArray[np.float32] = self.forward(pictures).float().cpu().numpy()
        return features


def load_backbone(name: str, pooling: str | None = None, device: str | None = None) -> Backbone:
    """Loads the model ``hf:NAME`` or the folder ``name``, frozen, on ``device`` or on a GPU if there is one.

    Without ``pooling``, the features are the model's pooler if the file has its weights, else the class token
    if there is one, else the mean. (The file of a classifier often lacks the pooler's weights, and
    transformers then draws them at random: such a pooler is refused here.)

    >>> load_backbone("hf:google/vit-large-patch16-384", pooling="max")
    Traceback (most recent call last):
    ValueError: pooling must be pooler, cls or mean, got 'max'
    """
    if pooling is not None and pooling not in POOLINGS:
        raise ValueError(f"pooling must be pooler, cls or mean, got {pooling!r}")
    source, local = _source(name)
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {device!r} cannot be used: {str(error).splitlines()[0]}") from None
    processor, model, missing = _loaded(name, source, local)
    strange = sorted(key for key in missing if not key.startswith("pooler."))
    if strange:
        raise ValueError(
            f"backbone {name} has no weights for {len(strange)} of its tensors: {strange[0]} ..."
        )
    fingerprint = _fingerprint(processor, model, missing)
    model = model.eval().requires_grad_(False).to(place)
    pillow = import_module("PIL.Image")

    def output(pictures: Sequence[NDArray[np.uint8]]) -> tuple[Any, tuple[int, int]]:
        pixels = processor([pillow.fromarray(p) for p in pictures], return_tensors="pt")["pixel_values"]
        return model(pixel_values=pixels.to(place)), tuple(pixels.shape[2:])

    grey = [np.full((48, 64, 3), 128, np.uint8)]
    try:
        with torch.inference_mode():
            result, size = output(grey)
            pooled = _poolings(result, size, getattr(model.config, "patch_size", None), bool(missing))
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(f"backbone {name} does not take images alone: {error}") from None
    if not pooled:
        raise ValueError(f"backbone {name} gives neither a pooled output nor tokens")
    chosen = pooling or next(kind for kind in POOLINGS if kind in pooled)
    if chosen not in pooled:
        why = " trained" if chosen == "pooler" and missing else ""
        raise ValueError(f"backbone {name} has no{why} {chosen} output: pooling may be {', '.join(pooled)}")

    def forward(pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
        result, size = output(pictures)
        return _poolings(result, size, getattr(model.config, "patch_size", None), bool(missing))[chosen]

    return Backbone(name, chosen, pooled[chosen].shape[1], fingerprint, place.type, forward)


def _source(name: str) -> tuple[str, bool]:
    if name.startswith("hf:"):
        return name.removeprefix("hf:"), False
    folder = Path(name)
    if not (folder / "config.json").is_file():
        raise ValueError(f"backbone must be hf:NAME or a folder with a config.json, got {name!r}")
    if not list(folder.glob("*.safetensors")):
        pickled = sorted(file.name for file in folder.glob("*.bin"))
        got = f"{pickled[0]}, a pickle, which is not loaded" if pickled else "none"
        raise ValueError(f"backbone {name} must have weights in .safetensors, got {got}")
    for index in folder.glob("*.index.json"):
        _refuse_shards_elsewhere(folder, index)
    return str(folder), True


def _refuse_shards_elsewhere(folder: Path, index: Path) -> None:
    """Refuses an index of a large model's files that names files outside: transformers would open them."""
    try:
        files = set(json.loads(index.read_bytes())["weight_map"].values())
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ValueError(f"{index} is not an index of weights") from None
    for file in files:
        inside(folder, str(file), f"weight_map of {index.name}")


def _loaded(name: str, source: str, local: bool) -> tuple[Any, Any, set[str]]:
    try:
        transformers = import_module("transformers")
        import_module("PIL.Image")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"backbones need transformers and Pillow ({error}): pip install 'ringfence[experiments]'"
        ) from None
    safe = {"trust_remote_code": False, "local_files_only": local}
    try:
        with _quiet():
            processor = transformers.AutoImageProcessor.from_pretrained(source, backend="pil", **safe)
            model, report = transformers.AutoModel.from_pretrained(
                source, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **safe
            )
    # transformers raises what its parts raise; a person needs the name and the first lines
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"backbone {name} cannot be loaded: {' '.join(lines[:2]) or repr(error)}") from None
    return processor, model, set(report["missing_keys"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' progress bars and its report of weights that a frozen model does not need."""
    log = import_module("transformers.utils.logging")
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _poolings(result: Any, size: tuple[int, int], patch: Any, untrained: bool) -> dict[str, Tensor]:
    """Returns every pooling that the output allows; the number of tokens tells if one is the class token."""
    found = {}
    pooled, tokens = getattr(result, "pooler_output", None), getattr(result, "last_hidden_state", None)
    if pooled is not None and not untrained:
        found["pooler"] = pooled.flatten(1)
    if tokens is not None and tokens.ndim == 4:  # (n, channels, height, width) of a convolutional network
        found["mean"] = tokens.mean((2, 3))
    elif tokens is not None and patch is not None:
        height, width = patch if isinstance(patch, Sequence) else (patch, patch)
        patches = (size[0] // height) * (size[1] // width)
        if tokens.shape[1] > patches:
            found["cls"] = tokens[:, 0]
        found["mean"] = tokens[:, -patches:].mean(1)  # all tokens, where the model merged patches
    return found


def _fingerprint(processor: Any, model: Any, missing: set[str]) -> str:
    unstable = ("_name_or_path", "transformers_version")  # these change with the place and the reader
    settings = {key: value for key, value in model.config.to_dict().items() if key not in unstable}
    text = json.dumps([settings, processor.to_dict()], sort_keys=True, default=str)
    digest = hashlib.sha256(text.encode())
    for key, tensor in sorted(model.state_dict().items()):
        if key not in missing:
            digest.update(key.encode())
            digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()

"""Features of images from a frozen, public model of transformers: one row per image.

IMAGES is one of these; nothing that is in them is run:

FILE.npz             x_train, y_train and perhaps x_test, y_test, classes; x is uint8 of shape
                     (n, height, width, 3) or, where the images are grey, (n, height, width)
folders              CLASS/*.png (also jpg, jpeg, bmp, webp), or train/CLASS/... and perhaps test/CLASS/...

The model comes from the Hugging Face hub (``hf:NAME``) or from a folder that ``save_pretrained`` wrote.
Weights are read from safetensors only, and no code of a model's repository is run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from experiments.progress import track
from ringfence import checks
from ringfence.data.features import read_archive
from ringfence.files.atomic import replacing

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


@dataclass(frozen=True)
class ImageData:
    """Pictures of each split, arrays of pixels or files, with their labels; label k means ``classes[k]``."""

    splits: Mapping[str, tuple[Any, NDArray[np.int64]]]  # "train", and perhaps "test"
    classes: tuple[str, ...]


def extract(
    images: Path, backbone: str, out: Path, *, batch_size: int = 64, device: str | None = None
) -> Path:
    """Writes the features of ``images`` under ``backbone`` to the .npz file ``out``, in float16.

    The file holds train_features, train_labels, perhaps test_features, test_labels, and classes, as
    ``read_features`` reads them.

    Guarantee: a row depends on its own image and on public things alone. Nothing is fitted to the data.

    >>> extract(Path("photos"), "hf:google/vit-large-patch16-384", Path("features.npy"))
    Traceback (most recent call last):
    ValueError: out must end in .npz, got features.npy
    """
    checks.count("batch_size", batch_size, at_least=1)
    if out.suffix != ".npz":
        raise ValueError(f"out must end in .npz, got {out}")
    if out.exists():
        raise FileExistsError(f"{out} is there already")
    data = read_images(images)
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    processor, model, untrained = load_backbone(backbone)
    model.to(place)
    arrays: dict[str, NDArray[Any]] = {"classes": np.array(data.classes, dtype=np.str_)}

    def prepare(batch: list[Any]) -> Tensor:
        pixels: Tensor = processor([picture(one) for one in batch], return_tensors="pt")["pixel_values"]
        return pixels

    for name, (pictures, labels) in data.splits.items():
        rows: list[NDArray[np.float16]] = []
        for pixels in track(DataLoader(pictures, batch_size, collate_fn=prepare), name):
            with torch.inference_mode():
                found = pooled(model(pixel_values=pixels.to(place)), pixels, model.config, untrained)
            if found is None:
                raise ValueError(f"backbone {backbone} has no output that has one row per image")
            values = found.float().cpu().numpy()
            if not (np.abs(values) <= 65504).all():  # which NaN is not either
                raise ValueError(f"features must fit float16, got a larger one or NaN in {name}")
            rows.append(values.astype(np.float16))
        arrays |= {f"{name}_features": np.concatenate(rows), f"{name}_labels": labels}
    with replacing(out) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return out


def picture(source: Any) -> Any:
    """A file, or an array of pixels, as a Pillow image in RGB; transparency is dropped."""
    from PIL import Image, UnidentifiedImageError

    if not isinstance(source, Path):
        return Image.fromarray(np.asarray(source)).convert("RGB")
    try:
        with Image.open(source) as image:
            if image.mode[0] in "IF":  # which Pillow would clip at 255
                raise ValueError(f"pixels of more than 8 bits (mode {image.mode}) have no known scale")
            if image.mode == "P" and "transparency" in image.info:
                return image.convert("RGBA").convert("RGB")
            return image.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, UnidentifiedImageError) as error:
        raise ValueError(f"{source} cannot be read as an image: {error}") from None


def load_backbone(name: str) -> tuple[Any, Any, bool]:
    """The image processor and the frozen model, and whether the file lacks the weights of its pooler.

    The file of a classifier often lacks them; transformers then draws them at random, and such a pooler is
    not used.

    >>> load_backbone("nothing")
    Traceback (most recent call last):
    ValueError: backbone must be hf:NAME or a folder with a config.json, got 'nothing'
    """
    local = not name.startswith("hf:")
    if local and not (Path(name) / "config.json").is_file():
        raise ValueError(f"backbone must be hf:NAME or a folder with a config.json, got {name!r}")
    try:
        import transformers
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "backbones need transformers: pip install 'ringfence[experiments]'"
        ) from None
    safe: dict[str, Any] = {"trust_remote_code": False, "local_files_only": local}
    source = name.removeprefix("hf:")
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
            source, backend="pil", **safe
        )
        model, report = transformers.AutoModel.from_pretrained(
            source, use_safetensors=True, dtype=torch.float32, output_loading_info=True, **safe
        )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError, TypeError) as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ValueError(f"backbone {name} cannot be loaded: {' '.join(lines[:2]) or repr(error)}") from None
    missing = set(report["missing_keys"])
    strange = sorted(key for key in missing if not key.startswith("pooler."))
    if strange:
        raise ValueError(f"backbone {name} has no weights for {len(strange)} tensors: {strange[0]} ...")
    return processor, model.eval().requires_grad_(False), bool(missing)


def pooled(result: Any, pixels: Tensor, config: Any, untrained: bool) -> Tensor | None:
    """The model's own pooled output; else the class token after the last layer; else the mean of all tokens.

    The number of tokens tells if one is the class token. None where there is nothing of these.
    """
    own, tokens = getattr(result, "pooler_output", None), getattr(result, "last_hidden_state", None)
    patch = getattr(config, "patch_size", None)
    if own is not None and not untrained:
        return own.flatten(1)  # type: ignore[no-any-return]
    if tokens is not None and tokens.ndim == 4:  # (n, channels, height, width) of a convolutional network
        return tokens.mean((2, 3))  # type: ignore[no-any-return]
    if tokens is None or patch is None:
        return None
    height, width = patch if isinstance(patch, Sequence) else (patch, patch)
    patches = (pixels.shape[2] // height) * (pixels.shape[3] // width)
    return tokens[:, 0] if tokens.shape[1] > patches else tokens.mean(1)  # type: ignore[no-any-return]


def read_images(path: Path) -> ImageData:
    """Finds the images at ``path``, in one of the layouts above.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "two.npz"
    ...     np.savez(file, x_train=np.zeros((2, 32, 32, 3), np.uint8), y_train=[0, 1])
    ...     read_images(file).classes
    ('0', '1')
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file or folder: {path}")
    if path.suffix == ".npz" and path.is_file():
        return _archive(path)
    if not path.is_dir():
        raise ValueError(f"{path} must be a .npz file or a folder of images")
    return _folders(path)


def _archive(path: Path) -> ImageData:
    arrays, splits = read_archive(path, ("x_train", "y_train", "x_test", "y_test", "classes")), {}
    for split in ("train", "test") if {"x_test", "y_test"} & set(arrays) else ("train",):
        if missing := {f"x_{split}", f"y_{split}"} - set(arrays):
            raise ValueError(f"{path} must hold x_{split} and y_{split}, got no {min(missing)}")
        x, y = (arrays[f"{kind}_{split}"] for kind in "xy")
        if x.dtype != np.uint8 or not (x.ndim == 3 or (x.ndim == 4 and x.shape[3] in (1, 3))) or not x.size:
            wanted = "uint8 of shape (n, height, width, 3) or (n, height, width)"
            raise ValueError(f"{path}: x_{split} must be {wanted}, got {x.dtype} {list(x.shape)}")
        y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y  # Keras has such columns
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1] or y.min() < 0:
            raise ValueError(f"{path}: y_{split} must be {len(x)} integers >= 0")
        splits[split] = x[..., 0] if x.shape[3:] == (1,) else x, y.astype(np.int64)
    count = 1 + max(int(labels.max()) for _, labels in splits.values())
    names = arrays.get("classes", np.arange(count)).tolist()
    if len(names) < count:
        raise ValueError(f"{path}: classes must name {count} classes, got {len(names)}")
    return ImageData(splits, tuple(map(str, names)))


def _folders(path: Path) -> ImageData:
    def folders(where: Path) -> list[str]:
        names = sorted(entry.name for entry in where.iterdir() if entry.is_dir() and entry.name[0] != ".")
        if not names:
            raise ValueError(f"{where} must hold a folder for each class, got none")
        return names

    found = folders(path)
    places = {"train": path}
    if "train" in found:
        if set(found) - {"train", "test"}:
            raise ValueError(f"{path} must hold train and perhaps test, got also {', '.join(found)}")
        places = {name: path / name for name in ("train", "test") if name in found}
    classes, splits = folders(places["train"]), {}
    for split, place in places.items():
        files: list[Path] = []
        labels: list[int] = []
        for name in folders(place):
            if name not in classes:
                raise ValueError(f"{place / name}: there are no training images of this class")
            own = sorted(file for file in (place / name).iterdir() if file.suffix.lower() in _ENDINGS)
            if not own:
                raise ValueError(f"{place / name} holds no images ({', '.join(_ENDINGS)})")
            files += own
            labels += [classes.index(name)] * len(own)
        splits[split] = files, np.array(labels, np.int64)
    return ImageData(splits, tuple(classes))

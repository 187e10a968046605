"""Features of tiny models, saved here, are what their parts give; every layout of images is read safely."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments import features
from experiments.features import extract, load_backbone, picture, read_images
from ringfence.data.features import read_features
from tests.later import Later

RNG = np.random.default_rng(0)
SIZE = 16
TINY: dict[str, Any] = {
    **{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    **{"image_size": SIZE, "patch_size": 8, "initializer_range": 0.5},
}
transformers = Later("transformers")


@pytest.fixture(autouse=True)
def _without_bars() -> None:
    transformers.utils.logging.disable_progress_bar()


def pictures(count: int, height: int = 32, width: int = 32) -> np.ndarray:
    return RNG.integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def put(path: Path, value: int = 0, size: tuple[int, int] = (6, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (value,) * 3).save(path)
    return path


def vit(folder: Path, head: bool = False, **changes: Any) -> Path:
    kind = transformers.ViTForImageClassification if head else transformers.ViTModel
    torch.manual_seed(0)
    model = kind(transformers.ViTConfig(**TINY, **changes))
    for parameter in model.parameters():  # not those of a fresh model: ones, zeros, nearly nothing
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    settings = {"do_resize": True, "size": {"height": SIZE, "width": SIZE}, "resample": 2}
    settings |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"image_processor_type": "ViTImageProcessor", **settings})
    )
    return folder


@torch.no_grad()
def tokens(folder: Path, images: Any) -> tuple[Any, torch.Tensor]:
    """The model, and its tokens after the last layer of images that are prepared by hand."""
    model = transformers.ViTModel.from_pretrained(folder).eval()
    small = [Image.fromarray(one).resize((SIZE, SIZE), Image.Resampling.BILINEAR) for one in images]
    pixels = np.stack([(np.asarray(one) / 255 - 0.5) / 0.5 for one in small])
    return model, model(torch.tensor(pixels).permute(0, 3, 1, 2).float()).last_hidden_state


def test_features_are_what_the_parts_of_the_model_give(tmp_path: Path) -> None:
    images, labels, folder = pictures(5), [0, 2, 1, 1, 0], vit(tmp_path / "vit", hidden_dropout_prob=0.5)
    np.savez(
        tmp_path / "i.npz", x_train=images, y_train=labels, x_test=images[:2], y_test=labels[:2],
        classes=np.array(["cat", "dog", "owl"]),
    )  # fmt: skip
    model, hidden = tokens(folder, images)
    pooler = torch.tanh(hidden[:, 0] @ model.pooler.dense.weight.T + model.pooler.dense.bias)
    out = tmp_path / "f.npz"
    extract(tmp_path / "i.npz", str(folder), out, batch_size=2, device="cpu")
    found = read_features(out)
    assert pooler.abs().max() > 0.1  # a zero would be close to anything
    np.testing.assert_allclose(found.train_features, pooler.detach(), atol=1e-2)
    np.testing.assert_allclose(found.test_features, pooler[:2].detach(), atol=1e-2)
    assert found.train_labels.tolist() == labels
    assert np.load(out)["classes"].tolist() == ["cat", "dog", "owl"]
    with pytest.raises(FileExistsError, match=r"f\.npz is there already"):
        extract(tmp_path / "i.npz", str(folder), out)


def test_a_pooler_without_weights_is_never_used(tmp_path: Path) -> None:
    folder, images = vit(tmp_path / "vit", head=True), pictures(3)
    np.savez(tmp_path / "i.npz", x_train=images, y_train=[0, 1, 0])
    _, hidden = tokens(folder, images)
    found = read_features(extract(tmp_path / "i.npz", str(folder), tmp_path / "f.npz", device="cpu"))
    np.testing.assert_allclose(found.train_features, hidden[:, 0].detach(), atol=1e-2)


def test_tokens_stand_for_a_pooler_that_is_not_there() -> None:
    pixels, config = torch.zeros(2, 3, 16, 8), SimpleNamespace(patch_size=(8, 8))
    for place, shape in enumerate([(2, 3, 4), (2, 2, 4), (2, 4, 3, 3)]):
        tokens = torch.randn(shape)
        row = features.pooled(SimpleNamespace(last_hidden_state=tokens), pixels, config, untrained=True)
        wanted = (tokens[:, 0], tokens.mean(1), tokens.flatten(2).mean(-1))[place]
        torch.testing.assert_close(row, wanted)
    assert features.pooled(SimpleNamespace(), pixels, config, untrained=True) is None


def test_features_are_their_owners_alone_and_must_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = vit(tmp_path / "vit")
    np.savez(tmp_path / "i.npz", x_train=pictures(2), y_train=[0, 1])
    old = os.umask(0)
    try:
        out = extract(tmp_path / "i.npz", str(folder), tmp_path / "f.npz")
    finally:
        os.umask(old)
    assert out.stat().st_mode & 0o777 == 0o600
    for value in (torch.nan, 7e4):
        monkeypatch.setattr(features, "pooled", lambda *_, v=value: torch.full((2, 3), v))
        with pytest.raises(ValueError, match="features must fit float16"):
            extract(tmp_path / "i.npz", str(folder), tmp_path / "g.npz")
    assert not (tmp_path / "g.npz").exists()


def test_pickled_weights_missing_layers_and_code_are_refused(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(ValueError, match="has no weights for 16 tensors: "):
        load_backbone(str(folder))
    del config["model_type"]
    config["auto_map"] = {"AutoConfig": "attack.Config", "AutoModel": "attack.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "attack.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\n")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_backbone(str(folder))
    assert not (tmp_path / "ran").exists()
    other = vit(tmp_path / "other")
    torch.save(transformers.ViTModel.from_pretrained(other).state_dict(), other / "pytorch_model.bin")
    (other / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"cannot be loaded: .*safetensors"):
        load_backbone(str(other))


X, Y = pictures(2), np.array([0, 1])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y_train": Y}, "must hold x_train and y_train, got no x_train"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "must hold x_test and y_test, got no y_test"),
        ({"x_train": X / 255, "y_train": Y}, "x_train must be uint8 .*, got float64"),
        ({"x_train": X[..., :2], "y_train": Y}, r"got uint8 \[2, 32, 32, 2\]"),
        ({"x_train": X[:0], "y_train": Y[:0]}, r"got uint8 \[0, 32, 32, 3\]"),
        ({"x_train": X, "y_train": Y[:1]}, "y_train must be 2 integers >= 0"),
        ({"x_train": X, "y_train": Y - 1}, "y_train must be 2 integers >= 0"),
        ({"x_train": X, "y_train": Y, "classes": ["cat"]}, "classes must name 2 classes, got 1"),
        ({"x_train": X, "y_train": np.array([{}, {}])}, "y_train cannot be read as an array"),
    ],
)
def test_what_is_wrong_in_an_npz_is_named(arrays: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=complaint) as error:
        read_images(tmp_path / "a.npz")
    assert str(error.value).startswith(str(tmp_path / "a.npz"))


def test_folders_of_classes_and_of_splits(tmp_path: Path) -> None:
    for name in ("dog/b.JPG", "cat/2.png", "cat/1.jpeg"):
        put(tmp_path / "one" / name)
    (tmp_path / "one" / "cat" / "notes.txt").write_text("no image")
    (tmp_path / "one" / ".cache").mkdir()
    data = read_images(tmp_path / "one")
    assert data.classes == ("cat", "dog")
    assert [file.name for file in data.splits["train"][0]] == ["1.jpeg", "2.png", "b.JPG"]
    assert data.splits["train"][1].tolist() == [0, 0, 1]
    two = tmp_path / "two"
    for name in ("train/cat", "train/dog", "train/owl", "test/owl", "test/cat"):
        put(two / name / "1.png")
    assert read_images(two).splits["test"][1].tolist() == [0, 2]
    put(two / "test" / "fox" / "1.png")
    with pytest.raises(ValueError, match=r"test/fox: there are no training images of this class"):
        read_images(two)
    put(two / "val" / "fox" / "1.png")
    with pytest.raises(ValueError, match="must hold train and perhaps test, got also test, train, val"):
        read_images(two)
    (tmp_path / "one" / "owl").mkdir()
    with pytest.raises(ValueError, match=r"owl holds no images \(\.png"):
        read_images(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_images(tmp_path / "nothing")
    (tmp_path / "cifar.tar.gz").touch()
    with pytest.raises(ValueError, match=r"cifar\.tar\.gz must be a \.npz file or a folder"):
        read_images(tmp_path / "cifar.tar.gz")


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    image = Image.fromarray(pictures(1, 6, 8)[0]).convert(mode)
    wanted = np.asarray(image.convert("RGBA").convert("RGB") if mode == "LA" else image.convert("RGB"))
    file = tmp_path / ("a.tiff" if mode == "CMYK" else "a.png")
    image.save(file)
    assert np.array_equal(np.asarray(picture(file)), wanted)


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    file = put(tmp_path / "1.png", size=(200, 200))
    whole = file.read_bytes()
    for content in (whole[: len(whole) // 2], b"", b"no image", whole[:20] + b"\xff" * 40 + whole[60:]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"1\.png cannot be read as an image"):
            picture(file)
    for kind in (np.float32, np.uint16):
        Image.fromarray(np.ones((2, 2), kind)).save(tmp_path / "a.tiff")
        with pytest.raises(
            ValueError, match=r"a\.tiff cannot be read as an image: pixels of more than 8 bits"
        ):
            picture(tmp_path / "a.tiff")

"""Tiny BEiT and ViT models, saved here: features are what the model's parts give, put together by hand."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from experiments.features.backbones import load_backbone
from tests.later import Later

SIZE = 16
TINY: dict[str, Any] = {
    **{"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
    **{"image_size": SIZE, "patch_size": 8, "initializer_range": 0.5},
}
PICTURES = [
    np.random.default_rng(i).integers(0, 256, shape, dtype=np.uint8)
    for i, shape in enumerate([(32, 32, 3), (20, 31, 3), (3, 3, 3), (16, 16, 3)])
]


transformers = Later("transformers")


@pytest.fixture(autouse=True)
def _without_bars() -> None:
    transformers.utils.logging.disable_progress_bar()  # of saving


def save(model: Any, folder: Path, processor: dict[str, Any]) -> Path:
    torch.manual_seed(0)
    for parameter in model.parameters():  # not those of a fresh model: ones, zeros, nearly nothing
        torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def vit(folder: Path, head: bool = False, **changes: Any) -> Path:
    kind = transformers.ViTForImageClassification if head else transformers.ViTModel
    settings = {"do_resize": True, "size": {"height": SIZE, "width": SIZE}, "resample": 2}
    settings |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "do_normalize": True}
    model = kind(transformers.ViTConfig(**TINY, **changes))
    return save(model, folder, {"image_processor_type": "ViTImageProcessor", **settings})


def beit(folder: Path, **changes: Any) -> Path:
    settings = {"do_resize": True, "size": 20, "resample": 3, "do_center_crop": True, "crop_size": SIZE}
    settings |= {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], "do_normalize": True}
    model = transformers.BeitModel(transformers.BeitConfig(**TINY, **changes))
    # as the files of the hub name it
    return save(model, folder, {"feature_extractor_type": "BeitFeatureExtractor", **settings})


def vit_pixels(picture: np.ndarray) -> torch.Tensor:
    resized = Image.fromarray(picture).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    return torch.tensor((np.asarray(resized) / 255 - 0.5) / 0.5).permute(2, 0, 1).float()


def beit_pixels(picture: np.ndarray) -> torch.Tensor:
    resized = np.asarray(Image.fromarray(picture).resize((20, 20), Image.Resampling.BICUBIC))
    values = (resized[2:18, 2:18] / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]
    return torch.tensor(values).permute(2, 0, 1).float()


@torch.no_grad()
def tokens(kind: Any, folder: Path, pixels: Callable[[np.ndarray], torch.Tensor]) -> tuple[Any, torch.Tensor]:
    model = kind.from_pretrained(folder).eval()
    return model, torch.stack([model(pixels(p)[None]).last_hidden_state[0] for p in PICTURES])


def close(features: np.ndarray, wanted: torch.Tensor) -> bool:
    assert features.dtype == np.float32
    assert wanted.abs().max() > 0.1  # a zero would be close to anything
    return features.shape == wanted.shape and np.allclose(features, wanted.detach(), rtol=1e-4, atol=1e-4)


def test_vit(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    model, hidden = tokens(transformers.ViTModel, folder, vit_pixels)
    assert hidden.shape == (4, 5, 8)
    backbone = load_backbone(str(folder))
    assert (backbone.pooling, backbone.width, backbone.device) == (
        "pooler",
        8,
        "cuda" if torch.cuda.is_available() else "cpu",
    )
    pooler = torch.tanh(hidden[:, 0] @ model.pooler.dense.weight.T + model.pooler.dense.bias)
    assert close(backbone(PICTURES), pooler)
    assert close(load_backbone(str(folder), pooling="cls")(PICTURES), hidden[:, 0])
    assert close(load_backbone(str(folder), pooling="mean")(PICTURES), hidden[:, 1:].mean(1))


@pytest.mark.parametrize("mean", [True, False])
def test_beit(mean: bool, tmp_path: Path) -> None:
    folder = beit(tmp_path / "beit", use_mean_pooling=mean, use_relative_position_bias=True)
    model, hidden = tokens(transformers.BeitModel, folder, beit_pixels)
    wanted = hidden[:, 0]
    if mean:
        norm = model.pooler.layernorm
        wanted = torch.nn.functional.layer_norm(hidden[:, 1:].mean(1), (8,), norm.weight, norm.bias, norm.eps)
    backbone = load_backbone(str(folder))
    assert backbone.pooling == "pooler"
    assert close(backbone(PICTURES), wanted)
    assert close(load_backbone(str(folder), pooling="mean")(PICTURES), hidden[:, 1:].mean(1))


def test_a_pooler_without_weights_is_never_used(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit", head=True)
    _, hidden = tokens(transformers.ViTModel, folder, vit_pixels)
    first, again = load_backbone(str(folder)), load_backbone(str(folder))
    assert first.pooling == "cls"
    assert close(first(PICTURES), hidden[:, 0])
    assert first.fingerprint == again.fingerprint  # transformers drew the pooler twice
    with pytest.raises(ValueError, match="has no trained pooler output: pooling may be cls, mean"):
        load_backbone(str(folder), pooling="pooler")


def test_a_convolutional_network(tmp_path: Path) -> None:
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 6], "depths": [1, 1], "layer_type": "basic"}
    model = transformers.ResNetModel(transformers.ResNetConfig(**sizes))
    folder = save(model, tmp_path / "net", {"image_processor_type": "ViTImageProcessor", "size": 32})
    backbone = load_backbone(str(folder))
    assert (backbone.pooling, backbone.width) == ("pooler", 6)
    assert np.allclose(backbone(PICTURES), load_backbone(str(folder), pooling="mean")(PICTURES), atol=1e-5)
    with pytest.raises(ValueError, match="has no cls output: pooling may be pooler, mean"):
        load_backbone(str(folder), pooling="cls")


def test_frozen_quiet_and_the_same_for_every_batch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = vit(tmp_path / "vit", head=True, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    capfd.readouterr()
    transformers.utils.logging.enable_progress_bar()
    backbone = load_backbone(str(folder))
    together = backbone(PICTURES)
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert np.array_equal(backbone(PICTURES), together)  # no dropout
    assert np.allclose(np.concatenate([backbone([p]) for p in PICTURES]), together, atol=1e-5)


def test_the_fingerprint_is_of_weights_and_preprocessing_not_of_the_place(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    first = load_backbone(str(folder)).fingerprint
    folder = folder.rename(tmp_path / "moved")
    assert load_backbone(str(folder)).fingerprint == first
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "preprocessor_config.json").write_text(json.dumps({**settings, "resample": 3}))
    assert load_backbone(str(folder)).fingerprint != first
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    model = transformers.ViTModel.from_pretrained(folder)
    with torch.no_grad():
        model.layernorm.bias[3] += 1e-3
    model.save_pretrained(folder)
    assert load_backbone(str(folder)).fingerprint != first


def test_pickled_weights_are_refused_by_name(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    weights = transformers.ViTModel.from_pretrained(folder).state_dict()
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"must have weights in \.safetensors, got none"):
        load_backbone(str(folder))
    torch.save(weights, folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"got pytorch_model\.bin, a pickle, which is not loaded"):
        load_backbone(str(folder))
    (folder / "other.safetensors").write_bytes(b"")  # there, but not the model's
    with pytest.raises(ValueError, match=r"backbone .*vit cannot be loaded: .*safetensors"):
        load_backbone(str(folder))


def test_code_in_the_folder_is_not_run(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    config["auto_map"] = {"AutoConfig": "attack.Config", "AutoModel": "attack.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "attack.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Config: pass\nclass Model: pass\n"
    )
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_backbone(str(folder))
    assert not (tmp_path / "ran").exists()


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    for name in ("google/vit-large-patch16-384", str(tmp_path), str(tmp_path / "nothing")):
        with pytest.raises(ValueError, match="backbone must be hf:NAME or a folder with"):
            load_backbone(name)
    folder = vit(tmp_path / "vit")
    with pytest.raises(ValueError, match="device 'tpu9' cannot be used"):
        load_backbone(str(folder), device="tpu9")
    settings = (folder / "preprocessor_config.json").read_text()
    (folder / "preprocessor_config.json").write_text(settings.replace('"height": 16', '"height": 24'))
    with pytest.raises(ValueError, match="does not take images alone: Input image size"):
        load_backbone(str(folder))
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"vit cannot be loaded: .*preprocessor_config\.json"):
        load_backbone(str(folder))


def test_a_file_that_lacks_a_layer_is_refused(tmp_path: Path) -> None:
    folder = vit(tmp_path / "vit")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    with pytest.raises(ValueError, match="has no weights for 16 of its tensors: "):
        load_backbone(str(folder))


def test_a_name_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """From the hub's cache, as a download leaves it: the rest of the way is transformers'."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "hub" / "models--someone--tiny"
    folder = vit(repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    local = load_backbone(str(folder), device="cpu")
    # what HF_HUB_CACHE and HF_HUB_OFFLINE set in a process that begins with them
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    capfd.readouterr()
    backbone = load_backbone("hf:someone/tiny", device="cpu")
    assert (backbone.name, backbone.fingerprint) == ("hf:someone/tiny", local.fingerprint)
    grey = [np.full((9, 9, 3), 77, np.uint8)]
    assert np.array_equal(backbone(grey), local(grey))
    with pytest.raises(ValueError, match=r"^backbone hf:someone/else cannot be loaded: "):
        load_backbone("hf:someone/else")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("library", ["transformers", "PIL.Image"])
def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    folder = vit(tmp_path / "vit")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=r"^backbones need transformers and Pillow \(.*") as error:
        load_backbone(str(folder))
    assert library in str(error.value)
    assert str(error.value).endswith("): pip install 'ringfence[experiments]'")

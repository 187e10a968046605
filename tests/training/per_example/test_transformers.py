"""Models of Hugging Face, built from tiny settings, through the fused pass."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.later import Later
from tests.training.per_example.alone import agree, drawn, words

transformers = Later("transformers")
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 6}
IDS, MASK = words(6, 7, below=20), torch.ones(6, 7, dtype=torch.long)
MASK[1:3, 5:] = 0


def bert() -> nn.Module:
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = transformers.BertConfig(vocab_size=20, max_position_embeddings=12, **SIZES, **rates)
    return transformers.BertForSequenceClassification(config)


def distilbert() -> nn.Module:
    names = ("dropout", "attention_dropout", "seq_classif_dropout")
    sizes = {"vocab_size": 20, "max_position_embeddings": 12, "dim": 8, "n_layers": 1, "n_heads": 2}
    config = transformers.DistilBertConfig(hidden_dim=6, **sizes, **dict.fromkeys(names, 0.0))
    return transformers.DistilBertForSequenceClassification(config)


def gpt2() -> nn.Module:
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    sizes = {"vocab_size": 20, "n_positions": 12, "n_embd": 8, "n_layer": 1, "n_head": 2}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **ends, **rates))


def vit() -> nn.Module:
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **SIZES)
    return transformers.ViTForImageClassification(config)


WORDS = {"input_ids": IDS, "attention_mask": MASK}
VIT = {
    f"vit.embeddings.{name}": "ViTEmbeddings is not known" for name in ("cls_token", "position_embeddings")
}
CASES: dict[str, tuple[Callable[[], nn.Module], dict[str, Tensor], dict[str, str]]] = {
    "bert": (bert, WORDS, {}),
    "distilbert": (distilbert, WORDS, {}),
    "gpt2": (gpt2, WORDS, {}),
    "vit": (vit, {"pixel_values": drawn(6, 3, 8, 8)}, VIT),
}


@pytest.mark.parametrize(("make", "inputs", "slower"), CASES.values(), ids=CASES)
def test_sums_are_those_of_examples_alone(
    make: Callable[[], nn.Module], inputs: dict[str, Tensor], slower: dict[str, str]
) -> None:
    assert agree(make, **inputs).slower_layers == slower

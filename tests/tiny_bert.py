"""A tiny BERT with LoRA, and its private training by the engine alone, which other libraries must repeat."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, default_collate

import ringfence as rf

EXAMPLES, BATCH, STEPS, RATE = 24, 8, 3, 0.3
DELTA = 1e-3


def model() -> nn.Module:
    """The dropout of BERT and of LoRA is left on."""
    import peft  # here, since a process that only collects the tests would lose seconds
    import transformers

    torch.manual_seed(1)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=20, **sizes))
    return peft.get_peft_model(bert, peft.LoraConfig(task_type="SEQ_CLS", r=2, lora_dropout=0.1))


def data() -> list[dict[str, Tensor]]:
    words = torch.randint(0, 20, (EXAMPLES, 5), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(5) < torch.arange(EXAMPLES).unsqueeze(1) % 4 + 2).long()
    return [
        {"input_ids": words[i], "attention_mask": mask[i], "labels": torch.tensor(i % 2)}
        for i in range(EXAMPLES)
    ]


def engine(**options: Any) -> rf.PrivacyEngine:
    """With little noise: epsilons of sampled releases are then found four times as fast."""
    return rf.PrivacyEngine(rf.Gaussian(0.02), rf.Norm(0.1), seed=7, **options)


def trained(module: nn.Module) -> Tensor:
    """The weights that are trained, as one vector."""
    kept = [value.detach().flatten() for value in module.parameters() if value.requires_grad]
    return torch.cat(kept)


def quiet() -> tuple[nn.Module, rf.PrivacyEngine]:
    """A model without dropout and an engine with hardly any noise: what several processes do as one does."""
    module = model()
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    return module, rf.PrivacyEngine(rf.Gaussian(1e-7), rf.Norm(0.1), seed=7)


def one_of_two(rank: int, folder: Path) -> None:
    """Says, as torchrun does, which of two processes this one is, which share a group already."""
    size = {"WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0}
    os.environ.update({name: str(value) for name, value in size.items()})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="1", TORCHELASTIC_RUN_ID=folder.name)


def by_hand(module: nn.Module | None = None, by: rf.PrivacyEngine | None = None) -> Tensor:
    """The weights after ``STEPS`` private steps of a plain loop."""
    module, by = (model() if module is None else module), (engine() if by is None else by)
    optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=RATE)
    loader = DataLoader(data(), batch_size=BATCH, collate_fn=default_collate)
    private, optimizer, loader = by.make_private(module.train(), optimizer, loader)
    for batch in loader:
        optimizer.zero_grad()
        labels = batch.pop("labels")
        nn.functional.cross_entropy(private(**batch).logits, labels).backward()
        optimizer.step()
    return trained(module)

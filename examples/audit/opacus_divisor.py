"""Opacus divides by len(dataset) * sample_rate, which one person changes (its issues 571 and 819)."""

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ringfence as rf
from ringfence.accounting.gaussian_releases import GaussianRelease, sampled_gaussian_epsilon

warnings.simplefilter("ignore")
SIGMA, DELTA, WIDTH = 10.0, 1e-5, 2000


def step(people: int) -> float:
    """One step of a linear model with Opacus on people whose gradients are 0: how far do the weights go?"""
    model = nn.Linear(WIDTH, 1, bias=False)
    nn.init.zeros_(model.weight)
    dataset = TensorDataset(torch.zeros(people, WIDTH))
    engine = PrivacyEngine(accountant="prv")
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(dataset, batch_size=10),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
    )
    [inputs] = next(iter(loader))
    private(inputs).sum().backward()
    optimizer.step()
    return float(model.weight.norm())


claim = sampled_gaussian_epsilon(
    (GaussianRelease(1 / SIGMA, rate=10 / 20),), DELTA
)  # as Opacus's own account
found = rf.audit(step, 20, 19, claim=(claim, DELTA), draws=1000)
print(found.statement)

"""One row an accountant: everything in test_contract.py runs for each of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import ringfence as rf

THETA = torch.linspace(-2, 2, 12, dtype=torch.float64)
ORDERS = torch.tensor([2.0, 4.0, 8.0], dtype=torch.float64)
GRADIENTS = 0.05 * torch.cos(torch.arange(36, dtype=torch.float64)).reshape(3, 12)
JACOBIAN = torch.sin(torch.arange(36, dtype=torch.float64)).reshape(12, 3)
SENSITIVITY = 0.05


@dataclass(frozen=True)
class Accountant:
    """How to open an account, add a step to it, and read what grows in proportion to the steps."""

    name: str
    open: Callable[[rf.Mechanism], Any]
    step: Callable[[Any], None]
    sums: Callable[[Any], torch.Tensor]  # n steps = n times one
    epsilon: Callable[[Any, float], float] | None  # at a delta, if the account has one
    bad_theta: Callable[[Any, torch.Tensor], None] | None  # where theta counts
    # what is compared with the Gaussian's; of a sampled release one direction may be above its own
    compared: Callable[[Any], torch.Tensor] | None = None
    takes_orders: bool = True
    takes_sensitivity: bool = True
    saved: bool = True  # as plain data


ACCOUNTANTS = [
    Accountant(
        "per instance",
        lambda law, **more: rf.PerInstanceAccountant(
            law, **{"sensitivity": SENSITIVITY, "orders": (1.5, 4.0, 16.0, 64.0, 256.0), **more}
        ),
        lambda account: account.step(THETA),
        lambda account: torch.stack((account.forward, account.backward)),
        lambda account, delta: account.guarantee(delta).per_instance.ex_post_epsilon,
        lambda account, theta: account.step(theta),
    ),
    Accountant(
        "sampled",
        lambda law, **more: rf.SampledAccountant(
            law, **{"sensitivity": SENSITIVITY, "sampling_rate": 0.1, **more}
        ),
        lambda account: account.step_worst_case(THETA),
        lambda account: account.privacy_loss().divergences(ORDERS),
        lambda account, delta: account.guarantee(delta).per_instance.ex_post_epsilon,
        None,
        compared=lambda account: account.privacy_loss().divergences(ORDERS).amax(dim=0),
        takes_orders=False,
    ),
    Accountant(
        "examples",
        lambda law, **more: rf.ExampleAccountant(law, **{"orders": (2.0, 8.0, 64.0), **more}),
        lambda account: account.step(THETA, GRADIENTS),
        lambda account: account.sums,
        lambda account, delta: float(account.epsilons(delta).max()),
        lambda account, theta: account.step(theta, GRADIENTS),
        takes_sensitivity=False,
    ),
    Accountant(
        "fisher",
        lambda law: rf.FisherAccountant(law),
        lambda account: account.step(THETA, JACOBIAN),
        lambda account: account.fisher_information_loss() ** 2,
        None,
        lambda account, theta: account.step(theta, JACOBIAN),
        takes_orders=False,
        takes_sensitivity=False,
        saved=False,
    ),
]

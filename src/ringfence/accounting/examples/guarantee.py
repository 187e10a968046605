"""What may be said about single examples: one epsilon each, and the words that belong to it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ExampleGuarantee:
    """One ex-post epsilon and one per-instance epsilon for each example, at the same delta.

    >>> claim = ExampleGuarantee(1e-5, torch.tensor([1.2]), torch.tensor([0.9]), steps=1)
    >>> claim.statement.startswith("Per example, this dataset and this trajectory")
    True
    """

    delta: float
    epsilons: Tensor  # ex-post
    per_instance_epsilons: Tensor  # the realised Rényi sums converted to (epsilon, delta)
    steps: int

    @property
    def statement(self) -> str:
        """In plain English: what an example's epsilon promises, what it does not, who may see it."""
        return statement(self.steps)


def ex_post_epsilons(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    """``conversion.ex_post_epsilon`` with one row of ``rdp`` per example.

    >>> ex_post_epsilons(torch.tensor([2.0]), torch.tensor([[0.5], [1.5]]), delta=1.0)
    tensor([0.5000, 1.5000])
    """
    return (rdp + (math.log(len(orders)) - math.log(delta)) / (orders - 1)).amin(dim=1)


def per_instance_epsilons_of(orders: Tensor, rdp: Tensor, delta: float) -> Tensor:
    """dp_accounting.rdp.compute_epsilon with one row of ``rdp`` per example.

    >>> orders, rdp = torch.tensor([2.0, 8.0]), torch.tensor([[0.01, 0.04]])
    >>> per_instance_epsilons_of(orders, rdp, 1e-5).round(decimals=3)
    tensor([1.2540])
    """
    epsilons = rdp + torch.log1p(-1 / orders) - torch.log(delta * orders) / (orders - 1)
    # dp-accounting's threshold: near order 1 the formula is neither stable nor useful
    epsilons = torch.where(orders > 1.01, epsilons, torch.inf)
    # delta <= sqrt(1 - exp(-KL)), and the KL divergence is at most any of the Rényi divergences
    epsilons = torch.where(delta**2 + torch.expm1(-rdp) > 0, 0.0, epsilons)
    return epsilons.amin(dim=1).clamp(min=0)


def statement(steps: int) -> str:
    """What an example's epsilon promises after so many steps, what it does not, and who may see it.

    >>> "do not publish it" in statement(10)
    True
    """
    releases = "the release" if steps == 1 else f"the {steps} releases"
    holds = (
        "is a guarantee for the one release it is about"
        if steps <= 1
        else "is a guarantee only if theta at every release was fixed in advance; where theta depends on "
        "earlier releases, as in training, it is an estimate and not a guarantee"
    )
    return (
        "Per example, this dataset and this trajectory: each epsilon is about one record that is in the "
        "data, compared with leaving that record out and with having it twice. Ex-post: except with "
        f"probability delta over the run, the realised privacy loss of {releases} about that record is "
        "at most its epsilon, also when theta depends on earlier releases, provided what the record "
        "contributes depends on itself and on earlier releases only, and that delta was fixed "
        "beforehand, as the Rényi orders of an account are. The loss is that of everything released "
        "together, not of something that is computed from it afterwards. The probability is for each "
        "example by itself, not for all of them at once.\n\n"
        f"The per-instance (epsilon, delta) number, kind='per_instance', {holds}.\n\n"
        "Neither is differential privacy: they say nothing about records that are not in the data, about "
        "other datasets or about other runs. Each number is computed from its record and, through theta, "
        "from all the others, and is itself sensitive: do not publish it, do not show it to whoever may "
        "not see the data, and do not stop, go on, leave out examples or change the noise because of it."
    )

"""Audits of a whole private training: canaries by a public coin, one run, and the trained model's verdict.

A canary is an example whose whole gradient lies on one parameter that nobody else has: the wrapped model
passes rows with a canary's mark by. Clipping leaves the longest gradient that it allows, in a direction of
its own, at every step: the worst case that accounts of DP-SGD are about. The training itself is the user's.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

from ringfence import checks
from ringfence.auditing.result import AuditResult
from ringfence.auditing.scores import audit_scores
from ringfence.noise import Noise

_MARK = -1e6  # canary number k is an input of _MARK - k; real inputs must stay above half of it
_PUSH = 1e4  # how much longer a canary's gradient is than 1: any clipping cuts it


class WithCanaries(nn.Module):
    """A classifier with one more parameter per canary, which only the examples of that canary move.

    >>> model = WithCanaries(nn.Linear(2, 3), canaries=2)
    >>> inputs = torch.tensor([[0.5, 1.0], [_MARK - 1, _MARK - 1]])
    >>> nn.functional.cross_entropy(model(inputs), torch.tensor([2, 0])).backward()
    >>> [float(value) != 0 for value in model.pushes.weight.grad.flatten()]
    [False, True, False]
    """

    def __init__(self, model: nn.Module, canaries: int) -> None:
        super().__init__()
        self.model = model
        self.pushes = nn.Embedding(canaries + 1, 1)  # the last is for all real examples, and gets no gradient
        nn.init.zeros_(self.pushes.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's logits; for canaries zeros, which pass a long gradient on to their parameter."""
        first = inputs.flatten(1)[:, 0]
        marked = first < _MARK / 2
        numbers = torch.where(marked, (_MARK - first).round(), self.pushes.num_embeddings - 1).long()
        logits = self.model(torch.where(marked.view(-1, *[1] * (inputs.dim() - 1)), 0.0, inputs))
        pushed = self.pushes(numbers)
        # 0 whatever the parameter has become, so that the gradient is the same at every step
        moving = nn.functional.pad(_PUSH * (pushed - pushed.detach()), (0, logits.shape[1] - 1))
        return torch.where(marked.unsqueeze(1), moving, logits)


def audit_training(
    make_model: Callable[[], nn.Module],
    train: Callable[[nn.Module, Dataset[Any]], nn.Module | None],
    data: tuple[Tensor, Tensor],
    *,
    delta: float,
    claim: float | None = None,
    canaries: int = 1000,
    significance: float = 0.05,
    seed: int = 0,
) -> AuditResult:
    """Trains once with canaries, and bounds epsilon by how well the trained model tells which were in.

    ``make_model()`` returns a classifier under cross entropy; ``train(model, dataset)`` trains it privately,
    in place or not, on examples (input, label) that reach the model as they are, with any library. ``data``
    are inputs and labels. Half of the canaries, by a public coin of ``seed``, follow the data: the dataset
    that ``train`` gets is larger by these, and sampling rates must be those of the account. ``claim`` is the
    epsilon that the training claims at ``delta`` for one example more or fewer.

    Guarantee: ``epsilon_lower_bound`` is above the true epsilon with probability at most ``significance``, if
    the training does not know ``seed``.

    >>> inputs, labels = torch.zeros(20, 2), torch.zeros(20).long()
    >>> def train(model, dataset):  # one step without any noise
    ...     loss = nn.functional.cross_entropy(model(dataset.tensors[0]), dataset.tensors[1])
    ...     loss.backward()
    ...     torch.optim.SGD(model.parameters(), lr=1.0).step()
    >>> found = audit_training(lambda: nn.Linear(2, 3), train, (inputs, labels), delta=1e-5, canaries=400)
    >>> found.refutes(epsilon=3.0)
    True
    """
    inputs, labels = data
    checks.count("canaries", canaries, at_least=50, at_most=1_000_000)  # float32 tells them apart
    if inputs.dtype not in (torch.float32, torch.float64) or inputs.dim() < 2 or len(inputs) != len(labels):
        raise ValueError(
            "data must be a pair of float32 or float64 inputs (examples, ...) and as many labels, "
            f"got {inputs.dtype} {list(inputs.shape)} and {list(labels.shape)}"
        )
    if not float(inputs.flatten(1)[:, 0].amin()) > _MARK / 2:
        raise ValueError(f"inputs must be above {_MARK / 2:g}, where canaries begin, and not NaN")
    generator = torch.Generator().manual_seed(Noise(checks.seed(seed)).torch_seed("canaries"))
    inside = torch.randint(2, (canaries,), generator=generator).bool()
    rows = [
        inputs.new_full((1, *inputs.shape[1:]), _MARK - number)
        for number in inside.nonzero().flatten().tolist()
    ]
    dataset = TensorDataset(torch.cat((inputs, *rows)), torch.cat((labels, labels.new_zeros(len(rows)))))
    model = WithCanaries(make_model(), canaries)
    trained = train(model, dataset)
    inner = (model if trained is None else trained).modules()  # what train returns may wrap the model
    found = [module for module in inner if isinstance(module, WithCanaries)]
    if not found:
        raise ValueError(f"train must return the model that it was given, got a {type(trained).__name__}")
    scores = found[0].pushes.weight.detach().double().cpu().flatten()[:-1]
    if bool(scores.isnan().any()):
        raise FloatingPointError("the trained model has NaN parameters: the training diverged")
    return audit_scores(
        scores[inside],
        scores[~inside],
        delta=delta,
        significance=significance,
        claim=claim,
        seed=seed,
        what=f"One training run with {canaries:,} canaries",
    )

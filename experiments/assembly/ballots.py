"""Ballots of a real assembly: 1,921 people and 99 statements.

Gathered using the Polis software, CC BY 4.0, The Computational Democracy Project; ``README.md`` beside this
file says where the ballots come from and what was left out.
"""

import gzip
from pathlib import Path

import torch
from torch import Tensor

# A compressed CSV file that ``release_votes`` and ``ringfence release votes`` read as it is.
ASSEMBLY = Path(__file__).with_name("votes.csv.gz")


def assembly_ballots() -> Tensor:
    """The ballots, (people, statements): 1 agrees, -1 disagrees, 0 is a pass or no answer.

    >>> ballots = assembly_ballots()
    >>> ballots.shape, ballots.sum(dim=0)[:3]  # yes minus no
    (torch.Size([1921, 99]), tensor([309, 399, 287]))
    """
    with gzip.open(ASSEMBLY, "rt") as file:
        next(file)  # the numbers of the statements
        rows = [[int(cell) if cell else 0 for cell in line.rstrip("\n").split(",")] for line in file]
    return torch.tensor(rows)

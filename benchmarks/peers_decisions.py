"""What decisions cost here and elsewhere, at the same error on the same data.

    python -m benchmarks.peers_decisions --data FOLDER [--errors 0.01 0.001] [--chart FOLDER]

The assembly that comes with a clone is always there. FOLDER may have another one (Polis),
``decisions/scoop_biodiversity_votes.csv``, and ``cifar10_effnet_lite2_192_q8.npz``, on which 250 teachers are
trained (nearest class means of 200 examples each). What is not there is left out.

Every method gets the noise with which the expected share of wrong decisions is the same: the mean, over
queries, of the exact chance that another answer is given than the noiseless one. A tie is never wrong. Then
epsilon at delta = 1e-5 is that of the method's own account. Voters are added or removed in the assemblies
and replaced (one teacher's vote becomes another) in PATE's queries, for everybody.

    sign or winner        with Gaussian noise, and with Gumbel noise on every count (", Gumbel")
    data-independent      for every dataset: the Gaussian behind it, exactly (GDP); of yes or no less
    per-instance          ``DecisionAccountant`` (Rényi) and ``decision_profile`` (tight): sensitive
    publishable           ``publishable_decision_epsilon``, the median of several draws, its own cost included
    PATE 2018             the data-dependent bound of the same release (``benchmarks/pate.py``): sensitive
    OpenDP                noisy max with Gumbel noise, and Gaussian noise on the counts, composed as zCDP
    diffprivlib           permute-and-flip, composed by its ``BudgetAccountant`` with slack delta
"""

import argparse
import math
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import opendp.prelude as opendp
import torch
from torch import Tensor

import ringfence as rf
from benchmarks.pate import log_q, pate_epsilon
from experiments.assembly.ballots import assembly_ballots
from ringfence.accounting.decision_publication import publishable_decision_epsilon
from ringfence.accounting.decisions import DecisionLaw, Neighbours, decision_profile
from ringfence.numerics.rounding import rounded_up
from ringfence.report.chart import Chart, Line, Panel
from ringfence.report.drawing import save_chart

# diffprivlib 0.6.6 does not import its models beside a recent scikit-learn; they are not needed here
sys.modules.setdefault("diffprivlib.models", types.ModuleType("diffprivlib.models"))
from diffprivlib import BudgetAccountant  # noqa: E402

opendp.enable_features("contrib", "idealized-numerics")
DELTA, DRAWS, TEACHERS = 1e-5, 5, 250
DATA_INDEPENDENT, PUBLISHABLE = "data-independent", "publishable"
RENYI, TIGHT = "per-instance, Rényi", "per-instance, tight"


@dataclass(frozen=True)
class Task:
    """Queries with counts per candidate, (queries, candidates)."""

    name: str
    counts: Tensor
    neighbours: Neighbours

    @property
    def gaps(self) -> Tensor:
        """How far every other candidate is behind the first, in votes."""
        ordered = self.counts.double().sort(dim=1, descending=True).values
        return ordered[:, :1] - ordered[:, 1:]

    def wrong(self, chances: Tensor) -> float:
        """The expected share of wrong decisions; where the first two are tied, nothing counts as wrong."""
        return float(torch.where(self.gaps[:, 0] == 0, 0.0, chances).mean())


def noise_for(error: float, of: Callable[[float], float]) -> float:
    """The largest noise whose error, which grows with it, is at most this."""
    low, high = 1e-2, 1e4
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if of(middle) <= error else (low, middle)
    return low


def ours(task: Task, error: float) -> dict[str, float]:
    """Our statements and PATE's about one release: the sign of each surplus, or the noisy winner."""
    votes: Tensor = task.counts
    law: DecisionLaw
    if votes.shape[1] == 2:
        votes = votes[:, 0] - votes[:, 1]
        sigma = noise_for(error, lambda s: task.wrong(torch.special.ndtr(-votes.abs() / s)))
        law, mu, sure = rf.StochasticSign(sigma), 1 / sigma, torch.special.log_ndtr(-votes.abs() / sigma)
    else:
        sigma = noise_for(error, lambda s: task.wrong(rf.NoisyWinner(s).chance_of_error(votes)))
        law, mu, sure = rf.NoisyWinner(sigma), math.sqrt(2) / sigma, log_q(votes, sigma)
    scale = noise_for(error, lambda s: task.wrong(rf.GumbelWinner(s).chance_of_error(task.counts)))
    gumbel = statements(rf.GumbelWinner(scale), task.counts, task.neighbours)
    return {
        "sigma": sigma,
        "scale, Gumbel": scale,
        **statements(law, votes, task.neighbours),
        **{f"{name}, Gumbel": value for name, value in gumbel.items() if name != PUBLISHABLE},
        "PATE 2018": pate_epsilon(sure, mu, DELTA),
    }


def statements(law: DecisionLaw, votes: Tensor, neighbours: Neighbours) -> dict[str, float]:
    """What is said about decisions by this law: for these votes, published, and for everybody."""
    account = rf.DecisionAccountant(law, neighbours=neighbours)
    account.step(votes)
    claim = account.guarantee(DELTA)
    try:
        drawn = [
            publishable_decision_epsilon(law, votes, neighbours=neighbours, delta=DELTA).per_instance_epsilon
            for _ in range(DRAWS)
        ]
    except ValueError:  # where the data-independent epsilon is above about 126, there is no such number
        drawn = [math.inf]
    return {
        TIGHT: decision_profile(law, votes, neighbours=neighbours).epsilon(DELTA),
        RENYI: claim.per_instance.epsilon,
        PUBLISHABLE: median(drawn),
        DATA_INDEPENDENT: claim.epsilon,
    }


def districts() -> None:
    """Prints the expected number of wrong winners of 7 districts at epsilon = 1, for every dataset."""
    leads = torch.tensor([[2], [5], [8], [12], [20], [35], [60]])
    counts = torch.cat((100 + leads, torch.tensor([[100, 60, 30]]).expand(7, -1)), dim=1)
    behind = (counts[:, :1] - counts[:, 1:]).double()
    print(
        "7 districts, 4 parties, leads of 2 to 60 votes, epsilon = 1, delta = 1e-6; expected wrong winners:"
    )
    ways: list[tuple[str, Neighbours, int | None]] = [
        ("a voter added, in one district", "added", 1),
        ("a voter replaced, who votes in all", "replaced", None),
    ]
    for name, neighbours, at_most in ways:
        wrong = {}
        for noise in ("gaussian", "gumbel", "auto"):
            made = rf.release_winners(
                counts, epsilon=1.0, delta=1e-6, noise=noise, neighbours=neighbours, at_most=at_most
            )
            wrong[noise] = math.fsum(made.account.details["chances_of_error"])
        # OpenDP: pure differential privacy for one district, zCDP for all of them
        distance = opendp.linf_distance(T=int, monotonic=neighbours == "added")
        space = opendp.vector_domain(opendp.atom_domain(T=int)), distance

        def epsilon(scale: float, space: Any = space, alone: bool = at_most == 1) -> float:
            if alone:
                pure = opendp.m.make_noisy_max(*space, opendp.max_divergence(), scale)
                return float(pure.map(1))
            one = opendp.m.make_noisy_max(*space, opendp.zero_concentrated_divergence(), scale)
            every = opendp.c.make_zCDP_to_approxDP(opendp.c.make_composition([one] * 7))
            return float(every.map(1).epsilon(delta=1e-6))

        scale = noise_for(-1.0, lambda scale: -epsilon(scale)) * (1 + 1e-6)
        while epsilon(scale) > 1:
            scale *= 1 + 1e-4
        wrong["OpenDP"] = float((1 - 1 / (1 + torch.exp(-behind / scale).sum(dim=1))).sum())
        print(f"{name}: " + "; ".join(f"{who} {value:.3g}" for who, value in wrong.items()), flush=True)


def opendp_epsilons(task: Task, error: float) -> dict[str, float]:
    """OpenDP's noisy max (Gumbel noise), and its Gaussian noise on what is counted."""
    queries, candidates = task.counts.shape
    # of Gumbel noises the first is largest with the chance of the softmax
    scale = noise_for(error, lambda s: task.wrong(1 - 1 / (1 + torch.exp(-task.gaps / s).sum(dim=1))))
    distance = opendp.linf_distance(T=int, monotonic=task.neighbours == "added")
    space = opendp.vector_domain(opendp.atom_domain(T=int)), distance
    one = opendp.m.make_noisy_max(*space, opendp.zero_concentrated_divergence(), scale)
    every = opendp.c.make_zCDP_to_approxDP(opendp.c.make_composition([one] * queries))
    if candidates == 2:  # of surpluses
        chance: Callable[[float], Tensor] = lambda s: torch.special.ndtr(-task.gaps[:, 0] / s)  # noqa: E731
        length = 1.0
    else:
        chance, length = lambda s: rf.NoisyWinner(s).chance_of_error(task.counts), math.sqrt(2)
    sigma = noise_for(error, lambda s: task.wrong(chance(s)))
    numbers = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
    gaussian = opendp.c.make_zCDP_to_approxDP(opendp.m.make_gaussian(*numbers, scale=sigma))
    return {
        "OpenDP, noisy max": every.map(1).epsilon(delta=DELTA),
        "OpenDP, Gaussian counts": gaussian.map(length * math.sqrt(queries)).epsilon(delta=DELTA),
    }


def diffprivlib_epsilon(task: Task, error: float) -> float:
    """diffprivlib's permute-and-flip: the largest of counts with exponential noise (Ding et al. 2021)."""
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(12))
    places = (nodes + 1) / 2  # the integrand is a polynomial: exact for up to 24 candidates

    def wrong(scale: float) -> float:
        behind = torch.exp(-task.gaps / scale).unsqueeze(0)
        return task.wrong(1 - (weights / 2) @ (1 - places.view(-1, 1, 1) * behind).prod(dim=2))

    scale = noise_for(error, wrong)
    each = (1 if task.neighbours == "added" else 2) / scale
    spent = [(each, 0.0)] * len(task.counts)
    return float(BudgetAccountant(slack=DELTA, spent_budget=spent).total()[0])


def assemblies(folder: Path | None) -> list[Task]:
    """Statements with at least 50 answers; the first assembly is the shipped extract, by the same rule."""
    ballots = {"vTaiwan, 99 statements": assembly_ballots()}
    if folder and (file := folder / "decisions" / "scoop_biodiversity_votes.csv").exists():
        table = np.genfromtxt(file, delimiter=",", skip_header=1)[:, 6:]
        table = table[:, (~np.isnan(table)).sum(axis=0) >= 50]
        ballots[f"biodiversity, {table.shape[1]} statements"] = torch.from_numpy(np.nan_to_num(table))
    return [
        Task(
            name,
            torch.stack([(answers == 1).sum(dim=0), (answers == -1).sum(dim=0)], dim=1).double(),
            "added",
        )
        for name, answers in ballots.items()
    ]


def teachers(folder: Path | None) -> list[Task]:
    """Votes of 250 teachers on the first 100 and 1,000 test images."""
    if not folder or not (file := folder / "cifar10_effnet_lite2_192_q8.npz").exists():
        return []
    with np.load(file) as saved:
        train, labels, test = (saved[name] for name in ("q_train", "y_train", "q_test"))
        right = saved["y_test"][:1000]
    values = [6 * (part.astype(np.float32) / 255) ** 2 for part in (train, test[:1000])]
    mean, deviation = values[0].mean(axis=0), values[0].std(axis=0) + 1e-3
    train, test = ((part - mean) / deviation for part in values)
    counts = np.zeros((len(test), 10))
    for own in np.split(np.arange(len(train)), TEACHERS):
        means = np.stack([train[own][labels[own] == label].mean(axis=0) for label in range(10)])
        scores = test @ means.T - (means**2).sum(axis=1) / 2
        counts[np.arange(len(test)), scores.argmax(axis=1)] += 1
    print(f"{TEACHERS} teachers; the plurality is right for {(counts.argmax(axis=1) == right).mean():.1%}")
    return [Task(f"PATE, {n:,} queries", torch.from_numpy(counts[:n]), "replaced") for n in (100, 1000)]


def measured(task: Task, error: float) -> dict[str, float]:
    return {
        **ours(task, error),
        **opendp_epsilons(task, error),
        "diffprivlib": diffprivlib_epsilon(task, error),
    }


def chart(results: dict[str, dict[float, dict[str, float]]]) -> Chart:
    looks = {DATA_INDEPENDENT: "Gaussian", RENYI: "sign", TIGHT: "sign"}
    panels = []
    for name, found in results.items():
        errors = sorted(found)
        lines = [
            Line(
                f"{method}, sensitive" if method in (RENYI, TIGHT, "PATE 2018") else method,
                tuple(found[error][method] for error in errors if found[error][method] < math.inf),
                tuple(error for error in errors if found[error][method] < math.inf),
                mechanism=looks.get(method),
                dashed=method == RENYI,
            )
            for method in found[errors[0]]
            if "Gumbel" not in method
            and method
            not in ("sigma", "OpenDP, Gaussian counts")  # which is the data-independent line by zCDP
        ]
        panels.append(
            Panel(name, "ε at δ = 1e-05", "share of wrong decisions", tuple(lines), x_log=True, y_log=True)
        )
    caption = "The share of wrong decisions against ε, on the same data, for every method."
    return Chart("decisions", "Decisions, here and elsewhere", caption, tuple(panels), columns=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--errors", type=float, nargs="+", default=[0.01, 0.001])
    parser.add_argument("--chart", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    districts()
    results: dict[str, dict[float, dict[str, float]]] = {}
    for task in [*assemblies(arguments.data), *teachers(arguments.data)]:
        results[task.name] = {error: measured(task, error) for error in arguments.errors}
        for error, row in results[task.name].items():
            values = "; ".join(f"{name} {rounded_up(value)}" for name, value in row.items())
            print(f"{task.name}, {error:.1%} wrong: {values}", flush=True)
    if arguments.chart:
        print(*save_chart(chart(results), arguments.chart), sep="\n")
    for name, found in results.items():
        for error, row in found.items():
            if not row[TIGHT] <= row[RENYI] <= row["PATE 2018"] * (1 + 1e-9):
                raise SystemExit(f"{name} at {error:g}: the per-instance numbers are not the smallest")


if __name__ == "__main__":
    main()

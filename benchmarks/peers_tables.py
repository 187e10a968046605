"""The noise of tables here and elsewhere at the same promise, and what tables of microdata cost.

    python -m benchmarks.peers_tables [PUMS.csv]

The first tables are the standard errors of a count, of a sum of values between -1 and 1, and of a mean of 1/2
of them (times the number of people), and the scale of the Gumbel noise of a median's rank, at (epsilon, 1e-6)
where one person is in at most m cells. They need no file. Shares have the noise of counts.

    here             the releases with noise="auto"; counts are whole numbers, sums on a fine grid
    OpenDP           discrete Laplace noise (delta = 0) and discrete Gaussian noise as zCDP, calibrated by
                     ``binary_search_param``; a mean is a sum and a size that share epsilon as well as can be;
                     a median is ``noisy_max`` of ``quantile_score_candidates``, epsilon / m for each cell
    diffprivlib      geometric noise of its ``histogram`` (delta = 0), and ``GaussianAnalytic``, whose numbers
                     are not whole; its ``mean`` takes the size for public, so it is a sum and a size here,
                     too; its ``quantile`` is an exponential mechanism with a sensitivity of 1

With a file of 1,000 persons with age, sex, educ, income and married, the last lines say whom suppression with
Gaussian noise spares: the shares of people by what their own cell cost them.
"""

import argparse
import math
import sys
import types

import opendp.prelude as opendp
import torch
from pandas import DataFrame, read_csv

import ringfence as rf
from ringfence.numerics.rounding import rounded_up
from ringfence.releases.budget import Budget, LaplaceNoise, count_noise, errors_of_sum
from ringfence.releases.cells import UNITS
from ringfence.releases.decisions import Poll, gumbel_law
from ringfence.releases.means import mean_noise

# diffprivlib 0.6.6 does not import its models beside a recent scikit-learn; they are not needed here
sys.modules.setdefault("diffprivlib.models", types.ModuleType("diffprivlib.models"))
from diffprivlib.mechanisms import GaussianAnalytic, Geometric  # noqa: E402

opendp.enable_features("contrib", "honest-but-curious")
DELTA = 1e-6
PROMISES = [(epsilon, cells) for epsilon in (0.1, 1.0, 4.0) for cells in (1, 4, 16)]
DOMAIN = {"educ": list(range(1, 17)), "sex": [0, 1], "married": [0, 1]}
INTEGERS = opendp.vector_domain(opendp.atom_domain(T=int))
SUM_SHARE = 1 / (1 + 2 ** (-2 / 3))  # of epsilon, the best one for a sum beside a size at a mean of 1/2


def opendp_laplace(epsilon: float, moved: int) -> float:
    """The standard deviation of discrete Laplace noise where one person moves numbers by ``moved`` in all."""
    return LaplaceNoise(
        opendp.binary_search_param(
            lambda scale: opendp.m.make_laplace(INTEGERS, opendp.l1_distance(T=int), scale=scale),
            d_in=moved,
            d_out=epsilon,
        )
    ).deviation


def opendp_gaussian(epsilon: float, norm: float) -> float:
    """The scale of discrete Gaussian noise where one person moves numbers by this L2 norm."""

    def law(scale: float) -> opendp.Measurement:
        noise = opendp.m.make_gaussian(INTEGERS, opendp.l2_distance(T=float), scale=scale)
        return opendp.c.make_fix_delta(opendp.c.make_zCDP_to_approxDP(noise), delta=DELTA)

    return float(opendp.binary_search_param(law, d_in=norm, d_out=(epsilon, DELTA)))


def counts(epsilon: float, cells: int) -> dict[str, float]:
    """Standard errors of a count."""
    budget, norm = Budget.checked(epsilon, DELTA, kind="auto"), math.sqrt(cells)
    used = count_noise(budget, cells)
    return {
        f"here, {used.name}": errors_of_sum(used, 0.95, 1)[0],
        "OpenDP Laplace": opendp_laplace(epsilon, cells),
        "OpenDP Gaussian": opendp_gaussian(epsilon, norm),
        "diffprivlib geometric": math.sqrt(Geometric(epsilon=epsilon, sensitivity=cells).variance(0)),
        "diffprivlib Gaussian": math.sqrt(
            GaussianAnalytic(epsilon=epsilon, delta=DELTA, sensitivity=norm).variance(0)
        ),
    }


def sums(epsilon: float, cells: int) -> dict[str, float]:
    """Standard errors of a sum of values between -1 and 1."""
    used, norm = count_noise(Budget.checked(epsilon, DELTA, kind="auto"), cells, UNITS), math.sqrt(cells)
    analytic = GaussianAnalytic(epsilon=epsilon, delta=DELTA, sensitivity=norm)
    return {
        f"here, {used.name}": used.deviation,
        "OpenDP Laplace": opendp_laplace(epsilon, cells * UNITS) / UNITS,
        "OpenDP Gaussian": opendp_gaussian(epsilon, norm),
        "diffprivlib Laplace": math.sqrt(2) * cells / epsilon,
        "diffprivlib Gaussian": math.sqrt(analytic.variance(0)),
    }


def medians(epsilon: float, cells: int) -> dict[str, float]:
    """Scales of the noise of a median's rank, in people."""

    def law(scale: float) -> opendp.Measurement:
        distances = opendp.symmetric_distance(), list(range(100))
        scores = opendp.t.make_quantile_score_candidates(INTEGERS, *distances, alpha=0.5)  # two for a person
        return scores >> opendp.m.then_noisy_max(opendp.max_divergence(), scale)

    poll = Poll(Budget.checked(epsilon, DELTA), "added", cells, False)
    return {
        "here, Gumbel": gumbel_law(poll, cells, 1.0).scale,
        "OpenDP": opendp.binary_search_param(law, d_in=1, d_out=epsilon / cells, T=float) / 2,
        "diffprivlib": 2 * cells / epsilon,
    }


def means(epsilon: float, cells: int) -> dict[str, float]:
    """Standard errors of a mean of 1/2 of values between -1 and 1, times the number of people."""
    used = mean_noise(Budget.checked(epsilon, DELTA, kind="auto"), cells)
    shares = SUM_SHARE * epsilon, (1 - SUM_SHARE) * epsilon
    laplace = [math.sqrt(2) * cells / share for share in shares]
    gaussian = [opendp_gaussian(epsilon, math.sqrt(cells / share)) for share in (2 / 3, 1 / 3)]
    analytic = [
        math.sqrt(
            GaussianAnalytic(epsilon=epsilon, delta=DELTA, sensitivity=math.sqrt(cells / share)).variance(0)
        )
        for share in (2 / 3, 1 / 3)
    ]
    return {
        f"here, {used.name}": math.hypot(used.total, used.size / 2),
        "OpenDP, diffprivlib Laplace": math.hypot(laplace[0], laplace[1] / 2),
        "OpenDP Gaussian": math.hypot(gaussian[0], gaussian[1] / 2),
        "diffprivlib Gaussian": math.hypot(analytic[0], analytic[1] / 2),
    }


def compared() -> None:
    """Prints a table for each job; the last column is our error over the best peer's."""
    for job in (counts, sums, means, medians):
        rows = []
        for epsilon, cells in PROMISES:
            found = job(epsilon, cells)
            (own, here), *peers = found.items()
            ratio = here / min(value for _, value in peers)
            rows.append(
                (
                    f"{epsilon:g}",
                    str(cells),
                    own.removeprefix("here, "),
                    *(f"{x:.4g}" for x in found.values()),
                    f"{ratio:.4f}",
                )
            )
        names = ("epsilon", "m", "noise", "here", *(name for name, _ in peers), "over the best peer")
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        print(f"\n{job.__doc__} delta = {DELTA:g}")
        for row in (names, *rows):
            print("  ".join(map(str.ljust, row, widths)).rstrip())


def spared(frame: DataFrame, by: list[str], sigma: float, below: int) -> str:
    """What people in small cells gain when counts below ``below`` are suppressed."""
    domain = {name: DOMAIN[name] for name in by}
    account = rf.release_counts(
        frame, by=by, domain=domain, suppress_below=below, sigma=sigma, delta=1e-5
    ).account
    people = torch.tensor(account.details["cell_values"])
    own = torch.tensor(account.details["cell_epsilons"])
    shares = [float(people[own <= account.epsilon / part].sum() / people.sum()) for part in (2, 10)]
    return (
        f"{' x '.join(by)}, {len(people)} cells, noise {sigma:g}, below {below} suppressed: epsilon "
        f"{rounded_up(account.epsilon)} for every dataset, "
        f"{rounded_up(account.per_instance.epsilon)} for the worst cell here; at most a half of it for "
        f"{shares[0]:.1%} of the people, and at most a tenth for "
        f"{shares[1]:.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", nargs="?")
    file = parser.parse_args().file
    torch.set_num_threads(1)
    compared()
    if file is not None:
        for by in (["educ"], ["educ", "sex", "married"]):
            print(spared(read_csv(file), by, sigma=1.0, below=10))


if __name__ == "__main__":
    main()

"""What counts and means of microdata cost here and elsewhere, at the same standard error.

    python -m benchmarks.peers_tables PUMS.csv

The file has 1,000 persons with age, sex, educ, income and married. Counts are a table by educ (16 cells, a
person is in one of them, added or removed), and the mean is that of income, clamped to 0 to 100,000.
Everybody gets the noise whose standard deviation is 1 % or 0.1 % of the 1,000 persons, or of the range of
incomes; delta = 1e-5 where there is one.

    Gaussian         ``release_counts`` and ``release_means``, data-independent, exactly (GDP)
    OpenDP           Laplace noise (delta = 0), and Gaussian noise as zCDP
    diffprivlib      geometric noise of its ``histogram``, Laplace noise of its ``mean`` (delta = 0)

The last lines say whom suppression spares: the shares of people by what their own cell cost them.
"""

import argparse
import math

import opendp.prelude as opendp
import torch
from pandas import DataFrame, read_csv

import ringfence as rf
from ringfence.numerics.rounding import rounded_up

opendp.enable_features("contrib", "idealized-numerics")
DELTA = 1e-5
DOMAIN = {"educ": list(range(1, 17)), "sex": [0, 1], "married": [0, 1]}


def geometric_epsilon(deviation: float) -> float:
    """The epsilon of two-sided geometric noise: its variance is 2 r / (1 - r)^2 with r = exp(-epsilon)."""
    variance = deviation**2
    ratio = (variance + 1 - math.sqrt(2 * variance + 1)) / variance
    return -math.log(ratio)


def opendp_epsilons(deviation: float) -> tuple[float, float]:
    """Laplace and Gaussian noise on a number that a person moves by 1."""
    space = opendp.atom_domain(T=float, nan=False), opendp.absolute_distance(T=float)
    laplace = opendp.m.make_laplace(*space, scale=deviation / math.sqrt(2))
    gaussian = opendp.c.make_zCDP_to_approxDP(opendp.m.make_gaussian(*space, scale=deviation))
    return laplace.map(1.0), gaussian.map(1.0).epsilon(delta=DELTA)


def spared(frame: DataFrame, by: list[str], sigma: float, below: int) -> str:
    """What people in small cells gain when counts below ``below`` are suppressed."""
    domain = {name: DOMAIN[name] for name in by}
    account = rf.release_counts(
        frame, by=by, domain=domain, suppress_below=below, sigma=sigma, delta=DELTA
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
    parser.add_argument("file")
    frame = read_csv(parser.parse_args().file)
    torch.set_num_threads(1)
    for share in (0.01, 0.001):
        deviation = share * len(frame)
        counts = rf.release_counts(
            frame, by="educ", domain={"educ": DOMAIN["educ"]}, sigma=deviation, delta=DELTA
        ).account.epsilon
        means = rf.release_means(frame, of="income", lower=0, upper=100_000, sigma=deviation, delta=DELTA)
        off = float(means.errors["standard_error"].iloc[0]) / 100_000
        laplace, gaussian = opendp_epsilons(deviation)
        found = {
            "counts": counts,
            f"mean (off by {off:.2%})": means.account.epsilon,
            "OpenDP Laplace": laplace,
            "OpenDP Gaussian": gaussian,
            "diffprivlib histogram": geometric_epsilon(deviation),
            "diffprivlib mean": math.sqrt(2) / deviation,
        }
        print(f"{share:.1%}:", "; ".join(f"{name} {rounded_up(value)}" for name, value in found.items()))
    for by in (["educ"], ["educ", "sex", "married"]):
        print(spared(frame, by, sigma=1.0, below=10))


if __name__ == "__main__":
    main()

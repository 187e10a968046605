"""diffprivlib's logistic regression on the data and splits of ``default_settings``.

diffprivlib 0.6.6 does not import beside the scikit-learn that ringfence needs, so this runs in two
environments:

    python -m benchmarks.peers_probe --write splits.npz
    python -m venv peer && peer/bin/pip install diffprivlib 'scikit-learn<1.6'
    peer/bin/python benchmarks/peers_probe.py splits.npz

diffprivlib needs a public bound on the norm of a row. Where nothing is public, rows can be divided by their
norm ("unit rows"). With "given bounds" it is told what nobody may look up for nothing: the smallest and the
largest value of each feature in the training rows. Its promise is pure, for pairs that differ in one record.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

EPSILONS = (0.1, 0.3, 1.0, 3.0, 8.0)


def write(path: Path, first: int, last: int) -> None:
    """The splits whose numbers are from ``first`` up to ``last``."""
    from benchmarks.default_settings import CHOSEN_ON, JUDGED_ON, splits

    arrays = {}
    for name in (*CHOSEN_ON, *JUDGED_ON):
        for seed, one in enumerate(list(splits(name, last, "cpu"))[first:], first):
            parts = (one.features, one.labels, one.test_features, one.test_labels)
            arrays |= {f"{name}/{seed}/{i}": part.numpy() for i, part in enumerate(parts)}
    np.savez(path, **arrays)


def accuracy(epsilon: float, seed: int, given: bool, train, labels, test, answers) -> float:  # type: ignore[no-untyped-def]
    """Test accuracy in % of one fit; labels that occur are known to it."""
    from diffprivlib.models import LogisticRegression

    if given:
        low, high = train.min(axis=0), train.max(axis=0)
        train, test = (
            np.clip((x - low) / np.maximum(high - low, 1e-30), 0, 1) * 2 - 1 for x in (train, test)
        )
        norm = train.shape[1] ** 0.5
    else:
        train, test = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30) for x in (train, test))
        norm = 1.0 + 1e-6
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, max_iter=1000, random_state=seed)
    return 100 * float(model.fit(train, labels).score(test, answers))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("splits", type=Path)
    parser.add_argument("--write", action="store_true", help="write the splits, in ringfence's environment")
    options = parser.parse_args()
    if options.write:
        write(options.splits, 3, 11)  # those on which `default_settings --seeds 3 --again 8` ends
        return
    warnings.simplefilter("ignore")  # the search of the peer does not always converge
    arrays = np.load(options.splits)
    names = dict.fromkeys(key.split("/")[0] for key in arrays)
    print("data           epsilon  unit rows  given bounds")
    for name in names:
        seeds = sorted({int(key.split("/")[1]) for key in arrays if key.startswith(f"{name}/")})
        for epsilon in EPSILONS:
            found = [
                [
                    accuracy(epsilon, seed, given, *(arrays[f"{name}/{seed}/{i}"] for i in range(4)))
                    for given in (False, True)
                ]
                for seed in seeds
            ]
            unit, given = np.mean(found, axis=0)
            print(f"{name:14} {epsilon:7g} {unit:10.1f} {given:13.1f}", flush=True)


if __name__ == "__main__":
    main()

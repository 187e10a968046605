"""Attacks that must not beat the claims, and planted flaws that they must see.

The exit status is 1 if a claim fell or a flaw was not seen. ``make audit`` runs it.
"""

import argparse
import sys

from ringfence.numerics.blocks import one_thread
from tests.audit.suite import run_audit


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.audit", description=__doc__)
    for name, default, about in (
        ("settings", 5000, "how many random releases to attack"),
        ("trials", 1000, "how many draws of each release"),
        ("tight", 50, "how many releases get 20 times as many draws"),
        ("probes", 30, "how many linear models are trained with and without a record"),
        ("runs", 500, "how often each is trained, with the record and without it"),
        ("seed", 0, "seed of the attacks"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{about} ({default})")
    with one_thread():
        audit = run_audit(**vars(parser.parse_args()))
    print(*audit.lines(), sep="\n")
    sys.exit(not audit.holds)


if __name__ == "__main__":
    main()

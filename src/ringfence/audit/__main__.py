"""The long run: python -m ringfence.audit --settings 5000."""

import argparse
import sys

from rich.console import Console

from ringfence.audit.suite import run_audit
from ringfence.report.audit import audit_table


def main() -> None:
    """Prints the table; the exit status is 1 where a claim fell or a planted flaw was not seen."""
    parser = argparse.ArgumentParser(prog="python -m ringfence.audit", description="Attacks that must fail.")
    parser.add_argument("--settings", type=int, default=5000, help="random releases")
    parser.add_argument("--trials", type=int, default=1000, help="draws of each")
    parser.add_argument("--tight", type=int, default=50, help="releases with 20 times as many draws")
    parser.add_argument(
        "--probes", type=int, default=30, help="linear models trained with and without a record"
    )
    parser.add_argument("--runs", type=int, default=500, help="of each, on either side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--confidence", type=float, default=0.99)
    audit = run_audit(**vars(parser.parse_args()))
    Console().print(audit_table(audit))
    sys.exit(not audit.holds)


if __name__ == "__main__":
    main()

"""What the oracle says at the points of the contract: computed once, kept in recorded.json.

    python -m tests.mechanisms.recorded    computes all of it again and prints what has moved

The integrals in 30 digits took most of the time of the contract. A law that is not in the file, for example
one that is just being added, gets its numbers from the oracle at once, and so does a point that is new.
test_recorded.py computes a few of the numbers again, other ones every day.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

from tests import oracle
from tests.mechanisms.cases import CASES, Case

RECORD = Path(__file__).parent / "recorded.json"
DIGITS = 25
FUNCTIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one for one in (oracle.renyi, oracle.fisher, oracle.hockey_stick, oracle.loss_moments)
}


@cache
def recorded() -> dict[str, list[str]]:
    return json.loads(RECORD.read_text())


def key(function: str, case: str, point: tuple[float, ...], arguments: tuple[float, ...]) -> str:
    """The law, where it stands (theta, sigma, low, high), and what is asked."""
    return json.dumps([function, case, point, arguments])


def computed(name: str) -> list[str]:
    """The numbers of a key, from the oracle."""
    function, law, (theta, *parameters), arguments = json.loads(name)
    (case,) = (one for one in CASES if one.name == law)
    found = FUNCTIONS[function](case.oracle(*parameters), theta, *arguments)
    return [mp.nstr(one, DIGITS) for one in (found if isinstance(found, list) else [found])]


def truth(function: str, case: Case, point: tuple[float, ...], *arguments: float) -> list[mpf]:
    """What ``function`` of the oracle gives for this law, from the record if it is there."""
    name = key(function, case.name, point, arguments)
    return [mpf(text) for text in recorded().get(name) or computed(name)]


def asked() -> Iterator[str]:
    """The keys of everything that the contract asks about the laws of cases.py."""
    from tests.mechanisms import test_contract as contract

    for case in CASES:
        for function, point, arguments in contract.questions():
            yield key(function, case.name, point, arguments)


def differ(one: list[str], other: list[str]) -> bool:
    """In more than the digits that the oracle does not promise."""
    return any(abs(mpf(a) - mpf(b)) > mpf("1e-20") * abs(mpf(b)) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    now = {name: computed(name) for name in asked()}
    for name, values in now.items():
        if name not in recorded() or differ(values, recorded()[name]):
            print(f"{name}: {recorded().get(name)}, now {values}")
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(values)}" for name, values in now.items())
    RECORD.write_text(f"{{\n{rows}\n}}\n")
    print(f"{len(now)} in {RECORD.name}")

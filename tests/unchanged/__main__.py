"""Writes the numbers down anew and says which have moved: python -m tests.unchanged

Do so when a number was meant to move, and say in CHANGELOG.md which and why.
"""

import json

from tests.unchanged.cases import CASES
from tests.unchanged.record import PATH, computed, moved, recorded

if __name__ == "__main__":
    before = recorded() if PATH.exists() else {}
    numbers = {case: computed(case) for case in CASES}
    for case, values in numbers.items():
        for line in moved(before.get(case, values), values):
            print(f"{case}: {line}")
    lines = [f"{json.dumps(case)}: {json.dumps(values)}" for case, values in numbers.items()]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{sum(len(row) for values in numbers.values() for row in values.values())} numbers in {PATH.name}")

"""Publish a table of counts: patients by region and age, small counts suppressed, one sentence to print."""

import numpy as np
import pandas

import ringfence as rf

random = np.random.default_rng(0)
visits = pandas.DataFrame(
    {
        "patient": random.integers(0, 4000, 6000),  # some come more than once
        "region": random.choice(["north", "south", "islands"], 6000, p=[0.6, 0.39, 0.01]),
        "age": random.integers(0, 100, 6000),
    }
)
table = rf.release_counts(
    visits,
    by=["region", "age"],
    domain={"region": ["north", "south", "islands"]},  # public, whatever occurs in the data
    bins={"age": [0, 18, 40, 65, float("inf")]},
    person="patient",
    at_most=2,  # one patient counts in two cells at most
    suppress_below=20,
    epsilon=1.0,
    delta=1e-6,
)
print(table)  # the table, and the sentence that belongs under it
print(f"\nEach count is off by about {table.errors['standard_error'].max():.1f}.")

files = table.save("release")  # what may be published; private="own" writes the account elsewhere
print("\nWritten:", ", ".join(path.name for path in files))
print("\nNot to be published:")
print(table.account.statement)

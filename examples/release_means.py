"""Publish means by region with intervals, from a CSV file that may be larger than memory."""

from pathlib import Path

import numpy as np

import ringfence as rf

random = np.random.default_rng(0)
regions = random.choice(["north", "south", "west"], 5000, p=[0.5, 0.49, 0.01])
incomes = random.lognormal(10.2, 0.6, 5000)
lines = [f"{region},{income:.0f}" for region, income in zip(regions, incomes, strict=True)]
Path("people.csv").write_text("region,income\n" + "\n".join(lines) + "\n")

means = rf.release_means(
    "people.csv",  # or many files, "people/*.parquet", or a frame of pandas, polars or pyarrow
    of="income",
    by="region",
    domain={"region": ["north", "south", "west"]},
    lower=0,
    upper=100_000,  # public limits: larger incomes count as this
    epsilon=1.0,
    delta=1e-6,
)
print(means)

print("\nWithout privacy:")
for region in ("north", "south", "west"):
    own = np.clip(np.round(incomes[regions == region]), 0, 100_000)
    print(f"{region:7s} {own.mean():.0f} ({len(own)} people)")

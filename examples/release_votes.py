"""Publish what an assembly decided: 1,200 people, 30 yes/no questions, one sentence to print."""

import numpy as np
import pandas

import ringfence as rf

random = np.random.default_rng(0)
leaning = random.normal(0, 0.6, 30)  # how much people like each proposal
liked = leaning + random.normal(0, 1, (1200, 30))
answered = random.random((1200, 30)) < 0.6  # nobody answers everything
ballots = pandas.DataFrame(np.where(answered, np.sign(liked), np.nan)).rename(columns="proposal {}".format)
ballots["person"] = range(1200)

votes = rf.release_votes(
    ballots,
    person="person",
    at_most=15,  # fifteen answers of each person count, drawn at random
    epsilon=1.0,
    delta=1e-6,
    publish_epsilon=True,  # what it cost these people may be published too, and is paid for
)
print(votes.values.head())
print(votes.statement.public)
print("\nWhat may be published about its cost:", votes.statement.promises[-1])

majority = np.where(ballots.drop(columns="person").sum() > 0, "yes", "no")
print(f"\n{(votes.values['answer'] == majority).sum()} of 30 answers are those of the majority.")
files = votes.save("release")  # what may be published; private="own" writes the account elsewhere
print("Written:", ", ".join(path.name for path in files))
print("\nNot to be published:")
print(votes.account.statement)

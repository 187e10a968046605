"""Label public pictures by a vote of 250 teachers that were trained on private data, as PATE does."""

import numpy as np

import ringfence as rf

random = np.random.default_rng(0)
truth = random.integers(0, 10, 40)  # what 40 pictures show
easy = random.beta(4, 1, 40)  # how many of the teachers see it
ballots = np.where(random.random((250, 40)) < easy, truth, random.integers(0, 10, (250, 40)))

winners = rf.release_winners(
    ballots,  # rows are teachers, columns pictures; an array in, an array out
    candidates=range(10),
    sigma=20.0,
    confident_above=150,  # pictures on which the teachers disagree stay without a label
    delta=1e-5,
)
labels = winners.values
print(winners.statement.public)
print(f"\n{(labels == truth).sum()} labels right, {(labels == -1).sum()} pictures without one, of 40.")

account = winners.account  # sensitive: all of it but the first number
print(f"\nepsilon for every dataset {account.epsilon:.2f}, and not to be published:")
own = account.guarantee.per_instance
print(f"for these ballots {own.renyi_epsilon:.2f} by Rényi, {account.per_instance.epsilon:.2f} tight")

"""OpenDP shows counts at its Laplace threshold, and its delta leaves these out (its issue 2922)."""

import opendp.prelude as dp

import ringfence as rf

dp.enable_features("contrib")
counts = dp.t.make_count_by(dp.vector_domain(dp.atom_domain(T=str)), dp.symmetric_distance())
release = counts >> dp.m.then_laplace_threshold(scale=1.0, threshold=5)


def shown(people: int, draws: int) -> list[bool]:
    """Whether the group of one person is shown, or of nobody: as many groups, each with noise of its own."""
    groups = [str(place) for place in range(people * draws)]
    found = release(groups)
    return [place in found for place in groups] if people else [False] * draws


print(rf.audit(shown, 1, 0, claim=release.map(1), batched=True).statement)

"""Release a statistic once: how many of 1,000 people said yes to each of 20 questions."""

import torch

import ringfence as rf

generator = torch.Generator().manual_seed(0)
votes = (torch.rand(1000, 20, generator=generator) < torch.linspace(0.2, 0.8, 20)).double()
surplus = (2 * votes - 1).sum(dim=0)  # yes minus no; one person moves each answer by at most 1

for mechanism in (rf.Gaussian(40.0), rf.RectifiedGaussian(40.0, bound=60.0), rf.StochasticSign(40.0)):
    account = rf.PerInstanceAccountant(mechanism, sensitivity=1.0)
    account.step(surplus)  # charged before it is released
    released = mechanism.sample(surplus, generator=generator)
    right = int((released.sign() == surplus.sign()).sum())
    claim = account.guarantee(delta=1e-5)
    here = claim.per_instance.epsilon
    print(f"{mechanism!r:50s} {right:2d} of 20 majorities right, epsilon {here:.3f} for this dataset, "
          f"{claim.epsilon:.3f} for every dataset")  # fmt: skip

print(f"\n{claim.statement}")

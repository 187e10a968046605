"""A private mean of rows of length 1, which features are centred by: one release before training."""

from dataclasses import dataclass

from torch import Tensor

from ringfence.accounting.per_instance import PerInstanceAccountant
from ringfence.accounting.sensitivity import Sensitivity
from ringfence.mechanisms.gaussian import Gaussian
from ringfence.noise import side_by_side
from ringfence.training.clipping import Norm
from ringfence.training.linear.regression import charged_sensitivity
from ringfence.training.linear.run_noise import data_digest, run_noise

CLIP = Norm(1.0)


@dataclass(frozen=True)
class PrivateMean:
    """The mean of rows of length 1, as it was released, and what is needed to account for it.

    ``rows`` and ``theta``, their sum, are private.

    >>> import torch
    >>> rows = torch.eye(2).repeat(500, 1)
    >>> mean = PrivateMean.released(rows, Gaussian(1.0), public_size=1000, seed=0)
    >>> mean.center.numpy().round(2).tolist()
    [0.5, 0.5]
    """

    center: Tensor
    law: Gaussian
    sensitivity: Sensitivity
    rows: Tensor
    theta: Tensor

    @classmethod
    def released(
        cls, rows: Tensor, law: Gaussian, *, public_size: float, seed: int | None, secure: bool = False
    ) -> "PrivateMean":
        """Releases the sum of the rows (n, p) once, and shrinks their mean towards 0 as its noise deserves.

        The shrinking is that of James and Stein and sees what was released alone. ``seed`` and ``secure``
        are those of ``train_linear``.

        Guarantee: one release of a sum that a record moves by at most a length of 1: a longer row counts
        with that length.
        """
        clipped = CLIP(rows.double())
        theta = clipped.sum(dim=0)
        if secure:
            released = law.release(theta)
        else:
            data = b"" if seed is None else data_digest(rows)
            noise = run_noise(seed, data, law, CLIP, (public_size,))
            released = law.sample(theta, generator=side_by_side([noise], "mean", device=theta.device))
        length, spread = float(released.square().sum()), len(theta) * float(law.sigma) ** 2
        kept = max(0.0, 1 - spread / length) if length > 0 else 0.0
        sensitivity = charged_sensitivity(CLIP, len(rows), public_size, secure=secure)
        return cls(kept * released / public_size, law, sensitivity, clipped, theta)

    def charge(self, account: PerInstanceAccountant) -> None:
        """Charges the release to the account."""
        account.step(self.theta, mechanism=self.law, sensitivity=self.sensitivity)

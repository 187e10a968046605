"""The ledger of a run: each sum is charged to the account and written down before it is released."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ringfence.accounting.account import Account
from ringfence.files.journal import Journal
from ringfence.mechanisms.base import Mechanism, Sampler
from ringfence.noise import Noise, side_by_side
from ringfence.training import distributed


class ReleasedBeforeError(ValueError):
    """The sample of this step was released before with another sum: nothing was released now."""


@dataclass
class Ledger:
    """What left the private side, and what it cost.

    The noise of a release depends on the key, on the step and on theta itself: the same theta at the same
    step gives the same release, to the bit, and any other theta gets independent noise. A run that is resumed
    from an earlier point therefore repeats its releases instead of making new ones, and two different sums
    are never covered by the same noise. A sample is released once: two sums of it are not those of two.

    ``secure``: releases are those of ``Mechanism.release``, whose noise is fresh. Such a release cannot be
    repeated: nothing is ``known``, and every release is a new one.

    Guarantee: a release is charged, and written to the journal where there is one, before it is made. A
    release that the journal already holds is not charged again, unless it is made again with other noise.
    """

    mechanism: Mechanism
    account: Account
    noise: Noise
    attempt: int | None  # which sample of each step is drawn; None where steps have no sample
    journal: Journal | None = None
    known: dict[tuple[int, int], str] = field(default_factory=dict)  # digests, by step and attempt
    secure: bool = False
    refused: str | None = None  # the reason why nothing may be released
    most: int | None = None  # how many releases may be charged in all
    _sampler: Sampler | None = field(default=None, init=False, repr=False)  # made with the first theta
    _charged: tuple[int, bytes] | None = field(default=None, init=False, repr=False)  # step, digest

    def release(self, step: int, theta: Tensor, batches: Iterable[Tensor] | None = None) -> Tensor:
        """Returns what the mechanism gives for theta, the sum over all processes.

        ``batches`` are sums over auxiliary batches, which are only drawn if the release is charged.
        """
        if self.refused is not None:
            raise ValueError(self.refused)
        finite = torch.isfinite(theta).all()  # asked for after the digest, so that a GPU is waited for once
        name = self.noise.digest(distributed.from_first(theta))
        if not bool(finite):
            raise ValueError(
                f"the sum of clipped gradients of step {step} is not finite: a gradient is NaN. "
                "Nothing was released; look at the loss and the learning rate"
            )
        place = (step, self.attempt or 0)
        new = self.known.get(place) != name.hex()
        if new and self.attempt is not None and place in self.known:
            raise ReleasedBeforeError(f"the sample of step {step} was released before, with another sum")
        if new and self._charged != (step, name):  # a full disk may have kept it from being released
            if self.most is not None and self.account.steps >= self.most:
                raise ValueError(
                    f"step {step} is beyond the {self.most} steps that were charged beforehand: nothing was "
                    "released"
                )
            self.account.charge(theta, batches)
            self._charged = (step, name)
        if new and self.journal is not None:
            record = {"step": step, "attempt": place[1], "digest": name.hex()}
            self.journal.append({**record, "account": self.account.state_dict()})
        if self.secure:
            return distributed.from_first(self.mechanism.release(theta))
        if self._sampler is None:
            self._sampler = Sampler(self.mechanism, theta.dtype, theta.device)
        draws = side_by_side([self.noise], "noise", step, name, device=theta.device)
        return distributed.from_first(self._sampler.draw(theta, draws))

    def close(self) -> None:
        """Lets go of the journal, so that another run may have it."""
        if self.journal is not None:
            self.journal.close()
            self.journal = None

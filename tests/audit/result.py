"""What an attack of ``make audit`` proved, beside the claims that it must not exceed."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon at this delta and confidence, and the claims that it must not exceed.

    ``exceeded`` is about ex-post numbers: a lower bound on the probability that the realised loss is above
    the epsilon that was claimed for its run, which may be delta.

    >>> AuditResult("a release", 1e-5, 0.99, 1000, epsilon_lower=0.7, claims={"data-independent": 1.2}).holds
    True
    """

    name: str
    delta: float
    confidence: float
    trials: int
    epsilon_lower: float
    claims: dict[str, float] = field(default_factory=dict)
    exceeded: float | None = None

    @property
    def violated(self) -> tuple[str, ...]:
        """The names of the claims that cannot be true, at this confidence."""
        broken = [name for name, epsilon in self.claims.items() if not self.epsilon_lower <= epsilon]
        if self.exceeded is not None and not self.exceeded <= self.delta:
            broken.append("ex-post")
        return tuple(broken)

    @property
    def holds(self) -> bool:
        """Whether the attack leaves every claim standing."""
        return not self.violated

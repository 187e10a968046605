"""What may be said about a release: one sentence to print under it first, and what must not be printed last."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Statement:
    """The words that belong to a release, in the order in which a reader needs them.

    ``public`` is the one sentence to print under the table. ``promises`` and ``leaves_out`` may be published
    too. ``sensitive`` is computed from the data and must not be published.

    >>> said = Statement("Noise was added.", ("One person.",), ("Two people.",), ("Epsilon was 0.3.",))
    >>> print(said.publishable)
    Noise was added.
    <BLANKLINE>
    What this promises
    - One person.
    <BLANKLINE>
    What this does not promise
    - Two people.
    >>> "0.3" in said.publishable, "0.3" in str(said)
    (False, True)
    """

    public: str
    promises: tuple[str, ...]
    leaves_out: tuple[str, ...]
    sensitive: tuple[str, ...]

    @property
    def publishable(self) -> str:
        """Everything but the sensitive part."""
        return "\n\n".join(
            (
                self.public,
                _under("What this promises", self.promises),
                _under("What this does not promise", self.leaves_out),
            )
        )

    def with_sentence(self, sentence: str) -> "Statement":
        """The same with one more public sentence, about what was done to the release afterwards.

        >>> Statement("Noise was added.", (), (), ()).with_sentence("Negative counts were set to 0.").public
        'Noise was added. Negative counts were set to 0.'
        """
        return replace(self, public=f"{self.public} {sentence}")

    def __str__(self) -> str:
        private = _under("Sensitive: computed from the data, do not publish", self.sensitive)
        return f"{self.publishable}\n\n{private}"


def _under(heading: str, sentences: tuple[str, ...]) -> str:
    return "\n".join((heading, *(f"- {sentence}" for sentence in sentences)))

"""Sentences about what a training run takes for granted; they are part of every statement about it."""

from collections.abc import Mapping

from ringfence import checks

SIZE = (
    "The number of records counts as public: public_size was not given, and what was released is divided by "
    "the number of records, which can be read off it."
)
CLASSES = (
    "The set of classes counts as public: public_classes was not given, and the classes of the model are "
    "those that occur in the data."
)
APART = (
    "Every sentence above holds only if the code that puts batches together treats examples apart, and what "
    "the loop does to inputs does: mixup, for example, does not. What is drawn at random there, such as a "
    "crop in the dataset's own code, must stay as secret as the noise."
)
LOSS = (
    "Every sentence above holds only if the loss in the loop treats examples apart: an example's part of it "
    "must depend on that example alone. A mean with CrossEntropyLoss(weight=) divides by the labels of "
    "others, and a mean over tokens by their lengths."
)
PASSES = (
    "Rounding inside of the model: every sentence above holds up to what it does to the gradient of a record "
    "where others go through the model with it. With memory_budget=1 none do."
)
UNITS = (
    "A record is a whole unit, such as a person: every sentence above is about one unit and all its rows, as "
    "far as units names the unit of each row rightly."
)
CUT = (
    "Batches are Poisson samples that are cut at a public maximum: every sentence above is about datasets of "
    "at most {:g} records, and one record more or less."
)
ALLOCATED = (
    "In every epoch each record is in one batch, which is drawn at random for it alone. An epoch counts as a "
    "whole once it was begun."
)
SEED = "A seed was given: every sentence above holds only against those who do not know that seed."

FLOATS = (
    "Floating point: every sentence above is about real numbers, and the last bits of what was released may "
    "tell neighbours apart. Secure releases do not have this gap."
)
OUTSIDE = (
    "The claim covers this training alone: steps before it that were fitted on private data, such as a "
    "scaler in a pipeline, and searches around it, such as a grid search, are not charged."
)


def refuse_secure(secure: bool, seed_name: str, seed: object, public_size: float | None) -> None:
    """Raises a ValueError for a secure run that has a seed, or no public size.

    >>> refuse_secure(True, "seed", 3, public_size=10)
    Traceback (most recent call last):
    ValueError: seed must be None, got 3: secure releases have no seed
    """
    if checks.flag("secure", secure) and seed is not None:
        raise ValueError(f"{seed_name} must be None, got {seed!r}: secure releases have no seed")
    if secure and public_size is None:
        raise ValueError("public_size must be given where releases are secure, got None: they tell the size")


def those(applies: Mapping[str, bool]) -> tuple[str, ...]:
    """Returns the sentences that apply, in the order given.

    >>> those({SIZE: False, SEED: True})
    ('A seed was given: every sentence above holds only against those who do not know that seed.',)
    """
    return tuple(sentence for sentence, does in applies.items() if does)

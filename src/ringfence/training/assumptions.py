"""Sentences about what a training run takes for granted; they are part of every statement about it."""

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
        raise ValueError(
            "public_size must be given where releases are secure, got None: the number of records could be "
            "read off what is released"
        )


def assumptions(
    *,
    size_given: bool,
    seed_given: bool,
    units_given: bool = False,
    secure: bool,
    estimator: bool = False,
    classes_given: bool = True,
    loops: bool = False,
    loss_given: bool = False,
    alone: bool = False,
    most_records: float | None = None,
    allocated: bool = False,
) -> tuple[str, ...]:
    """The sentences that apply to a run.

    The batches of one that ``loops`` are the user's own, and so is its loss, unless it is given; every unit
    goes through the model ``alone``, or not. Accounts of cut samples hold for ``most_records``.
    Batches may be ``allocated``. An ``estimator`` may stand in a pipeline or a search.

    >>> assumptions(size_given=True, seed_given=False, secure=True)
    ()
    >>> len(assumptions(size_given=False, seed_given=True, secure=False))
    3
    """
    said = (
        (SIZE, not size_given),
        (CLASSES, not classes_given),
        (APART, loops),
        (LOSS, loops and not loss_given),
        (PASSES, loops and secure and not alone),
        (UNITS, units_given),
        (CUT.format(most_records or 0), most_records is not None),
        (ALLOCATED, allocated),
        (SEED, seed_given),
        (FLOATS, not secure),
        (OUTSIDE, estimator),
    )
    return tuple(sentence for sentence, applies in said if applies)

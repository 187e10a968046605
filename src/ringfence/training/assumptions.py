"""Sentences about what a training run takes for granted; they are part of every statement about it."""

SIZE = (
    "The number of records counts as public: public_size was not given, and what was released is divided by "
    "the number of records, which can be read off it."
)
CLASSES = (
    "The set of classes counts as public: public_classes was not given, and the classes of the model are "
    "those that occur in the data."
)
PROJECTION = (
    "Features were mapped by public_projection: every sentence above holds only if that was made from "
    "constants and public data alone."
)
WEIGHTS = (
    "Examples were weighted: every sentence above holds only if class_weight and public_largest_weight were "
    "chosen by constants and public data alone."
)
APART = (
    "Every sentence above holds only if the code that puts batches together treats examples apart, and if "
    "the loss does: an example's part of it must depend on that example alone."
)
SEED = "A seed was given: every sentence above holds only against those who do not know that seed."


def assumptions(
    *,
    size_given: bool,
    seed_given: bool,
    classes_given: bool = True,
    projection_given: bool = False,
    weights_given: bool = False,
    loops: bool = False,
) -> tuple[str, ...]:
    """The sentences that apply to a run; ``loops`` is one whose batches and loss are the user's own.

    >>> assumptions(size_given=True, seed_given=False)
    ()
    >>> len(assumptions(size_given=False, seed_given=True))
    2
    """
    said = (
        (SIZE, not size_given),
        (CLASSES, not classes_given),
        (PROJECTION, projection_given),
        (WEIGHTS, weights_given),
        (APART, loops),
        (SEED, seed_given),
    )
    return tuple(sentence for sentence, applies in said if applies)

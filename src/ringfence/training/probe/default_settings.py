"""What a linear probe is trained with where only a target epsilon is given: a rule of public numbers.

Let mu be the Gaussian-DP parameter of the target, n the public size, and K the number of classes. Rows have
length 1. The movement of a run is how far the weights would go if all clipped gradients
of all its steps were the same vector of length 1:

    movement = learning_rate * clip * steps / (1 - momentum).

The noise in the score of a row then has the standard deviation movement / (mu n), whatever the clip and the
number of steps. The rule lets the weights go until that noise is 1.4, and no farther than is of use for K
classes. ``benchmarks/default_settings.py`` compares the rule with the best of a search.
"""

import math
from dataclasses import dataclass

from ringfence.training.clipping import Norm


@dataclass(frozen=True)
class DefaultSettings:
    """The settings that the rule gives.

    ``share`` of mu^2 is spent on a private mean of the rows; 0 means that no mean is released.
    """

    share: float
    clip: Norm
    steps: int
    momentum: float
    movement: float


def default_settings(
    mu: float, public_size: float, features: int, classes: int, *, centred: bool, unit_rows: bool
) -> DefaultSettings:
    """The rule. ``centred``: features were shifted by public means. ``unit_rows``: rows have length 1.

    >>> rule = default_settings(0.268, 50_000, 1280, 10, centred=False, unit_rows=True)
    >>> rule.share, rule.clip, rule.steps, rule.momentum, round(rule.movement)
    (0.05, Norm(0.1), 32, 0.5, 18285)
    """
    noise = math.sqrt(features) / (mu * public_size)  # of the mean, as a length, were all of mu spent on it
    share = min(max(noise, 0.05), 0.15) if noise < 0.5 else 0.0
    if centred:  # what is left of the mean is short, and worth little
        share = 0.05 if noise < 0.2 else 0.0
    if not unit_rows:  # how far one row moves the sum of the rows is not known
        share = 0.0
    movement = min(1.4 * math.sqrt(1 - share) * mu * public_size, 3000.0 * classes)
    return DefaultSettings(share, Norm(0.1), 32, 0.5, movement)

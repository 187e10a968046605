"""How long-running work tells how far it is."""

from collections.abc import Callable

Progress = Callable[[str, float], None]  # the name of the part, and the share of it that is done, from 0 to 1

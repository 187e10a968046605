"""From divergences to what may be said."""

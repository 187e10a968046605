"""The tight (epsilon, delta) of a fixed theta."""

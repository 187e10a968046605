"""Bad input, systematically: what a user may type, and what must come of it (``python -m tests.fuzz``)."""

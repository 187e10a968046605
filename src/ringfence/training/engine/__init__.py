"""Private training of any torch model."""

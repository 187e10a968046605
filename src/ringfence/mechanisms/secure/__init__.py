"""Releases on a public grid, with randomness from the operating system."""

"""Numerical building blocks. Nothing here knows about privacy."""

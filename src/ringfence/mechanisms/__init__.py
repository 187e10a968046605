"""Mechanisms, one law per file."""

"""Accounting: the cost of releases, by every kind of accountant."""

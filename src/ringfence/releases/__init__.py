"""Releases of statistics of people: counts, means, votes and winners, with noise and an account."""

"""A real assembly's ballots."""

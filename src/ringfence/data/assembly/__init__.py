"""A real assembly's ballots, which come with the package."""

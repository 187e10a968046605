"""Ballots of people: what was answered, what one voter can change, and what a decision costs the voters."""

"""Files of features with labels, public projections, and the ballots of an assembly."""

"""Files of features with labels, and the ballots of an assembly."""

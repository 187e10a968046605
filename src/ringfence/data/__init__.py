"""Files of features with labels."""

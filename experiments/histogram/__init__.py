"""Figure 5b: a histogram whose small counts are suppressed."""

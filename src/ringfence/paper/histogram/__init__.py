"""Figure 5b: a histogram with small counts suppressed."""

"""Figure 2: the mean of 900 records, its cost and its error."""

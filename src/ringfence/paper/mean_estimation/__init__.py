"""Figure 2: the mean of 900 records."""

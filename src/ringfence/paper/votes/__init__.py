"""Figure 5a: votes."""

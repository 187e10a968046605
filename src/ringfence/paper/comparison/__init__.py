"""Figure 3: epsilon at equal accuracy."""

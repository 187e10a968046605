"""Figure 3: epsilon at equal accuracy, from finished sweeps. Imports no training."""

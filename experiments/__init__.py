"""The paper's experiments: each figure's rows beside its chart, sweeps, and the page of all figures."""

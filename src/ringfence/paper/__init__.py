"""The paper's experiments: the rows of each figure beside its chart."""

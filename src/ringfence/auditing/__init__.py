"""Lower bounds of epsilon that attacks prove: of any function, of scores, of a training run."""

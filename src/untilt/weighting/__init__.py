"""Layer 3: a debiasing method is a K x K table of pair weights, and nothing else."""

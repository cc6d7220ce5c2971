"""Layer package: weighting."""

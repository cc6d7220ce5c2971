"""Layer 4: rankers. What varies between methods is a weighting that is passed in."""

"""Layer 5: choosing rankers and their parameters by held-out clicks."""

"""Layer package: evaluation."""

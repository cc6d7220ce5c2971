"""Layer package: metrics."""

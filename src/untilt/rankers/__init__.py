"""Layer package: rankers."""

"""Layer package: objectives."""

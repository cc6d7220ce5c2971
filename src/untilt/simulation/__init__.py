"""Layer package: simulation."""

"""Layer package: cli."""

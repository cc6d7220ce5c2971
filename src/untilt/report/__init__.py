"""Layer package: report."""

"""Layer package: bias."""

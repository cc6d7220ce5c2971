"""Layer package: clickmodels."""

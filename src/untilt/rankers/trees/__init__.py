"""Boosted trees on LightGBM."""

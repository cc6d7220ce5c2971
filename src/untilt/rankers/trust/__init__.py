"""Pairwise debiasing with trust bias."""

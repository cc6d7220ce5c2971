"""Rankers that are small networks (extra `neural`)."""

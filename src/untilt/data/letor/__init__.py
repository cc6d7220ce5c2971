"""Judged lists from and to LETOR text."""

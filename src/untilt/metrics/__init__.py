"""Ranking metrics on arrays (scores, labels, indptr). Nothing here knows a click log."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

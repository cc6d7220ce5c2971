"""Rankers. What varies between methods is a weighting that is passed in."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

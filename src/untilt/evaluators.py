"""Evaluators of a new order from old clicks, and the tests of what they say."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

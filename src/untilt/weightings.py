"""Weightings: each is a K x K table of pair weights, or weights of a click model."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

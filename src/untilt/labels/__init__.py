"""Grades of people or of a language model beside clicks: which to buy, and what they show."""

from untilt import _names

__getattr__, __dir__ = _names.namespace(__name__)

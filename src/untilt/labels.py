"""Grades of people or of a language model beside clicks: which to buy, and what they show."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

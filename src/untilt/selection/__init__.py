"""Choosing rankers and their parameters by held-out clicks."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

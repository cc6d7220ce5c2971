"""Logs with a known truth. Nothing that learns may import this package."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

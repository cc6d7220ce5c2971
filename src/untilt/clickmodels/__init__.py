"""Click models. How people read a page, learned from repeated sessions."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

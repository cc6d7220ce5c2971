"""Click logs and judged lists, from and to disk."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

"""Public click logs and judged sets in the layout of their releases. Nothing is downloaded."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

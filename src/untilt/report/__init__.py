"""Charts, for the command line and for reports."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

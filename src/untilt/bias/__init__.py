"""Position bias, given or estimated, always with its uncertainty."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

"""Training where no machine holds the whole log: XGBoost in many workers, with our objective."""

from untilt._names import namespace

__getattr__, __dir__ = namespace(__name__)

"""untilt: learn rankers from biased clicks."""

from untilt._version import __version__
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists

__all__ = ["ClickLog", "JudgedLists", "__version__"]

"""Layer 2: click models. How people read a page, learned from repeated sessions."""

from typing import TYPE_CHECKING

from untilt.catalog import methods

if TYPE_CHECKING:
    from untilt.clickmodels.base import ClickModel

    ALL_CLICK_MODELS: "tuple[type[ClickModel], ...]"


def __getattr__(name: str) -> object:
    # Not at import: a single model is used without compiling the others. From simple to rich.
    if name != "ALL_CLICK_MODELS":
        raise AttributeError(f"module 'untilt.clickmodels' has no attribute {name!r}")
    return tuple(record.load() for record in methods("click model"))

"""Layer 2: click models. How people read a page, learned from repeated sessions."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from untilt.clickmodels.base import ClickModel

    ALL_CLICK_MODELS: "tuple[type[ClickModel], ...]"

# A new model needs one line here; the contract tests and `compare_click_models` then include it.
# From simple to rich.
_MODELS = {
    "GCTR": "untilt.clickmodels.rates",
    "RCTR": "untilt.clickmodels.rates",
    "DCTR": "untilt.clickmodels.rates",
    "PBM": "untilt.clickmodels.pbm",
    "CM": "untilt.clickmodels.cascade",
    "DCM": "untilt.clickmodels.dcm",
    "SDBN": "untilt.clickmodels.dbn",
    "DBN": "untilt.clickmodels.dbn",
    "CCM": "untilt.clickmodels.ccm",
    "UBM": "untilt.clickmodels.ubm",
    "NCM": "untilt.clickmodels.ncm",
}


def __getattr__(name: str) -> object:
    # Not at import: a single model is used without compiling the others.
    if name != "ALL_CLICK_MODELS":
        raise AttributeError(f"module 'untilt.clickmodels' has no attribute {name!r}")
    return tuple(getattr(import_module(home), model) for model, home in _MODELS.items())

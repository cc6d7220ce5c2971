"""untilt: learn rankers from biased clicks.

`dir(untilt)` lists what most programs need, and the namespaces that hold the rest: `ut.bias`,
`ut.weightings`, `ut.evaluators` and so on. Every public name can also be had from here, such as
`ut.AdjacentSwap`. `untilt._names` says where each lives.
"""

from importlib import import_module

from untilt import _names
from untilt._version import __version__ as __version__
from untilt.errors import UntiltError as UntiltError


def __getattr__(name: str) -> object:
    if name == "__all__":
        return sorted(["UntiltError", "__version__", *_names.FRONT, *_names.MODULES])
    if name in _names.MODULES:
        return import_module(f"untilt.{name}")
    globals()[name] = value = _names.fetched("untilt", name)
    return value


def __dir__() -> list[str]:
    return list(__getattr__("__all__"))  # type: ignore[call-overload]

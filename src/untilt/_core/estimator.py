"""The contract of what learns: scikit-learn's own where it is installed, else the part that we use.

Whoever searches a grid or builds a pipeline has scikit-learn, and gets its `BaseEstimator` with all
that its tools ask for. Nobody else needs its 51 MB: reading, setting and copying parameters is all
that untilt itself does.
"""

import inspect
from copy import deepcopy
from typing import Any

__all__ = ["BaseEstimator", "PlainEstimator", "clone", "plain_clone"]


class PlainEstimator:
    """Parameters are the arguments of the constructor, which only stores them."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        if cls.__init__ is object.__init__:
            return []
        given = list(inspect.signature(cls.__init__).parameters.values())[1:]
        return sorted(each.name for each in given if each.kind is not each.VAR_KEYWORD)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Name -> value of each parameter; with `deep`, those of a parameter too: outer__inner."""
        params: dict[str, Any] = {}
        for name in self._get_param_names():
            value = params[name] = getattr(self, name)
            if deep and _is_estimator(value):
                params |= {f"{name}__{inner}": each for inner, each in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> "PlainEstimator":
        """Set parameters by their names; outer__inner sets one of a parameter's own."""
        known = self._get_param_names()
        nested: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            outer, divider, inner = name.partition("__")
            if outer not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {outer!r}. It has: {', '.join(known)}."
                )
            if divider:
                nested.setdefault(outer, {})[inner] = value
            else:
                setattr(self, outer, value)
        for outer, inner_params in nested.items():
            getattr(self, outer).set_params(**inner_params)
        return self

    def __repr__(self) -> str:
        """The class with the parameters that differ from their defaults."""
        defaults = {
            each.name: each.default for each in inspect.signature(type(self)).parameters.values()
        }
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(defaults[name])
        )
        return f"{type(self).__name__}({', '.join(changed)})"


def plain_clone(estimator: Any) -> Any:
    """The same kind with copies of the parameters, and nothing that was learned."""
    if isinstance(estimator, list | tuple | set | frozenset):
        return type(estimator)([plain_clone(each) for each in estimator])
    if not _is_estimator(estimator):
        return deepcopy(estimator)
    params = estimator.get_params(deep=False)
    return type(estimator)(**{name: plain_clone(value) for name, value in params.items()})


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


try:
    from sklearn.base import BaseEstimator, clone
except ImportError:
    BaseEstimator, clone = PlainEstimator, plain_clone

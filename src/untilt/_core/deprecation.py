"""Old names that still work, with a warning that says the new one."""

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def renamed_arguments(**new_names: str | None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: old keyword -> its new name, or None where it is no longer needed.

    >>> @renamed_arguments(tau="clip")
    ... def clipped(clip): ...
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> R:
            options: dict[str, Any] = given
            for old in [name for name in new_names if name in options]:
                new, value = new_names[old], options.pop(old)
                advice = "leave it out" if new is None else f"it is called {new}"
                warnings.warn(
                    f"{function.__name__}({old}=...) is deprecated: {advice}.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                if new is not None:
                    options[new] = value
            return function(*args, **options)

        return call

    return decorate


def renamed_attribute(old: str, new: str) -> Any:
    """A read-only attribute under its old name."""

    def read(self: Any) -> Any:
        message = f"{type(self).__name__}.{old} is deprecated: it is called {new}."
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(read, doc=f"Deprecated: `{new}`.")

"""Candidates for a search: every combination of some parameters, or one parameter doubled."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from untilt.errors import OptionError

LONGEST = 40


def grid(estimator: Any, /, **values: Sequence[Any]) -> dict[str, Any]:
    """Copies of an estimator, one for each combination of parameter values, by a telling name.

    >>> from sklearn.linear_model import Ridge
    >>> list(grid(Ridge(), alpha=[1, 2], fit_intercept=[True]))
    ['alpha=1, fit_intercept=True', 'alpha=2, fit_intercept=True']
    """
    from sklearn.base import clone

    for name, options in values.items():
        if isinstance(options, str) or len(options) == 0:
            raise OptionError(f"grid needs a list of values for {name!r}. Got {options!r} instead.")
    found: dict[str, Any] = {}
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        _check_names(estimator, chosen)
        name = ", ".join(f"{key}={_short(value)}" for key, value in chosen.items())
        found[_fresh(name or type(estimator).__name__, found)] = clone(estimator).set_params(
            **chosen
        )
    return found


def doubling(estimator: Any, parameter: str, *, start: float, times: int = 8) -> dict[str, Any]:
    """One parameter from `start`, doubled `times` times: how the arXiv study chose its C.

    ([mao_arxivlogs]_ section 5.2, with `metric="arp"`.)
    """
    if not (start > 0 and times >= 1):
        raise OptionError(
            f"doubling needs start above 0 and times of at least 1. Got {start} and {times}."
        )
    return grid(estimator, **{parameter: [start * 2.0**step for step in range(times + 1)]})


def named_candidates(candidates: Any) -> dict[str, Any]:
    """Candidates by name; those of a plain sequence are named after their kind."""
    if isinstance(candidates, Mapping):
        named = {str(name): candidate for name, candidate in candidates.items()}
    else:
        named = {}
        for candidate in candidates:
            named[_fresh(_short(candidate), named)] = candidate
    if not named:
        raise OptionError("no candidate to choose from. Give at least one, such as a LambdaMART.")
    for name, candidate in named.items():
        if not (hasattr(candidate, "fit") and hasattr(candidate, "predict")):
            raise OptionError(
                f"candidate {name!r} must have fit(log) and predict(features). "
                f"Got {type(candidate).__name__} instead."
            )
    return named


def _check_names(estimator: Any, chosen: Mapping[str, Any]) -> None:
    known = estimator.get_params()
    for name in chosen:
        if name not in known:
            raise OptionError(
                f"{type(estimator).__name__} has no parameter {name!r}. It has: {', '.join(known)}."
            )


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else repr(value).strip("'")
    return text if len(text) <= LONGEST and "\n" not in text else type(value).__name__


def _fresh(name: str, taken: Mapping[str, Any]) -> str:
    """The name, numbered where it is taken."""
    if name not in taken:
        return name
    return next(f"{name} ({n})" for n in itertools.count(2) if f"{name} ({n})" not in taken)

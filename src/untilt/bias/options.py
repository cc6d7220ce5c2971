"""Estimators of position bias written as text: "shuffled-top:top=10,check=false".

Every option of a constructor can be written so, by the types that the constructor names. Text and
numbers stand as they are, "none" is no value, and what begins with a bracket is JSON:
widths=[64,32], ranker={"treatment": [2, 5], "control": "base"}.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, get_type_hints

from untilt import catalog
from untilt._core.printed import option_pairs, parse_options
from untilt.bias.estimator import BiasEstimator
from untilt.bias.given import Examination, parse_bias


class AskedEstimator(NamedTuple):
    """An estimator that was asked for by text, and its options."""

    kind: type[BiasEstimator]
    options: Mapping[str, Any]


def parse_estimator(text: str) -> AskedEstimator:
    """The estimator of "name" or "name:option=value,...".

    >>> asked = parse_estimator("shuffled-top:top=10,check=false")
    >>> asked.kind.__name__, dict(asked.options)
    ('ShuffledTop', {'top': 10, 'check': False})
    """
    name, colon, given = text.partition(":")
    kind: type[BiasEstimator] = catalog.find("bias", name).load()
    return AskedEstimator(kind, estimator_options(kind, option_pairs(given) if colon else ()))


def estimator_options(kind: type[BiasEstimator], pairs: Iterable[str]) -> dict[str, Any]:
    """The options that "name=value" texts stand for, of the types that the constructor names."""
    hints, name = get_type_hints(kind.__init__), catalog.record_of(kind, "bias").name
    kinds = {each: hints[each] for each in kind().get_params() if each in hints}
    return parse_options(pairs, kinds, name, others=CURVES)


# Curves in options: their text and the name of the option -> the curve.
CURVES = {Examination: lambda text, what: parse_bias(text, what=what)}

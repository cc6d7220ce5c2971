"""What every estimator of position bias shares: the constructor stores, `fit` checks and learns.

Estimators of position bias written as text: "shuffled-top:top=10,check=false".

Every option of a constructor can be written so, by the types that the constructor names. Text and
numbers stand as they are, "none" is no value, and what begins with a bracket is JSON:
widths=[64,32], ranker={"treatment": [2, 5], "control": "base"}.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

import numpy as np

from untilt import catalog
from untilt._core.arrays import sum_by
from untilt._core.estimator import BaseEstimator
from untilt._core.printed import option_pairs, parse_options
from untilt._core.statistics import check_level
from untilt._core.threads import one_blas_thread
from untilt.bias.curve import PositionBias
from untilt.bias.curve_operations import on_page
from untilt.bias.given import Examination, parse_bias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, left_out, position_counts
from untilt.data.layout import Packed, Slots
from untilt.data.limits import check_room
from untilt.data.shown import check_shown
from untilt.errors import DepthError, IdentifiabilityError, OptionError, UntiltError
from untilt.facts import Fact, joined, phrase, positions_text, warning

LEFT_OUT = warning(
    "bias.slots-left-out",
    "without {positions:positions}, where the page shows no results or too few to compare",
)
FIRST_LEFT_OUT = warning(
    LEFT_OUT.code, LEFT_OUT.template + ": ratios are to position {first}, not to position 1"
)

BYTES_PER_ROW = 48  # of working memory, measured for `AllPairs` on lists that are all different


class BiasEstimator(BaseEstimator):
    """Base of all estimators. The constructor only stores; `fit` sets `bias_`.

    Sessions are used through sums over equal lists alone: a counted list and its repeated sessions
    give the same result, and the order of lists plays no part. Relevance belongs to a (query,
    document) whatever its features were at the time, unless it is learned from them.
    """

    bias_: PositionBias
    level: float
    _bounds_dead: ClassVar[bool] = False

    def fit(self, log: ClickLog) -> Self:
        """Estimate the bias of this log. Raises `IdentifiabilityError` where it cannot be had."""
        check_clicks(log, type(self).__name__)
        check_level(self.level)
        by_version = self._uses_features and log.features is not None
        used = log if by_version else log.without_versions()
        with one_blas_thread:
            bias = over_slots(
                used, self._lists(used), self._estimate, bounds_dead=self._bounds_dead
            )
        self.bias_ = self._reshaped(bias)
        return self

    def _lists(self, log: ClickLog) -> ClickLog:
        """The lists whose clicks make the curve."""
        return log

    def _reshaped(self, bias: PositionBias) -> PositionBias:
        """The curve by the numbers of the page, in the shape that was asked for."""
        return bias

    @property
    def _uses_features(self) -> bool:
        """Whether features are looked at where there are any, such as to learn relevance."""
        return False

    @abstractmethod
    def _estimate(self, log: ClickLog) -> PositionBias:
        """The bias of a checked log."""


def over_slots(
    log: ClickLog,
    counted: ClickLog,
    estimate: Callable[[ClickLog], PositionBias],
    *,
    bounds_dead: bool = False,
) -> PositionBias:
    """The curve over the positions that hold results, whatever the gaps between them.

    The estimate sees positions without gaps; its curve and its facts have the numbers of the page.
    `counted` are the lists that tell which positions hold results; `bounds_dead` : the estimate has
    a bound where nothing was clicked.
    """
    absent = absent_positions(counted, dead=not bounds_dead)
    if not absent:
        bias = estimate(log)
        return bias if log.layout is None else replace(bias, layout=log.layout)
    packed = Packed(absent)
    try:
        found = estimate(packed.of(log))
    except UntiltError as error:
        told, text = f" (Positions are counted without {positions_text(absent)}.)", error.args[0]
        is_fact = isinstance(text, Fact)  # a text keeps its marks, a fact its fields
        error.args = (phrase("{text}{told}", text=text, told=told) if is_fact else text + told,)
        raise
    page = numbered_as(found, packed)
    return page if log.layout is None else replace(page, layout=log.layout)


def numbered_as(bias: PositionBias, packed: Packed) -> PositionBias:
    """The curve and its facts by the numbers of the page."""
    if not packed.absent:
        return bias
    numbers = packed.numbers(bias.depth).tolist()
    sentence = LEFT_OUT if numbers[0] == 1 else FIRST_LEFT_OUT
    left = sentence(positions=packed.absent, first=numbers[0])
    return replace(
        on_page(bias, Slots(packed.absent)),
        status=joined(bias.status.located(numbers), left),
        assumes=tuple(each.located(numbers) for each in bias.assumes),
    )


def check_clicks(log: ClickLog, method: str) -> None:
    """Raise unless `log` is a click log with clicks (0 or 1), at least one of them."""
    if not isinstance(log, ClickLog):
        raise OptionError(
            f"{method}.fit needs a ClickLog. Got {type(log).__name__} instead; "
            "untilt.read_log makes one."
        )
    check_room(log, method, per_row=BYTES_PER_ROW)
    if not log.is_binary:
        others = ", ".join(log.extra_labels) or "none"
        raise OptionError(
            f"⟦{method}⟧ needs clicks, 0 or 1. The label {log.label_name!r} has other "
            "values. Choose a click column with ⟦log.with_label(name)|--label NAME⟧ "
            f"(this log also has: {others})⟦, or make one: log.with_label((log.label > "
            "0).astype(float))|⟧."
        )
    if not log.label.any():
        raise IdentifiabilityError(
            f"this log has no clicks ({log.n_sessions:,} sessions): ⟦{method}⟧ has nothing to "
            "learn from. Check which column holds the clicks."
        )
    check_shown(log)


def absent_positions(log: ClickLog, *, dead: bool = True) -> tuple[int, ...]:
    """The positions that show no results, or too few to compare; see `counts.left_out`."""
    rows = log.position - 1
    shown, clicks = sum_by(rows, log.row_count), sum_by(rows, log.row_count * log.label)
    return tuple((np.flatnonzero(left_out(shown, clicks, dead=dead)) + 1).tolist())


def place_of(log: ClickLog, position: int) -> int:
    """A position of the page as this log numbers it; what is left out counts as the one above."""
    page = log.layout
    return int(page.ranks(position)[-1]) if isinstance(page, Packed) and position > 0 else position


def checked_depth(log: ClickLog, depth: int | None) -> int:
    """The lowest position that is asked for; that of the log where not given."""
    if depth is None:
        return log.depth
    depth = place_of(log, depth)
    if not 1 <= depth <= log.depth:
        raise DepthError(
            f"depth must be one of the positions 1..{log.depth} of the log. Got {depth} instead."
        )
    return depth


def require_several(depth: int) -> None:
    """Raise where there is only position 1, to which examination is relative."""
    if depth == 1:
        raise IdentifiabilityError(
            "only position 1 is asked for or shown, and examination is relative to it: there is "
            "nothing to estimate. Read the deeper positions of the log, too."
        )


def counts_to(log: ClickLog, depth: int | None) -> PositionCounts:
    """The counts of positions 1..depth; all of the log where not given."""
    depth = checked_depth(log, depth)
    return position_counts(log if depth == log.depth else log.top(depth))


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

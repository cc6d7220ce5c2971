"""What every estimator of position bias shares: the constructor stores, `fit` checks and learns."""

from abc import abstractmethod
from dataclasses import replace
from typing import Self

from untilt._core.estimator import BaseEstimator
from untilt._core.statistics import check_level
from untilt._core.threads import one_blas_thread
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.data.limits import check_room
from untilt.data.shown import check_shown
from untilt.errors import DepthError, IdentifiabilityError, OptionError

BYTES_PER_ROW = 48  # of working memory, measured for `AllPairs` on lists that are all different


class BiasEstimator(BaseEstimator):
    """Base of all estimators. The constructor only stores; `fit` sets `bias_`.

    Sessions are used through sums over equal lists alone: a counted list and its repeated sessions
    give the same result, and the order of lists plays no part. Relevance belongs to a (query,
    document) whatever its features were at the time, unless it is learned from them.
    """

    bias_: PositionBias
    level: float

    def fit(self, log: ClickLog) -> Self:
        """Estimate the bias of this log. Raises `IdentifiabilityError` where it cannot be had."""
        check_clicks(log, type(self).__name__)
        check_level(self.level)
        by_version = self._uses_features and log.features is not None
        with one_blas_thread:
            bias = self._estimate(log if by_version else log.without_versions())
        self.bias_ = bias if log.layout is None else replace(bias, layout=log.layout)
        return self

    @property
    def _uses_features(self) -> bool:
        """Whether features are looked at where there are any, such as to learn relevance."""
        return False

    @abstractmethod
    def _estimate(self, log: ClickLog) -> PositionBias:
        """The bias of a checked log."""


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
            f"nobody clicked in this log ({log.n_sessions:,} sessions): ⟦{method}⟧ has nothing to "
            "learn from. Check which column holds the clicks."
        )
    check_shown(log)


def checked_depth(log: ClickLog, depth: int | None) -> int:
    """The lowest position that is asked for; that of the log where not given."""
    if depth is None:
        return log.depth
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

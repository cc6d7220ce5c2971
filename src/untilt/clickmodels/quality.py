r"""How well click models predict sessions that they have not seen.

Perplexity at position k of N_k impressions, with p the model's click probability:

    2^(-1/N_k sum (c log2 p + (1 - c) log2(1 - p)))

1 is perfect, 2 is a coin ([dupret2008ubm]_, [chuklin2015click]_). The overall figure is the mean
over positions, as the literature has it. With p marginal it says how well pages are predicted
before anybody has clicked; *conditional* perplexity takes p given the clicks above, and its sum of
logs is the likelihood. One impossible click would make all of this infinite, so p is kept within
[floor, 1 - floor]; `ruled_out` says how often that mattered.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.portable import Portable
from untilt._core.random import Seed, generator
from untilt._core.statistics import Interval, bootstrap_weights, check_level
from untilt.clickmodels.click_model import ClickModel
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice

UNITS = ("auto", "query", "session")
FEWEST_QUERIES = 20  # below, queries are too few to draw from; as `untilt.bias.harvesting.pairs`


@dataclass(frozen=True)
class Measured:
    """A figure with its bootstrap interval."""

    value: float
    interval: Interval

    def __repr__(self) -> str:
        return f"{self}"

    def __format__(self, sign: str) -> str:
        """The value and its interval, with the sign "+" where it is asked for."""
        low, high = self.interval.low, self.interval.high
        return f"{self.value:{sign}.4f} [{low:{sign}.4f}, {high:{sign}.4f}]"


@dataclass(frozen=True, eq=False)
class ByPosition(Portable):
    """A figure at each position with its bootstrap interval; NaN where nothing was shown."""

    position: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Losses:
    """Bits per row of one model, sums by unit and position: (units, K) each."""

    marginal: FloatArray
    conditional: FloatArray
    ruled_out: float


@dataclass(frozen=True, eq=False)
class Units:
    """What is drawn anew in the bootstrap: queries, or single sessions of counted lists.

    of_list : (lists,) unit of each list; per_session : whether a unit stands for `sessions` draws
    sessions : (units,); shown : (units, K) impressions
    """

    name: str
    of_list: IntArray
    sessions: FloatArray
    shown: FloatArray

    @property
    def per_session(self) -> bool:
        """Whether each session is drawn by itself."""
        return self.name == "session"


def units_of(log: ClickLog, by: str) -> Units:
    """Queries where there are at least twenty, else sessions, unless `by` says which."""
    check_choice("by", by, UNITS)
    queries, of_list = np.unique(log.query, return_inverse=True)
    if by == "session" or (by == "auto" and len(queries) < FEWEST_QUERIES):
        name, of_list, n = "session", np.arange(log.n_lists), log.n_lists
    else:
        name, n = "query", len(queries)
        if n < 2:
            raise OptionError('intervals by="query" need at least two queries. Use by="session".')
    sessions = sum_by(of_list, log.sessions, n)
    shown = sums_by_unit(log, of_list, n, np.ones(len(log.position)))
    return Units(name, of_list, sessions, shown)


def sums_by_unit(log: ClickLog, of_list: IntArray, n: int, value: FloatArray) -> FloatArray:
    """(units, K) sums of a number per row over sessions."""
    unit = np.repeat(of_list, ragged.lengths(log.indptr))
    cell = unit * log.depth + (log.position - 1)
    flat = sum_by(cell, value * log.row_count, n * log.depth)
    return flat.reshape(n, log.depth)


def losses(model: ClickModel, log: ClickLog, units: Units, floor: float) -> Losses:
    """The bits that each prediction of a fitted model costs."""
    clicked = log.label > 0
    marginal, _ = _bits(model.click_probability(log), clicked, floor)
    conditional, impossible = _bits(model.conditional_probability(log), clicked, floor)
    n = len(units.sessions)
    return Losses(
        marginal=sums_by_unit(log, units.of_list, n, marginal),
        conditional=sums_by_unit(log, units.of_list, n, conditional),
        ruled_out=float(np.dot(impossible, log.row_count) / log.row_count.sum()),
    )


def _bits(p: FloatArray, clicked: BoolArray, floor: float) -> tuple[FloatArray, BoolArray]:
    """-log2 of the probability of what happened, and whether the floor had to be used for it."""
    happened = np.where(clicked, p, 1 - p)
    return -np.log2(np.clip(happened, floor, 1 - floor)), happened < floor


def draws(units: Units, columns: FloatArray, n_draws: int, seed: Seed) -> FloatArray:
    """(1 + n_draws, columns) sums of the columns (units, columns): as they are, then redrawn.

    Units of a bootstrap sample are drawn with replacement; a counted list is drawn session by
    session.
    """
    rng = generator(seed)
    made = np.empty((1 + n_draws, columns.shape[1]))
    made[0] = columns.sum(axis=0)
    n = int(units.sessions.sum()) if units.per_session else len(units.sessions)
    chance = units.sessions / units.sessions.sum() if units.per_session else np.full(n, 1 / n)
    weight_of_one = 1 / units.sessions if units.per_session else np.ones(n)
    for draw in range(1, n_draws + 1):
        made[draw] = (rng.multinomial(n, chance) * weight_of_one) @ columns
    return made


def measured(values: FloatArray, level: float) -> Measured:
    """The first value, with the quantiles of the others."""
    low, high = _quantiles(values[1:], level)
    return Measured(float(values[0]), Interval(float(low), float(high), level))


def by_position(values: FloatArray, level: float) -> ByPosition:
    """The first row, with the quantiles of the others."""
    low, high = _quantiles(values[1:], level)
    return ByPosition(np.arange(1, values.shape[1] + 1), values[0], low, high)


def _quantiles(values: FloatArray, level: float) -> FloatArray:
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)


def perplexities(bits: FloatArray, shown: FloatArray) -> FloatArray:
    """(draws, K) 2^(bits / impressions); NaN where a draw shows nothing."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.exp2(bits / shown)


def check_options(n_draws: int, level: float, floor: float) -> None:
    """Raise unless intervals can be made."""
    check_level(level)
    if n_draws < 20:
        raise OptionError(f"n_draws must be at least 20. Got {n_draws} instead; 300 is usual.")
    if not 0 < floor < 0.5:
        raise OptionError(f"floor must lie between 0 and 0.5. Got {floor} instead.")


# Do a model's relevance and human labels order documents alike?


def relevance_correlation(
    model: ClickModel, judged: JudgedLists | None, n_draws: int, level: float, seed: Seed
) -> Measured | None:
    """Spearman's rank correlation of relevance and label within each query, mean over queries.

    Over documents that were shown and judged. Queries whose labels or relevances are all the same
    have no correlation and are left out; None where none is left, or without labels.
    """
    if judged is None:
        return None
    labels = labels_of(model, judged)
    known = np.flatnonzero(~np.isnan(labels) & model.seen_)
    query = model.documents_.doc_query[known]
    each = _by_query(query, model.relevance_[known], labels[known])
    if len(each) == 0:
        return None
    weight = bootstrap_weights(len(each), n_draws, seed) / len(each)
    low, high = np.quantile(weight @ each, [(1 - level) / 2, (1 + level) / 2])
    return Measured(float(each.mean()), Interval(float(low), float(high), level))


def order_gain(
    model: ClickModel,
    judged: JudgedLists | None,
    shown_order: FloatArray,
    n_draws: int,
    level: float,
    seed: Seed,
) -> Measured | None:
    """The correlation of `relevance_correlation` less that of the shown order, paired by query.

    `shown_order` (documents of the model,) rises with how high a document was shown. Over queries
    that have both correlations; None where none has, or without labels.
    """
    if judged is None:
        return None
    labels = labels_of(model, judged)
    known = np.flatnonzero(~np.isnan(labels) & model.seen_)
    query = model.documents_.doc_query[known]
    both = [
        _by_query(query, values[known], labels[known], everywhere=True)
        for values in (model.relevance_, shown_order)
    ]
    each = both[0] - both[1]
    each = each[~np.isnan(each)]
    if len(each) == 0:
        return None
    weight = bootstrap_weights(len(each), n_draws, seed) / len(each)
    low, high = np.quantile(weight @ each, [(1 - level) / 2, (1 + level) / 2])
    return Measured(float(each.mean()), Interval(float(low), float(high), level))


def labels_of(model: ClickModel, judged: JudgedLists) -> FloatArray:
    """(documents of the model,) labels by (query id, document id), NaN where not judged."""
    query = judged.query_id[ragged.list_of_row(judged.indptr)].tolist()
    label = dict(zip(zip(query, judged.doc_id.tolist(), strict=True), judged.labels, strict=True))
    mine = model.documents_
    pairs = zip(mine.query_id[mine.doc_query].tolist(), mine.doc_id.tolist(), strict=True)
    return np.fromiter((label.get(pair, np.nan) for pair in pairs), float, len(mine))


def _by_query(
    query: IntArray, relevance: FloatArray, label: FloatArray, *, everywhere: bool = False
) -> FloatArray:
    """Correlations of queries that have one; with `everywhere` of all, NaN where there is none."""
    from scipy.stats import rankdata  # half a second to import

    correlations = []
    order = np.argsort(query, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(query[order])) + 1):
        x, y = relevance[rows], label[rows]
        if len(np.unique(x)) > 1 and len(np.unique(y)) > 1:
            correlations.append(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
        elif everywhere:
            correlations.append(np.nan)
    return np.array(correlations)

"""Readers who go from the top down and may leave after any row: what CM, DCM, CCM, (S)DBN share.

Prediction for all of them, the sufficient counts of a log, the E step and the EM loop.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

import numba as nb
import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, handed_over, sum_by
from untilt._core.ascent import EMResult, Step
from untilt._core.estimator import clone
from untilt._core.grouping import group_equal_lists, mixed
from untilt._core.threads import Share, parallel_kernel
from untilt.clickmodels.click_model import ClickModel, Lists
from untilt.clickmodels.smoothing import Smoothing, climb, mean_rate, smoothing_of
from untilt.data.clicklog import ClickLog
from untilt.errors import check_choice

# Chances after which the means of the priors are taken from the fit, and held from then on.
FIRST_ROUND = 20
# Pseudo trials of the first round where the strength is learned. A strong prior would make rates
# alike and so find itself confirmed: from 9 instead of 0.3 the strength of DBN's satisfaction came
# out as 9 instead of 3 on real pages, with a perplexity 0.0003 to 0.002 higher. Some, because rates
# of 0 and 1 stay where they are.
WEAK = 0.3
LEAST = 1e-300  # of a probability that is divided by


State = TypeVar("State")
Priors = TypeVar("Priors")


class Chances(NamedTuple):
    """attraction : (rows,) alpha; on_click : (rows,) P(go on | click); on_skip : P(go on | not)."""

    attraction: FloatArray
    on_click: FloatArray
    on_skip: float


@dataclass(kw_only=True, eq=False, repr=False)
class ChainModel(ClickModel):
    r"""A reader looks at the first row, clicks with probability alpha, and goes on or leaves.

    With e_r = P(row r is looked at | clicks above), g and s the probabilities of going on after a
    click and after none,

        P(c_r = 1 | clicks above) = e_r alpha_r
        e_{r+1} = g_r after a click, else s e_r (1 - alpha_r) / (1 - e_r alpha_r)

    and P(row r+1 is looked at) = P(row r is looked at) (alpha_r g_r + (1 - alpha_r) s). Models
    differ in g and s alone.
    """

    family = "chain"
    _shares: ClassVar = {"attraction_": ("document",), "attraction_mean_": ()}
    prior_strength: float | str = "auto"
    prior_strength_: float = field(init=False)
    attraction_: FloatArray = field(init=False)
    attraction_mean_: float = field(init=False)

    @abstractmethod
    def _steps(self, lists: Lists) -> Chances:
        """alpha, g and s of these rows."""

    def _attraction(self, lists: Lists) -> FloatArray:
        return lists.of_documents(self.attraction_, self.attraction_mean_)

    def _keep_attraction(self, alpha: FloatArray, prior: Smoothing) -> None:
        """Attraction by document and of unknown ones, which are relevance too."""
        self.attraction_ = self.relevance_ = handed_over(alpha)
        self.attraction_mean_ = self.prior_mean_ = prior.mean
        self.prior_strength_ = prior.strength

    def _conditional(self, lists: Lists) -> FloatArray:
        return self._examination_given_clicks(lists) * self._attraction(lists)

    def _marginal(self, lists: Lists) -> FloatArray:
        return self._examination(lists) * self._attraction(lists)

    def _examination(self, lists: Lists) -> FloatArray:
        return _looked(lists.indptr, *self._steps(lists))

    def _examination_given_clicks(self, lists: Lists) -> FloatArray:
        return _looked_given_clicks(lists.indptr, lists.click, *self._steps(lists))

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        return _draw(lists.indptr, *self._steps(lists), uniform)


@dataclass(kw_only=True, eq=False, repr=False)
class ChainEMModel(ChainModel):
    """A chain model whose parameters are found by EM."""

    tolerance: float = 1e-3
    max_steps: int = 1000

    @property
    def _first_strength(self) -> float:
        """Of the priors in the first round of EM."""
        return WEAK if isinstance(self.prior_strength, str) else self.prior_strength

    def _run(
        self,
        start: State,
        priors: Priors,
        step_with: Callable[[Priors], Step[State]],
        refitted: Callable[[State, Priors], Priors],
    ) -> tuple[EMResult[State], Priors]:
        """Where EM ended, and the priors it ended with.

        A few steps with weak priors around counted means; then the priors are taken from the
        fit, so that a document with no sessions has the mean of those with many; then on until
        convergence, so that the last round climbs one and the same function.

        Parameters
        ----------
        step_with : priors -> the E and M step with them
        refitted : (state, priors) -> the priors that this state suggests
        """
        what = type(self).__name__
        few, wide = min(FIRST_ROUND, self.max_steps), 10 * self.tolerance
        first = climb(start, step_with(priors), wide, few, f"{what}, first round")
        priors = refitted(first.state, priors)
        em = climb(first.state, step_with(priors), self.tolerance, self.max_steps, what)
        return em, priors

    def _refitted(
        self, prior: Smoothing, rate: FloatArray, seen: FloatArray, x: FloatArray, n: FloatArray
    ) -> Smoothing:
        """Learned from expected successes and trials, or of a given strength around the mean rate.

        rate, x, n : (documents,); seen : (documents,) what a rate counts for in the mean
        """
        if isinstance(self.prior_strength, str):
            return smoothing_of(x, n, self.prior_strength, default=prior.mean)
        mean = mean_rate(rate, seen, self.prior_strength, default=prior.mean)
        return Smoothing(self.prior_strength, mean)


@nb.njit(cache=True)
def _looked_given_clicks(
    indptr: IntArray, click: FloatArray, attraction: FloatArray, on_click: FloatArray, s: float
) -> FloatArray:
    probability = np.empty(len(click))
    for i in range(len(indptr) - 1):
        looked = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            probability[row] = looked
            p = looked * attraction[row]
            if click[row] > 0:
                looked = on_click[row]
            elif p < 1.0:
                looked = s * looked * (1.0 - attraction[row]) / (1.0 - p)
            else:
                looked = 0.0
    return probability


@nb.njit(cache=True)
def _looked(indptr: IntArray, attraction: FloatArray, on_click: FloatArray, s: float) -> FloatArray:
    probability = np.empty(len(attraction))
    for i in range(len(indptr) - 1):
        looked = 1.0
        for row in range(indptr[i], indptr[i + 1]):
            probability[row] = looked
            looked *= attraction[row] * on_click[row] + (1.0 - attraction[row]) * s
    return probability


@nb.njit(cache=True)
def _draw(
    indptr: IntArray, attraction: FloatArray, on_click: FloatArray, s: float, uniform: FloatArray
) -> AnyArray:
    click = np.zeros(len(attraction), dtype=np.uint8)
    for i in range(len(indptr) - 1):
        for row in range(indptr[i], indptr[i + 1]):
            on = s
            if uniform[row, 0] < attraction[row]:
                click[row] = 1
                on = on_click[row]
            if uniform[row, 1] >= on:
                break
    return click


class TrailingLists(NamedTuple):
    """Distinct lists of rows below the last click, without positions and clicks, unlike slates.

    indptr : (lists + 1,); document : (rows,)
    key : (lists,) of the click above, -1 without any; sessions : (lists,)
    """

    indptr: IntArray
    document: IntArray
    key: IntArray
    sessions: FloatArray


@dataclass(frozen=True, eq=False)
class ChainCounts:
    """Sessions of readers who go down and may leave, collapsed to what is unknown about them.

    Up to the last click everything is known: the reader was there. Only in the *trailing rows*
    below it the reader may have left at any row. So what happened up to the last click is counted
    once, and sessions with the same trailing rows and the same click above them are one: a slate
    of K documents has at most K + 1 of them, whatever its 2^K patterns of clicks.

    A *key* says which parameter rules the step after a click: its document, or its position.

    clicks, examined : (documents,) clicks; impressions at or above a last click
    stepped, went_on : (keys,) clicks with a row below them; of those, with a click further down
    skips : non-clicks above a last click: all were seen, and after all of them the reader went on
    """

    clicks: FloatArray
    examined: FloatArray
    stepped: FloatArray
    went_on: FloatArray
    skips: float
    trailing: TrailingLists

    @property
    def examined_if_gone(self) -> FloatArray:
        """(documents,) impressions looked at, if every reader left with the last click."""
        return self._examined_with(np.where(self.trailing.key < 0, self.trailing.sessions, 0.0))

    @property
    def shown(self) -> FloatArray:
        """(documents,) impressions for which an examination can be expected."""
        return self._examined_with(self.trailing.sessions)

    def _examined_with(self, count: FloatArray) -> FloatArray:
        rows = np.repeat(count, ragged.lengths(self.trailing.indptr))
        return self.examined + sum_by(self.trailing.document, rows, len(self.clicks))


def chain_counts(log: ClickLog, key: IntArray, n_keys: int) -> ChainCounts:
    """Collapse a log; `key` (rows,) is the key of a click in that row."""
    count, lists = log.row_count, ragged.list_of_row(log.indptr)
    clicked = log.label > 0
    row = np.arange(len(lists))
    last = log.indptr[:-1] - 1
    np.maximum.at(last, lists[clicked], row[clicked])
    final = log.indptr[1:] - 1
    steps = clicked & (row < final[lists])
    above, known = row < last[lists], row <= last[lists]
    return ChainCounts(
        clicks=sum_by(log.document, log.label * count, log.n_documents),
        examined=sum_by(log.document, known * count, log.n_documents),
        stepped=sum_by(key[steps], count[steps], n_keys),
        went_on=sum_by(key[clicked & above], count[clicked & above], n_keys),
        skips=float(count[~clicked & above].sum()),
        trailing=_trailing_lists(log, last, final, key),
    )


def _trailing_lists(log: ClickLog, last: IntArray, final: IntArray, key: IntArray) -> TrailingLists:
    chosen = np.flatnonzero(last < final)
    has_click = last[chosen] >= log.indptr[:-1][chosen]
    head = np.where(has_click, key[np.maximum(last[chosen], 0)], -1).astype(np.int64)
    lengths = (final - last)[chosen]
    indptr = ragged.indptr_of(lengths)
    rows = np.repeat(last[chosen] + 1, lengths) + ragged.index_in_list(indptr)
    document = log.document[rows].astype(np.int64)
    groups = group_equal_lists(indptr, [document], [head])
    count = sum_by(groups.group_of_list, log.sessions[chosen], groups.n_groups)
    picked = ragged.rows_of_lists(indptr, groups.first)
    kept = ragged.indptr_of(lengths[groups.first])
    return TrailingLists(kept, document[picked], head[groups.first], count)


@dataclass(frozen=True, eq=False)
class Expected:
    """Expectations over the trailing rows and what is certain, given parameters.

    examined : (documents,) impressions that were looked at
    went_on : (keys,) clicks after which the reader went on
    skipped, skipped_on : non-clicks looked at with a row below them, and those gone on after
    log_likelihood : of all sessions
    """

    examined: FloatArray
    went_on: FloatArray
    skipped: float
    skipped_on: float
    log_likelihood: float


def expect(
    counts: ChainCounts, attraction: FloatArray, on_click: FloatArray, on_skip: float
) -> Expected:
    r"""The E step of every model of a reader who goes down and may leave.

    With alpha the attraction, g = `on_click` of the last click (1 without one) and
    s = `on_skip`, the probability of no click from row r on, given that r is looked at, is

        b_r = (1 - alpha_r) (s b_{r+1} + 1 - s),  b = 1 below the last row

    so trailing rows have the likelihood (1 - g) + g b_1, the reader entered them with probability
    g b_1 / ((1 - g) + g b_1), and went on from row r with s b_{r+1} / (s b_{r+1} + 1 - s).
    """
    lists = counts.trailing
    per_row = np.empty(len(lists.document))
    per_list = np.empty((4, len(lists.key)))
    _every_list(len(lists.key), lists, attraction, on_click, on_skip, per_row, per_list)
    entered, skipped, skipped_on, log_trailing = per_list
    certain = (
        _dot_log(counts.clicks, attraction)
        + _dot_log(counts.examined - counts.clicks, 1 - attraction)
        + _dot_log(counts.went_on, on_click)
        + (counts.skips * np.log(on_skip) if counts.skips else 0.0)
    )
    return Expected(
        examined=counts.examined + sum_by(lists.document, per_row, len(attraction)),
        # Key -1 counts in front, and is cut off: nothing was clicked there.
        went_on=counts.went_on + sum_by(lists.key + 1, entered, len(on_click) + 1)[1:],
        skipped=counts.skips + float(skipped.sum()),
        skipped_on=counts.skips + float(skipped_on.sum()),
        log_likelihood=float(log_trailing.sum()) + float(certain),
    )


def _dot_log(weight: FloatArray, p: FloatArray) -> float:
    used = weight > 0
    # Not np.dot: BLAS wakes its threads for it, 20 ms on a busy machine against 1 ms of work.
    return float(np.sum(weight[used] * np.log(p[used])))


@nb.njit(cache=True)
def _one(
    i: int, lists: TrailingLists, attraction: FloatArray, on_click: FloatArray, s: float,
    per_row: FloatArray, per_list: FloatArray,
) -> None:  # fmt: skip
    begin, end, n = lists.indptr[i], lists.indptr[i + 1], lists.sessions[i]
    b = 1.0
    for row in range(end - 1, begin - 1, -1):
        # Borrowed: P(went on from this row), until the way down turns it into examinations.
        on = s * b
        per_row[row] = on / (1.0 - s + on)
        # 1 - s first: on + 1 - s would lose what is below 1e-16. The floor is for hundreds of rows
        # and for an attraction of 1, where the product ends at 0.
        b = max((1.0 - attraction[lists.document[row]]) * (1.0 - s + on), LEAST)
    g = on_click[lists.key[i]] if lists.key[i] >= 0 else 1.0
    total = 1.0 - g + g * b
    seen = n * g * b / total
    per_list[0, i] = seen
    per_list[3, i] = n * np.log(total)
    skipped, skipped_on = 0.0, 0.0
    for row in range(begin, end):
        on = per_row[row]
        per_row[row] = seen
        if row < end - 1:
            skipped += seen
            seen *= on
            skipped_on += seen
    per_list[1, i], per_list[2, i] = skipped, skipped_on


@parallel_kernel()
def _every_list(mine: Share, lists: TrailingLists, *arrays: AnyArray) -> None:
    for i in range(mine[0], mine[1]):
        _one(i, lists, *arrays)


METHODS = ("likelihood", "counting")
# Lists from which only a part is tried on: the choice is between figures that differ in the third
# digit, and so many know them to the fourth.
MOST_LISTS = 20_000
FLOOR = 1e-6  # of probabilities; as in `compare_click_models`

Model = TypeVar("Model", bound=ClickModel)


def chosen_method(model: ClickModel, log: ClickLog) -> str:
    """The `method` of a model, or with "auto" the one that predicts the log's pages better.

    Pages that show the same documents in the same order stay together, in one half or in the other:
    new pages show documents in orders that were not there before. Halves are drawn by a hash of
    what is shown, so the order of the log and the way in which sessions are counted play no part.
    """
    method: str = model.get_params()["method"]
    check_choice("method", method, ("auto", *METHODS))
    if method != "auto":
        return method
    candidates = {name: clone(model).set_params(method=name) for name in METHODS}
    best = least_perplexity(log, list(candidates.values()))
    return next(name for name, each in candidates.items() if each is best)


def least_perplexity(log: ClickLog, candidates: Sequence[Model]) -> Model:
    """The candidate of the lowest mean perplexity over positions, each half predicted by the other.

    Perplexity as in `untilt.clickmodels.compare`, before anybody has clicked. The first of them
    where there is nothing to compare: fewer than two pages, or a half of clicks or skips alone.
    """
    half = _halves(log)
    parts = [log.take(np.flatnonzero(half == i)) for i in (0, 1)]
    if not all(len(np.unique(part.label)) == 2 for part in parts):
        return candidates[0]
    figures = [_perplexity(candidate, parts) for candidate in candidates]
    return candidates[int(np.argmin(figures))]


def _halves(log: ClickLog) -> IntArray:
    """(lists,) 0 or 1 by what a list shows, -1 for those that are not used."""
    slates = group_equal_lists(log.indptr, [log.document, log.position], [log.query])
    first = slates.first
    rows = ragged.rows_of_lists(log.indptr, first)
    indptr = ragged.indptr_of(ragged.lengths(log.indptr)[first])
    shown = (log.document[rows].astype(np.int64) << 20) + log.position[rows]
    of_list = ragged.sums_by_list(indptr, mixed(shown).view(np.int64))
    key = mixed(of_list)
    parts = 2 * max(1, -(-log.n_lists // MOST_LISTS))
    number = (key % np.uint64(parts)).astype(np.int64)
    return np.where(number < 2, number, -1)[slates.group_of_list]


def _perplexity(model: ClickModel, parts: Sequence[ClickLog]) -> float:
    bits, shown = np.zeros((2, max(part.depth for part in parts)))
    for learned, asked in (parts, parts[::-1]):
        test = asked.top(learned.depth) if asked.depth > learned.depth else asked
        p = clone(model).fit(learned).click_probability(test)
        happened = np.clip(np.where(test.label > 0, p, 1 - p), FLOOR, 1)
        bits += _by_position(test, -np.log2(happened), len(bits))
        shown += _by_position(test, np.ones(len(p)), len(bits))
    return float(np.mean(np.exp2(bits[shown > 0] / shown[shown > 0])))


def _by_position(log: ClickLog, values: FloatArray, depth: int) -> FloatArray:
    return sum_by(log.position - 1, values * log.row_count, depth)

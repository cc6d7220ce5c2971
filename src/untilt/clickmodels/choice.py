"""Which of two ways to fit a model predicts pages better: tried on the training pages alone.

Pages that show the same documents in the same order stay together, in one half or in the other: new
pages show documents in orders that were not there before. Halves are drawn by a hash of what is
shown, so the order of the log and the way in which sessions are counted play no part.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.estimator import clone
from untilt._core.grouping import group_equal_lists, mixed
from untilt.clickmodels.click_model import ClickModel
from untilt.data.clicklog import ClickLog
from untilt.errors import check_choice

METHODS = ("likelihood", "counting")
# Lists from which only a part is tried on: the choice is between figures that differ in the third
# digit, and so many know them to the fourth.
MOST_LISTS = 20_000
FLOOR = 1e-6  # of probabilities; as in `compare_click_models`

Model = TypeVar("Model", bound=ClickModel)


def chosen_method(model: ClickModel, log: ClickLog) -> str:
    """The `method` of a model, or with "auto" the one that predicts the log's pages better."""
    method: str = model.get_params()["method"]
    check_choice("method", method, ("auto", *METHODS))
    if method != "auto":
        return method
    candidates = {name: clone(model).set_params(method=name) for name in METHODS}
    best = least_perplexity(log, list(candidates.values()))
    return next(name for name, each in candidates.items() if each is best)


def least_perplexity(log: ClickLog, candidates: Sequence[Model]) -> Model:
    """The candidate of the lowest mean perplexity over positions, each half predicted by the other.

    Perplexity as in `untilt.clickmodels.quality`, before anybody has clicked. The first of them
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

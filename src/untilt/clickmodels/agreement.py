"""Do a model's relevance and human labels order documents alike?"""

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.random import Seed
from untilt._core.statistics import Interval, bootstrap_weights
from untilt.clickmodels.base import ClickModel
from untilt.clickmodels.quality import Measured
from untilt.logs.judged import JudgedLists


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


def labels_of(model: ClickModel, judged: JudgedLists) -> FloatArray:
    """(documents of the model,) labels by (query id, document id), NaN where not judged."""
    assert judged.doc_id is not None
    query = judged.query_id[ragged.list_of_row(judged.indptr)].tolist()
    label = dict(zip(zip(query, judged.doc_id.tolist(), strict=True), judged.labels, strict=True))
    mine = model.documents_
    pairs = zip(mine.query_id[mine.doc_query].tolist(), mine.doc_id.tolist(), strict=True)
    return np.fromiter((label.get(pair, np.nan) for pair in pairs), float, len(mine))


def _by_query(query: IntArray, relevance: FloatArray, label: FloatArray) -> FloatArray:
    from scipy.stats import rankdata  # half a second to import

    found = []
    order = np.argsort(query, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(query[order])) + 1):
        x, y = relevance[rows], label[rows]
        if len(np.unique(x)) > 1 and len(np.unique(y)) > 1:
            found.append(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    return np.array(found)

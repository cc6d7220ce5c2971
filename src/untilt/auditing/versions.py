"""Features that change: which they are, and whether documents rise when they get better.

Estimators that compare a document with itself at several positions believe that it is as relevant
wherever it stood. A production ranker that knows the price breaks that: the document stands higher
on the days when it is cheap, and is clicked more for both reasons. Experiments and models of
relevance by features are right all the same.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from untilt.auditing import checks
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts

# Relative change of relevance by one position that is worth a word: 0.9^(1/10), 10% over ten.
DRIFT = 0.01
SURE = 3.0  # standard errors that it, and what features explain, must lie away from 0


@dataclass(frozen=True)
class Versions:
    """Documents that have several versions, because features change.

    Parameters
    ----------
    features : names of those that change
    documents, versions : how many there are of both
    drift : by how much relevance changes from one position to the next at the same document, as a
        share of the mean; below 0 where documents stand higher when they are better, NaN where the
        changing features do not predict clicks
    std_error : of the drift, clustered by query
    """

    features: tuple[str, ...]
    documents: int
    versions: int
    drift: float = float("nan")
    std_error: float = float("nan")
    json_properties: ClassVar[tuple[str, ...]] = ("drifts",)

    @property
    def drifts(self) -> bool:
        """Whether a document's relevance changes with its position, so much that it matters."""
        return bool(abs(self.drift) > max(DRIFT, SURE * self.std_error))


def versions_of(log: ClickLog) -> Versions | None:
    """What changes in a log; None where nothing does."""
    names = changing_features(log)
    return Versions(names, log.n_items, log.n_documents, *_drift(log)) if names else None


def changing_features(log: ClickLog) -> tuple[str, ...]:
    """Features that differ between versions of a document, such as its price over time."""
    if log.item is None or log.features is None:
        return ()
    again = np.flatnonzero(np.diff(log.item) == 0)
    changes = np.zeros(log.n_features, dtype=bool)
    for begin in range(0, len(again), checks.CHUNK):
        rows = again[begin : begin + checks.CHUNK]
        before, after = log.features[rows], log.features[rows + 1]
        changes |= np.any((before != after) & ~(np.isnan(before) & np.isnan(after)), axis=0)
    return tuple(name for name, it in zip(log.feature_names, changes, strict=True) if it)


def _drift(log: ClickLog) -> tuple[float, float]:
    r"""Slope of predicted relevance over position within documents, and its error.

        drift = sum n (g - g_d)(k - k_d) / sum n (k - k_d)^2 / mean click rate

    over impressions at position k of documents d, whose means are g_d and k_d. Relevance g is
    predicted from the features as in `checks.by_prediction`: clicks within positions, each half of
    the queries by the other half's model. What never changes has no part in it.
    """
    assert log.item is not None
    cells = position_counts(log)
    version = cells.document[cells.document_index]
    query, item, n = log.doc_query[version], log.item[version], cells.impressions
    predicted = checks.cross_fitted(log, cells, version, query % 2 == 1)
    g = checks.centred(predicted, n, item)
    k = checks.centred(cells.position.astype(np.float64), n, item)
    clicks = checks.centred(cells.rate, n, cells.position)
    explained = checks.sums_by_query(n * g * clicks, query)
    a, c = checks.sums_by_query(n * g * k, query), checks.sums_by_query(n * k * k, query)
    rate, total, n_queries = cells.clicks.sum() / n.sum(), c.sum(), len(a)
    known = explained.sum() > SURE * np.sqrt(np.sum(explained**2))
    if not (known and rate > 0 and total > 0 and n_queries > 1):
        return float("nan"), float("nan")
    slope = a.sum() / total
    error = np.sqrt(n_queries / (n_queries - 1) * np.sum((a - slope * c) ** 2)) / total
    return float(slope / rate), float(error / rate)

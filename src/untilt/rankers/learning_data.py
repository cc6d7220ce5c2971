"""From a log or judged lists to what learners need: feature rows, lists, and pair units."""

from dataclasses import dataclass, replace

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.objectives.units import PairUnits, build_units, gains_of, list_norms
from untilt.weighting.base import Weighting

QUERY_WEIGHTS = ("sessions", "sqrt", "equal")


@dataclass(frozen=True, eq=False)
class TrainingLists:
    """Lists over training rows. Each document that was shown is one row, however often shown."""

    features: FeatureArray
    feature_names: tuple[str, ...]
    indptr: IntArray
    query: IntArray
    row: IntArray
    place: IntArray
    label: FloatArray
    count: IntArray
    slate_of_list: IntArray
    row_query: IntArray
    judged: bool

    @property
    def n_rows(self) -> int:
        """Training rows: distinct shown documents."""
        return len(self.features)

    @property
    def depth(self) -> int:
        """Lowest position."""
        return int(self.place.max()) + 1 if len(self.place) else 0

    @property
    def sessions_per_query(self) -> FloatArray:
        """(queries,) sessions of each query index, 0 where a query was not shown."""
        return sum_by(self.query, self.count)

    @property
    def mean_place(self) -> FloatArray:
        """(rows,) where each document was shown, on average over sessions."""
        sessions = np.repeat(self.count, ragged.lengths(self.indptr))
        shown = sum_by(self.row, sessions, self.n_rows)
        return sum_by(self.row, sessions * self.place, self.n_rows) / shown

    def list_weights(self, query_weight: str) -> FloatArray:
        """Sessions of each list on a scale where an average query weighs 1.

        "sessions": a query weighs as its traffic; "equal": all queries weigh the same; "sqrt":
        between the two, so that a few head queries do not crowd out the rest.
        """
        if query_weight not in QUERY_WEIGHTS:
            raise OptionError(
                f"query_weight must be one of {', '.join(QUERY_WEIGHTS)}. Got {query_weight!r}."
            )
        traffic = self.sessions_per_query
        power = {"sessions": 0.0, "sqrt": 0.5, "equal": 1.0}[query_weight]
        share = self.count / traffic[self.query] ** power
        total = sum_by(self.query, share, len(traffic))
        return share / total[traffic > 0].mean()


def training_lists(data: ClickLog | JudgedLists) -> TrainingLists:
    """Lists to train on; a log is collapsed first, which changes nothing but the cost."""
    if isinstance(data, ClickLog):
        return _from_log(data)
    if isinstance(data, JudgedLists):
        return _from_judged(data)
    raise OptionError(
        f"fit needs a ClickLog or JudgedLists. Got {type(data).__name__} instead. "
        "Read one with ut.read_log(...) or ut.read_letor(...)."
    )


def _from_log(log: ClickLog) -> TrainingLists:
    if log.features is None:
        raise OptionError(
            "this log has no features, so no ranker can be trained on it. Give read_log the "
            "documents table (documents=...) or the feature columns (features=[...])."
        )
    if log.n_lists == 0:
        raise OptionError("this log has no sessions to train on.")
    features, log = log.features, log.collapse()
    # Counting, not sorting: a log has far more rows than documents.
    is_shown = np.bincount(log.document, minlength=log.n_documents) > 0
    shown, row_of_document = np.flatnonzero(is_shown), np.cumsum(is_shown, dtype=np.int32) - 1
    return TrainingLists(
        features=features[shown],
        feature_names=log.feature_names,
        indptr=log.indptr,
        query=log.query,
        row=row_of_document[log.document],
        place=log.position - 1,
        label=log.label,
        count=log.sessions,
        slate_of_list=log.slates().group_of_list,
        row_query=log.doc_query[shown].astype(np.int64),
        judged=False,
    )


def _from_judged(judged: JudgedLists) -> TrainingLists:
    lengths = np.diff(judged.indptr)
    queries = np.arange(judged.n_queries)
    return TrainingLists(
        features=judged.features,
        feature_names=judged.feature_names,
        indptr=judged.indptr,
        query=queries,
        row=np.arange(len(judged)),
        # Judged lists have no position; one shared place keeps every table at W[0, 0].
        place=np.zeros(len(judged), dtype=np.int64),
        label=judged.labels,
        count=np.ones(judged.n_queries, dtype=np.int64),
        slate_of_list=queries,
        row_query=np.repeat(queries, lengths),
        judged=True,
    )


def pair_units(
    lists: TrainingLists,
    weighting: Weighting,
    *,
    metric: str,
    gain: str,
    query_weight: str = "sessions",
    truncation: int | None = None,
    collapse_pairs: bool = True,
) -> PairUnits:
    """The pair statistics of these lists for a weighting and a metric."""
    gains = gains_of(lists.label, gain)
    offset = weighting.offset(max(1, lists.depth))
    norms = list_norms(lists.indptr, gains, metric, truncation)
    if not weighting.per_session_norm:
        norms = np.ones_like(norms)
    return build_units(
        indptr=lists.indptr,
        query=lists.query,
        row=lists.row,
        place=lists.place,
        gain=gains,
        weight=lists.list_weights(query_weight) * norms,
        slate_of_list=lists.slate_of_list,
        n_rows=lists.n_rows,
        plain=gain == "plain",
        against_all=weighting.against == "all",
        dense=offset is not None,
        collapse_pairs=collapse_pairs,
    )


def nothing_to_learn() -> OptionError:
    """The error for data without a pair that says which document is better."""
    return OptionError(
        "there is nothing to learn from: no list holds two documents with different labels. "
        "Check that the log has clicks (log.ctr_by_position()) and lists of two or more."
    )


def restrict_rows(lists: TrainingLists, keep: BoolArray) -> TrainingLists:
    """Only the lists of the queries whose rows are kept; a query's rows stay or go together."""
    kept_query = np.zeros(int(lists.row_query.max()) + 1, dtype=bool)
    kept_query[lists.row_query[keep]] = True
    chosen = np.flatnonzero(kept_query[lists.query])
    rows = ragged.rows_of_lists(lists.indptr, chosen)
    new_row = np.cumsum(keep) - 1
    return replace(
        lists,
        features=lists.features[keep],
        indptr=ragged.indptr_of(ragged.lengths(lists.indptr)[chosen]),
        query=lists.query[chosen],
        row=new_row[lists.row[rows]],
        place=lists.place[rows],
        label=lists.label[rows],
        count=lists.count[chosen],
        slate_of_list=lists.slate_of_list[chosen],
        row_query=lists.row_query[keep],
    )

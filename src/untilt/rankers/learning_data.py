"""From a log or judged lists to what learners need: features, lists, sums over sessions."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, Missing, sum_by
from untilt._core.feature_table import column_names, feature_array, in_order
from untilt._core.random import child_generator
from untilt.bias.given import BiasLike, as_position_bias, numbered_for
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.data.judged import JudgedLists
from untilt.data.shown import check_shown, examine_impressions
from untilt.data.slates import Slates
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.objectives.losses import SidedListwise, SidedPointwise
from untilt.objectives.pair_slates import (
    PairSlates,
    RowSlates,
    gains_of,
    list_norms,
    sum_pairs,
    sum_rows,
)
from untilt.weighting.base import JointWeighting, LearnedTable, SessionWeighting, Weighting
from untilt.weighting.tables import Naive

# A query's sessions are divided by its traffic to this power.
QUERY_WEIGHTS = {"sessions": 0.0, "sqrt": 0.5, "equal": 1.0}
_WEIGHT_GRID = float(1 << 20)


@dataclass(frozen=True)
class ClusterTotals:
    """Totals over all parts of a log whose parts lie on several machines.

    Parameters
    ----------
    mean_weight : of all queries, by which weights of lists are divided
    depth : the lowest position, K
    """

    mean_weight: float
    depth: int


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingLists(Slates):
    """Distinct lists with their labels, over the documents that were shown.

    What slates, pairs and counts are summed from: lists of one slate are still apart here.

    Parameters
    ----------
    features, feature_names, doc_query : one row per document that was shown, and its query
    label : (rows,) of the lists
    slate_of_list : (lists,) lists of the same number show the same documents at the same positions
    judged : labels are judgements, so that there is no position: all have position index 0
    missing : what a ranker that learns from these does with a missing feature
    totals : where these lists are one part of a log in a cluster, those of the whole log
    """

    SLATE_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.SLATE_COLUMNS, "slate_of_list")
    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.ROW_COLUMNS, "label")

    features: FeatureArray
    feature_names: tuple[str, ...]
    doc_query: IntArray
    label: FloatArray
    slate_of_list: IntArray
    judged: bool
    missing: Missing = None
    totals: "ClusterTotals | None" = None

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return super().depth if self.totals is None else self.totals.depth

    @property
    def mean_position_index(self) -> FloatArray:
        """(documents,) where each document was shown, on average over sessions."""
        shown = sum_by(self.document, self.row_count, self.n_documents)
        return sum_by(self.document, self.row_count * self.position_index) / shown

    def list_weights(self, query_weight: str) -> FloatArray:
        """Sessions of each list on a scale where an average query weighs 1.

        "sessions": a query weighs as its traffic; "equal": all queries weigh the same; "sqrt":
        between the two, so that a few head queries do not crowd out the rest.
        """
        share, total = self.query_shares(query_weight)
        if self.totals is None:
            return share / total.mean()
        # A common grid, on which sums of up to 2^33 are exact whichever part has which list.
        return np.rint(share / self.totals.mean_weight * _WEIGHT_GRID) / _WEIGHT_GRID

    def query_shares(self, query_weight: str) -> tuple[FloatArray, FloatArray]:
        """The weight of each list before it is divided by a mean, and the sum of each query."""
        check_choice("query_weight", query_weight, tuple(QUERY_WEIGHTS))
        traffic = sum_by(self.query, self.count)
        share = self.count / traffic[self.query] ** QUERY_WEIGHTS[query_weight]
        return share.astype(float), sum_by(self.query, share, len(traffic))[traffic > 0]

    def shown_together(self, query_weight: str) -> FloatArray:
        """N[k, l]: the weight of the lists that showed positions k and l; (depth, depth)."""
        weight, lengths = self.list_weights(query_weight), ragged.lengths(self.indptr)
        depth = max(1, self.depth)
        deepest = np.full(len(lengths), -1)
        filled = lengths > 0
        deepest[filled] = self.position_index[self.indptr[1:][filled] - 1]
        whole = deepest == lengths - 1  # positions 1..n without a gap: the deeper of two decides
        reach = np.cumsum(np.bincount(lengths[whole], weight[whole], depth + 1)[::-1])[::-1][1:]
        place = np.arange(depth)
        together = reach[np.maximum(place[:, None], place[None, :])].astype(float)
        if whole.all():
            return together
        from scipy.sparse import csr_array

        shown = csr_array((np.ones(len(self.document)), self.position_index, self.indptr),
                          (len(lengths), depth))[~whole]  # fmt: skip
        return together + (shown.T @ (shown * weight[~whole, None])).toarray()

    def of_documents(self, keep: BoolArray) -> "TrainingLists":
        """The lists of the queries whose documents are kept: a query's stay or go together."""
        kept_query = np.zeros(int(self.doc_query.max()) + 1, dtype=bool)
        kept_query[self.doc_query[keep]] = True
        part = self.take(np.flatnonzero(kept_query[self.query]))
        return replace(
            part,
            document=(np.cumsum(keep) - 1)[part.document],
            n_documents=int(keep.sum()),
            features=self.features[keep],
            doc_query=self.doc_query[keep],
        )

    def summary(self, weighting: Weighting | str | None) -> dict[str, Any]:
        """What a ranker was trained on."""
        return {
            "trained_on": "judged lists" if self.judged else "clicks",
            "weighting": repr(weighting),
            "queries": len(np.unique(self.query)),
            "documents": self.n_documents,
            "sessions": int(self.count.sum()),
            "distinct_lists": len(self.query),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class WeighedLists(TrainingLists):
    """Training lists whose clicks weigh by their session (`SessionWeighting`).

    A class of its own because every row then has these columns, and no row otherwise.

    Parameters
    ----------
    click_weight, share : (rows,) as in `ClickWeights`; `share` is 1 where there is none
    by_pair : whether there is a share
    """

    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*TrainingLists.ROW_COLUMNS, "click_weight", "share")

    click_weight: FloatArray
    share: FloatArray
    by_pair: bool

    @classmethod
    def weighed(cls, lists: TrainingLists, weighting: SessionWeighting, log: ClickLog) -> Self:
        """The lists of a collapsed log with the weights of its clicks."""
        weights = weighting.click_weights(log)
        shared = {each.name: getattr(lists, each.name) for each in fields(lists)}
        share = np.ones(len(weights.click)) if weights.share is None else weights.share
        by_pair = weights.share is not None
        return cls(**shared, click_weight=weights.click, share=share, by_pair=by_pair)


def as_lists(data: Any, labels: Any = None, groups: Any = None) -> ClickLog | JudgedLists:
    """What `fit` and `score` were given: a log, judged lists, or features with their labels."""
    if isinstance(data, ClickLog | JudgedLists):
        if labels is not None or groups is not None:
            raise OptionError(
                f"a {type(data).__name__} holds its labels and queries. Leave labels and groups "
                "out, or give features as an array or data frame with them."
            )
        return data
    if not (hasattr(data, "shape") or isinstance(data, list) or column_names(data) is not None):
        raise _no_lists(data)
    if labels is None or groups is None:
        missing = " and ".join(
            name for name, each in (("labels", labels), ("groups", groups)) if each is None
        )
        raise OptionError(
            f"features need the label and the query of each row: (features, labels, "
            f"groups=query_of_row). Got no {missing}. scikit-learn hands groups on after "
            "sklearn.set_config(enable_metadata_routing=True), with params={'groups': ...}. For "
            "clicks read a log and use ut.select."
        )
    names = column_names(data) or ()
    features = feature_array(data, names)
    y, query = np.asarray(labels, dtype=float), np.asarray(groups)
    for what, array in (("labels", y), ("groups", query)):
        if array.shape != (len(features),):
            raise ShapeError(
                f"{what} must have one entry for each of the {len(features):,} rows. Got shape "
                f"{array.shape} instead."
            )
    ids, owner = np.unique(query, return_inverse=True)
    order = np.argsort(owner, kind="stable")
    return JudgedLists(
        features[order],
        y[order],
        ragged.indptr_of(np.bincount(owner, minlength=len(ids))),
        ids,
        feature_names=names,
    )


def with_features_of(data: ClickLog | JudgedLists, names: Sequence[str]) -> ClickLog | JudgedLists:
    """The data with its features in the order of these names, as a ranker was trained on them."""
    if not isinstance(data, ClickLog | JudgedLists) or data.features is None:
        return data
    features = in_order(data.features, data.feature_names, names)
    if features is data.features:
        return data
    return replace(data, features=features, feature_names=tuple(names))


def training_lists(data: ClickLog | JudgedLists, weighting: object = None) -> TrainingLists:
    """Lists to train on; a log is collapsed first, which changes nothing but the cost.

    The lists of a log hold the weights of its clicks where the weighting is one of sessions.
    """
    if isinstance(data, ClickLog):
        curve = weighting.position_bias if isinstance(weighting, Weighting) else None
        return _from_log(numbered_for(data, curve), weighting)
    if isinstance(data, JudgedLists):
        return _from_judged(data)
    raise _no_lists(data)


def _no_lists(data: object) -> OptionError:
    return OptionError(
        f"fit needs a ClickLog or JudgedLists. Got {type(data).__name__} instead. "
        "Read one with ut.read_log(...) or ut.read_letor(...)."
    )


def _from_log(log: ClickLog, weighting: object) -> TrainingLists:
    if log.features is None:
        raise OptionError(
            "this log has no features, so no ranker can be trained on it. ⟦Give read_log the "
            "documents table (documents=...) or the feature columns (features=[...])|Give "
            "--documents TABLE, or the feature columns of the log: --features 'f_*'⟧."
        )
    if log.n_lists == 0:
        raise OptionError("this log has no sessions to train on.")
    # Numbers above 0 differ and can be learned from; shares of odd sessions harm estimates alone.
    if log.is_binary and not examine_impressions(log).unclicked:
        check_shown(log)
    features, log = log.features, log.collapse()
    # Counting, not sorting: a log has far more rows than documents.
    is_shown = np.bincount(log.document, minlength=log.n_documents) > 0
    shown, new_index = np.flatnonzero(is_shown), np.cumsum(is_shown, dtype=np.int32) - 1
    lists = TrainingLists(
        indptr=log.indptr, query=log.query, count=log.sessions, document=new_index[log.document],
        position_index=log.position - 1, n_documents=len(shown), features=features[shown],
        feature_names=log.feature_names, doc_query=log.doc_query[shown].astype(np.int64),
        label=log.label, slate_of_list=log.slates().group_of_list, judged=False,
        missing=_missing(log.missing, features),
    )  # fmt: skip
    if isinstance(weighting, SessionWeighting):
        return WeighedLists.weighed(lists, weighting, log)
    return lists


def _missing(given: Missing, features: FeatureArray) -> Missing:
    """As the data was read; NaN in data that was made in memory is there to be kept."""
    return "keep" if given is None and np.isnan(features).any() else given


def _from_judged(judged: JudgedLists) -> TrainingLists:
    queries, n = np.arange(judged.n_queries), len(judged)
    return TrainingLists(
        indptr=judged.indptr,
        query=queries,
        count=np.ones(judged.n_queries, dtype=np.int64),
        document=np.arange(n),
        # Judged lists have no position; a shared one keeps every table at W[0, 0].
        position_index=np.zeros(n, dtype=np.int64),
        n_documents=n,
        features=judged.features,
        feature_names=judged.feature_names,
        doc_query=np.repeat(queries, np.diff(judged.indptr)),
        label=judged.labels,
        slate_of_list=queries,
        judged=True,
        missing=_missing(judged.missing, judged.features),
    )


def weighting_for(weighting: Weighting | None, lists: TrainingLists) -> Weighting:
    """The weighting to train with: labels have no position bias, clicks count as they are."""
    if weighting is None or lists.judged:
        return Naive()
    if not isinstance(weighting, Weighting):
        raise OptionError(
            "weighting must be a table of pair weights such as ut.IPS(bias), or None for clicks "
            f"as they are. Got {weighting!r} instead."
        )
    return weighting


def tie_order(lists: TrainingLists) -> IntArray:
    """Documents by query, and inside one as equal scores rank: by mean position, then by features.

    Trees leave many scores equal for many rounds. The order of the documents table must not decide
    between them, or the same log read in another order gives another ranker (by 0.2 of a spread
    of 1).
    """
    direction = child_generator(0, 1).standard_normal(lists.features.shape[1])
    projection = np.empty(lists.n_documents)
    for begin in range(0, lists.n_documents, 65_536):  # blocks: no second copy of all features
        block = slice(begin, begin + 65_536)
        projection[block] = np.nan_to_num(lists.features[block]) @ direction
    return np.lexsort((projection, lists.mean_position_index, lists.doc_query))


def metric_gain(gain: str, lists: TrainingLists) -> str:
    """ "auto": 2^y - 1 for graded judgements, the label itself for clicks and measured feedback."""
    if gain != "auto":
        return gain
    whole = np.all(lists.label == np.round(lists.label)) and lists.label.max(initial=0) <= 30
    return "exponential" if whole and lists.judged else "linear"


def pair_gain(gain: str, lists: TrainingLists) -> str:
    """ "auto": pairs of grades all weigh the same; clicks and measured feedback by difference."""
    if gain != "auto":
        return gain
    return "plain" if lists.judged else "linear"


def pair_slates(
    lists: TrainingLists,
    weighting: Weighting,
    *,
    metric: str,
    gain: str,
    query_weight: str = "sessions",
    truncation: int | None = None,
    dense: bool = False,
) -> PairSlates:
    """The summed pairs of these lists for a weighting and a metric."""
    gains, plain, share = gains_of(lists.label, gain), gain == "plain", None
    assert isinstance(weighting, SessionWeighting) == isinstance(lists, WeighedLists)
    if isinstance(lists, WeighedLists):
        _check_weighed(weighting, metric)
        gains, plain = lists.click_weight * ((gains > 0) if plain else gains), False
        share = lists.share if lists.by_pair else None
    norms = list_norms(lists.indptr, gains, metric, truncation)
    if not weighting.per_session_norm:
        norms = np.ones_like(norms)
    return sum_pairs(
        lists, lists.slate_of_list, gain=gains, weight=lists.list_weights(query_weight) * norms,
        plain=plain, against_all=weighting.against == "all",
        dense=dense or share is not None or weighting.offset(max(1, lists.depth)) is not None,
        collapse=metric != "map", share=share,
    )  # fmt: skip


def learned_table(
    weighting: JointWeighting, lists: TrainingLists, query_weight: str
) -> LearnedTable:
    """The table of a joint weighting at its start, for losses summed over these lists."""
    together = lists.shown_together(query_weight) if weighting.takes_means else None
    return LearnedTable(weighting, max(1, lists.depth), together)


def _check_weighed(weighting: Weighting, metric: str) -> None:
    name = type(weighting).__name__
    if weighting.against != "all":
        raise OptionError(
            f"{name} compares a clicked document with all others of its list, because whether "
            "another one is clicked depends on this click. Leave against out."
        )
    if metric == "map":
        raise OptionError(
            f"⟦metric='map'⟧ gives every click the same weight, so {name} would change "
            "nothing. Use ⟦metric='ndcg'⟧ or 'dcg'."
        )


def row_slates(
    lists: TrainingLists,
    row_weight: FloatArray,
    *,
    gain: str,
    query_weight: str,
    row_offset: FloatArray | None = None,
) -> RowSlates:
    """Each document's clicks in each slate, times W[k], plus the offset of an affine weighting."""
    gains = gains_of(lists.label, gain)
    if gain == "plain":
        gains = (gains > 0).astype(float)
    if isinstance(lists, WeighedLists):
        gains = gains * lists.click_weight
    worth = gains * row_weight[lists.position_index]
    if row_offset is not None:
        worth = worth + row_offset[lists.position_index]
    weight = np.repeat(lists.list_weights(query_weight), ragged.lengths(lists.indptr))
    return sum_rows(lists, lists.slate_of_list, weight * worth)


def sides_of(weighting: Weighting, lists: TrainingLists) -> tuple[FloatArray, FloatArray]:
    """What a click and a no-click weigh by themselves, or an error."""
    sides = weighting.sides(max(1, lists.depth))
    if sides is None:
        raise OptionError(
            "a loss by document or by list weighs clicks and no-clicks apart, but a weight of "
            f"{weighting!r} belongs to a pair of positions. Use ut.IPS(bias), ut.PRS(bias, "
            "⟦clip=0.1⟧, clip_of='clicked'), or a loss of pairs."
        )
    if not lists.judged:
        check_clicks(lists, "a loss by document or by list", "a loss of pairs")
    if not lists.label.any():
        raise nothing_to_learn()
    return sides


def sided_pointwise(
    lists: TrainingLists, weighting: Weighting, query_weight: str
) -> SidedPointwise:
    """Weighted cross-entropy of these lists."""
    sides = sides_of(weighting, lists)
    counts = judged_counts(lists) if lists.judged else click_counts(lists, query_weight)
    return SidedPointwise.of(counts, *sides)


def sided_listwise(lists: TrainingLists, weighting: Weighting, query_weight: str) -> SidedListwise:
    """Clicked against unclicked documents of each of these lists."""
    sides = sides_of(weighting, lists)
    weighted = replace(lists, count=lists.list_weights(query_weight))
    relevant = ragged.sums_by_list(lists.indptr, (lists.label > 0).astype(float))
    useful = (relevant > 0) & (relevant < ragged.lengths(lists.indptr))
    if not useful.any():
        raise nothing_to_learn()
    by_query = np.argsort(lists.query, kind="stable")
    kept = weighted.take(by_query[useful[by_query]])
    return SidedListwise(kept, grade_shares(kept.label) if lists.judged else kept.label, *sides)


def row_weights(weighting: Weighting, lists: TrainingLists) -> FloatArray | None:
    """W[k] of a table whose weights depend on the clicked position alone, else None."""
    if isinstance(lists, WeighedLists) and lists.by_pair:
        return None
    table = weighting.table(max(1, lists.depth))
    return table[:, 0] if np.all(table == table[:, :1]) else None


def validation_bias(bias: BiasLike | None, weighting: object, data: object) -> BiasLike | None:
    """The curve that held-out data is judged by: the one given, or that of the weighting.

    Labels need none. Clicks are judged as they are by a ranker that takes them as they are; one
    that corrects by a click model must be given a curve.
    """
    if bias is None and isinstance(weighting, Weighting):
        bias = weighting.position_bias
    if bias is None and isinstance(weighting, SessionWeighting) and isinstance(data, ClickLog):
        raise OptionError(
            "held-out clicks are judged by a curve of positions, and this "
            f"{type(weighting).__name__} has none. Give ⟦bias=...⟧, for instance "
            "⟦ut.UBM().fit(log).bias_|that of `untilt bias LOG --out bias.json`⟧, or "
            "hold out judged lists."
        )
    return bias


def click_counts(lists: TrainingLists, query_weight: str | None = None) -> PositionCounts:
    """Clicks and impressions by (document, position); in sessions, or in weighted ones."""
    check_clicks(lists, "this objective", "objective='lambda'")
    weight = lists.count if query_weight is None else lists.list_weights(query_weight)
    return counts_from_rows(
        lists.document,
        lists.position_index + 1,
        np.repeat(weight, np.diff(lists.indptr)).astype(float),
        lists.label,
        lists.n_documents,
        lists.depth,
    )


def check_clicks(lists: TrainingLists, what: str, instead: str) -> None:
    """Raise unless labels are 0 or 1, for what models clicks."""
    if not np.all((lists.label == 0) | (lists.label == 1)):
        raise OptionError(
            f"{what} models clicks, but the log's label is not 0/1. Use {instead}, or "
            "⟦log.with_label(...) with a click column|--label NAME⟧."
        )


def grade_shares(label: FloatArray) -> FloatArray:
    """A grade y as a share of clicks, (2^y - 1)/(2^max - 1)."""
    grade = np.exp2(label) - 1
    shares: FloatArray = grade / grade.max()
    return shares


def judged_counts(lists: TrainingLists) -> PositionCounts:
    """One impression of each judged document, its grade as a share of a click."""
    n = lists.n_documents
    return counts_from_rows(
        np.arange(n), np.ones(n, dtype=np.int64), np.ones(n), grade_shares(lists.label), n, 1
    )


def affine_curves(bias: BiasLike | None, depth: int) -> tuple[FloatArray, FloatArray]:
    """(alpha, beta) of a bias at positions 1..depth."""
    if bias is None:
        raise needs_bias("this objective")
    return curves_at(bias, depth)


def needs_bias(what: str) -> OptionError:
    """The error for a loss that cannot do without a curve."""
    return OptionError(
        f"{what} needs the position bias: give ⟦bias=...⟧, for instance an estimate "
        "(⟦ut.AllPairs().fit(log).bias_|that of `untilt bias LOG --out bias.json`⟧) or a curve "
        "(⟦ut.PowerLaw(1.0)|power-law:1.0⟧)."
    )


def curves_at(bias: BiasLike | None, depth: int) -> tuple[FloatArray, FloatArray]:
    """(alpha, beta) at positions 1..depth; ones and zeros without a bias."""
    if bias is None:
        return np.ones(depth), np.zeros(depth)
    alpha, beta = as_position_bias(bias, depth).affine()
    return alpha[:depth], beta[:depth]


def needs_rows(what: str, weighting: Weighting, instead: str) -> OptionError:
    """The error for weights that do not depend on the clicked position alone."""
    return OptionError(
        f"{what} weighs each click by its own position. The weights of {type(weighting).__name__} "
        "depend on the other document too, or can be negative. Use ut.IPS(bias), "
        f"ut.ExaminationWeights(form='inverse') or {instead}."
    )


def no_feature_varies(lists: TrainingLists) -> OptionError:
    """The error for features that tell no document from another."""
    return OptionError(
        f"all {len(lists.feature_names)} features are constant over the {lists.n_documents} "
        "shown documents, so there is nothing to learn from. Give read_log other feature columns."
    )


def nothing_to_learn() -> OptionError:
    """The error for data without a pair that says which document is better."""
    return OptionError(
        "there is nothing to learn from: no list holds two documents with different labels. "
        "Check that the log has clicks (log.ctr_by_position()) and lists of two or more."
    )

r"""Weightings of documents: what all sessions of a query together say about each of its documents.

A table of pair weights compares documents that one session showed. Where lists are cut at k and
several rankers were logged, a document is shown by some sessions and not by others, and its clicks
count too little by as much. With N sessions of the query, n_k of them with the document at position
k, c_k clicks there, and alpha_k = theta_k, beta_k = 0 (with trust bias alpha_k = theta_k (eps+_k -
eps-_k), beta_k = theta_k eps-_k), the propensity of a document is

    rho = sum_k n_k alpha_k / N

its mean over the rankings that the logging policy showed: 0 only if none showed it. The label of a
document is then

    policy-aware     r  = sum_k (c_k - n_k beta_k) / (N max(clip, rho))
    doubly robust    mu = g + sum_k (c_k - n_k (alpha_k g + beta_k)) / (N max(clip, rho))

with g the prediction of a model. A ranker weighs "i above j" by the label of i, over all documents
of the query that anybody was shown. Labels may be negative; what is unbiased, the preference for
one document of a pair, stays so (see `multiply_table` in `untilt.objectives.pair_kernels`).
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt.bias.given import BiasLike
from untilt.catalog import method
from untilt.errors import OptionError, check_least
from untilt.rankers.learning_data import TrainingLists, click_counts, nothing_to_learn, tie_order
from untilt.weighting.base import Weighting
from untilt.weighting.tables import AffineTable, check_clip

# Of the floor for rho of doubly robust labels, 2 / sqrt(N). Squared error of the labels in `dla`
# clicks on make_judged(300, 10), floors .1, .2, .3, .5, 1: at 10 sessions .096, .052, .038,
# .028, .023, at 100 sessions .011, .009, .009, .011, .016; without one .126 and .014.
_FLOOR = 2.0


@dataclass(frozen=True)
class PooledWeighting(AffineTable):
    """A weighting of documents in place of pairs of a session.

    All sessions of a query become one list of the documents that any of them showed. "i above j"
    weighs the label of i, whichever sessions showed the two. `table` and `offset` say what that is
    where all sessions of a query showed one list. The two differ in the model, and in the floor for
    rho.
    """

    @abstractmethod
    def labels(self, lists: TrainingLists) -> FloatArray:
        """(documents,) an estimate of each document's relevance; it may be negative."""

    def table(self, depth: int) -> FloatArray:
        """1 / max(clip, alpha_k) in each row; without a given clip that of very many sessions."""
        alpha, _ = self._affine(depth)
        row = 1 / np.maximum(self._floor(np.full(depth, np.inf)), alpha)
        return np.repeat(row[:, None], depth, axis=1)

    @abstractmethod
    def _floor(self, sessions: FloatArray) -> FloatArray:
        """The least rho that is divided by, for documents of queries with so many sessions."""

    def _labels(self, lists: TrainingLists, g: FloatArray | float) -> FloatArray:
        alpha, beta = self._affine(max(1, lists.depth))
        return document_labels(lists, alpha, beta, floor=self._floor, g=g)


@dataclass(frozen=True)
class PooledTable(Weighting):
    """What pairs of pooled lists weigh: the label, which is stored without its least value."""

    weighting: PooledWeighting
    least: float
    against = "all"
    per_session_norm = False

    def table(self, depth: int) -> FloatArray:
        """All ones."""
        return np.ones((depth, depth))

    def offset(self, depth: int) -> FloatArray | None:
        """The least label, where one is negative."""
        return np.full((depth, depth), self.least) if self.least < 0 else None

    @property
    def position_bias(self) -> BiasLike | None:
        """That of the weighting."""
        return self.weighting.position_bias


def pooled_lists(
    lists: TrainingLists, weighting: Weighting, gain: str
) -> tuple[TrainingLists, Weighting]:
    """One list per query and the table for it, where the weighting pools; else both as given."""
    if not isinstance(weighting, PooledWeighting):
        return lists, weighting
    name = type(weighting).__name__
    if gain not in ("auto", "linear"):
        raise OptionError(
            f"{name} estimates the label itself, so that gain must be 'auto' or 'linear'. "
            f"Got {gain!r} instead."
        )
    if weighting.against != "all":
        raise OptionError(
            f"{name} sets a document against all others of its query, but against is "
            f"{weighting.against!r}. Leave against out."
        )
    if not lists.label.any():
        raise nothing_to_learn()
    labels = weighting.labels(lists)
    least = min(0.0, float(labels.min()))
    return whole_queries(lists, labels - least), PooledTable(weighting, least)


def whole_queries(lists: TrainingLists, labels: FloatArray) -> TrainingLists:
    """One list per query: all documents that any session showed, with these labels of theirs."""
    queries, per_query = np.unique(lists.doc_query, return_counts=True)
    order = tie_order(lists)
    return replace(
        lists, indptr=ragged.indptr_of(per_query), query=queries,
        count=sum_by(lists.query, lists.count)[queries], document=order,
        position_index=np.zeros(len(order), dtype=np.int64), label=labels[order],
        slate_of_list=np.arange(len(queries)),
    )  # fmt: skip


def document_labels(
    lists: TrainingLists,
    alpha: FloatArray,
    beta: FloatArray,
    *,
    floor: Callable[[FloatArray], FloatArray],
    g: FloatArray | float = 0.0,
) -> FloatArray:
    """mu of each document; r where g is 0.

    Parameters
    ----------
    alpha, beta : (positions,)
    floor : sessions of each document's query -> the least rho that is divided by
    g : (documents,)
    """
    sessions = sum_by(lists.query, lists.count)[lists.doc_query].astype(float)

    def mean(values: FloatArray) -> FloatArray:
        return sum_by(lists.document, lists.row_count * values, lists.n_documents) / sessions

    rho = mean(alpha[lists.position_index])
    clicks = mean(lists.label - beta[lists.position_index])
    return g + (clicks - rho * g) / np.maximum(floor(sessions), rho)


@method(
    "weighting", "policy-aware", title="Policy-aware IPS", order=55, needs=("bias",),
    takes=("clip",), choose=("train", "select", "run"), reference="oosterhuis2020policy",
    note="clicks with inverse propensities over all sessions of the query, those too that did not "
    "show the document",
)  # fmt: skip
@dataclass(frozen=True)
class PolicyAware(PooledWeighting):
    r"""Inverse propensities of documents: r = sum (c - beta_k) / (N max(clip, rho)).

    rho = sum_k n_k alpha_k / N is the mean of alpha_k over the N sessions of the query, 0 in those
    that did not show the document ([oosterhuis2020policy]_). r is unbiased for the relevance of
    every document that any session showed, wherever and how often: lists may be cut at k and come
    from several rankers. All documents of the query are compared with one another. `AffineIPS`, and
    without trust bias `IPS(against="all")`, are the same where all sessions of a query showed one
    list. `clip` is a floor for rho: less variance, and too low a label for documents that were
    seldom shown.
    """

    clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip)

    def labels(self, lists: TrainingLists) -> FloatArray:
        """r of each document."""
        return self._labels(lists, 0.0)

    def _floor(self, sessions: FloatArray) -> FloatArray:
        return np.full(len(sessions), self.clip)


@method(
    "weighting", "doubly-robust", title="Doubly robust labels", order=56, cost=5.0,
    needs=("bias",), takes=("clip",), choose=("train", "select", "run"),
    reference="oosterhuis2023doubly",
    note="relevance as trees predict it for queries they have not seen, corrected by clicks with "
    "inverse propensities",
)  # fmt: skip
@dataclass(frozen=True)
class DoublyRobust(PooledWeighting):
    r"""A model, corrected by clicks: mu = g + sum (c - beta_k - alpha_k g) / (N max(clip, rho)).

    The labels of `PolicyAware` around a prediction g ([oosterhuis2023doubly]_). With the right
    curve mu is unbiased where rho >= clip, whatever g says, *and* where g is right, whatever the
    clip does. A wrong curve is not saved by a right g. With ``clip=0`` the model cancels and mu is
    the label of `PolicyAware`: the clip is what buys variance, and g what keeps it from harming.
    Written as mu = g + min(1, rho/clip) (r - g) it is a shrinkage of r towards g; LambdaMART's
    "posterior-label" shrinks by the evidence of each document.

    g is the position-based likelihood model of "pbm-likelihood", cross-fitted: `folds` trainings of
    `trees` trees, each without the queries that it predicts. Clicks must be 0 or 1.

    Parameters
    ----------
    clip : the floor for rho; None takes min(1, 2 / sqrt(N)), which vanishes with more sessions
    trees, folds, seed : of the model
    """

    clip: float | None = None
    trees: int = 100
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None:
            check_clip(self.clip)
        for name, least in (("trees", 1), ("folds", 2)):
            check_least(name, getattr(self, name), least)

    def labels(self, lists: TrainingLists) -> FloatArray:
        """mu of each document."""
        from untilt.rankers.trees.labels import cross_fitted_relevance
        from untilt.rankers.trees.lambdamart import LambdaMART
        from untilt.rankers.trees.objectives import BoostingOptions, TreeTraining

        click_counts(lists)  # says clearly where labels are no clicks
        boosting = BoostingOptions(LambdaMART(seed=self.seed).parameters(), self.trees)
        training = TreeTraining(self.bias, boosting, folds=self.folds, seed=self.seed)
        return self._labels(lists, cross_fitted_relevance(lists, training))

    def _floor(self, sessions: FloatArray) -> FloatArray:
        if self.clip is None:
            return np.minimum(1.0, _FLOOR / np.sqrt(sessions))
        return np.full(len(sessions), self.clip)

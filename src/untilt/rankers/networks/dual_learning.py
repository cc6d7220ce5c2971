"""Dual learning: a ranker and the position bias, each learned with the other's help."""

import os
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from typing import ClassVar, NamedTuple, Self

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, sum_by
from untilt._core.progress import track
from untilt._core.statistics import bootstrap_weights, check_level
from untilt.bias.curve import NO_INTERVAL_LEARNED, POSITION_BASED, PositionBias
from untilt.bias.em.regression_em import require_first_clicked
from untilt.bias.estimator import check_clicks
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.judged import JudgedLists
from untilt.data.slates import Slates, merge_slates
from untilt.errors import OptionError, check_least
from untilt.facts import Fact, joined, note, warning
from untilt.networks.batches import PaddedLists
from untilt.networks.mlp import Optimiser, Params
from untilt.networks.ranking_losses import dual_loss
from untilt.networks.training import StoppingRule, Trained
from untilt.rankers.base import check_positive
from untilt.rankers.learning_data import TrainingLists, nothing_to_learn, training_lists
from untilt.rankers.networks import network_ranker
from untilt.rankers.networks.neural import NeuralRanker, content_hash, padded_lists

SPREAD_RESAMPLED = note(
    "bias.spread-resampled",
    "over {n_resamples} resamples of {n_queries:,} queries the curve moved by up to {most:.0%} "
    "(one standard deviation, position {position}), which is only a part of its error",
)

NOT_EXAMINED = warning(
    "bias.not-examined", "no click at {positions:positions}: next to nothing is examined there"
)
FEATURES_EXPLAIN = note(
    "bias.features-explain",
    "position depends on relevance through the features alone: whoever ordered the lists knew "
    "nothing else about it",
)()

FLOOR = 1e-6  # of examination where a position has no click: a curve must stay above 0


@method(
    "bias", "dual-learning", title="Dual learning", order=32, rests_on="relevance model",
    needs=("features", "jax"), reference="ai2018dla",
    note="a ranker and the curve, each learned with the other as given",
)  # fmt: skip
@method(
    "ranker", "dual-learning", title="Dual learning", order=72, takes=("seed",), needs=("jax",),
    cost=10.0, choose=("train", "select", "run"), reference="ai2018dla", version=2,
    note="a network and the position bias, each learned with the other as given",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class DualLearning(network_ranker.DropoutNetworkRanker):
    r"""The dual learning algorithm (DLA) of [ai2018dla]_: two losses, each weighted by the other.

        ranker       - sum c_i (theta_1 / theta_i) log softmax(s)_i    over documents of a list
        propensity   - sum c_i (gamma_1 / gamma_i) log softmax(z)_i    over its positions

    with theta = softmax(z) and gamma = softmax(s), each taken as given in the other's loss. At the
    truth of the position-based model both are at their minimum: exp(s) is proportional to
    relevance and exp(z) to examination. After training the curve is carried to the minimum of the
    propensity loss at the ranker that was learned.

    It needs no intervention, and is as good as the features: whatever the production ranker knew
    and they do not is taken for examination. With one fixed order of lists and features that tell
    the order, any curve explains the clicks, and the result is where training happened to end:
    ask `ut.audit(log)` first (docs/rankers.md shows such a log). Only ratios are known:
    theta is relative to position 1. Trained on `JudgedLists` there is no bias: the ranker's loss on
    labels.

    Parameters
    ----------
    widths, activation, transform, epochs, batch_size, optimiser, learning_rate, schedule, l2,
        early_stopping, checkpoint : of the ranker's network, see `NetworkRanker`; a batch is of
        slates; l2=None takes 0.01. Held-out clicks are judged under the propensities learned so far
    dropout, clip_norm : see `DropoutNetworkRanker`
    propensity_learning_rate : of z; it has one number per position and may go faster
    largest_weight : neither ratio may exceed it; infinity leaves them as they are
    level : as in the other estimators of a curve; `bias_` has no interval (docs/rankers.md
        has the figures), so it changes nothing
    n_bootstrap : resamples of queries, each a training of its own: the status of `bias_` then says
        how far the curve moves with the sample, which is only a part of its error

    Fitted: `bias_`, and see `NetworkRanker`.
    """

    schedule: str = "cosine"
    propensity_learning_rate: float = 0.02
    largest_weight: float = float("inf")
    level: float = 0.95
    n_bootstrap: int = 0
    bias_: PositionBias | None = field(init=False)

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn ranker and bias from clicks; `valid` says when to stop, or queries set aside."""
        if isinstance(data, JudgedLists):
            return self._fit_labels(data, valid)
        check_clicks(data, type(self).__name__)
        self._check()
        parts = network_ranker.set_aside(self, data, valid)
        assert isinstance(parts.train, ClickLog)
        lists = training_lists(parts.train)
        require_first_clicked(position_counts(parts.train))
        inputs, slates = network_ranker.inputs_of(lists, self.transform), clicked_slates(lists)
        if len(slates.query) == 0:
            raise nothing_to_learn()
        stopping = network_ranker.stopping_for(
            self, parts.held_out, inputs, curve=_learned_curve, layers=itemgetter("ranker")
        )
        seen = network_ranker.fingerprint(
            self, inputs.features, slates.document, slates.position_index, slates.clicks,
            held_out=parts.held_out,
        )  # fmt: skip
        task = _DualTask(inputs, slates, stopping)
        trained = self._train(task, self.checkpoint, seen)
        self._keep_network(trained.params["ranker"], inputs)
        self.bias_ = self._bias(trained, task)
        self._keep_history(trained)
        self.summary_ = {**network_ranker.trained_on(lists), **self.summary_, **parts.summary}
        return self

    def _train(
        self,
        task: "_DualTask",
        checkpoint: str | os.PathLike[str] | None = None,
        fingerprint: str = "",
    ) -> Trained:
        inputs, slates, stopping = task
        batches = _batches(slates, self.batch_size, self.seed)
        scale = len(slates.query) / (batches.batch_size * float(slates.clicks.sum()))
        positions = np.zeros(slates.n_positions, np.float32)
        return self._training(
            dual_loss(self.activation, largest_weight=self.largest_weight, dropout=self.dropout),
            {"ranker": inputs.start(self), "propensity": positions},
            batches, inputs, constants={"scale": np.asarray(scale, np.float32)}, stopping=stopping,
            checkpoint=checkpoint, fingerprint=fingerprint, what="training ranker and propensities",
        ).alone()  # fmt: skip

    def _bias(self, trained: Trained, task: "_DualTask") -> PositionBias:
        fitted = self._propensities(trained, task)
        facts = [trained.status, NO_INTERVAL_LEARNED]
        if self.n_bootstrap:
            facts.append(self._spread(task))
        without = tuple((np.flatnonzero(fitted.without_click) + 1).tolist())
        if without:
            facts.append(NOT_EXAMINED(positions=without))
        return PositionBias(
            np.exp(fitted.z),
            method="DualLearning",
            assumes=(POSITION_BASED, FEATURES_EXPLAIN),
            status=joined(*facts),
            level=self.level,
            estimated=True,
        )

    def _spread(self, task: "_DualTask") -> Fact:
        """How far the curve moves over trainings on queries drawn anew."""
        slates = task.slates
        queries = np.unique(slates.query)
        drawn = np.zeros(int(queries[-1]) + 1)
        curves = []
        draws = bootstrap_weights(len(queries), self.n_bootstrap, self.seed)
        for weights in track(draws, "resampling queries"):
            drawn[queries] = weights
            weight = np.repeat(drawn[slates.query], ragged.lengths(slates.indptr))
            of_draw = task._replace(slates=replace(slates, clicks=slates.clicks * weight))
            curves.append(self._propensities(self._train(of_draw), of_draw).z)
        deviation = np.std(np.array(curves), axis=0, ddof=1)
        k = int(np.argmax(deviation))
        return SPREAD_RESAMPLED(
            n_resamples=self.n_bootstrap,
            n_queries=len(queries),
            deviation=tuple(deviation.tolist()),
            most=float(deviation[k]),
            position=k + 1,
        )

    def _propensities(self, trained: Trained, task: "_DualTask") -> "Propensities":
        layers, features = trained.params["ranker"], task.inputs.features
        scores = network_ranker.network_scores(layers, features, self.activation)
        return fit_propensities(task.slates, scores, self.largest_weight)

    def _fit_labels(self, judged: JudgedLists, valid: ClickLog | JudgedLists | None) -> Self:
        shared = [each.name for each in fields(network_ranker.DropoutNetworkRanker) if each.init]
        options = {name: getattr(self, name) for name in shared} | {"l2": self._penalty}
        ranker = NeuralRanker(loss="listwise", **options).fit(judged, valid=valid)
        for name, value in ranker._state().items():
            setattr(self, name, value)
        del self.bias_history_
        return self

    def _optimiser(self) -> Optimiser:
        factor = self.propensity_learning_rate / self.learning_rate
        return replace(super()._optimiser(), multipliers=(("propensity", factor),))

    def _check(self) -> None:
        check_level(self.level)
        check_positive("learning_rate", self.learning_rate)
        check_positive("propensity_learning_rate", self.propensity_learning_rate)
        self._check_network()
        check_least("largest_weight", self.largest_weight, 1)
        if self.n_bootstrap < 0 or self.n_bootstrap == 1:
            raise OptionError(
                f"n_bootstrap must be 0 (no resampling) or at least 2. Got {self.n_bootstrap} "
                "instead; 20 is usual."
            )


class _DualTask(NamedTuple):
    """What is trained on, and what it is stopped by."""

    inputs: network_ranker.NetworkInputs
    slates: "ClickedSlates"
    stopping: StoppingRule | None


@dataclass(frozen=True, eq=False, kw_only=True)
class ClickedSlates(Slates):
    """Slates of two or more documents with a click, in an order of their own contents.

    `RowSlates` have weights of one loss; here both losses weigh the clicks anew in each step.

    Parameters
    ----------
    clicks : (rows,) clicks over all sessions
    n_positions : the lowest position of the log, K; slates without a click may be the deepest
    """

    ROW_COLUMNS: ClassVar[tuple[str, ...]] = (*Slates.ROW_COLUMNS, "clicks")

    clicks: FloatArray
    n_positions: int

    def by_position(self, values: FloatArray) -> FloatArray:
        """(K,) sum of values (one per row) at each position."""
        return sum_by(self.position_index, values, self.n_positions)


def clicked_slates(lists: TrainingLists) -> ClickedSlates:
    """Sum the clicks over the sessions of each slate: both losses are linear in them."""
    merged, row = merge_slates(lists, lists.slate_of_list)
    clicks = sum_by(row, lists.row_count * lists.label, len(merged.document))
    slates = ClickedSlates.of(merged, clicks=clicks, n_positions=lists.depth)
    indptr = slates.indptr
    contents = content_hash(indptr, slates.document, slates.position_index)
    order = np.lexsort((contents, slates.query))
    useful = (ragged.sums_by_list(indptr, clicks) > 0) & (ragged.lengths(indptr) > 1)
    return slates.take(order[useful[order]])


def _batches(slates: ClickedSlates, batch_size: int, seed: int) -> PaddedLists:
    columns = {
        "row": slates.document,
        "position_index": slates.position_index,
        "clicks": slates.clicks.astype(np.float32),
    }
    order = np.arange(slates.n_slates)
    return padded_lists(slates.indptr, order, columns, batch_size=batch_size, seed=seed)


@dataclass(frozen=True, eq=False)
class Propensities:
    """z = log(theta / theta_1), and the positions without a click."""

    z: FloatArray
    without_click: BoolArray


def fit_propensities(
    slates: ClickedSlates, scores: FloatArray, largest_weight: float
) -> Propensities:
    r"""The minimum of the propensity loss with the ranker held fixed.

    Given the scores s of a ranker the loss of [ai2018dla]_ is a softmax regression on positions,

        - sum over clicks of (gamma_1 / gamma_i) log( exp(z_k) / sum over the slate of exp(z_l) ),

    convex in z = log theta. Where all slates have the same positions its minimum is theta_k
    proportional to the weighted clicks at k.
    """
    weighted = slates.clicks * relevance_ratio(slates, scores, largest_weight)
    theta = _softmax_regression(slates, weighted)
    without_click = slates.by_position(slates.clicks) == 0
    theta = np.where(without_click, FLOOR, theta)
    return Propensities(np.log(theta / theta[0]), without_click)


def relevance_ratio(slates: ClickedSlates, scores: FloatArray, largest_weight: float) -> FloatArray:
    """gamma_1 / gamma_i = exp(s_1 - s_i) of each row, at most `largest_weight`."""
    s = scores[slates.document]
    first = np.repeat(s[slates.indptr[:-1]], ragged.lengths(slates.indptr))
    return np.exp(np.minimum(first - s, min(np.log(largest_weight), 60.0)))


def _softmax_regression(slates: ClickedSlates, weighted: FloatArray) -> FloatArray:
    """theta by the fixed point theta_k = clicks_k / sum over slates with k of clicks / Z.

    Each step lowers the loss (it minimises a bound on it that touches at theta); with the same
    positions in all slates the first step is the minimum.
    """
    which = ragged.list_of_row(slates.indptr)
    clicks = slates.by_position(weighted)
    per_slate = ragged.sums_by_list(slates.indptr, weighted)
    theta = np.ones(slates.n_positions)
    for _ in range(1000):
        Z = ragged.sums_by_list(slates.indptr, theta[slates.position_index])
        share = (per_slate / Z)[which]
        chance = slates.by_position(share)
        new = np.maximum(clicks / np.maximum(chance, 1e-300), FLOOR)
        new /= new[0]
        settled = np.max(np.abs(np.log(new / theta))) < 1e-12
        theta = new
        if settled:
            break
    return theta


def _learned_curve(params: Params) -> FloatArray:
    """theta relative to position 1, as learned so far."""
    z = np.asarray(params["propensity"], dtype=float)
    return np.exp(z - z[0])

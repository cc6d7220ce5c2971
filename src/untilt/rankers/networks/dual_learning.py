"""Dual learning: a ranker and the position bias, each learned with the other's help."""

import os
from typing import Self

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt._core.statistics import bootstrap_weights, check_level
from untilt.bias.curve import PositionBias
from untilt.bias.em.em_estimator import require_shown
from untilt.bias.estimator import check_clicks
from untilt.bias.log_ratios import Uncertainty, from_log_ratios
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.facts import Fact, joined
from untilt.networks.batches import PaddedLists, bucket_lengths
from untilt.networks.jax_layers import Optimiser
from untilt.networks.ranking_losses import dual_loss
from untilt.networks.training import Stopping, Trained, train
from untilt.rankers.base import check_positive
from untilt.rankers.learning_data import nothing_to_learn, training_lists
from untilt.rankers.networks.dual_curve import (
    ClickedSlates,
    clicked_slates,
    dual_stopping,
    fit_propensities,
)
from untilt.rankers.networks.model import (
    Inputs,
    NetworkRanker,
    Noisy,
    fingerprint,
    inputs_of,
    network_scores,
)
from untilt.rankers.networks.neural import NeuralRanker

_SHARED = (
    "widths", "activation", "transform", "epochs", "batch_size", "optimiser", "learning_rate",
    "schedule", "l2", "dropout", "clip_norm", "early_stopping", "checkpoint", "seed",
)  # fmt: skip


@method(
    "bias", "dual-learning", title="Dual learning", order=32, rests_on="relevance model",
    needs=("features", "jax"), reference="ai2018dla",
    note="a ranker and the curve, each learned with the other as given",
)  # fmt: skip
@method(
    "ranker", "dual-learning", title="Dual learning", order=72, takes=("seed",), needs=("jax",),
    cost=10.0, choose=("train", "select", "run"), reference="ai2018dla",
    note="a network and the position bias, each learned with the other as given",
)  # fmt: skip
class DualLearning(NetworkRanker):
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
    ask `ut.audit(log)` first (docs/dual-learning.md shows such a log). Only ratios are known:
    theta is relative to position 1. Trained on `JudgedLists` there is no bias: the ranker's loss on
    labels.

    Parameters
    ----------
    widths, activation, transform, dropout, l2 : of the ranker's network, see `NeuralRanker`
    epochs, batch_size, optimiser, learning_rate, schedule, clip_norm : of training
    propensity_learning_rate : of z; it has one number per position and may go faster
    largest_weight : neither ratio may exceed it; infinity leaves them as they are
    early_stopping, checkpoint : see `NeuralRanker`
    level : of the intervals
    n_bootstrap : resamples of queries for the errors, each a training of its own. 0: by formula,
        the larger of clustered by query and click noise, with the learned relevance as given,
        hence too narrow (docs/dual-learning.md has figures)

    Fitted: `bias_`, and see `NetworkRanker`.
    """

    bias_: PositionBias | None

    def __init__(
        self,
        *,
        widths: tuple[int, ...] = (512, 256, 128),
        activation: str = "elu",
        transform: str = "none",
        epochs: int = 50,
        batch_size: int = 256,
        optimiser: str = "adam",
        learning_rate: float = 1e-3,
        propensity_learning_rate: float = 0.02,
        schedule: str = "cosine",
        l2: float = 0.0,
        dropout: float = 0.0,
        clip_norm: float | None = None,
        largest_weight: float = float("inf"),
        early_stopping: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        level: float = 0.95,
        n_bootstrap: int = 0,
        seed: int = 0,
    ) -> None:
        self.widths = widths
        self.activation = activation
        self.transform = transform
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.propensity_learning_rate = propensity_learning_rate
        self.schedule = schedule
        self.l2 = l2
        self.dropout = dropout
        self.clip_norm = clip_norm
        self.largest_weight = largest_weight
        self.early_stopping = early_stopping
        self.checkpoint = checkpoint
        self.level = level
        self.n_bootstrap = n_bootstrap
        self.seed = seed

    def fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn ranker and bias from clicks; with `early_stopping`, `valid` says when to stop."""
        if isinstance(data, JudgedLists):
            return self._fit_labels(data, valid)
        check_clicks(data, type(self).__name__)
        self._check()
        lists = training_lists(data)
        require_shown(position_counts(data))
        inputs, slates = inputs_of(lists, self.transform), clicked_slates(lists)
        if len(slates.query) == 0:
            raise nothing_to_learn()
        stopping = dual_stopping(valid, inputs, self)
        trained = self._train(inputs, slates, stopping, checkpoint=self.checkpoint)
        self._keep_network(trained.params["ranker"], inputs)
        self.bias_ = self._bias(trained, inputs, slates)
        self._keep_history(trained)
        self.summary_ = {**lists.summary(None), **self.summary_}
        del self.summary_["weighting"]
        return self

    def _train(
        self,
        inputs: Inputs,
        slates: ClickedSlates,
        stopping: Stopping | None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Trained:
        batches = _batches(slates, self.batch_size, self.seed)
        scale = len(slates.query) / (batches.batch_size * float(slates.clicks.sum()))
        start = {"ranker": inputs.start(self), "propensity": np.zeros(slates.depth, np.float32)}
        return train(
            dual_loss(self.activation, largest_weight=self.largest_weight, dropout=self.dropout),
            start,
            Noisy(batches, self.seed) if self.dropout > 0 else batches,
            optimiser=self._optimiser(),
            epochs=self.epochs,
            constants={
                "features": inputs.features,
                "l2": np.asarray(self.l2, np.float32),
                "scale": np.asarray(scale, np.float32),
            },
            stopping=stopping,
            checkpoint=checkpoint,
            fingerprint=""
            if checkpoint is None
            else fingerprint(self, inputs.features, slates.row, slates.place, slates.clicks),
            what="training ranker and propensities",
        )

    def _bias(self, trained: Trained, inputs: Inputs, slates: ClickedSlates) -> PositionBias:
        scores = network_scores(trained.params["ranker"], inputs.features, self.activation)
        found = fit_propensities(slates, scores, self.largest_weight)
        rule = joined(found.doubt.rule, Fact("bias.errors-given-relevance"))
        doubt = Uncertainty(found.doubt.covariance, rule)
        if self.n_bootstrap:
            doubt = self._resampled(inputs, slates)
        dead = tuple((np.flatnonzero(found.dead) + 1).tolist())
        no_click = [Fact("bias.not-examined", positions=dead)] if dead else []
        return from_log_ratios(
            found.z,
            doubt.covariance,
            level=self.level,
            method="DualLearning",
            assumes=(Fact("bias.position-based"), Fact("bias.features-explain")),
            status=joined(trained.status, doubt.rule, *no_click),
        )

    def _resampled(self, inputs: Inputs, slates: ClickedSlates) -> Uncertainty:
        """Covariance of the curve over trainings on queries drawn anew."""
        queries = np.unique(slates.query)
        drawn = np.zeros(int(queries[-1]) + 1)
        curves = []
        draws = bootstrap_weights(len(queries), self.n_bootstrap, self.seed)
        for weights in track(draws, "resampling queries"):
            drawn[queries] = weights
            curves.append(self._curve_of(inputs, slates.drawn(drawn)))
        rule = Fact("bias.errors-resampled", n_resamples=self.n_bootstrap, n_queries=len(queries))
        return Uncertainty(np.atleast_2d(np.cov(np.array(curves), rowvar=False)), rule)

    def _curve_of(self, inputs: Inputs, slates: ClickedSlates) -> FloatArray:
        layers = self._train(inputs, slates, None).params["ranker"]
        scores = network_scores(layers, inputs.features, self.activation)
        return fit_propensities(slates, scores, self.largest_weight).z

    def _keep_history(self, trained: Trained) -> None:
        self.losses_, self.watched_ = np.array(trained.losses), trained.watched
        self.summary_ = {
            "epochs": trained.epochs,
            "steps": trained.steps,
            "status": trained.status,
        }

    def _fit_labels(self, judged: JudgedLists, valid: ClickLog | JudgedLists | None) -> Self:
        options = {name: getattr(self, name) for name in _SHARED}
        ranker = NeuralRanker(loss="listwise", **options).fit(judged, valid=valid)
        for name, value in ranker._state().items():
            setattr(self, name, value)
        del self.bias_history_
        return self

    def _optimiser(self) -> Optimiser:
        factor = self.propensity_learning_rate / self.learning_rate
        return Optimiser(
            name=self.optimiser,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            multipliers=(("propensity", factor),),
        )

    def _check(self) -> None:
        check_level(self.level)
        self._check_network()
        check_positive("learning_rate", self.learning_rate)
        check_positive("propensity_learning_rate", self.propensity_learning_rate)
        self._optimiser().check()
        if not self.largest_weight >= 1:
            raise OptionError(
                f"largest_weight must be at least 1. Got {self.largest_weight} instead."
            )
        if self.n_bootstrap < 0 or self.n_bootstrap == 1:
            raise OptionError(
                f"n_bootstrap must be 0 (no resampling) or at least 2. Got {self.n_bootstrap} "
                "instead; 20 is usual."
            )


def _batches(slates: ClickedSlates, batch_size: int, seed: int) -> PaddedLists:
    lengths = np.diff(slates.indptr)
    return PaddedLists(
        indptr=slates.indptr,
        row_columns={
            "row": slates.row,
            "place": slates.place,
            "clicks": slates.clicks.astype(np.float32),
        },
        batch_size=min(batch_size, len(slates.query)),
        lengths=bucket_lengths(lengths),
        seed=seed,
    )

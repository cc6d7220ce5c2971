"""Pairwise debiasing with trust bias, for clicks and for feedback that is a number."""

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.random import child_generator
from untilt.bias.curve import PositionBias
from untilt.bias.given import as_examination, as_position_bias
from untilt.catalog import method
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice
from untilt.facts import Fact, joined, note
from untilt.networks.mlp import Layers, Params, start_layers
from untilt.networks.training import PART, Trained
from untilt.objectives.pair_slates import gains_of, list_norms
from untilt.rankers.base import check_positive, check_rounds
from untilt.rankers.learning_data import TrainingLists, nothing_to_learn, training_lists
from untilt.rankers.networks import network_ranker
from untilt.rankers.networks.network_ranker import (
    NetworkInputs,
    NetworkRanker,
    check_network,
    fingerprint,
    inputs_of,
    length_of,
    trained_on,
)
from untilt.rankers.trust import pair_em, trust_model
from untilt.rankers.trust.mini_batch import (
    fit_mini_batches,
    ranker_layers,
    slate_batches,
    theta_now,
)
from untilt.rankers.trust.slates import TrustSlates, trust_slates

UNCORRECTED = note("network.uncorrected", "labels as they are, {epochs} epochs")

LABELS = ("categorical", "continuous")
FORMS = ("mini-batch", "full-batch")
POSTERIORS = ("expected", "sampled")


@method(
    "ranker", "pairwise-trust", title="Pairwise trust ranker", order=73, takes=("bias", "seed"),
    needs=("jax",), cost=20.0, choose=("train", "select", "run"), reference="ren2021pairwise",
    note="a network on pairs, with trust bias by pair of positions",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class PairwiseTrustRanker(NetworkRanker):
    r"""Learn from pairs with c_i > c_j under pairwise trust bias ([ren2021pairwise]_).

    Labels may be clicks or any number >= 0 (dwell time, a synthesised label): the model asks only
    which of two is larger and which are 0. It estimates, by regression EM, examination theta_k,
    trust bias eps+_kl and eps-_kl by pair of positions, preference gamma(x_i, x_j) and relevance
    beta(x_i) (`untilt.rankers.trust.trust_model`), and trains a network on

    .. math:: \sum_{c_i > c_j} \frac{m_{ij} h_{ij}^{[c_j = 0]} |\Delta Z_{ij}|}{\theta_i \theta_j}
        \log(1 + e^{-(s_i - s_j)})

    with m_ij = P(i preferred | c_i > c_j, both examined), h_ij = P(e_j = 1 | c_i > c_j, c_j = 0).

    Right where labels above 0 follow the position-based model and the features tell relevance from
    position. What is not identified: a constant factor between theta and beta, and the two ends of
    gamma (docs/rankers.md); the order of documents depends on neither.

    Parameters
    ----------
    loss : "opt" (equation 18), "bayes-ipw" (16: without |dZ|), "ipw" (11: eps+ = 1, eps- = 0), or
        "naive": every pair weighs 1, no model of bias (the document's lower bound)
    labels : "categorical": clicks or grades, gain 2^y - 1 in dZ; "continuous": gain y
    em : "mini-batch": tables follow equation 20 while the networks learn; "full-batch": EM over
        the whole log first, whose likelihoods never fall, then the ranker
    relevance : who gives gamma and beta: "network", and with em="full-batch" also "linear"
        (logistic in the features) or "table" (one value per document and per pair of documents)
    preference : gamma by the difference of two "scores", or by a network on "pairs" of documents,
        as the document has it (`untilt.rankers.trust.trust_model`); K^2 passes a list instead of K
    bias : a known examination curve in place of an estimated one
    first_examination : theta_1 is held at this value; labels alone tell theta_k beta, so where beta
        is free a constant factor is free between the two
    posteriors : gamma and beta are fitted to "expected" posteriors, or to draws from them
        ("sampled", as the document has it: the same on average, with more noise)
    widths, activation, transform : of the networks; transform="log1p" for features of heavy tails
    epochs, batch_size, optimiser, learning_rate, schedule, l2, early_stopping, checkpoint : of
        training, see `NetworkRanker`; a batch is of slates. Held-out clicks are judged under the
        examination learned so far. em="full-batch" does EM again before it goes on from a
        checkpoint
    em_rate, em_decay : the tables' rate at step t is em_rate (1 + t)^-em_decay
    clip : smallest theta_i theta_j that is divided by
    tolerance, max_steps : of the full-batch EM

    The order is that of the ranker's score s; gamma only weighs its pairs, and may go in circles.

    Fitted: `pair_trust_` (tables), `preference_` (`PairPreference`: `.gamma(first, second)` of rows
    of features; None with "naive", judged lists and relevance other than "network"), `bias_`
    (examination relative to position 1), `network_`, `history_` (one `TrustEpoch` per epoch;
    mini-batch), `item_likelihood_` and `pair_likelihood_` (one value per step; full-batch), and
    what `NetworkRanker` has.
    """

    loss: str = "opt"
    _: KW_ONLY
    labels: str = "categorical"
    em: str = "mini-batch"
    relevance: str = "network"
    preference: str = "scores"
    bias: Any = None
    first_examination: float | None = None
    posteriors: str = "expected"
    batch_size: int = 32
    l2: float | None = 2e-3
    em_rate: float = 0.5
    em_decay: float = 0.1
    clip: float = 0.01
    tolerance: float = 1e-3
    max_steps: int = 500
    pair_trust_: trust_model.PairTrust | None = field(init=False)
    preference_: trust_model.PairPreference | None = field(init=False)
    bias_: PositionBias | None = field(init=False)
    history_: tuple[trust_model.TrustEpoch, ...] = field(init=False)
    item_likelihood_: FloatArray = field(init=False)
    pair_likelihood_: FloatArray = field(init=False)

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from feedback, or from labels where `data` is judged (the skyline)."""
        self._check()
        parts = network_ranker.set_aside(self, data, valid)
        lists = training_lists(parts.train)
        task = _TrustTask(self._slates(lists), inputs_of(lists, self.transform), parts.held_out)
        self.pair_trust_, self.preference_, self.bias_, self.history_ = None, None, None, ()
        self.item_likelihood_, self.pair_likelihood_ = np.zeros(0), np.zeros(0)
        if lists.judged or self.loss == "naive":
            layers, trained, status = self._fit_as_they_are(task)
        elif self.em == "mini-batch":
            layers, trained, status = self._fit_mini_batches(task)
        else:
            layers, trained, status = self._fit_full_batch(task)
        self._keep_network(layers, task.inputs)
        self.watched_ = trained.watched
        self.summary_ = {
            **trained_on(lists), "loss": self.loss, "em": self.em, **length_of(trained),
            "status": status, "training": trained.status, **parts.summary,
        }  # fmt: skip
        return self

    def _fit_mini_batches(self, task: "_TrustTask") -> tuple[Layers, Trained, Fact]:
        slates, batches = task.slates, slate_batches(task.slates, self.batch_size, self.seed)
        stopping = network_ranker.stopping_for(
            self, task.held_out, task.inputs, curve=theta_now, layers=ranker_layers
        )
        fingerprint = self._fingerprint(task)
        training = self._training(
            None, None, batches, task.inputs, stopping=stopping, fingerprint=fingerprint
        )
        fitted = fit_mini_batches(self, slates, training, self._known_theta(slates.depth))
        self._keep(fitted.trust)
        self._keep_preference(fitted.gamma, task.inputs)
        self.history_ = fitted.history
        self.losses_ = np.array([epoch.ranking_loss for epoch in fitted.history])
        return fitted.layers, fitted.trained, fitted.trust.status

    def _fit_full_batch(self, task: "_TrustTask") -> tuple[Layers, Trained, Fact]:
        slates = task.slates
        regressions = pair_em.regressions_for(self, slates, task.inputs.features)
        fit = pair_em.fit_full_batch(self, slates, regressions, self._known_theta(slates.depth))
        self.item_likelihood_ = fit.examination.history
        self.pair_likelihood_ = fit.trust.history
        self._keep(_tables(fit))
        if self.relevance == "network":
            self._keep_preference(fit.trust.state.gamma, task.inputs)
        weight = pair_em.weights_of_pairs(slates, fit, self.loss, self.clip)
        theta = fit.examination.state.theta
        trained = self._train(task, weight, lambda _: theta)
        return trained.params, trained, _status(fit)

    def _fit_as_they_are(self, task: "_TrustTask") -> tuple[Layers, Trained, Fact]:
        """Judged labels have no bias to correct, and the naive loss corrects none."""
        kind = "gain" if self.loss == "opt" else "above"
        slates = task.slates
        weight = getattr(slates, f"{kind}_positive") + getattr(slates, f"{kind}_zero")
        trained = self._train(task, weight, None)
        return trained.params, trained, UNCORRECTED(epochs=trained.epochs)

    def _train(
        self, task: "_TrustTask", weight: FloatArray, curve: network_ranker.Curve | None
    ) -> Trained:
        # On the scale of one session's pairs, so that weights do not change what l2 means.
        weight = weight * (task.slates.n_slates / weight.sum())
        widths = (len(task.inputs.mean), *self.widths, 1)
        start = start_layers(child_generator(self.seed, 0, 2), widths, activation=self.activation)
        trained = self._training(
            pair_em.weighted_loss(self.activation, self.loss == "opt"), start,
            slate_batches(task.slates, self.batch_size, self.seed, weight=weight), task.inputs,
            stopping=network_ranker.stopping_for(self, task.held_out, task.inputs, curve=curve),
            fingerprint=self._fingerprint(task), what="training the ranker",
        ).alone()  # fmt: skip
        self.losses_ = np.array(trained.losses)
        return trained

    def _fingerprint(self, task: "_TrustTask") -> str:
        slates = task.slates
        return fingerprint(
            self, task.inputs.features, slates.document, slates.position_index, slates.count,
            slates.positive, slates.gain_positive, slates.gain_zero, held_out=task.held_out,
        )  # fmt: skip

    def _keep(self, trust: trust_model.PairTrust) -> None:
        self.pair_trust_ = trust
        self.bias_ = trust.to_bias()
        if self.bias is not None and as_position_bias(self.bias, trust.depth).is_known:
            self.bias_ = replace(self.bias_, estimated=False, status=trust.status)

    def _keep_preference(self, params: Params, inputs: NetworkInputs) -> None:
        self.preference_ = trust_model.preference_of(
            params,
            self.preference,
            self.activation,
            mean=inputs.mean,
            scale=inputs.scale,
            transform=self.transform,
        )

    def _check_restored(self) -> None:
        super()._check_restored()
        self.preference_ = getattr(self, "preference_", None)  # files of before have none
        if self.preference_ is not None:
            network, n = self.preference_.network, len(self.feature_names_)
            inputs = 2 * n if self.preference_.form == "pairs" else n
            check_network("preference_", network, inputs)

    def _slates(self, lists: TrainingLists) -> TrustSlates:
        if self.labels == "categorical":
            _check_grades(lists.label)
        gain = gains_of(lists.label, "exponential" if self.labels == "categorical" else "linear")
        norm = list_norms(lists.indptr, gain, "ndcg")
        slates = trust_slates(lists, lists.label, gain, norm, lists.slate_of_list)
        if not (slates.above_positive.any() or slates.above_zero.any()):
            raise nothing_to_learn()
        return slates

    def _known_theta(self, depth: int) -> FloatArray | None:
        if self.bias is None:
            return None
        theta = np.asarray(as_examination(self.bias).at(np.arange(1, depth + 1)), dtype=float)
        # Only ratios matter, but examination is a probability in this model.
        return theta / max(1.0, theta.max())

    def _check(self) -> None:
        check_choice("loss", self.loss, trust_model.LOSSES)
        check_choice("labels", self.labels, LABELS)
        check_choice("em", self.em, FORMS)
        check_choice("relevance", self.relevance, pair_em.RELEVANCE)
        check_choice("posteriors", self.posteriors, POSTERIORS)
        check_choice("preference", self.preference, trust_model.PREFERENCES)
        if self.preference == "pairs" and self.relevance != "network":
            raise OptionError(
                "preference='pairs' is a network on two documents and needs ⟦relevance='network'⟧. "
                f"Got {self.relevance!r} instead; with a table every pair has its own value."
            )
        if self.em == "mini-batch" and self.relevance != "network":
            raise OptionError(
                f"mini-batches need ⟦relevance='network'⟧. Got {self.relevance!r} instead; "
                "em='full-batch' takes it, and widths=() makes a network a linear model."
            )
        self._check_network()
        check_rounds("max_steps", self.max_steps)
        for name in ("em_rate", "tolerance"):
            check_positive(name, getattr(self, name))
        for name in ("clip", "em_decay"):
            check_positive(name, getattr(self, name), or_zero=True)
        first = self.first_examination
        if first is not None and not 0 < first <= 1:
            raise OptionError(f"first_examination must lie above 0, up to 1. Got {first} instead.")
        if self.em_rate > 1:
            raise OptionError(f"em_rate must be at most 1. Got {self.em_rate} instead.")


class _TrustTask(NamedTuple):
    """What is trained on, and what it is stopped by."""

    slates: TrustSlates
    inputs: NetworkInputs
    held_out: network_ranker.Data | None


def _check_grades(label: FloatArray) -> None:
    odd = (label != np.round(label)) | (label > 30)
    if odd.any():
        raise OptionError(
            "labels='categorical' takes clicks or grades, whole numbers up to 30. Got a label of "
            f"{label[odd][0]:g}; use labels='continuous' for feedback such as dwell time."
        )


def _tables(fit: pair_em.FullBatchFit) -> trust_model.PairTrust:
    e, t = fit.examination.state, fit.trust.state
    return trust_model.PairTrust(e.theta, e.theta_minus, t.eps_plus, t.eps_minus, _status(fit))


def _status(fit: pair_em.FullBatchFit) -> Fact:
    return joined(
        PART(part="examination", status=fit.examination.status),
        PART(part="trust bias", status=fit.trust.status),
    )

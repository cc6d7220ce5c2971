r"""Evaluators: how clicks become relevance, so that rankings can be valued that nobody was shown.

For an additive metric the value of a ranker on one session is sum_i lambda(rank_i) gamma_i over the
documents i. An evaluator puts an estimate from clicks in place of the relevance gamma
([oosterhuis2020tutorial]_). In the formulas c is the click, k the position shown, theta_k its
examination, alpha_k = theta_k (eps+_k - eps-_k), beta_k = theta_k eps-_k, n_dk the impressions of
document d at position k, n_d their sum over positions and N_q the sessions of its query.

A ranker orders each shown list anew (`among="list"`): the rank of a document is the slot of its own
list that it gets. Pooled evaluators then take mean propensities over the n_d sessions that showed
the document, and count it in those of the baseline alone. Where a ranker orders all documents of a
query instead (`among="shown"`, "candidates"), N_q takes the place of n_d: a document counts 0 in
sessions that did not show it.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.catalog import method
from untilt.errors import OptionError
from untilt.evaluation.pool import ABSOLUTE, Credit, Evaluator, Pool, scores_of
from untilt.facts import Fact, note, serious, warning

SCALE_PER_RELEVANT = note(
    "estimate.scale-per-relevant", "per relevant document, whatever the scale of the bias"
)()
CLICKS_AS_THEY_ARE = serious(
    "estimate.clicks-as-they-are",
    "{evaluator}: clicks are counted as they are, so documents that were shown on top look better, "
    "and so do systems that keep them there",
)
MODEL_ONLY = warning(
    "estimate.model-only",
    "{evaluator}: the value is the relevance model's, which no click corrects",
)

# Evaluators that give each session the credit of its own clicks alone.


@method(
    "evaluator", "naive", title="Raw clicks", order=10, choose=("evaluate", "select"),
    note="raw clicks, without correction",
)  # fmt: skip
@dataclass(frozen=True)
class NaiveEvaluator(Evaluator):
    """c: clicks as they are. Biased: a document counts theta_k gamma, so the shown order wins."""

    needs_bias = False

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:  # noqa: ARG002
        """Each click counts 1."""
        zero, one = np.zeros(len(pool.clicks)), np.ones(len(pool.clicks))
        return Credit(pool.clicks * one, zero, one, zero > 0, one > 0)

    def scale(self, bias: PositionBias) -> Fact:  # noqa: ARG002
        """Clicks."""
        return note("estimate.scale-clicks", "in clicks")()

    def warnings(self) -> tuple[Fact, ...]:
        """That the bias is left in."""
        return (CLICKS_AS_THEY_ARE(evaluator=self.name),)


@method(
    "evaluator", "ips", title="Inverse propensity scoring", order=20, needs=("bias",),
    choose=("evaluate", "select", "run"), reference="joachims2017unbiased",
    note="clicks divided by the examination of their position",
)  # fmt: skip
@dataclass(frozen=True)
class IPSEvaluator(Evaluator):
    """c / theta_k. Unbiased under the position-based model ([joachims2017unbiased]_).

    The estimator of a total from a sample with unequal chances ([horvitz1952]_).
    High variance where theta is small. Where whole queries are ranked, not each list, a document
    that a session did not show counts as irrelevant in it.
    """

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click counts 1 / theta_k."""
        at = _bias_at_cells(pool, bias)
        return _weighted_clicks(pool, at, 1 / at.theta)


@dataclass(frozen=True)
class _Clips(Evaluator):
    """Base of the evaluators with a clip, the least propensity that a click is divided by."""

    clip: float = 0.0

    def __post_init__(self) -> None:
        _check_clip(self.clip, f"a number of at least 0 for {type(self).__name__}")


@method(
    "evaluator", "clipped", title="Clipped inverse propensity scoring",
    order=30, needs=("bias",), takes=("clip",),
    choose=("evaluate", "select", "run"), reference="joachims2017unbiased",
    note="clicks divided by their examination, which is raised to the clip at least",
)  # fmt: skip
@dataclass(frozen=True)
class ClippedEvaluator(Evaluator):
    """c / max(clip, theta_k). Less variance, some bias: gamma min(1, theta_k / clip); 1 is naive.

    "auto" chooses the clip with the least estimated mean squared error; see `untilt.clip_curve`.
    """

    clip: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.clip != "auto":
            _check_clip(self.clip, "'auto' or a number of at least 0")

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click counts 1 / max(clip, theta_k)."""
        assert self.clip != "auto", "estimate chooses the clip first"
        at = _bias_at_cells(pool, bias)
        return _weighted_clicks(pool, at, 1 / np.maximum(self.clip, at.theta), clip=self.clip)


@method(
    "evaluator", "snips", title="Self-normalised inverse propensity scoring",
    order=40, needs=("bias",), takes=("clip",),
    choose=("evaluate", "select", "run"), reference="swaminathan2015selfnormalized",
    note="inverse propensities divided by their sum: the metric per relevant document",
)  # fmt: skip
@dataclass(frozen=True)
class SNIPSEvaluator(_Clips):
    """The sum of c / max(clip, theta_k) times lambda over that without lambda.

    That is the metric *per relevant document*: the scale of theta cancels, and so does much of the
    noise ([swaminathan2015selfnormalized]_). Unbiased in the limit of many sessions.
    """

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click counts 1 / max(clip, theta_k), divided by the sum of these."""
        at = _bias_at_cells(pool, bias)
        weight = 1 / np.maximum(self.clip, at.theta)
        return _weighted_clicks(pool, at, weight, clip=self.clip, self_normalised=True)

    def scale(self, bias: PositionBias) -> Fact:  # noqa: ARG002
        """Per relevant document."""
        return SCALE_PER_RELEVANT


@method(
    "evaluator", "bayes-ips", title="Inverse propensity scoring with trust bias",
    order=50, needs=("bias",),
    choose=("evaluate", "select"), reference="agarwal2019trust",
    note="inverse propensities times the chance that a click means relevance",
)  # fmt: skip
@dataclass(frozen=True)
class BayesIPSEvaluator(Evaluator):
    """eps+/(eps+ + eps-) c / theta_k ([agarwal2019trust]_). Not unbiased under trust bias."""

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click counts P(relevant | click) / theta_k."""
        at = _bias_at_cells(pool, bias)
        return _weighted_clicks(pool, at, at.plus / (at.plus + at.minus) / at.theta)

    def unbiased(self) -> "AffineEvaluator":
        """The affine correction; the same where there is no trust bias."""
        return AffineEvaluator()


@method(
    "evaluator", "affine", title="Affine correction of clicks", order=60, needs=("bias",),
    choose=("evaluate", "select", "run"), reference="vardasbi2020affine",
    note="inverse propensities with the affine correction of trust bias",
)  # fmt: skip
@dataclass(frozen=True)
class AffineEvaluator(Evaluator):
    """(c - beta_k) / alpha_k, unbiased under trust bias; IPS without it [vardasbi2020affine]_."""

    corrects_trust = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click counts 1 / alpha_k, each impression -beta_k / alpha_k."""
        at = _bias_at_cells(pool, bias)
        # beta/alpha = eps-/(eps+ - eps-) does not depend on theta, so the slope has no such term.
        expected = pool.impressions * at.theta * at.minus
        return _weighted_clicks(pool, at, 1 / (at.theta * at.lift), without_relevance=expected)


# Evaluators whose weights belong to a document: its clicks are pooled over positions.


@method(
    "evaluator", "policy-aware", title="Policy-aware propensity scoring",
    order=70, needs=("bias",), takes=("clip",),
    choose=("evaluate", "select", "run"), default=True, reference="oosterhuis2020policy",
    note="clicks divided by a document's mean propensity over all sessions that showed it",
)  # fmt: skip
@dataclass(frozen=True)
class PolicyAwareEvaluator(_Clips):
    r"""sum (c - beta_k) / (n_d max(clip, rho_d)) with rho_d = sum_k n_dk alpha_k / n_d.

    The mean propensity rho_d of a document is taken over all sessions that showed it, experiments
    too, so its clicks at one position tell of it at all others. Where a ranker orders all documents
    of the query, rho_d = sum_k n_dk alpha_k / N_q ([oosterhuis2020policy]_): right for documents
    that only some sessions showed, which evaluators by session count as irrelevant in the others.
    The same as affine (and so as IPS) where all sessions showed one list. The default for this
    reason.
    """

    pools_documents = True
    corrects_trust = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Each click of a document counts 1 / max(clip, rho_d), wherever it was."""
        return _pooled(pool, bias, self.clip, None)


@method(
    "evaluator", "direct", title="Relevance model", order=80, takes=("relevance",),
    choose=("evaluate", "select"), reference="oosterhuis2023doubly",
    note="a relevance model in place of clicks",
)  # fmt: skip
@dataclass(frozen=True)
class DirectEvaluator(Evaluator):
    """g_d, a relevance model. No variance from clicks, all of the model's error.

    What the model is off by shows in clicks that it does not explain: with a position bias the
    interval is that of `DoublyRobustEvaluator`, widened to hold the value. Without one nothing is
    known of the model's error, and no interval is given.

    `relevance` : (documents of the log,) probabilities or a model whose `predict(features)` gives
    them; each document's own shrunken clicks where not given (`shrunken_relevance`).
    """

    relevance: Any = field(default=None, hash=False)
    needs_bias = False
    pools_documents = True
    corrects_trust = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """Clicks count nothing, each document its relevance."""
        zero = np.zeros(len(pool.clicks))
        model = _probabilities(self.relevance, pool, bias)
        return Credit(pool.clicks * zero, zero, zero, zero > 0, zero == 0, document=model)

    def unbiased(self) -> "DoublyRobustEvaluator":
        """The same model, corrected by clicks."""
        return DoublyRobustEvaluator(relevance=self.relevance)

    def scale(self, bias: PositionBias) -> Fact:  # noqa: ARG002
        """That of the model."""
        return ABSOLUTE

    def warnings(self) -> tuple[Fact, ...]:
        """That the value is the model's."""
        return (MODEL_ONLY(evaluator=self.name),)


@method(
    "evaluator", "doubly-robust", title="Doubly robust: a relevance model, corrected by clicks",
    order=90, needs=("bias",),
    takes=("clip", "relevance"), choose=("evaluate", "select", "run"),
    reference="oosterhuis2023doubly",
    note="a relevance model, corrected by the clicks that it does not explain",
)  # fmt: skip
@dataclass(frozen=True)
class DoublyRobustEvaluator(_Clips):
    """g_d + sum (c - beta_k - alpha_k g_d) / (n_d max(clip, rho_d)), g_d a relevance model.

    Documents that nobody was shown get the model, and clipping only costs where the model is wrong
    ([oosterhuis2023doubly]_). The curve theta must be right all the same. `relevance` : as of
    `DirectEvaluator`.
    """

    relevance: Any = field(default=None, hash=False)
    pools_documents = True
    corrects_trust = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """The model, and 1 / max(clip, rho_d) times what clicks exceed it by."""
        return _pooled(pool, bias, self.clip, _probabilities(self.relevance, pool, bias))


# By the probabilities that the lists of the log were drawn by.


@method(
    "evaluator", "logged-propensities", title="Logged propensities", order=100,
    needs=("propensity",), takes=("self_normalised",), choose=("evaluate", "run"),
    reference="swaminathan2015selfnormalized",
    note="clicks where the ranker leaves the document in its place, divided by logged propensities",
)  # fmt: skip
@dataclass(frozen=True)
class LoggedPropensityEvaluator(Evaluator):
    r"""c pi / p, p the logged probability with which the document was shown at its position.

    pi is the probability that the new ranker puts it there: 0 or 1, documents with equal scores
    share. Then sum lambda_k c pi / p over the slots of a session is unbiased for the clicks at the
    positions of the new ranker, each times lambda, whatever made people click
    ([horvitz1952]_): no curve, no relevance. It assumes that propensities are right, that the
    policy may show what the ranker shows (`untilt.evaluation.propensities` tests both), and that a
    click depends on what stands in its own slot. The default where the log has propensities that
    pass. `self_normalised` divides by the sum of lambda pi / p, and multiplies by what that is
    expected to be: less noise where propensities are small, unbiased in the limit of many sessions
    ([swaminathan2015selfnormalized]_).
    """

    self_normalised: bool = False
    needs_bias = False
    matches_slots = True

    def credit(self, pool: Pool, bias: PositionBias) -> Credit:  # noqa: ARG002
        """Each click counts 1 / p."""
        weight = 1 / np.asarray(pool.propensity)
        mass = pool.impressions * weight if self.self_normalised else None
        return Credit(pool.clicks * weight, 0 * weight, weight, weight < 0, weight > 0, mass=mass)

    def scale(self, bias: PositionBias) -> Fact:  # noqa: ARG002
        """Clicks at the new positions."""
        return note("estimate.scale-clicks-there", "in clicks where the new order shows things")()


# What the formulas share.


@dataclass(frozen=True, eq=False)
class _BiasAtCells:
    """The bias at each cell: theta, eps+, eps-, lift = eps+ - eps-; lift 1 where not supported."""

    theta: FloatArray
    plus: FloatArray
    minus: FloatArray
    lift: FloatArray
    supported: BoolArray


def _bias_at_cells(pool: Pool, bias: PositionBias) -> _BiasAtCells:
    index = np.minimum(pool.position, bias.depth) - 1
    plus, minus = np.ones(bias.depth), np.zeros(bias.depth)
    if bias.eps_plus is not None and bias.eps_minus is not None:
        plus, minus = bias.eps_plus, bias.eps_minus
    # Where eps+ <= eps- a click says nothing about relevance: no support, as beyond the curve.
    supported = (pool.position <= bias.depth) & (plus > minus)[index]
    return _BiasAtCells(
        theta=bias.examination[index],
        plus=plus[index],
        minus=minus[index],
        lift=np.where(supported, (plus - minus)[index], 1.0),
        supported=supported,
    )


def _weighted_clicks(
    pool: Pool,
    at: _BiasAtCells,
    weight: FloatArray,
    *,
    clip: float = 0.0,
    without_relevance: FloatArray | float = 0.0,
    self_normalised: bool = False,
) -> Credit:
    """Each click counts `weight`, less the clicks that are expected without relevance."""
    weight = np.where(at.supported, weight, 0.0)
    clipped = at.theta < clip
    return Credit(
        cell=weight * (pool.clicks - without_relevance),
        slope=np.where(clipped, 0.0, -weight * pool.clicks / at.theta),
        weight=weight,
        clipped=clipped,
        supported=at.supported,
        self_normalised=self_normalised,
    )


def mean_propensities(pool: Pool, bias: PositionBias) -> FloatArray:
    """(documents,) rho_d = sum_k n_dk alpha_k / n_d; N_q for n_d where whole queries are ranked."""
    at = _bias_at_cells(pool, bias)
    n = np.where(at.supported, pool.impressions, 0.0)
    return pool.by_document(n * at.theta * at.lift) / np.maximum(pool.observed, 1.0)


def _pooled(
    pool: Pool, bias: PositionBias, clip: float, relevance: FloatArray | None
) -> Credit:  # fmt: skip
    """Each click counts 1/max(clip, rho_d), wherever it was, times the sessions ordered per n_d."""
    at = _bias_at_cells(pool, bias)
    y, n = pool.clicks, np.where(at.supported, pool.impressions, 0.0)
    owner, observed = pool.document_index, np.maximum(pool.observed, 1.0)
    rho = mean_propensities(pool, bias)
    with np.errstate(divide="ignore"):
        inverse = np.where(rho > 0, 1 / np.maximum(clip, rho), 0.0)
    share = pool.ordered / observed
    weight = share * inverse
    expected_rate = at.minus if relevance is None else at.minus + at.lift * relevance[owner]
    residual = np.where(at.supported, y, 0.0) - n * at.theta * expected_rate
    low = rho < clip
    by_rho = np.where(low, 0.0, pool.by_document(residual) * weight * inverse / observed)
    return Credit(
        cell=residual * weight[owner],
        slope=-n * expected_rate * weight[owner] - by_rho[owner] * n * at.lift,
        weight=np.where(at.supported, weight[owner], 0.0),
        clipped=low[owner],
        supported=at.supported,
        document=relevance,
    )


def _probabilities(relevance: Any, pool: Pool, bias: PositionBias) -> FloatArray:
    """(documents,) of a relevance model on the documents of the pool."""
    if relevance is None:
        return shrunken_relevance(pool, bias)
    g = scores_of(relevance, pool, "relevance")
    if g.min(initial=0) < 0 or (pool.log.is_binary and g.max(initial=0) > 1):
        raise OptionError(
            f"relevance must be probabilities. Got values from {g.min():.3g} to {g.max():.3g}: "
            "scores of a ranker are not. Turn them into probabilities, or leave relevance out."
        )
    return g


def shrunken_relevance(pool: Pool, bias: PositionBias) -> FloatArray:
    r"""(documents,) each document's own click-based relevance, shrunk towards that of its log.

        g_d = (sum_k (y_dk - n_dk beta_k) + m g) / (sum_k n_dk alpha_k + m),   kept in [0, 1]

    with g the pooled relevance and m = 1 examined impression. A model of last resort: it knows
    nothing of features, and a document that nobody was shown gets g.
    """
    supported, alpha, beta = pool.under(bias)
    clicks, exposure = supported.corrected_sums(alpha, beta)
    g = float(np.clip(clicks.sum() / max(exposure.sum(), 1e-300), 0, 1))
    return np.clip((clicks + g) / (exposure + 1), 0, 1)


def _check_clip(clip: object, rule: str) -> None:
    if not (isinstance(clip, int | float | np.number) and np.isfinite(clip) and clip >= 0):
        raise OptionError(f"clip must be {rule}. Got {clip!r} instead; 0 is no clipping.")

"""weighting="auto": held-out clicks say which objective suits the log; blend where none wins.

The likelihood of clicks is best with few sessions per document, counts with many, and pairs in
between; held-out clicks tell which of these a log is. The candidates are trained on 80% of the
queries and judged by the propensity-weighted DCG@10 on the rest. Averaging the likelihood model
with the posterior-label model lowers variance and was best or within noise of it in every simulated
case, so the blend is kept unless one candidate beats it by more than two standard errors.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray, sum_by
from untilt._core.progress import track
from untilt._core.random import child_generator
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt._core.threads import thread_count
from untilt.catalog import method, record_of, storable
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.objectives.pbm import PbmLikelihood, sigmoid
from untilt.rankers import learning_data
from untilt.rankers.trees import objectives
from untilt.rankers.trees.boosting import Boosted, boost
from untilt.rankers.validation import HeldOutClicks, held_out_clicks, held_out_labels
from untilt.weighting.tables import Balanced

# Graded labels from clicks: a document's relevance, as far as the clicks tell.
#
# Per (query, document), with n_k impressions and c_k clicks at position k:
#
#     IPS label   r  = sum_k c_k / sum_k n_k theta_k
#     posterior   mu = g + v/(v + noise) (r - g)
#                 noise = sum_k n_k p_k (1 - p_k) / (sum_k n_k theta_k)^2,  p_k = theta_k g,
#
# which is g (1 - theta g)/(n theta) at a single position.
#
# g is the prediction of a position-based likelihood model that has not seen the query
# (cross-fitted), v the variance of true relevance around it, by moments. With few sessions mu is
# the model, with many it is the counts: empirical Bayes, after the idea of [efron1973stein]_.


@dataclass(frozen=True, eq=False)
class RelevanceEstimates:
    """Per document: the IPS estimate of relevance and the information behind it.

    With trust bias r = sum (c_k - n_k beta_k) / sum n_k alpha_k, which is unbiased for relevance.
    Its variance is sum n_k p_k (1 - p_k) / exposure^2 with p_k = alpha_k g + beta_k: a polynomial
    in g, whose three coefficients are `spread`.
    """

    estimate: FloatArray
    exposure: FloatArray
    spread: tuple[FloatArray, FloatArray, FloatArray]

    @property
    def labels(self) -> FloatArray:
        """r, kept in [0, 1]: relevance is a probability."""
        return np.clip(self.estimate, 0.0, 1.0)

    def noise(self, relevance: FloatArray) -> FloatArray:
        """Variance of the estimate where the relevance is this; never quite 0."""
        g = np.clip(relevance, 1e-3, 1.0)
        constant, linear, quadratic = self.spread
        return np.maximum(constant + linear * g + quadratic * g**2, 1e-3 * g / self.exposure)


def relevance_estimates(
    counts: PositionCounts, alpha: FloatArray, beta: FloatArray
) -> RelevanceEstimates:
    """Pool the positions of each document: clicks over expected examinations."""
    document = counts.document_index
    a, b, n = alpha[counts.position_index], beta[counts.position_index], counts.impressions

    def sums(values: FloatArray) -> FloatArray:
        return sum_by(document, values, counts.n_documents)

    exposure = np.maximum(sums(n * a), 1e-12)
    coefficients = (b * (1 - b), a * (1 - 2 * b), -(a**2))
    constant, linear, quadratic = (sums(n * c) / exposure**2 for c in coefficients)
    corrected = sums(counts.clicks - n * b)
    return RelevanceEstimates(corrected / exposure, exposure, (constant, linear, quadratic))


def posterior_labels(estimates: RelevanceEstimates, prior: FloatArray) -> tuple[FloatArray, float]:
    """(mu, v): each document's estimate shrunk towards the prior as far as it is noise."""
    noise = estimates.noise(prior)
    v = residual_variance(estimates, prior, noise)
    mu = prior + v / (v + noise) * (estimates.estimate - prior)
    return np.clip(mu, 0.0, 1.0), v


def residual_variance(estimates: RelevanceEstimates, prior: FloatArray, noise: FloatArray) -> float:
    """v by moments: E (r - g)^2 = v + noise, weighted so that precise documents count.

    Weights 1/(v + noise)^2 are those of least variance; a few rounds settle them.
    """
    squared = (estimates.estimate - prior) ** 2
    v = float(np.var(prior)) + 1e-4
    for _ in range(20):
        weight = 1 / (v + noise) ** 2
        new = max(float(np.sum(weight * (squared - noise)) / np.sum(weight)), 1e-6)
        if abs(new - v) < 1e-4 * v:
            break
        v = new
    return v


@method(
    "objective", "ips-label", options={"objective": "ips-label"},
    title="IPS label", order=62, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="LambdaMART on relevance as clicks over expected examinations",
)  # fmt: skip
def ips_objective(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> objectives.PairTreeObjective:
    """Lambdas on IPS labels."""
    curves = learning_data.affine_curves(training.bias, lists.depth)
    estimates = relevance_estimates(learning_data.click_counts(lists), *curves)
    return objectives.label_objective(lists, estimates.labels, training.lambdas)


@method(
    "objective", "posterior-label", options={"objective": "posterior-label"},
    title="Posterior label", order=61, cost=5.0, needs=("bias",),
    choose=("train", "select", "run"), public=False,
    note="LambdaMART on relevance as the position-based model sees it after the clicks",
)  # fmt: skip
def posterior_objective(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> objectives.PairTreeObjective:
    """Lambdas on posterior labels: a cross-fitted likelihood model and the counts, combined."""
    curves = learning_data.affine_curves(training.bias, lists.depth)
    if not lists.label.any():
        raise learning_data.nothing_to_learn()
    prior = cross_fitted_relevance(lists, training)
    labels, _ = posterior_labels(
        relevance_estimates(learning_data.click_counts(lists), *curves), prior
    )
    return objectives.label_objective(lists, labels, training.lambdas, two_sided=True)


def cross_fitted_relevance(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> FloatArray:
    """Relevance of each document as predicted by trees that have not seen its query.

    A prior fitted on the same clicks would agree with their noise and shrink nothing.
    """
    queries = np.unique(lists.doc_query)
    if training.folds < 2 or len(queries) < 2:
        raise OptionError(
            f"posterior labels are cross-fitted: they need at least 2 folds and 2 queries. Got "
            f"folds={training.folds} and {len(queries)} queries. With one query use "
            f"objective={record_of(ips_objective).name!r}."
        )
    fold_of_query = np.zeros(int(queries.max()) + 1, dtype=np.int64)
    shuffled = child_generator(training.seed, 17).permutation(queries)
    n_folds = min(training.folds, len(queries))
    fold_of_query[shuffled] = np.arange(len(queries)) % n_folds
    fold = fold_of_query[lists.doc_query]
    relevance = np.empty(lists.n_documents)
    for held_out in range(n_folds):
        chosen = fold == held_out
        relevance[chosen] = _predict_left_out(lists, training, chosen)
    return relevance


def _predict_left_out(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining, left_out: BoolArray
) -> FloatArray:
    part, curves = (
        lists.of_documents(~left_out),
        learning_data.affine_curves(training.bias, lists.depth),
    )
    counts = learning_data.click_counts(part, training.lambdas.query_weight)
    objective = objectives.PbmTreeObjective(PbmLikelihood(counts, *curves))
    booster = boost(part, objective, training.boosting).booster
    threads = thread_count(training.boosting.n_threads) or 0
    scores = booster.predict(lists.features[left_out], num_threads=threads)
    return sigmoid(np.asarray(scores) + objective.base_score)


BLEND = "blend"
HOLD_OUT = 0.2


@storable
@dataclass(frozen=True)
class AutoChoice:
    """What "auto" picked and why. `estimates` are held-out DCG@10 per session, by candidate."""

    picked: str
    reason: str
    estimates: dict[str, MeanEstimate]
    blend_scale: float = 1.0

    def __str__(self) -> str:
        rows = [f"  {name}: {value}" for name, value in self.estimates.items()]
        return "\n".join([f"picked {self.picked}: {self.reason}", *rows])


def candidates() -> dict[
    str, Callable[[learning_data.TrainingLists, objectives.TreeTraining], objectives.TreeObjective]
]:
    """What "auto" tries, by name. The first two are blended."""
    makers = (objectives.pbm_objective, posterior_objective)
    return {
        **{record_of(maker).name: maker for maker in makers},
        record_of(Balanced).name: _balanced_pairs,
    }


def _balanced_pairs(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining
) -> objectives.PairTreeObjective:
    assert training.bias is not None
    return objectives.lambda_objective(lists, Balanced(training.bias), training.lambdas)


@method(
    "objective", "auto", options={"weighting": "auto"},
    title="Chosen by held-out clicks", order=35, cost=11.0, drop=100, needs=("bias",),
    choose=("train", "select", "run", "usual"), public=False,
    note="LambdaMART whose objective held-out clicks of the training queries chose",
)  # fmt: skip
def fit_auto(
    log: ClickLog,
    lists: learning_data.TrainingLists,
    training: objectives.TreeTraining,
    valid: ClickLog | JudgedLists | None,
) -> tuple[AutoChoice, Boosted]:
    """Choose by `valid`, or by queries set aside, then train the choice on all of the log."""
    if training.bias is None:
        raise OptionError(
            "weighting='auto' needs the position bias: give bias=..., for instance an estimate "
            "(ut.AllPairs().fit(log).bias_) or a curve (ut.PowerLaw(1.0))."
        )
    choice = _choose(log, training, valid)
    return choice, train_choice(lists, training, choice)


def _choose(
    log: ClickLog, training: objectives.TreeTraining, valid: ClickLog | JudgedLists | None
) -> AutoChoice:
    if isinstance(valid, JudgedLists):
        train, judge = log, held_out_labels(valid)
    elif isinstance(valid, ClickLog):
        train, judge = log, held_out_clicks(valid, training.bias)
    else:
        train, rest = log.split(1 - HOLD_OUT, by="query", seed=training.seed)
        judge = held_out_clicks(rest, training.bias)
    lists, makers = learning_data.training_lists(train), candidates()
    scores: dict[str, FloatArray] = {}
    for name in track(tuple(makers), "choosing by held-out clicks"):
        booster = boost(lists, makers[name](lists, training), training.boosting).booster
        threads = thread_count(training.boosting.n_threads) or 0
        scores[name] = np.asarray(booster.predict(judge.features, num_threads=threads))
    first, second, *_ = scores.values()
    scale = float(np.std(first)) / max(float(np.std(second)), 1e-12)
    return verdict({**scores, BLEND: first + scale * second}, judge, scale)


def verdict(scores: dict[str, FloatArray], judge: HeldOutClicks, scale: float) -> AutoChoice:
    """The best candidate where it beats the blend by two standard errors, else the blend."""
    values = {name: judge.per_query(score) for name, score in scores.items()}
    estimates = {
        name: weighted_mean(value / judge.sessions, judge.sessions)
        for name, value in values.items()
    }
    best = max(estimates, key=lambda name: estimates[name].value)
    gain = weighted_mean((values[best] - values[BLEND]) / judge.sessions, judge.sessions)
    if best == BLEND:
        return AutoChoice(BLEND, Fact("training.blend-best"), estimates, scale)
    if gain.value > 2 * gain.std_error:
        reason = Fact("training.better-than-blend", gain=gain.value)
        return AutoChoice(best, reason, estimates, scale)
    reason = Fact("training.ahead-within-noise", candidate=best, gain=gain.value)
    return AutoChoice(BLEND, reason, estimates, scale)


def train_choice(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining, choice: AutoChoice
) -> Boosted:
    """The picked model, or the blend as one booster: one model to save, export and serve."""
    makers = candidates()
    if choice.picked != BLEND:
        return boost(lists, makers[choice.picked](lists, training), training.boosting)
    make_first, make_second, *_ = makers.values()
    first = boost(lists, make_first(lists, training), training.boosting)
    # The second model's trees are grown on their own scores, (total - first)/scale, and are added
    # to the same booster with their share of the blend.
    params = training.boosting.params
    scaled = {**params, "learning_rate": params["learning_rate"] * choice.blend_scale}
    return boost(
        lists,
        _OnItsOwn(make_second(lists, training), choice.blend_scale),
        replace(training.boosting, params=scaled),
        start=first.booster,
    )


class _OnItsOwn(objectives.LikeAFunction):
    """An objective that sees only what was added since its first call, divided by the scale."""

    def __init__(self, objective: objectives.TreeObjective, scale: float) -> None:
        self._objective, self._scale = objective, scale
        self._before: FloatArray | None = None

    def __call__(self, scores: FloatArray, dataset: object) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian at the scores of the added trees."""
        if self._before is None:
            self._before = scores.copy()
        # Subtraction leaves noise of 1e-16, which would break the ties between documents in the
        # same leaves at random, and with them the ranks that lambdas are made of.
        own = np.round((scores - self._before) / self._scale, 10)
        return self._objective(own, dataset)

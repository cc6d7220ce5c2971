"""weighting="auto": held-out clicks say which objective suits the log; blend where none wins.

The likelihood of clicks is best with few sessions per document, counts with many, and pairs in
between; which of these a log is, its own held-out clicks tell. The candidates are trained on 80% of
the queries and judged by the propensity-weighted DCG@10 on the rest. Averaging the likelihood model
with the posterior-label model lowers variance and was best or within noise of it in every simulated
case, so the blend is kept unless one candidate beats it by more than two standard errors.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untilt._core.arrays import FeatureArray, FloatArray
from untilt._core.progress import track
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.catalog import method, storable
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.rankers.held_out import HeldOutClicks, held_out_clicks, held_out_labels
from untilt.rankers.learning_data import TrainingLists, training_lists
from untilt.rankers.trees.boosting import Boosted, boost
from untilt.rankers.trees.labels import posterior_objective
from untilt.rankers.trees.objectives import (
    LikeAFunction,
    TreeObjective,
    lambda_objective,
    pbm_objective,
)
from untilt.weighting.tables import Balanced

if TYPE_CHECKING:
    from untilt.rankers.trees.lambdamart import LambdaMART

BLEND = ("pbm-likelihood", "posterior-label")
CANDIDATES = ("pbm-likelihood", "posterior-label", "balanced")
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


@method(
    "objective", "auto", options={"weighting": "auto"},
    title="Chosen by held-out clicks", order=35, cost=11.0, needs=("bias",),
    choose=("train", "select", "run", "usual"), public=False,
    note="LambdaMART whose objective held-out clicks of the training queries chose",
)  # fmt: skip
def fit_auto(
    ranker: "LambdaMART", data: ClickLog | JudgedLists, valid: ClickLog | JudgedLists | None
) -> "LambdaMART":
    """See `LambdaMART(weighting="auto")`."""
    if isinstance(data, JudgedLists):
        ranker.weighting = None
        try:
            ranker.fit(data, valid=valid)
        finally:
            ranker.weighting = "auto"
        ranker.choice_ = AutoChoice("labels", "judged lists need no correction", {})
        return ranker
    if ranker.bias is None:
        raise OptionError(
            "weighting='auto' needs the position bias: give bias=..., for instance an estimate "
            "(ut.AllPairs().fit(log).bias_) or a curve (ut.PowerLaw(1.0))."
        )
    if ranker.early_stopping is not None:
        raise OptionError(
            "weighting='auto' grows every candidate to n_trees and then blends, so early_stopping "
            "has no meaning there. Leave it out, or choose one objective yourself."
        )
    lists = training_lists(data)  # checks the data before anything is set aside
    ranker.choice_ = _choose(ranker, data, valid)
    return _refit(ranker, lists, ranker.choice_)


def _choose(
    ranker: "LambdaMART", log: ClickLog, valid: ClickLog | JudgedLists | None
) -> AutoChoice:
    if isinstance(valid, ClickLog):
        train, judge = log, held_out_clicks(valid, ranker.bias)
    elif isinstance(valid, JudgedLists):
        train, judge = log, held_out_labels(valid)
    else:
        train, rest = log.split(1 - HOLD_OUT, by="query", seed=ranker.seed)
        judge = held_out_clicks(rest, ranker.bias)
    lists = training_lists(train)
    scores: dict[str, FloatArray] = {}
    for name in track(CANDIDATES, "choosing by held-out clicks"):
        boosted = boost(
            lists,
            _objective(ranker, lists, name),
            params=ranker.parameters(),
            n_trees=ranker.n_trees,
            n_threads=ranker.n_threads,
        )
        scores[name] = _predict(ranker, boosted, judge.features)
    first, second = (scores[name] for name in BLEND)
    scale = float(np.std(first)) / max(float(np.std(second)), 1e-12)
    return _verdict({**scores, "blend": first + scale * second}, judge, scale)


def _verdict(scores: dict[str, FloatArray], judge: HeldOutClicks, scale: float) -> AutoChoice:
    values = {name: judge.per_query(score) for name, score in scores.items()}
    estimates = {
        name: weighted_mean(value / judge.sessions, judge.sessions)
        for name, value in values.items()
    }
    best = max(estimates, key=lambda name: estimates[name].value)
    gain = weighted_mean((values[best] - values["blend"]) / judge.sessions, judge.sessions)
    if best == "blend":
        reason = "the blend of likelihood and posterior labels did best on held-out clicks"
    elif gain.value > 2 * gain.std_error:
        reason = f"better than the blend on held-out clicks by {gain.value:.4f} DCG@10"
        return AutoChoice(best, reason, estimates, scale)
    else:
        reason = f"{best} was ahead on held-out clicks by {gain.value:.4f} DCG@10, within noise"
    return AutoChoice("blend", reason, estimates, scale)


def _refit(ranker: "LambdaMART", lists: TrainingLists, choice: AutoChoice) -> "LambdaMART":
    names = BLEND if choice.picked == "blend" else (choice.picked,)
    first = boost(
        lists,
        _objective(ranker, lists, names[0]),
        params=ranker.parameters(),
        n_trees=ranker.n_trees,
        n_threads=ranker.n_threads,
    )
    if len(names) == 1:
        return ranker._keep(first, lists, None)
    # The second model's trees are grown on their own scores, (total - first)/scale, and land in the
    # same booster at their share of the blend: one model to save, export and serve.
    params = ranker.parameters()
    params["learning_rate"] *= choice.blend_scale
    both = boost(
        lists,
        _OnItsOwn(_objective(ranker, lists, names[1]), choice.blend_scale),
        params=params,
        n_trees=ranker.n_trees,
        n_threads=ranker.n_threads,
        start=first.booster,
    )
    return ranker._keep(both, lists, None)


class _OnItsOwn(LikeAFunction):
    """An objective that sees only what was added since its first call, divided by the scale."""

    def __init__(self, objective: TreeObjective, scale: float) -> None:
        self._objective, self._scale = objective, scale
        self._before: FloatArray | None = None

    def __call__(self, scores: FloatArray, dataset: Any) -> tuple[FloatArray, FloatArray]:
        """Gradient and hessian at the scores of the added trees."""
        if self._before is None:
            self._before = scores.copy()
        # Subtraction leaves noise of 1e-16, which would break the ties between documents in the
        # same leaves at random, and with them the ranks that lambdas are made of.
        own = np.round((scores - self._before) / self._scale, 10)
        return self._objective(own, dataset)


def _predict(ranker: "LambdaMART", boosted: Boosted, features: FeatureArray) -> FloatArray:
    return np.asarray(boosted.booster.predict(features, num_threads=ranker.n_threads or 0))


def _objective(ranker: "LambdaMART", lists: TrainingLists, name: str) -> TreeObjective:
    makers: dict[str, Any] = {
        "pbm-likelihood": lambda: pbm_objective(lists, ranker.bias, ranker.query_weight),
        "posterior-label": lambda: posterior_objective(ranker, lists),
        "balanced": lambda: lambda_objective(lists, Balanced(ranker.bias), ranker.options()),
    }
    return makers[name]()

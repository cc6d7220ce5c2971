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

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.catalog import method, record_of, storable
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.rankers.learning_data import TrainingLists, training_lists
from untilt.rankers.trees.boosting import Boosted, boost
from untilt.rankers.trees.labels import posterior_objective
from untilt.rankers.trees.objectives import (
    LikeAFunction,
    PairTreeObjective,
    TreeObjective,
    TreeTraining,
    lambda_objective,
    pbm_objective,
)
from untilt.rankers.validation import HeldOutClicks, held_out_clicks, held_out_labels
from untilt.weighting.tables import Balanced

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


def candidates() -> dict[str, Callable[[TrainingLists, TreeTraining], TreeObjective]]:
    """What "auto" tries, by name. The first two are blended."""
    makers = (pbm_objective, posterior_objective)
    return {
        **{record_of(maker).name: maker for maker in makers},
        record_of(Balanced).name: _balanced_pairs,
    }


def _balanced_pairs(lists: TrainingLists, training: TreeTraining) -> PairTreeObjective:
    assert training.bias is not None
    return lambda_objective(lists, Balanced(training.bias), training.lambdas)


@method(
    "objective", "auto", options={"weighting": "auto"},
    title="Chosen by held-out clicks", order=35, cost=11.0, needs=("bias",),
    choose=("train", "select", "run", "usual"), public=False,
    note="LambdaMART whose objective held-out clicks of the training queries chose",
)  # fmt: skip
def fit_auto(
    log: ClickLog,
    lists: TrainingLists,
    training: TreeTraining,
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
    log: ClickLog, training: TreeTraining, valid: ClickLog | JudgedLists | None
) -> AutoChoice:
    if isinstance(valid, JudgedLists):
        train, judge = log, held_out_labels(valid)
    elif isinstance(valid, ClickLog):
        train, judge = log, held_out_clicks(valid, training.bias)
    else:
        train, rest = log.split(1 - HOLD_OUT, by="query", seed=training.seed)
        judge = held_out_clicks(rest, training.bias)
    lists, makers = training_lists(train), candidates()
    scores: dict[str, FloatArray] = {}
    for name in track(tuple(makers), "choosing by held-out clicks"):
        booster = boost(lists, makers[name](lists, training), training.boosting).booster
        threads = training.boosting.n_threads or 0
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


def train_choice(lists: TrainingLists, training: TreeTraining, choice: AutoChoice) -> Boosted:
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


class _OnItsOwn(LikeAFunction):
    """An objective that sees only what was added since its first call, divided by the scale."""

    def __init__(self, objective: TreeObjective, scale: float) -> None:
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

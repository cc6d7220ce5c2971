"""weighting="auto": the stacked learner, and what it saw.

Where it cannot be used it says so and falls back: on judged lists there is nothing to correct;
feedback that is no click has no likelihood of clicks, so that `Balanced` weighs its pairs; a single
query cannot be held out.
"""

from dataclasses import InitVar, dataclass, field
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.bias.compare_curves import compare_curves
from untilt.catalog import method, record_of, storable
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError
from untilt.facts import Fact, note, warning
from untilt.objectives.graded import JUDGE
from untilt.rankers import learning_data
from untilt.rankers.stacked.learner import OLD_RANKER, StackedFit, fit_stacked
from untilt.rankers.trees import objectives
from untilt.rankers.trees.boosting import Boosted, boost, check_features
from untilt.rankers.trees.crossfit import TreesTried
from untilt.rankers.validation import HeldOutClicks, held_out_clicks, held_out_labels, of_positions
from untilt.weighting.tables import Balanced

STACKED_SENTENCE = note(
    "training.stacked",
    "held-out clicks give corrected clicks a weight of {clicks:.0%} and the old ranker "
    "{old_ranker:.0%}; {unshown:.0%} of the candidates were never shown",
)
NO_CLICKS = warning(
    "training.no-clicks",
    "{label} is no click: its pairs are weighted, as there is no likelihood of clicks to learn "
    "from. A column of clicks as the label ⟦(log.with_label)|(--label NAME)⟧ gives the stacked "
    "learner",
)
ONE_QUERY = warning(
    "training.one-query",
    "there is a single query, which cannot be held out: its pairs are weighted. Two or more "
    "queries give the stacked learner",
)()

STACKED = "stacked"


@storable
@dataclass(frozen=True)
class AutoChoice:
    """What "auto" learned, from what, and how much each part is worth.

    Parameters
    ----------
    picked : "stacked", "labels", or the method that it fell back to
    reason : why, as a fact
    estimates : DCG@10 per session of the parts and of all stacked, by clicks of queries that their
        trees have not seen; of what is served on `valid` where given
    weights : share of each part in the served score, by the spread that it gives the score
    stacking : b, k_x and k_s of the score A, and the variances v and s2 of the effects
    trees : of each part, with the held-out value by the number of trees
    support : documents that were shown, and candidates that never were
    curve : whether the given curve is as steep as clicks on documents that moved say
    blend_scale : not kept: files of untilt 0.2 hold it
    """

    picked: str
    reason: str
    estimates: dict[str, MeanEstimate]
    weights: dict[str, float] = field(default_factory=dict)
    stacking: dict[str, float] = field(default_factory=dict)
    trees: dict[str, TreesTried] = field(default_factory=dict)
    support: dict[str, float] = field(default_factory=dict)
    curve: Fact | None = None
    judges: tuple[Fact, ...] = ()
    blend_scale: InitVar[float] = 1.0

    def __str__(self) -> str:
        lines = [f"picked {self.picked}: {self.reason}"]
        for name, share in self.weights.items():
            lines.append(f"  {name}: {share:.0%} of the score")
        if self.trees:
            lines.append("  " + "; ".join(f"{name}: {each}" for name, each in self.trees.items()))
        if self.stacking:
            told = ", ".join(f"{name} {value:.3g}" for name, value in self.stacking.items())
            lines.append(f"  held-out clicks say: {told}")
        lines += [f"  DCG@10 of {name}: {value}" for name, value in self.estimates.items()]
        lines += [f"  {each}" for each in (self.curve, *self.judges) if each is not None]
        return "\n".join(lines)


@method(
    "objective", "auto", options={"weighting": "auto"},
    title="Stacked learner", order=35, cost=5.0, drop=100, needs=("bias",),
    choose=("train", "select", "run", "usual"), public=False,
    note="boosted trees on corrected clicks and on what the old ranker knew, weighed on held-out "
         "clicks",
)  # fmt: skip
@dataclass(frozen=True)
class StackedRanker:
    """The stacked learner, which `LambdaMART(weighting="auto")` asks for.

    Parameters
    ----------
    training : the bias, and the options of trees and lambdas
    """

    training: objectives.TreeTraining

    def fit(
        self,
        log: ClickLog,
        lists: learning_data.TrainingLists,
        valid: ClickLog | JudgedLists | None,
        labels: Grades | None = None,
    ) -> tuple[AutoChoice, Boosted]:
        """Learn from all queries of the log; what is served on `valid` is judged by it."""
        training = self.training
        if training.bias is None:
            raise learning_data.needs_bias("weighting='auto'")
        if not lists.label.any():
            raise learning_data.nothing_to_learn()
        check_features(lists)
        n_queries = len(np.unique(lists.doc_query))
        if labels is not None and (not log.is_binary or n_queries < 2):
            raise OptionError(
                f"grades are learned from beside clicks (0 or 1) on two queries or more. Here "
                f"{log.label_name!r} is the label, on {n_queries:,}. Leave labels out, or choose a "
                "column of clicks: ⟦log.with_label(name)|--label NAME⟧."
            )
        if not log.is_binary:
            return _fallback(lists, training, NO_CLICKS(label=log.label_name))
        if n_queries < 2:
            return _fallback(lists, training, ONE_QUERY)
        objectives.check_graded(training.lambdas)
        fitted = fit_stacked(log, lists, training, training.bias, labels)
        choice = AutoChoice(
            STACKED,
            STACKED_SENTENCE(**_told(fitted)),
            _estimates(log, fitted, training, valid),
            weights=_shares(fitted),
            stacking=fitted.stack,
            trees=fitted.trees,
            support=_support(fitted),
            curve=_curve(log, training),
            judges=tuple(JUDGE(**each._asdict()) for each in fitted.judges),
        )
        return choice, Boosted(fitted.booster, fitted.booster.num_trees(), ())


def _fallback(
    lists: learning_data.TrainingLists, training: objectives.TreeTraining, reason: Fact
) -> tuple[AutoChoice, Boosted]:
    """Pairs weighted by `Balanced`: unbiased for any feedback that grows with relevance."""
    bias = of_positions(training.bias)
    assert bias is not None
    balanced = Balanced(bias)
    objective = objectives.lambda_objective(lists, balanced, training.lambdas)
    choice = AutoChoice(record_of(Balanced).name, reason, {})
    return choice, boost(lists, objective, training.boosting)


def _told(fitted: StackedFit) -> dict[str, float]:
    of_old, support = _shares(fitted)[OLD_RANKER], _support(fitted)
    unshown = support["unshown"] / sum(support.values())
    return {"old_ranker": of_old, "clicks": 1 - of_old, "unshown": unshown}


def _shares(fitted: StackedFit) -> dict[str, float]:
    """The spread that each part gives to the served score, as shares of their sum."""
    total = max(sum(fitted.spread.values()), 1e-12)
    return {name: each / total for name, each in fitted.spread.items()}


def _support(fitted: StackedFit) -> dict[str, float]:
    return {"shown": float(fitted.rows.n_shown), "unshown": float(fitted.rows.n_unshown)}


def _curve(log: ClickLog, training: objectives.TreeTraining) -> Fact:
    given: Any = of_positions(training.bias)
    return compare_curves(log, {"given": given}).fact("given")


def _estimates(
    log: ClickLog,
    fitted: StackedFit,
    training: objectives.TreeTraining,
    valid: ClickLog | JudgedLists | None,
) -> dict[str, MeanEstimate]:
    """DCG@10 of the parts, on queries that their trees have not seen."""
    if valid is None:
        judge = held_out_clicks(log, of_positions(training.bias))
        number = np.zeros(log.n_documents, dtype=np.int64)
        number[fitted.rows.document] = np.arange(len(fitted.rows.document))
        scores = {name: own[number[judge.document]] for name, own in fitted.scores.items()}
    else:
        judge = (
            held_out_labels(valid)
            if isinstance(valid, JudgedLists)
            else held_out_clicks(valid, of_positions(training.bias))
        )
        scores = {STACKED: np.asarray(fitted.booster.predict(judge.features))}
    return {name: _estimate(judge, own) for name, own in scores.items()}


def _estimate(judge: HeldOutClicks, scores: FloatArray) -> MeanEstimate:
    return weighted_mean(judge.per_query(scores) / judge.sessions, judge.sessions)

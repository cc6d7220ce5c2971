"""What a run says of orders in a world of `varying`, held against the truth."""

import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.wall.judging import DECISIONS, SMALL
from tests.wall.varying import Array, Made, World, candidates, make

import untilt as ut
from untilt.data.seen import without_queries
from untilt.errors import OptionError, UntiltError
from untilt.report.decision import Decision
from untilt.workflow.options import RunSettings, settled
from untilt.workflow.stage_evaluate import evaluate_scores

FEATURES = ("f0", "f1", "f2", "f3")


@dataclass(frozen=True)
class Verdict:
    """said : "better", "worse", "undecided", "cannot tell" or "refused"; truth : DCG gained.

    if_so : the verdict that depends on something, "" where there is none
    curve : share of the positions whose interval covers the truth; None without an interval
    """

    order: str
    kind: str
    said: str
    truth: float
    value: float = 0.0
    covered: bool | None = None
    if_so: str = ""
    curve: float | None = None
    why: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it firmly says the opposite of the truth."""
        return self.said in DECISIONS and (self.said == "better") != (self.truth > 0)


def verdicts(world: World, seed: int, folder: Path, **options: Any) -> Iterator[Verdict]:
    """Of the run's own ranker and of five orders that nobody learned, by the run's curve."""
    made, options = make(world, seed), {**SMALL, "assigned": world.assigned, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ut.DroppedRowsWarning)
        clicks = ut.read_log(made.frame, features=list(FEATURES), threads=1)
    try:
        found = ut.run(clicks, folder, **options)
    except UntiltError as error:
        yield Verdict("run", "refused", "refused", 0.0, why=str(error))
        return
    decision = found.decision
    yield _verdict("run", decision, made, _learned(found, clicks, made))
    settings = settled(RunSettings(**options))
    document = np.asarray(clicks.doc_id).astype(int)
    query = np.asarray(clicks.query_id).astype(int)[clicks.doc_query]
    for name, score in candidates(made, seed).items():
        scores = {name: score[query, document]}
        part = evaluate_scores(clicks, scores, found.bias, settings, chosen=name, clip=None)
        yield _verdict(name, replace(decision, held_out=part), made, score)


def _learned(found: Any, clicks: ut.ClickLog, made: Made) -> Array:
    """Scores of the rankers that were judged, of each query by one that has not seen it."""
    name = found.decision.training.chosen
    twins = found.fold_candidates.get(name) or (found.candidate,)
    signal = made.signal.reshape(-1, len(FEATURES)).astype(np.float32)
    scores = [np.asarray(each.predict(signal)).reshape(made.worth.shape) for each in twins]
    score = scores[0].copy()
    for twin, own in zip(twins, scores, strict=True):
        try:
            other = without_queries(clicks, twin.trained_on_)
        except OptionError:  # sessions were held out, not queries
            continue
        unseen = np.asarray(other.query_id).astype(int)[np.unique(other.query)]
        score[unseen] = own[unseen]
    return score


def _verdict(order: str, decision: Decision, made: Made, score: Array) -> Verdict:
    answer, used = decision.answer, decision.bias
    assert used is not None
    if answer is None:
        why = decision.no_answer
        return Verdict(
            order, used.kind, "cannot tell", made.gain(score), why=why.code if why else ""
        )
    assert decision.held_out is not None
    in_part = any(fact.code == "run.judged-part" for fact in decision.held_out.warnings)
    truth = made.gain(score, made.moved() if in_part else None, decision.held_out.step)
    found, bias = answer.difference, used.bias
    curve = None
    if bias.has_interval:
        known = min(bias.depth, len(made.theta))
        true = made.theta / made.theta[0]
        curve = float(np.mean([true[k] in bias.interval(k + 1) for k in range(1, known)]))
    return Verdict(
        order, used.kind + (", part" if in_part else ""), answer.verdict, truth, found.value,
        bool(found.interval.low <= truth <= found.interval.high), answer.would_be or "", curve,
        ",".join(fact.code for fact in answer.reasons) or answer.recommendation.code,
    )  # fmt: skip


def line(world: str, seed: int, each: Verdict) -> str:
    """A line of JSON."""
    return json.dumps({"world": world, "seed": seed, **asdict(each)})

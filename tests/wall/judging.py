"""What untilt says about a log, held against the truth.

An `Opinion` is one claim: an order, what was said of it, and how much better it truly is.
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.wall.world import Array, Log

import untilt as ut
from untilt.data.seen import without_queries
from untilt.errors import OptionError, UntiltError
from untilt.report.step_results import verdict_of

SMALL: dict[str, Any] = {"trees": 10, "threads": 1, "method": ["balanced"]}
EQUAL = 1e-3  # DCG below which two orders are worth the same
SYSTEMATIC = 3.3  # standard errors: chance alone goes beyond in one of a thousand
ROUGH = ("estimate.few-effective-clicks",)  # says itself that the interval is only rough
DECISIONS = ("better", "worse")
# What a run recommends where it stands by its verdict.
FIRM = ("run.try-it", "run.try-if-curve-right", "run.keep-order")


@dataclass(frozen=True)
class Opinion:
    """said : "better", "worse", "undecided", "cannot tell" or "refused"; truth : DCG gained.

    z, off : the estimated difference and its error, in standard errors
    """

    order: str
    said: str
    truth: float
    z: float = 0.0
    off: float = 0.0
    why: str = ""

    @property
    def is_decision(self) -> bool:
        return self.said in DECISIONS

    @property
    def is_wrong(self) -> bool:
        """Whether it says the opposite, or that equal orders differ.

        A rival is worth about the same as production, so chance alone turns its difference round in
        some logs: that one is wrong where it is off by more than chance.
        """
        true = "better" if self.truth > EQUAL else "worse" if self.truth < -EQUAL else "same"
        by_chance = self.order == "rival" and abs(self.off) <= SYSTEMATIC
        return self.is_decision and self.said != true and not by_chance


def read(log: Log) -> ut.ClickLog:
    """The log as a user would read it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ut.read_log(log.frame, features=log.features or None, threads=1, **log.options)


def scores_of(log: Log, clicks: ut.ClickLog, orders: Mapping[str, Array]) -> dict[str, Array]:
    """Tables (Q, D) of scores as (documents,) in the order of the log's documents."""
    query = np.asarray(clicks.query_id)[clicks.doc_query]
    pairs = [log.key(q, d) for q, d in zip(query, clicks.doc_id, strict=True)]
    of_document = tuple(np.array(pairs).T)
    return {name: score[of_document] for name, score in orders.items()}


def truth_of(log: Log, score: Array) -> float:
    return log.pages.value(score) - log.pages.value(None)


def opinions_of_estimate(log: Log, clicks: ut.ClickLog, bias: Any) -> Iterator[Opinion]:
    """`untilt.estimate` on each order of the log, against the logged one."""
    orders = log.candidates()
    scores = scores_of(log, clicks, orders)
    truth = {name: truth_of(log, score) for name, score in orders.items()}
    try:
        found = ut.estimate(clicks, {"shown": ut.shown, **scores}, bias)
        compared = found.compare("shown")
    except UntiltError as error:
        for name in orders:
            yield Opinion(name, "refused", truth[name], why=str(error))
        return
    doubts = [
        fact.code for fact in found.warnings if fact.severity == "serious" or fact.code in ROUGH
    ]
    for name in orders:
        difference = compared[name]
        said = "cannot tell" if doubts else verdict_of(difference.interval)
        spread = difference.std_error
        z, off = (
            (gap / spread if spread > 0 else 0.0)
            for gap in (difference.value, difference.value - truth[name])
        )
        why = ",".join(doubts) or f"{difference.value:+.4f}"
        yield Opinion(name, said, truth[name], z, off, why)


@contextmanager
def without_pages() -> Iterator[None]:
    """Runs without their page, which takes two thirds of a small run's time.

    Figures and verdict are judged here; tests/report draws pages.
    """

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("untilt.report.page.page", lambda _: "")
        yield


def opinion_of_run(log: Log, source: Any, folder: Path, **options: Any) -> tuple[Opinion, Any]:
    """`untilt.run` on the log: what it says of the ranker that it chose; and its result."""
    try:
        found = ut.run(source, folder, **{**SMALL, **options})
    except UntiltError as error:
        return Opinion("run", "refused", 0.0, why=str(error)), None
    answer = found.decision.answer
    if answer is None:
        return Opinion("run", "cannot tell", 0.0, why=found.decision.no_answer.code), found
    firm = answer.recommendation.code in FIRM
    said = answer.verdict if firm or answer.verdict not in DECISIONS else "cannot tell"
    difference = answer.difference
    z = difference.value / difference.std_error if difference.std_error > 0 else 0.0
    truth = _truth_of_ranker(log, found)
    return Opinion("run", said, truth, z, why=answer.recommendation.code), found


def _truth_of_ranker(log: Log, found: Any) -> float:
    """Of the rankers that were judged, on all pages; a query by one that has not seen it.

    Features that no document has before it is shown are 0. Without features the chosen order is not
    a ranker's: then documents by their true relevance stand in for it, as no order by clicks can be
    better.
    """
    world = log.pages.world
    if found.candidate is None:
        return truth_of(log, world.relevance)
    rankers = found.fold_candidates
    twins = rankers.get(found.decision.held_out.chosen) or rankers[found.decision.training.chosen]
    known = {f"f{i}": world.features[..., i] for i in range(world.features.shape[2])}
    none = np.zeros(world.worth.shape)
    columns = [known.get(name, none).ravel() for name in found.candidate.feature_names_]
    features = np.nan_to_num(np.stack(columns, axis=1).astype(np.float32), nan=0.0)
    scores = [np.asarray(each.predict(features)).reshape(none.shape) for each in twins]
    clicks, score = read(log), scores[0].copy()
    for twin, own in zip(twins, scores, strict=True):
        try:
            other = without_queries(clicks, twin.trained_on_)
        except OptionError:  # sessions were held out, not queries
            continue
        query = np.asarray(other.query_id)[other.doc_query]
        unseen = np.isin(other.doc_query, other.query)
        pairs = zip(query[unseen], np.asarray(other.doc_id)[unseen], strict=True)
        rows = sorted({log.key(q, d)[0] for q, d in pairs})
        score[rows] = own[rows]
    return truth_of(log, score)

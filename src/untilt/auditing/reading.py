"""Does the model of reading fit? Tests of the position-based model on the log itself.

A curve is fitted to a log, so the log nearly always agrees with it. These tests ask what a curve
cannot bend to: whether positions are read alike for better and weaker documents, after a click and
without one, earlier and later, under every ranker and in every context. Under the position-based
model each rejects in 5% of the logs or fewer, all together too (Holm); docs/audit.md has
their size and power.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from untilt import catalog
from untilt._core import ragged
from untilt._core.arrays import AnyArray, IntArray, sum_by
from untilt._core.random import Seed, generator
from untilt._core.statistics import holm
from untilt.auditing.scores import (
    FallScore,
    Score,
    ScoreCells,
    cells_of,
    feature_score,
    relevance_score,
    trust_score,
)
from untilt.bias.contextual.contextual import ContextualBias
from untilt.bias.curve import PositionBias
from untilt.bias.em.trust_em import TrustEM, trust_test
from untilt.bias.experiments.assignment import experiments_of, has_several_experiments
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.data.transform import later_half, split_queries_by
from untilt.facts import Fact, Sentence, note, warning

NOTHING_REPEATS = note(
    "reading.nothing-repeats",
    "hardly any document was shown at the same position both ways, with clicks and without (it "
    "takes two queries)",
)()

NOTHING_MOVES = note(
    "reading.nothing-moves",
    "hardly any document with clicks was shown at several positions (it takes two queries)",
)()

ALSO = warning(
    "reading.also",
    "Clicks also differ from the position-based model in: {what:listed}. The cause may be the "
    "same.",
)

UNTESTED = note("reading.untested", "Not compared: {what}, because {why}.")

PASSED = note(
    "reading.passed",
    "Compared: {what}. No sign against the position-based model (p {p_value:.2g}).",
)

FITS = note(
    "reading.fits",
    "Clicks pass these tests of the position-based model: {what:listed}.",
)
FITS_ELSE = note(FITS.code, "Here clicks fit the position-based model: {what:listed}.")

_ASKED = {
    "relevance": "better and weaker documents",
    "features": "documents that are better and weaker by their features",
    "clicks-above": "clicks above a document",
    "time": "the two halves of the time",
    "ranker": "rankers",
    "context": "contexts",
}
_WEAKER = (
    "From position 1 to {position}, clicks of weaker documents fall {ratio:.2f} times [{low:.2f}, "
    "{high:.2f}] as much as those of better ones (p {p_value:.1g})"
)
_BY_FEATURES = (
    "From position 1 to {position}, clicks of documents with weaker features fall {ratio:.2f} "
    "times [{low:.2f}, {high:.2f}] as much as those of documents with better ones (p {p_value:.1g})"
)
_AFTER_CLICK = (
    "The same document at the same position is clicked {ratio:.2f} times [{low:.2f}, {high:.2f}] "
    "as often after a click above it (p {p_value:.1g}; {share:.0%} of the impressions below the "
    "top have one). The likely cause is that people "
)
_FOUND = {
    each.code: each
    for each in (
        warning(
            "reading.trust",
            _WEAKER + ". The likely cause is trust: people click the top because it is the top. "
            "Other causes are people who stop at a click, and relevance that changes. "
            "{estimator:method} models trust.",
        ),
        warning(
            "reading.weaker-fall-slower",
            _WEAKER + ", so that no one curve fits both. Trust in the top would do that, but the "
            "test of {estimator:method} shows no sign of it (p {trust_p:.2g}): relevance that "
            "changes from session to session, or readers that stop at a click, are likelier.",
        ),
        warning(
            "reading.better-fall-steeper",
            _WEAKER + ", so no single curve fits both. The likely cause is a ranker that follows "
            "relevance which changes over time or between people. It is not trust in the top, so "
            "{estimator:method} does not help.",
        ),
        warning(
            "reading.trust-by-features",
            _BY_FEATURES + ". The likely cause is trust: people click the top because it is the "
            "top. Production may also know more about relevance than the features. "
            "{estimator:method} models trust.",
        ),
        warning(
            "reading.features",
            _BY_FEATURES + ", so features do not explain relevance equally at every position. "
            "Production may know more about relevance than the features, or relevance changes; it "
            "is not trust, so {estimator:method} does not help.",
        ),
        warning(
            "reading.clicks-above",
            _AFTER_CLICK + "stop after a click: how far they read then depends on the documents "
            "above, not on the position alone.",
        ),
        warning(
            "reading.time-spread",
            "Click rates of documents changed from the first to the second half of the time: at "
            "the same position by a factor of about {ratio:.2f} [{low:.2f}, {high:.2f}], up for "
            "some and down for others (p {p_value:.1g}). The likely cause is relevance that "
            "changes.",
        ),
        warning(
            "reading.time-slope",
            "People read deeper in one half of the time than in the other: relative to position 1, "
            "the same documents are clicked {ratio:.2f} times [{low:.2f}, {high:.2f}] as often at "
            "position {position} in the second half (p {p_value:.1g}). The page or its readers may "
            "have changed.",
        ),
        warning(
            "reading.ranker-level",
            "The same document at the same position is clicked {ratio:.2f} times [{low:.2f}, "
            "{high:.2f}] as often in lists of {about:r} as in those of other rankers (p "
            "{p_value:.1g}). They may serve other people or other times, or know more about a "
            "session than the log. To avoid mixing them, use the lists of one ranker, one curve "
            "per context, or sessions whose ranker was drawn at random.",
        ),
        warning(
            "reading.ranker-slope",
            "People read lists of {about:r} to another depth than those of other rankers: relative "
            "to position 1, they click the same documents {ratio:.2f} times [{low:.2f}, "
            "{high:.2f}] as often at position {position} (p {p_value:.1g}). The lists may serve "
            "other people, or the documents around may matter. To avoid mixing them, use the lists "
            "of one ranker or one curve per context.",
        ),
        warning(
            "reading.clicks-above-more",
            _AFTER_CLICK + "differ in how much they click or how far they read. The curve is their "
            "mean and can still be right; with a column that separates them (device, for example) "
            "as the context, each group gets its own curve.",
        ),
        warning(
            "reading.context",
            "People with {column} {about:r} read to another depth than others: relative to "
            "position 1, they click the same documents {ratio:.2f} times [{low:.2f}, {high:.2f}] "
            "as often at position {position} (p {p_value:.1g}). One curve is the mean of both and "
            "is right only where they see the same lists. {estimator:method} estimates one curve "
            "per context.",
        ),
    )
}
_GRAVE = " This can flip a decision: no verdict rests on such a curve."
_FOUND |= {
    f"{code}-serious": Sentence(f"{code}-serious", "serious", found.template + _GRAVE)
    for code, found in _FOUND.items()
}

SIZE = 0.05  # of all tests together
NO_SIGN = 0.5  # p-value of the test of trust that the data have no sign of it
FARTHEST = 1e3  # a ratio above is as good as unbounded
MATERIAL = 1.1  # a factor that is surely beyond this one may turn a decision
_FIRST = ("serious", "warning", "note")
MOST_KINDS = 5  # of rankers or of a context that are compared with the others, the largest first
REACH = 0.9  # of the clicks stand above the position that effects are told for

Question = Literal["clicks-above", "time", "ranker", "context", "relevance", "features"]
Detail = Literal["level", "slope", "spread"]


@dataclass(frozen=True)
class ReadingTest:
    """One test of the position-based model.

    Parameters
    ----------
    question : what may make a difference that the model does not know
    ratio, low, high : of click rates, 1 where the model is right, with its interval; the fact says
        of which
    p_value : of this test; `adjusted` for all tests together (Holm)
    effective_queries : that many equal queries would tell as much
    about : the kind of sessions in question ("phone"), and `column` where it stands
    detail : what differs: "level", "slope" or "spread"
    position : the effect is told for this one, relative to position 1
    share : of the impressions below position 1 that have a click above
    trust_p : p-value of `TrustEM.trust_test_` where that shows no sign of trust; None elsewhere
    """

    question: Question
    ratio: float
    low: float
    high: float
    p_value: float
    effective_queries: float
    adjusted: float = float("nan")
    about: str = ""
    column: str = ""
    detail: Detail = "level"
    position: int = 0
    share: float = 0.0
    trust_p: float | None = None
    json_renamed: ClassVar[Mapping[str, str]] = {"asks": "question"}
    json_properties: ClassVar[tuple[str, ...]] = ("fails", "fact")

    @property
    def name(self) -> str:
        """What is compared, in words."""
        about = f" ({self.about} to the others)" if self.about else ""
        return _asked(self.question, self.column) + about

    @property
    def fails(self) -> bool:
        """Whether the log contradicts the model here."""
        return self.adjusted < SIZE

    @property
    def names_trust(self) -> bool:
        """Whether weaker documents fall so much more slowly that trust in the top is likely."""
        is_asked = self.question in ("relevance", "features")
        found = is_asked and self.fails and self.ratio > 1 and self.is_material
        return found and self.trust_p is None

    @property
    def is_material(self) -> bool:
        """Whether the whole interval is so far from 1 that decisions may turn."""
        low, high = self.low, self.high
        if self.question == "clicks-above":  # by so much clicks above change examination
            low, high = (1 + self.share * (end - 1) for end in (low, high))
        return low > MATERIAL or high < 1 / MATERIAL

    @property
    def fact(self) -> Fact:
        """What was found, and where the test fails its likely cause and what to do."""
        fields = {"ratio": self.ratio, "low": self.low, "high": self.high}
        if not self.fails:
            what = _asked(self.question, self.column)
            return PASSED(
                question=self.question, column=self.column, what=what, p_value=self.adjusted
            )
        return _FOUND[self._code()](**fields, p_value=self.adjusted, **self._more())

    def _code(self) -> str:
        code = f"reading.{self.question}"
        if self.question == "clicks-above" and self.ratio > 1:
            return f"{code}-more"  # people who click more than others: the curve is right
        if self.question == "relevance":
            slower = "reading.trust" if self.trust_p is None else "reading.weaker-fall-slower"
            code = slower if self.ratio > 1 else "reading.better-fall-steeper"
        if self.question == "features":
            code = "reading.trust-by-features" if self.ratio > 1 else code
        if self.question in ("time", "ranker"):
            code = f"{code}-{self.detail}"
        if self.question == "context":  # what most people do is the mean of what each kind does
            return code
        return f"{code}-serious" if self.is_material else code

    def _more(self) -> dict[str, Any]:
        if self.question == "clicks-above":
            return {"share": self.share}
        if self.question in ("relevance", "features"):
            named = catalog.record_of(TrustEM, "bias").name
            told = {"position": self.position, "trust_p": self.trust_p}
            return {**told, "estimator": TrustEM.__name__, "name": named}
        if self.question == "context":
            kind = {"column": self.column, "about": self.about}
            return {"position": self.position, **kind, "estimator": ContextualBias.__name__}
        about: dict[str, Any] = {"about": self.about} if self.question == "ranker" else {}
        return about if self.detail != "slope" else {**about, "position": self.position}


def _asked(question: str, column: str = "") -> str:
    return f"the values of {column}" if question == "context" and column else _ASKED[question]


@dataclass(frozen=True)
class ReadingTests:
    """All tests that the log allows, and why it does not allow the others.

    Parameters
    ----------
    tests : those that look for one cause first; the last (relevance) is failed by many causes
    untested : one fact for each test that could not be made
    """

    tests: tuple[ReadingTest, ...] = ()
    untested: tuple[Fact, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = ("fits", "facts")

    @property
    def failed(self) -> tuple[ReadingTest, ...]:
        """Tests that the log fails: the gravest first, then the one that names its cause best."""

        def order(test: ReadingTest) -> tuple[int, bool]:
            # That people differ explains least: a context that tells them apart goes before it.
            fact = test.fact
            return _FIRST.index(fact.severity), fact.code == "reading.clicks-above-more"

        return tuple(sorted((each for each in self.tests if each.fails), key=order))

    @property
    def fits(self) -> bool:
        """Whether no test fails."""
        return not self.failed

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The likely cause, with what to do; and what else fails, perhaps for the same cause."""
        failed = self.failed
        if len(failed) < 2:
            return tuple(each.fact for each in failed)
        others = tuple((each.question, each.column, each.adjusted) for each in failed[1:])
        what = [f"{_asked(question, column)} (p {p:.1g})" for question, column, p in others]
        return failed[0].fact, ALSO(others=others, what=what)

    @property
    def notes(self) -> tuple[Fact, ...]:
        """What was tested without a finding, and what was not tested."""
        passed = tuple((each.question, each.column) for each in self.tests if not each.fails)
        what = [_asked(*each) for each in passed]
        told = FITS if self.fits else FITS_ELSE
        fits = (told(asked=passed, what=what),) if passed else ()
        return (*fits, *self.untested)

    def veto(self, *, knows_trust: bool = False) -> Fact | None:
        """The first finding that may turn a decision; trust is none where the curve knows it."""
        known = ("relevance", "features") if knows_trust else ()
        facts = (each.fact for each in self.failed if each.question not in known)
        return next((fact for fact in facts if fact.severity == "serious"), None)

    def named(self) -> Iterator[tuple[tuple[str, str, str], ReadingTest]]:
        """Each test with its row: what is compared, the ratio with its interval, the p-value."""
        for each in self.tests:
            ends = f"[{each.low:.2f}, {each.high:.2f}]"
            yield (each.name, f"{each.ratio:.2f} {ends}", f"{each.adjusted:.2g}"), each


def reading_tests(log: ClickLog, *, level: float = 0.95, seed: Seed = 0) -> ReadingTests:
    """Test the position-based model on clicks, 0 or 1; a collapsed log gives the same result.

    Better and weaker documents are told apart by their clicks where they change places, else by
    their features.
    """
    own, log = log, log.without_versions()
    counts = position_counts(log)
    reach = reach_of(counts)
    made: dict[Question, list[ReadingTest]] = {
        "clicks-above": list(_clicks_above(log, level)),
        "time": list(_time(log, level, reach)),
        "ranker": list(_ranker(log, level, reach)),
        "context": list(_context(log, level, reach)),
        "relevance": [
            replace(test, trust_p=_no_sign_of_trust(counts))
            for test in _relevance(log, counts, level, reach, seed)
        ],
    }
    if not made["relevance"] and own.features is not None:
        made["features"] = list(_features(own, level, reach))
        if made["features"]:
            made.pop("relevance")  # the same question, answered
    reasons = {question: _why_not(log, question) for question, tests in made.items() if not tests}
    return ReadingTests(
        _holm([test for tests in made.values() for test in tests]),
        tuple(
            UNTESTED(question=question, what=_ASKED[question], why=why)
            for question, why in reasons.items()
            if why is not None
        ),
    )


def _no_sign_of_trust(counts: PositionCounts) -> float | None:
    """The p-value of the estimator's own test where it shows no sign of trust, else None.

    With trust of .1/k and .3/k it showed a sign in all of 64 logs (benchmarks/bench_next_step.py's
    worlds, 20,000 and 60,000 sessions).
    """
    test = trust_test(counts)
    return test.p_value if test.t > 0 or test.p_value > NO_SIGN else None


def relevance_test(log: ClickLog, *, level: float = 0.95, seed: Seed = 0) -> ReadingTest | None:
    """Do clicks of better and of weaker documents fall alike? By itself, for a part of a log."""
    counts = position_counts(log)
    tests = (
        _relevance(log, counts, level, reach_of(counts), seed) if counts.clicks.any() else iter(())
    )
    return next((replace(each, adjusted=each.p_value) for each in tests), None)


def explains_trust(log: ClickLog, curve: PositionBias, *, seed: Seed = 0) -> bool:
    """Whether clicks of better and of weaker documents fall as a curve with trust says."""
    if not curve.has_trust:
        return False
    counts = position_counts(log.without_versions())
    alpha, beta = np.zeros((2, counts.depth))
    inside = min(counts.depth, curve.depth)
    alpha[:inside], beta[:inside] = (each[:inside] for each in curve.affine())
    score = trust_score(counts, alpha, beta, generator(seed))
    return score is not None and score.is_possible and score.p_value > SIZE


def _why_not(log: ClickLog, question: Question) -> Fact | None:
    """Why a test could not be made; None where nobody expects it: there is no such column."""
    if (question == "context" and not log.context) or question == "features":
        return None
    if question == "ranker" and (log.ranker is None or len(np.unique(log.ranker)) < 2):
        return None
    if question == "time" and log.time is None:
        return note("reading.no-time", "the log has no times (column `timestamp`)")()
    return NOTHING_MOVES if question == "relevance" else NOTHING_REPEATS


def _holm(tests: list[ReadingTest]) -> tuple[ReadingTest, ...]:
    """Each with its p-value for all of them together."""
    adjusted = holm(np.array([test.p_value for test in tests])).tolist()
    return tuple(replace(test, adjusted=p) for test, p in zip(tests, adjusted, strict=True))


def _relevance(
    log: ClickLog, counts: PositionCounts, level: float, reach: int, seed: Seed
) -> Iterator[ReadingTest]:
    """Do clicks of better and of weaker documents fall alike? Trust in the top makes them not.

    The ratio is the fall (position 1 over the position told) of weaker documents over that of
    better ones, one standard deviation below and above the mean of their query.
    """
    yield from _fall(relevance_score(counts, generator(seed), log), "relevance", level, reach)


def _features(log: ClickLog, level: float, reach: int) -> Iterator[ReadingTest]:
    """As `_relevance`, with documents that are better or weaker by their features."""
    yield from _fall(feature_score(log, position_counts(log)), "features", level, reach)


def _fall(
    found: FallScore | None, question: Question, level: float, reach: int
) -> Iterator[ReadingTest]:
    if found is not None:
        told = partial(found.told, level, reach)
        yield from _test(found.at(0.0), question, told, "slope", reach)


def _clicks_above(log: ClickLog, level: float) -> Iterator[ReadingTest]:
    """Is a document clicked as often after a click above it? In a cascade it is not."""
    upto = np.cumsum(log.label)
    before = np.concatenate([[0.0], upto])[log.indptr[:-1]]
    above = upto - log.label - np.repeat(before, ragged.lengths(log.indptr)) > 0
    cells = grouped_cells(log, above.astype(np.int64))
    below, n = log.position > 1, log.row_count
    share = float(n[above].sum() / max(1, n[below].sum()))
    for test in _level(cells, "clicks-above", level):
        yield replace(test, share=share)


def _time(log: ClickLog, level: float, reach: int) -> Iterator[ReadingTest]:
    """Do documents or readers change from the first half of the time to the second?"""
    if log.time is None:
        return
    cells = grouped_cells(log, later_half(log).astype(np.int64)[ragged.list_of_row(log.indptr)])
    spread = _test(cells.spread(), "time", partial(cells.told_spread, level), "spread")
    yield from _least([*_slope(cells, "time", level, reach), *spread])


def _ranker(log: ClickLog, level: float, reach: int) -> Iterator[ReadingTest]:
    """Is the same document at the same position clicked as often under every ranker?

    Several experiments have their times and shares of their own, and estimators of swaps and
    shuffles compare lists within one alone: so does this.
    """
    if log.ranker is None:
        return
    ranker = log.ranker
    if has_several_experiments(log):
        log = split_queries_by(log, experiments_of(log))
    tests = []
    for name, cells in _against_others(log, ranker, log.ranker_names):
        both = (*_level(cells, "ranker", level), *_slope(cells, "ranker", level, reach))
        tests += [replace(test, about=name, column="ranker") for test in both]
    yield from _least(tests)


def _context(log: ClickLog, level: float, reach: int) -> Iterator[ReadingTest]:
    """Is each context read equally deep? One test for each column."""
    for column, values in log.context.items():
        index, names = _kinds(values)
        tests = []
        for name, cells in _against_others(log, index, names):
            found = _slope(cells, "context", level, reach)
            tests += [replace(test, about=name, column=column) for test in found]
        yield from _least(tests)


def _kinds(values: AnyArray) -> tuple[IntArray, tuple[str, ...]]:
    """Kinds of a context: its values, or the halves of numbers that have many."""
    names, index = np.unique(values, return_inverse=True)
    if len(names) <= MOST_KINDS or values.dtype.kind not in "iuf":
        return index, tuple(str(name) for name in names)
    middle = float(np.median(values))
    return (values > middle).astype(np.int64), (f"up to {middle:g}", f"above {middle:g}")


def _against_others(
    log: ClickLog, kind: IntArray, names: tuple[str, ...]
) -> Iterator[tuple[str, ScoreCells]]:
    """The largest kinds of lists, each against all others; of two kinds one says it all."""
    sessions = sum_by(kind, log.sessions, len(names))
    largest = np.argsort(-sessions, kind="stable")[:MOST_KINDS]
    largest = largest[sessions[largest] > 0]
    rows = kind.astype(np.int64)[ragged.list_of_row(log.indptr)]
    if len(largest) == 2:
        largest = largest[1:]
    if len(np.flatnonzero(sessions)) > 1:
        grouped = _grouped(log, rows, len(names))
        for each in largest.tolist():
            cells = cells_of(grouped, len(names), each)
            yield names[each], cells.with_people(grouped, log, rows == each)


def _grouped(log: ClickLog, kind: IntArray, n_kinds: int) -> PositionCounts:
    """Counts by document, position and kind (rows,)."""
    position = (log.position.astype(np.int64) - 1) * n_kinds + kind + 1
    return position_counts(log, position=position, depth=log.depth * n_kinds)


def grouped_cells(log: ClickLog, kind: IntArray) -> ScoreCells:
    """Documents at positions, their rows of kind 1 (rows,) against those of kind 0."""
    counts = _grouped(log, kind, 2)
    return cells_of(counts, 2, 1).with_people(counts, log, kind == 1)


def _level(cells: ScoreCells, question: Question, level: float) -> Iterator[ReadingTest]:
    yield from _test(cells.level(), question, partial(cells.told_level, level))


def _slope(
    cells: ScoreCells, question: Question, level: float, reach: int
) -> Iterator[ReadingTest]:
    told = partial(cells.told_slope, level, reach)
    yield from _test(cells.slope(), question, told, "slope", reach)


def _test(
    score: Score,
    question: Question,
    told: Callable[[], tuple[float, float, float]],
    detail: Detail = "level",
    position: int = 0,
) -> Iterator[ReadingTest]:
    """The test of a score, with the ratio that is told of it, where two queries tell something."""
    if score.is_possible:
        value, low, high = told()
        yield ReadingTest(
            question, value, low, high if high < FARTHEST else np.inf,
            p_value=score.p_above if detail == "spread" else score.p_value,
            effective_queries=score.effective_queries, detail=detail, position=position,
        )  # fmt: skip


def _least(tests: list[ReadingTest]) -> Iterator[ReadingTest]:
    """The test with the smallest p-value, for all of them together (Bonferroni)."""
    if tests:
        best = min(tests, key=lambda each: each.p_value)
        yield replace(best, p_value=min(1.0, len(tests) * best.p_value))


def reach_of(counts: PositionCounts) -> int:
    """The position down to which nine tenths of the clicks are; at least 2."""
    clicks = np.cumsum(counts.by_position(counts.clicks))
    return max(2, int(np.argmax(clicks >= REACH * clicks[-1])) + 1)

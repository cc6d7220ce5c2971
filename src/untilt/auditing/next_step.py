"""What to do with a log: ordered rules, of which the first that holds speaks.

The audit and `auto` of `untilt bias` and `untilt run` all ask `next_step`, so that what is said is
what is done. All other findings are reasons: their sentences do not tell anyone to do anything.

The order was measured where the truth is known (`benchmarks/bench_next_step.py`; the table is in
docs/decisions.md). Trust in the top comes before an experiment: a curve of click rates in random
order takes clicks out of trust for examination, and the difference of two rankers came out 62% too
large under strong trust, 20% under weak trust, against 1% by TrustEM. It comes before contexts for
the same reason. An experiment comes before contexts: curves by context from production's lists keep
whatever made production move a document; from the shuffled lists they do not.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from untilt import catalog
from untilt._core.portable import Portable
from untilt.auditing.interventions import Interventions, reach_of_positions
from untilt.auditing.reading import Question, ReadingTest, ReadingTests
from untilt.auditing.swap_design import EXPLORED
from untilt.bias.contextual.contextual import ContextualBias
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.em.trust_em import TrustEM
from untilt.bias.experiments.assignment import Shuffled, shuffled_lists
from untilt.bias.experiments.shuffled import ShuffledTop, named_tops
from untilt.bias.experiments.swaps import AdjacentSwap, PivotSwap, SwapEstimator
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.bias.position_graph import PositionGraph, joined_depth
from untilt.data.clicklog import ClickLog
from untilt.facts import Command, Fact, joined, note, serious, warning

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit

NEGLIGIBLE = 0.01  # share of the clicks at the deepest positions that are not worth a model
LEFT_BELOW = 0.05  # share of the clicks that may lie below the end of an experiment

# What to do. These sentences alone are imperatives; one of them is said.
USE = note("audit.use", "Use {estimator:method}: {why}.")
USE_NONE = note("audit.use-none", "No estimator helps here: {why}.")
SHORTER_LOG = warning(
    "audit.use-shorter-log",
    "Use a recent, shorter part of the log: documents or readers changed from the first half of "
    "the time to the second.",
)
CLICK_MODEL = warning(
    "audit.compare-click-models",
    "Use the weights of a click model with clicks above: how far people read depends on what "
    "they clicked, not on the position alone.",
)
UNTIL_THEN = note(
    "audit.until-then",
    "Until then ⟦bias='auto'⟧ uses {estimator:method}, and no verdict rests on it.",
)
# Why: what in the log speaks for an estimator, or against all.
LOG_EVERYTHING = serious(
    "audit.log-everything",
    "the log does not contain what was shown, and no method can replace that: log every result "
    "that was shown",
)
NOBODY_CLICKED = serious(
    "audit.nobody-clicked", "this log has no clicks, so there is nothing to learn from"
)
NO_BIAS = note("audit.no-bias", "lists have a single position, so there is no bias to estimate")
SHUFFLED = note(
    "audit.shuffled",
    "{sessions:,} sessions were shown in random order; there, only examination makes the click "
    "rate fall with the position",
)
_SWAPPED = "down to position {depth}: the two documents change positions and nothing else does"
PIVOT_SWAPS = note(
    "audit.pivot-swaps", "{sessions:,} sessions swapped position {pivot} with another, " + _SWAPPED
)
ADJACENT_SWAPS = note(
    "audit.adjacent-swaps", "{sessions:,} sessions swapped neighbours, " + _SWAPPED
)
NO_REPEATS = note(
    "audit.queries-do-not-repeat",
    "queries hardly repeat, so swapped lists are compared with others of the same length instead "
    "of with the same documents",
)
_REPEATED = (
    ", so that documents are shown at several positions: their clicks there differ by examination "
    "alone, and {positions:positions} are joined by such documents"
)
RANKERS_DISAGREE = note("audit.repeated-positions", "{n_rankers} rankers disagree" + _REPEATED)
RANKS_VARY = note("audit.repeated-positions", "ranks vary without an experiment" + _REPEATED)
TRUST = note(
    "audit.trust-likely",
    "clicks of weaker documents fall {ratio:.2f} times as much from position 1 to {position} as "
    "those of better ones; trust in the top does this, and this estimator models trust",
)
TRUST_IN_RANDOM_ORDER = note(
    "audit.trust-in-random-order",
    "in random order, too, clicks of weaker documents fall {ratio:.2f} times as much from "
    "position 1 to {position} as those of better ones: people trust the top, and click rates of "
    "the experiment would count that as examination",
)
ASSUMES_LESS = note(
    "audit.assumes-less",
    "its curve and that of {other:method} differ by more than their errors (p {p_value:.1g}), "
    "and it assumes less: clicks need not be a product of examination and relevance",
)
CONTEXTS_DIFFER = note(
    "audit.contexts-differ",
    "people read differently by {columns:and}, and it estimates one curve per context",
)
NEEDS_MODEL = note(
    "audit.needs-model",
    "the positions form {groups} groups that share too few documents, so only a model of "
    "relevance can compare them, and there are {features} features for one",
)
NEEDS_FEATURES = note(
    "audit.needs-features",
    "documents are more (or less) relevant when they are shown higher, so their clicks at "
    "several positions cannot be compared; a model of relevance by the features of each "
    "impression can",
)
CHECK_WITH = note(
    "audit.check-with",
    "{estimator:method} on positions 1..{depth}, which are joined, is a check of it",
)
OTHERWISE = note("audit.otherwise", "without that belief, {do}")
_ANY = ", and there are no features to model relevance with: any curve fits this log"
ANY_CURVE_FITS = serious(
    "audit.any-curve-fits",
    "each position shows its own documents (the positions form {groups} separate groups)" + _ANY,
)
TOO_FEW_TO_COMPARE = serious(
    "audit.too-few-to-compare",
    "too few clicks are on documents that were shown at several positions" + _ANY,
)
GAPS_MOVE_DOCUMENTS = serious(
    "audit.gaps-move-documents",
    "documents move only together with the positions that a session leaves out, and nothing tells "
    "such sessions from examination; a log with all positions of a page in one session would tell",
)
BELOW = note(
    "audit.below",
    "below position {depth} the log gives bounds only (⟦AllPairs(unjoined='bounds')⟧)",
)
SWAP_POSITIONS = note(
    "audit.swap-positions",
    "swaps of positions {pairs:pairs} in {share:.0%} of the sessions would measure it",
)
RUN_SWAPS = note(
    "audit.run-swaps",
    "swaps of position 1 with others in {share:.0%} of the sessions would measure it",
)
MORE_SESSIONS = note(
    "audit.collect-sessions",
    "more sessions would help",
)
# Whether sessions are read differently by their context.
CONTEXTS_READ_APART = note(
    "run.context-differs",
    "People read differently by {columns:all} (p {p_value:.2g}), so each context has its own "
    "curve and each list is corrected by the curve of its context.",
)
CONTEXTS_READ_ALIKE = note(
    "run.context-alike",
    "There is no sign that people read differently by {columns:all} (p {p_value:.2g}): one curve "
    "is used for all.",
)
CONTEXTS_UNTESTED = warning(
    "run.context-untold",
    "It could not be tested whether people read differently by {columns:all}: one curve is used "
    "for all.",
)
CONTEXTS_NOT_FITTED = warning(
    "run.context-not-fitted",
    "People read differently by {columns:all}, but curves by context could not be estimated, so "
    "one curve is used for all: {error}",
)
CONTEXTS_KEPT_TOGETHER = warning(
    "run.context-kept-together",
    "People read differently by {columns:all}, but {estimator:method} has no curves by context, "
    "so one curve is used for all.",
)
# What an estimator believes, and cannot see in the log.
RANDOM_ORDER = note(
    "audit.random-order", "every order of the shuffled documents was equally likely"
)
RANDOM_SWAPS = note("audit.random-swaps", "which sessions were swapped was left to chance")
SAME_RELEVANCE = note(
    "audit.same-relevance",
    "a document is equally relevant on the days and to the people that saw it higher",
)
FEATURES_EXPLAIN = note(
    "audit.features-explain", "the features explain relevance, the same way at every position"
)
NOTHING_HIDDEN = note(
    "audit.nothing-hidden",
    "the production ranker knew nothing about relevance beyond the features; otherwise that "
    "counts as position bias",
)


@dataclass(frozen=True)
class Advice:
    """An estimator for a log; `estimator` is "" where the log supports none.

    Parameters
    ----------
    estimator : its name in `untilt`
    why : what in the log speaks for it, a fact of one or more `parts`
    options : of the estimator, where they are not the usual ones
    believes : what must be true and cannot be seen in the log
    instead : a command that helps where no estimator does
    context : the columns of the log's context that it depends on
    """

    estimator: str
    why: Fact
    options: Mapping[str, Any] = field(default_factory=dict)
    believes: tuple[Fact, ...] = ()
    instead: str = ""
    context: tuple[str, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = ("call", "command")

    def __post_init__(self) -> None:
        object.__setattr__(self, "instead", Command(self.instead))

    @property
    def call(self) -> str:
        """How to call it; "" without an estimator."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"untilt.{self.estimator}({options}).fit(log).bias_" if self.estimator else ""

    @property
    def command(self) -> Command:
        """The same on the command line, LOG standing for the log's path."""
        if not self.estimator:
            return Command(self.instead)
        options = "".join(f" --{name} {value}" for name, value in self.options.items())
        options += "".join(f" --context {column}" for column in self.context)
        record = catalog.find("bias", self.estimator)
        # Curves by context of an experiment are made by `auto`, which takes its lists alone.
        is_auto = self.context and "context" not in record.needs
        method = "" if is_auto else f" --method {record.name}"
        return Command(f"untilt bias LOG{method}{options}")


@dataclass(frozen=True)
class NextStep(Portable):
    """The one recommendation of a log.

    Parameters
    ----------
    rule : the rule that speaks, such as "trust-in-top" or "experiment"
    fact : what to do, and why
    command : that does it, LOG standing for the log's path; "" where no command does
    advice : the estimator of `auto`: the recommended one, or what serves until something else that
        is recommended is done
    reasons : findings that the recommendation answers
    """

    rule: str
    fact: Fact
    command: Command
    advice: Advice
    reasons: tuple[Fact, ...] = ()
    json_properties: ClassVar[tuple[str, ...]] = ("method",)

    @property
    def method(self) -> str:
        """The estimator that `auto` takes; "" where the log supports none."""
        return self.advice.estimator


def _reach(audit: "Audit") -> int:
    """Positions 1..reach can be compared by clicks on documents that they share."""
    return min(comparable_depth(audit.graph), audit.joined_depth)


def _drifts(audit: "Audit") -> bool:
    """Whether documents are shown higher when changing features make them better."""
    return audit.versions is not None and audit.versions.drifts


def _usable_features(audit: "Audit") -> int:
    return audit.size.features - len({*audit.constant_features, *audit.kept_out()})


def _failed(audit: "Audit", *questions: Question) -> tuple[ReadingTest, ...]:
    """Reading tests of these questions that fail."""
    tests = () if audit.reading is None else audit.reading.failed
    return tuple(test for test in tests if test.question in questions)


def _trust_test(audit: "Audit") -> ReadingTest | None:
    """The test that names trust in the top.

    Of shuffled sessions their own test alone: relevance that differs between sessions, and
    that production follows, looks like trust everywhere else (in 10 of 10 logs
    without an experiment, benchmarks/bench_next_step.py).
    """
    shuffled = audit.interventions.shuffled_relevance
    if audit.interventions.shuffled_depth and shuffled is not None:
        tests: tuple[ReadingTest, ...] = (shuffled,)
    else:
        tests = _failed(audit, "relevance", "features")
    return next((test for test in tests if test.names_trust), None)


def comparable_depth(graph: PositionGraph) -> int:
    """Positions 1..depth can all be compared by clicks on documents that they share.

    An estimator sees nothing of the positions below, so what joins them there does not count.
    """
    reach = joined_depth(graph.clicks.T > 0, needed=~graph.left_out)
    used = [k for k in graph.positions if k <= reach]
    return used[-1] if len(used) > 1 else min(reach, 1)


def doubt(
    reading: ReadingTests | None,
    done: Interventions | None,
    *,
    explains_trust: bool,
    asked_for: bool,
) -> Fact | None:
    """The finding that forbids a verdict by a curve; None where there is none.

    A curve that explains the trust of these clicks answers the finding of trust where it was asked
    for, or where shuffled sessions show trust. Elsewhere relevance that differs between sessions
    may be the cause: then the curve of trust is off too (benchmarks/bench_next_step.py,
    "personal").
    """
    if reading is None:
        return None
    shown = None if done is None else done.shuffled_relevance
    is_trust = asked_for or (shown is not None and shown.names_trust)
    return reading.veto(knows_trust=explains_trust and is_trust)


def context_fact(reading: ReadingTests | None, columns: Sequence[str]) -> Fact:
    """Whether sessions are read differently by these columns of the context, as the tests say."""
    tests = () if reading is None else tuple(t for t in reading.tests if t.question == "context")
    if not tests:
        return CONTEXTS_UNTESTED(columns=columns)
    p_value = min(test.adjusted for test in tests)
    differ = any(test.fails for test in tests)
    return (CONTEXTS_READ_APART if differ else CONTEXTS_READ_ALIKE)(
        columns=columns, p_value=p_value
    )


def lists_by_context(log: ClickLog, estimator: str, ranker: Shuffled = None) -> ClickLog | None:
    """The lists that give a curve for each context in place of this estimator's one for all.

    Of an experiment its own lists alone, as deep as they were shuffled; `ranker` as in
    `ShuffledTop`. None where one curve stays: swaps have no such estimator, and trust moves a curve
    by more than contexts do.
    """
    if estimator == ShuffledTop.__name__:
        return named_tops(log, shuffled_lists(log, ranker))[1]
    return log if estimator in (AllPairs.__name__, ContextualBias.__name__) else None


# ---- the rules, first to last


def _use(rule: str, advice: Advice, *reasons: Fact) -> NextStep:
    fact = USE(estimator=advice.estimator, why=advice.why)
    return NextStep(rule, fact, advice.command, advice, reasons)


def _columns(tests: tuple[ReadingTest, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(test.column for test in tests))


def _facts(*tests: ReadingTest) -> tuple[Fact, ...]:
    return tuple(test.fact for test in tests)


def _log(found: "Audit") -> NextStep | None:
    """No estimator can help, whatever it believes."""
    why = (
        LOG_EVERYTHING()
        if found.shown is not None and found.shown.refusal is not None
        else NOBODY_CLICKED()
        if found.size.clicks == 0
        else NO_BIAS()
        if found.graph.depth < 2
        else None
    )
    if why is None:
        return None
    return NextStep("log", USE_NONE(why=why), Command(""), Advice("", why))


def _trust_in_experiment(found: "Audit") -> NextStep | None:
    return _trusting("trust-in-experiment", found) if _experiment_of(found) else None


def _experiment(found: "Audit") -> NextStep | None:
    advice = _experiment_of(found)
    if advice is None:
        return None
    differ = _failed(found, "context") if advice.estimator == ShuffledTop.__name__ else ()
    return _use("experiment", replace(advice, context=_columns(differ)), *_facts(*differ))


def _time(found: "Audit") -> NextStep | None:
    changes = [test for test in _failed(found, "time") if test.is_material]
    if not changes:
        return None
    command = Command("untilt split LOG --by time")
    return NextStep("time", SHORTER_LOG(), command, _until_then(found), _facts(*changes))


def _click_model(found: "Audit") -> NextStep | None:
    stopping = [t for t in _failed(found, "clicks-above") if t.is_material and t.ratio < 1]
    if not stopping:
        return None
    command = Command("untilt clickmodels LOG")
    return NextStep("clicks-above", CLICK_MODEL(), command, _until_then(found), _facts(*stopping))


def _trust(found: "Audit") -> NextStep | None:
    return _trusting("trust-in-top", found)


def _context(found: "Audit") -> NextStep | None:
    differ = _failed(found, "context")
    if not differ or _drifts(found) or _reach(found) < 2:
        return None
    columns = _columns(differ)
    why = CONTEXTS_DIFFER(columns=columns)
    options = {} if _reach(found) == found.graph.depth else {"depth": _reach(found)}
    kind = ContextualBias.__name__
    advice = Advice(kind, why, options, (SAME_RELEVANCE(),), context=columns)
    return _use("context", advice, *_facts(*differ))


def _disagreement(found: "Audit") -> NextStep | None:
    test = found.estimators
    if test is None or not test.rejects or _drifts(found):
        return None
    why = ASSUMES_LESS(other=test.first, p_value=test.p_value)
    advice = Advice(test.second, why, believes=(SAME_RELEVANCE(),))
    return _use("estimators-disagree", advice, test.fact)


_RULES: tuple[Callable[["Audit"], NextStep | None], ...] = (
    _log, _trust_in_experiment, _experiment, _click_model, _time, _trust, _context, _disagreement,
)  # fmt: skip


def next_step(found: "Audit") -> NextStep:
    """The step of the first rule that holds; without one the estimator that believes least."""
    for rule in _RULES:
        step = rule(found)
        if step is not None:
            return step
    advice = _until_then(found)
    if advice.estimator:
        return _use("least-belief", advice)
    return NextStep("swaps", USE_NONE(why=advice.why), advice.command, advice)


# ---- estimators that the rules name


def _trusting(rule: str, found: "Audit") -> NextStep | None:
    """TrustEM; it compares documents with themselves, or by features where they never move."""
    test = _trust_test(found)
    if test is None or _drifts(found) or (_reach(found) < 2 and not _usable_features(found)):
        return None
    fields = {"ratio": test.ratio, "position": test.position}
    within = found.interventions.shuffled_relevance is test
    why = (TRUST_IN_RANDOM_ORDER if within else TRUST)(**fields)
    believes = (SAME_RELEVANCE(),) if test.question == "relevance" else (FEATURES_EXPLAIN(),)
    return _use(rule, Advice(TrustEM.__name__, why, believes=believes), *_facts(test))


def _experiment_of(found: "Audit") -> Advice | None:
    """The estimator of an experiment that passes its tests and reaches deep enough.

    It believes less than others, so it may end higher: where 95% of their clicks are above.
    """
    done, reach = found.interventions, _reach(found)
    clicks = np.diag(found.graph.clicks)[:reach]
    above = np.cumsum(clicks) >= (1 - LEFT_BELOW) * clicks.sum()
    enough = int(np.argmax(above)) + 1 if len(clicks) else 0
    for advice, depth in (_shuffled(done), _pivot(done, reach), _adjacent(done, reach)):
        if advice and depth >= max(2, enough):
            return replace(advice, why=joined(advice.why, *_below(found.graph, depth)))
    return None


def _until_then(found: "Audit") -> Advice:
    """The estimator that asks for the least belief, whatever the reading tests found.

    Where the relevance of documents drifts with their position, they cannot be compared with
    themselves, and only models of relevance remain.
    """
    graph, reach = found.graph, _reach(found)
    experiment = _experiment_of(found)
    if experiment is not None:
        return experiment
    if reach >= max(2, _clicked_depth(graph)) and not _drifts(found):
        return _all_pairs(found)
    if _usable_features(found):
        return _regression(found)
    return _all_pairs(found) if reach > 1 else _swap(found)


def _shuffled(done: Interventions) -> tuple[Advice | None, int]:
    if not done.shuffled_depth:
        return None, 0
    why = SHUFFLED(sessions=done.shuffled)
    return Advice(ShuffledTop.__name__, why, believes=(RANDOM_ORDER(),)), done.shuffled_depth


def _pivot(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.pivot_reach if done.swaps_are_right else 0
    if reach < 2 or reach < done.adjacent_reach:
        return None, 0
    sessions = sum(n for pair, n in done.swapped.items() if done.pivot in pair)
    why = PIVOT_SWAPS(sessions=sessions, pivot=done.pivot, depth=reach)
    return _swaps(PivotSwap, why, {"pivot": done.pivot}, reach, repeated), reach


def _adjacent(done: Interventions, repeated: int) -> tuple[Advice | None, int]:
    reach = done.adjacent_reach if done.swaps_are_right else 0
    if reach < 2:
        return None, 0
    sessions = sum(n for (a, b), n in done.swapped.items() if b == a + 1)
    why = ADJACENT_SWAPS(sessions=sessions, depth=reach)
    return _swaps(AdjacentSwap, why, {}, reach, repeated), reach


def _swaps(
    estimator: type[SwapEstimator], why: Fact, options: dict[str, Any], reach: int, repeated: int
) -> Advice:
    """Lists are compared by length where repeated queries join fewer positions than the swaps."""
    if repeated < reach:
        why, options = joined(why, NO_REPEATS()), options | {"within": "length"}
    return Advice(estimator.__name__, why, options, (RANDOM_SWAPS(),))


def _all_pairs(found: "Audit") -> Advice:
    graph, reach, n_rankers = found.graph, _reach(found), len(found.rankers)
    positions = tuple(range(1, reach + 1))
    repeated = RANKERS_DISAGREE if n_rankers > 1 else RANKS_VARY
    why = joined(repeated(n_rankers=n_rankers, positions=positions), *_below(graph, reach))
    options = {} if reach == graph.depth else {"depth": reach}
    return Advice(AllPairs.__name__, why, options, (SAME_RELEVANCE(),))


def _regression(found: "Audit") -> Advice:
    graph, reach = found.graph, _reach(found)
    why = [NEEDS_MODEL(groups=_n_groups(graph), features=_usable_features(found))]
    if reach > 1:
        why.append(CHECK_WITH(estimator=AllPairs.__name__, depth=reach))
    otherwise = _to_know_more(graph)
    if _drifts(found):
        why, otherwise = [NEEDS_FEATURES()], RUN_SWAPS(share=EXPLORED)
    why.append(OTHERWISE(do=otherwise))
    believes = (FEATURES_EXPLAIN(), NOTHING_HIDDEN())
    return Advice(RegressionEM.__name__, joined(*why), believes=believes)


def _swap(found: "Audit") -> Advice:
    graph = found.graph
    if len(graph.components) > 1:
        why = joined(ANY_CURVE_FITS(groups=len(graph.components)), _to_know_more(graph))
    elif found.joined_depth < graph.depth:
        return Advice("", GAPS_MOVE_DOCUMENTS())
    else:
        why = joined(TOO_FEW_TO_COMPARE(), _to_know_more(graph))
    # A plan compares click rates, so it needs clicks at two positions at least.
    planned = reach_of_positions(1 + np.flatnonzero(np.diag(graph.clicks) > 0)) >= 2
    return Advice("", why, instead="untilt plan LOG" if planned else "")


def _below(graph: PositionGraph, reach: int) -> Iterator[Fact]:
    """What is to be said of positions that an estimator does not reach."""
    if reach < graph.depth:
        yield BELOW(depth=reach)
        yield _to_know_more(graph)


def _to_know_more(graph: PositionGraph) -> Fact:
    """The swaps that join the positions, or more sessions."""
    pairs = tuple((swap.upper, swap.lower) for swap in graph.swaps)
    return SWAP_POSITIONS(pairs=pairs, share=EXPLORED) if pairs else MORE_SESSIONS()


def _clicked_depth(graph: PositionGraph) -> int:
    """The lowest position that counts: those below hold under 1% of the clicks together."""
    clicks = np.diag(graph.clicks)
    below = clicks[::-1].cumsum()[::-1] - clicks
    return int(np.argmax(below <= NEGLIGIBLE * clicks.sum())) + 1


def _n_groups(graph: PositionGraph) -> int:
    several = len(graph.components) > 1
    return len(graph.components if several else graph.clicked_components)

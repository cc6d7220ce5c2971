"""What an evaluation needs of a log (a pool of clicks by document), and what an evaluator is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.feature_table import predicted
from untilt._core.printed import option_kinds, option_pairs, options_text, parse_options
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import Baseline, baseline_lists, is_experiment
from untilt.bias.given import BiasLike, as_examination, as_position_bias
from untilt.catalog import default, find, methods, record_of
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, clusters_of, position_counts
from untilt.data.shown import check_shown
from untilt.data.slates import Slates, slates_of
from untilt.errors import OptionError, ShapeError, check_choice, did_you_mean
from untilt.evaluation.judged import Predicts
from untilt.facts import Fact, note, warning

ABSOLUTE = note("estimate.scale-absolute", "absolute")()

RELATIVE = note(
    "estimate.scale-relative", "relative: relevance counts as the click rate at position 1"
)()

BASELINE_EXPERIMENTS = warning(
    "estimate.baseline-experiments",
    "baseline: {n_sessions:,} of {of:,} sessions, all of experiments ({rankers:few}): this log has "
    "no session of production to compare with, so the logged order is the experiment's",
)

BASELINE_PART = note(
    "estimate.baseline-rankers",
    "baseline: the sessions of {rankers:few}, {n_sessions:,} of {of:,}; the others are data, not "
    "traffic",
)

BASELINE = note(
    "estimate.baseline-rankers", "baseline: all {of:,} sessions (rankers: {rankers:few})"
)

BASELINE_ALL = note(
    "estimate.baseline-all", "baseline: all {n_sessions:,} sessions (the log names no rankers)"
)

Among = Literal["list", "shown", "candidates"]
AMONG: tuple[Among, ...] = ("list", "shown", "candidates")


class People(NamedTuple):
    """(lists of a log,) if in the baseline, person, and person within query, numbered from 0."""

    in_baseline: BoolArray
    person: IntArray
    both: IntArray


@dataclass(frozen=True, eq=False)
class Pool(PositionCounts):
    """The queries of the baseline, the documents that systems rank for them, and their counts.

    The counts are those of all sessions, experiments too: they tell the relevance of documents. The
    slates are those of the baseline alone: the lists that a system would have ordered. Documents
    that nobody was shown have no cells. Versions of a document are documents of their own: what a
    click at one price says about another price is not known.

    Parameters
    ----------
    query_indptr : (queries + 1,) query i owns documents query_indptr[i]:query_indptr[i + 1]
    sessions : (queries,) N_q, sessions of the baseline
    slates, slate_clicks : what they showed, with queries and documents numbered as here, and the
        (rows,) clicks on it
    observed : (documents,) sessions that a document's mean propensity is taken over: those that
        showed it where systems order each list, else all of its query
    ordered : (documents,) sessions of the baseline in which systems find a place for it: those that
        showed it where systems order each list, else all of its query
    among, baseline : what systems order, and which sessions are the baseline
    log : where all this was counted
    people : whose sessions its lists are, where the log says so
    cell_row : (cells,) the row of the slates that each cell is, where it is one; see `by_session`
    slate_propensity : (rows of the slates,) logged propensities, where the log has them
    propensity : (cells,) where they count for systems only as far as these leave the document there
    """

    query_indptr: IntArray
    sessions: FloatArray
    slates: Slates
    slate_clicks: FloatArray
    observed: FloatArray
    ordered: FloatArray
    among: Among
    baseline: Fact
    log: ClickLog
    people: People | None = None
    cell_row: IntArray | None = None
    slate_propensity: FloatArray | None = None
    propensity: FloatArray | None = None

    @property
    def n_queries(self) -> int:
        """Queries with at least one session of the baseline."""
        return len(self.sessions)

    @property
    def n_sessions(self) -> float:
        """Sessions of the baseline."""
        return float(self.sessions.sum())

    @property
    def query_index(self) -> IntArray:
        """(documents,) which query of the pool."""
        return ragged.list_of_row(self.query_indptr)

    @property
    def absent_share(self) -> float:
        """Mean share of its query's baseline sessions that a document shown there is missing from.

        0 where systems order each list: then nothing is expected of documents that it lacks.
        """
        if self.among == "list":
            return 0.0
        shown = sum_by(self.slates.document, self.slates.row_count, len(self.document))
        possible = self.sessions[self.query_index][shown > 0].sum()
        return 1 - float(shown.sum()) / possible if possible > 0 else 0.0

    def by_query(self, values: FloatArray) -> FloatArray:
        """(queries,) sum of values (one per document)."""
        return ragged.sums_by_list(self.query_indptr, np.asarray(values, dtype=float))

    def by_session(self) -> Self:
        """The pool with the rows of the baseline's slates as cells, in place of positions.

        For evaluators that give a session the credit of its own clicks alone: where a system puts a
        document depends on the list, so two slates that show it at one position are two cells.
        """
        owner = self.slates.document
        row = np.argsort(owner, kind="stable")
        return replace(
            self,
            indptr=ragged.indptr_of(np.bincount(owner, minlength=len(self.document))),
            position=self.slates.position_index[row] + 1,
            impressions=np.asarray(self.slates.row_count, dtype=float)[row],
            clicks=self.slate_clicks[row],
            cell_row=row,
        )

    def under(self, bias: PositionBias) -> tuple[Self, FloatArray, FloatArray]:
        """The pool, alpha and beta (K,), with counts 0 where clicks say nothing about relevance.

        That is below the end of the curve, and where eps+ is not above eps-.
        """
        inside = min(self.depth, bias.depth)
        alpha, beta = np.zeros(self.depth), np.zeros(self.depth)
        alpha[:inside], beta[:inside] = (curve[:inside] for curve in bias.affine())
        supported = alpha[self.position_index] > 0
        return (
            replace(
                self,
                impressions=np.where(supported, self.impressions, 0.0),
                clicks=np.where(supported, self.clicks, 0.0),
            ),
            alpha,
            beta,
        )


def pool_of(
    log: ClickLog, among: Among = "list", baseline: Baseline = None, *, people: str | None = None
) -> Pool:
    """Sum the log once. Counted lists give the same pool as repeated sessions.

    `people` names a column of the log's context that says whose session each is; else the log's
    own `person` does, if it has one.
    """
    check_choice("among", among, AMONG)
    if log.n_lists == 0:
        raise OptionError("this log has no sessions to estimate from. Check what was read or cut.")
    check_shown(log)
    if among != "list" and log.item is not None:
        raise OptionError(
            f"⟦among={among!r}⟧ orders the documents of a query as one list, and "
            f"documents of this log have several versions ({log.n_items:,} have "
            f"{log.n_documents:,}): their features change. Use ⟦among='list'⟧: each "
            "list is ordered by the features that it had."
        )
    in_baseline = baseline_lists(log, baseline)
    said = baseline_fact(log, in_baseline)
    # Queries that the baseline never answered have nothing that a system could order.
    sessions = sum_by(log.query, np.where(in_baseline, log.sessions, 0), log.n_queries)
    answered = sessions[log.query] > 0
    if not answered.all():
        log, in_baseline = log.take(answered), in_baseline[answered]
    if people is not None:
        log = log._with(person=_persons(log, people))
    persons = None if log.person is None else People(in_baseline, *clusters_of(log)[1:])
    counts = position_counts(log)
    n_cells = np.zeros(log.n_documents, dtype=np.int64)
    n_cells[counts.document] = ragged.lengths(counts.indptr)
    ranked = sessions[log.doc_query] > 0 if among == "candidates" else n_cells > 0
    # position_counts sorts shown documents the same way: by query, then as they stand in the log.
    document = np.flatnonzero(ranked)
    document = document[np.argsort(log.doc_query[document], kind="stable")]
    query = log.doc_query[document]
    per_query = np.bincount(query, minlength=log.n_queries)[sessions > 0]
    slates, clicks, propensity = _baseline_slates(log, in_baseline, document, sessions > 0)
    observed, ordered = _sessions_of_documents(log, slates, document, sessions, among)
    return Pool(
        indptr=ragged.indptr_of(n_cells[document]),
        query=query,
        document=document,
        position=counts.position,
        impressions=counts.impressions,
        clicks=counts.clicks,
        depth=counts.depth,
        query_indptr=ragged.indptr_of(per_query),
        sessions=sessions[sessions > 0],
        slates=slates,
        slate_clicks=clicks,
        observed=observed,
        ordered=ordered,
        among=among,
        baseline=said,
        log=log,
        people=persons,
        slate_propensity=propensity,
    )


def _persons(log: ClickLog, column: str) -> IntArray:
    """(lists,) whose sessions each list stands for, numbered from 0."""
    if column not in log.context:
        have = ", ".join(log.context) or "none"
        raise OptionError(
            "people must name a column of the log's "
            f"context.{did_you_mean(column, log.context)} Got {column!r}; this log "
            f"has: {have}. Read it with ⟦read_log(..., context=[{column!r}])|--context "
            "COLUMN⟧."
        )
    return np.unique(log.context[column], return_inverse=True)[1]


def _baseline_slates(
    log: ClickLog, in_baseline: BoolArray, document: IntArray, has_sessions: BoolArray
) -> tuple[Slates, FloatArray, FloatArray | None]:
    """The distinct lists of the baseline, as the pool numbers them, their rows' clicks and p."""
    part = log if in_baseline.all() else log.take(in_baseline)
    slates, row = slates_of(part)
    clicks = sum_by(row, part.label * part.row_count, len(slates.document))
    p = part.propensity
    p = None if p is None else p[np.unique(row, return_index=True)[1]]
    number = np.empty(log.n_documents, dtype=np.int64)
    number[document] = np.arange(len(document))
    renamed = replace(
        slates,
        query=(np.cumsum(has_sessions) - 1)[slates.query],
        document=number[slates.document],
        n_documents=len(document),
    )
    return renamed, clicks, p


def _sessions_of_documents(
    log: ClickLog, slates: Slates, document: IntArray, sessions: FloatArray, among: Among
) -> tuple[FloatArray, FloatArray]:
    """(documents,) `observed` and `ordered` of a pool."""
    if among == "list":
        shown = sum_by(log.document, log.row_count, log.n_documents)
        return shown[document], sum_by(slates.document, slates.row_count, len(document))
    query = log.doc_query[document]
    return sum_by(log.query, log.sessions, log.n_queries)[query], sessions[query]


def baseline_fact(log: ClickLog, in_baseline: BoolArray) -> Fact:
    """Which sessions are the baseline, in words."""
    n, total = int(log.sessions[in_baseline].sum()), log.n_sessions
    if log.ranker is None:
        return BASELINE_ALL(n_sessions=total)
    made_by = np.unique(log.ranker[in_baseline])
    rankers = tuple(log.ranker_names[i] for i in made_by)
    told = BASELINE if n == total else BASELINE_PART
    told = BASELINE_EXPERIMENTS if all(map(is_experiment, rankers)) else told
    return told(rankers=rankers, n_sessions=n, of=total)


def scores_of(system: Predicts | npt.ArrayLike, pool: Pool, name: str) -> FloatArray:
    """(pool documents,) scores of a ranker, or of an array with one score per log document."""
    log = pool.log
    if isinstance(system, Predicts):
        if log.features is None:
            raise OptionError(
                f"system {name!r} scores features, and this log has none. Read it with its "
                "documents table, or give an array with one score per document of the log."
            )
        scores = np.asarray(
            predicted(system, log.features[pool.document], log.feature_names, log.missing),
            dtype=float,
        )
        expected = len(pool.document)
    else:
        try:
            scores = np.asarray(system, dtype=float)
        except (TypeError, ValueError):
            scores = np.empty(())
        expected = log.n_documents
        if scores.ndim != 1:
            raise OptionError(
                f"system {name!r} must be a ranker with predict(features), an array "
                "with one score per document of the log, or ⟦ut.shown|shown⟧. Got "
                f"{type(system).__name__} instead."
            )
    if scores.shape != (expected,):
        raise ShapeError(
            f"system {name!r} must give {expected:,} scores, one per document of the log. "
            f"Got shape {scores.shape} instead."
        )
    scores = scores if isinstance(system, Predicts) else scores[pool.document]
    if np.isnan(scores).any():
        raise OptionError(
            f"system {name!r} gives NaN for {int(np.isnan(scores).sum()):,} documents. Use -inf "
            "for a document that should come last."
        )
    return scores


# What an evaluator is: a value that says what clicks are worth, prints and parses.


@dataclass(frozen=True, eq=False)
class Credit:
    r"""What the clicks of a log are worth to an evaluator. The value of a query is

        sum_d lambda_d (sum of `cell` over the cells of d + `ordered`_d `document`_d)

    over its documents d, divided by its sessions. lambda_d is the mean discount over the sessions
    in which a system orders d, `Pool.ordered`. A cell is one (document, position) of all sessions;
    of an evaluator that does not pool documents, one row of a slate of the baseline, with a
    discount of its own.

    Parameters
    ----------
    cell, slope : (cells,) credit summed over sessions, and its derivative by theta at the cell's
        position
    weight : (cells,) what one click there counts
    clipped, supported : (cells,) propensity below the clip; position known to the bias
    document : (documents,) credit per session from a relevance model, or None
    self_normalised : whether the summed `cell` takes the place of the sessions as divisor
    mass : (cells,) credit had every impression been clicked, where values are divided by its sum
    """

    cell: FloatArray
    slope: FloatArray
    weight: FloatArray
    clipped: BoolArray
    supported: BoolArray
    document: FloatArray | None = None
    self_normalised: bool = False
    mass: FloatArray | None = None


@dataclass(frozen=True)
class Evaluator(ABC):
    """Base of the evaluators: values that print (`clipped:clip=0.1`) and parse.

    One of your own is a frozen dataclass with `credit`, handed to `untilt.estimate` as an object;
    with a record (`untilt.catalog.method`) it has a name too. An option `clip` makes it take
    `estimate(..., clip=)`, an option `relevance` makes it take a relevance model.

    Attributes
    ----------
    needs_bias : whether clicks are divided by examination; without, errors of the bias do not count
    pools_documents : whether a weight belongs to a document over all sessions that showed it,
        experiments too, not to one session: right also where whole queries are ranked and their
        sessions show different documents
    corrects_trust : whether eps+ and eps- of the bias are taken into account
    matches_slots : whether a click counts only for systems that keep its document in its place
    """

    needs_bias: ClassVar[bool] = True
    pools_documents: ClassVar[bool] = False
    corrects_trust: ClassVar[bool] = False
    matches_slots: ClassVar[bool] = False

    @abstractmethod
    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """What each (document, position) of the log adds to the value of its query."""

    def unbiased(self) -> "Evaluator":
        """This evaluator without what makes it lean even where the bias is right, such as a clip.

        Itself where there is nothing of the kind. Intervals are made from this one.
        """
        clip = getattr(self, "clip", 0)
        return with_option(self, "clip", 0.0) if clip == "auto" or clip > 0 else self

    def scale(self, bias: PositionBias) -> Fact:
        """What the values are multiples of."""
        return RELATIVE if bias.relative else ABSOLUTE

    def warnings(self) -> tuple[Fact, ...]:
        """What holds for every estimate of this evaluator."""
        return ()

    def takes(self, option: str) -> bool:
        """Whether it has this option, such as "clip" or "relevance"."""
        return any(each.name == option for each in fields(self))

    @property
    def name(self) -> str:
        """The name of its record; that of the class where it has none."""
        try:
            return record_of(self).name
        except OptionError:
            return type(self).__name__

    def __str__(self) -> str:
        return self.name + options_text(self)


def cells_for(evaluator: Evaluator, pool: Pool) -> Pool:
    """The pool with the cells that an evaluator gives credit to."""
    cells = pool if evaluator.pools_documents else pool.by_session()
    if not evaluator.matches_slots:
        return cells
    if (p := pool.slate_propensity) is None:
        raise OptionError(f"the evaluator {evaluator} needs a log with a column `propensity`.")
    return replace(cells, propensity=p[cells.cell_row])


def parse_evaluator(evaluator: str | Evaluator | None = None) -> Evaluator:
    """The evaluator of a text `name[:option=value,...]`; the default evaluator for None.

    >>> parse_evaluator("clipped:clip=0.1")
    ClippedEvaluator(clip=0.1)
    """
    if isinstance(evaluator, Evaluator):
        return evaluator
    if evaluator is None:
        return default("evaluator").make()
    name, colon, options = str(evaluator).strip().partition(":")
    record = find("evaluator", name)
    pairs = option_pairs(options) if colon else ()
    return record.make(**parse_options(pairs, option_kinds(record.load()), name))


def with_option(evaluator: Evaluator, option: str, value: Any) -> Evaluator:
    """The evaluator with this option; itself for None. An error where it does not take it."""
    if value is None:
        return evaluator
    if not evaluator.takes(option):
        able = [each.name for each in methods("evaluator") if option in each.takes]
        raise OptionError(
            f"the evaluator {evaluator} takes no {option}. Leave it out, or use one of: "
            f"{', '.join(able)}."
        )
    return replace(evaluator, **{option: value})


def bias_for(evaluator: Evaluator, bias: BiasLike | None, depth: int) -> PositionBias:
    """The bias of an evaluation; it may end above the log's lowest position."""
    if bias is None and not evaluator.needs_bias:
        return PositionBias(np.ones(depth), method="none")
    if bias is None:
        free = [each.name for each in methods("evaluator") if "bias" not in each.needs]
        raise OptionError(
            f"the evaluator {evaluator} needs the position bias: give ⟦bias=...⟧, an "
            "estimate such as ⟦ut.AllPairs().fit(log).bias_|that of `untilt bias LOG "
            "--out bias.json`⟧ or a curve such as ⟦ut.PowerLaw(1.0)|power-law:1.0⟧. "
            f"Without any, there are: {', '.join(free)}."
        )
    curve = as_examination(bias)
    return curve if isinstance(curve, PositionBias) else as_position_bias(curve, depth)

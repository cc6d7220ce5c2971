"""What an evaluation needs of a log (a pool of clicks by document), and what an evaluator is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.printed import options_text, parse_options
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike, as_examination, as_position_bias
from untilt.catalog import default, find, methods, record_of
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, position_counts
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.evaluation.judged import Predicts
from untilt.facts import Fact

Among = Literal["shown", "candidates"]


@dataclass(frozen=True, eq=False)
class Pool(PositionCounts):
    """The queries with sessions, the documents that systems rank for them, and their counts.

    Documents that nobody was shown have no cells.

    Parameters
    ----------
    query_indptr : (queries + 1,) query i owns documents query_indptr[i]:query_indptr[i + 1]
    sessions : (queries,) N_q
    log : where all this was counted
    """

    query_indptr: IntArray
    sessions: FloatArray
    log: ClickLog

    @property
    def n_queries(self) -> int:
        """Queries with at least one session."""
        return len(self.sessions)

    @property
    def n_sessions(self) -> float:
        """Sessions of all of them."""
        return float(self.sessions.sum())

    @property
    def longest(self) -> int:
        """The lowest rank that a document can have, ranked anew or as it was shown."""
        return max(int(ragged.lengths(self.query_indptr).max()), self.depth)

    @property
    def query_index(self) -> IntArray:
        """(documents,) which query of the pool."""
        return ragged.list_of_row(self.query_indptr)

    @property
    def absent_share(self) -> float:
        """Mean share of its query's sessions that a shown document is missing from."""
        shown = self.by_document(self.impressions)
        possible = self.sessions[self.query_index][shown > 0].sum()
        return 1 - float(shown.sum()) / possible if possible > 0 else 0.0

    def by_query(self, values: FloatArray) -> FloatArray:
        """(queries,) sum of values (one per document)."""
        return ragged.sums_by_list(self.query_indptr, np.asarray(values, dtype=float))

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


def pool_of(log: ClickLog, among: Among) -> Pool:
    """Sum the log once. Counted lists give the same pool as repeated sessions."""
    check_choice("among", among, ("shown", "candidates"))
    if log.n_lists == 0:
        raise OptionError("this log has no sessions to estimate from. Check what was read or cut.")
    counts = position_counts(log)
    sessions = sum_by(log.query, log.sessions, log.n_queries)
    n_cells = np.zeros(log.n_documents, dtype=np.int64)
    n_cells[counts.document] = ragged.lengths(counts.indptr)
    ranked = n_cells > 0 if among == "shown" else sessions[log.doc_query] > 0
    # position_counts sorts shown documents the same way: by query, then as they stand in the log.
    document = np.flatnonzero(ranked)
    document = document[np.argsort(log.doc_query[document], kind="stable")]
    query = log.doc_query[document]
    per_query = np.bincount(query, minlength=log.n_queries)[sessions > 0]
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
        log=log,
    )


def scores_of(system: Predicts | npt.ArrayLike, pool: Pool, name: str) -> FloatArray:
    """(pool documents,) scores of a ranker, or of an array with one score per log document."""
    log = pool.log
    if isinstance(system, Predicts):
        if log.features is None:
            raise OptionError(
                f"system {name!r} scores features, and this log has none. Read it with its "
                "documents table, or give an array with one score per document of the log."
            )
        scores = np.asarray(system.predict(log.features[pool.document]), dtype=float)
        expected = len(pool.document)
    else:
        try:
            scores = np.asarray(system, dtype=float)
        except (TypeError, ValueError):
            scores = np.empty(())
        expected = log.n_documents
        if scores.ndim != 1:
            raise OptionError(
                f"system {name!r} must be a ranker with predict(features), an array with one score "
                f"per document of the log, or ut.shown. Got {type(system).__name__} instead."
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

        sum_d lambda(rank_d) (sum of `cell` over the cells of d + N_q `document`_d)

    over its documents d, divided by its sessions; a cell is one (document, position).

    Parameters
    ----------
    cell, slope : (cells,) credit summed over sessions, and its derivative by theta at the cell's
        position
    weight : (cells,) what one click there counts
    clipped, supported : (cells,) propensity below the clip; position known to the bias
    document : (documents,) credit per session from a relevance model, or None
    self_normalised : whether the summed `cell` takes the place of the sessions as divisor
    """

    cell: FloatArray
    slope: FloatArray
    weight: FloatArray
    clipped: BoolArray
    supported: BoolArray
    document: FloatArray | None = None
    self_normalised: bool = False


@dataclass(frozen=True)
class Evaluator(ABC):
    """Base of the evaluators: values that print (`clipped:clip=0.1`) and parse.

    One of your own is a frozen dataclass with `credit`, handed to `untilt.estimate` as an object;
    with a record (`untilt.catalog.method`) it has a name too. An option `clip` makes it take
    `estimate(..., clip=)`, an option `relevance` makes it take a relevance model.

    Attributes
    ----------
    needs_bias : whether clicks are divided by examination; without, errors of the bias do not count
    pools_documents : whether a weight belongs to a document over all sessions of its query, not to
        one session: right where sessions of one query show different documents
    corrects_trust : whether eps+ and eps- of the bias are taken into account
    """

    needs_bias: ClassVar[bool] = True
    pools_documents: ClassVar[bool] = False
    corrects_trust: ClassVar[bool] = False

    @abstractmethod
    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """What each (document, position) of the log adds to the value of its query."""

    def scale(self, bias: PositionBias) -> Fact:
        """What the values are multiples of."""
        return Fact("estimate.scale-relative" if bias.relative else "estimate.scale-absolute")

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
    return record.make(**parse_options(options if colon else None, record.load(), name))


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
            f"the evaluator {evaluator} needs the position bias: give bias=..., an estimate such "
            "as ut.AllPairs().fit(log).bias_ or a curve such as ut.PowerLaw(1.0). Without any, "
            f"there are: {', '.join(free)}."
        )
    curve = as_examination(bias)
    return curve if isinstance(curve, PositionBias) else as_position_bias(curve, depth)

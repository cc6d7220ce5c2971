"""Contexts as numbers, and curves of examination that depend on them."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, handed_over, sum_by
from untilt._core.portable import Portable
from untilt.bias.curve import PositionBias
from untilt.bias.estimator import numbered_as
from untilt.bias.log_ratios import Uncertainty, from_log_ratios, larger_error, wald_p_value
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, counts_from_rows
from untilt.data.layout import ContextCells, Packed, as_text
from untilt.errors import (
    DepthError,
    OptionError,
    ShapeError,
    check_choice,
    check_least,
    did_you_mean,
)
from untilt.facts import Fact, joined, note, warning
from untilt.networks.mlp import Network, normalised
from untilt.views import Section, View

ERRORS_BOOTSTRAPPED = note(
    "bias.errors-bootstrapped", "errors from {n_samples} bootstrap samples of queries"
)
ERRORS_UNKNOWN = warning("bias.errors-unknown", "errors not known (⟦n_bootstrap=20⟧ gives them)")()
NO_INTERVAL_SMOOTHED = warning(
    "bias.no-interval-smoothed",
    "no interval: in one part of the contexts a network is off by as much as it smooths over its "
    "neighbours, and no resampling shows how much; the average over all contexts has one",
)()

SAME_TOP = note(
    "contextual.same-top", "for averages over contexts: position 1 is examined alike in all of them"
)()

PER = ("query", "list")
# Numbers for each query or list, or for each query id.
Context = npt.ArrayLike | Mapping[Any, npt.ArrayLike] | None


@dataclass(frozen=True)
class ContextColumns:
    """How named columns of context become numbers.

    A column of numbers is taken as it is. A column of categories becomes a column of 0 and 1 for
    each category but the first, which is what the others are compared with.

    categories : column name -> its categories in order; empty for a column of numbers
    """

    categories: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, columns: Mapping[str, AnyArray]) -> "ContextColumns":
        """As the columns of a log have it."""
        return cls(
            {
                name: tuple(sorted(set(values))) if values.dtype == object else ()
                for name, values in columns.items()
            }
        )

    def table(self, columns: Mapping[str, npt.ArrayLike]) -> FloatArray:
        """(n, d) the numbers for columns of n entries, or of one."""
        missing = [name for name in self.categories if name not in columns]
        if missing:
            raise OptionError(
                f"a context here has {', '.join(self.categories)}. Got {', '.join(columns)}: "
                f"{missing[0]!r} is missing."
            )
        return np.column_stack(
            [
                number
                for name, known in self.categories.items()
                for number in _numbers(name, known, np.atleast_1d(columns[name]))
            ]
        )

    def describe(self, row: FloatArray) -> str:
        """A row of `table` in words, such as "device = phone, hour = 9"."""
        values = zip(self.categories, self._values(row), strict=True)
        told = (f"{name} = {v if isinstance(v, str) else f'{v:g}'}" for name, v in values)
        return ", ".join(told)

    def texts(self, rows: FloatArray) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
        """The names of the columns, and what they hold in each row of `table`, as text."""
        values = tuple(tuple(as_text(v) for v in self._values(row)) for row in rows)
        return tuple(self.categories), values

    def _values(self, row: FloatArray) -> list[str | float]:
        """What the columns hold in a row of `table`."""
        numbers, values = iter(row.tolist()), []
        for known in self.categories.values():
            chosen = [next(numbers) for _ in known[1:] or ("",)]
            which = chosen.index(1.0) + 1 if len(known) > 1 and 1.0 in chosen else 0
            values.append(known[which] if known else chosen[0])
        return values


def _numbers(name: str, known: tuple[str, ...], values: AnyArray) -> list[FloatArray]:
    if not known:
        return [values.astype(np.float64)]
    text = [str(value) for value in values]
    unknown = next((value for value in text if value not in known), None)
    if unknown is not None:
        raise OptionError(
            f"context {name!r} must be one of {', '.join(known)}. Got {unknown!r} instead."
            f"{did_you_mean(unknown, known)}"
        )
    # A single category is a column that never varies: it has no effect.
    return [np.array([value == each for value in text], float) for each in known[1:] or known]


@dataclass(frozen=True, eq=False)
class Contexts:
    """Distinct contexts, and which of them each list was seen in.

    values : (contexts, d) float64; of_list : (lists,) index; sessions : (contexts,)
    columns : what the d numbers are, where they come from the columns of a log
    """

    values: FloatArray
    of_list: IntArray
    sessions: FloatArray
    columns: ContextColumns | None = None


@dataclass(frozen=True, eq=False)
class Evidence:
    """One row for each (document, context) that was shown at several positions and clicked.

    Dense over positions, unlike `PositionCounts`: a share needs all positions of its row.

    impressions, clicks : (rows, K); context : (rows,) index into `Contexts`, never falling
    query : (rows,) the units that errors are clustered by
    """

    impressions: FloatArray
    clicks: FloatArray
    context: IntArray
    query: IntArray

    def __len__(self) -> int:
        return len(self.context)

    def take(self, rows: IntArray) -> "Evidence":
        """These rows alone."""
        return Evidence(**{name: value[rows] for name, value in vars(self).items()})


def contexts_of(
    log: ClickLog, context: Context = None, *, per: str, columns: ContextColumns | None = None
) -> Contexts:
    """The context of each list, checked and without repeats.

    context : an array or a mapping of query ids; where not given, the context columns of the log,
        as numbers in the way of `columns`, or of `ContextColumns.of`
    """
    check_choice("per", per, PER)
    if context is None and log.context:
        columns = columns or ContextColumns.of(log.context)
        given, per = columns.table(log.context), "list"
    elif isinstance(context, Mapping):
        given, columns = _by_id(log, context, per), None
    else:
        given, columns = (
            _as_table(context, log.n_queries if per == "query" else log.n_lists, per),
            None,
        )
    row_of_list = log.query if per == "query" else np.arange(log.n_lists)
    _check_finite(given, row_of_list, per)
    used = np.zeros(len(given), dtype=bool)
    used[row_of_list] = True
    values, of_used = np.unique(given[used], axis=0, return_inverse=True)
    of_row = np.zeros(len(given), dtype=np.int64)
    of_row[used] = of_used.ravel()
    of_list = of_row[row_of_list]
    sessions = sum_by(of_list, log.sessions, len(values))
    return Contexts(handed_over(values), handed_over(of_list), handed_over(sessions), columns)


def context_cells(log: ClickLog, contexts: Contexts) -> tuple[PositionCounts, IntArray]:
    """Cells of (document, context), sorted by context, and the context of each.

    A document may be as relevant as it likes in each context: nothing is compared across contexts.
    """
    lengths = np.diff(log.indptr)
    row_context = np.repeat(contexts.of_list, lengths).astype(np.int64)
    key = row_context * log.n_documents + log.document
    pairs, pair = np.unique(key, return_inverse=True)
    cells = counts_from_rows(
        pair.ravel(), log.position, log.row_count, log.label, len(pairs), log.depth
    )
    context, document = np.divmod(pairs, log.n_documents)
    counts = replace(
        cells, query=handed_over(log.doc_query[document]), document=handed_over(document)
    )
    return counts, context


def evidence_of(cells: PositionCounts, context: IntArray) -> Evidence:
    """The rows that say anything: several positions, and a click at one of them."""
    n_positions = np.diff(cells.indptr)
    impressions, clicks = np.zeros((2, len(n_positions), cells.depth))
    at = cells.document_index, cells.position_index
    impressions[at], clicks[at] = cells.impressions, cells.clicks
    useful = (n_positions > 1) & (clicks.sum(axis=1) > 0)
    return Evidence(impressions, clicks, context, cells.query).take(np.flatnonzero(useful))


def _by_id(log: ClickLog, context: Mapping[Any, npt.ArrayLike], per: str) -> FloatArray:
    if per != "query":
        raise OptionError(
            'a mapping of query ids is context ⟦per="query"⟧. For context '
            '⟦per="list"⟧ give an array with a row for each list of the log.'
        )
    ids = log.query_id.tolist()
    shown = np.zeros(log.n_queries, dtype=bool)
    shown[log.query] = True
    missing = [ids[i] for i in np.flatnonzero(shown) if ids[i] not in context]
    if missing:
        raise OptionError(
            f"context has no entry for {len(missing):,} of the queries shown, among them "
            f"{missing[0]!r}. Give one for each query id, in the type of log.query_id."
        )
    some = next(np.atleast_1d(context[i]) for i in ids if i in context)
    absent = np.zeros(len(some))  # not read: these queries were never shown
    rows = [np.atleast_1d(context.get(i, absent)) for i in ids]
    if len({row.shape for row in rows}) > 1:
        raise ShapeError("context must have the same number of values for every query.")
    return np.array(rows, dtype=np.float64)


def _as_table(context: npt.ArrayLike | None, n: int, per: str) -> FloatArray:
    if context is None:
        raise OptionError(
            "⟦ContextualBias⟧ needs to know the context. Read the log with columns of "
            "it, ⟦read_log(..., context=['device'])|--context COLUMN⟧, or give "
            "fit(log, ⟦context=array⟧) a row of numbers for each query of the log, or "
            "a mapping of query ids to such rows."
        )
    table = np.asarray(context, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != n or table.shape[1] == 0:
        unit = "queries, in the order of log.query_id" if per == "query" else "lists"
        raise ShapeError(
            f"context must have one row for each of the {n:,} {unit}, and at least one column. "
            f"Got shape {np.shape(context)} instead."
        )
    return table


def _check_finite(given: FloatArray, used: IntArray, per: str) -> None:
    wrong = ~np.isfinite(given[used]).all(axis=1)
    if wrong.any():
        where = int(np.asarray(used)[np.argmax(wrong)])
        raise OptionError(
            f"context must be finite numbers. Row {where} ({per} {where}) is "
            f"{given[where].tolist()}. Fill in what is missing, with a column that says so."
        )


MOST_CONTEXTS = 20  # with separate curves in one bias

# d numbers, rows of them, or named columns.
OneContext = npt.ArrayLike | Mapping[str, npt.ArrayLike]


@dataclass(frozen=True)
class ContextGroup:
    """Sessions whose contexts have much the same curve: their log, and their mean curve."""

    log: ClickLog
    bias: PositionBias

    def __repr__(self) -> str:
        return f"ContextGroup({self.log.n_sessions:,} sessions)\n{self.bias!r}"


@dataclass(frozen=True)
class ContextTest:
    """Wald's test of the hypothesis that no context changes the curve."""

    chi_square: float
    degrees_of_freedom: int
    p_value: float

    def __repr__(self) -> str:
        return (
            f"ContextTest(chi-square {self.chi_square:.1f} on {self.degrees_of_freedom} degrees "
            f"of freedom, p {self.p_value:.2g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ContextualCurve(Portable, View):
    """theta_k(x) / theta_1(x): examination relative to position 1, for every context x.

    Parameters
    ----------
    contexts : (contexts, d) those of the log, each once; sessions : (contexts,) how often
    columns : what the d numbers are, where they come from the context columns of the log
    depth : how many positions, K
    method, assumes, status, level : as in `PositionBias`
    page : which numbers the K positions have on the page
    """

    contexts: FloatArray
    sessions: FloatArray
    columns: ContextColumns | None
    depth: int
    method: str
    assumes: tuple[Fact, ...]
    status: Fact
    level: float
    page: Packed

    def at(self, position: npt.ArrayLike, context: OneContext) -> FloatArray:
        """theta_k(x) / theta_1(x), one number for each position and row of context.

        One position with one context (d,), or arrays of equal length: positions (n,) and contexts
        (n, d); a single one of either goes with all of the other. A context of named columns is a
        mapping: {"device": "phone", "hour": 9}, or {"device": ["phone", "desktop"], ...}.
        """
        k = np.asarray(position, dtype=np.int64)
        numbers = self.page.numbers(self.depth)
        if k.size and (k.min() < 1 or k.max() > numbers[-1]):
            raise DepthError(
                f"positions 1..{numbers[-1]} have an examination estimate. Got "
                f"{k.min()} to {k.max()}. Cut the log with "
                f"⟦log.top({numbers[-1]})|--depth {numbers[-1]}⟧."
            )
        k = self.page.ranks(int(numbers[-1]))[k - 1]
        theta = np.exp(self.log_ratios(self._rows(context)))
        if len(theta) == 1 and (isinstance(context, Mapping) or np.ndim(context) < 2):
            return theta[0][k - 1]
        return theta[np.arange(len(theta)), np.broadcast_to(k - 1, len(theta))]

    def curve(self, context: OneContext) -> PositionBias:
        """The curve of one context, with its intervals; {"device": "phone"} by named columns."""
        rows = self._rows(context)
        if len(rows) != 1:
            raise ShapeError(
                f"curve(context) is the curve of one context. Got {len(rows)} rows instead; "
                "at(position, context) takes many, average() sums them up."
            )
        return self._bias(rows, np.ones(1))

    def average(self) -> PositionBias:
        """The mean of theta_k(x) / theta_1(x) over the sessions of the log."""
        return self._bias(self.contexts, self.sessions)

    def groups(
        self, log: ClickLog, context: Context = None, *, n_groups: int = 3, per: str = "query"
    ) -> tuple[ContextGroup, ...]:
        """Split a log where curves differ most: steepest first, groups of about equal sessions.

        Contexts are ordered by the mean of log theta_k(x) over positions. Weight and train, or
        evaluate, each group by its own curve; see docs/position-bias.md. The context is
        that of the log's own columns where not given, as in `ContextualBias.fit`.
        """
        check_least("n_groups", n_groups, 1)
        given = contexts_of(log, context, per=per, columns=self.columns)
        rows = self._rows(given.values)
        group = self._by_steepness(rows, given.sessions, n_groups)
        groups = []
        for g in np.unique(group):
            mine = group == g
            lists = np.flatnonzero(mine[given.of_list])
            bias = self._bias(rows[mine], given.sessions[mine])
            groups.append(ContextGroup(log.take(lists), bias))
        return tuple(groups)

    def examples(self, *, most: int = 5) -> dict[str, tuple[float, PositionBias]]:
        """Curves to look at, by name, with the number of sessions of each.

        One for each context where the columns have names and there are at most `most` contexts;
        else three groups of about equal sessions, steepest first.
        """
        n = len(self.contexts)
        if self.columns is not None and n <= most:
            group, names = np.arange(n), [self.columns.describe(row) for row in self.contexts]
        else:
            group = self._by_steepness(self.contexts, self.sessions, 3)
            names = ["steepest third of sessions", "middle third", "flattest third"]
        return {
            names[g]: (
                float(self.sessions[group == g].sum()),
                self._bias(self.contexts[group == g], self.sessions[group == g]),
            )
            for g in np.unique(group)
        }

    def _by_steepness(self, rows: FloatArray, sessions: FloatArray, n_groups: int) -> IntArray:
        """(contexts,) the group of each: by the mean of log theta_k(x), of about equal sessions."""
        order = np.argsort(self.log_ratios(rows).mean(axis=1), kind="stable")
        before = np.cumsum(sessions[order]) - sessions[order] / 2
        group = np.empty(len(order), dtype=np.int64)
        group[order] = np.minimum(n_groups * before / sessions.sum(), n_groups - 1)
        return group

    @abstractmethod
    def log_ratios(self, contexts: FloatArray) -> FloatArray:
        """(n, K) log(theta_k(x) / theta_1(x)) of contexts (n, d)."""

    @abstractmethod
    def _uncertainty(self, contexts: FloatArray, weight: FloatArray) -> Uncertainty:
        """Covariance (K, K) of the log of the weighted mean of theta_k(x) over these contexts."""

    def _bias(self, contexts: FloatArray, weight: FloatArray) -> PositionBias:
        """The weighted mean over these contexts."""
        share = weight / weight.sum()
        z = np.log(share @ np.exp(self.log_ratios(contexts)))
        uncertainty = self._uncertainty(contexts, share)
        # Over several contexts only ratios can be averaged: clicks do not show whether some people
        # look at position 1 more than others.
        averaged = () if len(contexts) == 1 else (SAME_TOP,)
        return numbered_as(self._relative(z, uncertainty, *averaged), self.page)

    def _relative(self, z: FloatArray, errors: Uncertainty, *assumed: Fact) -> PositionBias:
        return from_log_ratios(
            z, errors, level=self.level, method=self.method, assumes=(*self.assumes, *assumed),
            status=joined(self.status, errors.rule),
        )  # fmt: skip

    def _rows(self, context: OneContext) -> FloatArray:
        if isinstance(context, Mapping):
            if self.columns is None:
                raise OptionError(
                    "these curves know no columns by name: their context was given as numbers. "
                    f"Give {self.contexts.shape[1]} numbers, or fit a log with context columns."
                )
            return self.columns.table(context)
        rows = np.asarray(context, dtype=np.float64)
        rows = rows.reshape(1, -1) if rows.ndim < 2 else rows
        d = self.contexts.shape[1]
        if rows.ndim != 2 or rows.shape[1] != d:
            raise ShapeError(
                f"a context here is {d} numbers. Got an array of shape {np.shape(context)}."
            )
        if not np.all(np.isfinite(rows)):
            raise OptionError("a context must be finite numbers. Fill in what is missing.")
        return rows

    def view(self, depth: int | None = None) -> list[Section]:
        """The average with its spread over sessions, and the `examples`."""
        average, theta = self.average(), np.exp(self.log_ratios(self.contexts))
        ends = (_weighted_quantiles(each, self.sessions, (0.05, 0.95)) for each in theta.T)
        (section,), table = average.view(depth), average.table(depth)
        cells = zip(table.rows, (f"{low:.4f} to {high:.4f}" for low, high in ends), strict=False)
        header = (*table.header, "over 90% of the sessions")
        mean = replace(table, header=header, rows=tuple((*row, spread) for row, spread in cells))
        curves = (
            curve.table(caption=f"{name} ({sessions:,.0f} sessions)")
            for name, (sessions, curve) in self.examples().items()
        )
        told = f"The mean over {len(self.contexts):,} different contexts"
        return [replace(section, paragraphs=(told,), tables=(mean, *curves))]


@dataclass(frozen=True, eq=False, repr=False)
class LinearCurves(ContextualCurve):
    """log(theta_k(x) / theta_1(x)) = B_k . (1, x), x normalised by `mean` and `scale`.

    Parameters
    ----------
    B : (K, 1 + d), zeros for position 1
    by_query, by_session : ((K-1)(1+d))^2 covariances of B, clustered and from session noise
    n_queries, effective_queries : behind the clustered one, and (K, 1 + d) as many of equal weight
        would say as much about each coefficient
    """

    B: FloatArray
    mean: FloatArray
    scale: FloatArray
    by_query: FloatArray
    by_session: FloatArray
    n_queries: int
    effective_queries: FloatArray

    @property
    def coefficients(self) -> FloatArray:
        """(K, 1 + d) intercept and slopes by the context as it was given."""
        slope = np.divide(
            self.B[:, 1:], self.scale, out=np.zeros_like(self.B[:, 1:]), where=self._varies
        )
        return np.column_stack([self.B[:, 0] - slope @ self.mean, slope])

    def by_context(self) -> PositionBias:
        """All curves as one bias, over positions of contexts (`untilt.data.layout.ContextCells`).

        It goes where any bias goes: into weightings, and so into rankers and their files, and into
        `untilt.estimate`. A log is read there with its context, and each list is corrected by the
        curve of its own. A context that is not among these gets the average curve.
        """
        if self.columns is None:
            raise OptionError(
                "these curves know no columns by name: their context was given as "
                "numbers. Read the log with its context, ⟦read_log(..., "
                "context=['device'])|--context COLUMN⟧, and fit that."
            )
        if len(self.contexts) > MOST_CONTEXTS:
            raise OptionError(
                f"a curve for each context is for at most {MOST_CONTEXTS} of them. Got "
                f"{len(self.contexts)}: join some, such as hours to parts of the day."
            )
        X = self._design(self.contexts)
        n, K = len(X), self.depth
        # Each context alone, and their mean: rows of shares.
        share = np.vstack([np.eye(n), self.sessions[None, :] / self.sessions.sum()])
        theta = share[:, :, None] * np.exp(X @ self.B.T)  # (curves, contexts, K)
        total = theta.sum(axis=1)
        rows = np.einsum("cxk,xp->ckp", theta / total[:, None, :], X)
        size = (n + 1) * K

        def cells(of_B: FloatArray) -> FloatArray:
            V = of_B.reshape(K - 1, X.shape[1], K - 1, X.shape[1])
            half = np.einsum("cki,kilj->cklj", rows[:, 1:], V)
            whole = np.zeros((K, n + 1, K, n + 1))
            whole[1:, :, 1:, :] = np.einsum("cklj,dlj->kcld", half, rows[:, 1:])
            return whole.reshape(size, size)

        effective = np.repeat(self.effective_queries[:, 0], n + 1)
        by_query, by_session = cells(self.by_query), cells(self.by_session)
        uncertainty = larger_error(by_query, self.n_queries, by_session, effective)
        found = self._relative(np.log(total).T.ravel(), uncertainty, SAME_TOP)
        ranks = self.page.ranks(int(self.page.numbers(K)[-1]))
        cell = ((ranks - 1)[:, None] * (n + 1) + np.arange(n + 1)).ravel()
        layout = ContextCells(*self.columns.texts(self.contexts), self.page.absent)
        return replace(found._part(cell), layout=layout)

    def context_test(self) -> ContextTest:
        """Does the context change the curve at all? Wald's test, as F where queries are few.

        Where errors rest on the spread of queries, chi-square / m is compared with an F of m and
        of their degrees of freedom; with session noise alone it is chi-square on m.
        """
        mine = np.zeros((self.depth - 1, self.B.shape[1]), dtype=bool)
        mine[:, 1:] = self._varies
        slopes = self.B[1:][mine]
        effective = self.effective_queries[1:].ravel()
        errors = larger_error(self.by_query, self.n_queries, self.by_session, effective)
        covariance = errors.covariance[np.ix_(mine.ravel(), mine.ravel())]
        chi_square = float(slopes @ np.linalg.solve(covariance, slopes))
        assert errors.degrees_of_freedom is not None
        p_value = wald_p_value(chi_square, len(slopes), errors.degrees_of_freedom[mine.ravel()])
        return ContextTest(chi_square, len(slopes), p_value)

    def log_ratios(self, contexts: FloatArray) -> FloatArray:
        """(n, K) log(theta_k(x) / theta_1(x)) of contexts (n, d)."""
        return self._design(contexts) @ self.B.T

    def _uncertainty(self, contexts: FloatArray, weight: FloatArray) -> Uncertainty:
        """By the delta method: d log mean_k / dB_k = sum w theta_k(x) (1, x) / mean_k."""
        X = self._design(contexts)
        theta = weight[:, None] * np.exp(X @ self.B.T)
        rows = (theta / theta.sum(axis=0)).T @ X
        by_query, by_session = (self._covariance(S, rows) for S in (self.by_query, self.by_session))
        return larger_error(by_query, self.n_queries, by_session, self.effective_queries[:, 0])

    def _covariance(self, of_B: FloatArray, rows: FloatArray) -> FloatArray:
        K1, p = self.depth - 1, rows.shape[1]
        V = of_B.reshape(K1, p, K1, p)
        z = np.zeros((self.depth, self.depth))
        z[1:, 1:] = np.einsum("ki,kilj,lj->kl", rows[1:], V, rows[1:])
        return z

    @property
    def _varies(self) -> BoolArray:
        return self.scale > 0

    def _design(self, contexts: FloatArray) -> FloatArray:
        return design_of(contexts, self.mean, self.scale)


@dataclass(frozen=True, eq=False, repr=False)
class NetworkCurves(ContextualCurve):
    """log(theta_k(x) / theta_1(x)) = f_k(x) - f_1(x) with f a small network.

    Parameters
    ----------
    network : contexts to K numbers
    members : networks of bootstrap samples of the queries, for the errors; none where not asked for
    """

    network: Network
    members: tuple[Network, ...]

    def log_ratios(self, contexts: FloatArray) -> FloatArray:
        """(n, K) log(theta_k(x) / theta_1(x)) of contexts (n, d)."""
        return _relative(self.network, contexts)

    def _uncertainty(self, contexts: FloatArray, weight: FloatArray) -> Uncertainty:
        unknown = np.full((self.depth, self.depth), np.nan)
        if not self.members:
            return Uncertainty(unknown, ERRORS_UNKNOWN)
        # With eta = 0.3 + |x| the network is off by 0.13 at x = 0, where the members spread by
        # 0.06: intervals held the truth there in 47% of 12 logs, those of the average in 92%.
        if len(contexts) < len(self.contexts):
            return Uncertainty(unknown, NO_INTERVAL_SMOOTHED)
        n = len(self.members)
        each = [np.log(weight @ np.exp(_relative(member, contexts))) for member in self.members]
        return Uncertainty(
            np.cov(each, rowvar=False),
            ERRORS_BOOTSTRAPPED(n_samples=n),
            degrees_of_freedom=np.full(self.depth, n - 1.0),
        )


def design_of(contexts: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """(n, 1 + d) rows (1, x), x normalised; a context feature that never varies is 0."""
    x = normalised(contexts, mean, scale, dtype=np.float64)
    return np.column_stack([np.ones(len(x)), x])


def _relative(network: Network, contexts: FloatArray) -> FloatArray:
    f = network.forward(contexts)
    return f - f[:, :1]


def _weighted_quantiles(
    values: FloatArray, weight: FloatArray, shares: tuple[float, ...]
) -> FloatArray:
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) / weight.sum()
    place = np.minimum(np.searchsorted(reached, shares), len(values) - 1)
    return values[order][place]

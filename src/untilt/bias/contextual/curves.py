"""Curves of examination that depend on the context, and what can be asked of them."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt._core.portable import Portable
from untilt.bias.contextual.evidence import Context, ContextColumns, contexts_of
from untilt.bias.curve import PositionBias
from untilt.bias.log_ratios import Uncertainty, from_log_ratios, larger_error, wald_p_value
from untilt.data.clicklog import ClickLog
from untilt.data.layout import ContextCells
from untilt.errors import DepthError, OptionError, ShapeError
from untilt.facts import Fact, joined
from untilt.networks.mlp import Network, normalised

MOST_CONTEXTS = 20  # that have a curve of their own in one bias

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
class ContextualCurve(Portable):
    """theta_k(x) / theta_1(x): examination relative to position 1, for every context x.

    Parameters
    ----------
    contexts : (contexts, d) those of the log, each once; sessions : (contexts,) how often
    columns : what the d numbers are, where they come from the context columns of the log
    depth : the lowest position, K
    method, assumes, status, level : as in `PositionBias`
    """

    contexts: FloatArray
    sessions: FloatArray
    columns: ContextColumns | None
    depth: int
    method: str
    assumes: tuple[Fact, ...]
    status: Fact
    level: float

    def at(self, position: npt.ArrayLike, context: OneContext) -> FloatArray:
        """theta_k(x) / theta_1(x), one number for each position and row of context.

        One position with one context (d,), or arrays of equal length: positions (n,) and contexts
        (n, d); a single one of either goes with all of the other. A context of named columns is a
        mapping: {"device": "phone", "hour": 9}, or {"device": ["phone", "desktop"], ...}.
        """
        k = np.asarray(position, dtype=np.int64)
        if k.size and (k.min() < 1 or k.max() > self.depth):
            raise DepthError(
                f"positions 1..{self.depth} have an examination estimate. "
                f"Got {k.min()} to {k.max()}. Cut the log with log.top({self.depth})."
            )
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
        evaluate, each group by its own curve; see docs/estimators/contextual.md. The context is
        that of the log's own columns where not given, as in `ContextualBias.fit`.
        """
        if n_groups < 1:
            raise OptionError(f"n_groups must be at least 1. Got {n_groups} instead.")
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
        """Curves to look at, by name, with the number of sessions that each stands for.

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
        averaged = () if len(contexts) == 1 else (Fact("contextual.same-top"),)
        return from_log_ratios(
            z,
            uncertainty,
            level=self.level,
            method=self.method,
            assumes=(*self.assumes, *averaged),
            status=joined(self.status, uncertainty.rule),
        )

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

    def __repr__(self) -> str:
        theta = np.exp(self.log_ratios(self.contexts))
        average = self.average()
        lines = [
            f"ContextualCurve by {self.method}: {self.contexts.shape[1]} features of "
            f"{len(self.contexts):,} contexts, relative to position 1 ({self.status})",
            "       mean  [interval]        over 90% of the sessions",
        ]
        for k in range(self.depth):
            low, high = _weighted_quantiles(theta[:, k], self.sessions, (0.05, 0.95))
            interval = average.interval(k + 1)
            lines.append(
                f"  {k + 1:>3}  {average.examination[k]:.4f}  "
                f"[{interval.low:.3f}, {interval.high:.3f}]    {low:.4f} to {high:.4f}"
            )
        return "\n".join(lines)


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
                "these curves know no columns by name: their context was given as numbers. Read "
                "the log with its context, read_log(..., context=['device']), and fit that."
            )
        if len(self.contexts) > MOST_CONTEXTS:
            raise OptionError(
                f"a curve for each context is for at most {MOST_CONTEXTS} of them. Got "
                f"{len(self.contexts)}: join some, such as hours to parts of the day."
            )
        X = self._design(self.contexts)
        n, K = len(X), self.depth
        # Each context by itself, and their mean: rows of shares.
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
        uncertainty = self._larger(cells(self.by_query), cells(self.by_session), effective)
        found = from_log_ratios(
            np.log(total).T.ravel(),
            uncertainty,
            level=self.level,
            method=self.method,
            assumes=(*self.assumes, Fact("contextual.same-top")),
            status=joined(self.status, uncertainty.rule),
        )
        return replace(found, layout=ContextCells(*self.columns.texts(self.contexts)))

    def context_test(self) -> ContextTest:
        """Does the context change the curve at all? Wald's test, as F where queries are few.

        Where errors rest on the spread of queries, chi-square / m is compared with an F of m and
        of their degrees of freedom; with session noise alone it is chi-square on m.
        """
        mine = np.zeros((self.depth - 1, self.B.shape[1]), dtype=bool)
        mine[:, 1:] = self._varies
        slopes = self.B[1:][mine]
        effective = self.effective_queries[1:].ravel()
        errors = self._larger(self.by_query, self.by_session, effective)
        covariance = errors.covariance[np.ix_(mine.ravel(), mine.ravel())]
        chi_square = float(slopes @ np.linalg.solve(covariance, slopes))
        assert errors.degrees_of_freedom is not None
        p_value = wald_p_value(chi_square, len(slopes), errors.degrees_of_freedom[mine.ravel()])
        return ContextTest(chi_square, len(slopes), p_value)

    def _larger(
        self, by_query: FloatArray, by_session: FloatArray, effective: FloatArray
    ) -> Uncertainty:
        return larger_error(
            by_query, self.n_queries, by_session, effective=effective, jackknife=True
        )

    def log_ratios(self, contexts: FloatArray) -> FloatArray:
        """(n, K) log(theta_k(x) / theta_1(x)) of contexts (n, d)."""
        return self._design(contexts) @ self.B.T

    def _uncertainty(self, contexts: FloatArray, weight: FloatArray) -> Uncertainty:
        """By the delta method: d log mean_k / dB_k = sum w theta_k(x) (1, x) / mean_k."""
        X = self._design(contexts)
        theta = weight[:, None] * np.exp(X @ self.B.T)
        rows = (theta / theta.sum(axis=0)).T @ X
        return self._larger(
            self._covariance(self.by_query, rows),
            self._covariance(self.by_session, rows),
            self.effective_queries[:, 0],
        )

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
            return Uncertainty(unknown, Fact("bias.errors-unknown"))
        # With eta = 0.3 + |x| the network is off by 0.13 at x = 0, where the members spread by
        # 0.06: intervals held the truth there in 47% of 12 logs, those of the average in 92%.
        if len(contexts) < len(self.contexts):
            return Uncertainty(unknown, Fact("bias.no-interval-smoothed"))
        n = len(self.members)
        each = [np.log(weight @ np.exp(_relative(member, contexts))) for member in self.members]
        return Uncertainty(
            np.cov(each, rowvar=False),
            Fact("bias.errors-bootstrapped", n_samples=n),
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

r"""Score tests of the position-based model on counts, with queries as independent units.

Under that model the clicks of a document at a position are binomial, n times theta_k gamma_d, and
independent of everything else. Two things follow, whatever gamma is:

- *Within a cell* (a document at a position) clicks fall on its sessions by chance alone: of c
  clicks in n sessions, sessions of one kind (n_1 of them) get c n_1 / n on average, with the
  variance of the hypergeometric distribution. `Cells` compares kinds of sessions so.
- *Within a document* clicks fall on positions in the ratio n_k theta_k. `relevance_score` asks
  whether they do so for better and for weaker documents alike.

A score is a sum over queries, 0 on average where the model is right. Its error is the larger of
two: the model's own, and the jackknife over queries, which is also right where readers differ from
query to query. The quantiles are Student's, by the effective number of queries. Where the log says
whose sessions they are, comparisons of kinds of sessions are clustered by person too
(`two_way_variance`): chance may have drawn the kind of a person once for all sessions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize import brentq
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.statistics import effective_units, two_way_variance
from untilt.auditing import checks
from untilt.data.clicklog import ClickLog
from untilt.data.counts import PositionCounts, cell_of_rows, clusters_of

MOST_SPLITS, CELLS_OF_SPLITS = 8, 500_000
FARTHEST = 20.0  # logarithm of a ratio: so much no log can tell
MOST_DEALT = 10**9
SURELY_DIFFER = 3.0  # standard errors that what two halves say of relevance lies above chance
CLOSE = 1e-3  # of the logarithms of a curve whose error is taken off to first order
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(9)  # of a normal distribution
NODE_WEIGHTS, MIDDLE = NODE_WEIGHTS / NODE_WEIGHTS.sum(), 4


class Sums(NamedTuple):
    """(units,) the score of each, and its derivative by the effect."""

    score: FloatArray
    information: FloatArray

    @property
    def squares(self) -> float:
        """sum ((s_u - h_u s) / (1 - h_u))^2, h_u = i_u / i: of leaving each unit out."""
        least = 1e-9 * float(np.abs(self.information).max(initial=1e-290))
        share = np.clip(self.information / max(self.information.sum(), least), 0, 1 - 1e-9)
        left_out = (self.score - share * self.score.sum()) / (1 - share)
        return float(np.sum(left_out**2))


@dataclass(frozen=True, eq=False)
class Score:
    """Sums by query: the score, its variance by the model, and its derivative by the effect.

    A query that tells nothing has no part in it. `people`: the same sums by person, and by person
    within query, where the log has people.
    """

    score: FloatArray
    variance: FloatArray
    information: FloatArray
    people: tuple[Sums, ...] = field(default=(), kw_only=True)

    @property
    def is_possible(self) -> bool:
        """Whether at least two queries tell something."""
        return bool(np.count_nonzero(self.variance) > 1 and self.information.sum() > 0)

    @property
    def effective_queries(self) -> float:
        """(sum v)^2 / sum v^2 over the variances v of the queries."""
        return float(self.variance.sum() ** 2 / np.sum(self.variance**2))

    @property
    def std_error(self) -> float:
        r"""Of the sum: the larger of sqrt sum v_q and that of leaving each unit out."""
        square = max(self.variance.sum(), Sums(self.score, self.information).squares)
        if self.people:
            square = two_way_variance(square, *(each.squares for each in self.people))
        return float(np.sqrt(square))

    @property
    def degrees_of_freedom(self) -> float:
        """Of Student's distribution."""
        people = [effective_units(each.information) for each in self.people[:1]]
        return max(1.0, min([self.effective_queries, *people]) - 1)

    @property
    def t(self) -> float:
        """The sum in standard errors."""
        return float(self.score.sum() / self.std_error)

    @property
    def p_value(self) -> float:
        """Two-sided, of no effect."""
        return float(2 * special.stdtr(self.degrees_of_freedom, -abs(self.t)))

    @property
    def p_above(self) -> float:
        """One-sided: of an effect that is not above 0."""
        return float(special.stdtr(self.degrees_of_freedom, -self.t))


def effect_of(
    score: Callable[[float], Score], level: float, farthest: float = FARTHEST
) -> tuple[float, float, float]:
    """The effect at which a score is 0, and the lowest and highest that it does not reject.

    The score of an effect falls with it. `farthest` : ends are not looked for beyond it
    """
    known: dict[float, Score] = {}

    def at(effect: float) -> Score:
        return known.setdefault(effect, known.get(effect) or score(effect))

    quantile = special.stdtrit(at(0.0).degrees_of_freedom, 0.5 + level / 2)

    def where(t: float, start: float) -> float:
        def gap(effect: float) -> float:
            return at(effect).t - t

        here, end = gap(start), start
        step = 1.2 * here * at(start).std_error / max(float(at(start).information.sum()), 1e-300)
        step = float(np.clip(step, -farthest, farthest))
        # Outwards, because far away the error grows with the score.
        while here * gap(end) > 0:
            if abs(end) >= farthest and end * step > 0:
                return end
            end = float(np.clip(end + step, -farthest, farthest))
            step *= 2
        return end if end == start else float(brentq(gap, start, end, xtol=1e-5))

    middle = where(0.0, 0.0)
    return middle, where(quantile, middle), where(-quantile, middle)


class PersonParts(NamedTuple):
    """What people have in cells: (parts,) the unit, the cell, and sums over its rows."""

    unit: IntArray
    cell: IntArray
    sums: tuple[FloatArray, ...]

    def score(self, r: FloatArray, p: FloatArray) -> Sums:
        """Of n sessions and c clicks: sum r (c - n p) by unit, r and p of each cell."""
        r, p, (n, c) = r[self.cell], p[self.cell], self.sums
        return Sums(*(sum_by(self.unit, e) for e in (r * (c - n * p), r**2 * n * p * (1 - p))))


def parts_of_people(
    log: ClickLog, document: IntArray, position: IntArray, *rows: FloatArray | IntArray
) -> list[PersonParts]:
    """Of each person and of each person within a query, in cells (document, position).

    None where the log has no people. rows : (rows,) what is summed
    """
    units, n_cells = clusters_of(log)[1:], len(position)
    if not units or not n_cells:
        return []
    at = cell_of_rows(log, document, position)
    used = np.flatnonzero(at >= 0)
    lists, parts = ragged.list_of_row(log.indptr)[used], []
    for unit in units:
        key, own = np.unique(unit[lists] * np.int64(n_cells) + at[used], return_inverse=True)
        sums = tuple(sum_by(own, each[used]) for each in rows)
        parts.append(PersonParts(*np.divmod(key, n_cells), sums))
    return parts


@dataclass(frozen=True, eq=False)
class ScoreCells:
    """Documents at positions whose sessions are of two kinds, with both among them.

    Parameters
    ----------
    query, document, position : (cells,) numbers of query and document from 0; 1-based position
    n1, c1, n0, c0 : (cells,) sessions and clicks of the kind in question, and of the others
    people : where the log has any, of each person, and of each person within a query: (parts,) the
        unit, a cell, and what is left of this cell without it
    """

    query: IntArray
    document: IntArray
    position: IntArray
    n1: FloatArray
    c1: FloatArray
    n0: FloatArray
    c0: FloatArray
    people: tuple[tuple[IntArray, IntArray, "ScoreCells"], ...] = field(default=(), kw_only=True)

    def with_people(
        self, counts: PositionCounts, log: ClickLog, is_kind: BoolArray
    ) -> "ScoreCells":
        """These cells of the counts of a log, with its people, if it has any."""
        n, y, people = log.row_count, log.label, []
        kinds = (n * is_kind, n * y * is_kind, n * ~is_kind, n * y * ~is_kind)
        for part in parts_of_people(log, counts.document[self.document], self.position, *kinds):
            whole = (each[part.cell] for each in (self.n1, self.c1, self.n0, self.c0))
            rest = (total - lost for total, lost in zip(whole, part.sums, strict=True))
            query, place = (
                self.query[part.cell],
                (self.document[part.cell], self.position[part.cell]),
            )
            people.append((part.unit, part.cell, ScoreCells(query, *place, *rest)))
        return replace(self, people=tuple(people))

    @property
    def ratio(self) -> float:
        """Click rate of the kind over that of the others at equal cells (Mantel and Haenszel)."""
        n = self.n1 + self.n0
        against = np.sum(self.c0 * self.n1 / n)
        return float(np.sum(self.c1 * self.n0 / n) / against) if against > 0 else float("nan")

    def level(self, effect: float = 0.0, *, top: int | None = None) -> Score:
        """Whether the kind is clicked e^effect times as often as others at equal cells of 1..top.

        By default of all positions.
        """
        counted = self.position <= (np.inf if top is None else top)
        gap, variance, _share = self._gaps(np.exp(effect))
        return self._score(counted.astype(float), gap, variance, np.exp(effect))

    def slope(self, effect: float = 0.0) -> Score:
        r"""Whether its clicks fall more steeply: a ratio of rates that is e^a_q k^-effect.

        With the share s of a cell's clicks that the kind gets at a common a, A = c1 (1 - s) and
        B = c0 s have the ratio e^(a_q - a) on average, at every position of a query. So

            U_q = 2 (sum z A sum B - sum A sum z B) / sum c,   z = -log k

        is 0 on average whatever a_q is. Fitting a_q instead doubles the effect where a query has
        two clicks (Neyman and Scott).
        """
        z, query = -np.log(self.position), self.query
        steep = np.exp(effect * z)
        ratio = steep * replace(self, n1=self.n1 * steep)._common_ratio
        gap, variance, s = self._gaps(ratio)
        a, b = self.c1 * (1 - s), self.c0 * s
        A, zA, B, zB, C = (sum_by(query, x) for x in (a, z * a, b, z * b, self.c1 + self.c0))
        by_click = (1 - s) * (z * B[query] - zB[query]) + s * (z * A[query] - zA[query])
        found = self._score(2 * by_click / C[query], gap, variance, ratio)
        return replace(found, score=2 * (zA * B - A * zB) / C)

    def spread(self, effect: float = 0.0) -> Score:
        r"""Whether documents differ in their ratio: sum over documents of u^2 - m.

        With gap U of each document, less what its query has in common,

            u_d = U_d - h_d U_q,   m_d = (1 - 2 h_d) M_d + h_d^2 M_q,   h_d = V_d / V_q

        and the variance M of U where the logarithms of the documents' ratios are normal with the
        variance `effect`. Without any it is V, and the sum is 0 on average where all documents of
        a query changed alike. Where the log has people, the m of no effect is sum over people of
        u_dp^2, their parts of u_d: sessions of one person are not independent.
        """
        ratio = self._common_ratio
        document, first = np.unique(self.document, return_index=True)
        own = np.searchsorted(document, self.document)
        steps = np.sqrt(max(effect, 0.0)) * NODES
        gaps, variances = (
            np.stack([sum_by(own, each) for each in values])
            for values in zip(*(self._gaps(ratio * np.exp(d))[:2] for d in steps), strict=True)
        )
        query, U, V = self.query[first], gaps[MIDDLE], variances[MIDDLE]
        M = NODE_WEIGHTS @ (variances + (gaps - NODE_WEIGHTS @ gaps) ** 2)
        U_q, V_q, M_q = (sum_by(query, each)[query] for each in (U, V, M))
        h = np.divide(V, V_q, out=np.zeros_like(V, dtype=float), where=V_q > 0)
        u, m, v = U - h * U_q, (1 - 2 * h) * M + h**2 * M_q, V * (1 - h)
        score, people = sum_by(query, u**2 - m), []
        for unit, cell, gap, spread in self._lost(ratio, *self._gaps(ratio)[:2]):
            # Left out, a session differs from the rate of n - 1 others, not of n.
            its = gap * np.sqrt(1 - 1 / np.maximum((self.n1 + self.n0)[cell], 1))
            squares, sums = _squares_of_people(unit, own[cell], its, spread, query, h, u, v)
            people.append(sums)
        if people:  # people within a query, the last, have the same squares
            score = score + sum_by(query, (1 - 2 * h) * V + h**2 * V_q) - squares
        # Fourth cumulant of a count is about its variance where clicks are rare; with people no
        # square is in the sum, but products of two.
        variance = sum_by(query, 2 * m**2 + (0 if people else m))
        information = sum_by(query, v**2)
        return Score(score, variance, information, people=tuple(people))

    def told_level(self, level: float, *, top: int | None = None) -> tuple[float, float, float]:
        """Click rate of the kind over that of the others, with its interval."""
        middle, low, high = np.exp(effect_of(partial(self.level, top=top), level)).tolist()
        return middle, low, high

    def told_slope(self, level: float, reach: int) -> tuple[float, float, float]:
        """The same at position `reach`, over what it is at position 1."""
        ends = effect_of(self.slope, level, FARTHEST / np.log(reach))
        middle, high, low = np.exp(-np.log(reach) * np.array(ends)).tolist()
        return middle, low, high

    def told_spread(self, level: float) -> tuple[float, float, float]:
        """The factor by which a document's ratio differs from the common one, as a rule."""
        ends = np.maximum(effect_of(self.spread, level), 0.0)
        middle, low, high = np.exp(np.sqrt(ends)).tolist()
        return middle, low, high

    @property
    def _common_ratio(self) -> float:
        ratio = self.ratio
        return ratio if np.isfinite(ratio) and ratio > 0 else 1.0

    def _gaps(self, ratio: float | FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Clicks of the kind less those expected at this ratio of rates, variance, and share."""
        n, c = self.n1 + self.n0, self.c1 + self.c0
        share = self.n1 * ratio / np.maximum(self.n1 * ratio + self.n0, 1e-300)
        variance = share * (1 - share) * c * (n - c) / np.maximum(n - 1, 1)
        return self.c1 - c * share, variance, share

    def _lost(
        self, ratio: float | FloatArray, gap: FloatArray, variance: FloatArray
    ) -> Iterator[tuple[IntArray, IntArray, FloatArray, FloatArray]]:
        """Of people, and of people within queries: unit, cell, and what this loses without it."""
        for unit, cell, rest in self.people:
            left, spread, _share = rest._gaps(np.broadcast_to(ratio, gap.shape)[cell])
            yield unit, cell, gap[cell] - left, variance[cell] - spread

    def _score(
        self, z: FloatArray, gap: FloatArray, variance: FloatArray, ratio: float | FloatArray
    ) -> Score:
        """The sum of gaps, weighted by z."""
        people = []
        for unit, cell, left, spread in self._lost(ratio, gap, variance):
            lost = z[cell] * left, z[cell] ** 2 * spread
            people.append(Sums(*(sum_by(unit, each) for each in lost)))
        sums = (sum_by(self.query, e) for e in (z * gap, z**2 * variance, z**2 * variance))
        return Score(*sums, people=tuple(people))


def _squares_of_people(
    unit: IntArray, document: IntArray, gap: FloatArray, variance: FloatArray, query: IntArray,
    h: FloatArray, u: FloatArray, v: FloatArray,
) -> tuple[FloatArray, Sums]:  # fmt: skip
    """(queries,) sum of u_dp^2, and what sum u_d^2 - u_dp^2 loses without each unit p.

    u_dp = a_dp - h_d a_qp, with a the gaps of p at a document, and in all of its query.
    """
    key, own = np.unique(unit * len(query) + document, return_inverse=True)
    who, d = np.divmod(key, len(query))
    a, n_queries = sum_by(own, gap), int(query.max()) + 1
    key, own_query = np.unique(who * n_queries + query[d], return_inverse=True)
    person, q = np.divmod(key, n_queries)
    A, aa, ah, au = (sum_by(own_query, each) for each in (a, a**2, a * h[d], a * u[d]))
    hu, hh = (sum_by(query, each)[q] for each in (h * u, h**2))
    squares = aa - 2 * A * ah + A**2 * hh
    # A product of two people, 2 u_dp u_dr, is lost with either: its variance counts with both.
    lost = sum_by(person, np.sqrt(2) * (au - A * hu - squares))
    return sum_by(q, squares, n_queries), Sums(lost, sum_by(who, sum_by(own, variance) * v[d]))


def cells_of(counts: PositionCounts, n_kinds: int, kind: int) -> ScoreCells:
    """One kind of sessions against the others; position k of kind g is (k - 1) n_kinds + g + 1."""
    owner, place = counts.document_index, counts.position_index
    is_chosen, k = place % n_kinds == kind, place // n_kinds
    depth = max(1, counts.depth // n_kinds)
    key, cell = np.unique(owner * depth + k, return_inverse=True)

    def total(values: FloatArray, which: BoolArray) -> FloatArray:
        return sum_by(cell[which], values[which], len(key))

    n1, c1, n0, c0 = (
        total(values, which)
        for which in (is_chosen, ~is_chosen)
        for values in (counts.impressions, counts.clicks)
    )
    clicks, sessions = c1 + c0, n1 + n0
    tells = (n1 > 0) & (n0 > 0) & (clicks > 0) & (clicks < sessions)
    document = key[tells] // depth
    query = np.unique(counts.query[document], return_inverse=True)[1]
    columns = (each[tells] for each in (n1, c1, n0, c0))
    return ScoreCells(query, document, key[tells] % depth + 1, *columns)


# Do clicks of better and of weaker documents fall alike with the position?


@dataclass(frozen=True, eq=False)
class Repeated:
    """Documents shown at several positions, and the curve that explains their clicks best.

    Parameters
    ----------
    query, number : (documents,) query from 0; number in the log
    document, position : (cells,) number of the document from 0; index of the position from 0
    n, c : (cells,) impressions and clicks
    log_theta : (K,) of the conditional likelihood, 0 on average over clicks
    """

    query: IntArray
    number: IntArray
    document: IntArray
    position: IntArray
    n: FloatArray
    c: FloatArray
    log_theta: FloatArray

    @classmethod
    def of(cls, counts: PositionCounts) -> "Repeated":
        """Documents with clicks that were shown at two positions with such clicks, or more."""
        while True:
            several = (np.diff(counts.indptr) > 1) & (counts.by_document(counts.clicks) > 0)
            counts = counts.where(several)
            clicked = counts.by_position(counts.clicks) > 0
            if clicked[counts.position_index].all():
                break
            # Renumbering would move positions, so unclicked ones lose their cells alone.
            counts = _without_positions(counts, clicked)
        query = np.unique(counts.query, return_inverse=True)[1]
        place = (counts.document_index, counts.position_index)
        n, c = counts.impressions, counts.clicks
        made = cls(query, counts.document, *place, n, c, np.zeros(counts.depth))
        return made.fitted() if len(c) else made

    @property
    def depth(self) -> int:
        """K."""
        return len(self.log_theta)

    @cached_property
    def z(self) -> FloatArray:
        """(cells,) -log k."""
        return -np.log1p(self.position)

    def total(self, values: FloatArray) -> FloatArray:
        """(documents,) sums of the values of their cells."""
        return sum_by(self.document, values, len(self.query))

    def fall(self, effect: FloatArray) -> FloatArray:
        """(cells,) k^-effect, with an effect for each document."""
        return np.exp(np.clip(effect[self.document] * self.z, -300, 300))

    def weights(self, n: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(cells,) n theta over its sum in the document, and (documents,) that sum."""
        exposure = n * np.exp(self.log_theta[self.position])
        total = sum_by(self.document, exposure, len(self.query))
        return exposure / np.where(total > 0, total, 1)[self.document], total

    def relevance(self, n: FloatArray, c: FloatArray) -> FloatArray:
        """(documents,) clicks per examination, with one click's worth of the mean added."""
        seen = self.weights(n)[1]
        mean = max(c.sum(), 1) / seen.sum() if seen.any() else 1.0
        return (sum_by(self.document, c, len(self.query)) + 1) / (seen + 1 / mean)

    def hessian(self, w: FloatArray) -> FloatArray:
        """(K, K) diag(sum_d C_d w_dk) - sum_d C_d w_d w_d', of minus the log-likelihood."""
        C = sum_by(self.document, self.c, len(self.query))
        shape = (len(self.query), self.depth)
        rows = csr_array((w, (self.document, self.position)), shape=shape)
        scaled = csr_array((w * C[self.document], (self.document, self.position)), shape=shape)
        expected = sum_by(self.position, w * C[self.document], self.depth)
        return np.diag(expected) - (rows.T @ scaled).toarray()

    def solve(self, w: FloatArray, b: FloatArray) -> FloatArray:
        """x with Hessian x = b, of (K,) or (K, m); positions that no document has keep 0.

        Each group of positions that documents join has a scale of its own, which is held.
        """
        hessian = self.hessian(w)
        occurs = np.flatnonzero(np.diag(hessian) > 0)
        x, H = np.zeros_like(b), hessian[np.ix_(occurs, occurs)]
        if not len(occurs):
            return x
        group = connected_components(csr_array(H), directed=False)[1]
        held = (group[:, None] == group) / len(occurs) + 1e-10 * np.eye(len(occurs))
        x[occurs] = np.linalg.solve(H + np.diag(H).mean() * held, b[occurs])
        return x

    def fitted(self, close: float = 0.0) -> "Repeated":
        r"""Newton's method for sum c log theta_k - sum_d C_d log sum_k n_dk theta_k."""
        theta, clicks = self.log_theta, sum_by(self.position, self.c, self.depth)
        C, made = self.total(self.c), self
        for _ in range(50):
            w, _total = made.weights(self.n)
            slope = clicks - sum_by(self.position, w * C[self.document], self.depth)
            step = made.solve(w, slope)
            theta = theta + step / max(1.0, float(np.abs(step).max()))
            theta -= np.dot(theta, clicks) / clicks.sum()
            made = replace(self, log_theta=theta)
            # By what is left to gain, or by the step.
            if slope @ step < 1e-9 or np.abs(step).max() < close:
                break
        return made


def _without_positions(counts: PositionCounts, keep: BoolArray) -> PositionCounts:
    """The counts without the cells of some positions; the others keep their numbers."""
    cut = counts.at_positions(keep)
    old = np.flatnonzero(keep).astype(cut.position.dtype) + 1
    return replace(cut, position=old[cut.position - 1], depth=counts.depth)


@dataclass(frozen=True, eq=False)
class FallScore:
    """Whether clicks of better documents fall with the position as those of weaker ones.

    Parameters
    ----------
    at : the score of an effect b: a document with x is seen at k in proportion to theta_k k^(-b x)
    spread : standard deviation of x: how much documents differ
    is_open : x is mostly chance, so that sizes are told too small: no end but that next to 1 counts
    """

    at: Callable[[float], Score]
    spread: float
    is_open: bool = False

    def told(self, level: float, reach: int) -> tuple[float, float, float]:
        """The fall to position `reach` of weaker documents over that of better ones.

        Weaker and better are one standard deviation below and above the mean: reach^(-2 b spread).
        """
        scale = 2 * self.spread * np.log(reach)
        middle, low, high = effect_of(self.at, level, FARTHEST / scale)
        middle, low, high = np.exp(-scale * np.array([middle, high, low])).tolist()
        if self.is_open:
            low, high = (0.0 if low < 1 else low), (np.inf if high > 1 else high)
        return middle, low, high


def relevance_score(
    counts: PositionCounts, rng: np.random.Generator, log: ClickLog | None = None
) -> FallScore | None:
    r"""Whether clicks of better documents fall with the position as those of weaker ones.

    The sessions of each cell are dealt into two halves. One half says how relevant a document is,
    x = log of its clicks per examination, drawn to the mean; the other half says how its clicks
    fall, and the other way round:

        score = sum_d (x_d - x_q) sum_k z_k (c_dk - C_d w_dk)

    with z_k = -log k, the share w_dk of the document's C_d clicks in proportion to n_dk theta_k
    k^(-b x'_d), and x_q so that each query may have a curve of its own. Cells are binomial, so the
    halves are independent. x' is the x of the half with the clicks: one x in both places, with its
    error, makes an effect look smaller. theta is the curve of all clicks: its error is taken off to
    first order. Several dealings are averaged. None where no document with clicks was shown at
    several positions. `log` : that was counted, for its people.
    """
    data = Repeated.of(counts)
    if not len(data.c):
        return None
    splits = int(np.clip(CELLS_OF_SPLITS // len(data.c), 1, MOST_SPLITS))
    halves = [half for _ in range(splits) for half in _random_halves(data, rng)]  # two and two
    together = sum_by(data.query, sum(half.x * half.own_x * half.weight for half in halves))
    is_open = bool(together.sum() <= SURELY_DIFFER * np.sqrt(np.sum(together**2)))
    if is_open:
        halves = [replace(half, own_x=half.x) for half in halves]
        together = sum_by(data.query, sum(half.x**2 * half.weight for half in halves))
    x = np.mean([half.own_x for half in halves], axis=0)
    fits, people = {0.0: data}, []
    if log is not None:
        place = data.number[data.document], data.position + 1
        people = parts_of_people(log, *place, log.row_count, log.row_count * log.label)

    def at(effect: float) -> Score:
        if effect not in fits:  # from the nearest one
            nearest = fits[min(fits, key=lambda known: abs(known - effect))]
            seen = data.n * data.fall(effect * x)
            fits[effect] = replace(nearest, n=seen).fitted(CLOSE)
        fit = fits[effect]
        gaps = [half.gaps(fit, effect) for half in halves]
        slopes = [gaps[i].slope(fit) + gaps[i + 1].slope(fit) for i in range(0, len(gaps), 2)]
        # The error of theta, that of both halves of a dealing, is taken off.
        a = fit.solve(fit.weights(fit.n)[0], np.column_stack(slopes))[fit.position]
        parts = [each.sums(fit, a[:, i // 2]) for i, each in enumerate(gaps)]
        score, variance, information, r = (sum(each) / splits for each in zip(*parts, strict=True))
        p = np.minimum(fit.weights(fit.n)[0] * fit.total(fit.c)[fit.document] / data.n, 1)
        # A row is in one of two halves.
        own = tuple(part.score(r / 2, p) for part in people)
        return Score(score, variance, information, people=own)

    return FallScore(
        at, float(np.sqrt(together.sum() / sum(half.weight.sum() for half in halves))), is_open
    )


def _random_halves(data: Repeated, rng: np.random.Generator) -> tuple["_Half", "_Half"]:
    """The halves of one dealing."""
    first, taken = _dealt(data.n.astype(np.int64), data.c.astype(np.int64), rng)
    n, c = first.astype(np.float64), taken.astype(np.float64)
    its_n, its_c = data.n - n, data.c - c
    return _Half.of(data, n, c, its_n, its_c), _Half.of(data, its_n, its_c, n, c)


def _dealt(n: IntArray, c: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """Sessions and clicks of a random half of each cell.

    NumPy draws hypergeometric numbers below 10^9 alone. In larger cells each session is dealt by a
    coin of its own: the halves differ a little in size, and are as independent.
    """
    first = n // 2 + rng.integers(0, 2, len(n)) * (n % 2)
    is_small = np.maximum(c, n - c) < MOST_DEALT
    taken = rng.hypergeometric(*(np.where(is_small, each, 0) for each in (c, n - c, first)))
    large = np.flatnonzero(~is_small)
    taken[large] = rng.binomial(c[large], 0.5)
    first[large] = taken[large] + rng.binomial(n[large] - c[large], 0.5)
    return first, taken


@dataclass(frozen=True, eq=False)
class _Half:
    """One half of the sessions.

    Parameters
    ----------
    n, c : (cells,) its impressions and clicks
    x, own_x : (documents,) log relevance by the other half and by this one, less its query's mean
    weight : (documents,) clicks times the variance of z
    """

    n: FloatArray
    c: FloatArray
    x: FloatArray
    own_x: FloatArray
    weight: FloatArray

    @classmethod
    def of(
        cls, data: Repeated, n: FloatArray, c: FloatArray, its_n: FloatArray, its_c: FloatArray
    ) -> "_Half":
        w, seen = data.weights(n)
        spread = data.total(w * (data.z - data.total(w * data.z)[data.document]) ** 2)
        its, own = data.relevance(its_n, its_c), data.relevance(n, c)
        x, own_x = (
            np.log(each) - _means(np.log(each), its * seen * spread, data.query)[data.query]
            for each in (its, own)
        )
        return cls(n, c, x, own_x, data.total(c) * spread)

    def gaps(self, fit: Repeated, effect: float) -> "_Gaps":
        """What is left of its clicks where documents are seen with this effect."""
        d, w = fit.document, fit.weights(self.n * fit.fall(effect * self.own_x))[0]
        C = fit.total(self.c)[d]
        variance = w * C - w**2 * np.maximum(C**2 - C, 0) / np.maximum(self.n, 1)
        r = self.x[d] * (fit.z - fit.total(w * fit.z)[d])
        return _Gaps(w, w * C, self.c - w * C, np.maximum(variance, 0), r)


class _Gaps(NamedTuple):
    """(cells,) expected share and clicks, gap, its variance by the model, and x (z - mean z)."""

    w: FloatArray
    expected: FloatArray
    gap: FloatArray
    variance: FloatArray
    r: FloatArray

    def slope(self, fit: Repeated) -> FloatArray:
        """(K,) derivative of the score by log theta, with the sign turned."""
        return sum_by(fit.position, self.r * self.expected, fit.depth)

    def sums(self, fit: Repeated, a: FloatArray) -> list[FloatArray]:
        """Score, variance and information by query, and r less what a, (cells,), explains."""
        r = self.r - a + fit.total(self.w * a)[fit.document]
        terms = r * self.gap, r**2 * self.variance, self.r**2 * self.expected
        own, n_queries = fit.query[fit.document], int(fit.query.max()) + 1
        return [*(sum_by(own, each, n_queries) for each in terms), r]


def _means(values: FloatArray, weights: FloatArray, group: IntArray) -> FloatArray:
    """(groups,) weighted means; 0 where nothing has weight."""
    total = sum_by(group, weights)
    return sum_by(group, weights * values) / np.where(total > 0, total, 1)


STRATA = 8  # of documents, by what features predict


def feature_score(log: ClickLog, counts: PositionCounts) -> FallScore | None:
    r"""As `relevance_score`, for documents that never move: strata of what features predict.

    Relevance is predicted as in `checks.by_prediction`, each half of the queries by the other
    half's model, and sorted into strata s of equal size. If features explain relevance alike at
    every position, clicks are n theta_k gamma_s k^(-b x_s) with b = 0; the score is

        sum_k,s r_sk (c_sk - n_sk theta_k gamma_s k^(-b x_s))

    with x_s = log gamma_s at b = 0, and r the part of x_s z_k that no theta and no gamma can take
    up. None where features do not predict clicks within positions.
    """
    owner, k, n, c = (
        counts.document_index, counts.position_index, counts.impressions, counts.clicks
    )  # fmt: skip
    query = np.unique(counts.query[owner], return_inverse=True)[1]
    second_half = query % 2 == 1
    predicted = checks.cross_fitted(log, counts, counts.document[owner], second_half)
    if not _predicts(predicted, counts, query):
        return None
    stratum = np.empty(len(k), dtype=np.int64)
    for half in (second_half, ~second_half):
        edges = np.quantile(predicted[half], np.arange(1, STRATA) / STRATA)
        stratum[half] = np.searchsorted(edges, predicted[half])
    shape, cell = (STRATA, counts.depth), stratum * counts.depth + k
    shown, clicks = (sum_by(cell, each, STRATA * counts.depth).reshape(shape) for each in (n, c))
    gamma, _theta = _two_ways(shown, clicks)
    x = np.log(np.where(gamma > 0, gamma, 1))
    xz = np.outer(x, -np.log1p(np.arange(counts.depth)))
    rows = log.row_count, log.row_count * log.label
    people = parts_of_people(log, counts.document[owner], counts.position, *rows)

    def at(effect: float) -> Score:
        fall = np.exp(effect * xz)
        rate = np.outer(*_two_ways(shown * fall, clicks)) * fall
        r = _without_margins(xz, shown * rate)[stratum, k]
        p = np.minimum(rate[stratum, k], 1)
        terms = (r * (c - n * p), r**2 * n * p * (1 - p), r**2 * n * p)
        own = tuple(part.score(r, p) for part in people)
        return Score(*(sum_by(query, each) for each in terms), people=own)

    share = clicks.sum(axis=1) / clicks.sum()
    return FallScore(at, float(np.sqrt(np.sum(share * (x - np.sum(share * x)) ** 2))))


def _predicts(predicted: FloatArray, counts: PositionCounts, query: IntArray) -> bool:
    """Whether predictions go with clicks within positions, on queries that they have not seen."""
    n, position = counts.impressions, counts.position
    together = n * checks.centred(predicted, n, position) * checks.centred(counts.rate, n, position)
    by_query = sum_by(query, together)
    return bool(by_query.sum() > checks.SURE * np.sqrt(np.sum(by_query**2)))


ROUNDS = 200  # of what is fitted row by row and column by column; tables are small and full


def _two_ways(shown: FloatArray, clicks: FloatArray) -> tuple[FloatArray, FloatArray]:
    """gamma (rows) and theta (columns) with the margins of `clicks`, by turns."""
    theta = np.ones(shown.shape[1])
    gamma = np.zeros(len(shown))
    for _ in range(ROUNDS):
        before = gamma
        gamma = clicks.sum(axis=1) / np.maximum(shown @ theta, 1e-300)
        theta = clicks.sum(axis=0) / np.maximum(gamma @ shown, 1e-300)
        if np.allclose(gamma, before, rtol=1e-9, atol=0):
            break
    return gamma, theta


def _without_margins(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Values less what a sum of rows and columns explains, by weighted least squares."""
    for _ in range(ROUNDS):
        before = values
        for axis in (1, 0):
            total = weights.sum(axis=axis, keepdims=True)
            mean = (values * weights).sum(axis=axis, keepdims=True) / np.where(total > 0, total, 1)
            values = values - mean
        if np.allclose(values, before, rtol=0, atol=1e-9):
            break
    return values


def trust_score(
    counts: PositionCounts, alpha: FloatArray, beta: FloatArray, rng: np.random.Generator
) -> Score | None:
    r"""Whether clicks of better and of weaker documents fall as a curve with trust says.

    As `relevance_score`, with what E[click at k] = alpha_k gamma + beta_k leaves unexplained:

        score = sum_d (x_d - x_q) sum_k z_k (c_dk - n_dk (alpha_k g_d + beta_k))

    One half of the sessions tells x_d, the other the gaps and g_d, without bias and so that the
    gaps of a document add to 0. The error of the curve is left out: a curve of the same clicks fits
    them better than that, so the test finds too little rather than too much. None where no document
    with clicks was shown at several positions.
    """
    counts = counts.at_positions(alpha > 0)
    clicked = counts.by_document(counts.clicks) > 0
    counts = counts.where((np.diff(counts.indptr) > 1) & clicked)
    if not len(counts.clicks):
        return None
    d, k = counts.document_index, counts.position.astype(np.int64) - 1
    a, b, z = alpha[alpha > 0][k], beta[alpha > 0][k], -np.log(np.flatnonzero(alpha > 0) + 1.0)[k]
    query, n_docs = np.unique(counts.query, return_inverse=True)[1], len(counts.query)
    n, c = counts.impressions.astype(np.int64), counts.clicks.astype(np.int64)
    score, variance, information = np.zeros((3, int(query.max()) + 1))
    splits = int(np.clip(CELLS_OF_SPLITS // len(c), 1, MOST_SPLITS))
    for _ in range(splits):
        n1, c1 = _dealt(n, c, rng)
        for own, its in (((n1, c1), (n - n1, c - c1)), ((n - n1, c - c1), (n1, c1))):
            seen, total = (sum_by(d, each, n_docs) for each in (its[0] * (a + b), its[1] * 1.0))
            x = np.log((total + 1) / (seen + seen.sum() / max(total.sum(), 1.0)))
            exposure = np.maximum(sum_by(d, own[0] * a, n_docs), 1e-300)
            g = sum_by(d, own[1] - own[0] * b, n_docs) / exposure
            middle = sum_by(d, own[0] * a * z, n_docs) / exposure
            expected = np.clip(own[0] * (a * g[d] + b), 0, own[0])
            weight = sum_by(d, expected * (z - middle[d]) ** 2, n_docs)
            x = x - _means(x, weight, query)[query]
            r = x[d] * (z - middle[d])
            score += sum_by(query[d], r * (own[1] - own[0] * (a * g[d] + b)), len(score))
            left = expected * (1 - expected / np.maximum(own[0], 1))
            variance += sum_by(query[d], r**2 * left, len(score))
            information += sum_by(query, x**2 * weight, len(score))
    return Score(score / splits, variance / splits, information / splits)

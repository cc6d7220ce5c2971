"""What is known about position bias: a curve, its uncertainty, and what it rests on."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from untilt import catalog
from untilt._core import codec
from untilt._core.arrays import BoolArray, FloatArray, IntArray, check_same_shape, frozen
from untilt._core.portable import Portable
from untilt._core.statistics import Interval, normal_quantile
from untilt.catalog import storable
from untilt.data.layout import AnyLayout, ContextCells, Grid, Layout, Slots
from untilt.errors import DepthError, OptionError, ShapeError
from untilt.facts import Fact, as_fact, as_facts, note, phrase, warning
from untilt.views import Section, Table, View

if TYPE_CHECKING:
    import altair as alt

    from untilt.bias.curve_operations import BiasComparison
    from untilt.charts.curves import Curve

NOT_KNOWN = 10.0  # factor of uncertainty beyond which a position is said not to be known
NO_INTERVAL = "no interval"  # of an estimate whose error is not known

SAME_RELEVANCE = note(
    "bias.same-relevance", "a document is as relevant at one position as at another"
)()

FEATURES_EXPLAIN = note(
    "bias.features-explain",
    "position depends on relevance through the features alone: production knew nothing else "
    "about relevance",
)()

SHARED_CLICKS = note(
    "bias.shared-clicks", "{clicks:,.0f} clicks on documents shown at several positions"
)
GIVEN = note("bias.given", "given")()
CURVE_IS_RIGHT = note("bias.curve-is-right", "the curve is right")()
NEVER_RISES = note("bias.never-rises", "examination never rises with the position")()
NO_CLICKS = warning(
    "bias.no-clicks", "no click at {positions:positions}: only an upper bound there"
)
POSITION_BASED = note(
    "bias.position-based", "clicks follow the position-based model: P(click) = theta_k gamma"
)()
NO_INTERVAL_LEARNED = warning(
    "bias.no-interval-learned",
    "no interval: the curve was fitted together with a ranker, so relevance that the ranker "
    "misses counts as examination, and resampling cannot show how much",
)()

MOST_WEIGHT = 1e9  # times the weight of a click: beyond, a level counts as not bounded at all


@storable
@dataclass(frozen=True, eq=False)
class LevelBounds(Portable):
    """Bounds for the parts of a curve whose inner ratios are known and whose levels are not.

    Write the true curve as e^{u_p} times `PositionBias.examination` on part p, u_0 = 0 on the part
    of position 1. All that is known of the levels are differences,

        u_j - u_i <= most[i, j]

    such as that examination never rises from one part to the next. In x_p = e^{-u_p} these are
    linear, x_i <= e^{most[i, j]} x_j, and so is what a click counts, 1 / theta: the extremes of an
    estimate are those of a linear program.

    Parameters
    ----------
    part : (K,) the part of each position, 0 that of position 1
    most : (P, P) the largest u_j - u_i; infinite where nothing is known
    """

    part: IntArray
    most: FloatArray

    def __post_init__(self) -> None:
        check_same_shape(self, "part")
        check_same_shape(self, "most", ndim=2)
        parts = len(self.most)
        inside = np.all((self.part >= 0) & (self.part < parts))
        if self.most.shape != (parts, parts) or not inside:
            raise ShapeError(f"part must number the {parts} rows and columns of most, from 0.")

    @property
    def bounded(self) -> BoolArray:
        """(K,) whether the level of a position is bounded, not measured."""
        return self.part > 0

    @property
    def hull(self) -> tuple[FloatArray, FloatArray]:
        """(P,) the least and the largest level of each part alone."""
        return -self.most[:, 0], self.most[0]

    def least(self, cost: FloatArray) -> FloatArray:
        """(P,) levels u within the bounds at which sum_p cost_p e^{-u_p} is least."""
        from scipy.optimize import linprog

        n = len(self.most)
        i, j = np.nonzero(np.isfinite(self.most) & ~np.eye(n, dtype=bool))
        rows, limit = np.zeros((len(i), n)), np.zeros(len(i))
        # Divided by the larger coefficient: levels may lie many orders of magnitude apart.
        scale = np.exp(np.maximum(self.most[i, j], 0))
        rows[np.arange(len(i)), i] = 1 / scale
        rows[np.arange(len(i)), j] = -np.exp(self.most[i, j]) / scale
        ends = [(1.0, 1.0), *[(1 / MOST_WEIGHT, MOST_WEIGHT)] * (n - 1)]
        size = np.abs(cost).max()
        found = linprog(cost / (size if size > 0 else 1.0), rows, limit, bounds=ends)
        assert found.success, found.message
        levels: FloatArray = -np.log(found.x)
        return levels

    def is_open(self, levels: FloatArray) -> bool:
        """Whether these levels lie where nothing bounds them."""
        return bool(np.any(np.abs(levels) > np.log(MOST_WEIGHT) - 1e-3))


def tightest(most: FloatArray) -> FloatArray:
    """All differences that follow from these: u_j - u_i <= most[i, k] + most[k, j] for every k.

    A negative diagonal says that no levels fulfil them.
    """
    closed = most.copy()
    np.fill_diagonal(closed, np.minimum(np.diag(closed), 0.0))
    for k in range(len(closed)):
        closed = np.minimum(closed, closed[:, k : k + 1] + closed[k : k + 1, :])
    return closed


_CURVES = ("examination", "std_error", "low", "high")  # of a bias, (K,), in the same unit
# Of the file that `PositionBias.save` writes.
KIND, VERSION = "untilt position bias", 1
AGAIN = "Write it with bias.save(path); a curve of your own goes into ut.KnownBias([...])."


@storable
@dataclass(frozen=True, eq=False, repr=False, init=False)
class PositionBias(Portable, View):
    """Examination probability by position, with standard errors and where they come from.

    P(click at k) = theta_k gamma under the position-based model; with trust bias
    P(click at k) = theta_k (eps+_k gamma + eps-_k (1 - gamma)).

    Parameters
    ----------
    examination : (K,) theta_1..theta_K, all above 0
    std_error : (K,) or None where the curve is taken as known, or its error is not
    covariance : (K, K) or None; lets what is computed with the curve carry its uncertainty
    eps_plus, eps_minus : (K,) click probability of an examined relevant / irrelevant document
    relative : True where only ratios to position 1 are known. Clicks alone never give more.
    method : who made it
    assumes : facts that must be true (`untilt.facts.Fact`); plain text is kept as one
    status : how the fit ended, a fact of one or more `parts`; plain text is kept as one
    level : of the intervals
    low, high : (K,) ends of the intervals; normal ones where only `std_error` is given, and given
        alone they make it, (high - low) / 2 over the normal quantile
    eta, eta_std_error : of the power law theta_k = (1/k)^eta, where one was fitted
    effective_queries : how many queries of equal weight say as much as those of the log, at the
        position that rests on the fewest; None for a curve that was given
    effective_at : (K,) the same at each position, all queries at position 1, which is 1 by
        definition; None where it is not known
    estimated : True where clicks made the curve. Without an error it then has no interval: how far
        it is off is not known, and nothing takes it as exact. With an error it is always True;
        where not given, also if the curve has a method and assumes something else than to be right
    bounds : of the levels of positions that nothing joins to position 1, or None. There `low` and
        `high` are bounds, not a confidence interval, and `examination` is their middle
    layout : what the positions are where they are more than ranks: positions of several contexts
        (`contexts` has their curves), cells of a grid, a page on which some positions hold no
        results (`Slots`: the curve holds its last value there, and lists are read without them);
        None for positions of a list
    """

    examination: FloatArray
    std_error: FloatArray | None = None
    covariance: FloatArray | None = None
    eps_plus: FloatArray | None = None
    eps_minus: FloatArray | None = None
    method: str = "given"
    assumes: tuple[Fact, ...] = ()
    status: Fact = GIVEN
    relative: bool = True
    level: float = 0.95
    low: FloatArray | None = None
    high: FloatArray | None = None
    eta: float | None = None
    eta_std_error: float | None = None
    effective_queries: float | None = None
    estimated: bool = False
    bounds: LevelBounds | None = None
    layout: AnyLayout | None = None
    effective_at: FloatArray | None = None

    @property
    def rests_on(self) -> catalog.RestsOn:
        """What its method rests on; "" where the method is not known.

        EM by counts compares documents with themselves, as harvesting does.
        """
        first, _, by = self.method.partition(" ")
        name = first.partition("(")[0]  # ContextualBias(linear)
        known = [each for each in catalog.methods("bias") if each.target == name]
        if by == "(counts)":
            return "repeated positions"
        return known[0].rests_on if known and self.estimated else ""

    def __init__(
        self,
        examination: npt.ArrayLike,
        std_error: npt.ArrayLike | None = None,
        covariance: npt.ArrayLike | None = None,
        eps_plus: npt.ArrayLike | None = None,
        eps_minus: npt.ArrayLike | None = None,
        method: str = "given",
        assumes: Iterable[str] = (),
        status: str = GIVEN,
        relative: bool = True,
        level: float = 0.95,
        low: npt.ArrayLike | None = None,
        high: npt.ArrayLike | None = None,
        eta: float | None = None,
        eta_std_error: float | None = None,
        effective_queries: float | None = None,
        estimated: bool | None = None,
        bounds: LevelBounds | None = None,
        layout: AnyLayout | None = None,
        effective_at: npt.ArrayLike | None = None,
    ) -> None:
        theta = _checked_examination(examination)
        K = len(theta)
        beliefs = as_facts(assumes)
        curves = {
            "std_error": std_error, "eps_plus": eps_plus, "eps_minus": eps_minus, "low": low,
            "high": high, "effective_at": effective_at,
        }  # fmt: skip
        store: dict[str, Any] = {
            "examination": theta,
            **{name: _of_shape(name, each, (K,)) for name, each in curves.items()},
            "covariance": _of_shape("covariance", covariance, (K, K)),
            "method": method,
            "assumes": beliefs,
            "status": as_fact(status),
            "relative": relative,
            "level": level,
            "eta": eta,
            "eta_std_error": eta_std_error,
            "effective_queries": None if effective_queries is None else float(effective_queries),
            "estimated": any(x is not None for x in (std_error, covariance, low))
            or (_reads_as_estimate(method, beliefs) if estimated is None else estimated),
            "bounds": bounds,
            "layout": layout,
        }
        if store["covariance"] is not None and store["std_error"] is None:
            store["std_error"] = frozen(np.sqrt(np.diag(store["covariance"])))
        error = store["std_error"]
        if error is not None and np.any(error < 0):
            raise OptionError(f"std_error must not be negative. Got {error.min()}.")
        if (low is None) != (high is None):
            raise OptionError("an interval has two ends: give both low and high, or neither.")
        if error is None and low is not None:
            ends = store["high"] - store["low"]
            store["std_error"] = frozen(ends / (2 * normal_quantile(level)))
        if error is not None and low is None:
            half = normal_quantile(level) * error
            store |= {"low": frozen(np.maximum(theta - half, 0)), "high": frozen(theta + half)}
        if bounds is not None and len(bounds.part) != K:
            raise ShapeError(f"bounds must be of {K} positions. Got {len(bounds.part)} instead.")
        if layout is not None and not isinstance(layout, Layout):
            raise OptionError(f"layout must be a Grid, or None for a list. Got {layout!r} instead.")
        if isinstance(layout, Grid) and layout.size < K:
            raise ShapeError(
                f"a curve has at most one value for each cell. Got {K} values for the "
                f"{layout.size} cells of {layout!r}."
            )
        for name, value in store.items():
            object.__setattr__(self, name, value)

    @property
    def depth(self) -> int:
        """The lowest position the curve reaches."""
        return len(self.examination)

    @property
    def contexts(self) -> "dict[str, PositionBias]":
        """The curve of each context by its name, the last one for any other; none without."""
        layout = self.layout
        if not isinstance(layout, ContextCells):
            return {}
        n = layout.n_contexts
        page = Slots(layout.absent) if layout.absent else None
        each = {name: self._part(slice(c, None, n)) for c, name in enumerate(layout.names)}
        return {name: replace(curve, layout=page) for name, curve in each.items()}

    def _part(self, own: slice | IntArray) -> "PositionBias":
        """The curve at some of its positions, or at all in another order."""

        curves = (*_CURVES, "eps_plus", "eps_minus", "effective_at")
        part = {name: each[own] for name in curves if (each := getattr(self, name)) is not None}
        return replace(
            self,
            **part,
            covariance=None if self.covariance is None else self.covariance[own][:, own],
            layout=None,
            bounds=self.bounds and replace(self.bounds, part=self.bounds.part[own]),
        )

    @property
    def holds_results(self) -> BoolArray:
        """(K,) whether a position holds results; True but on a page with gaps."""
        layout = self.layout
        return layout.has(self.depth) if isinstance(layout, Slots) else np.ones(self.depth, bool)

    def positions(self, depth: int | None = None) -> list[int]:
        """The positions that it is about, down to `depth`: those that hold results."""
        found: list[int] = (np.flatnonzero(self.holds_results[:depth]) + 1).tolist()
        return found

    @property
    def is_known(self) -> bool:
        """Whether the curve was given: taken as exact, not estimated from clicks."""
        return not self.estimated

    @property
    def has_interval(self) -> bool:
        """Whether it was estimated with an interval; a curve that was given has none."""
        return self.low is not None

    @property
    def has_trust(self) -> bool:
        """Whether click noise by position (eps+, eps-) is part of it."""
        return self.eps_plus is not None and self.eps_minus is not None

    @property
    def uncertainty(self) -> FloatArray:
        """(K,) the factor sqrt(high / low) to which each position is known, to either side.

        high / theta where the interval reaches 0; 1 for a curve that was given, infinite for an
        estimate without an interval.
        """
        if self.low is None or self.high is None:
            return np.full(self.depth, np.inf if self.estimated else 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            upwards = self.high / self.examination
            return np.where(self.low > 0, np.sqrt(self.high / self.low), upwards)

    @property
    def known_depth(self) -> int:
        """The lowest position that is known to within a factor of 10; nothing is known below.

        The whole depth without an interval: no position is then better known than another.
        """
        known = np.flatnonzero(self._is_shown)
        return int(known[-1]) + 1 if len(known) else 1

    @property
    def _is_shown(self) -> BoolArray:
        """(K,) whether theta is worth showing: known to a factor of 10, or without an interval."""
        bounded = False if self.bounds is None else self.bounds.bounded
        known = (self.uncertainty <= NOT_KNOWN) | (not self.has_interval) | bounded
        return known & self.holds_results

    def text(self, position: int, *, decimals: int = 4) -> tuple[str, str]:
        """theta at a position, and its interval; "not known" and a bound where nothing more is.

        The interval is "" for a curve that was given, "no interval" where there is no honest one;
        "bounded" and the bounds where nothing joins the position to position 1.
        """
        k = self._index(position)
        theta = f"{self.examination[k]:.4f}"
        if self.low is None or self.high is None:
            return theta, NO_INTERVAL if self.estimated else ""
        if self.bounds is not None and self.bounds.bounded[k]:
            return "bounded", f"[{self.low[k]:.{decimals}f}, {self.high[k]:.{decimals}f}]"
        if not self.uncertainty[k] <= NOT_KNOWN:
            bounded = np.isfinite(self.high[k])
            return "not known", f"below {self.high[k]:.{decimals}f}" if bounded else NO_INTERVAL
        return theta, f"[{self.low[k]:.{decimals}f}, {self.high[k]:.{decimals}f}]"

    def at(self, position: npt.ArrayLike) -> FloatArray:
        """theta at these 1-based positions."""
        return self.examination[self._index(position)]

    def interval(self, position: int) -> Interval:
        """The interval of theta at one position; a curve that was given has no width.

        From 0 to infinity for an estimate without an interval (`has_interval`).
        """
        k = self._index(position)
        if self.low is None or self.high is None:
            theta = float(self.examination[k])
            ends = (0.0, float("inf")) if self.estimated else (theta, theta)
            return Interval(*ends, self.level)
        return Interval(float(self.low[k]), float(self.high[k]), self.level)

    def _index(self, position: npt.ArrayLike) -> IntArray:
        asked = np.asarray(position, dtype=np.int64)
        if asked.size and asked.min() < 1:
            raise DepthError(f"positions start at 1. Got {asked.min()} instead.")
        if asked.size and asked.max() > self.depth:
            raise DepthError(
                f"position {asked.max()} has no examination estimate: {self.method} "
                f"covers positions 1..{self.depth}. ⟦Cut the log with "
                f"log.top({self.depth}) or estimate the bias on deeper pages|Estimate "
                f"the bias on pages that go below position {self.depth}, or give a "
                "curve: --bias power-law:1⟧."
            )
        return asked - 1

    def affine(self) -> tuple[FloatArray, FloatArray]:
        """(alpha, beta) with E[click at k] = alpha_k gamma + beta_k.

        alpha_k = theta_k (eps+_k - eps-_k), beta_k = theta_k eps-_k ([vardasbi2020affine]_);
        without trust bias alpha = theta and beta = 0.
        """
        return affine_curves(self.examination, self.eps_plus, self.eps_minus)

    def scaled(self, factor: npt.ArrayLike) -> "PositionBias":
        """The curve with theta times `factor` at each position (K,), its errors along with it."""
        f = np.asarray(factor, dtype=float)
        times = {name: each * f for name in _CURVES if (each := getattr(self, name)) is not None}
        covariance = None if self.covariance is None else self.covariance * np.outer(f, f)
        return replace(self, **times, covariance=covariance)

    def compare(self, other: "PositionBias", *, level: float = 0.95) -> "BiasComparison":
        """Do two curves differ, and where? See `untilt.bias.curve_operations.compare`."""
        from untilt.bias.curve_operations import compare

        return compare(self, other, level=level)

    def fit_power_law(self, *, depth: int | None = None) -> "PositionBias":
        """The nearest power law (1/k)^eta, its `eta` and `eta_std_error`.

        With `depth` it reaches that far: a power law may be continued, an estimate may not. See
        `untilt.bias.curve_operations.fit_power_law`.
        """
        from untilt.bias.curve_operations import fit_power_law

        return fit_power_law(self, depth=depth)

    def smooth(self) -> "PositionBias":
        """The nearest curve that never rises; of a grid, cells drawn towards their neighbours.

        See `smooth` and `smooth_grid` in `untilt.bias.curve_operations`.
        """
        from untilt.bias.curve_operations import smooth, smooth_grid

        return smooth_grid(self) if isinstance(self.layout, Grid) else smooth(self)

    def plot(
        self,
        others: "Mapping[str, PositionBias] | None" = None,
        *,
        name: str | None = None,
        title: str | None = None,
    ) -> "alt.LayerChart":
        """An Altair chart of the curve (by `name`) with its band, beside other curves by name.

        Positions that are not known leave a gap, and those below the last known one are cut.
        Of a grid: a map of its cells, alone. Save it with `chart.save("bias.html")`, or .png, .svg.
        """
        from untilt.charts.curves import curves_chart
        from untilt.charts.grid import grid_chart
        from untilt.charts.theme import finished

        if isinstance(self.layout, Grid):
            return finished(
                grid_chart(self.layout, self.drawn_curve()),
                title=title or "Examination by cell",
                subtitle="relative to the first cell" if self.relative else "probability",
            )

        curves = {**(self.contexts or {name or self.method: self}), **(others or {})}
        depth = max(bias.known_depth for bias in curves.values())
        relative = any(bias.relative for bias in curves.values())
        levels = sorted({bias.level for bias in curves.values() if bias.has_interval})
        without = [
            each for each, bias in curves.items() if bias.estimated and not bias.has_interval
        ]
        notes = [f"band: {level:.0%} interval" for level in levels]
        notes += [f"{NO_INTERVAL}: {each}" for each in without]
        chart = curves_chart(
            {name: bias.drawn_curve().down_to(depth) for name, bias in curves.items()},
            value_title="examination" + (", relative to position 1" if relative else ""),
        )
        return finished(chart, title=title or "Examination by position", subtitle=", ".join(notes))

    def drawn_curve(self) -> "Curve":
        """For a chart: all positions, those that are not known without a value."""
        from untilt.charts.curves import Curve

        known = self._is_shown

        def drawn(values: FloatArray | None) -> FloatArray | None:
            return None if values is None else np.where(known, values, np.nan)

        theta = np.where(known, self.examination, np.nan)
        return Curve(np.arange(1, self.depth + 1), theta, drawn(self.low), drawn(self.high))

    def to_json(self) -> str:
        """This bias as JSON text, exact to the last bit."""
        return codec.json_text(codec.sealed(self, kind=KIND, version=VERSION))

    @classmethod
    def from_json(cls, text: str) -> "PositionBias":
        """The bias that `to_json` wrote."""
        return cls._of(codec.read_json(text, where="this text", again=AGAIN), "this text")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write this bias to a JSON file, whole or not at all."""
        codec.write_json(path, codec.sealed(self, kind=KIND, version=VERSION))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PositionBias":
        """Read a bias that `save` wrote; to edit such a file, delete its line "sha256"."""
        return cls._of(codec.read_file(path, again=AGAIN), os.fspath(path))

    @classmethod
    def _of(cls, record: Any, where: str) -> "PositionBias":
        return codec.unsealed(
            record, cls, kind=KIND, version=VERSION, where=where, again=AGAIN, strict=False
        )

    def table(self, depth: int | None = None, caption: str = "") -> Table:
        """A row for each of positions 1..depth; where not given, down to the last that is known."""
        more = [("eps+", self.eps_plus, ".3f"), ("eps-", self.eps_minus, ".3f")]
        more += [("queries", self.effective_at, ",.1f")]
        known = [(name, values, form) for name, values, form in more if values is not None]
        positions = self.positions(depth or self.known_depth)
        place = self.layout.name if self.layout else str
        rows = tuple(
            (place(k), *self.text(k), *(format(values[k - 1], form) for _, values, form in known))
            for k in positions
        )
        header = ("position", "theta", "interval", *(name for name, *_ in known))
        drawn = [theta for _, theta, *_ in self.drawn_curve().points()]
        return Table(header, rows, caption, (), bars=tuple(drawn[k - 1] for k in positions))

    def view(self, depth: int | None = None) -> list[Section]:
        """The curve, or that of each context, and what it rests on."""
        scale = f"relative to position {self.positions()[0]}" if self.relative else "absolute"
        known = NO_INTERVAL if self.estimated else GIVEN
        interval = f"{self.level:.0%} interval" if self.has_interval else known
        told = f"{scale} ({interval})"
        by = "" if self.method == GIVEN else " by {method:method}"
        title = phrase(f"Examination{by}, {{told}}", method=self.method, told=told)
        curves = self.contexts or {"": self}
        tables = tuple(curve.table(depth, name) for name, curve in curves.items())
        below = range(self.known_depth + 1, self.depth + 1)
        unknown = (phrase("{below:positions} not known", below=below),) if below else ()
        beliefs = (phrase("It assumes that {belief}.", belief=each) for each in self.assumes)
        status = () if str(self.status) == GIVEN else (self.status,)
        said = (*status, *unknown, *beliefs)
        return [Section("examination", title, tables=tables, notes=said)]


def affine_curves(
    examination: FloatArray, eps_plus: FloatArray | None, eps_minus: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """alpha = theta (eps+ - eps-) and beta = theta eps-; theta and 0 without click noise."""
    if eps_plus is None or eps_minus is None:
        return examination, np.zeros_like(examination)
    return examination * (eps_plus - eps_minus), examination * eps_minus


def _checked_examination(examination: npt.ArrayLike) -> FloatArray:
    theta = frozen(examination, np.float64)
    if theta.ndim != 1 or len(theta) == 0:
        raise ShapeError("examination must be a flat array with at least one position.")
    if not np.all(np.isfinite(theta)) or np.any(theta <= 0):
        worst = int(np.argmin(np.where(np.isfinite(theta), theta, -np.inf)))
        raise OptionError(
            f"examination must be above 0 everywhere. Got {theta[worst]} at position "
            f"{worst + 1}. A position that is never examined cannot be corrected: cut the log."
        )
    return theta


def _reads_as_estimate(method: str, assumes: tuple[Fact, ...]) -> bool:
    """Whether a curve without errors says of itself that somebody estimated it.

    Files of older versions do not tell, and neither may an estimator of one's own.
    """
    return method != "given" and bool(assumes) and CURVE_IS_RIGHT not in assumes


def _of_shape(name: str, values: npt.ArrayLike | None, shape: tuple[int, ...]) -> FloatArray | None:
    if values is None:
        return None
    array = frozen(values, np.float64)
    if array.shape != shape:
        raise ShapeError(f"{name} must have shape {shape}. Got {array.shape} instead.")
    return array

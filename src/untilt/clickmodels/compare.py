r"""Click models side by side on sessions that none of them has seen.

Perplexity at position k of N_k impressions, with p the model's click probability:

    2^(-1/N_k sum (c log2 p + (1 - c) log2(1 - p)))

1 is perfect, 2 is a coin ([dupret2008ubm]_, [chuklin2015click]_). The overall figure is the mean
over positions, as the literature has it. With p marginal it says how well pages are predicted
before anybody has clicked; *conditional* perplexity takes p given the clicks above, and its sum of
logs is the likelihood. One impossible click would make all of this infinite, so p is kept within
[floor, 1 - floor]; `ruled_out` says how often that mattered.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray, IntArray, sum_by
from untilt._core.estimator import clone
from untilt._core.portable import Portable
from untilt._core.progress import track
from untilt._core.random import Seed, generator
from untilt._core.statistics import Interval, bootstrap_weights, check_level
from untilt.catalog import find, methods
from untilt.clickmodels.click_model import ClickModel
from untilt.clickmodels.examination import PBM
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice, check_least
from untilt.facts import Fact, note, warning
from untilt.views import Entries, Section, Table, View

if TYPE_CHECKING:
    import altair as alt

    from untilt.charts.curves import Curve

CURVE_IS_RIGHT = note(
    "clickmodels.curve-is-right", "A curve over positions describes how people look at these pages."
)()
AHEAD_BY_CHANCE = note(
    "clickmodels.ahead-by-chance",
    "{model:upper} beats PBM by no more than chance: PBM is enough here.",
)
NOT_INSTALLED = note(
    "clickmodels.not-installed",
    "{model:upper} was left out: it needs JAX (pip install 'untilt[neural]')",
)
AHEAD_BY_LITTLE = note(
    "clickmodels.ahead-by-little",
    "{model:upper} predicts best, but only {share:.1%} better than PBM: PBM is nearly enough here.",
)
AHEAD = warning(
    "clickmodels.ahead",
    "{model:upper} predicts best ({share:.1%} better than PBM): position alone does not explain "
    "the clicks.",
)
RULED_OUT = warning(
    "clickmodels.ruled-out",
    "{model:upper} gives probability 0 to {share:.2%} of the sessions, so its likelihood and "
    "conditional perplexity cannot be compared.",
)
WORSE_THAN_SHOWN = warning(
    "clickmodels.worse-than-shown",
    "{models:uppers} ({worse} of {n_models} models) order documents worse than the shown lists, "
    "by human labels: their relevance does not rank these documents. A trained ranker or more "
    "sessions per query might.",
)
FEW_SESSIONS = warning(
    "clickmodels.few-sessions",
    "{sessions:.1f} sessions per query: these models cannot order documents. They can predict "
    "clicks well from positions alone. Judged lists would compare them with the shown order.",
)
TOO_SLOW = note(
    "clickmodels.too-slow",
    "{model:upper} was left out: it would take many minutes on {n_lists:,} distinct lists. It is "
    "fitted where it is asked for by name",
)
PBM_BEST = note("clickmodels.pbm-best", "PBM predicts held-out clicks best: it is enough here.")()

UNITS = ("auto", "query", "session")
FEWEST_QUERIES = 20  # below, queries are too few to draw from; as `untilt.bias.harvesting.pairs`


@dataclass(frozen=True)
class Measured:
    """A figure with its bootstrap interval."""

    value: float
    interval: Interval

    def __repr__(self) -> str:
        return f"{self.value:.4f} {self.interval:.4f}"


@dataclass(frozen=True, eq=False)
class ByPosition(Portable):
    """A figure at each position with its bootstrap interval; NaN where nothing was shown."""

    position: IntArray
    value: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Losses:
    """Bits per row of one model, sums by unit and position: (units, K) each."""

    marginal: FloatArray
    conditional: FloatArray
    ruled_out: float


@dataclass(frozen=True, eq=False)
class Units:
    """What is drawn anew in the bootstrap: queries, or single sessions of counted lists.

    of_list : (lists,) unit of each list; per_session : whether a unit is drawn `sessions` times
    sessions : (units,); shown : (units, K) impressions
    """

    name: str
    of_list: IntArray
    sessions: FloatArray
    shown: FloatArray

    @property
    def per_session(self) -> bool:
        """Whether single sessions are drawn."""
        return self.name == "session"


def units_of(log: ClickLog, by: str) -> Units:
    """Queries where there are at least twenty, else sessions, unless `by` says which."""
    check_choice("by", by, UNITS)
    queries, of_list = np.unique(log.query, return_inverse=True)
    if by == "session" or (by == "auto" and len(queries) < FEWEST_QUERIES):
        name, of_list, n = "session", np.arange(log.n_lists), log.n_lists
    else:
        name, n = "query", len(queries)
        if n < 2:
            raise OptionError(
                'intervals ⟦by="query"⟧ need at least two queries. Use ⟦by="session"⟧.'
            )
    sessions = sum_by(of_list, log.sessions, n)
    shown = sums_by_unit(log, of_list, n, np.ones(len(log.position)))
    return Units(name, of_list, sessions, shown)


def sums_by_unit(log: ClickLog, of_list: IntArray, n: int, value: FloatArray) -> FloatArray:
    """(units, K) sums of a number per row over sessions."""
    unit = np.repeat(of_list, ragged.lengths(log.indptr))
    cell = unit * log.depth + (log.position - 1)
    flat = sum_by(cell, value * log.row_count, n * log.depth)
    return flat.reshape(n, log.depth)


def prediction_losses(model: ClickModel, log: ClickLog, units: Units, floor: float) -> Losses:
    """The bits that each prediction of a fitted model costs."""
    clicked = log.label > 0
    marginal, _ = _bits(model.click_probability(log), clicked, floor)
    conditional, impossible = _bits(model.conditional_probability(log), clicked, floor)
    n = len(units.sessions)
    return Losses(
        marginal=sums_by_unit(log, units.of_list, n, marginal),
        conditional=sums_by_unit(log, units.of_list, n, conditional),
        ruled_out=float(np.dot(impossible, log.row_count) / log.row_count.sum()),
    )


def _bits(p: FloatArray, clicked: BoolArray, floor: float) -> tuple[FloatArray, BoolArray]:
    """-log2 of the probability of what happened, and whether the floor had to be used for it."""
    happened = np.where(clicked, p, 1 - p)
    return -np.log2(np.clip(happened, floor, 1 - floor)), happened < floor


def draws(units: Units, columns: FloatArray, n_draws: int, seed: Seed) -> FloatArray:
    """(1 + n_draws, columns) sums of the columns (units, columns): as they are, then redrawn.

    Units of a bootstrap sample are drawn with replacement; a counted list is drawn session by
    session.
    """
    rng = generator(seed)
    made = np.empty((1 + n_draws, columns.shape[1]))
    made[0] = columns.sum(axis=0)
    n = int(units.sessions.sum()) if units.per_session else len(units.sessions)
    chance = units.sessions / units.sessions.sum() if units.per_session else np.full(n, 1 / n)
    weight_of_one = 1 / units.sessions if units.per_session else np.ones(n)
    for draw in range(1, n_draws + 1):
        made[draw] = (rng.multinomial(n, chance) * weight_of_one) @ columns
    return made


def _quantiles(values: FloatArray, level: float) -> FloatArray:
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)


def check_options(n_draws: int, level: float, floor: float) -> None:
    """Raise unless intervals can be made."""
    check_level(level)
    check_least("n_draws", n_draws, 20, "; 300 is usual")
    if not 0 < floor < 0.5:
        raise OptionError(f"floor must lie between 0 and 0.5. Got {floor} instead.")


# Do a model's relevance and human labels order documents alike?


def order_figures(
    model: ClickModel,
    judged: JudgedLists | None,
    shown_order: FloatArray,
    n_draws: int,
    level: float,
    seed: Seed,
) -> tuple[Measured | None, Measured | None]:
    """Spearman's rank correlation of relevance and label within each query, mean over queries.

    And that less the correlation of the shown order, paired by query. Over documents that were
    shown and judged. Queries whose labels or relevances are all the same have no correlation and
    are left out; None where none is left, or without labels.

    Parameters
    ----------
    shown_order : (documents of the model,) rises with how high a document was shown
    """
    if judged is None:
        return None, None
    own, shown = (_correlations(model, judged, each) for each in (model.relevance_, shown_order))
    found = [_mean_over_queries(each, n_draws, level, seed) for each in (own, own - shown)]
    return found[0], found[1]


def labels_of(model: ClickModel, judged: JudgedLists) -> FloatArray:
    """(documents of the model,) labels by (query id, document id), NaN where not judged."""
    query = judged.query_id[ragged.list_of_row(judged.indptr)].tolist()
    label = dict(zip(zip(query, judged.doc_id.tolist(), strict=True), judged.labels, strict=True))
    mine = model.documents_
    return np.fromiter((label.get(pair, np.nan) for pair in mine.pairs()), float, len(mine))


def _correlations(model: ClickModel, judged: JudgedLists, values: FloatArray) -> FloatArray:
    """(queries,) rank correlation of values and labels over shown documents; NaN without one."""
    from scipy.stats import rankdata  # half a second to import

    labels = labels_of(model, judged)
    known = np.flatnonzero(~np.isnan(labels) & model.seen_)
    query, correlations = model.documents_.doc_query[known], []
    order = known[np.argsort(query, kind="stable")]
    for rows in np.split(order, np.flatnonzero(np.diff(np.sort(query))) + 1):
        x, y = values[rows], labels[rows]
        varies = len(np.unique(x)) > 1 and len(np.unique(y)) > 1
        correlations.append(np.corrcoef(rankdata(x), rankdata(y))[0, 1] if varies else np.nan)
    return np.array(correlations)


def _mean_over_queries(each: FloatArray, n_draws: int, level: float, seed: Seed) -> Measured | None:
    """The mean of those that are known, with its bootstrap interval; None without queries."""
    each = each[~np.isnan(each)]
    if len(each) == 0:
        return None
    weight = bootstrap_weights(len(each), n_draws, seed) / len(each)
    low, high = _quantiles(weight @ each, level)
    return Measured(float(each.mean()), Interval(float(low), float(high), level))


REFERENCE = PBM.name
# Of a query: with fewer most documents have no click or one, and their order is that of chance.
FEWEST_SESSIONS = 5
Models = str | Sequence[str | ClickModel] | Mapping[str, ClickModel]


@dataclass(frozen=True, eq=False, repr=False)
class ModelQuality:
    """One model on held-out sessions.

    log_likelihood : per session, in nats, of clicks given those above; higher is better
    perplexity, conditional_perplexity : means over positions; lower is better
    perplexity_at, conditional_perplexity_at : by position
    gain : log_likelihood minus that of the reference on the same draws; None for the reference
    conditional_difference_at : conditional perplexity minus that of the reference, likewise
    ruled_out : share of impressions whose outcome the model took for impossible
    relevance_correlation : with human labels, mean within queries; None without labels
    order_gain : that correlation less the one of the shown order, paired by query
    """

    name: str
    model: ClickModel
    log_likelihood: Measured
    perplexity: Measured
    conditional_perplexity: Measured
    perplexity_at: ByPosition
    conditional_perplexity_at: ByPosition
    gain: Measured | None
    conditional_difference_at: ByPosition | None
    ruled_out: float
    relevance_correlation: Measured | None
    seconds: float
    order_gain: Measured | None = None

    def __repr__(self) -> str:
        return (
            f"ModelQuality({self.name}: log-likelihood {self.log_likelihood!r}, perplexity "
            f"{self.perplexity!r}, conditional {self.conditional_perplexity!r})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison(Entries[ModelQuality], View):
    """Models on the same held-out sessions; look one up by name: comparison["ubm"].

    `left_out` says of each model that was not fitted why; `sessions_per_query` is of the training
    pages.
    """

    entries: tuple[ModelQuality, ...]
    reference: str
    unit: str
    n_units: int
    n_sessions: int
    level: float
    left_out: Mapping[str, Fact] = field(default_factory=dict)
    sessions_per_query: float = float("inf")

    def __getitem__(self, name: str) -> ModelQuality:
        return self._named(name, "model")

    @property
    def best(self) -> ModelQuality:
        """The highest held-out likelihood."""
        return self.ranked[0]

    @property
    def ranked(self) -> list[ModelQuality]:
        """Best model first."""
        return sorted(self.entries, key=lambda entry: -entry.log_likelihood.value)

    @property
    def ruled_out(self) -> tuple[Fact, ...]:
        """The models that took something for impossible that happened."""
        return tuple(
            RULED_OUT(model=entry.name, share=entry.ruled_out)
            for entry in self.entries
            if entry.ruled_out > 0
        )

    @property
    def order_notes(self) -> tuple[Fact, ...]:
        """Models whose relevance orders documents worse than the shown lists, or cannot know.

        With human labels by comparison; without, where queries have too few sessions.
        """
        gains = {entry.name: entry.order_gain for entry in self.entries if entry.order_gain}
        worse = [name for name, gain in gains.items() if gain.interval.high < 0]
        if worse:
            return (WORSE_THAN_SHOWN(models=tuple(worse), worse=len(worse), n_models=len(gains)),)
        if not gains and self.sessions_per_query < FEWEST_SESSIONS:
            return (FEW_SESSIONS(sessions=self.sessions_per_query),)
        return ()

    def view(self) -> list[Section]:
        """The models, best first, and what that means for a curve over positions."""
        judged = any(entry.relevance_correlation is not None for entry in self.entries)
        header = ["model", "log-likelihood", "perplexity", "conditional", f"minus {self.reference}"]
        header += ["relevance", "minus shown order"] if judged else []
        table = Table(tuple(header), tuple(_row(entry, judged=judged) for entry in self.ranked))
        title = (
            f"{self.n_sessions:,} held-out sessions, best first ({self.level:.0%} intervals drawn "
            f"by {self.unit}, {self.n_units:,})"
        )
        advice = advise(self)
        told = () if advice is None else advice.sentences
        notes = (*told, *self.order_notes, *self.ruled_out, *self.left_out.values())
        return [Section("click-models", title, tables=(table,), notes=notes)]


def _row(entry: ModelQuality, *, judged: bool) -> tuple[str, ...]:
    """Values, each with half the width of its interval: whole ones do not fit a terminal."""
    values = (entry.log_likelihood, entry.perplexity, entry.conditional_perplexity)
    more = (_short(entry.relevance_correlation), _short(entry.order_gain, "+")) if judged else ()
    return entry.name, *map(_short, values), _short(entry.gain, "+"), *more


def _short(figure: Measured | None, sign: str = "") -> str:
    if figure is None:
        return ""
    half = (figure.interval.high - figure.interval.low) / 2
    return f"{figure.value:{sign}.3f} ± {half:.3f}"


def compare_click_models(
    train: ClickLog,
    test: ClickLog,
    *,
    models: Models | None = None,
    judged: JudgedLists | None = None,
    reference: str = REFERENCE,
    by: str = "auto",
    n_draws: int = 300,
    level: float = 0.95,
    floor: float = 1e-6,
    seed: Seed = 0,
) -> ModelComparison:
    """Fit models on one log and measure them on another, with bootstrap intervals.

    Split sessions, not queries: a model of (query, document) knows nothing about new queries. By
    time is most honest. All models are measured on the same draws, so differences are paired.

    Parameters
    ----------
    models : names such as "ubm", models, or a mapping of names to models; all where not given
        (but those whose packages are not installed, and those that take minutes on a log of this
        size: see `left_out` of the result)
    judged : human labels, for the correlation with `relevance_`, and whether the models order
        documents better than the shown lists do
    reference : the model that the others are compared with, where it is among them
    by : "query" or "session": what the bootstrap draws. "auto" takes queries if there are 20
    n_draws, level : of the bootstrap
    floor : probabilities are kept off 0 and 1 by so much, see `untilt.clickmodels.compare`
    """
    check_options(n_draws, level, floor)
    train, test = train.collapse(), test.collapse()
    if test.depth > train.depth:
        test = test.top(train.depth)
    left_out = _left_out(train.n_lists + test.n_lists) if models is None else {}
    units = units_of(test, by)
    fitted: dict[str, ClickModel] = {}
    losses, seconds = {}, {}
    named = _named(models, left_out)
    for name, model in track(named.items(), "fitting click models", total=len(named)):
        start = time.perf_counter()
        fitted[name] = clone(model).fit(train)
        seconds[name] = time.perf_counter() - start
        losses[name] = prediction_losses(fitted[name], test, units, floor)
    shown_order = -_mean_position(train.without_versions())
    drawn = _Draws.of(units, losses, n_draws, seed, level)
    entries = tuple(
        ModelQuality(
            name=name,
            model=model,
            log_likelihood=drawn.measured(drawn.log_likelihoods[name]),
            perplexity=drawn.measured(np.nanmean(drawn.marginal[name], axis=1)),
            conditional_perplexity=drawn.measured(np.nanmean(drawn.conditional[name], axis=1)),
            perplexity_at=drawn.by_position(drawn.marginal[name]),
            conditional_perplexity_at=drawn.by_position(drawn.conditional[name]),
            gain=drawn.gain(name, reference),
            conditional_difference_at=drawn.difference_at(name, reference),
            ruled_out=losses[name].ruled_out,
            relevance_correlation=correlation,
            seconds=seconds[name],
            order_gain=gain,
        )
        for name, model in fitted.items()
        for correlation, gain in (order_figures(model, judged, shown_order, n_draws, level, seed),)
    )
    n_units = test.n_sessions if units.per_session else len(units.sessions)
    per_query = train.n_sessions / max(len(np.unique(train.query)), 1)
    return ModelComparison(
        entries, reference, units.name, n_units, test.n_sessions, level, left_out, per_query
    )


def _mean_position(log: ClickLog) -> FloatArray:
    """(documents,) over the impressions of each; infinite where it was never shown."""
    total = sum_by(log.document, log.position * log.row_count, log.n_documents)
    shown = sum_by(log.document, log.row_count, log.n_documents)
    return np.divide(total, shown, out=np.full(log.n_documents, np.inf), where=shown > 0)


@dataclass(frozen=True, eq=False)
class _Draws:
    """Figures of every draw of the bootstrap; the first is the log itself.

    log_likelihoods : by model, (draws,) per session, in nats
    marginal, conditional : by model, (draws, K) perplexities
    """

    log_likelihoods: Mapping[str, FloatArray]
    marginal: Mapping[str, FloatArray]
    conditional: Mapping[str, FloatArray]
    level: float

    @classmethod
    def of(
        cls, units: Units, losses: Mapping[str, Losses], n_draws: int, seed: Seed, level: float
    ) -> "_Draws":
        parts = [units.sessions[:, None], units.shown]
        for each in losses.values():
            parts += [each.marginal, each.conditional]
        sums = draws(units, np.concatenate(parts, axis=1), n_draws, seed)
        ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        sessions, shown, *bits = np.split(sums, ends, axis=1)
        marginal = dict(zip(losses, bits[::2], strict=True))
        conditional = dict(zip(losses, bits[1::2], strict=True))
        likelihoods = {
            name: -np.log(2) * each.sum(axis=1) / sessions[:, 0]
            for name, each in conditional.items()
        }
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw may show nothing
            of_marginal, of_conditional = (
                {name: np.exp2(each / shown) for name, each in bits.items()}
                for bits in (marginal, conditional)
            )
        return cls(likelihoods, of_marginal, of_conditional, level)

    def measured(self, values: FloatArray) -> Measured:
        """The first value, with the quantiles of the others."""
        low, high = _quantiles(values[1:], self.level)
        return Measured(float(values[0]), Interval(float(low), float(high), self.level))

    def by_position(self, values: FloatArray) -> ByPosition:
        """The first row, with the quantiles of the others."""
        low, high = _quantiles(values[1:], self.level)
        return ByPosition(np.arange(1, values.shape[1] + 1), values[0], low, high)

    def gain(self, name: str, reference: str) -> Measured | None:
        """Log-likelihood over that of the reference, both on the same draws."""
        if reference not in self.log_likelihoods or name == reference:
            return None
        return self.measured(self.log_likelihoods[name] - self.log_likelihoods[reference])

    def difference_at(self, name: str, reference: str) -> ByPosition | None:
        """Conditional perplexity less that of the reference, likewise."""
        if reference not in self.conditional or name == reference:
            return None
        return self.by_position(self.conditional[name] - self.conditional[reference])


def _named(models: Models | None, left_out: Mapping[str, Fact]) -> dict[str, ClickModel]:
    if models is None:
        usual = [record for record in methods("click model") if record.name not in left_out]
        return {record.name: record.make() for record in usual}
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    named: dict[str, ClickModel] = {}
    for given in [models] if isinstance(models, str) else models:
        if isinstance(given, str):
            model: ClickModel = find("click model", given, what="models").make()
        elif isinstance(given, ClickModel):
            model = given
        else:
            raise OptionError(
                f"models must be names or click models such as ⟦UBM()⟧. Got {given!r} instead."
            )
        if model.name in named:
            raise OptionError(
                f"models has {model.name!r} twice. Name them: ⟦models={{'first': ..., ...}}⟧."
            )
        named[model.name] = model
    return named


def _left_out(n_lists: int) -> dict[str, Fact]:
    """The models that cannot be fitted here, or not in reasonable time, and why."""
    left_out = {}
    for record in methods("click model"):
        model, name = record.load(), record.name
        if not all(_is_installed(package) for package in model.requires):
            left_out[name] = NOT_INSTALLED(model=name)
        elif n_lists > model.quick_up_to:
            left_out[name] = TOO_SLOW(model=name, n_lists=n_lists)
    return left_out


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a module that was put aside: sys.modules[package] is None
        return False


# Of PBM's perplexity above 1. Where readers are position-based, the best of eight models took at
# most 0.1% of it by chance (40 logs of 2,000 to 50,000 sessions); where they stop or browse on,
# 1% to 10%: docs/click-models.md, "Is PBM enough?", and clickmodels/test_advice_threshold.py.
SMALL_GAIN = 0.01

# What the best model says about a curve over positions, by the model's family.
_MEANING = {
    "browsing": warning(
        "clickmodels.last-click-matters",
        "Whether people look at a position depends on where they clicked last. One curve over "
        "positions is the average⟦ (UBM().fit(log).bias_)|⟧. It serves rankers as long as people "
        "click about as often as now.",
    )(),
    "chain": warning(
        "clickmodels.readers-stop",
        "A model in which people read from the top and stop predicts clicks best. If they do, "
        "the documents above decide who reads further: a curve over positions is right only on "
        "average over lists like those logged, and no longer after the ranking changes.",
    )(),
    "network": warning(
        "clickmodels.network-is-better",
        "What people look at depends on the clicks and documents above, in ways that a network "
        "finds and UBM and DBN do not. A curve over positions is the average⟦ "
        "(UBM().fit(log).bias_)|⟧. It serves rankers as long as people click about as often as "
        "now.",
    )(),
    "rates": warning(
        "clickmodels.rates-are-best",
        "A plain click rate predicts best: the log hardly shows the same document at different "
        "positions, so bias and relevance cannot be separated. Swaps of positions would separate "
        "them.",
    )(),
}


@dataclass(frozen=True)
class ClickModelAdvice:
    """Is the position-based model enough for this log?

    best : name of the best model; enough : whether PBM is as good or nearly so
    gain : its log-likelihood per session over that of PBM
    share : of PBM's conditional perplexity above 1, how much the best model takes away
    sentences : the answer, and what it means for a curve over positions
    """

    best: str
    enough: bool
    gain: Measured | None
    share: float
    sentences: tuple[Fact, Fact]

    def __repr__(self) -> str:
        return " ".join(self.sentences)


def advise(comparison: ModelComparison) -> ClickModelAdvice | None:
    """The advice; None where the position-based model was not compared."""
    if REFERENCE not in [entry.name for entry in comparison]:
        return None
    best, pbm = comparison.best, comparison[REFERENCE]
    curve = CURVE_IS_RIGHT
    if best.name == REFERENCE:
        return ClickModelAdvice(best.name, True, None, 0.0, (PBM_BEST, curve))
    ours, theirs = pbm.conditional_perplexity.value, best.conditional_perplexity.value
    share = (ours - theirs) / (ours - 1)
    gain = best.gain if comparison.reference == REFERENCE else None
    if gain is not None and gain.interval.low <= 0:
        answer = AHEAD_BY_CHANCE(model=best.name)
    elif share < SMALL_GAIN:
        answer = AHEAD_BY_LITTLE(model=best.name, share=share)
    else:
        answer = AHEAD(model=best.name, share=share)
        meaning = _MEANING.get(best.model.family, _MEANING["browsing"])
        return ClickModelAdvice(best.name, False, gain, share, (answer, meaning))
    return ClickModelAdvice(best.name, True, gain, share, (answer, curve))


MOST_BANDS = 5  # bands of more curves than this hide each other


def perplexity_chart(comparison: ModelComparison) -> "alt.LayerChart | alt.VConcatChart":
    """Conditional perplexity at each position, and below it the gain of the best models.

    The upper chart has the best models as they are, above 1: 0 is perfect, 1 is a coin. Their
    intervals would hide each other, because some queries are harder than others for every model.
    The lower chart has differences to the reference on the same sessions, with bands. Models that
    ruled out an observed click are left out: their perplexity says how low the floor is.
    """
    import altair as alt

    from untilt.charts.curves import Curve, curves_chart
    from untilt.charts.theme import MOST_SERIES, finished, panel_title

    drawn = [entry for entry in comparison.ranked if entry.ruled_out == 0]
    if not drawn:
        raise OptionError(
            "every model ruled out something that happened, so there is no perplexity to draw. "
            "Compare more models, or with prior_strength above 0."
        )
    upper = curves_chart(
        {
            entry.name: Curve(at.position, at.value - 1)
            for entry in drawn[:MOST_SERIES]
            for at in (entry.conditional_perplexity_at,)
        },
        value_title="conditional perplexity - 1",
    )
    title = "Perplexity by position, given the clicks above"
    subtitle = f"{comparison.n_sessions:,} held-out sessions; 0 is perfect, 1 is a coin"
    if all(entry.conditional_difference_at is None for entry in drawn):
        return finished(upper, title=title, subtitle=subtitle)
    # The first of the same models, the reference with them: so colours mean the same in both.
    lower = curves_chart(
        {entry.name: _difference(entry) for entry in drawn[:MOST_BANDS]},
        value_title=f"minus that of {comparison.reference.upper()}",
    )
    band = f"below 0 is better; band: {comparison.level:.0%} interval by {comparison.unit}"
    both = alt.vconcat(upper, lower.properties(title=panel_title(band)), spacing=40)
    both = both.resolve_scale(color="independent", shape="independent", strokeDash="independent")
    return finished(both, title=title, subtitle=subtitle)


def _difference(entry: ModelQuality) -> "Curve":
    """To the reference, which is its own reference: 0 everywhere."""
    from untilt.charts.curves import Curve

    at = entry.conditional_difference_at
    if at is None:
        position = entry.conditional_perplexity_at.position
        return Curve(position, np.zeros(len(position)))
    return Curve(at.position, at.value, at.low, at.high)

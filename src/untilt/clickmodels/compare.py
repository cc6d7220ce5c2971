"""Click models side by side on sessions that none of them has seen."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.base import clone

from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt._core.random import Seed
from untilt.clickmodels.base import ClickModel
from untilt.clickmodels.quality import (
    ByPosition,
    Losses,
    Measured,
    Units,
    by_position,
    check_options,
    draws,
    losses,
    mean_perplexity,
    measured,
    perplexities,
    relevance_correlation,
    units_of,
)
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice, did_you_mean

REFERENCE = "pbm"


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

    def __repr__(self) -> str:
        return (
            f"ModelQuality({self.name}: log-likelihood {self.log_likelihood!r}, perplexity "
            f"{self.perplexity!r}, conditional {self.conditional_perplexity!r})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ModelComparison:
    """Models on the same held-out sessions; look one up by name: comparison["ubm"].

    `left_out` says of each model that was not fitted why.
    """

    entries: tuple[ModelQuality, ...]
    reference: str
    unit: str
    n_units: int
    n_sessions: int
    level: float
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> ModelQuality:
        for entry in self.entries:
            if entry.name == name:
                return entry
        known = [entry.name for entry in self.entries]
        raise OptionError(
            f"there is no model {name!r} here.{did_you_mean(name, known)} "
            f"There are: {', '.join(known)}."
        )

    def __iter__(self) -> Iterator[ModelQuality]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def best(self) -> ModelQuality:
        """The highest held-out likelihood."""
        return max(self.entries, key=lambda entry: entry.log_likelihood.value)

    def rows(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows of the table, best model first."""
        judged = any(entry.relevance_correlation is not None for entry in self.entries)
        header = ("model", "log-likelihood", "perplexity", "conditional", f"minus {self.reference}")
        ranked = sorted(self.entries, key=lambda entry: -entry.log_likelihood.value)
        rows = [_row(entry, judged=judged) for entry in ranked]
        return (*header, "relevance") if judged else header, rows

    def __repr__(self) -> str:
        header, rows = self.rows()
        widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
        lines = [
            "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
            for row in (header, *rows)
        ]
        return (
            f"ModelComparison on {self.n_sessions:,} held-out sessions, {self.level:.0%} intervals "
            f"drawn by {self.unit} ({self.n_units:,})\n" + "\n".join(lines)
        )


def compare_click_models(
    train: ClickLog,
    test: ClickLog,
    *,
    models: Sequence[Any] | Mapping[str, Any] | None = None,
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
    judged : human labels, for the correlation with `relevance_`
    reference : the model that the others are compared with, where it is among them
    by : "query" or "session": what the bootstrap draws. "auto" takes queries if there are 20
    n_draws, level : of the bootstrap
    floor : probabilities are kept off 0 and 1 by so much, see `untilt.clickmodels.quality`
    """
    check_options(n_draws, level, floor)
    train, test = train.collapse(), _at_most(test.collapse(), train.depth)
    left_out = _left_out(train.n_lists + test.n_lists) if models is None else {}
    named = _named(models, left_out)
    units = units_of(test, by)
    fitted, found, seconds = {}, {}, {}
    for name, model in track(named.items(), "fitting click models", total=len(named)):
        start = time.perf_counter()
        fitted[name] = clone(model).fit(train)
        seconds[name] = time.perf_counter() - start
        found[name] = losses(fitted[name], test, units, floor)
    drawn = _Drawn.of(units, found, n_draws, seed)
    entries = tuple(
        ModelQuality(
            name=name,
            model=model,
            **drawn.figures(name, level),
            gain=drawn.gain(name, reference, level),
            conditional_difference_at=drawn.difference_at(name, reference, level),
            ruled_out=found[name].ruled_out,
            relevance_correlation=relevance_correlation(model, judged, n_draws, level, seed),
            seconds=seconds[name],
        )
        for name, model in fitted.items()
    )
    n_units = test.n_sessions if units.per_session else len(units.sessions)
    return ModelComparison(
        entries, reference, units.name, n_units, test.n_sessions, level, left_out
    )


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Sums of every draw: sessions (draws,), shown (draws, K), bits by model (draws, 2 K)."""

    sessions: FloatArray
    shown: FloatArray
    bits: Mapping[str, FloatArray]

    @classmethod
    def of(cls, units: Units, found: Mapping[str, Losses], n_draws: int, seed: Seed) -> "_Drawn":
        depth = units.shown.shape[1]
        parts = [units.sessions[:, None], units.shown]
        for each in found.values():
            parts += [each.marginal, each.conditional]
        sums = draws(units, np.concatenate(parts, axis=1), n_draws, seed)
        start = 1 + depth
        bits = {
            name: sums[:, start + 2 * depth * i : start + 2 * depth * (i + 1)]
            for i, name in enumerate(found)
        }
        return cls(sums[:, 0], sums[:, 1:start], bits)

    def log_likelihood(self, name: str) -> FloatArray:
        """(draws,) per session, in nats."""
        conditional = self.bits[name][:, self.shown.shape[1] :]
        return -np.log(2) * conditional.sum(axis=1) / self.sessions

    def conditional(self, name: str) -> FloatArray:
        """(draws, K) conditional perplexity."""
        return perplexities(self.bits[name][:, self.shown.shape[1] :], self.shown)

    def figures(self, name: str, level: float) -> dict[str, Any]:
        marginal = perplexities(self.bits[name][:, : self.shown.shape[1]], self.shown)
        conditional = self.conditional(name)
        return {
            "log_likelihood": measured(self.log_likelihood(name), level),
            "perplexity": measured(mean_perplexity(marginal), level),
            "conditional_perplexity": measured(mean_perplexity(conditional), level),
            "perplexity_at": by_position(marginal, level),
            "conditional_perplexity_at": by_position(conditional, level),
        }

    def gain(self, name: str, reference: str, level: float) -> Measured | None:
        if reference not in self.bits or name == reference:
            return None
        return measured(self.log_likelihood(name) - self.log_likelihood(reference), level)

    def difference_at(self, name: str, reference: str, level: float) -> ByPosition | None:
        if reference not in self.bits or name == reference:
            return None
        return by_position(self.conditional(name) - self.conditional(reference), level)


def _at_most(test: ClickLog, depth: int) -> ClickLog:
    """Positions that the models know."""
    return test if test.depth <= depth else test.top(depth)


def _named(
    models: Sequence[Any] | Mapping[str, Any] | None, left_out: Mapping[str, str]
) -> dict[str, ClickModel]:
    from untilt.clickmodels import ALL_CLICK_MODELS

    known = {model.name: model for model in ALL_CLICK_MODELS}
    if models is None:
        return {name: model() for name, model in known.items() if name not in left_out}
    if isinstance(models, Mapping):
        return {str(name): model for name, model in models.items()}
    named: dict[str, ClickModel] = {}
    for given in [models] if isinstance(models, str) else models:
        model = _model(given, known)
        if model.name in named:
            raise OptionError(
                f"models has {model.name!r} twice. Name them: models={{'first': ..., ...}}."
            )
        named[model.name] = model
    return named


def _left_out(n_lists: int) -> dict[str, str]:
    """The models that cannot be fitted here, or not in reasonable time, and why."""
    from untilt.clickmodels import ALL_CLICK_MODELS

    found = {}
    for model in ALL_CLICK_MODELS:
        if not all(_is_installed(package) for package in model.requires):
            found[model.name] = "it needs JAX. Install it: pip install 'untilt[neural]'"
        elif n_lists > model.quick_up_to:
            found[model.name] = (
                f"it would take many minutes on {n_lists:,} distinct lists. Ask for it by name to "
                "fit it all the same"
            )
    return found


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # a module that was put aside: sys.modules[package] is None
        return False


def _model(given: Any, known: Mapping[str, type[ClickModel]]) -> ClickModel:
    if isinstance(given, str):
        check_choice("models", given, tuple(known))
        return known[given]()
    if not isinstance(given, ClickModel):
        raise OptionError(
            f"models must be names or click models such as UBM(). Got {given!r} instead."
        )
    return given


def _row(entry: ModelQuality, *, judged: bool) -> tuple[str, ...]:
    figures = [
        entry.name,
        _text(entry.log_likelihood),
        _text(entry.perplexity),
        _text(entry.conditional_perplexity),
        "" if entry.gain is None else _text(entry.gain, sign="+"),
    ]
    if judged:
        found = entry.relevance_correlation
        figures.append("" if found is None else _text(found))
    return tuple(figures)


def _text(figure: Measured, *, sign: str = "") -> str:
    interval = figure.interval
    return f"{figure.value:{sign}.4f} [{interval.low:{sign}.4f}, {interval.high:{sign}.4f}]"


# What the best click model means for the choice of a bias model.

# Of PBM's perplexity above 1. Where readers are position-based, the best of eight models took at
# most 0.1% of it by chance (40 logs of 2,000 to 50,000 sessions); where they stop or browse on,
# 1% to 10%: docs/click-models.md, "Is PBM enough?", and clickmodels/test_advice_threshold.py.
SMALL_GAIN = 0.01

_MEANING = {
    "browsing": (
        "Whether people look at a position depends on where they clicked last. One curve over "
        "positions is the average over that: UBM().fit(log).bias_ gives it. It serves rankers "
        "as long as people click about as often as now."
    ),
    "chain": (
        "People read from the top and stop, and what stands above decides who gets further. A "
        "curve over positions is right only on average over lists like those logged: measure "
        "it again after the ranking has changed, rather by swaps than from this log, and try the "
        'ranker on simulate(protocol="cascade") before relying on it.'
    ),
    "network": (
        "What people look at depends on the clicks and documents above in ways that a network "
        "finds and UBM and DBN do not. A curve over positions is the average over that: "
        "UBM().fit(log).bias_ gives one. It serves rankers as long as people click about as often "
        "as now."
    ),
    "position": "A curve over positions describes how people look at these pages.",
    "rates": (
        "A plain click rate predicts best: the log hardly shows the same document at different "
        "positions, so bias and relevance cannot be told apart. `untilt audit` says which swaps "
        "would help."
    ),
}


@dataclass(frozen=True)
class Advice:
    """Is the position-based model enough for this log?

    best : name of the best model; enough : whether PBM is as good or nearly so
    gain : its log-likelihood per session over that of PBM
    share : of PBM's conditional perplexity above 1, how much the best model takes away
    """

    best: str
    enough: bool
    gain: Measured | None
    share: float
    sentences: tuple[str, ...]

    def __repr__(self) -> str:
        return " ".join(self.sentences)


def advise(comparison: ModelComparison) -> Advice | None:
    """The advice; None where the position-based model was not compared."""
    if REFERENCE not in [entry.name for entry in comparison]:
        return None
    best, pbm = comparison.best, comparison[REFERENCE]
    family = best.model.family
    if best.name == REFERENCE:
        first = "PBM predicts held-out clicks best: it is enough here."
        return Advice(best.name, True, None, 0.0, (first, _MEANING["position"]))
    ours, theirs = pbm.conditional_perplexity.value, best.conditional_perplexity.value
    share = (ours - theirs) / (ours - 1)
    gain = best.gain if comparison.reference == REFERENCE else None
    by_chance = gain is not None and gain.interval.low <= 0
    enough = by_chance or share < SMALL_GAIN
    return Advice(best.name, enough, gain, share, _sentences(best.name, family, by_chance, share))


def _sentences(name: str, family: str, by_chance: bool, share: float) -> tuple[str, ...]:
    if by_chance:
        first = f"{name.upper()} is ahead of PBM by no more than chance allows: PBM is enough here."
        return first, _MEANING["position"]
    takes = f"takes away {share:.1%} of PBM's conditional perplexity above 1"
    if share < SMALL_GAIN:
        first = f"{name.upper()} predicts best but {takes}: PBM is nearly enough here."
        return first, _MEANING["position"]
    first = f"{name.upper()} predicts best and {takes}: PBM is not the whole truth here."
    return first, _MEANING.get(family, _MEANING["browsing"])

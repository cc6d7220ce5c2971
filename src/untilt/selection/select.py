"""Choosing rankers and their parameters without labels."""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.estimator import clone
from untilt._core.statistics import MeanEstimate, weighted_mean
from untilt.bias.compare_curves import CurveComparison, compare_curves
from untilt.bias.experiments.assignment import Baseline, baseline_lists
from untilt.bias.given import BiasLike, as_examination
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.seen import overlap_with, seen_in, without_queries
from untilt.errors import OptionError, UntiltError, check_choice
from untilt.evaluation.estimate import estimate
from untilt.evaluation.estimate_view import count_text
from untilt.evaluation.judged import overlap_facts
from untilt.evaluation.pool import Among, Evaluator, bias_for, parse_evaluator
from untilt.evaluation.results import Estimates, SystemComparison
from untilt.evaluation.slots import MetricLike, as_rank_metric
from untilt.facts import Fact, note, serious, warning
from untilt.rankers.base import load
from untilt.rankers.validation import held_out_likelihood
from untilt.selection.fitting import Candidate, CandidateStore, Fitted, fit_all
from untilt.views import Section, Table, View

CURVE_CHOSEN_IN_NOISE = note(
    "selection.curve-chosen",
    "judged by the curve {curve}, which fits the held-out clicks best; the others are within noise",
)

CURVE_CHOSEN = note(
    "selection.curve-chosen",
    "judged by the curve {curve}, which fits the held-out clicks best; clearly worse: {worse:all}",
)

CURVES_UNTOLD = warning(
    "selection.curves-untold",
    "judged by the curve {curve}, the first one given: {n_clicks:,.0f} held-out clicks on "
    "documents shown at several positions are too few to choose between curves",
)
CURVE_FITS_WORSE = serious(
    "selection.curve-fits-worse",
    "the curve that candidates are judged by fits the held-out clicks worse than that of "
    "{candidate}, by {gap:.4f} +- {std_error:.4f} log-likelihood per click; power {power:.2f} of "
    "it would fit best",
)

Candidates = Mapping[str, Candidate] | Iterable[Candidate]
JUDGES = ("value", "likelihood")
LONGEST = 40  # characters of a value in a candidate's name
JUDGE = "judge"  # the curve that candidates are judged by, beside theirs


def parameter_grid(estimator: Candidate, /, **values: Sequence[Any]) -> dict[str, Candidate]:
    """Copies of an estimator, one for each combination of parameter values, named after them.

    >>> from sklearn.linear_model import Ridge
    >>> list(parameter_grid(Ridge(), alpha=[1, 2], fit_intercept=[True]))
    ['alpha=1, fit_intercept=True', 'alpha=2, fit_intercept=True']
    """
    known = estimator.get_params()
    for name, options in values.items():
        if isinstance(options, str) or len(options) == 0:
            raise OptionError(
                f"parameter_grid needs a list of values for {name!r}. Got {options!r} instead."
            )
        if name not in known:
            raise OptionError(
                f"{type(estimator).__name__} has no parameter {name!r}. It has: {', '.join(known)}."
            )
    candidates: dict[str, Candidate] = {}
    for combination in itertools.product(*values.values()):
        chosen = dict(zip(values, combination, strict=True))
        name = ", ".join(f"{key}={_short(value)}" for key, value in chosen.items())
        name = _fresh(name or type(estimator).__name__, candidates)
        candidates[name] = clone(estimator).set_params(**chosen)
    return candidates


grid = parameter_grid  # `ut.grid`; its name differs from `ut.data.Grid` in case alone


def doubling(
    estimator: Candidate, parameter: str, *, start: float, times: int = 8
) -> dict[str, Candidate]:
    """One parameter from `start`, doubled `times` times: how the arXiv study chose its C.

    ([mao_arxivlogs]_ section 5.2, with `metric="arp"`.)
    """
    if not (start > 0 and times >= 1):
        raise OptionError(
            f"doubling needs start above 0 and times of at least 1. Got {start} and {times}."
        )
    return parameter_grid(
        estimator, **{parameter: [start * 2.0**step for step in range(times + 1)]}
    )


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """Gain in log-likelihood over scores that say nothing, of each candidate.

    Parameters
    ----------
    gain : name -> (queries,) summed over the sessions of each query
    sessions : (queries,)
    """

    gain: Mapping[str, FloatArray]
    sessions: FloatArray

    def value(self, name: str) -> MeanEstimate:
        """Gain per session."""
        return weighted_mean(self.gain[name] / self.sessions, self.sessions)

    @property
    def order(self) -> tuple[str, ...]:
        """Names, best first."""
        return tuple(sorted(self.gain, key=lambda name: -float(np.sum(self.gain[name]))))

    @property
    def best(self) -> str:
        """The candidate that makes the clicks most likely."""
        return self.order[0]

    def to_best(self, name: str) -> MeanEstimate:
        """The gain per session minus that of the best, paired by query."""
        gap = self.gain[name] - self.gain[self.best]
        return weighted_mean(gap / self.sessions, self.sessions)

    def within_noise(self, level: float) -> tuple[str, ...]:
        """Candidates whose difference to the best may be 0."""
        others = (name for name in self.gain if name != self.best)
        return tuple(name for name in others if 0 in self.to_best(name).interval(level))


@dataclass(frozen=True, eq=False, repr=False)
class Selection(View):
    """The candidates of a search, estimated on held-out clicks.

    `best` is the name of the one with the best estimate, `ranker` the fitted ranker itself;
    `within_noise` names those that held-out clicks cannot tell from it.

    Parameters
    ----------
    likelihood : of the held-out clicks by each candidate's scores, where that was the judge
    curve : the name of the curve that was chosen, where several were given
    curves : how the curves of judge and candidates fit the held-out clicks; None where there is
        one alone
    """

    estimates: Estimates
    fitted: dict[str, Fitted]
    likelihood: Likelihoods | None = None
    curve: str | None = None
    curves: CurveComparison | None = None

    @property
    def best(self) -> str:
        """Name of the candidate with the best estimate, or the highest likelihood."""
        return self.order[0]

    @property
    def order(self) -> tuple[str, ...]:
        """Names, best first."""
        return self.estimates.order if self.likelihood is None else self.likelihood.order

    @property
    def ranker(self) -> Any:
        """The best candidate, fitted."""
        chosen = self.fitted[self.best]
        if chosen.ranker is not None:
            return chosen.ranker
        if chosen.path is None:
            raise OptionError(
                f"{self.best!r} was fitted by an earlier run, and its kind cannot be saved. "
                "Fit it again on the training log, or run the search without folder."
            )
        return load(chosen.path)

    @property
    def comparison(self) -> SystemComparison | None:
        """All others against the best; None for a single candidate."""
        return self.estimates.compare(self.best) if len(self.estimates) > 1 else None

    @property
    def within_noise(self) -> tuple[str, ...]:
        """Candidates whose difference to the best is not decided."""
        if self.likelihood is not None:
            return self.likelihood.within_noise(self.estimates.level)
        return tuple(e.system for e in self.comparison or () if not e.decided)

    def table(self) -> Table:
        """The candidates, best first; differences are those to the best, queries theirs too."""
        gaps = {entry.system: entry for entry in self.comparison or ()}
        likelihood, rows = self.likelihood, []
        for name in self.order:
            entry, gap, fitted = self.estimates[name], gaps.get(name), self.fitted[name]
            rows.append(
                (
                    name,
                    *(() if likelihood is None else (repr(likelihood.value(name)),)),
                    f"{entry.value:.4f}",
                    f"{entry.interval:.4f}",
                    "" if gap is None else f"{gap.value:+.4f}",
                    "" if gap is None else f"{gap.corrected_p:.2g}",
                    count_text((gap or entry).effective_queries),
                    f"{fitted.seconds:.1f}" + (" *" if fitted.resumed else ""),
                )
            )
        header = (
            "candidate", *(() if likelihood is None else ("log-likelihood gain",)),
            str(self.estimates.metric), "interval", "to best", "p", "effective queries", "seconds",
        )  # fmt: skip
        return Table(header, tuple(rows))

    def view(self) -> list[Section]:
        """The candidates, which one was chosen, and what to beware of."""
        by = self.estimates.metric if self.likelihood is None else "likelihood"
        near, unshown = ", ".join(self.within_noise), self.estimates.unshown_table()
        chosen = f"Chosen: {self.best}" + (f"; within noise of it: {near}" if near else "")
        told = (chosen, self.estimates.baseline)
        resumed = any(each.resumed for each in self.fitted.values())
        notes = ("* fitted by an earlier run",) if resumed else ()
        title = f"Candidates by {by} on held-out clicks, best first"
        tables = (self.table(),) if unshown is None else (self.table(), unshown)
        cautions = tuple(self.estimates.notes())
        return [Section("candidates", title, told, tables=tables, notes=notes, cautions=cautions)]


def select(
    candidates: Candidates,
    *,
    train: Any,
    valid: ClickLog,
    bias: BiasLike | Mapping[str, BiasLike] | None,
    judge: Literal["value", "likelihood"] = "value",
    metric: MetricLike = "dcg@10",
    evaluator: str | Evaluator | None = None,
    clip: float | Literal["auto"] | None = None,
    among: Among = "list",
    baseline: Baseline = None,
    people: str | None = None,
    level: float = 0.95,
    folder: str | os.PathLike[str] | None = None,
    n_jobs: int = 1,
    held_out: bool = False,
) -> Selection:
    """Fit every candidate on `train` and choose by its counterfactual value on `valid`.

    Clicks as labels would choose the candidate that agrees best with the old order; the estimate
    takes the position bias out first. `train` and `valid` should share no query
    (`log.split(0.8, by="query")`), else a candidate that remembers queries wins: the estimates warn
    of it, and `held_out=True` takes the other queries of `valid` alone.

    Parameters
    ----------
    candidates : name -> estimator, or a list of them; see `parameter_grid` and `doubling`.
        Anything with `fit(train)`, `predict(features)` and scikit-learn's `get_params`; each is
        cloned. One with `early_stopping` is stopped on `valid` too, by its own rule: that makes
        its value a little too good
    bias : as in `untilt.estimate`; or name -> curve, of which the one is taken that fits the
        clicks of `valid` best (`untilt.compare_curves`). Values cannot choose between curves: the
        steeper one always looks better. Where a candidate carries a curve that fits clearly better
        than the one all are judged by, the estimates say so
    judge : who chooses: "value" (the counterfactual estimate of the metric), or "likelihood": how
        likely the scores make the held-out clicks under the curve, whatever the metric. It uses
        all clicks where the metric looks at the top of lists, so it has less noise
    metric, evaluator, clip, among, baseline, people, level : as in `untilt.estimate`
    folder : keep each finished candidate there; a second call trains only what is missing. Results
        belong to parameters and data, not to names
    n_jobs : candidates fitted at once, in processes of their own; -1 for one per core. Give the
        candidates n_threads=1 then. With 1, networks of one shape are trained in one program
    held_out : judge by the sessions of `valid` whose queries are not in `train`
    """
    named = _named(candidates)
    if not isinstance(valid, ClickLog) or valid.features is None:
        raise OptionError(
            "valid must be a ClickLog with features: candidates are judged by its clicks. "
            "log.split(0.8, ⟦by='query'⟧) gives a part to train on and one to judge by."
        )
    if n_jobs == 0 or n_jobs < -1:
        raise OptionError(f"n_jobs must be -1 or at least 1. Got {n_jobs} instead.")
    check_choice("judge", judge, JUDGES)
    # Wrong options are an error before the long work.
    given = bias if isinstance(bias, Mapping) else {"": bias}
    for each in given.values():
        as_rank_metric(metric), bias_for(parse_evaluator(evaluator), each, valid.depth)
    baseline_lists(valid, baseline)
    memory = seen_in(train) if isinstance(train, ClickLog | JudgedLists) else None
    if held_out and memory is not None:
        valid = without_queries(valid, memory)
    curve = best_curve(valid, given)
    store = None if folder is None else CandidateStore(Path(folder))
    fitted = fit_all(named, train, valid, store=store, n_jobs=n_jobs)
    scores = {name: each.scores for name, each in fitted.items()}
    estimates = estimate(
        valid, scores, given[curve], metric=metric, evaluator=evaluator, clip=clip, among=among,
        baseline=baseline, people=people, level=level,
    )  # fmt: skip
    if memory is not None:
        shared = overlap_facts(overlap_with(seen_in(valid), memory))
        estimates = replace(estimates, warnings=(*shared, *estimates.warnings))
    curves, facts = check_curves(valid, curve, given, named, fitted)
    return Selection(
        replace(estimates, warnings=(*facts, *estimates.warnings)),
        fitted,
        likelihood=None if judge == "value" else likelihoods(valid, scores, given[curve]),
        curve=curve or None,
        curves=curves,
    )


def _named(candidates: Candidates) -> dict[str, Candidate]:
    """Candidates by name; those of a plain sequence are named after their kind."""
    named: dict[str, Candidate] = {}
    if isinstance(candidates, Mapping):
        named = {str(name): candidate for name, candidate in candidates.items()}
    else:
        for candidate in candidates:
            named[_fresh(_short(candidate), named)] = candidate
    if not named:
        raise OptionError("no candidate to choose from. Give at least one, such as a LambdaMART.")
    for name, candidate in named.items():
        if not (hasattr(candidate, "fit") and hasattr(candidate, "predict")):
            raise OptionError(
                f"candidate {name!r} must have fit(log) and predict(features). "
                f"Got {type(candidate).__name__} instead."
            )
    return named


def _short(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else repr(value).strip("'")
    return text if len(text) <= LONGEST and "\n" not in text else type(value).__name__


def _fresh(name: str, taken: Mapping[str, Candidate]) -> str:
    """The name, numbered where it is taken."""
    if name not in taken:
        return name
    return next(f"{name} ({n})" for n in itertools.count(2) if f"{name} ({n})" not in taken)


# ---- by the likelihood of held-out clicks


def likelihoods(
    valid: ClickLog, scores: Mapping[str, FloatArray], bias: BiasLike | None
) -> Likelihoods:
    """Judge scores, one per document of the held-out log."""
    judge = held_out_likelihood(valid, bias)
    shown = np.flatnonzero(np.bincount(valid.document, minlength=valid.n_documents) > 0)
    gain = {name: judge.per_query(score[shown]) for name, score in scores.items()}
    return Likelihoods(gain, judge.sessions)


# ---- between curves: clicks on documents that moved decide, never values weighted by a curve


def best_curve(valid: ClickLog, curves: Mapping[str, BiasLike | None]) -> str:
    """The name of the curve that fits held-out clicks best; the first where they cannot tell."""
    if not curves:
        raise OptionError("no curve to judge by. Give at least one, such as {'mine': bias}.")
    first = next(iter(curves))
    known = {name: bias for name, bias in curves.items() if bias is not None}
    if len(known) < 2:
        return first
    return compare_curves(valid, known).best or first


def check_curves(
    valid: ClickLog,
    judge: str,
    given: Mapping[str, BiasLike | None],
    candidates: Mapping[str, Any],
    fitted: Mapping[str, Fitted],
) -> tuple[CurveComparison | None, tuple[Fact, ...]]:
    """All curves of a search compared, and what is to be said of the one that judges."""
    used = given[judge]
    if used is None:
        return None, ()
    curves = {judge or JUDGE: used}
    curves |= {name: bias for name, bias in given.items() if name != judge and bias is not None}
    for name, candidate in candidates.items():
        own = curve_of(fitted[name].ranker, candidate)
        if own is not None and not any(_same(own, each, valid.depth) for each in curves.values()):
            curves[name if name not in curves else f"{name} (own)"] = own
    if len(curves) < 2:
        return None, ()
    found = compare_curves(valid, curves)
    if not found.possible:
        fact = CURVES_UNTOLD(curve=judge, n_clicks=found.n_clicks)
        return found, (fact,) if len(given) > 1 else ()
    facts = []
    if len(given) > 1:
        worse = tuple(each.name for each in found if each.is_worse and each.name in given)
        chosen = CURVE_CHOSEN if worse else CURVE_CHOSEN_IN_NOISE
        facts.append(chosen(curve=judge, worse=worse))
    entry = found[judge or JUDGE]
    if entry.is_worse and found.best is not None:
        gap = entry.gap
        facts.append(
            CURVE_FITS_WORSE(
                candidate=found.best,
                gap=-gap.value,
                std_error=gap.std_error,
                power=entry.power.value,
            )
        )
    return found, tuple(facts)


def curve_of(ranker: Any, candidate: Any) -> BiasLike | None:
    """The curve that a candidate learned, or was given in its weighting or as its bias."""
    for holder, name in (
        (ranker, "bias_"),
        (getattr(candidate, "weighting", None), "position_bias"),
        (candidate, "bias"),
    ):
        curve = getattr(holder, name, None)
        if curve is not None:
            return curve
    return None


def _same(one: BiasLike, other: BiasLike, depth: int) -> bool:
    """Whether two curves are the same at the positions of the log."""
    first, second = _at(one, depth), _at(other, depth)
    if first is None or second is None:
        return True  # not comparable: a curve of contexts, or one that is shorter than the log
    return bool(np.allclose(first / first[0], second / second[0], rtol=1e-9))


def _at(bias: BiasLike, depth: int) -> FloatArray | None:
    try:
        return np.asarray(as_examination(bias).at(np.arange(1, depth + 1)), dtype=float)
    except (UntiltError, TypeError, AttributeError):
        return None

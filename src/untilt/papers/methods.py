"""Methods of an experiment by name: rankers, tables of weights, and what they learn from.

A row names one of each, as the catalogue calls them. Beside those there are curves and orders that
only an experiment can have, such as the true curve of a simulation; more can be registered.

What a cell measures, by name. A value is a number, or a list with one number per position.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np

from untilt import catalog
from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt.bias.curve import PositionBias
from untilt.bias.curve_operations import quadratic_fact
from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.experiments.shuffled import ShuffledTop
from untilt.bias.experiments.swaps import PivotSwap
from untilt.bias.given import ClickCountGuess, Examination, PageSteps, PowerLaw
from untilt.bias.harvesting.harvesting import AllPairs
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.transform import synthesise
from untilt.errors import OptionError, did_you_mean
from untilt.evaluation.estimate import estimate
from untilt.evaluation.evaluators import DirectEvaluator, IPSEvaluator, SNIPSEvaluator
from untilt.evaluation.judged import evaluate
from untilt.evaluation.systems import LoggedOrder, shown
from untilt.facts import Fact
from untilt.metrics.metric import ARP
from untilt.papers.schema import Panel, Row, Value
from untilt.papers.setting import CellSetting
from untilt.rankers.linear.linear import LinearRanker
from untilt.rankers.networks.network_ranker import NetworkRanker
from untilt.rankers.validation import held_out_clicks
from untilt.weighting.base import Weighting
from untilt.weighting.tables import PairwiseDebiasing

T = TypeVar("T")
Curve = Callable[..., Examination]
CURVES: dict[str, Curve] = {}
FEWEST_CLICKS = 5  # at a position of the shuffled lists, for a rate of its own
# Options with which a weighting is that of its document, where our default is another.
AS_PUBLISHED: dict[str, dict[str, Any]] = {
    catalog.record_of(PairwiseDebiasing).name: {"losses": "sum"}
}


def _add_to(table: dict[str, T]) -> Callable[[str], Callable[[T], T]]:
    """A decorator that puts a builder into the table by its name."""

    def register(name: str) -> Callable[[T], T]:
        def add(builder: T) -> T:
            table[name] = builder
            return builder

        return add

    return register


# A builder: (setting, **bias_options) -> a position bias or a given curve.
register_curve = _add_to(CURVES)
# Of what the catalogue does not know: raised when results change, as `Method.version` is.
VERSIONS: dict[str, int] = {}


def versions(panel: Panel, row: Row) -> dict[str, int | str]:
    """The code that a cell depends on: versions above 1, and the source of methods of one's own."""
    evaluator = row.options.get("method", row.options.get("evaluator"))
    named = {"ranker": row.ranker, "weighting": row.weighting, "protocol": panel.protocol,
             "bias": row.bias, "curve": row.bias, "evaluator": evaluator}  # fmt: skip
    found: dict[str, int | str] = {}
    for record in catalog.methods():
        if named.get(record.kind) not in (record.name, *record.aliases):
            continue
        if record.home.partition(".")[0] != "untilt":
            found[record.name] = hashlib.sha256(_source(record.load()).encode()).hexdigest()[:8]
        elif record.version > 1:
            found[record.name] = record.version
    own = {name: VERSIONS[name] for name in (*named.values(), panel.measure) if name in VERSIONS}
    return found | own


def _source(target: Any) -> str:
    try:
        return inspect.getsource(target)
    except (OSError, TypeError):  # typed into a prompt: only its name is known
        return str(target.__qualname__)


def curve_of(setting: CellSetting, name: str, options: dict[str, Any]) -> Examination:
    """The curve of that name in this setting; estimated once, however many methods use it."""
    key = json.dumps([name, options], sort_keys=True)
    return setting.once(key, lambda: _curve(setting, name, options))


def _curve(setting: CellSetting, name: str, options: dict[str, Any]) -> Examination:
    """A builder of experiments, a curve of the catalogue, or what an estimator makes of the log."""
    if name in CURVES:
        return CURVES[name](setting, **options)
    if name in catalog.names("bias"):
        estimated: Examination = catalog.find("bias", name).make(**options).fit(setting.log).bias_
        return estimated
    also = (*CURVES, *catalog.names("bias"))
    given: Examination = catalog.find("curve", name, what="bias", also=also).make(**options)
    return given


@register_curve("true")
def _true(setting: CellSetting) -> PositionBias:
    """Examination as the clicks were made with it, without click noise."""
    return PositionBias(setting.sim.truth.examination, method="the truth", relative=False)


@register_curve("true-with-noise")
def _true_with_noise(setting: CellSetting) -> PositionBias:
    """The truth with its eps+ and eps-."""
    return setting.sim.truth.bias


@register_curve("randomization")
def _randomization(setting: CellSetting, top: int = 10, level: bool = False) -> PositionBias:
    """Click rates of shuffled lists, 003 section 5.1.2; below `top` a power law, or the last rate.

    The first position with fewer clicks than FEWEST_CLICKS ends what is measured, too.
    """
    log, depth = setting.shuffled.log, setting.log.depth
    few = clicks_by_position(log) < FEWEST_CLICKS
    top = max(2, min(top, int(np.argmax(few)) if few.any() else depth))
    measured = ShuffledTop(top=top).fit(log).bias_
    if depth <= top:
        return measured
    if level:
        return _as_deep(measured, depth)
    law = measured.fit_power_law(depth=depth).examination
    theta = np.concatenate([measured.examination, law[top:]])
    method = f"ShuffledTop to {top}, then its power law"
    return PositionBias(theta, method=method, estimated=True)


@register_curve(catalog.record_of(RegressionEM).name)
def _regression_em(setting: CellSetting, **options: Any) -> PositionBias:
    """Regression-EM on the very log that is learned from, by boosted trees."""
    estimator = RegressionEM(
        relevance="features", n_threads=setting.n_threads, seed=setting.seed, **options
    )
    return estimator.fit(setting.log).bias_


@register_curve("regression-em-draws")
def _regression_em_draws(setting: CellSetting, steps: int = 20, n_trees: int = 30) -> PositionBias:
    """Regression-EM as published: each M step fits trees to draws from the posterior."""
    import lightgbm

    log, rng = setting.log, np.random.default_rng(setting.seed)
    assert log.features is not None
    cell, of_row = np.unique(log.document * log.depth + log.position - 1, return_inverse=True)
    document, k = np.divmod(cell, log.depth)
    shown, index = np.unique(document, return_inverse=True)
    n, c = (
        sum_by(of_row, weight)
        for weight in (log.row_count.astype(float), log.label * log.row_count)
    )
    theta, gamma = np.full(log.depth, 0.5), np.full(len(shown), 0.5)
    x = np.repeat(log.features[shown], 2, axis=0)
    relevant = np.tile([1.0, 0.0], len(shown))
    options = {"objective": "binary", "num_leaves": 15, "learning_rate": 0.1, "verbosity": -1,
               "num_threads": setting.n_threads, "seed": setting.seed,
               "deterministic": True}  # fmt: skip
    for _ in range(steps):
        looked, good = theta[k], gamma[index]
        unclicked = 1 - looked * good
        drawn = c + rng.binomial((n - c).astype(int), (1 - looked) * good / unclicked)
        looks = sum_by(k, c + (n - c) * looked * (1 - good) / unclicked, log.depth)
        theta = np.clip(looks / np.maximum(sum_by(k, n, log.depth), 1), 1e-3, 1 - 1e-3)
        won = sum_by(index, drawn)
        weight = np.column_stack([won, sum_by(index, n) - won]).ravel()
        kept = weight > 0
        data = lightgbm.Dataset(x[kept], relevant[kept], weight=weight[kept])
        booster = lightgbm.train(options, data, num_boost_round=n_trees)
        gamma = np.clip(booster.predict(log.features[shown]), 1e-3, 1 - 1e-3)
    return PositionBias(theta / theta[0], method="Regression-EM by draws", estimated=True)


@register_curve("swap")
def _swap(setting: CellSetting) -> PositionBias:
    """Swaps of the top document with 1..21, as measured (002 section 3)."""
    return swap_rates(setting)


def swap_rates(setting: CellSetting) -> PositionBias:
    """Click rates of swapped documents, estimated once."""
    return setting.once(
        "rates of swaps", lambda: PivotSwap(within="length").fit(setting.swapped.log).bias_
    )


@register_curve("swap-quadratic")
def _swap_quadratic(setting: CellSetting, outlier_limit: float = 3.0) -> PositionBias:
    """The same as PivotSwap fits a quadratic: 1 at position 1, constant below 21.

    Positions further than `outlier_limit` standard errors from it are left out. A large experiment
    has small errors, so where the curve is no quadratic that can be most positions.
    """
    estimator = PivotSwap(within="length", shape="quadratic", outlier_limit=outlier_limit)
    fitted = estimator.fit(setting.swapped.log).bias_
    return _held(setting, fitted.examination, "PivotSwap, quadratic", fitted.status)


@register_curve("swap-fit")
def _swap_fit(setting: CellSetting, outlier_limit: float = 3.0) -> PositionBias:
    """A quadratic through the click rates of swapped documents, as 002 section 3 has it.

    Least squares through all positions with a level of its own; then without those that are further
    from it than `outlier_limit` times the spread of the distances (1.4826 times their median). The
    document does not say by which rule it removed outliers.
    """
    rates = swap_rates(setting).examination
    x = np.arange(1.0, len(rates) + 1)
    distance = np.abs(rates - np.polyval(np.polyfit(x, rates, 2), x))
    out = distance > outlier_limit * 1.4826 * np.median(distance)
    fitted = np.polyval(np.polyfit(x[~out], rates[~out], 2), x)
    outliers = tuple((np.flatnonzero(out) + 1).tolist())
    status = quadratic_fact(float("nan"), outliers)
    return _held(setting, fitted, "swaps, quadratic by least squares", status)


def _held(setting: CellSetting, measured: FloatArray, method: str, status: Fact) -> PositionBias:
    """The curve with its last value held down to the lowest position of the log."""
    deeper = max(setting.log.depth - len(measured), 0)
    theta = np.maximum(np.concatenate([measured, np.full(deeper, measured[-1])]), 1e-3)
    return PositionBias(theta, method=method, estimated=True, status=status)


@register_curve("harvested")
def _harvested(setting: CellSetting) -> PositionBias:
    """From documents that three rankers showed at different positions."""
    return AllPairs().fit(setting.harvested.log).bias_


@register_curve("rank")
def _rank(_: CellSetting) -> PowerLaw:
    """1/j: the first rough guess of 002."""
    return PowerLaw(1.0)


@register_curve("clicks")
def _clicks(setting: CellSetting) -> ClickCountGuess:
    """1/(clicks + 1): the second rough guess of 002."""
    return ClickCountGuess(tuple(clicks_by_position(setting.log).tolist()))


@register_curve("click-rate")
def _click_rate(setting: CellSetting) -> PositionBias:
    """Clicks per session at each position of the log, relevance not taken out."""
    log = setting.log
    shown = sum_by(log.position - 1, log.row_count.astype(float), log.depth)
    rate = np.maximum(clicks_by_position(log), 0.5) / shown
    return PositionBias(rate / rate[0], method="click rates", estimated=True)


@register_curve("slight")
def _slight(_: CellSetting) -> PageSteps:
    return PageSteps.slight()


@register_curve("rough")
def _rough(_: CellSetting) -> PageSteps:
    return PageSteps.rough()


@register_curve("counterfactual")
def _counterfactual(_: CellSetting) -> PageSteps:
    return PageSteps.counterfactual()


def clicks_by_position(log: ClickLog) -> FloatArray:
    """Clicks at positions 1, 2, ..., over all sessions."""
    weights = log.label * log.row_count
    return sum_by(log.position - 1, weights, log.depth)


Builder = Callable[..., Any]
RANKERS: dict[str, Builder] = {}  # beside those of the catalogue
TRAINING: dict[str, Callable[[CellSetting], ClickLog | JudgedLists]] = {
    "clicks": lambda setting: setting.log,
    "labels": lambda setting: setting.labels(),
    "click-and-dwell": lambda setting: synthesise(setting.log, {"click": 1.0, "dwell": 1.0}),
    "clicks-against-irrelevant": lambda setting: setting.irrelevant_only(),
}


# Add a builder: (setting, row, weighting) -> a ranker that is not fitted yet.
register_ranker = _add_to(RANKERS)


def known(table: Mapping[str, T], name: str, what: str) -> T:
    """The entry of that name, or an error with the nearest one."""
    if name not in table:
        raise OptionError(
            f"there is no {what} {name!r} for experiments.{did_you_mean(name, table)} "
            f"There are: {', '.join(sorted(table))}."
        )
    return table[name]


def weighting_of(setting: CellSetting, row: Row) -> Weighting:
    """The row's table of pair weights."""
    record = catalog.find("weighting", row.weighting)
    bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
    if bias is None and "bias" in record.needs:
        raise OptionError(
            f"row {row.name!r}: the weighting {row.weighting!r} needs a bias. Name one of the "
            "experiment's biases, such as bias = 'true'."
        )
    given = (bias,) if "bias" in record.needs else ()
    options = AS_PUBLISHED.get(record.name, {}) | row.weighting_options
    made: Weighting = record.make(*given, **options)
    return made


def ranker_of(setting: CellSetting, row: Row) -> Any:
    """The row's ranker, not fitted yet."""
    if row.ranker in RANKERS:
        return RANKERS[row.ranker](setting, row, weighting_of(setting, row))
    record = catalog.find("ranker", row.ranker, also=tuple(RANKERS))
    size = setting.size
    shared = {"trees": ("n_trees", size.trees), "threads": ("n_threads", setting.n_threads),
              "seed": ("seed", setting.seed)}  # fmt: skip
    options = dict(shared[name] for name in shared if name in record.takes) | row.options
    if "jax" in record.needs:
        options |= _network_options(setting, options)
    if "objective" in options or options.get("loss") == "pointwise":
        bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
        return record.make(bias=bias, **options)
    table = (weighting_of(setting, row),) if "weighting" in record.takes else ()
    return record.make(*table, **options)


def _network_options(setting: CellSetting, options: dict[str, Any]) -> dict[str, Any]:
    """What the size says of all networks alike."""
    size = setting.size
    widths = size.widths or options.get("widths")
    given = {"epochs": size.epochs, "batch_size": size.batch, "early_stopping": size.patience,
             "learning_rate": size.learning_rate}  # fmt: skip
    shared = {name: value for name, value in given.items() if value is not None}
    return shared | ({"widths": tuple(widths)} if widths else {})


def fitted(setting: CellSetting, row: Row) -> Any:
    """The row's ranker, trained on what the row says; the setting keeps how it was trained."""
    data = known(TRAINING, row.train_on, "data to train on")
    if row.ranker in UNTRAINED:
        return ranker_of(setting, row)
    chosen = tuned(setting, row, data(setting)) if row.tune else row
    ranker = ranker_of(setting, chosen)
    if isinstance(ranker, NetworkRanker) and setting.size.penalties:
        return _with_chosen_penalty(setting, ranker, data(setting))
    ranker.fit(data(setting))
    tried = {
        f"{name} out of": ", ".join(_short(value) for value in values)
        for name, values in row.tune.items()
    }
    setting.trained = {**trained_as(ranker), **tried}
    return ranker


TREES = "n_trees"  # tuned on one training: each number is judged by the first trees of the most
HELD_OUT = 0.2  # of the queries, to choose what a row tunes, or a network's penalty and epoch


def tuned(setting: CellSetting, row: Row, data: ClickLog | JudgedLists) -> Row:
    """The row with those of its `tune` values that do best on queries held out; never by labels.

    Clicks: by their DCG@10, weighted by the curve that the row believes in: its bias, the one that
    its ranker learned beside the scores, or ones. A row that learns from labels is judged by
    NDCG@10 of held-out labels.
    """
    train, held_out = data.split(1 - HELD_OUT, seed=setting.seed)
    if isinstance(data, ClickLog) and data.is_binary:
        # The same queries with all that people saw, also where the row learns from a part of it.
        held_out = setting.log.split(1 - HELD_OUT, seed=setting.seed)[1]
    best, value = row, -np.inf
    grid = {name: values for name, values in row.tune.items() if name != TREES}
    numbers = sorted(row.tune.get(TREES, ()))
    for values in product(*grid.values()):
        trial = _with_options(row, dict(zip(grid, values, strict=True)))
        if numbers:
            trial = _with_options(trial, {TREES: numbers[-1]})
        ranker = ranker_of(setting, trial).fit(train)
        for number in numbers or (None,):
            found = _held_out_value(setting, trial, _shorter(ranker, number), held_out)
            if found > value:
                best, value = (
                    trial if number is None else _with_options(trial, {TREES: number}),
                    found,
                )
    return best


def _with_options(row: Row, given: Mapping[str, Any]) -> Row:
    """The row with these values in place of what it tunes; "weighting.p" is one of its table."""
    of_table = {k.partition(".")[2]: v for k, v in given.items() if k.startswith("weighting.")}
    options = {k: v for k, v in given.items() if not k.startswith("weighting.")}
    return replace(
        row,
        options=row.options | options,
        weighting_options=row.weighting_options | of_table,
        tune={},
    )


def _shorter(ranker: Any, n_trees: int | None) -> Any:
    """The ranker with its first trees alone: what training would have given that stops there."""
    if n_trees is None:
        return ranker
    made = copy(ranker)
    made.n_trees_ = min(n_trees, ranker.n_trees_)
    history = ranker.bias_history_[: made.n_trees_]
    if ranker.bias_ is not None and history:
        made.bias_ = ranker.weighting.bias_of(history[-1], history)
    return made


def _held_out_value(
    setting: CellSetting, row: Row, ranker: Any, held_out: ClickLog | JudgedLists
) -> float:
    if isinstance(held_out, JudgedLists):
        scores = ranker.predict(held_out.features)
        return float(evaluate(held_out, scores, ["ndcg@10"])["ndcg@10"].value)
    learned = getattr(ranker, "bias_", None)
    given = curve_of(setting, row.bias, row.bias_options) if row.bias else None
    clicks = held_out_clicks(
        held_out, given if learned is None else _as_deep(learned, held_out.depth)
    )
    # As a share of the weighted clicks: learned curves differ, and a steeper one weighs all more.
    scores = np.asarray(ranker.predict(clicks.features))
    return float(np.sum(clicks.per_query(scores)) / max(np.sum(clicks.credit), 1e-300))


def _as_deep(bias: PositionBias, depth: int) -> PositionBias:
    """The curve to this depth; below what it knows the last value."""
    theta = bias.examination
    more = np.full(max(0, depth - len(theta)), theta[-1])
    return PositionBias(np.concatenate([theta, more]), method=bias.method, estimated=True)


def _with_chosen_penalty(
    setting: CellSetting, ranker: NetworkRanker, data: ClickLog | JudgedLists
) -> NetworkRanker:
    """Of the size's penalties the one that does best on held-out queries, as does the epoch.

    Clicks are judged as `untilt.rankers.networks.network_ranker` says, never by labels; a ranker
    that learns from labels is judged by labels. Feedback of other numbers is judged by which of it
    is above 0, the clicks: its propensity-weighted DCG is noise that praises steep curves. A
    tower's judge is its own loss.
    """
    train, held_out = data.split(1 - HELD_OUT, seed=setting.seed)
    if ranker.batch_of == "rows":  # as many as the lists of a batch show
        ranker.set_params(batch_size=max(1, round(ranker.batch_size * _rows_per_list(train))))
    elif isinstance(held_out, ClickLog) and not held_out.is_binary:
        held_out = held_out.with_label((held_out.label > 0).astype(float))
    tried = [
        type(ranker)(**{**ranker.get_params(deep=False), "l2": l2}).fit(train, valid=held_out)
        for l2 in setting.size.penalties
    ]
    best = max(tried, key=lambda each: each.summary_["held_out_value"])
    among = ", ".join(f"{l2:g}" for l2 in setting.size.penalties)
    told = {"l2": f"{_short(best.l2)}", "l2 out of": among}
    setting.trained = {**trained_as(best), **told, "held out": f"{HELD_OUT:.0%} of the queries"}
    return best


def _rows_per_list(data: ClickLog | JudgedLists) -> float:
    return float(np.mean(ragged.lengths(data.indptr)))


# What a page says of a training, by the ranker's parameters and then by what the training reported.
_ASKED = ("n_trees", "n_leaves", "C", "penalty", "widths", "optimiser", "learning_rate", "schedule",
          "batch_size", "epochs", "l2", "early_stopping")  # fmt: skip
_REPORTED = ("trees", "C", "epochs", "steps", "held_out")


def trained_as(ranker: Any) -> dict[str, str]:
    """How a fitted ranker was trained, read off the ranker itself: parameter -> value."""
    params = ranker.get_params(deep=False)
    asked = {name: params[name] for name in _ASKED if name in params}
    if asked.get("l2", 0) is None:
        asked["l2"] = ranker._penalty
    summary = getattr(ranker, "summary_", {})
    done = {f"{name} in the end": summary[name] for name in _REPORTED if name in summary}
    return {name: _short(value) for name, value in (asked | done).items()}


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class LabelOrder:
    """Documents by their own labels: the order that people judged to be right."""

    def scores(self, judged: JudgedLists) -> FloatArray:
        """The labels."""
        return judged.labels


@register_ranker("production")
def _production(setting: CellSetting, _: Row, __: Weighting) -> Any:
    return setting.production


@register_ranker("label-order")
def _label_order(_: CellSetting, __: Row, ___: Weighting) -> LabelOrder:
    return LabelOrder()


UNTRAINED = ("production", "label-order")

Values = dict[str, float | list[float]]
Measure = Callable[[CellSetting, Row], Values]
MEASURES: dict[str, Measure] = {}
TOP = 10


# Add a measure: (setting, row) -> values by metric.
register_measure = _add_to(MEASURES)


def measure(setting: CellSetting, row: Row) -> Values:
    """What the panel measures, for this row."""
    return known(MEASURES, setting.panel.measure, "measure")(setting, row)


def row_at(panel: Panel, row: Row, x: Value | None) -> Row:
    """The row with this value of the x axis put in, where it changes the method."""
    sweep = panel.sweep
    if sweep is None or x is None or sweep.changes_the_log:
        return row
    if sweep.parameter == "bias":
        return replace(row, bias=str(x), bias_options={})
    field = {"bias": "bias_options", "weighting": "weighting_options", "option": "options"}
    if sweep.part not in field or not sweep.key:
        raise OptionError(
            f"sweep.parameter must be 'bias' or a part and its parameter such as 'protocol.theta'."
            f" Got {sweep.parameter!r}.{did_you_mean(sweep.part, field)}"
        )
    name = field[sweep.part]
    changed: dict[str, Any] = {name: {**getattr(row, name), sweep.key: x}}
    return replace(row, **changed)


def scores_of(ranker: Any, judged: JudgedLists) -> FloatArray:
    """Scores of all documents; the order of the labels needs the labels."""
    if isinstance(ranker, LabelOrder):
        return ranker.scores(judged)
    return np.asarray(ranker.predict(judged.features))


@register_measure("judged")
def _judged(setting: CellSetting, row: Row) -> Values:
    """The panel's metrics on the labelled test lists."""
    scores = scores_of(fitted(setting, row), setting.test)
    judged = evaluate(setting.test, scores, list(setting.panel.metrics))
    return {name: float(judged[name].value) for name in setting.panel.metrics}


@register_measure("judged-again")
def _judged_again(setting: CellSetting, row: Row) -> Values:
    """Mean and standard deviation of NDCG@10 over logs that differ in their clicks alone."""
    values = []
    for repeat in setting.repeats:
        ranker = ranker_of(setting, row).fit(repeat.log)
        judged = evaluate(setting.test, scores_of(ranker, setting.test), ["ndcg@10"])
        values.append(float(judged["ndcg@10"].value))
    setting.trained = trained_as(ranker)
    return {"mean": float(np.mean(values)), "spread": float(np.std(values, ddof=1))}


@register_measure("average-position")
def _average_position(setting: CellSetting, row: Row) -> Values:
    """Mean position after re-ranking of the documents shown at 1..10 (003 Figure 1).

    The ten documents of a test list are re-ranked among themselves; equal scores share positions.
    """
    test = setting.all_test
    full = test.take(ragged.lengths(test.indptr) >= TOP)
    original = np.asarray(setting.production.predict(full.features))
    order = ragged.order_within_lists(full.indptr, -original)
    rows = order[ragged.index_in_list(full.indptr) < TOP]
    by_list = scores_of(fitted(setting, row), full)[rows].reshape(-1, TOP)
    above = (by_list[:, None, :] > by_list[:, :, None]).sum(axis=2)
    ties = (by_list[:, None, :] == by_list[:, :, None]).sum(axis=2)
    new = above + (ties + 1) / 2
    return {"average position": new.mean(axis=0).tolist()}


@register_measure("ratios")
def _ratios(setting: CellSetting, row: Row) -> Values:
    """t+ and t- of positions 1 to 10 after the last boosting round (003 Figure 2)."""
    last = fitted(setting, row).bias_history_[-1]
    return {"t+": last.plus[:TOP].tolist(), "t-": last.minus[:TOP].tolist()}


@register_measure("curve")
def _curve_error(setting: CellSetting, row: Row) -> Values:
    """Examination at 1..21, as a share of position 1 (002 Figure 1).

    Beside it the largest distance from the truth, and how many positions a fit left out.
    """
    positions = np.arange(1, min(21, setting.log.depth) + 1)
    curve = curve_of(setting, row.bias, row.bias_options)
    theta, truth = (
        np.asarray(each.at(positions), dtype=float)
        for each in (curve, curve_of(setting, "true", {}))
    )
    share, true_share = theta / theta[0], truth / truth[0]
    return {
        "propensity": share.tolist(),
        "largest error": float(np.abs(share - true_share).max()),
        "positions left out": float(len(_left_out(curve))),
    }


def _left_out(curve: Examination) -> tuple[int, ...]:
    """Positions that a quadratic was fitted without."""
    fit = curve.status.part("bias.quadratic-fitted") if isinstance(curve, PositionBias) else None
    return () if fit is None else tuple(fit.fields["outliers"])


@register_measure("shown-value")
def _shown_value(setting: CellSetting, row: Row) -> Values:
    """Mean DCG@10 that readers were shown, by the truth (004, the cost of an experiment).

    `lists` among the row's options: "log", "shuffled", "swapped" or "harvested".
    """
    sims = {"log": "sim", "shuffled": "shuffled", "swapped": "swapped", "harvested": "harvested"}
    sim = getattr(setting, known(sims, row.options["lists"], "kind of lists"))
    log = sim.log
    top = log.position <= TOP
    gain = sim.truth.relevance[log.document] / np.log2(1 + log.position)
    return {"dcg@10 shown": float(np.dot(gain[top], log.row_count[top]) / log.n_sessions)}


@register_measure("clicks-by-position")
def _click_count(setting: CellSetting, _: Row) -> Values:
    """Clicks at positions 1..21 of the log (002 Figure 2)."""
    return {"clicks": clicks_by_position(setting.log)[:21].tolist()}


@register_measure("test-average-rank")
def _test_average_rank(setting: CellSetting, row: Row) -> Values:
    """Propensity-weighted average rank of clicked documents on test queries (002 section 5).

    Weighted by the row's own bias, or by the panel's `test_bias`; the true curve beside it. What
    the ranker chooses by validation, such as C, is weighted as the test is (section 5.4).
    """
    train, _, test = setting.split
    ranker = _validated(setting, row, train)
    judged = evaluate(setting.test, ranker.predict(setting.test.features), ["ndcg@10"])
    ranks = _average_ranks(setting, row, ranker, test)
    return {**ranks, "ndcg@10": float(judged["ndcg@10"].value)}


@register_measure("validation-average-rank")
def _validation_average_rank(setting: CellSetting, row: Row) -> Values:
    """The same on the validation queries (002 Figure 3).

    `train_share` among the row's options is the share of the training queries that is learned from.
    """
    options = {**row.options}
    share = float(options.pop("train_share", 1.0))
    train, valid, _ = setting.split
    part = train if share >= 1 else train.split(share, by="query", seed=setting.seed)[0]
    ranker = _validated(setting, replace(row, options=options), part)
    return _average_ranks(setting, row, ranker, valid)


def _validated(setting: CellSetting, row: Row, train: ClickLog) -> Any:
    """The row's ranker, fitted; validation clicks weigh as test clicks do."""
    ranker = ranker_of(setting, row)
    ranker.set_params(valid_bias=_test_curve(setting, row))
    ranker.fit(train, valid=setting.split[1])
    setting.trained = trained_as(ranker)
    return ranker


def _test_curve(setting: CellSetting, row: Row) -> Examination:
    name = setting.panel.test_bias or row.bias
    return curve_of(setting, name, {} if setting.panel.test_bias else row.bias_options)


def _average_ranks(setting: CellSetting, row: Row, ranker: Any, log: ClickLog) -> Values:
    curves = {"average rank": _test_curve(setting, row),
              "true average rank": curve_of(setting, "true", {})}  # fmt: skip
    arp, evaluator = str(ARP()), SNIPSEvaluator()
    return {
        metric: estimate(
            log, {"it": ranker}, curve, metric=arp, evaluator=evaluator, among="shown"
        )["it"].value
        for metric, curve in curves.items()
    }


@register_measure("estimate-error")
def _estimate_error(setting: CellSetting, row: Row) -> Values:
    """Bias, spread and root mean squared error of an estimate, as shares of the true value."""
    truth, estimates = _estimates(setting, row)
    error = (estimates["new"] - truth["new"]) / abs(truth["new"])
    spread = float(error.std(ddof=1))
    return {
        "bias": float(error.mean()),
        "spread": spread,
        "root mean squared error": float(np.sqrt(np.mean(error**2))),
    }


@register_measure("estimate-difference")
def _estimate_difference(setting: CellSetting, row: Row) -> Values:
    """The estimated lead of a better ranker over the shown order, as a share of the true lead."""
    truth, estimates = _estimates(setting, row)
    lead = (estimates["new"] - estimates["shown"]) / (truth["new"] - truth["shown"])
    return {
        "difference": float(lead.mean()),
        "spread": float(lead.std(ddof=1)),
        "right order": float(np.mean(lead > 0)),
    }


def _estimates(setting: CellSetting, row: Row) -> tuple[dict[str, float], dict[str, FloatArray]]:
    """True value of two systems, and its estimates from every repeat of the log.

    By DCG@10, where the row's options name no other `metric`.

    `new` is a linear ranker trained on the labels; `shown` the production ranker's order.
    """
    # The files of experiments call the evaluator "method" and its clip "tau".
    words = {"method": "evaluator", "tau": "clip"}
    options = {words.get(name, name): value for name, value in row.options.items()}
    options = {"evaluator": IPSEvaluator(), **options}
    bias = curve_of(setting, row.bias, row.bias_options) if row.bias else None
    new = setting.once("better ranker", lambda: LinearRanker().fit(setting.labels()))
    systems: dict[str, LinearRanker | LoggedOrder] = {"new": new, "shown": shown}
    first = setting.repeats[0]
    relevance = first.truth.relevance
    options = {"metric": "dcg@10", "among": "shown", **options}
    exact = estimate(
        first.log,
        systems,
        metric=options["metric"],
        among="shown",
        evaluator=DirectEvaluator(relevance),
    )
    repeated = [estimate(repeat.log, systems, bias, **options) for repeat in setting.repeats]
    return (
        {name: exact[name].value for name in systems},
        {name: np.array([made[name].value for made in repeated]) for name in systems},
    )

"""What a cell measures, by name. A value is a number, or a list with one number per position."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.given import Examination
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, did_you_mean
from untilt.evaluation.estimate import estimate
from untilt.evaluation.evaluators import DirectEvaluator, IPSEvaluator, SNIPSEvaluator
from untilt.evaluation.judged import evaluate
from untilt.evaluation.systems import LoggedOrder, shown
from untilt.metrics.metric import ARP
from untilt.papers.methods import (
    LabelOrder,
    clicks_by_position,
    curve_of,
    fitted,
    known,
    ranker_of,
    trained_as,
)
from untilt.papers.schema import Panel, Row, Value
from untilt.papers.setting import CellSetting
from untilt.rankers.linear.linear import LinearRanker

Values = dict[str, float | list[float]]
Measure = Callable[[CellSetting, Row], Values]
MEASURES: dict[str, Measure] = {}
TOP = 10


def register_measure(name: str) -> Callable[[Measure], Measure]:
    """Add a measure: (setting, row) -> values by metric."""

    def add(measure: Measure) -> Measure:
        MEASURES[name] = measure
        return measure

    return add


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
    """t+ and t- after the last boosting round (003 Figure 2)."""
    last = fitted(setting, row).bias_history_[-1]
    return {"t+": last.plus.tolist(), "t-": last.minus.tolist()}


@register_measure("curve")
def _curve(setting: CellSetting, row: Row) -> Values:
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

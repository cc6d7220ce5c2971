"""What estimates look like: values, differences, and what a difference rests on."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from untilt._core import words
from untilt._core.statistics import Interval
from untilt.charts.curves import Curve, XAxis
from untilt.charts.figures import curve_figure, interval_figure
from untilt.charts.intervals import Bar, tornado_chart
from untilt.charts.theme import PAGE
from untilt.evaluation.unshown import Bound
from untilt.views import Figure, Section, Table

if TYPE_CHECKING:
    from untilt.evaluation.clip_curve import ClipCurve
    from untilt.evaluation.null_tests import NullTests
    from untilt.evaluation.pool import Among
    from untilt.evaluation.results import Estimate, Estimates, SystemComparison, SystemDifference
    from untilt.evaluation.sensitivity import Sensitivity

MANY = 100  # effective queries, which are then written without a decimal


def estimate_sections(
    estimates: "Estimates", comparison: "SystemComparison | None" = None
) -> list[Section]:
    """Values of some systems on one log and, where they are compared, their differences."""
    first, weights, clip = estimates.entries[0], estimates.weights, ""
    if estimates.clip > 0:
        clip = f", clip {estimates.clip:.3g}{' chosen by the data' * estimates.clip_chosen}"
    counted = f"{words.count_of(first.n_sessions, 'session')} of " + words.count_of(
        first.n_queries, "query", "queries"
    )
    clicks = f"{words.whole(weights.n_clicks)} clicks" + (
        f" count like {words.whole(weights.effective_n)} of equal weight"
        if weights.largest > 0
        else ""
    )
    unshown = estimates.unshown_table()
    decide = () if comparison is None else comparison.warnings
    return [
        Section(
            "rankers",
            "Rankers compared",
            (
                f"Estimated on {counted} by {words.evaluator_words(estimates.evaluator)}{clip}; "
                f"{clicks}. {_better(estimates.metric.higher_is_better, str(estimates.metric))}",
                estimates.scale,
                estimates.baseline,
            ),
            figures=()
            if comparison is None
            else (difference_figure(comparison, baseline=words.quoted(comparison.baseline)),),
            tables=(value_table(estimates.entries), *([] if unshown is None else [unshown])),
            cautions=(*(e for e in decide if e not in estimates.warnings), *estimates.notes()),
        )
    ]


def _better(higher_is_better: bool, metric: str) -> str:
    counts = words.metric_words(metric)
    better = "Higher" if higher_is_better else "Lower"
    return f"{better} is better{f': {counts}' if counts else ''}."


def compared_section(
    estimates: Sequence["Estimate"],
    comparison: "SystemComparison",
    *,
    evaluator: str,
    baseline: str | None,
    chosen: str | None,
    notes: Mapping[str, str],
) -> Section:
    """Rankers on held-out sessions: differences to the logged order, and values.

    notes : system -> what it is
    """
    text = (
        "All were estimated on the same held-out sessions by "
        f"{words.evaluator_words(evaluator)}. "
        f"{_better(comparison.higher_is_better, comparison.metric)}"
    )
    return Section(
        "rankers",
        "Rankers compared",
        (text,) if baseline is None else (text, baseline),
        figures=(difference_figure(comparison, chosen),) if len(comparison) else (),
        tables=(value_table(estimates, chosen),),
        notes=tuple(
            words.stopped(f"{each.system}: {notes[each.system]}")
            for each in estimates
            if notes.get(each.system)
        ),
    )


def difference_figure(
    comparison: "SystemComparison",
    chosen: str | None = None,
    *,
    name: str = "rankers",
    baseline: str = "",
) -> Figure:
    """Paired differences to the baseline with their intervals."""
    metric, baseline = (
        words.metric_name(comparison.metric),
        baseline or f"the {comparison.baseline}",
    )
    level = f"{comparison.level:.0%}"
    decimals = words.decimals_for(each.interval for each in comparison)
    rows = tuple(
        (
            each.system,
            words.number(each.value, decimals, signed=True),
            words.ends(each.interval, decimals, signed=True),
            f"{each.corrected_p:.2g}",
            count_text(each.effective_queries),
            sessions_text(each),
        )
        for each in comparison
    )
    needed = "more sessions needed"
    header = ("ranker", "difference", f"{level} interval", "p", "effective queries", needed)
    return _around_zero(
        name,
        f"Difference to {baseline}",
        {each.system: (each.value, each.interval) for each in comparison},
        value_title=f"{metric} per session, minus {baseline}",
        description=f"{metric} minus that of {baseline}",
        caption=f"Bar: {level} interval of the paired difference. What lies on one side of 0 with "
        "its whole bar is more than chance.",
        chosen=chosen,
        table=Table(header, rows),
        in_text=f"Difference to {baseline}, paired by query; p corrected by "
        f"{comparison.correction}",
    )


def _around_zero(
    name: str,
    title: str,
    differences: Mapping[str, tuple[float, Interval]],
    *,
    value_title: str,
    description: str,
    caption: str,
    table: Table | None = None,
    chosen: str | None = None,
    in_text: str = "",
) -> Figure:
    """Differences with their intervals, beside an upright line at 0."""
    decimals = words.decimals_for(interval for _, interval in differences.values())
    rows = tuple(
        (each, *(words.number(x, decimals, signed=True) for x in (value, ends.low, ends.high)))
        for each, (value, ends) in differences.items()
    )
    found = zip(differences.items(), rows, strict=True)
    return interval_figure(
        name,
        title,
        {
            each: Bar(value, ends.low, ends.high, row[1], each == chosen)
            for (each, (value, ends)), row in found
        },
        value_title=value_title,
        at=0.0,
        value_format=f"+.{decimals}f",
        description=f"{description}: "
        + "; ".join(f"{each} {value} ({low} to {high})" for each, value, low, high in rows),
        table=table or Table(("what is ranked", "difference", "low", "high"), rows),
        caption=(caption,),
        in_text=in_text,
    )


def count_text(effective_queries: float | None) -> str:
    """Effective queries, whole where there are many; empty where they are not known."""
    if effective_queries is None:
        return ""
    return f"{effective_queries:,.{1 if effective_queries < MANY else 0}f}"


def sessions_text(entry: "SystemDifference") -> str:
    """How many more sessions would decide a difference of this size."""
    if entry.identical:
        return "identical"
    if entry.decided:
        return "decided"
    return f"{entry.more_sessions:,.0f}" if np.isfinite(entry.more_sessions) else "never"


def value_table(estimates: Sequence["Estimate"], chosen: str | None = None) -> Table:
    """Values per session with their errors; that of the chosen system stands out."""
    decimals = words.decimals_for(each.interval for each in estimates)
    rows = tuple(
        (
            f"{each.system} (chosen)" if each.system == chosen else each.system,
            words.number(each.value, decimals),
            words.ends(each.interval, decimals),
            words.number(each.std_error, decimals),
            words.number(each.bias_error, decimals),
            count_text(each.effective_queries),
        )
        for each in estimates
    )
    level = f"{estimates[0].interval.level:.0%} interval"
    metric = words.metric_name(estimates[0].metric)
    return Table(
        ("ranker", metric, level, "std error", "from bias", "effective queries"),
        rows,
        "Estimates per session",
        marked=tuple(i for i, each in enumerate(estimates) if each.system == chosen),
    )


def unshown_section(comparison: "SystemComparison", chosen: str, among: "Among") -> Section | None:
    """The answer where all candidates are ranked, whatever those are worth that nobody saw."""
    gap = comparison[chosen]
    found = gap.unshown
    if found is None or not found.share:
        return None
    metric, baseline = words.metric_name(comparison.metric), comparison.baseline
    ends = {
        "shown documents, reordered": Bound.of(gap),
        "all, never shown worth nothing": found.nothing,
        "all, never shown worth as shown": found.as_shown,
    }
    if among == "candidates":
        del ends["shown documents, reordered"]
    figure = _around_zero(
        "unshown",
        f"{chosen}: difference to the {baseline}, by what it ranks",
        {name: (each.value, each.interval) for name, each in ends.items()},
        value_title=f"{metric} per session, minus the {baseline}",
        description=f"{chosen}, {metric} minus that of the {baseline}",
        caption=f"Bar: {comparison.level:.0%} interval of the paired difference. All: all "
        "candidates of a query are ranked.",
    )
    text = (
        f"Where {words.quoted(chosen)} ranks all candidates of a query, "
        f"{words.percent(found.share)} of its top {found.top} places go to documents that nobody "
        f"was shown, in {words.percent(found.queries)} of the queries. Of these, clicks say "
        "nothing: the difference is computed as if they were worth nothing, and as if each were "
        "worth the mean of what was shown for its query."
    )
    facts = (each for each in comparison.warnings if each.code == "estimate.unshown-decide")
    cautions = [each for each in facts if each.fields["system"] == chosen]
    return Section(
        "unshown",
        "How much do documents that were never shown matter?",
        (text,),
        figures=(figure,),
        cautions=tuple(cautions),
    )


def sensitivity_section(
    found: "Sensitivity", *, title: str = "What would flip the answer?"
) -> Section:
    """What would flip the answer: a tornado chart, and the same in sentences."""
    metric, decimals = words.metric_name(found.metric), words.decimals_for([found.interval])

    def signed(value: float) -> str:
        return words.number(value, decimals, signed=True)

    rows = tuple(
        (
            each.title,
            each.range,
            words.TO.join(signed(v) for v in sorted((each.at_least, each.at_most))),
            each.amount(each.flips_at),
            each.amount(each.undecided_at),
        )
        for each in found
    )
    description = f"The difference is {signed(found.value)}. "
    if found.causes:
        widest = found.causes[0]
        ends = sorted((widest.at_least, widest.at_most))
        description += f"{widest.title} moves it most: {words.TO.join(map(signed, ends))}."
    draw = partial(
        tornado_chart,
        found.bars(),
        value=found.value,
        value_title=f"difference in {metric} per session",
        theme=PAGE,
    )
    figure = Figure(
        "sensitivity",
        "The difference, if one thing at a time is wrong",
        draw,
        description,
        Table(
            ("what may be wrong", "tried", "difference", "flips at", "undecided at"),
            rows,
            text_columns=(0, 1),
        ),
        (
            "Bars: the difference over the range tried. Dashed: as measured. Upright line: no "
            "difference; beyond it the answer is the opposite one.",
        ),
    )
    turning = found.turning
    text = (
        "The interval covers chance, not a wrong model. Each line changes one assumption by an "
        "amount that is the same for every log, and computes the difference again. The answer "
        "flips if the difference changes its sign. "
    )
    text += (
        f"These flip the answer within their range: {', '.join(e.title.lower() for e in turning)}."
        if turning
        else "Within these ranges, none flips the answer."
    )
    said = (each for each in found if each.flips_at is not None or each.name == "attention")
    notes = tuple(each.answer for each in said)
    figures = (figure,) if found.causes else ()
    return Section("sensitivity", title, (text,), figures=figures, notes=notes)


def clip_section(curve: "ClipCurve", system: str, *, evaluator: str, clip: float | None) -> Section:
    """What clipping of weights would change."""
    metric = words.metric_name(curve.metric)
    estimates = Curve(curve.clip, curve.value, curve.low, curve.high)
    clipped = [words.percent(share) for share in curve.clipped_share]
    description = (
        f"{metric} of {system} by clip: "
        f"{words.number(curve.value[0])} at {words.number(curve.clip[0])}, "
        f"{words.number(curve.value[-1])} at {words.number(curve.clip[-1])}."
    )
    caption = [f"Band: {curve.level:.0%} interval, which does not know about the bias of a clip."]
    caption += ["Dashed: the clip used."] if clip else []
    if curve.evaluator != evaluator:
        caption.append(
            f"This curve is by {words.evaluator_words(curve.evaluator)}, the answer by "
            f"{words.evaluator_words(evaluator)}, so the two can lie at different heights."
        )
    figure = curve_figure(
        "clip",
        f"{metric} of {system} by clip",
        {"estimate": estimates},
        y_title=f"{metric} per session",
        description=description,
        caption=caption,
        table=curve.table,
        decimals=4,
        x=XAxis("clip: what is smaller counts as this", "log"),
        from_zero=False,
        marked=clip or None,
        more={"clicks clipped": clipped},
    )
    used = f"The clip used here is {words.number(clip, 3)}. " if clip else ""
    text = (
        f"{used}Rarely examined positions get large weights. A clip caps them: less noise, but the "
        "estimate leans towards raw clicks. Where the curve is flat, the answer does not depend on "
        "the clip."
    )
    title = "Does the answer depend on a few heavy clicks?"
    return Section("clip", title, (text,), figures=(figure,), folded=True)


def null_section(tests: "NullTests", found: "SystemDifference") -> Section:
    """Null tests: what was tried, what should come out, and what did."""
    failed = {fact.code for fact in tests.failures(found)}
    decimals = words.decimals_for([found.interval])

    def signed(value: float) -> str:
        return words.number(value, decimals, signed=True)

    compared = (
        f"{tests.same_order_queries:,} of {words.count_of(tests.n_queries, 'query', 'queries')}"
    )
    permuted = signed(tests.permuted)
    if np.isfinite(tests.permuted_error):
        permuted += f" \u00b1 {words.number(tests.permuted_error, decimals)}"
    rows = (
        ("The order that was shown, against itself", "0",
         f"{signed(tests.same_order)} ({compared})", {"null.same-order"}),
        ("As large a difference with the names of the two orders drawn at random for each query",
         f"under {1 - tests.level:.0%} of the draws, if decided", words.percent(tests.relabelled_p),
         {"null.relabelled"}),
        ("Clicks that changed places within their position", "0", permuted, {"null.permuted"}),
        ("What the clip and the end of the curve alone make", "less than would decide",
         signed(tests.clipping_bias), {"null.lean"}),
    )  # fmt: skip
    text = (
        "Each line computes a difference that should be zero. If it is not, an assumption is "
        "broken, and there is no verdict."
    )
    return Section(
        "null-tests",
        "Would this log call the same order better?",
        (text,),
        tables=(
            Table(
                ("test", "should be", "found", ""),
                tuple((*row, "fails" if codes & failed else "passes") for *row, codes in rows),
                f"Null tests of {words.quoted(found.system)} against the {found.baseline}",
                text_columns=(0, 1, 3),
                marked=tuple(i for i, (*_, codes) in enumerate(rows) if codes & failed),
            ),
        ),
    )

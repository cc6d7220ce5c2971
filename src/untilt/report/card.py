"""The model card of a run's ranker: Markdown with a YAML header, as model hubs show it.

Everything in it comes from the figures of the run. Times, machine and paths are left out: the same
figures give the same bytes, and a card can be published.
"""

import math
from collections.abc import Iterable

from untilt import catalog
from untilt._core import words
from untilt._core.markdown import bullets, plain, table, yaml_text
from untilt._version import __version__
from untilt.errors import OptionError
from untilt.rankers.card import (
    FROM_CLICKS,
    LIMITS,
    MOST_FEATURES,
    TAGS,
    bias_table,
    header,
    how_to_use,
)
from untilt.report.decision import Answer, Decision, first_sentence
from untilt.report.step_results import HeldOut, Shipped, UsedBias

_LIMITS = (
    *LIMITS,
    "The estimate rests on clicks, not on human judgements of relevance: what makes people click "
    "and disappoints them later counts as good.",
    *FROM_CLICKS,
)
_KINDS = {
    "measured": "It was measured in this log, without a model of relevance.",
    "modelled": "It rests on a model of relevance: it is right only if the features explain what "
    "is relevant.",
    "given": "It was given to the run, not estimated by it.",
    "assumed": "**It is a guess**: this log cannot tell its position bias. Every corrected figure "
    "is as right as that guess.",
}


def model_card(decision: Decision) -> str:
    """The card of the ranker that a run leaves: data, method, bias, evaluation, limits.

    Markdown with the YAML header of the Hugging Face Hub, where it is the `README.md` of a model.
    `untilt.run` writes it to `ranker.md` beside `ranker.untilt`; for a folder of an earlier run,
    `model_card(Decision.load("results/figures.json"))`. Raises `OptionError` where the run trained
    no ranker.
    """
    shipped = decision.shipped
    if shipped is None:
        raise OptionError(
            "a model card is about a ranker, and these figures have none. Give those of a run on a "
            "log with features, which left a ranker.untilt."
        )
    parts = [
        _header(decision, shipped),
        f"# Ranker for {plain(decision.title)}",
        _verdict(decision),
        how_to_use("ranker.untilt"),
        "## Data",
        *_data(decision),
        "## Method",
        *_method(decision, shipped),
    ]
    if decision.bias is not None:
        parts += ["## Position bias", *_bias(decision.bias)]
    if decision.held_out is not None:
        parts += ["## Evaluation", *_evaluation(decision.held_out)]
    limits = [*_LIMITS, *map(words.sentence, decision.warnings)]
    parts += ["## Limits", bullets(limits), f"Made by untilt {__version__}."]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(decision: Decision, shipped: Shipped) -> str:
    """The YAML between two lines of dashes; the result in the terms of a hub's `model-index`."""
    lines: list[str] = []
    answer = decision.answer
    if answer is not None and math.isfinite(answer.new.value):
        lines = ["model-index:", f"- name: {yaml_text(decision.title)}", "  results:", "  - task:"]
        lines += ["      type: ranking", "      name: ranking by clicks", "    dataset:"]
        lines += [
            "      type: click-log",
            f"      name: {yaml_text(decision.title)}",
            "    metrics:",
        ]
        lines += [line for each in _metrics(answer) for line in each]
    return header((*TAGS, shipped.method), *lines)


def _metrics(answer: Answer) -> list[list[str]]:
    metric, gap, new = words.metric_name(answer.new.metric), answer.difference, answer.new
    known = [(f"{metric} per session", new.value, new.interval)]
    known.append((f"{metric} minus that of the {gap.baseline}", gap.value, gap.interval))
    named = [
        (f"{name}, {i.level:.0%} interval {i.low:.6g} to {i.high:.6g}", value)
        for name, value, i in known
        if math.isfinite(value)
    ]
    return [
        [
            f"    - type: {yaml_text(answer.new.metric)}",
            f"      name: {yaml_text(name)}",
            f"      value: {value:.6f}",
        ]
        for name, value in named
    ]


def _verdict(decision: Decision) -> str:
    answer = decision.answer
    if answer is None:
        return _sentences([decision.no_answer])
    told = _sentences([first_sentence(answer), answer.recommendation])
    reasons = bullets(map(words.sentence, answer.reasons))
    return f"{told}\n\n{reasons}" if reasons else told


def _data(decision: Decision) -> list[str]:
    rows: list[tuple[str, str]] = []
    audit, split, source = decision.audit, decision.split, decision.source
    if audit is not None:
        size = audit.size
        clicks = "clicks" if audit.label_name == "click" else f"sum of {audit.label_name}"
        counts = {
            "sessions": size.sessions, "queries": size.queries, "documents": size.documents,
            "impressions": size.impressions, clicks: size.clicks, "features": size.features,
            "deepest position": size.deepest_position,
        }  # fmt: skip
        rows += [(name, words.whole(n)) for name, n in counts.items()]
        rows.append(("sessions without a click", words.percent(audit.share_without_click)))
    if split is not None:
        held = "queries" if split.by == "query" else "sessions"
        parts = getattr(split, held)
        rows += [(f"{held}, {name}", words.whole(n)) for name, n in parts.items()]
    dropped = {} if source is None else source.dropped
    rows += [(f"rows left out: {rule}", words.whole(n)) for rule, n in dropped.items()]
    parts = [table(("of the click log", ""), rows)] if rows else []
    if decision.kept_out:
        named = ", ".join(map(plain, decision.kept_out))
        parts.append(f"Not used, because they know the click: {named}.")
    return parts


def _method(decision: Decision, shipped: Shipped) -> list[str]:
    training, plan, part = decision.training, decision.plan, decision.held_out
    best = None if training is None else training.best
    what = best.note if best is not None else ""
    if not what:
        what = next((e.note for e in catalog.methods() if e.name == shipped.method), "")
    trained = f"Trained on {words.count_of(shipped.queries, 'query', 'queries')}"
    told = [
        f"{shipped.method}{f': {what}' if what else ''}",
        f"{trained} with {words.count_of(shipped.sessions, 'session')}",
        f"{plan.trees} trees were asked for" if plan and isinstance(plan.trees, int) else None,
        shipped.note,
        None if shipped.learned is None else shipped.learned.reason,
        None if training is None else training.why,
    ]
    parts = [bullets(words.stopped(str(each)) for each in told if each)]
    if part is not None and part.importances:
        largest = list(part.importances.items())[:MOST_FEATURES]
        header = ("feature", f"share of the {part.importance_of or 'importance'}")
        parts.append(table(header, [(name, words.percent(share)) for name, share in largest]))
    return parts


def _bias(used: UsedBias) -> list[str]:
    """How much each position is looked at, with intervals; a pair of columns for each context."""
    bias = used.bias
    told = [f"Examination by position, by {bias.method}", used.why, used.context, used.sessions]
    unsure = "How far it is off is not known." if bias.estimated and not bias.has_interval else ""
    return [
        " ".join(part for part in (_sentences(told), _KINDS[used.kind], unsure) if part),
        *bias_table(bias, rest="in `bias.json`"),
    ]


def _evaluation(part: HeldOut) -> list[str]:
    metric, comparison = words.metric_name(part.comparison.metric), part.comparison
    better = "Higher" if comparison.higher_is_better else "Lower"
    of, level = part[part.chosen], f"{comparison.level:.0%} interval"
    gaps = {each.system: each for each in comparison}
    one = words.decimals_for(each.interval for each in part.estimates)
    two = words.decimals_for(each.interval for each in comparison)
    rows = []
    for each in part.estimates:
        name = f"{each.system} (chosen)" if each.system == part.chosen else each.system
        gap, cells = gaps.get(each.system), ("", "")
        if gap is not None:
            cells = (
                words.number(gap.value, two, signed=True),
                words.ends(gap.interval, two, signed=True),
            )
        own = (words.number(each.value, one), words.ends(each.interval, one))
        rows.append((name, *own, *cells))
    counted = words.metric_words(comparison.metric)
    told = [
        f"{metric} per session{f': {counted}' if counted else ''}. {better} is better",
        f"Estimated by {words.evaluator_words(part.evaluator)} on "
        f"{words.count_of(of.n_sessions, 'session')} of "
        f"{words.count_of(of.n_queries, 'query', 'queries')} that were held out; intervals are "
        "over queries",
        part.baseline,
        part.check,
    ]
    header = ("order", metric, level, f"minus the {comparison.baseline}", level)
    parts = [_sentences(told), table(header, rows)]
    if part.sensitivity is not None and part.sensitivity.causes:
        turns = [words.sentence(each.answer) for each in part.sensitivity.causes]
        parts += ["What would turn the answer:", bullets(turns)]
    return parts


def _sentences(told: Iterable[object]) -> str:
    return " ".join(plain(words.sentence(str(each))) for each in told if each)

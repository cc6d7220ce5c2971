"""The model card of a ranker alone: what it was trained on and how, and what is not known.

Everything in it comes from the ranker: the same ranker gives the same bytes. The card of a run
(`untilt.report.card`) also has the evaluation, which no ranker knows.
"""

import json
from dataclasses import replace
from inspect import signature
from typing import Any

from untilt import catalog
from untilt._core.markdown import plain, yaml_text
from untilt._version import __version__
from untilt.bias.contextual.curves import ContextualCurve
from untilt.bias.curve import PositionBias
from untilt.bias.given import as_examination, as_position_bias
from untilt.errors import OptionError
from untilt.views import Section, Table, markdown

MOST_POSITIONS, MOST_FEATURES, MOST_NAMES = 20, 10, 200
# A curve such as PowerLaw has no end: the first page of it is shown.
_SHOWN_OF_A_CURVE = 10
TAGS = ("learning-to-rank", "unbiased-learning-to-rank", "position-bias", "click-logs")
LIMITS = (
    "Scores order the documents of one query. They are no probabilities, and scores of different "
    "queries cannot be compared.",
    "Rows need the features that it was trained with, computed in the same way.",
)
FROM_CLICKS = (
    "Documents that were never shown have no clicks. How it ranks those is not judged here.",
)
_NOT_EVALUATED = (
    "None is known here: a ranker knows what it was trained on, not how good it is. "
    "`ut.estimate(log, ranker, bias)` gives its value on a click log and "
    "`ut.evaluate(judged, ranker)` on human labels, each with an interval. Both warn where it was "
    "trained on the same queries."
)
_COUNTS = {
    "clicks": ("queries", "documents", "sessions", "distinct_lists"),
    "judged lists": ("queries", "documents"),
}
_TOLD_APART = {"weighting", "bias", "n_threads"}  # the last is of a machine, not of the ranker


def ranker_card(ranker: Any, file: str) -> str:
    """Markdown with the YAML header of a model hub, about a fitted ranker saved as `file`."""
    summary = getattr(ranker, "summary_", {})
    clicks = summary.get("trained_on") == "clicks"
    sections = [_data(ranker, summary), _method(ranker, summary)]
    if clicks:
        sections.append(_bias(ranker))
    limits = (*LIMITS, *(FROM_CLICKS if clicks else ()))
    sections += [
        Section("evaluation", "Evaluation", (_NOT_EVALUATED,)),
        Section("limits", "Limits", notes=limits),
    ]
    parts = [
        header((*(TAGS if clicks else TAGS[:1]), _named(ranker)[0])),
        f"# {plain(type(ranker).__name__)}",
        how_to_use(file),
        markdown(sections),
        f"Made by untilt {__version__}.",
    ]
    return "\n\n".join(parts) + "\n"


def header(tags: tuple[str, ...], *more: str) -> str:
    """The YAML between two lines of dashes."""
    named = [f"- {yaml_text(tag)}" for tag in tags]
    return "\n".join(["---", "library_name: untilt", "tags:", *named, *more, "---"])


def how_to_use(file: str) -> str:
    """The part of a card that says how to score with the ranker."""
    return (
        "## How to use it\n\n```python\nimport untilt as ut\n\nranker = "
        f"ut.load({json.dumps(file)})\nscores = ranker.predict(features)   # columns in the order "
        "of ranker.feature_names_; a higher score ranks before a lower one\n```"
    )


def bias_section(bias: PositionBias, told: tuple[str, ...], rest: str) -> Section:
    """Examination by position with intervals, for each context where there are several."""
    curves = bias.contexts or {"": bias}
    depth = max(each.known_depth for each in curves.values())
    shown = min(depth, MOST_POSITIONS)
    relative = bias.relative and bias.examination[0] == 1
    told += ("Position 1 counts as 1.",) if relative else ()
    told += (f"Intervals are {bias.level:.0%} ones.",) if bias.has_interval else ()
    told += (f"Positions {shown + 1} to {depth} are {rest}.",) if shown < depth else ()
    tables = (replace(each.table(shown, name), bars=()) for name, each in curves.items())
    return Section("bias", "Position bias", told, tables=tuple(tables))


def _data(ranker: Any, summary: dict[str, Any]) -> Section:
    names = ranker.feature_names_
    rows = [("trained on", str(summary["trained_on"]))] if "trained_on" in summary else []
    counts = [each for each in _COUNTS.get(summary.get("trained_on", ""), ()) if each in summary]
    rows += [(each.replace("_", " "), f"{summary[each]:,}") for each in counts]
    valid = getattr(ranker, "validated_on_", None)
    rows += [("queries that decided when to stop", f"{len(valid):,}")] if valid is not None else []
    rows.append(("features", f"{len(names):,}"))
    more = len(names) - MOST_NAMES
    listed = ", ".join(names[:MOST_NAMES])
    rest = f", and {more:,} more: `ranker.feature_names_`" if more > 0 else ""
    told = f"Features, in their order: {listed}{rest}. {_missing(ranker.missing_)}"
    return Section("data", "Data", (told,), tables=(Table(("", ""), tuple(rows)),))


def _missing(missing: object) -> str:
    if missing is None:
        return "A missing value (NaN) is refused: training had none."
    if missing == "keep":
        return "A missing value (NaN) goes to the model as it is."
    return f"A missing value (NaN) counts as {missing}."


def _method(ranker: Any, summary: dict[str, Any]) -> Section:
    given = getattr(ranker, "weighting", None)
    told = []
    if isinstance(given, str):
        told.append(f"Weighting: {given}.")
    elif given is not None:
        told.append(
            "Weighting: " + ", ".join(filter(None, (*_named(given), _options(given)))) + "."
        )
    choice = getattr(ranker, "choice_", None)
    if choice is not None:
        told.append(f"Chosen: {choice.picked}, because {choice.reason}.")
    told.append(f"Options other than the defaults: {_options(ranker) or 'none'}.")
    told += [f"Training: {summary['status']}."] if summary.get("status") else []
    shares = getattr(ranker, "feature_importances_", {})
    largest = sorted(shares.items(), key=lambda each: -each[1])[:MOST_FEATURES]
    rows = tuple((name, f"{share:.1%}") for name, share in largest)
    tables = (Table(("feature", "share of the importance"), rows),) if rows else ()
    return Section("method", "Method", tables=tables, notes=tuple(told))


def _options(value: Any) -> str:
    """What a ranker or a weighting was made with, where it is not the default."""
    return ", ".join(
        f"{name}={held!r}"
        for name, each in signature(type(value)).parameters.items()
        if name not in _TOLD_APART
        and not _same(each.default, held := getattr(value, name, each.default))
    )


def _same(default: object, value: object) -> bool:
    return type(default) is type(value) and bool(default == value)


def _named(value: object) -> tuple[str, str]:
    """The name of a method and what it is; of a class of the user's own, its name."""
    try:
        record = catalog.record_of(value)
    except OptionError:
        return type(value).__name__, ""
    return record.name, record.note


def _bias(ranker: Any) -> Section:
    bias = _bias_of(ranker)
    if bias is None:
        weighting = getattr(ranker, "weighting", "")
        if weighting is None or _named(weighting)[0] == "clicks":
            told = "It was not corrected: clicks count as they are."
        else:
            told = "None is kept in this ranker."
        return Section("bias", "Position bias", (told,))
    kind = "It was estimated from clicks." if bias.estimated else "It was given, not estimated."
    return bias_section(
        bias, (f"Examination by position, by {bias.method}. {kind}",), "in the file"
    )


def _bias_of(ranker: Any) -> PositionBias | None:
    """The curve that it learned, or was given."""
    weighting = getattr(ranker, "weighting", None)
    held = (
        getattr(ranker, "bias_", None),
        getattr(weighting, "position_bias", None),
        getattr(ranker, "bias", None),
    )
    known = next((each for each in held if each is not None), None)
    if known is None:
        return None
    curve = as_examination(known.average() if isinstance(known, ContextualCurve) else known)
    depth = getattr(curve, "depth", _SHOWN_OF_A_CURVE)
    return as_position_bias(curve, depth)

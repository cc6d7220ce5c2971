"""`untilt audit`: what is in a click log, before anything is learned from it."""

from typing import TYPE_CHECKING, Any

import numpy as np

from untilt.cli.console import Output, speaking
from untilt.cli.options import AsJson, Verbose
from untilt.cli.rates import rates_record, rates_table
from untilt.cli.reading import (
    Columns,
    DocumentsPath,
    Features,
    Label,
    LogPath,
    Missing,
    OnBad,
    OnBadRows,
    read_click_log,
)

if TYPE_CHECKING:
    from untilt.logs.clicklog import ClickLog
    from untilt.logs.rates import ClickRates


def audit(
    log: LogPath,
    documents: DocumentsPath = None,
    column: Columns = None,
    label: Label = "click",
    features: Features = None,
    missing: Missing = None,
    on_bad: OnBadRows = OnBad.RAISE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Look at a click log: its size, who clicks where, and what is odd about it.

    The log has one row per shown document: query_id, session_id, doc_id, position, click.

    Example: [bold]untilt audit clicks.parquet --documents documents.parquet[/bold]

    Other column names: [bold]untilt audit log.csv --column query_id=search[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as out:
        read = read_click_log(
            out,
            log,
            documents=documents,
            columns=column,
            label=label,
            features=features,
            missing=missing,
            on_bad=on_bad,
        )
        _report(out, read)


def _report(out: Output, log: "ClickLog") -> None:
    size, rates = _size(log), log.ctr_by_position()
    oddities = _oddities(log, rates)
    out.record(**size, click_rates=rates_record(rates), **oddities)
    out.table(("", ""), [(name.replace("_", " "), f"{value:,}") for name, value in size.items()])
    what = f"{log.label_name} rate" if log.is_binary else f"mean {log.label_name}"
    out.heading(f"{what} by position (95% interval, clustered by query)")
    out.table(*rates_table(rates))
    out.heading("worth knowing")
    out.points(_sentences(log, oddities))


def _size(log: "ClickLog") -> dict[str, int]:
    return {
        "sessions": log.n_sessions,
        "distinct_lists": log.collapse().n_lists,
        "queries": log.n_queries,
        "documents": log.n_documents,
        "impressions": log.n_impressions,
        "deepest_position": log.depth,
        "features": log.n_features,
    }


def _oddities(log: "ClickLog", rates: "ClickRates") -> dict[str, Any]:
    return {
        "share_without_click": _share_without_click(log),
        "positions_without_click": rates.position[(rates.clicks == 0) & (rates.impressions > 0)],
        "positions_never_shown": rates.position[rates.impressions == 0],
        "rankers": log.ranker_names,
        "constant_features": _constant_features(log),
    }


def _share_without_click(log: "ClickLog") -> float:
    """Of the sessions, those in which nothing was clicked."""
    clicked = np.zeros(log.n_lists, dtype=bool)
    clicked[np.repeat(np.arange(log.n_lists), np.diff(log.indptr))[log.label > 0]] = True
    return float(log.sessions[~clicked].sum() / max(1, log.n_sessions))


def _constant_features(log: "ClickLog") -> list[str]:
    """Features with one value on all documents: no ranker can use them."""
    if log.features is None or len(log.features) == 0:
        return []
    constant = np.all(log.features == log.features[0], axis=0)
    return [name for name, same in zip(log.feature_names, constant, strict=True) if same]


def _sentences(log: "ClickLog", odd: dict[str, Any]) -> list[str]:
    found = [_no_click_sentence(odd["share_without_click"], log.label_name)]
    if len(odd["positions_without_click"]):
        found.append(
            f"Nobody clicked at position {_listed(odd['positions_without_click'])}: "
            "nothing can be learned about examination there."
        )
    if len(odd["positions_never_shown"]):
        found.append(f"No list shows position {_listed(odd['positions_never_shown'])}.")
    found.append(_rankers_sentence(odd["rankers"]))
    if not log.n_features:
        found.append("There are no features: the log can be measured, but no ranker trained on it.")
    if odd["constant_features"]:
        found.append(f"Features with a single value: {_listed(odd['constant_features'])}.")
    return found


def _no_click_sentence(share: float, label: str) -> str:
    if share == 0:
        return f"Every session has a {label}: those without may have been left out of this log."
    return f"{share:.1%} of the sessions have no {label}."


def _rankers_sentence(rankers: tuple[str, ...]) -> str:
    if not rankers:
        return "The log does not say which ranker made a list (column `ranker`)."
    noun = "ranker" if len(rankers) == 1 else "rankers"
    return f"Lists come from {len(rankers)} {noun}: {_listed(rankers)}."


def _listed(values: Any, *, most: int = 10) -> str:
    """The first of the values, and how many more there are."""
    shown = ", ".join(str(value) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most:,} more"

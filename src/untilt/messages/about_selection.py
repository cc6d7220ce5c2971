"""Searches: which curve candidates are judged by, and whether another one fits better."""

from untilt.facts import Message


def _chosen(*, curve: str, worse: tuple[str, ...]) -> str:
    others = f"; clearly worse: {', '.join(worse)}" if worse else "; the others are within noise"
    return f"judged by the curve {curve}, which fits the held-out clicks best{others}"


MESSAGES = {
    "selection.curve-chosen": Message("note", _chosen),
    "selection.curves-untold": Message(
        "warning",
        "judged by the curve {curve}, the first one given: {n_clicks:,.0f} held-out clicks on "
        "documents shown at several positions are too few to choose between curves",
    ),
    "selection.curve-fits-worse": Message(
        "serious",
        "the curve that candidates are judged by fits the held-out clicks worse than that of "
        "{candidate}, by {gap:.4f} +- {std_error:.4f} log-likelihood per click; power {power:.2f} "
        "of it would fit best. Estimate the curve from this log: `untilt bias`",
    ),
}

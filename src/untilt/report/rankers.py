"""Sections about rankers: the choice, what they move, which features they use, what changes."""

from collections.abc import Mapping

from untilt._core import words
from untilt.auditing.audit import Audit
from untilt.charts.curves import Curve
from untilt.charts.figures import curve_figure, share_figure
from untilt.evaluation.estimate_view import difference_figure
from untilt.report.evidence import cut_of, drawn_depth
from untilt.report.step_results import (
    ChangedQuery,
    Learned,
    MovedDocument,
    NewPositions,
    Training,
    TreeValues,
)
from untilt.views import Figure, Section, Table

MOST_FEATURES = 20


def choice_section(training: Training) -> Section | None:
    """Why this ranker: paired differences to the default, where rankers are chosen."""
    if training.why is None:
        return None
    comparison, default = training.comparison, training.default
    return Section(
        "choice",
        "Why this ranker was chosen",
        (
            "A candidate takes the place of the default where it is better by two standard errors "
            "of the paired difference, corrected for how many are tried. Otherwise the default is "
            "kept: the largest of several uncertain values is often only luck.",
            training.why,
        ),
        figures=()
        if comparison is None
        else (
            difference_figure(
                comparison, training.chosen, name="choice", baseline=f"the default, {default}"
            ),
        ),
    )


def moved_section(moved: Mapping[str, NewPositions], audit: Audit | None = None) -> Section:
    """Average new position by old position; on the diagonal nothing moves."""
    deepest = max(len(each.position) for each in moved.values())
    depth = drawn_depth(audit, deepest)
    curves = {
        n: Curve(each.position, each.value, each.low, each.high).down_to(depth)
        for n, each in moved.items()
    }
    ends = {name: (curve.points()[0], curve.points()[-1]) for name, curve in curves.items()}
    description = "Average new position by old position. " + " ".join(
        f"{name}: what stood at position {first[0]:g} stands at {words.number(first[1], 1)}, "
        f"what stood at {last[0]:g} at {words.number(last[1], 1)}."
        for name, (first, last) in ends.items()
    )
    figure = curve_figure(
        "moved",
        "Average new position of what stood at each position",
        curves,
        y_title="new position",
        x_title="old position",
        description=description,
        caption=(
            "Dashed: nothing moves. The flatter a curve, the more a ranker reorders.",
            cut_of(audit),
        ),
        decimals=2,
        from_zero=False,
        diagonal=True,
    )
    text = (
        "A ranker that takes clicks as they are tends to repeat the order that was shown, so its "
        "curve stays near the diagonal. One that corrects for position is free to move documents."
    )
    return Section("moved", "What moves where", (text,), figures=(figure,))


def importance_section(shares: Mapping[str, float], of: str) -> Section:
    """The largest ones as bars; all that are known in the table."""
    drawn = dict(list(shares.items())[:MOST_FEATURES])
    first = ", ".join(f"{name} ({words.percent(drawn[name], 0)})" for name in list(drawn)[:3])
    rest = len(shares) - len(drawn)
    description = f"Share of each feature{f' in the {of}' if of else ''}: {first} lead."
    caption = [f"Importance is the {of}."] if of else []
    caption += [f"{words.count_of(rest, 'smaller one')} in the table."] if rest else []
    rows = tuple((name, words.percent(each)) for name, each in shares.items())
    figure = share_figure(
        "importance",
        "Features by importance",
        drawn,
        value_title="share of all features",
        description=description,
        table=Table(("feature", "share"), rows),
        caption=caption,
    )
    title = "What the chosen ranker looks at"
    return Section("importance", title, (f"Most important: {first}.",), figures=(figure,))


def changed_section(changed: tuple[ChangedQuery, ...]) -> Section:
    """One table a query, in the new order, the first one open."""
    text = (
        "Someone who knows the queries sees here whether the new order looks right. The change is "
        " the sum over documents of how much 1/log2(1 + position) changes."
    )
    tables = tuple(_query_table(query, opened=i == 0) for i, query in enumerate(changed))
    return Section("changed", "Queries whose order changes most", (text,), tables=tables)


def _query_table(query: ChangedQuery, *, opened: bool) -> Table:
    labelled = any(document.label is not None for document in query.documents)
    clicked = any(document.clicks is not None for document in query.documents)
    header = ["document", "new", "old", "moves"]
    header += ["clicks", "shown"] if clicked else []
    header += ["label"] if labelled else []
    rows = tuple(_document_row(d, clicked, labelled) for d in query.documents)
    parts = [f"Query {words.quoted(query.query)}"]
    if query.sessions is not None:
        parts.append(words.count_of(query.sessions, "session"))
    if query.change is not None:
        parts.append(f"change {words.number(query.change, 1)}")
    return Table(tuple(header), rows, " \u00b7 ".join(parts), folded=True, opened=opened)


def _document_row(document: MovedDocument, clicked: bool, labelled: bool) -> tuple[str, ...]:
    old = document.old_position
    cells = [document.document, f"{document.new_position:g}"]
    if old is None:
        cells += ["not shown", ""]
    else:
        cells += [
            words.number(old, 0 if old == round(old) else 1),
            _arrow(old - document.new_position),
        ]
    cells += [words.whole(document.clicks), words.whole(document.impressions)] if clicked else []
    cells += [words.number(document.label, 0)] if labelled else []
    return tuple(cells)


def _arrow(positions_up: float) -> str:
    """Up or down by how many positions, with an arrow so that no colour is needed."""
    if abs(positions_up) < 0.5:
        return "="
    return f"{chr(0x2191) if positions_up > 0 else chr(0x2193)} {abs(positions_up):.0f}"


# What the learner's symbols mean (docs/methods/auto.md has the formulas).
MEANINGS = {
    "b": "weight of the old ranker (b)",
    "k": "weight of what clicks say (k)",
    "b0": "weight of the old ranker alone (b0)",
    "kappa": "change of k where nobody was shown (kappa)",
    "v": "spread of documents that features leave (v)",
    "s2": "spread of queries (s2)",
    "unshown": "never shown",
    "rho of shown": "chance to be shown, of those shown",
    "rho of unshown": "chance to be shown, of the others",
}


def learner_section(found: Learned) -> Section:
    """Weights of the parts, trees by held-out queries, and documents that nobody was shown."""
    tried = {name: each for name, each in found.trees.items() if len(each.trees) > 1}
    tables = (_stacking(found), _support(found))
    told = (found.reason, found.curve)
    return Section(
        "learner",
        "What the learner saw",
        (
            "The ranker has several parts: what clicks say of documents, with the bias taken out, "
            "and what the old ranker knew. Clicks on queries that a part was not trained on say "
            "how much it counts and how many trees it has.",
        ),
        figures=(_weights(found), *([_trees(tried)] if tried else [])),
        small_tables=tuple(table for table in tables if table.rows),
        notes=tuple(each for each in told if each),
    )


def _weights(found: Learned) -> Figure:
    shares = dict(sorted(found.weights.items(), key=lambda item: -item[1]))
    rows = tuple((name, words.percent(each, 0)) for name, each in shares.items())
    description = "Share of each part in the score: " + ", ".join(
        f"{name} {share}" for name, share in rows
    )
    return share_figure(
        "learner-parts",
        "Parts of the score",
        shares,
        value_title="share of the score",
        description=description,
        table=Table(("part", "share"), rows),
        caption=(
            "A part counts by the spread that it gives to the scores of the log's documents.",
        ),
    )


def _trees(tried: dict[str, TreeValues]) -> Figure:
    """What each part has gained on held-out queries, as a share of the most that it gains."""
    curves = {name: Curve(list(each.trees), _gained(each)) for name, each in tried.items()}
    taken = "; ".join(f"{name}: {each.best:,}" for name, each in tried.items())
    return curve_figure(
        "learner-trees",
        "Gain on held-out queries by the number of trees",
        curves,
        y_title="share of the most gained",
        description=f"Gain on held-out queries by the number of trees. Taken: {taken}.",
        caption=(f"1 is the best number of trees of each part. Taken: {taken}.",),
        x_title="trees",
        from_zero=False,
    )


def _gained(tried: TreeValues) -> list[float]:
    first, best = tried.values[0], max(tried.values)
    return [(value - first) / ((best - first) or 1.0) for value in tried.values]


def _stacking(found: Learned) -> Table:
    rows = tuple(
        (MEANINGS.get(name, name), words.number(each, 3)) for name, each in found.stacking.items()
    )
    return Table(("what", "value"), rows, "What held-out clicks say of the parts")


def _support(found: Learned) -> Table:
    rows = tuple(
        (MEANINGS.get(name, name), words.whole(each) if each > 1 else words.number(each, 2))
        for name, each in found.support.items()
    )
    return Table(("documents", "number"), rows, "Shown and never shown")

"""The section about what a learner of many parts saw in the log."""

from untilt.charts.curves import Curve
from untilt.charts.intervals import bars_chart
from untilt.charts.theme import PAGE
from untilt.report.page import words
from untilt.report.page.evidence import curve_figure
from untilt.report.page.words import Figure, Section, Table, specification
from untilt.report.step_results import Learned, TreeValues

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
        notes=tuple(words.sentence(each) for each in told if each),
    )


def _weights(found: Learned) -> Figure:
    shares = dict(sorted(found.weights.items(), key=lambda item: -item[1]))
    rows = tuple((name, words.percent(each, 0)) for name, each in shares.items())
    description = "Share of each part in the score: " + ", ".join(
        f"{name} {share}" for name, share in rows
    )
    return Figure(
        "learner-parts",
        "Parts of the score",
        specification(
            bars_chart(shares, value_title="share of the score", theme=PAGE), description
        ),
        description,
        Table(("part", "share"), rows),
        "A part counts by the spread that it gives to the scores of the log's documents.",
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
        caption=f"1 is the best number of trees of each part. Taken: {taken}.",
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

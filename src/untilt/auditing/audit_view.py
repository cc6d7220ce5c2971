"""What an audit looks like: the same sections in a terminal, a notebook and the report of a run."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from untilt._core import words
from untilt.auditing.reading import ReadingTests
from untilt.charts.curves import Curve
from untilt.charts.figures import (
    curve_figure,
    interval_figure,
    range_words,
)
from untilt.charts.graph import graph_chart, positions_words
from untilt.charts.intervals import Bar
from untilt.charts.theme import PAGE
from untilt.views import Figure, Section, Table, Tile

if TYPE_CHECKING:
    from untilt.auditing.audit import Audit
    from untilt.data.counts import ClickRates

MOST_PAIRS = 12  # of positions that text lists


def sections_of(audit: "Audit") -> list[Section]:
    """What to do first, then what it rests on."""
    tests = audit.reading
    read = () if tests is None else tests.facts
    warnings = tuple(each for each in audit.warnings if each not in read)
    sections = (
        Section("what-to-do", "What to do", notes=audit.next_steps),
        log_section(audit),
        Section("positions", "Clicks by position", figures=(click_rate_figure(audit.click_rates),)),
        comparable_section(audit),
        None if tests is None else reading_section(tests, audit.click_rates.level),
        Section("warnings", "Warnings", cautions=warnings) if warnings else None,
    )
    return [each for each in sections if each is not None]


def log_section(audit: "Audit") -> Section:
    """Counts of everything, and what is worth knowing."""
    size, label = audit.size, audit.label_name
    per_session = words.number(size.clicks / size.sessions, 2)
    features = (
        f"{words.count_of(size.features, 'feature')} each" if size.features else "without features"
    )
    lists = f"with {words.count_of(size.distinct_lists, 'different list')}"
    tiles = (
        Tile("Sessions", words.whole(size.sessions), lists),
        Tile("Impressions", words.whole(size.impressions)),
        Tile("Clicks" if label == "click" else f"Sum of {label}", words.whole(size.clicks),
             f"{per_session} per session"),
        Tile("Queries", words.whole(size.queries)),
        Tile("Documents", words.whole(size.documents), features),
        Tile("Deepest position", words.whole(size.deepest_position)),
        Tile("Without a click", words.percent(audit.share_without_click), "of the sessions"),
    )  # fmt: skip
    rankers = count_table("Sessions by ranker", "made the list", "sessions", audit.rankers)
    return Section(
        "log",
        "What the log looks like",
        tiles=tiles,
        small_tables=(rankers,) if rankers.rows else (),
        notes=audit.notes,
    )


def count_table(caption: str, what: str, unit: str, counts: Mapping[str, int]) -> Table:
    """Names with how many there are of each."""
    rows = tuple((name, words.whole(n)) for name, n in counts.items())
    return Table((what, unit), rows, caption)


def click_rate_figure(rates: "ClickRates") -> Figure:
    """Clicks per impression by position, down to where clicks end."""
    curve = Curve(rates.position, rates.rate, rates.low, rates.high).down_to(rates.drawn_depth)
    clicks = {"click rate": curve}
    caption = f"All sessions; {rates.level:.0%} intervals, clustered by query."
    return curve_figure(
        "click-rate",
        "Click rate",
        clicks,
        y_title="clicks per impression",
        description=f"Click rate by position. {range_words(clicks, percent_values=True)}",
        caption=(caption, rates.not_drawn),
        table=rates.table(),
        decimals=4,
        in_text=rates.view()[0].title,
    )


def comparable_section(audit: "Audit") -> Section:
    """Which positions share documents, so that their clicks can be compared."""
    graph = audit.graph.top(audit.click_rates.drawn_depth)
    shown = [k for part in graph.components for k in part]
    pieces = "; ".join(positions_words(part) for part in graph.components)
    edges = sorted(graph.edges, key=lambda edge: -edge.weight)
    description = (
        f"Positions {positions_words(shown)} with {words.count_of(len(edges), 'link')} between "
        f"positions that showed the same documents. Groups joined: {pieces or 'none'}."
    )
    dashed = " Dashed: swaps that would join the groups." if graph.swaps else ""
    cut = audit.click_rates.not_drawn
    figure = Figure(
        "graph",
        "An arc joins positions that showed the same documents",
        partial(graph_chart, graph, theme=PAGE),
        description,
        Table(
            ("positions", "shared documents", "evidence"),
            _pair_rows(
                (e.upper, e.lower, words.whole(e.documents), words.whole(e.weight)) for e in edges
            ),
            most=MOST_PAIRS,
        ),
        (f"A wider arc carries more evidence.{dashed}", *([] if cut is None else [cut])),
        in_text="Positions that showed the same documents, the strongest evidence first",
    )
    swaps = Table(
        ("positions", "clicks lost per swap at most"),
        _pair_rows((s.upper, s.lower, words.number(s.most_lost, 4)) for s in graph.swaps),
        "Swaps that would join the groups",
    )
    return Section(
        "comparable",
        "Can the positions be compared?",
        paragraphs=(audit.verdict,),
        figures=(figure,) if shown else (),
        tables=(swaps,) if graph.swaps else (),
    )


def _pair_rows(pairs: Iterable[tuple[int, int, *tuple[str, ...]]]) -> tuple[tuple[str, ...], ...]:
    return tuple((f"{upper} and {lower}", *rest) for upper, lower, *rest in pairs)


def reading_section(tests: ReadingTests, level: float) -> Section | None:
    """Whether people read as the position-based model says; None where nothing is known of it."""
    if not tests.tests and not tests.untested:
        return None
    return Section(
        "reading",
        "Does the position-based model fit?",
        paragraphs=(
            "The position-based model: people click what they look at and find relevant, and "
            "whether they look depends on the position alone. If the model is wrong, these tests "
            "show it.",
        ),
        figures=(_reading_figure(tests, level),) if tests.tests else (),
        notes=tests.notes,
        cautions=tests.facts,
    )


def _reading_figure(tests: ReadingTests, level: float) -> Figure:
    rows = tuple((*row, "fails" if test.fails else "fits") for row, test in tests.named())
    return interval_figure(
        "reading",
        "Ratios of click rates that are 1 where the model is right",
        {
            row[0]: Bar(test.ratio, test.low, test.high, f"{test.ratio:.2f}", test.fails)
            for row, test in tests.named()
        },
        value_title="ratio of click rates",
        at=1.0,
        value_format=".2f",
        description="Ratios of click rates, 1 where the model is right: "
        + "; ".join(f"{name} {ratio}, p {p}, {said}" for name, ratio, p, said in rows),
        table=Table(("compared", "ratio", "p-value", "model"), rows, text_columns=(0, 3)),
        caption=(f"Bar: {level:.0%} interval. p: of all comparisons together.",),
    )

"""One look at a log as a page in the style of the report, and as figures for Prometheus."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from untilt._core.words import number, percent, sentence, whole
from untilt.charts.curves import Curve
from untilt.charts.figures import curve_figure
from untilt.serving.shared import exposition
from untilt.views import Figure, Section, Table, Tile

if TYPE_CHECKING:
    from untilt.report.page import AnswerView
    from untilt.serving.watch import Watch

T = TypeVar("T")


def sections_of(found: "Watch") -> list[Section]:
    """Alarms or none, and what they rest on."""
    first, second = _told(found)
    notes = () if found.alarms else (second,)
    heading = "Alarm" if found.alarms else "No alarm"
    answer = Section(
        "answer", heading, (first,), tiles=_tiles(found), notes=notes, cautions=found.alarms
    )
    return [answer, *_sections(found)]


def watch_page(found: "Watch", *, title: str = "Has anything changed?") -> str:
    """The whole page as text; it fetches nothing."""
    from untilt.report.page import rendered

    now = found.periods[-1]
    about = f"{whole(now.n_sessions)} sessions from {_time(now.start)} to {_time(now.end)}"
    sections = list(_sections(found))
    return rendered(title, "Watching a log", _answer(found), sections, about=about)


def _told(found: "Watch") -> tuple[str, str]:
    """What happened, and what to do."""
    n = len(found.alarms)
    if not n:
        return (
            "Nothing changed by more than chance explains.",
            "The ranker and its position bias may stay.",
        )
    return f"{n} alarm{'s' * (n > 1)}: the log has changed.", found.alarms[0]


def _time(time: Any) -> str:
    """To the second."""
    is_date = isinstance(time, np.datetime64)
    return str(time.astype("datetime64[s]")) if is_date else f"{time:g}"


def _by_period(found: "Watch", values: Sequence[T]) -> dict[str, T]:
    """Under the names of the periods."""
    last = len(found.periods)
    return {"now" if i == last else f"period {i}": each for i, each in enumerate(values, 1)}


def _tiles(found: "Watch") -> tuple[Tile, ...]:
    return (
        Tile("Sessions now", whole(found.periods[-1].n_sessions), "in the last period"),
        Tile("Never shown before", percent(found.unseen_documents), "of what is shown now"),
        Tile("Never asked before", percent(found.unseen_queries), "of the sessions now"),
    )


def _answer(found: "Watch") -> "AnswerView":
    from untilt.report.page import AnswerView

    first, second = _told(found)
    return AnswerView(
        verdict="better" if found.is_quiet else "worse",
        mark="\u25cf" if found.is_quiet else "\u25bc",
        word="Quiet" if found.is_quiet else "Alarm",
        first=first,
        second=sentence(second),
        reasons=tuple(map(sentence, found.alarms[1:])),
        tiles=_tiles(found),
        strip=None,
        small_print=(
            f"All tests of one look together raise a false alarm on an unchanging log with "
            f"probability {percent(1 - found.level)} at most; a comparison of live rankers does so "
            "over all looks together."
        ),
    )


def _sections(found: "Watch") -> Iterator[Section]:
    sections = (_live(found), _reading(found), _tests(found), _clicks(found), _curves(found))
    yield from (each for each in (*sections, _features(found)) if each is not None)
    if found.notes:
        yield Section("notes", "Notes", notes=found.notes)


def _figure(
    name: str, title: str, curves: dict[str, Curve], axis: str, caption: str, **more: Any
) -> Figure:
    rows = tuple(
        (each, f"{x:g}", *(number(v, 4) for v in (value, low, high)))
        for each, curve in reversed(curves.items())
        for x, value, low, high in curve.points()
    )
    latest = len(list(curves.values())[-1].points())
    description = f"{title}: " + "; ".join(f"{r[0]}, position {r[1]}: {r[2]}" for r in rows[:40])
    return curve_figure(
        name, title, curves, y_title=axis, description=description, caption=(caption,), decimals=4,
        table=Table(("", "position", axis, "low", "high"), rows, most=latest), **more,
    )  # fmt: skip


def _reading(found: "Watch") -> Section | None:
    if found.reading is None:
        return None
    curve = found.reading
    drawn = Curve(curve.position, curve.ratio, curve.low, curve.high)
    figure = _figure(
        "reading", "Examination now over before, relative to position 1", {"ratio": drawn},
        "ratio", f"Band: {found.level:.0%} interval over queries. 1: people read as before.",
        level=1.0,
    )  # fmt: skip
    text = (
        "From documents at the same position before and now. Where the ratio differs from 1, "
        "examination of the position has changed."
    )
    return Section("reading", "Do people read as before?", (text,), figures=(figure,))


def _tests(found: "Watch") -> Section | None:
    if not found.changes:
        return None
    rows = tuple(
        (
            f"whether {each.asks}",
            number(each.ratio, 3),
            f"{number(each.low, 3)} to {number(each.high, 3)}",
            f"{each.adjusted:.2g}",
        )
        for each in found.changes
    )
    marked = tuple(i for i, each in enumerate(found.changes) if each.adjusted < 1 - found.level)
    table = Table(("tested", "ratio", "interval", "p"), rows, marked=marked)
    text = (
        "Ratios of now to before, 1 where nothing changed; p for all tests of this look together."
    )
    return Section("tests", "What was tested", (text,), tables=(table,))


def _clicks(found: "Watch") -> Section:
    periods = _by_period(found, found.periods)
    curves = {
        name: Curve(each.rates.position, each.rates.rate, each.rates.low, each.rates.high).down_to(
            each.rates.drawn_depth
        )
        for name, each in periods.items()
    }
    figure = _figure("clicks", "Click rate by position", curves, "clicks per impression",
                     "Bands: 95% intervals, clustered by query.")  # fmt: skip
    rows = tuple(
        (name, _time(p.start), _time(p.end), whole(p.n_sessions)) for name, p in periods.items()
    )
    table = Table(("", "from", "to", "sessions"), rows, text_columns=(0, 1, 2))
    return Section("clicks", "Clicks by period", figures=(figure,), tables=(table,))


def _curves(found: "Watch") -> Section | None:
    known = {name: each for name, each in _by_period(found, found.curves).items() if each}
    if not known:
        return None
    curves = {name: each.drawn_curve() for name, each in known.items()}
    method = next(iter(known.values())).method
    figure = _figure("examination", "Examination by period", curves, "relative to position 1",
                     f"Estimated by {method} separately in each period.")  # fmt: skip
    return Section("examination", "The curve of examination", figures=(figure,))


def _features(found: "Watch") -> Section | None:
    if not found.features:
        return None
    rows = tuple((e.feature, number(e.index, 3), f"{e.p_value:.2g}") for e in found.features[:50])
    text = "Stability index of the values that were shown: 0.1 is small, 0.25 is large."
    table = Table(("feature", "index", "p"), rows, most=5)
    return Section("features", "Values of features", (text,), tables=(table,))


def _live(found: "Watch") -> Section | None:
    live = found.live
    if live is None:
        return None
    tables: tuple[Table, ...] = ()
    if live.first_clicks is not None:
        rows = tuple(
            (f"the top {e.top}", percent(e.new), percent(e.old), f"{e.increase:+.1%}",
             f"{e.interval.low:+.1%} to {e.interval.high:+.1%}", f"{e.p_value:.2g}")
            for e in live.first_clicks
        )  # fmt: skip
        tables = (Table(("first click in", live.new, live.old, "change", "interval", "p"), rows),)
    if live.interleaved is not None:
        counts = live.interleaved.sessions
        won = {f"won by {live.new}": counts.win, "neither": counts.same}
        won[f"won by {live.old}"] = counts.loss
        tables = (Table(("sessions", ""), tuple((name, whole(n)) for name, n in won.items())),)
    return Section("live", "New ranker against old", (sentence(live.fact),), tables=tables)


def prometheus_text(found: "Watch") -> str:
    """The figures in Prometheus' text format, for its node exporter's folder of text files."""

    def by(label: str, values: Iterable[tuple[Any, Any]]) -> dict[str, float]:
        return {f'{{{label}="{_escaped(f"{key}")}"}}': float(value) for key, value in values}

    now, curve, live = found.periods[-1], found.reading, found.live
    codes = {each.code.partition(".")[2] for each in found.alarms}
    kinds = ("reading", "clicks", "documents", "features", "unseen", "new-worse")
    changes = () if live is None or live.first_clicks is None else live.first_clicks
    ends = {
        f'{{top="{e.top}",end="{end}"}}': value
        for e in changes
        for end, value in (
            ("value", e.increase), ("low", e.interval.low), ("high", e.interval.high),
        )
    }  # fmt: skip
    gauges = (
        ("alarms", "Alarms of the last look.", {"": len(found.alarms)}),
        ("alarm", "1 where there is this alarm.", by("kind", ((k, k in codes) for k in kinds))),
        ("sessions", "Sessions of the last period.", {"": now.n_sessions}),
        ("unseen_documents_ratio", "Share of what is shown that was never shown before.",
         {"": found.unseen_documents}),
        ("unseen_queries_ratio", "Share of sessions whose query is new.",
         {"": found.unseen_queries}),
        ("p_value", "P-value of no change, for all tests together.",
         by("asks", ((each.asks, each.adjusted) for each in found.changes))),
        ("click_rate", "Clicks per impression in the last period.",
         by("position", zip(now.rates.position[:20], now.rates.rate[:20], strict=True))),
        ("examination_ratio", "Examination now over before, relative to position 1.",
         {} if curve is None
         else by("position", zip(curve.position[:20], curve.ratio[:20], strict=True))),
        ("feature_stability_index", "How far the values of a feature moved.",
         by("feature", ((each.feature, each.index) for each in found.features))),
        ("first_click_change", "Relative change of first clicks, new against old.", ends),
    )  # fmt: skip
    return exposition(
        (f"untilt_watch_{name}", "gauge", text, known)
        for name, text, values in gauges
        if (known := {labels: value for labels, value in values.items() if math.isfinite(value)})
    )


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

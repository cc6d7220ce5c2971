"""One look at a log as a page in the style of the report, and as figures for Prometheus."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from untilt._core.words import number, percent, sentence, whole
from untilt.charts.curves import Curve
from untilt.charts.figures import curve_figure
from untilt.views import Figure, Section, Table, Tile

if TYPE_CHECKING:
    from untilt.report.page import AnswerView
    from untilt.serving.watch import Watch


def sections_of(found: "Watch") -> list[Section]:
    """Alarms or none, and what they rest on."""
    first, second = _told(found)
    answer = Section(
        "answer",
        "Alarm" if found.alarms else "No alarm",
        (first,),
        tiles=_tiles(found),
        notes=() if found.alarms else (second,),
        cautions=found.alarms,
    )
    return [answer, *_sections(found)]


def watch_page(found: "Watch", *, title: str = "Has anything changed?") -> str:
    """The whole page as text; it fetches nothing."""
    from untilt.report.page import rendered

    sections = list(_sections(found))
    return rendered(title, "Watching a log", _answer(found), sections, about=_about(found))


def _about(found: "Watch") -> str:
    now = found.periods[-1]
    return f"{whole(now.n_sessions)} sessions from {now.start_text} to {now.end_text}"


def _told(found: "Watch") -> tuple[str, str]:
    """What happened, and what to do."""
    n = len(found.alarms)
    if not n:
        return (
            "Nothing changed by more than chance explains.",
            "The ranker and its position bias may stay.",
        )
    return f"{n} alarm{'s' * (n > 1)}: this log is no longer what it was.", found.alarms[0]


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
        "From documents that stood at the same position before and now. How often people look at a "
        "position has changed where the ratio leaves 1."
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
    curves = {}
    for place, period in enumerate(found.periods, 1):
        rates = period.rates
        name = f"period {place}" if place < len(found.periods) else "now"
        curve = Curve(rates.position, rates.rate, rates.low, rates.high)
        curves[name] = curve.down_to(rates.drawn_depth)
    figure = _figure("clicks", "Click rate by position", curves, "clicks per impression",
                     "Bands: 95% intervals, clustered by query.")  # fmt: skip
    rows = tuple(
        (
            f"period {i}" if i < len(found.periods) else "now",
            p.start_text,
            p.end_text,
            whole(p.n_sessions),
        )
        for i, p in enumerate(found.periods, 1)
    )
    table = Table(("", "from", "to", "sessions"), rows, text_columns=(0, 1, 2))
    return Section("clicks", "Clicks by period", figures=(figure,), tables=(table,))


def _curves(found: "Watch") -> Section | None:
    known = [(i, each) for i, each in enumerate(found.curves, 1) if each is not None]
    if not known:
        return None
    curves = {
        f"period {i}" if i < len(found.periods) else "now": each.drawn_curve() for i, each in known
    }
    figure = _figure("examination", "Examination by period", curves, "relative to position 1",
                     f"Estimated by {known[0][1].method} in each period by itself.")  # fmt: skip
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
    lines: list[str] = []

    def gauge(name: str, help: str, values: dict[str, float]) -> None:
        known = {labels: value for labels, value in values.items() if math.isfinite(value)}
        if known:
            lines.extend(
                [f"# HELP untilt_watch_{name} {help}", f"# TYPE untilt_watch_{name} gauge"]
            )
            lines.extend(
                f"untilt_watch_{name}{labels} {value:.10g}" for labels, value in known.items()
            )

    gauge("alarms", "Alarms of the last look.", {"": float(len(found.alarms))})
    codes = {each.code.partition(".")[2] for each in found.alarms}
    known = ("reading", "clicks", "documents", "features", "unseen", "new-worse")
    gauge("alarm", "1 where there is this alarm.",
          {f'{{kind="{kind}"}}': float(kind in codes) for kind in known})  # fmt: skip
    gauge("sessions", "Sessions of the last period.", {"": float(found.periods[-1].n_sessions)})
    gauge(
        "unseen_documents_ratio",
        "Of what is shown, never shown before.",
        {"": found.unseen_documents},
    )
    gauge(
        "unseen_queries_ratio", "Of sessions, query never asked before.", {"": found.unseen_queries}
    )
    gauge("p_value", "Of no change, for all tests together.",
          {f'{{asks="{each.asks}"}}': each.adjusted for each in found.changes})  # fmt: skip
    now = found.periods[-1].rates
    gauge("click_rate", "Clicks per impression in the last period.", {
        f'{{position="{k}"}}': float(rate)
        for k, rate in zip(now.position[:20], now.rate[:20], strict=True)
    })  # fmt: skip
    if found.reading is not None:
        gauge("examination_ratio", "Examination now over before, relative to position 1.", {
            f'{{position="{k}"}}': float(ratio)
            for k, ratio in zip(found.reading.position[:20], found.reading.ratio[:20], strict=True)
        })  # fmt: skip
    gauge("feature_stability_index", "How far the values of a feature moved.",
          {f'{{feature="{_escaped(e.feature)}"}}': e.index for e in found.features})  # fmt: skip
    if found.live is not None and found.live.first_clicks is not None:
        change = {
            f'{{top="{e.top}",end="{end}"}}': value
            for e in found.live.first_clicks
            for end, value in (
                ("value", e.increase), ("low", e.interval.low), ("high", e.interval.high),
            )
        }  # fmt: skip
        gauge("first_click_change", "Relative change of first clicks, new against old.", change)
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

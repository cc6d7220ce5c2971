"""The sections of a page, in the order a decision needs them. What has no data has no section."""

from collections.abc import Mapping, Sequence

from untilt.report.decision import Decision, HowComputed, HowSure, LogShape, Step
from untilt.report.page.evidence import (
    clip_section,
    identifiability_section,
    pair_bias_section,
    position_section,
)
from untilt.report.page.parts import Fact, Section, Table
from untilt.report.page.rankers import (
    changed_section,
    importance_section,
    moved_section,
    rankers_section,
)
from untilt.report.page.words import count_of, number, percent, stopped, whole


def sections_of(data: Decision) -> tuple[Section, ...]:
    """Everything below the answer."""
    found = (
        _how_sure(data) if data.how_sure else None,
        _log(data.log, data.title) if data.log else None,
        position_section(data),
        identifiability_section(data.identifiability) if data.identifiability else None,
        rankers_section(data.rankers) if data.rankers else None,
        clip_section(data.clip_curve, _method(data)) if data.clip_curve else None,
        moved_section(data.moved) if data.moved else None,
        pair_bias_section(data.pair_bias) if data.pair_bias else None,
        importance_section(data.importances, data.importance_of) if data.importances else None,
        changed_section(data.changed) if data.changed else None,
        _warnings(data.warnings) if data.warnings else None,
        _how_computed(data.how_computed) if data.how_computed else None,
    )
    return tuple(section for section in found if section)


def _method(data: Decision) -> str:
    return data.rankers.method if data.rankers else ""


def _how_sure(data: Decision) -> Section:
    sure = data.how_sure
    assert sure is not None
    n = len(data.warnings)
    warned = Fact("Warnings", str(n) if n else "none", "listed below" if n else "")
    return Section(
        "how-sure",
        "How sure is this?",
        facts=(*_sure_facts(sure), warned),
        notes=sure.notes,
    )


def _sure_facts(sure: HowSure) -> list[Fact]:
    facts = [
        Fact("Held-out sessions", whole(sure.sessions), "not used for training"),
        Fact("Held-out queries", whole(sure.queries), "intervals are over queries"),
    ]
    if sure.effective_sessions is not None:
        note = "as many clicks of equal weight would tell as much"
        facts.append(Fact("Effective size", whole(sure.effective_sessions), note))
    if sure.largest_weight is not None:
        note = "largest weight that one click has"
        facts.append(Fact("Heaviest click", f"\u00d7 {number(sure.largest_weight, 1)}", note))
    if sure.clipped_share:
        facts.append(Fact("Clipped clicks", percent(sure.clipped_share), "lean towards raw clicks"))
    if sure.unshown_share is not None:
        note = "top places of the new order that hold documents nobody was shown"
        facts.append(Fact("Unseen documents", percent(sure.unshown_share), note))
    if sure.curve_fits is not None:
        note = "whether the log's own clicks agree with the examination curve"
        facts.append(Fact("Curve fits", "yes" if sure.curve_fits else "no", note))
    if sure.more_sessions:
        note = "more held-out sessions to decide a difference of this size"
        facts.append(Fact("Still needed", whole(sure.more_sessions), note))
    return facts


def _log(log: LogShape, title: str) -> Section:
    per_session = log.clicks / log.sessions if log.sessions else None
    facts = [
        Fact("Sessions", whole(log.sessions), _lists(log)),
        Fact("Impressions", whole(log.impressions)),
        Fact("Clicks" if log.label == "click" else f"Sum of {log.label}", whole(log.clicks),
             f"{number(per_session, 2)} per session"),
        Fact("Queries", whole(log.queries)),
        Fact("Documents", whole(log.documents), f"{count_of(log.features, 'feature')} each"
             if log.features else "without features"),
        Fact("Deepest position", whole(log.deepest_position)),
    ]  # fmt: skip
    if log.share_without_click is not None:
        facts.append(Fact("Without a click", percent(log.share_without_click), "of the sessions"))
    tables = [
        _counts("Sessions by ranker", "made the list", "sessions", log.rankers),
        _counts("Queries by use", "use", "queries", log.splits),
        _counts("Rows left out", "reason", "rows", log.dropped_rows),
    ]
    return Section(
        "log",
        "What the log looks like",
        paragraphs=(f"All of this is from {log.name}.",) if log.name not in ("", title) else (),
        facts=tuple(facts),
        small_tables=tuple(table for table in tables if table),
        notes=log.notes,
    )


def _lists(log: LogShape) -> str:
    if log.distinct_lists is None:
        return ""
    return f"with {count_of(log.distinct_lists, 'different list')}"


def _counts(caption: str, what: str, unit: str, counts: Mapping[str, int]) -> Table | None:
    if not counts:
        return None
    rows = tuple((str(name), whole(n)) for name, n in counts.items())
    return Table((what, unit), rows, caption)


def _warnings(warnings: tuple[str, ...]) -> Section:
    return Section("warnings", "Warnings", cautions=tuple(map(stopped, warnings)))


def _how_computed(done: HowComputed) -> Section:
    said = {
        "Command": done.command,
        "Finished": done.finished,
        "Machine": done.machine,
        "Seed": "" if done.seed is None else str(done.seed),
    }
    about = tuple((name, text) for name, text in said.items() if text)
    sizes = tuple((name, whole(n)) for name, n in done.sizes.items())
    options = tuple(done.options.items())
    steps = _steps(done.steps)
    wide, narrow = ((steps,), ()) if len(steps.header) > 2 else ((), (steps,))
    tables = (
        Table(("", ""), about, "The run", text_columns=(0, 1)),
        *wide,
        Table(("option", "value"), options, "All options", text_columns=(0, 1), folded=True),
    )
    small = (
        *narrow,
        Table(("what", "how many"), sizes, "Sizes"),
        Table(("package", "version"), tuple(done.versions.items()), "Versions"),
    )
    return Section(
        "computed",
        "How it was computed",
        tables=tuple(table for table in tables if table.rows),
        small_tables=tuple(table for table in small if table.rows),
    )


def _steps(steps: Sequence[Step]) -> Table:
    noted = any(step.note for step in steps)
    rows = tuple((s.name, number(s.seconds, 1), *((s.note,) if noted else ())) for s in steps)
    header = ("step", "seconds", *(("note",) if noted else ()))
    return Table(header, rows, "Steps", text_columns=(0, 2))

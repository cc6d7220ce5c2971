"""The sections of a page, in the order a decision needs them. What has no data has no section."""

from collections.abc import Mapping, Sequence

from untilt.auditing.audit import Audit
from untilt.report.decision import Decision
from untilt.report.page import evidence, rankers
from untilt.report.page.parts import Figure, Section, Table, Tile
from untilt.report.page.words import count_of, number, percent, sentence, whole
from untilt.report.step_results import HeldOut, Provenance, StepTime


def sections_of(data: Decision) -> tuple[Section, ...]:
    """Everything below the answer."""
    part = data.held_out
    notes = {} if data.training is None else {e.name: e.note for e in data.training.candidates}
    sections = (
        _how_sure(data, part) if part else None,
        _log(data, data.audit) if data.audit else None,
        evidence.position_section(data),
        evidence.comparable_section(data.audit) if data.audit else None,
        rankers.rankers_section(part, notes) if part else None,
        evidence.clip_section(part) if part else None,
        rankers.moved_section(part.new_positions) if part and part.new_positions else None,
        evidence.pair_bias_section(part.pair_bias) if part and part.pair_bias else None,
        rankers.importance_section(part.importances, part.importance_of)
        if part and part.importances
        else None,
        rankers.changed_section(part.changed) if part and part.changed else None,
        Section("warnings", "Warnings", cautions=tuple(map(sentence, data.warnings)))
        if data.warnings
        else None,
        _provenance(data.provenance) if data.provenance else None,
    )
    return tuple(section for section in sections if section)


def figures_of(data: Decision) -> tuple[Figure, ...]:
    """Every chart of the page."""
    return tuple(figure for section in sections_of(data) for figure in section.figures)


def _how_sure(data: Decision, part: HeldOut) -> Section:
    n, of = len(data.warnings), part[part.chosen]
    answer = data.answer
    tiles = [
        Tile("Held-out sessions", whole(of.n_sessions), "not used for training"),
        Tile("Held-out queries", whole(of.n_queries), "intervals are over queries"),
        Tile("Effective size", whole(of.effective_n),
             "as many clicks of equal weight would tell as much"),
        Tile("Heaviest click", f"\u00d7 {number(of.largest_weight, 1)}",
             "largest weight that one click has"),
    ]  # fmt: skip
    if of.clipped_share:
        tiles.append(Tile("Clipped clicks", percent(of.clipped_share), "lean towards raw clicks"))
    note = "top positions of the new order that hold documents nobody was shown"
    tiles.append(Tile("Unseen documents", percent(of.unshown_share), note))
    if part.check is not None and part.check.possible:
        note = "whether the log's own clicks agree with the examination curve"
        tiles.append(Tile("Curve fits", "yes" if part.check.fits else "no", note))
    if answer is not None and answer.verdict == "undecided":
        more = answer.difference.more_sessions
        if 0 < more < float("inf"):
            note = "more held-out sessions to decide a difference of this size"
            tiles.append(Tile("Still needed", whole(more), note))
    tiles.append(Tile("Warnings", str(n) if n else "none", "listed below" if n else ""))
    notes = tuple(map(sentence, data.notes))
    return Section("how-sure", "How sure is this?", tiles=tuple(tiles), notes=notes)


def _log(data: Decision, audit: Audit) -> Section:
    size, label = audit.size, audit.label_name
    per_session = number(size.clicks / size.sessions, 2)
    features = f"{count_of(size.features, 'feature')} each" if size.features else "without features"
    lists = f"with {count_of(size.distinct_lists, 'different list')}"
    tiles = (
        Tile("Sessions", whole(size.sessions), lists),
        Tile("Impressions", whole(size.impressions)),
        Tile("Clicks" if label == "click" else f"Sum of {label}", whole(size.clicks),
             f"{per_session} per session"),
        Tile("Queries", whole(size.queries)),
        Tile("Documents", whole(size.documents), features),
        Tile("Deepest position", whole(size.deepest_position)),
        Tile("Without a click", percent(audit.share_without_click), "of the sessions"),
    )  # fmt: skip
    split, models = data.split, data.click_models
    by_use = split.queries if split is not None and split.by == "query" else {}
    dropped = data.source.dropped if data.source else {}
    tables = (
        _counts("Sessions by ranker", "made the list", "sessions", audit.rankers),
        _counts("Queries by use", "use", "queries", by_use),
        _counts("Rows left out", "reason", "rows", dropped),
    )
    return Section(
        "log",
        "What the log looks like",
        tiles=tiles,
        small_tables=tuple(table for table in tables if table.rows),
        notes=tuple(
            sentence(note)
            for part in (audit, split, models)
            if part is not None
            for note in part.notes
        ),
    )


def _counts(caption: str, what: str, unit: str, counts: Mapping[str, int]) -> Table:
    return Table((what, unit), tuple((name, whole(n)) for name, n in counts.items()), caption)


def _provenance(done: Provenance) -> Section:
    about = {
        "Command": done.command,
        "Finished": done.finished,
        "Machine": done.machine,
        "Seed": "" if done.seed is None else str(done.seed),
    }
    words = (0, 1)
    steps = _steps(done.steps)
    wide, narrow = ((steps,), ()) if len(steps.header) > 2 else ((), (steps,))
    tables = (
        Table(("", ""), tuple((n, text) for n, text in about.items() if text), "The run", words),
        *wide,
        Table(("option", "value"), tuple(done.options.items()), "All options", words, folded=True),
    )
    small = (
        *narrow,
        _counts("Sizes", "what", "how many", done.sizes),
        Table(("package", "version"), tuple(done.versions.items()), "Versions"),
    )
    return Section(
        "computed",
        "How it was computed",
        tables=tuple(table for table in tables if table.rows),
        small_tables=tuple(table for table in small if table.rows),
    )


def _steps(steps: Sequence[StepTime]) -> Table:
    resumed = any(step.resumed for step in steps)
    notes = [("by an earlier run" if step.resumed else "",) if resumed else () for step in steps]
    rows = tuple((s.name, number(s.seconds, 1), *n) for s, n in zip(steps, notes, strict=True))
    header = ("step", "seconds", *(("note",) if resumed else ()))
    return Table(header, rows, "Steps", text_columns=(0, 2))

"""`untilt export`, `judgments` and `score`: what other tools read."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from untilt._core.addresses import place
from untilt._core.places import refuse_inputs
from untilt.cli import arguments
from untilt.cli.console import DIFFERS, Output
from untilt.cli.declared import argument, option, out_option
from untilt.data.read.options import columns_of
from untilt.errors import OptionError
from untilt.exports.options import JudgmentOptions
from untilt.facts import Fact, warning

if TYPE_CHECKING:
    from untilt.exports.format import ExportCheck, Exported

UNSHIPPED = warning(
    "export.not-shipped",
    "The run does not ship this ranker: its verdict is '{verdict}', and the {old} stays.",
)


def export(
    ranker: Path = argument(..., "A file that `untilt train` wrote.", "RANKER"),
    out: Path = out_option(..., "File of the model.", "FILE"),
    to: str | None = option(
        None, "Engine: {export} (default: by the ending of the file: .txt, .onnx, .c)."
    ),
    name: str | None = option(
        None, "Name of the model in the engine (default: the file's name).", metavar="MODEL"
    ),
    check: Path | None = option(
        None, "Rows to score with the written file and with the ranker, to compare the scores: a "
        "table with query_id and the features, or a LETOR file (.txt).", metavar="TABLE"
    ),
    column: list[str] | None = option(
        None,
        "Where a column of --check has another name, as in query_id=srch_id. May be repeated.",
        metavar="NAME=COLUMN",
    ),
    *,
    output: Output,
) -> None:  # fmt: skip
    """Write a ranker for another engine, with the files it needs.

    The engine computes the ranker's scores, also at split values and for missing features. --check
    compares them row by row and list by list, and exits with code 4 if any differs or if the engine
    refuses a value.

    Example: [bold]untilt export ranker.untilt --to es-ltr --out model.json --check
    documents.parquet[/bold]
    """  # fmt: skip
    from untilt.exports.format import write_export, written_beside
    from untilt.rankers.base import load

    arguments.check_out(out)
    model = load(ranker)
    if column and check is None:
        raise OptionError("--column names columns of the table of --check. Give --check too.")
    sample = None if check is None else _sample(check, model, columns_of(column or ()))
    refuse_inputs(written_beside(model, out, to), [ranker, check])
    written = write_export(model, out, to, name=name)
    unshipped = _unshipped(ranker)
    output.record(
        ranker=ranker, model=out, kind=type(model).__name__, to=written.to,
        files=[*written.beside], kept=[*written.kept], commands=[*written.commands],
        notes=[note.record(output.said) for note in (*unshipped, *written.notes)],
    )  # fmt: skip
    _tell(output, written, type(model).__name__)
    output.points(unshipped)
    if sample is not None and not _check(output, model, written, *sample):
        raise typer.Exit(DIFFERS)


def _unshipped(ranker: Path) -> list[Fact]:
    """A warning where this is the candidate of a run that keeps the old order."""
    from untilt.report.decision import Decision
    from untilt.workflow.folder import RunFolder

    folder = RunFolder(ranker.parent)
    if ranker != folder.candidate or not folder.figures.is_file():
        return []
    decision = Decision.load(folder.figures)
    if decision.ships or decision.answer is None:
        return []
    return [UNSHIPPED(verdict=decision.answer.verdict, old=decision.old_order)]


def _tell(output: Output, written: "Exported", kind: str) -> None:
    output.say(f"{kind} written to {written.path} ({written.to}).")
    for path in written.beside:
        output.path("beside it", path)
    for path in written.kept:
        output.path("left as it is, since it may be filled in", path)
    if written.commands:
        output.heading(f"to use it (in {shlex.quote(str(written.path.parent))})")
        for line in written.commands:
            output.command(line)
    if written.notes:
        output.heading("what to know")
        output.points(list(written.notes))


def _check(output: Output, model: Any, written: "Exported", features: Any, indptr: Any) -> bool:
    from untilt.exports.format import check_export

    found = check_export(model, written.path, features, written.to, indptr=indptr)
    if found.negative:
        output.heading("will not work")
        output.say(
            "The engine refuses negative values of features, and these rows have some in "
            f"{', '.join(found.negative)}. Add a constant to these features in the log, train "
            "again, and add it in the engine's query too."
        )
    output.heading("the same scores?")
    output.table(("", ""), _rows(found))
    output.record(
        check={
            "rows": found.rows, "lists": found.lists, "largest_difference": found.largest,
            "rows_that_differ": found.beyond, "lists_reordered": found.reordered,
            "lists_with_new_ties": found.tied, "negative_features": list(found.negative),
            "holds": found.holds, "works": found.works,
        }
    )  # fmt: skip
    return found.works


def _rows(found: "ExportCheck") -> list[tuple[str, str]]:
    from untilt.exports.format import TOLERANCE

    rows = [
        ("rows", f"{found.rows:,}"),
        ("largest difference of a score", f"{found.largest:.1e}"),
        (f"rows that differ by more than {TOLERANCE:g}", f"{found.beyond:,}"),
        ("lists", f"{found.lists:,}"),
        ("lists whose order changes", f"{found.reordered:,}"),
    ]
    if found.tied:
        rows.append((f"lists with documents closer than {found.closest:.0e}", f"{found.tied:,}"))
    return rows


def _sample(path: Path, model: Any, columns: dict[str, str | None]) -> tuple[Any, Any]:
    """(features, indptr) of a table with the ranker's features, lists by query_id."""
    from untilt.exports.format import read_sample

    if not path.exists():
        raise OptionError(f"--check {path}: there is no such file. Check the path.")
    return read_sample(path, model.feature_names_, columns)


def judgments(
    out: Path = out_option(..., "File of the judgments (.json, .qrels or .csv).", "FILE"),
    log: Path | None = arguments.LOG,
    bias: str | None = arguments.BIAS,
    to: str | None = option(
        None, "Format: the Search Relevance Workbench of OpenSearch (.json), TREC's qrels in "
        "whole percent (.qrels, .txt), or CSV with intervals (default: by the ending).",
        metavar="opensearch|qrels|csv"
    ),
    name: str | None = option(
        None, "Name of the list in the workbench (default: the file's name).", metavar="LIST"
    ),
    labels: Path | None = option(
        None, "Grades of some documents, which count beside their clicks.", metavar="FILE"
    ),
    *,
    options: JudgmentOptions,
    reading: arguments.ColumnOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:  # fmt: skip
    """Write the relevance of documents, estimated from clicks.

    Each document gets the posterior mean of its relevance with an interval, corrected for position
    bias by the curve of --bias. Without --bias, the curve is fitted on documents that moved. Lists
    in random order need no curve: --bias none.

    Example: [bold]untilt judgments clicks.parquet --bias bias.json --out judgments.json[/bold]
    """  # fmt: skip
    from untilt.data.grades import read_labels
    from untilt.exports.judgments import JOINT, click_judgments, judgment_format

    arguments.check_out(out)
    form = judgment_format(out, to)
    curve = JOINT if bias is None else arguments.parse_bias(bias)
    context = arguments.context_of(curve)
    clicks = reading.read(output, export.source(log), context=context)
    graded = None if labels is None else read_labels(labels)
    found = click_judgments(clicks, curve, prior=options.prior, labels=graded, level=options.level)
    found.write(out, form, name=name)
    output.record(
        judgments=out, to=form, queries=found.n_queries, documents=len(found),
        level=options.level, notes=[note.record(output.said) for note in found.notes],
    )  # fmt: skip
    output.say(f"\n{len(found):,} documents of {found.n_queries:,} queries judged: {out} ({form}).")
    output.points(list(found.notes))


def score(
    ranker: Path = argument(..., "A file that `untilt train` wrote.", "RANKER"),
    documents: Path = argument(
        ..., "Documents with their features: query_id, doc_id, then the ranker's columns. A file, "
        "folder, database, s3:// or postgresql:// address.", "TABLE", parser=place
    ),
    out: Path = out_option(Path("scored.parquet"), "File of the scored documents.", "FILE"),
    column: list[str] | None = option(
        None, "The name of a column in TABLE, as in query_id=srch_id; score=COLUMN and "
        "rank=COLUMN name the new columns. May be repeated.", metavar="NAME=COLUMN"
    ),
    table: str | None = option(
        None, "Table of a database to score (default: the only table).", metavar="NAME"
    ),
    top: int | None = option(None, "Write only the best N of each query (default: all).", min=1),
    without_features: bool = option(False, "Write no features to the new file."),
    *,
    output: Output,
) -> None:  # fmt: skip
    """Score documents with a saved ranker: adds score and rank.

    Rank 1 is the best of its query. The file may be larger than memory.

    Example: [bold]untilt score ranker.untilt documents.parquet --out scored.parquet[/bold]
    """
    from untilt.rankers.base import load
    from untilt.rankers.score_file import score_file

    arguments.check_out(out)
    found = score_file(
        load(ranker),
        arguments.with_table(documents, table and [table]),
        out,
        columns=columns_of(column or ()),
        top=top,
        with_features=not without_features,
    )
    output.record(
        ranker=ranker, documents=documents, scored=found.path, rows=found.n_rows,
        queries=found.n_queries, unused_columns=found.unused,
    )  # fmt: skip
    output.say(f"{found.n_rows:,} documents of {found.n_queries:,} queries scored.")
    if found.unused:
        output.detail(f"columns that the ranker does not use: {', '.join(found.unused)}")
    output.path("Written to", found.path)

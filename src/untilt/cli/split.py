"""`untilt split`: a part of a log to train on, and one to evaluate on."""

from pathlib import Path
from typing import TYPE_CHECKING

from untilt._core.addresses import place
from untilt._core.files import replacing_all
from untilt._core.places import refuse_taken
from untilt.cli import arguments, outputs
from untilt.cli.console import Output
from untilt.cli.declared import argument, option, out_option
from untilt.errors import OptionError
from untilt.workflow.options import SplitBy

if TYPE_CHECKING:
    from untilt.data.read.ubi import Ubi

# What is written, train and test: by kind of part.
CLICKS = ("train.parquet", "test.parquet")
DOCUMENTS = ("train-documents.parquet", "test-documents.parquet")
LABELS = ("train.txt", "test.txt")


def split(
    data: Path | None = argument(
        None, "A click log; or a LETOR file, with --letor.", "LOG", parser=place
    ),
    out: Path = out_option(
        Path("parts"),
        "Where the parts are written.",
        "FOLDER",
        outputs.Writes((*CLICKS, *DOCUMENTS, *LABELS)),
    ),
    share: float = option(0.8, "Of the first part, the one to train on."),
    by: SplitBy = option(
        "query", "Whole queries, single sessions, or the earliest sessions (needs timestamp)."
    ),
    context: list[str] | None = option(
        None, "A context column to keep. May be repeated.", metavar="COLUMN"
    ),
    letor: bool = option(False, "LOG is a LETOR file with labels."),
    seed: arguments.Seed = 0,
    force: outputs.Force = False,
    *,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:
    """Split a log into train.parquet and test.parquet, so that nothing is judged in sample.

    By query no query stands in both parts. By session or time the same queries come again, with
    other sessions: right where that is what will happen. With --documents, each part has its own:
    train-documents.parquet and test-documents.parquet.

    Example: [bold]untilt split clicks.parquet --documents documents.parquet --out parts[/bold]

    Human labels: [bold]untilt split judged.txt --letor --out parts[/bold]
    """
    arguments.check_out_folder(out)
    arguments.check_share("--share", share)
    output.record(folder=out, by=by, share=share, seed=seed)
    names = LABELS if letor else CLICKS if reading.documents is None else CLICKS + DOCUMENTS
    refuse_taken(out, names, force=force)
    source = export.source(data)
    if letor:
        if not isinstance(source, Path):
            raise OptionError("--ubi holds clicks and --letor labels. Give one of the two.")
        _split_labels(output, source, out, share, by, seed)
    else:
        _split_clicks(output, reading, source, out, share, by, seed, context or [])


def _split_clicks(
    output: Output, reading: arguments.LogOptions, data: "Path | Ubi", out: Path, share: float,
    by: SplitBy, seed: int, context: list[str],
) -> None:  # fmt: skip
    from untilt.data.seen import overlap_with, seen_in
    from untilt.data.write_log import write_log

    log = reading.read(output, data, collapse=by != "time", context=context)
    if by == "time" and log.time is None:
        raise OptionError(
            "--by time needs to know when sessions were: there is no column timestamp. Name it "
            "with --column timestamp=YOUR_COLUMN, or split by query."
        )
    train, test = log.split(share, by=by, seed=seed)
    parts = dict(zip((out / name for name in CLICKS), (train, test), strict=True))
    with_documents = reading.documents is not None
    for path, part in parts.items():
        if part.n_lists == 0:
            raise OptionError(
                f"{path.name} would hold no session: the log has {log.n_queries:,} queries and "
                f"{log.n_sessions:,} sessions. Change --share or --by."
            )
    with replacing_all(out, CLICKS + DOCUMENTS if with_documents else CLICKS) as folder:
        for path, part in parts.items():
            file = folder / path.name
            documents = _documents_of(file) if with_documents else None
            # Features inside the log stand in the rows: what one part does not show, the other
            # does.
            write_log(part, file, documents=documents, drop_unshown=not with_documents)
    rows = {
        path: {
            "queries": len(seen_in(part)),
            "sessions": part.n_sessions,
            "impressions": part.n_impressions,
        }
        for path, part in parts.items()
    }
    shared = overlap_with(seen_in(test), seen_in(train)).trained
    _report(output, rows, shared, with_documents=with_documents)


def _documents_of(path: Path) -> Path:
    """Where the documents of a part stand."""
    return path.with_name(f"{path.stem}-documents.parquet")


def _split_labels(
    output: Output, data: Path, out: Path, share: float, by: SplitBy, seed: int
) -> None:
    from untilt.data.letor.read_letor import read_letor
    from untilt.data.letor.write_letor import write_letor

    if by != "query":
        raise OptionError(f"judged lists have no sessions: --letor is split by query, not {by}.")
    train, test = read_letor(data).split(share, seed=seed)
    parts = dict(zip((out / name for name in LABELS), (train, test), strict=True))
    with replacing_all(out, LABELS) as folder:
        for path, part in parts.items():
            write_letor(part, folder / path.name)
    rows = {
        path: {"queries": part.n_queries, "documents": len(part)} for path, part in parts.items()
    }
    _report(output, rows, 0, with_documents=False)


def _report(
    out: Output, parts: dict[Path, dict[str, int]], shared: int, *, with_documents: bool
) -> None:
    documents = {
        path: {"documents": _documents_of(path)} if with_documents else {} for path in parts
    }
    out.record(
        parts={p.stem: {"file": p, **documents[p], **sizes} for p, sizes in parts.items()},
        queries_in_both=shared,
    )
    out.heading("Split")
    columns = list(next(iter(parts.values())))
    rows = [(path.name, *(f"{each:,}" for each in sizes.values())) for path, sizes in parts.items()]
    out.table(("file", *columns), rows)
    out.say(f"Queries in both parts: {shared:,}")
    for words, path in zip(("Train on", "Evaluate on"), parts, strict=True):
        option = f" --documents {_documents_of(path)}" if with_documents else ""
        out.path(words, f"{path}{option}")

"""`untilt simulate`, `collapse` and `split`: logs made, counted, and cut into parts."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from untilt import catalog
from untilt._core.addresses import place
from untilt._core.declared import EXPERT
from untilt._core.files import replacing_all, write_text
from untilt._core.places import refuse_taken
from untilt._core.progress import progress
from untilt.cli import arguments
from untilt.cli.console import Output, plain
from untilt.cli.declared import FORCE, Writes, argument, option, out_option
from untilt.data.read.options import FeatureOptions
from untilt.errors import OptionError, check_share
from untilt.workflow.options import SplitBy

if TYPE_CHECKING:
    from untilt.data.judged import JudgedLists
    from untilt.data.read.ubi import Ubi
    from untilt.simulation.protocols import Protocol
    from untilt.simulation.simulate import SimulatedFiles


# What is written, all of one simulation.
FILES = {
    "log": "clicks.parquet",
    "documents": "documents.parquet",
    "truth": "truth.json",
    "true_bias": "bias.json",
    "train_labels": "train.txt.gz",
    "test_labels": "test.txt.gz",
}
# Beside them, with --as-ubi.
UBI_FILES = {"ubi_queries": "ubi_queries.jsonl", "ubi_events": "ubi_events.jsonl"}
WRITTEN = Writes((*FILES.values(), *UBI_FILES.values()))


def protocol_of(name: str, parameters: Sequence[str] | None) -> "Protocol":
    """The protocol of this name with NAME=VALUE parameters; protocols in it are for Python."""
    from untilt._core.printed import parse_options
    from untilt.bias.estimator import CURVES
    from untilt.simulation.protocols import as_protocol, parameters_of

    kinds = parameters_of(name)
    return as_protocol(name, parse_options(parameters or (), kinds, name, others=CURVES))


def simulate(
    out: Path = out_option(..., "Folder of the files.", "FOLDER", WRITTEN),
    data: list[Path] | None = option(
        None, "Judged lists in LETOR text or .gz (default: lists are simulated). May be repeated.",
        metavar="FILE"
    ),
    queries: int = option(2000, "Number of simulated queries.", min=10),
    features: int = option(50, "Number of simulated features.", min=4),
    sessions: int | None = option(None, "Number of sessions (default: 100 a query).", min=1),
    clicks: int | None = option(None, "Number of clicks, instead of --sessions.", min=1),
    sessions_per_query: int | None = option(
        None, "Sessions of every query, instead of --sessions.", min=1
    ),
    protocol: str | None = option(
        None, "Model of how people click: {protocol} (default: {default protocol})."
    ),
    parameter: list[str] | None = option(
        None, "Parameter of the protocol, as in theta=0.5. May be repeated.", metavar="NAME=VALUE",
        panel=EXPERT
    ),
    depth: int | None = option(None, "Length of the lists (default: the protocol's).", min=1),
    traffic: Literal["uniform", "zipf"] = option(
        "uniform", "Distribution of the traffic over queries."
    ),
    test_share: float = option(
        0.2, "Share of the queries that is set aside for tests.", min=0.01, max=0.9, panel=EXPERT
    ),
    ubi: bool = option(
        False, "Also write the log as an export of User Behavior Insights.", "--as-ubi"
    ),
    seed: int = arguments.SEED,
    force: bool = FORCE,
    *,
    output: Output,
) -> None:  # fmt: skip
    """Simulate a click log with a known truth.

    A weak ranker, trained on 1% of the labelled queries, shows its lists to simulated people. The
    folder gets clicks.parquet and documents.parquet (the log), truth.json (how people clicked),
    bias.json (the true position bias, for --bias), train.txt.gz (labels of the log's queries) and
    test.txt.gz (labels of the test queries).

    Example: [bold]untilt simulate --out sim --queries 500 --sessions 50000[/bold]

    With your own judged lists: [bold]untilt simulate --out sim --data MQ2008/S1.txt.gz[/bold]

    Also as an export of OpenSearch: [bold]untilt simulate --out sim --as-ubi[/bold]
    """
    from untilt.data.letor.write_letor import write_letor
    from untilt.simulation.simulate import simulate_to_parquet, write_ubi

    _check_folder(out)
    names = FILES | (UBI_FILES if ubi else {})
    refuse_taken(out, names.values(), force=force)
    chosen = protocol_of(protocol or catalog.default("protocol").name, parameter)
    judged = _judged(data, queries=queries, features=features, seed=seed)
    output.detail(f"{'read' if data else 'made'} {judged!r}")
    train, test = judged.split(1 - test_share, seed=seed)
    with replacing_all(out, names.values()) as folder:
        files = simulate_to_parquet(
            train, folder, chosen, n_sessions=sessions, n_clicks=clicks,
            sessions_per_query=sessions_per_query, seed=seed, depth=depth, query_weights=traffic,
        )  # fmt: skip
        output.detail(f"simulated with {files.truth!r}")
        with progress("writing the labels"):
            write_letor(files.truth.judged, folder / FILES["train_labels"])
            write_letor(test, folder / FILES["test_labels"])
        files.truth.bias.save(folder / FILES["true_bias"])
        _write_truth(files, folder / FILES["truth"], seed=seed)
        if ubi:
            write_ubi(files.log, folder)
    _report_simulated(output, files, {what: out / name for what, name in names.items()})


def _check_folder(folder: Path) -> None:
    if folder.suffix in {".parquet", ".csv", ".json"} or folder.is_file():
        raise OptionError(
            f"--out is a folder: the log and its truth are several files. Got {str(folder)!r}. "
            f"Try --out {folder.stem}."
        )


def _judged(data: list[Path] | None, *, queries: int, features: int, seed: int) -> "JudgedLists":
    if data:
        from untilt.data.letor.read_letor import read_letor

        with progress("reading judged lists"):
            return read_letor(data)
    from untilt.simulation.synthetic import make_judged

    with progress("making judged lists"):
        return make_judged(queries, features, seed=seed)


def _write_truth(files: "SimulatedFiles", path: Path, *, seed: int) -> None:
    truth = files.truth
    known = {
        "protocol": repr(truth.protocol),
        "seed": seed,
        "examination": truth.examination,
        "eps_plus": truth.eps_plus,
        "eps_minus": truth.eps_minus,
        "rankers": truth.ranker_names,
        "queries_that_trained_the_ranker": truth.training_queries,
        "sessions": files.n_sessions,
        "impressions": files.n_impressions,
        "clicks": files.n_clicks,
    }
    write_text(path, json.dumps(plain(known), indent=2, allow_nan=False) + "\n")


def _report_simulated(out: Output, files: "SimulatedFiles", paths: dict[str, Path]) -> None:
    sizes = {
        "sessions": files.n_sessions,
        "impressions": files.n_impressions,
        "clicks": files.n_clicks,
        "queries": files.truth.judged.n_queries,
        "documents": len(files.truth.judged),
    }
    out.record(**sizes, protocol=repr(files.truth.protocol), files=paths)
    out.table(("", ""), [(name, f"{size:,}") for name, size in sizes.items()])
    out.heading("written")
    for what, path in paths.items():
        out.path(f"  {what.replace('_', ' ')}", path)
    log, documents = [str(paths["log"])], str(paths["documents"])
    if "ubi_queries" in paths:
        log = ["--ubi", *(str(paths[what]) for what in UBI_FILES)]
    out.say("\nLook at it:")
    out.command(shlex.join(["untilt", "audit", *log, "--documents", documents]))


@dataclass(frozen=True, kw_only=True)
class CollapseOptions(FeatureOptions, arguments.ColumnOptions):
    """Options of a log whose features, if any, stand in its rows."""


def collapse(
    out: Path = out_option(..., "File of the counted log (.parquet, .csv or .csv.gz).", "FILE"),
    log: Path | None = arguments.LOG,
    context: list[str] | None = option(
        None, "Column to keep, such as device; sessions that differ in it are not merged. May be "
        "repeated.", metavar="COLUMN"
    ),
    *,
    reading: CollapseOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:  # fmt: skip
    """Write equal sessions of a log once, with a count.

    Every command gives the same answer for the file as for the log, except where it needs the time
    of a session. Columns get the names of untilt. For a log in a warehouse, `ut.collapse_sql`
    writes the SQL that counts there (docs/scale.md).

    Example: [bold]untilt collapse clicks.parquet --out counted.parquet[/bold]
    """
    from untilt.data.write_log import check_ending, write_log

    arguments.check_out(out)
    check_ending(out)
    found = reading.read(output, export.source(log), context=context or ())
    write_log(found, out)
    rows = int(found.indptr[-1])
    output.record(
        counted=out, sessions=found.n_sessions, lists=found.n_lists, rows=rows,
        impressions=found.n_impressions,
    )  # fmt: skip
    output.say(
        f"\n{found.n_sessions:,} sessions in {found.n_lists:,} distinct lists: {rows:,} rows "
        f"in place of {found.n_impressions:,}."
    )
    output.path("Counted log", str(out))


# What is written, train and test: by kind of part.
CLICKS = ("train.parquet", "test.parquet")
DOCUMENTS = ("train-documents.parquet", "test-documents.parquet")
LABELS = ("train.txt", "test.txt")


def split(
    data: Path | None = argument(
        None, "The click log, or a LETOR file with --letor.", "LOG", parser=place
    ),
    out: Path = out_option(
        Path("parts"), "Folder of the parts.", "FOLDER", Writes((*CLICKS, *DOCUMENTS, *LABELS))
    ),
    share: float = option(0.8, "Share of the first part, to train on."),
    by: SplitBy = option(
        "query", "Unit of the split: queries, sessions, or time (needs timestamp)."
    ),
    context: list[str] | None = option(
        None, "Context column to keep, such as device. May be repeated.", metavar="COLUMN"
    ),
    letor: bool = option(False, "LOG is a LETOR file with labels."),
    seed: int = arguments.SEED,
    force: bool = FORCE,
    *,
    reading: arguments.LogOptions,
    export: arguments.UbiOptions,
    output: Output,
) -> None:
    """Split a log into a part to train on and a part to evaluate on.

    Writes train.parquet and test.parquet. By query, each query is in one part only. By session or
    time, both parts share queries, as production does. With --documents, each part gets its
    documents: train-documents.parquet and test-documents.parquet.

    Example: [bold]untilt split clicks.parquet --documents documents.parquet --out parts[/bold]

    Human labels: [bold]untilt split judged.txt --letor --out parts[/bold]
    """
    arguments.check_out_folder(out)
    check_share("--share", share)
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

"""`untilt simulate`: a click log whose truth is known."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from untilt import catalog
from untilt._core.files import replacing, replacing_all
from untilt._core.places import refuse_taken
from untilt._core.progress import progress
from untilt.cli.arguments import Seed
from untilt.cli.console import Output, plain
from untilt.cli.declared import option, out_option
from untilt.cli.outputs import Force, Writes
from untilt.errors import OptionError

if TYPE_CHECKING:
    from untilt.data.judged import JudgedLists
    from untilt.simulation.parquet import SimulatedFiles
    from untilt.simulation.protocols import Protocol


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
    from untilt.bias.options import CURVES
    from untilt.simulation.protocols import as_protocol, parameters_of

    kinds = parameters_of(name)
    return as_protocol(name, parse_options(parameters or (), kinds, name, others=CURVES))


def simulate(
    out: Path = out_option(..., "Where to write.", "FOLDER", WRITTEN),
    data: list[Path] | None = option(
        None,
        "Judged lists in LETOR text (.gz too). May be repeated. Else data is made here.",
        metavar="FILE",
    ),
    queries: int = option(2000, "Queries, for data made here.", min=10),
    features: int = option(50, "Features, for data made here.", min=4),
    sessions: int | None = option(None, "Sessions to simulate.", min=1),
    clicks: int | None = option(None, "Or: sessions until there are so many clicks.", min=1),
    sessions_per_query: int | None = option(None, "Or: so many sessions of every query.", min=1),
    protocol: str | None = option(
        None,
        "How readers click ({default protocol} where not given): {protocol}. "
        "`untilt methods protocol` says what each does.",
    ),
    parameter: list[str] | None = option(
        None, "Of the protocol, as in theta=0.5. Repeatable.", metavar="NAME=VALUE"
    ),
    depth: int | None = option(None, "Positions of a list.", min=1),
    traffic: Literal["uniform", "zipf"] = option("uniform", "How often queries are asked."),
    test_share: float = option(0.2, "Share of queries set aside for tests.", min=0.01, max=0.9),
    ubi: bool = option(
        False, "Also write the log as an export of User Behavior Insights.", "--as-ubi"
    ),
    seed: Seed = 0,
    force: Force = False,
    *,
    output: Output,
) -> None:
    """Make a click log with a known truth, to try methods on.

    A weak ranker, trained on 1% of the labelled queries, shows its lists to simulated readers.
    The folder gets clicks.parquet and documents.parquet (the log), truth.json (how readers
    behaved), bias.json (the true position bias, as other commands take it), train.txt.gz (labels
    of the log's queries) and test.txt.gz (labels of queries set aside), all at once at the end.

    Example: [bold]untilt simulate --out sim --queries 500 --sessions 50000[/bold]

    With your own judged lists: [bold]untilt simulate --out sim --data MQ2008/S1.txt.gz[/bold]

    As OpenSearch would export it, too: [bold]untilt simulate --out sim --as-ubi[/bold]
    """
    from untilt.data.letor.write_letor import write_letor
    from untilt.simulation.parquet import simulate_to_parquet, write_ubi

    _check_folder(out)
    names = FILES | (UBI_FILES if ubi else {})
    refuse_taken(out, names.values(), force=force)
    chosen = protocol_of(protocol or catalog.default("protocol").name, parameter)
    judged = _judged(data, queries=queries, features=features, seed=seed)
    output.detail(f"{'read' if data else 'made'} {judged!r}")
    train, test = judged.split(1 - test_share, seed=seed)
    with replacing_all(out, names.values()) as folder:
        files = simulate_to_parquet(
            train,
            folder,
            chosen,
            n_sessions=sessions,
            n_clicks=clicks,
            sessions_per_query=sessions_per_query,
            seed=seed,
            depth=depth,
            query_weights=traffic,
        )
        output.detail(f"simulated with {files.truth!r}")
        with progress("writing the labels"):
            write_letor(files.truth.judged, folder / FILES["train_labels"])
            write_letor(test, folder / FILES["test_labels"])
        files.truth.bias.save(folder / FILES["true_bias"])
        _write_truth(files, folder / FILES["truth"], seed=seed)
        if ubi:
            write_ubi(files.log, folder)
    _report(output, files, {what: out / name for what, name in names.items()})


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
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(plain(known), indent=2, allow_nan=False) + "\n")


def _report(out: Output, files: "SimulatedFiles", paths: dict[str, Path]) -> None:
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

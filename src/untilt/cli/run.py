"""`untilt run`, `report` and `demo`: from a log to a decision, in one command."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from untilt._core.addresses import without_secrets
from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import FORCE, Given, Writes, argument, option, out_option
from untilt.cli.wording import reads_from
from untilt.errors import OptionError
from untilt.workflow.options import RunSettings

if TYPE_CHECKING:
    from untilt.report.decision import Decision
    from untilt.workflow.run import RunResult


@dataclass(frozen=True, kw_only=True)
class Typed(RunSettings):
    """The options of a run as they are typed: several labels, and tables of a database."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "documents", "bias", "fallback", "method", "trees", "time_limit", "metric", "evaluator",
        "clip", "among", "baseline", "level", "folds", "split", "columns", "label", "combine",
        "context", "features", "missing", "on_bad", "positions_from", "grid", "sample_queries",
        "table", "documents_table",
    )  # fmt: skip

    label: arguments.LabelOption = None  # type: ignore[assignment]
    combine: arguments.CombineOption = None  # type: ignore[assignment]
    table: arguments.TableOption = None
    documents_table: arguments.DocumentsTable = None


def run(
    log: str | None = argument(None, arguments.LOG_HELP, "LOG"),
    out: Path | None = out_option(None, "Where the results go (untilt-run).", "FOLDER"),
    ubi: arguments.UbiFiles = None,
    hits_shown: arguments.HitsShown = None,
    config: Path | None = option(
        None, "A TOML file with these options; the command line wins.", metavar="FILE"
    ),
    *,
    given: Annotated[dict[str, Any], Given(Typed)],
    force: bool = option(
        False, "Use a folder with other files in it; only our own names are replaced."
    ),
    output: Output,
) -> None:
    """From a log to a decision: audit, position bias, rankers, and would they have been better?

    Writes a folder with one page to look at (report.html), the ranker, the bias and every figure.
    Stopped at any moment, the same command goes on where it was.

    Example: [bold]untilt run clicks.parquet --documents documents.parquet --out results[/bold]

    From User Behavior Insights: [bold]untilt run --ubi queries.jsonl events.jsonl[/bold]

    With options in a file: [bold]untilt run --config run.toml --time-limit 10m[/bold]
    """
    from untilt.workflow.run import run as run_job

    export = arguments.export_of(ubi, hits_shown)
    if log is not None and export is not None:
        raise OptionError(f"there must be one log to read. Got {log} and --ubi.")
    table, documents_table = (given.pop(each, None) for each in ("table", "documents_table"))
    if "label" in given:
        labels = arguments.parse_labels(given["label"])
        given |= {"label": labels.option, "labels": labels.kept}
    given |= {
        "log": export or arguments.with_table(log, table, "--table"),
        "documents": arguments.with_table(
            given.get("documents"), documents_table, "--documents-table"
        ),
        "out": out,
    }
    source, folder, options = _merged(given, config)
    result = run_job(
        source, folder, tell=_teller(output), command=_command(), force=force, **options
    )
    report_run(output, result)


def _merged(given: dict[str, Any], config: Path | None) -> tuple[Any, Path, dict[str, Any]]:
    """Source, folder and options: the file's, and over them those of the command line."""
    from untilt.workflow.config import OBJECT, read_config

    options = {} if config is None else read_config(config)
    options |= {name: value for name, value in given.items() if value is not None}
    source, folder = options.pop("log", None), options.pop("out", None)
    if source is None:
        raise OptionError(
            "there is no log to read: untilt run LOG, --ubi QUERIES EVENTS, or log = "
            '"clicks.parquet" in the file of --config.'
        )
    if objects := [n for n, v in {"log": source, **options}.items() if v == OBJECT]:
        raise OptionError(
            f"{config} was written by a run in Python that was given {objects[0]} as an object, "
            f"not as a file. Write it to a file and give it: --{objects[0]}."
        )
    reads_from(source, options)
    return source, Path("untilt-run" if folder is None else folder), options


def _teller(out: Output) -> Any:
    """Steps are told on stdout; with --json, which owns stdout, -v tells them on stderr."""
    return out.detail if out.as_json else lambda sentence: out.say(f"  {out.said(sentence)}")


def _command() -> str:
    """How the program was called, as it can be typed again."""
    import shlex

    return shlex.join([Path(sys.argv[0]).name, *map(without_secrets, sys.argv[1:])])


def report_run(out: Output, result: "RunResult") -> None:
    """The answer, the table behind it, every warning, and where to look."""
    from untilt._core.codec import to_plain

    decision, judged = result.decision, result.decision.held_out
    out.record(
        folder=result.folder,
        report=result.report,
        answer=to_plain(decision.answer, said=out.said),
        no_answer=decision.no_answer,
        rankers=to_plain(None if judged is None else judged.estimates, said=out.said),
        differences=to_plain(None if judged is None else judged.comparison, said=out.said),
        bias=to_plain(decision.bias, said=out.said),
        warnings=to_plain(decision.warnings, said=out.said),
        resumed=list(result.resumed),
        times=to_plain(result.times),
        **_clip(decision),
        files=sorted(str(p) for p in result.folder.iterdir() if p.is_file()),
    )
    found = None if judged is None else judged.sensitivity
    training = decision.training
    out.record(
        sensitivity=None if found is None else asdict(found),
        chosen=None if training is None else training.chosen,
        why_chosen=None if training is None else training.why,
        candidate=to_plain(decision.candidate, said=out.said),
        ships=decision.ships,
    )
    out.show(result.view())
    out.say()
    if result.time:
        out.say(f"Time: {result.time}")
    out.path("Report", result.report)


def _clip(decision: "Decision") -> dict[str, Any]:
    """The clip that figures were made with, and whether the data chose it."""
    used = None if decision.held_out is None else decision.held_out.clip
    options = {} if decision.provenance is None else decision.provenance.options
    return {"clip": used, "clip_chosen": used is not None and options.get("clip") == "auto"}


def report(
    source: Path = argument(..., "The folder of a run, or its figures.json.", "FOLDER"),
    out: Path | None = out_option(
        None, "Where the page goes; else beside the figures.", "FILE", Writes(beside_input=True)
    ),
    *,
    output: Output,
) -> None:
    """Write the report again from the figures of a run: one HTML file that opens offline.

    Example: [bold]untilt report untilt-run[/bold]
    """
    from untilt._core.progress import progress
    from untilt.report.decision import Decision, write_report

    figures = source / "figures.json" if source.is_dir() else source
    if not figures.is_file():
        raise OptionError(
            f"there is no {figures}. Give the folder of `untilt run`, or its figures.json."
        )
    decision = Decision.load(figures)
    with progress("writing the report"):
        page = write_report(decision, out or figures.with_name("report.html"))
    output.record(figures=figures, report=page, title=decision.title)
    output.say(f"Report: {page}")


def demo(
    quick: bool = option(False, "Less data: seconds, rougher."),
    out: Path = out_option(Path("untilt-demo"), "Where the results go.", "FOLDER"),
    seed: int = arguments.SEED,
    force: bool = FORCE,
    *,
    output: Output,
) -> None:
    """Show every step on data made here: clicks, their tilt, a ranker without it, and a report.

    Nothing is needed and nothing is fetched. Takes about half a minute.

    Example: [bold]untilt demo --quick[/bold]
    """
    from untilt.cli.demo import FULL, QUICK
    from untilt.cli.demo import run as run_steps

    arguments.check_out_folder(out)
    run_steps(output, QUICK if quick else FULL, out, seed=seed, force=force)

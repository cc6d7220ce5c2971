"""`untilt run`, `report` and `demo`: from a log to a decision, in one command."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from untilt._core.addresses import without_secrets
from untilt._core.declared import EXPERT
from untilt.cli import arguments
from untilt.cli.console import VERDICT, Output
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
        "bias", "method", "metric", "baseline", "context", "time_limit", "columns", "documents",
        "features", "label", "missing", "on_bad", "positions_from", "old_score", "table",
        "trees", "folds", "split", "evaluator", "clip", "among", "level", "assigned",
    )  # fmt: skip

    label: arguments.LabelOption = None  # type: ignore[assignment]
    table: arguments.TableOption = None


def run(
    log: str | None = argument(None, arguments.LOG_HELP, "LOG"),
    out: Path | None = out_option(None, "Folder of the results (default: untilt-run).", "FOLDER"),
    ubi: arguments.UbiFiles = None,
    hits_shown: arguments.HitsShown = None,
    config: Path | None = option(
        None, "TOML file with options of a run; the command line wins (default: untilt.toml of "
        "the working folder).", metavar="FILE"
    ),
    *,
    given: Annotated[dict[str, Any], Given(Typed)],
    fail_unless: Literal["better", "decided"] | None = option(
        None,
        f"Exit with code {VERDICT} unless the answer is better, or is decided: better or worse "
        "(default: any answer is a success).",
    ),
    force: bool = option(
        False, "Use a folder that holds other files; only files of a run are replaced.",
        panel=EXPERT
    ),
    output: Output,
) -> None:  # fmt: skip
    """Go from a log to a decision: audit, bias, rankers, evaluation.

    Writes a folder with a report (report.html), the ranker, the bias and every figure. If the run
    is stopped, the same command continues it.

    Example: [bold]untilt run clicks.parquet --documents documents.parquet --out results[/bold]

    From User Behavior Insights: [bold]untilt run --ubi queries.jsonl events.jsonl[/bold]

    With options in a file: [bold]untilt run --config run.toml --time-limit 10m[/bold]
    """
    from untilt.workflow.run import run as run_job

    export = arguments.export_of(ubi, hits_shown)
    if log is not None and export is not None:
        raise OptionError(f"there must be one log to read. Got {log} and --ubi.")
    table = given.pop("table", None)
    if "label" in given:
        labels = arguments.parse_labels(given["label"])
        given |= {"label": labels.option, "labels": labels.kept}
    given |= {
        "log": export or arguments.with_table(log, table),
        "documents": arguments.with_table(given.get("documents"), table, "documents="),
        "out": out,
    }
    source, folder, options = _merged(given, config)
    # Steps are told on stdout; with --json, which owns stdout, -v tells them on stderr.
    tell = output.detail if output.as_json else output.step
    result = run_job(source, folder, tell=tell, command=_command(), force=force, **options)
    report_run(output, result)
    answer = result.decision.answer
    wanted = {"better"} if fail_unless == "better" else {"better", "worse"}
    if fail_unless is not None and (answer is None or answer.verdict not in wanted):
        raise typer.Exit(VERDICT)


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
        None, "File of the page (default: report.html beside the figures).", "FILE",
        Writes(beside_input=True)
    ),
    *,
    output: Output,
) -> None:  # fmt: skip
    """Write the report of a run again, from its figures.

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
    quick: bool = option(False, "Simulate less data: rougher figures in a quarter of the time."),
    out: Path = out_option(Path("untilt-demo"), "Folder of the results.", "FOLDER"),
    seed: int = arguments.SEED,
    force: bool = FORCE,
    *,
    output: Output,
) -> None:
    """Run the whole workflow on simulated data.

    Needs no files and no network. Takes about half a minute.

    Example: [bold]untilt demo --quick[/bold]
    """
    from untilt.cli.demo import FULL, QUICK
    from untilt.cli.demo import run as run_steps

    arguments.check_out_folder(out)
    run_steps(output, QUICK if quick else FULL, out, seed=seed, force=force)

"""Options that several commands share."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import typer
from typer.core import TyperCommand

from untilt import catalog
from untilt._core.addresses import place, without_secrets
from untilt._core.declared import EXPERT, READING, declared
from untilt._core.progress import progress
from untilt.cli.console import Output
from untilt.cli.declared import KINDS, argument, option
from untilt.cli.wording import CommandLine
from untilt.data.read.options import ClickOptions, Collapse, DocumentOptions, ReadOptions
from untilt.errors import OptionError, UnknownOptionError

if TYPE_CHECKING:
    from untilt.data.clicklog import ClickLog
    from untilt.data.read.ubi import Ubi


def check_out(path: Path | None, option: str = "--out") -> None:
    """Raise unless a file can stand at this path; ask before a long computation."""
    if path is None:
        return
    if path.is_dir():
        raise OptionError(f"{option} {path} is a folder. Give the name of a file in it.")
    _check_parents(path, option)


def check_ranker_out(out: Path, card: Path | None) -> None:
    """Raise unless a ranker can stand at this path, and its card beside it."""
    check_out(out)
    check_out(card, "--card")
    if card is not None and os.path.realpath(card) == os.path.realpath(out):
        raise OptionError(f"--card {card} is the file of --out. Give it another name.")


def check_out_folder(path: Path) -> None:
    """Raise unless a folder can stand at this path; ask before a long computation."""
    if path.exists() and not path.is_dir():
        raise OptionError(f"--out {path} is a file. Give the name of a folder.")
    _check_parents(path)


def _check_parents(path: Path, option: str = "--out") -> None:
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise OptionError(f"{option} {path}: {parent} is a file, not a folder.")
            return


def check_plots(*paths: Path | None) -> None:
    """Raise unless charts can be written under these names; ask before a long computation."""
    from untilt.charts.theme import check_chart_path

    for path in paths:
        if path is not None:
            check_chart_path(path)


SEED = option(0, "Random seed.", min=0, panel=EXPERT)
BASELINE = option(
    None,
    "Rankers of the log that count as production (default: all except experiments).",
    metavar="ranker=NAME[,NAME]",
)
BIAS = option(
    None,
    "Position bias: a file of `untilt bias`, 'power-law:1.0' or 'eye-tracking:1'.",
    metavar="FILE|CURVE",
)
CONTEXT = option(
    None,
    "A column that reading may depend on, such as device; each of its values gets its own "
    "curve if the data show a difference. May be repeated.",
    metavar="COLUMN",
)
LOG_HELP = (
    "The click log: Parquet, CSV, JSON lines or Arrow, a folder or pattern of files, a DuckDB or "
    "SQLite database, s3://... or postgresql://..."
)
LOG = argument(None, LOG_HELP, "LOG", parser=place)
TableOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Table of a database that holds the log; documents=NAME for the one of --documents "
        "(default: the only table). May be repeated.",
        rich_help_panel=READING,
    ),
]
UbiFiles = Annotated[
    tuple[Path, Path] | None,
    typer.Option(
        "--ubi",
        metavar="QUERIES EVENTS",
        help="Export of User Behavior Insights to read instead of LOG: two files of JSON lines.",
        rich_help_panel=READING,
    ),
]
HitsShown = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Hits that a page shows, for an export of --ubi without impressions (default: all).",
        rich_help_panel=EXPERT,
    ),
]


@dataclass(frozen=True)
class UbiOptions:
    """Options of commands that read a log, or an export of UBI in place of one."""

    ubi: UbiFiles = None
    hits_shown: HitsShown = None

    def source(self, log: Path | None) -> "Path | Ubi":
        """What is read: the log or the export."""
        export = export_of(self.ubi, self.hits_shown)
        if log is not None and export is None:
            return log
        if log is None and export is not None:
            return export
        raise OptionError(
            "there must be one log to read: LOG, or --ubi queries.jsonl events.jsonl. Got "
            f"{'neither' if log is None else 'both'}."
        )


def export_of(ubi: tuple[Path, Path] | None, hits_shown: int | None) -> "Ubi | None":
    """The export that --ubi names."""
    from untilt.data.read.ubi import Ubi

    if ubi is None and hits_shown is not None:
        raise OptionError("--hits-shown goes with --ubi: the rows of a log are what was shown.")
    return None if ubi is None else Ubi(str(ubi[0]), str(ubi[1]), hits_shown)


LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[=WEIGHT]",
        help="Column with the feedback. May be repeated: labels with weights (click=1, booked=5) "
        "are added up; without weights, the first is the label (default: click).",
        rich_help_panel=READING,
    ),
]


@dataclass(frozen=True)
class Labels:
    """Which feedback columns are read, and what becomes of them.

    names : all columns, the main one first
    weights : of those that make one label; empty where the main one is the label as it is
    """

    names: tuple[str, ...]
    weights: dict[str, float]

    @property
    def option(self) -> str | dict[str, float]:
        """`label` of a run: a name, or weights."""
        return self.weights or self.names[0]

    @property
    def kept(self) -> list[str]:
        """`labels` of a run: what is kept beside the label."""
        return [name for name in self.names[not self.weights :] if name not in self.weights]


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(ClickOptions):
    """Options of commands that read clicks alone: where columns are, which label, bad rows."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "columns", "documents", "label", "on_bad", "positions_from", "table", "sample_queries",
    )  # fmt: skip

    label: LabelOption = None
    table: TableOption = None

    def read(
        self,
        out: Output,
        path: "Path | list[Path] | Ubi",
        *,
        context: Sequence[str] = (),
        labels: Sequence[str] = (),
        collapse: "Collapse" = True,
        to_rank: bool = False,
    ) -> "ClickLog":
        """Read the log; say what was dropped. `to_rank`: a ranker will need its features."""
        from untilt.data.read.read_log import read_log_report

        source = list(path) if isinstance(path, list) else path
        first = path[0] if isinstance(path, list) else path
        if not isinstance(first, Path):
            first = Path(first.queries)
        options = {
            name: getattr(self, name)
            for name in declared(ReadOptions)
            if name != "label" and hasattr(self, name)
        }
        chosen = parse_labels(self.label)
        source = with_table(source, self.table)
        if isinstance(self, LogOptions):
            options["documents"] = with_table(self.documents, self.table, "documents=")
        with progress(f"reading {first.name}"):
            log, report = read_log_report(
                source, context=context, collapse=collapse, label=chosen.names[0],
                labels=[*chosen.names[1:], *(each for each in labels if each not in chosen.names)],
                **options,
            )  # fmt: skip
        if chosen.weights:
            from untilt.data.transform import synthesise

            log = synthesise(log, chosen.weights)
        _check_content(log, first, to_rank=to_rank)
        out.detail(f"read {log!r}")
        named = path if isinstance(path, Path | list) else report.source
        out.record(log=named, rows=report.n_rows, rows_dropped=report.n_dropped)
        if report.notes:
            out.record(read=[note.record(out.said) for note in report.notes])
        plain = str(path) if isinstance(path, Path) else report.source
        out.say(report.told if report.bad or report.notes else plain)
        return log


@dataclass(frozen=True, kw_only=True)
class LogOptions(DocumentOptions, ColumnOptions):
    """Options of commands that read clicks and features."""

    def read_to_train(self, out: Output, path: Path, *, context: Sequence[str] = ()) -> "ClickLog":
        """The log with features that a ranker may learn from."""
        log = self.without_leaks(out, self.read(out, path, to_rank=True, context=context))
        _check_content(log, path, to_rank=True)
        return log

    def without_leaks(
        self, out: Output, log: "ClickLog", *, curve: bool = False, old_score: str | None = None
    ) -> "ClickLog":
        """The log without leaks and old ranks, unless they are named; say which.

        `curve` : it is for an estimate of the bias, which does without the old score, too
        """
        from untilt.auditing.leaks import LEAK, leak_fact, leaking_features
        from untilt.auditing.sort_keys import kept_out, left_out_of_curve, outcome, sort_keys
        from untilt.data.read.columns import named_features
        from untilt.data.transform import without_features

        named = named_features(self.features)
        with progress("looking at the features"):
            leaks, keys = leaking_features(log), sort_keys(log, old_score)
        left = kept_out(leaks, keys, named)
        told = [leak_fact(LEAK, asdict(leak)) for leak in leaks]
        told = [outcome(e, left) for e in (*told, *(k.fact for k in keys if k.kind == "rank"))]
        log = without_features(log, left)
        scores = left_out_of_curve(log, keys) if curve else ()
        told += [each.fact for each in keys if each.feature in scores]
        if told:
            out.heading("warnings")
            out.points(told)
            out.record(leaks=[fact.record(out.said) for fact in told], kept_out=[*left, *scores])
        return without_features(log, scores)


def _check_content(log: "ClickLog", path: Path, *, to_rank: bool) -> None:
    """What every command needs of a log; the library would say it later, each part in its words."""
    if log.n_sessions == 0:
        raise OptionError(f"{path} holds no session: there is nothing to learn from.")
    if to_rank and log.n_features == 0:
        raise OptionError(
            f"{path} has no features, so no ranker can score its documents. Give them with "
            "--documents TABLE, or name the feature columns of the log: --features 'f_*'."
        )


def with_table(
    source: Any, tables: Sequence[str] | None, of: Literal["", "documents="] = ""
) -> Any:
    """What to read: the file, or the table of it that --table NAME or documents=NAME names."""
    is_named = [each for each in tables or () if each.startswith("documents=") == bool(of)]
    if not is_named:
        return source
    if source is None or isinstance(source, list) or len(is_named) > 1:
        raise OptionError(f"--table {of}NAME names one table of one database. Give that one alone.")
    return source, is_named[0].removeprefix(of)


def parse_labels(texts: Sequence[str] | None) -> Labels:
    """NAME and NAME=WEIGHT as columns to read, and weights."""
    names, weights = [], {}
    for text in texts or ("click",):
        name, equals, weight = text.rpartition("=")
        name = name if equals else text
        if not name:
            raise OptionError(f"--label needs the name of a column. Got {text!r} instead.")
        if name in names:
            raise OptionError(f"--label names {name!r} twice. Name each column once.")
        names.append(name)
        if equals:
            weights[name] = _weight(text, weight)
    return Labels(tuple(names), weights)


def _weight(text: str, weight: str) -> float:
    try:
        value = float(weight)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise OptionError(
            f"--label NAME=WEIGHT needs a weight above 0, such as booked=5. Got {text!r} instead."
        )
    return value


def parse_count(text: str | None, option: str) -> "int | Literal['auto'] | None":
    """A whole number of at least 1, or "auto"."""
    if text is None or text == "auto":
        return "auto" if text else None
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise OptionError(f"{option} takes auto or a whole number of at least 1. Got {text!r}.")
    return int(text)


def parse_bias(text: str | None) -> Any:
    """The bias that an option names; None where nothing was given."""
    from untilt.bias.given import parse_bias as parsed

    return None if text is None or text == "none" else parsed(text, also=("none",))


def context_of(bias: Any) -> tuple[str, ...]:
    """The context columns that a bias has curves for: a log that meets it is read with them."""
    from untilt.data.layout import ContextCells

    layout = getattr(bias, "layout", None)
    return layout.columns if isinstance(layout, ContextCells) else ()


# Options that say how a log is read: with another command on the same log they mean the same.
READING_OPTIONS = frozenset(
    name for group in (LogOptions, UbiOptions) for name in declared(group)
) | {"context"}
_TYPED = "untilt.typed"
_MOST_NAMES = 12  # of methods in a help text


class CommandWithMethods(TyperCommand):
    """A command whose help texts may name kinds: "{weighting|objective}" becomes their names."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep what was typed, for commands to suggest; an option given twice is an error."""
        if not ctx.resilient_parsing:
            typed, _, order = self.make_parser(ctx).parse_args(args=list(args))
            ctx.meta[_TYPED] = typed
            for option in {each.name: each for each in order if order.count(each) > 1}.values():
                if not (option.multiple or getattr(option, "is_flag", False)):
                    raise OptionError(
                        f"{option.opts[0]} was given {order.count(option)} times, and only "
                        f"{typed[str(option.name)]!r} would count. Give it once."
                    )
            if ctx.parent is not None and typed.get("config") is None:
                ctx.default_map = defaults_of_file(self, ctx.parent.command.commands)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if isinstance(told := getattr(error, "message", None), str):
                error.message = without_secrets(told)  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it says is in the words of this command line."""
        line = CommandLine(self, ctx.parent.command.commands if ctx.parent else {})
        line.given = {
            name: [
                without_secrets(str(value))
                for value in (values if isinstance(values, list | tuple) else [values])
            ]
            for name, values in ctx.meta.get(_TYPED, {}).items()
            if values is not None
        }
        ctx.obj = line
        with line.speaking():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help, as `_shown` shows parameters."""
        super(CommandWithMethods, self.as_shown()).format_help(ctx, formatter)

    def as_shown(self) -> "CommandWithMethods":
        """The command as its help and the reference show it."""
        shown = copy(self)
        shown.params = [_shown(parameter, self.name or "") for parameter in self.params]
        return shown

    def get_help_option(self, ctx: Any) -> Any:
        """A flag without a type, as all others."""
        return plain_flag(super().get_help_option(ctx))


def plain_flag(parameter: Any) -> Any:
    """The parameter; where it is a flag, without <bool> behind it."""
    if getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    return parameter


DEFAULTS = Path("untilt.toml")


def defaults_of_file(command: Any, commands: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options that untilt.toml in the working folder has for this command.

    Options of reading a log stand at its top and hold for every command that reads one; options of
    one command stand in a table with its name, such as [run].
    """
    if not DEFAULTS.is_file():
        return {}
    from untilt.workflow.config import read_toml

    read = {name.replace("-", "_"): value for name, value in read_toml(DEFAULTS).items()}
    tables = {name: read.pop(name) for name in commands if isinstance(read.get(name), dict)}
    _check_keys(DEFAULTS.name, read, (*READING_OPTIONS, *commands))
    options = {each.name: each for each in command.params if each.param_type_name == "option"}
    own = {name.replace("-", "_"): v for name, v in tables.get(command.name, {}).items()}
    _check_keys(f"{DEFAULTS.name} [{command.name}]", own, options)
    shared = read if "on_bad" in options else {}
    return {name: _as_typed(value, options[name])
            for name, value in (shared | own).items() if name in options}  # fmt: skip


def _check_keys(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownOptionError(where, name, known)


def _as_typed(value: Any, parameter: Any) -> Any:
    """A value of TOML as it would be typed behind the option."""
    if isinstance(value, dict):
        value = [f"{name}={each}" for name, each in value.items()]
    if parameter.multiple or parameter.nargs > 1:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    return value if isinstance(value, bool) else str(value)


_METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}


def _shown(parameter: Any, command: str) -> Any:
    """A parameter as help shows it, with the names of methods in its text."""
    shown = plain_flag(copy(parameter))
    if shown.metavar is None:
        shown.metavar = _METAVARS.get(shown.type_descriptor.annotation)
    shown.min = shown.max = None  # a value out of range is an error that names the range
    if getattr(shown, "help", None):
        shown.help = KINDS.sub(lambda kinds: _choices(kinds[1], command), shown.help)
    return shown


def _choices(kinds: str, command: str) -> str:
    """ "default ranker": the default's name; else the names that this command may choose."""
    if kinds.startswith("default "):
        return catalog.default(cast("catalog.Kind", kinds.removeprefix("default "))).name
    records = [each for each in catalog.methods() if each.kind in kinds.split("|")]
    names = [each.name for each in records if not each.choose or command in each.choose]
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ...: see `untilt methods {kinds.partition('|')[0]}`"

"""The options of a run: one list of names for Python, the command line and a TOML file.

A run writes the options that it used as TOML, so that the same file starts it again.
"""

import json
import os
import re
import reprlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from untilt import catalog
from untilt._core.addresses import is_address, shown
from untilt._core.arrays import Missing, check_missing
from untilt._core.declared import check_value, declared
from untilt._core.paths import check_name, is_utf8
from untilt._core.statistics import check_level
from untilt.data.read.options import ClickOptions
from untilt.data.read.ubi import Ubi
from untilt.data.transform import COMBINATIONS, check_weights
from untilt.errors import FileFormatError, OptionError, check_choice, did_you_mean
from untilt.workflow.candidates import candidate, candidates

SplitBy = Literal["query", "session", "time"]
Trees = int | Literal["auto"]
PLACES = ("log", "out")  # what a file of options may name beside them
_PATHS = ("log", "out", "documents")
OBJECT = "<an object of Python>"
_TEXTS = ("fallback", "metric", "evaluator", "title")
_MOST_BYTES = 1 << 20  # of a file of options
MOST_FOLDS = 100
SHARE = 0.2  # of the queries, to choose by and to judge by
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def usual_methods() -> tuple[str, ...]:
    """The candidates that a run tries where none is named."""
    return tuple(each.name for each in candidates("usual"))


@dataclass(frozen=True)
class RunOptions:
    """What a run is asked for.

    Parameters
    ----------
    documents, columns, labels, context, features, missing, on_bad, positions_from, grid,
        sample_queries : as in `untilt.read_log`. Where reading depends on the context, each has a
        curve of its own
    label : the column to learn from, or weights of several, {"click": 1, "booked": 5}, which
        `untilt.synthesise` makes one label of, by `combine` ("sum" or "product")
    bias : "auto" (what the audit advises), the name of an estimator ("all-pairs"), also with
        options ("all-pairs:depth=8"), a curve
        ("power-law:1"), a file of an estimate, or a `PositionBias`
    fallback : the curve that is assumed, loudly, where the log cannot tell its bias
    method : corrections to train and choose from, as in `untilt train`; "usual" for all usual ones.
        Raw clicks are always trained too, to compare with
    metric, evaluator, among, baseline, level : as in `untilt.estimate`; the evaluator by its name.
        Policy-aware uses all sessions that showed a document; the others only its own session, and
        with among="shown" they take a document that a session did not show for irrelevant in it
    clip : least propensity that a click is divided by, 0 for none; "auto" takes the clip with the
        least estimated mean squared error on the part that rankers are chosen by
    trees : of each boosted ranker; "auto": as many as queries that are held out of the training
        choose
    folds : 1 holds out `valid_share` of the queries to choose by and `test_share` to judge by; with
        more, each fold of queries is judged by rankers that were trained on the others, so that all
        queries count; "auto" takes 5 where a log is small (`untilt.workflow.stage_read`)
    split, valid_share, test_share : what is held out, whole queries ("query"), single sessions
        ("session") or the latest sessions ("time"): a share to choose by and a share to judge by,
        which by time is the last one
    time_limit : seconds, or "90s", "10m", "1h30m"; trees and candidates are cut to meet it
    seed, threads : of everything that is drawn; of training (all cores where not given)
    title : of the report; the log's name where not given
    """

    documents: Any = None
    columns: Mapping[str, str | None] | None = None
    label: str | Mapping[str, float] = "click"
    labels: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    combine: Literal["sum", "product"] = "sum"
    features: Any = None
    missing: Missing = None
    on_bad: Literal["raise", "drop"] = "raise"
    positions_from: Literal[0, 1] | None = None
    grid: tuple[int, int] | None = None
    sample_queries: float | None = None
    bias: Any = "auto"
    fallback: str = "power-law:1"
    method: tuple[str, ...] = field(default_factory=usual_methods)
    metric: str = "dcg@10"
    evaluator: str = catalog.default("evaluator").name
    clip: float | Literal["auto"] = "auto"
    among: Literal["list", "shown", "candidates"] = "list"
    baseline: Any = None
    level: float = 0.95
    trees: Trees = "auto"
    folds: int | Literal["auto"] = "auto"
    split: SplitBy = "query"
    valid_share: float = SHARE
    test_share: float = SHARE
    time_limit: float | None = None
    seed: int = 0
    threads: int | None = None
    title: str | None = None

    def pick(self, *names: str) -> dict[str, Any]:
        """Some options by name: what a step depends on."""
        return {name: getattr(self, name) for name in names}


def options_of(given: Mapping[str, Any], *, where: str = "untilt.run") -> RunOptions:
    """Checked options; names may be written with dashes. `where` begins messages."""
    known = [field.name for field in fields(RunOptions)]
    named: dict[str, Any] = {}
    for name, value in given.items():
        plain = str(name).replace("-", "_")
        if plain not in known:
            raise OptionError(
                f"{where} has no option {name!r}.{did_you_mean(plain, known)} "
                f"Options: {', '.join(known)}."
            )
        named[plain] = value
    options = RunOptions(**_parsed(named))
    check_options(options)
    return options


def _parsed(named: dict[str, Any]) -> dict[str, Any]:
    """Values that may be written in several ways, in the one way that is used."""
    for name in ("method", "baseline", "labels", "context"):
        _check_names(name, named.get(name))
    if isinstance(named.get("grid"), list):
        named["grid"] = tuple(named["grid"])
    for name in ("labels", "context"):
        if name in named:
            given = named[name] or ()
            named[name] = (given,) if isinstance(given, str) else tuple(given)
    if "method" in named:
        named["method"] = _methods(named["method"])
    if isinstance(named.get("time_limit"), str):
        named["time_limit"] = seconds_of(named["time_limit"])
    if named.get("baseline") is not None and not isinstance(named["baseline"], str):
        named["baseline"] = tuple(str(name) for name in named["baseline"])
    if isinstance(named.get("documents"), os.PathLike):
        named["documents"] = os.fspath(named["documents"])
    return named


def _check_names(name: str, given: Any) -> None:
    """Raise unless it is a name or several, or not given."""
    several = given if isinstance(given, list | tuple) else (given,)
    if given is not None and not all(isinstance(each, str) for each in several):
        raise OptionError(f"{name} must be a name or a list of names. Got {_short(given)}.")


def _short(value: Any) -> str:
    return reprlib.repr(value)


def _methods(given: Any) -> tuple[str, ...]:
    wanted = (given,) if isinstance(given, str) else tuple(given)
    names = [catalog.default("weighting").name]  # a run always has raw clicks
    for name in wanted:
        names += usual_methods() if name == "usual" else [candidate(name).name]
    return tuple(dict.fromkeys(names))


def check_options(options: RunOptions) -> None:
    """Raise before any long work where an option makes no sense."""
    from untilt.evaluation.slots import as_rank_metric

    for name in _TEXTS:
        value = getattr(options, name)
        if not isinstance(value, str) and not (name == "title" and value is None):
            raise OptionError(f"{name} must be text. Got {_short(value)}.")
    if options.columns is not None and not isinstance(options.columns, Mapping):
        raise OptionError(
            f"columns must name columns, ours = theirs. Got {_short(options.columns)}."
        )
    _check_label(options)
    grid = declared(ClickOptions)["grid"]
    assert grid.option is not None
    check_value("grid", options.grid, grid.kind, grid.option)
    check_choice("on_bad", options.on_bad, ("raise", "drop"))
    check_missing(options.missing)
    check_choice("evaluator", options.evaluator, catalog.names("evaluator", choose="run"))
    check_choice("among", options.among, ("list", "shown", "candidates"))
    check_choice("split", options.split, get_args(SplitBy))
    if not _is_number(options.level):
        raise OptionError(f"level must be a number such as 0.95. Got {_short(options.level)}.")
    check_level(options.level)
    as_rank_metric(options.metric)
    for name, least, most in (("trees", 1, 2**31), ("seed", 0, 2**63), ("threads", 1, 2**31)):
        value = getattr(options, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if name == "trees" and value == "auto":
            continue
        if value is not None and not (whole and least <= value < most):
            wanted = f"below {most:,}" if whole and value >= most else f"of at least {least}"
            raise OptionError(f"{name} must be a whole number {wanted}. Got {_short(value)}.")
    _check_folds(options)
    _check_shares(options)
    if not (_is_number(options.clip) and options.clip >= 0) and options.clip != "auto":
        raise OptionError(
            f"clip must be 'auto' or a number of at least 0. Got {_short(options.clip)}."
        )
    limit = options.time_limit
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise OptionError(f"time_limit must be above 0 seconds. Got {_short(limit)}.")


def _check_label(options: RunOptions) -> None:
    check_choice("combine", options.combine, COMBINATIONS)
    if isinstance(options.label, Mapping):
        check_weights(options.label)
    elif not isinstance(options.label, str):
        raise OptionError(
            "label must be the name of a column, or weights of several such as "
            f"{{'click': 1, 'booked': 5}}. Got {_short(options.label)}."
        )


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether it is a number that fits into 64 bits; true and false are none."""
    if isinstance(value, bool):
        return False
    return isinstance(value, Real) and not (
        isinstance(value, Integral) and abs(int(value)) >= 2**63
    )


def _check_folds(options: RunOptions) -> None:
    folds = options.folds
    whole = isinstance(folds, int) and not isinstance(folds, bool)
    if folds != "auto" and not (whole and 1 <= folds <= MOST_FOLDS):
        raise OptionError(
            f"folds must be 'auto' or a whole number from 1 to {MOST_FOLDS}. Got {_short(folds)}; "
            "5 is usual."
        )
    if options.split != "query" and folds not in ("auto", 1):
        raise OptionError(
            f"folds are of queries, and split={options.split!r} holds out sessions. Got "
            f"folds={folds}; leave one of the two out."
        )


def _check_shares(options: RunOptions) -> None:
    for name in ("valid_share", "test_share"):
        value = getattr(options, name)
        if not (_is_number(value) and 0 < value < 1):
            raise OptionError(
                f"{name} must lie between 0 and 1. Got {_short(value)}; 0.2 is usual."
            )
    if options.valid_share + options.test_share > 0.8:
        raise OptionError(
            f"valid_share and test_share leave too little to learn from: {options.valid_share:g} "
            f"and {options.test_share:g} are above 0.8 together. 0.2 each is usual."
        )


def with_title(options: RunOptions, source: Any) -> RunOptions:
    """The options with a title: the file's name where none was given."""
    if options.title is not None:
        return options
    source = source.queries if isinstance(source, Ubi) else source
    named = isinstance(source, str | os.PathLike)
    if is_address(source):
        source = shown(os.fspath(source)).partition("?")[0]
    name = os.path.basename(os.path.normpath(os.fspath(source))) if named else ""
    return replace(options, title=name or "click log")


def seconds_of(text: str) -> float:
    """Seconds of "90", "90s", "10m" or "1h30m".

    >>> seconds_of("1h30m"), seconds_of("2.5m"), seconds_of("90")
    (5400.0, 150.0, 90.0)
    """
    plain = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or _PART.sub("", plain).strip():
        raise OptionError(
            f"a length of time is a number with a unit, such as 90s, 10m or 1h30m. Got {text!r}."
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """The other way round, to two units at most.

    >>> duration_text(12.3), duration_text(192), duration_text(7260)
    ('12 s', '3 min 12 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The options of a TOML file; paths in it are relative to the file. Unknown keys are errors."""
    file = Path(path)
    check_name(file)
    try:
        with file.open("rb") as content:
            read = tomllib.loads(content.read(_MOST_BYTES).decode())
    # Not only TOMLDecodeError: a number of 5,000 digits, a list in lists without end.
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is no TOML: {error}. Write one option a line, such as trees = 100."
        ) from error
    known = [*PLACES, *(field.name for field in fields(RunOptions))]
    named = {name.replace("-", "_"): value for name, value in read.items()}
    for name in named:
        if name not in known:
            raise OptionError(
                f"{path} has an unknown key {name!r}.{did_you_mean(name, known)} "
                f"Keys: {', '.join(known)}."
            )
    for name in _PATHS:
        if name in named:
            named[name] = _resolved(named[name], file.parent)
    if isinstance(named.get("bias"), str) and (file.parent / named["bias"]).is_file():
        named["bias"] = str(file.parent / named["bias"])
    if isinstance(named.get("columns"), dict):
        named["columns"] = {ours: theirs or None for ours, theirs in named["columns"].items()}
    return named


def _resolved(place: Any, folder: Path) -> Any:
    """Paths of a file of options, seen from where the program runs."""
    if isinstance(place, dict) and set(place) == {"database", "table"}:
        _check_names("database and table", [*place.values()])
        return _resolved(place["database"], folder), place["table"]
    if isinstance(place, dict) and {"queries", "events"} <= set(place):
        queries, events = (_resolved(place[name], folder) for name in ("queries", "events"))
        return Ubi(queries, events, place.get("hits_shown"))
    if isinstance(place, list):
        return [_resolved(each, folder) for each in place]
    if not isinstance(place, str):
        raise OptionError(
            "log, out and documents must name a file, several, or { database, table }; log also an "
            "export of UBI, { queries, events, hits_shown }. "
            f"Got {_short(place)}."
        )
    return place if place == OBJECT or is_address(place) else str(folder / place)


def config_text(options: RunOptions, *, log: Any = None) -> str:
    """TOML that gives these options again, from any folder.

    Paths are absolute. A bias that was an object is the bias.json beside the file; any other object
    of Python, or a path that is not UTF-8, is `OBJECT`, which a run that is given the file refuses.
    """
    values = {"log": log, **{f.name: getattr(options, f.name) for f in fields(RunOptions)}}
    values |= {name: _absolute(values[name]) for name in ("log", "documents")}
    if not isinstance(options.bias, str):
        values["bias"] = "bias.json"
    elif Path(options.bias).is_file():
        values["bias"] = os.path.abspath(options.bias)
    entries = [_entry(name, value) for name, value in values.items() if value is not None]
    # Tables come last: in TOML every line below belongs to them.
    return "\n".join(sorted(entries, key=lambda entry: entry.startswith("["))) + "\n"


def _absolute(source: Any) -> Any:
    """Where a log or a table of documents lies; an object that is no place stays as it is.

    An address is written without its password.
    """
    if is_address(source):
        return shown(os.fspath(source))
    if isinstance(source, str | os.PathLike):
        return os.path.abspath(source)
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str | os.PathLike):
        return {"database": _absolute(source[0]), "table": source[1]}
    if isinstance(source, Ubi):
        both = {"queries": _absolute(source.queries), "events": _absolute(source.events)}
        most = {} if source.hits_shown is None else {"hits_shown": source.hits_shown}
        return both | most if all(_value(each) is not None for each in both.values()) else source
    return [_absolute(each) for each in source] if isinstance(source, list) else source


def _entry(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        # TOML has no null: a column that is left out is called "".
        rows = [f"{json.dumps(str(k))} = {_value(v if v is not None else '')}"
                for k, v in value.items()]  # fmt: skip
        return "\n".join([f"[{name}]", *rows])
    written = _value(value)
    return f"{name} = {_value(OBJECT) if written is None else written}"


def _value(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | os.PathLike):
        # JSON's strings are TOML's basic strings; TOML has none for a name that is no text.
        text = os.fspath(value)
        return json.dumps(text, ensure_ascii=False) if is_utf8(text) else None
    if isinstance(value, list | tuple):
        parts = [_value(each) for each in value]
        return None if None in parts else "[" + ", ".join(str(part) for part in parts) + "]"
    return None

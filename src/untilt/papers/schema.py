"""What an experiment's file may say: every key is checked, and a wrong one gets the nearest name.

A file in `catalogue/` describes one table or figure: panels (how clicks are made, what is measured,
what varies along the x axis), rows (which method), sizes, the document's own figures and its
claims. A file in `documents/` names a document, and those of its claims that no experiment can
test here. Nothing in them is code.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from untilt._core.codec import from_plain
from untilt._core.paths import check_name
from untilt.catalog import default
from untilt.errors import FileFormatError, OptionError, check_choice, did_you_mean

PARTS = ("protocol", "size", "bias", "weighting", "option")
SUFFIX = ".toml"
_MOST_BYTES = 1 << 20  # of a file of one's own
ClaimKind = Literal[
    "above", "below", "similar", "rises", "falls", "gains-more", "closer", "larger-gap"
]
POINTWISE: tuple[ClaimKind, ...] = ("above", "below", "closer")  # said of one x as of many
STEPWISE: tuple[ClaimKind, ...] = ("rises", "falls", "gains-more")  # said of two x or more
Value = float | str


@dataclass(frozen=True)
class ExperimentSize:
    """How large a run is. `queries` is for generated data, and the most that --quick takes.

    Of `clicks`, `clicks_per_query` and `sessions_per_query` the first that is given counts.
    Networks of all rows alike: `epochs`, `widths`, `batch` (lists a step), `learning_rate`,
    `patience` (epochs without improvement on held-out queries), `penalties` (l2, of which held-out
    queries choose).
    `production_queries` : whose labels train the production ranker; where not given 1%, at least 5
    `clicked` : whether `sessions_per_query` counts sessions with a click, drawn until there are so
        many, as the generator of 003 does
    `swap_sessions` : of the experiment with swaps; where not given as many per query as the log
        has, at least 100
    """

    queries: int = 1000
    test_queries: int = 1000
    seeds: int = 3
    fold_seeds: int = 1
    folds: int = 5
    sessions_per_query: int | None = None
    clicks: int | None = None
    clicks_per_query: float | None = None
    swap_sessions: int | None = None
    production_queries: int | None = None
    clicked: bool = False
    share: float = 1.0
    trees: int = 200
    features: int = 50
    mean_docs: float = 24.0
    repeats: int = 20
    points: int | None = None
    epochs: int | None = None
    widths: tuple[int, ...] = ()
    batch: int | None = None
    learning_rate: float | None = None
    patience: int | None = None
    penalties: tuple[float, ...] = ()

    def times(self, factor: int) -> "ExperimentSize":
        """As many clicks and sessions, so many times."""
        amounts = ("clicks", "clicks_per_query", "sessions_per_query")
        given = {name: getattr(self, name) for name in amounts}
        return replace(self, **{k: factor * v for k, v in given.items() if v is not None})


@dataclass(frozen=True)
class Sweep:
    """The x axis: `parameter` is `part.name` or "bias", and takes these values in turn."""

    parameter: str
    values: tuple[Value, ...]
    title: str
    scale: Literal["linear", "log", "names"] = "linear"

    @property
    def part(self) -> str:
        """What it changes: the protocol, the size of the log, or something of the rows."""
        return self.parameter.partition(".")[0]

    @property
    def key(self) -> str:
        """Which parameter of that part."""
        return self.parameter.partition(".")[2]

    @property
    def changes_the_log(self) -> bool:
        """Whether every value needs clicks of its own."""
        return self.part in ("protocol", "size")


@dataclass(frozen=True)
class Panel:
    """One picture, or one block of a table.

    It has `times` as many clicks as the size says; `clicks_per_query` counts before that of the
    size.
    """

    name: str
    protocol: str = default("protocol").name
    parameters: dict[str, Any] = field(default_factory=dict)
    measure: str = "judged"
    metrics: tuple[str, ...] = ("ndcg@10",)
    sweep: Sweep | None = None
    rows: tuple[str, ...] = ()
    binary: bool = False
    test_bias: str = ""
    unit: str = ""
    clicks_per_query: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Row:
    """One method: a ranker, what it learns from, the table of weights and where its bias is from.

    `tune` names options of the ranker, or of the weighting as "weighting.clip", with the values to
    try: held-out queries choose. `fixed`
    rows do not depend on the sweep and are run once.
    """

    name: str
    title: str
    group: str = ""
    ranker: str = default("ranker").name
    train_on: str = "clicks"
    # By its other name, "naive": finished cells are kept under it (`run.digest`).
    weighting: str = default("weighting").aliases[0]
    weighting_options: dict[str, Any] = field(default_factory=dict)
    bias: str = ""
    bias_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    tune: dict[str, Any] = field(default_factory=dict)
    fixed: bool = False


@dataclass(frozen=True)
class Reported:
    """Figures of the document for one row: metric -> value."""

    row: str
    source: str
    values: dict[str, float]
    panel: str = ""


@dataclass(frozen=True)
class Claim:
    """A sentence of the document and how it is put to the test.

    Items of `rows` are names of rows, or `row:metric` where two metrics are compared; of several
    rows the first is compared with each of the others, in a test of its own. "similar" without a
    second row compares with `value`. `every` asks it of each x alone, or of each step to
    the next x, and not of their mean or their ends. `own` is no sentence of the document: a
    question that we ask beside it.
    """

    text: str
    source: str
    kind: ClaimKind
    rows: tuple[str, ...]
    panel: str = ""
    metric: str = ""
    at: tuple[Value, ...] = ()
    target: str = ""
    value: float = 0.0
    margin: float = 0.0
    every: bool = False
    own: bool = False


@dataclass(frozen=True)
class Untested:
    """A sentence of the document that cannot be put to the test here, and why not."""

    text: str
    source: str
    reason: str


@dataclass(frozen=True)
class Document:
    """A document: what its experiments have in common, and claims that belong to none of them."""

    name: str
    title: str
    reference: str
    notes: tuple[str, ...] = ()
    untested: tuple[Untested, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a document.

    `full` is the document's own size and `size` that of a run without a word about it: as near to
    the document's as an hour allows. A file with one of them means both.
    """

    name: str
    title: str
    document: str
    reference: str
    source: str
    question: str
    form: Literal["table", "lines", "bars"]
    panels: tuple[Panel, ...]
    rows: tuple[Row, ...]
    full: ExperimentSize
    size: ExperimentSize
    quick: ExperimentSize
    reported: tuple[Reported, ...] = ()
    claims: tuple[Claim, ...] = ()
    untested: tuple[Untested, ...] = ()
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """The row of that name."""
        return next(row for row in self.rows if row.name == name)

    def panel(self, name: str) -> Panel:
        """The panel of that name."""
        return next(panel for panel in self.panels if panel.name == name)

    def rows_of(self, panel: Panel) -> tuple[Row, ...]:
        """Its rows; all where the panel names none."""
        return tuple(self.row(name) for name in panel.rows) if panel.rows else self.rows


def named(row: Row, rows: Sequence[Row]) -> str:
    """The row's title, with its group where the rows beside it are of several."""
    several = len({other.group for other in rows}) > 1
    return f"{row.group}: {row.title}" if several and row.group else row.title


def names() -> tuple[str, ...]:
    """Names of the experiments that come with untilt, sorted."""
    folder = files("untilt.papers") / "catalogue"
    entries = [entry.name for entry in folder.iterdir()]
    return tuple(sorted(name.removesuffix(SUFFIX) for name in entries if name.endswith(SUFFIX)))


def load(name: str) -> Experiment:
    """An experiment by its name, or from a file of one's own that ends in .toml."""
    if name.endswith(SUFFIX):
        path = Path(name)
        check_name(path)
        with path.open("rb") as file:
            return parse(_table(file.read(_MOST_BYTES), name, path.stem), where=name)
    if name not in names():
        raise OptionError(
            f"there is no experiment {name!r}.{did_you_mean(name, names())} "
            f"There are: {', '.join(names())}; a file of your own ends in {SUFFIX}."
        )
    where = f"{name}{SUFFIX}"
    return parse(_table(_inside("catalogue", where), where, name), where=where)


def documents() -> tuple[Document, ...]:
    """The documents whose experiments come with untilt, sorted by name."""
    folder = files("untilt.papers") / "documents"
    known = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(SUFFIX))
    return tuple(_document(where) for where in known)


def _document(where: str) -> Document:
    table = _table(_inside("documents", where), where, where.removesuffix(SUFFIX))
    table["untested"] = _tables(Untested, table, "untested", where)
    _check_keys(Document, table, where)
    return from_plain(Document, table, where=where)


def _inside(folder: str, name: str) -> bytes:
    return (files("untilt.papers") / folder / name).read_bytes()


def _table(data: bytes, where: str, name: str) -> dict[str, Any]:
    try:
        table = tomllib.loads(data.decode())
    # Not only TOMLDecodeError: other bytes than text, a number of 5,000 digits, endless nesting.
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where} is not TOML: {error}. Correct that line.") from error
    return {"name": name, **table}


# Array of tables in the file -> field of the experiment, and what each table holds.
_TABLES = {
    "panel": ("panels", Panel),
    "row": ("rows", Row),
    "reported": ("reported", Reported),
    "claim": ("claims", Claim),
    "untested": ("untested", Untested),
}


def parse(table: Mapping[str, Any], *, where: str) -> Experiment:
    """An experiment from the tables of its TOML file; raises where something is not known.

    One that says ``extends = "000-table-1"`` is that one with its own rows and claims beside.
    """
    plain: dict[str, Any] = {"quick": {}, **table}
    if "extends" in plain:
        plain = _extended(plain, where)
    plain.setdefault("full", plain.get("size", {}))
    plain.setdefault("size", plain["full"])
    for size in ("full", "size", "quick"):
        _check_keys(ExperimentSize, plain[size], f"{where}, {size}")
    for key, (name, cls) in _TABLES.items():
        plain[name] = _tables(cls, plain, key, where)
    _check_keys(Experiment, plain, where)
    experiment = from_plain(Experiment, plain, where=where)
    _check(experiment, where)
    return experiment


def _extended(plain: dict[str, Any], where: str) -> dict[str, Any]:
    """The tables of the experiment of the catalogue with more rows, in all panels, and claims."""
    name = load(str(plain["extends"])).name
    base = _table(_inside("catalogue", f"{name}{SUFFIX}"), name, name)
    if unknown := sorted(set(plain) - {"extends", "name", "quick", "row", "claim"}):
        raise OptionError(
            f"{where}: extends takes only [[row]] and [[claim]]. Got {', '.join(unknown)} as well."
        )
    rows, claims = _tables(Row, plain, "row", where), _tables(Claim, plain, "claim", where)
    for panel in base["panel"]:
        if "rows" in panel:
            panel["rows"] += [row["name"] for row in rows]
    more = {"row": base["row"] + rows, "claim": base.get("claim", []) + claims}
    return {"quick": {}, **base, **more}


def _tables(cls: type, plain: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    """The tables under [[key]], taken out; every key in them is known."""
    entries = plain.pop(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f"{where}: {key} must be tables, each under [[{key}]].")
    for number, entry in enumerate(entries, start=1):
        _check_keys(cls, entry, f"{where}, {key} {number}")
        if "sweep" in entry:
            _check_keys(Sweep, entry["sweep"], f"{where}, {key} {number}, sweep")
    return entries


def _check_keys(cls: type, table: object, where: str) -> None:
    """Every key is a field of the class, and every field without a default is there."""
    if not isinstance(table, Mapping):
        raise OptionError(f"{where} must be a table. Got {table!r} instead.")
    known = {each.name: each for each in fields(cls)}
    for key in table:
        if key not in known:
            raise OptionError(
                f"{where}: {key!r} is no key here.{did_you_mean(key, known)} "
                f"There are: {', '.join(sorted(known))}."
            )
    missing = [
        name
        for name, each in known.items()
        if name not in table and each.default is MISSING and each.default_factory is MISSING
    ]
    if missing:
        raise OptionError(f"{where}: {', '.join(missing)} must be given.")


def _check(experiment: Experiment, where: str) -> None:
    """Names that point at each other must be there."""
    if not experiment.panels or not experiment.rows:
        raise OptionError(f"{where}: an experiment needs at least one [[panel]] and one [[row]].")
    rows, panels = [r.name for r in experiment.rows], [p.name for p in experiment.panels]
    for kind, given in (("row", rows), ("panel", panels)):
        if len(set(given)) < len(given):
            raise OptionError(f"{where}: two {kind}s have one name. Got {', '.join(given)}.")
    for panel in experiment.panels:
        if panel.sweep is not None:
            check_choice(f"{where}: the part in sweep.parameter", panel.sweep.part, PARTS)
        if panel.times < 1:
            raise OptionError(f"{where}: times must be at least 1. Got {panel.times} instead.")
    for row in experiment.rows:
        for option, values in row.tune.items():
            if not isinstance(values, list) or not values:
                raise OptionError(
                    f"{where}: tune.{option} of row {row.name!r} must be a list of values to try. "
                    f"Got {values!r} instead."
                )
    named = [(name, "a panel") for panel in experiment.panels for name in panel.rows]
    named += [(each.row, "a reported figure") for each in experiment.reported]
    for claim in experiment.claims:
        if claim.kind == "larger-gap" and len(claim.rows) != 4:
            raise OptionError(f"{where}: 'larger-gap' needs four rows, two gaps. Got {claim.rows}.")
        if claim.kind == "similar" and len(claim.rows) > 2:
            raise OptionError(
                f"{where}: 'similar' compares with one other row. Got {claim.rows}; write a claim "
                "for each of the others."
            )
        if claim.every and claim.kind not in POINTWISE + STEPWISE:
            raise OptionError(
                f"{where}: 'every' asks each x alone, which {claim.kind!r} cannot say. Use it with "
                f"{', '.join(POINTWISE + STEPWISE)}."
            )
        items = [*claim.rows, *([claim.target] if claim.target else [])]
        named += [(name.partition(":")[0], "a claim") for name in items]
        _check_named([(claim.panel, "a claim")] if claim.panel else [], panels, "panel", where)
        wanted = {name.partition(":")[2] or claim.metric for name in items} - {""}
        metrics = [m for p in experiment.panels if claim.panel in ("", p.name) for m in p.metrics]
        _check_named([(metric, "a claim") for metric in wanted], metrics, "metric", where)
    _check_named(named, rows, "row", where)


def _check_named(named: Iterable[tuple[str, str]], known: list[str], kind: str, where: str) -> None:
    for name, who in named:
        if name not in known:
            raise OptionError(
                f"{where}: {who} speaks of the {kind} {name!r}, which does not "
                f"exist.{did_you_mean(name, known)} There are: {', '.join(known)}."
            )

"""What an experiment's file may say: every key is checked, and a wrong one gets the nearest name.

A file in `catalogue/` describes one table or figure: panels (how clicks are made, what is measured,
what varies along the x axis), rows (which method), sizes, the document's own figures and its
claims. Nothing in it is code.
"""

import tomllib
import types
import typing
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from untilt.catalog import default
from untilt.errors import FileFormatError, OptionError, check_choice, did_you_mean

FORMS = ("table", "lines", "bars")
SCALES = ("linear", "log", "names")
ROLES = ("", "lower", "upper")
CLAIMS = ("above", "below", "similar", "rises", "falls", "gains-more", "closer", "larger-gap")
PARTS = ("protocol", "size", "bias", "weighting", "option")

T = TypeVar("T")
Value = float | str


@dataclass(frozen=True)
class Size:
    """How large a run is. `queries` is for data made here, and the most that --quick takes."""

    queries: int = 1000
    test_queries: int = 1000
    seeds: int = 3
    fold_seeds: int = 1
    folds: int = 5
    sessions_per_query: int | None = None
    clicks: int | None = None
    share: float = 1.0
    trees: int = 200
    features: int = 50
    mean_docs: float = 24.0
    repeats: int = 20
    points: int | None = None
    epochs: int | None = None
    widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """The x axis: `parameter` is `part.name` or "bias", and takes these values in turn."""

    parameter: str
    values: tuple[Value, ...]
    title: str
    scale: str = "linear"

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
    """One picture, or one block of a table."""

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


@dataclass(frozen=True)
class Row:
    """One method: a ranker, what it learns from, the table of weights and where its bias is from.

    `fixed` rows do not depend on the sweep and are run once. `lower` and `upper` are the ends of
    the gap inside a group.
    """

    name: str
    title: str
    group: str = ""
    ranker: str = default("ranker").name
    train_on: str = "clicks"
    weighting: str = default("weighting").name
    weighting_options: dict[str, Any] = field(default_factory=dict)
    bias: str = ""
    bias_options: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    role: str = ""
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

    Items of `rows` are names of rows, or `row:metric` where two metrics are compared. "similar"
    without a second row compares with `value`. `because` gives the reason where it does not hold,
    by data set.
    """

    text: str
    source: str
    kind: str
    rows: tuple[str, ...]
    panel: str = ""
    metric: str = ""
    at: tuple[Value, ...] = ()
    target: str = ""
    value: float = 0.0
    margin: float = 0.0
    because: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """One table or figure of a document."""

    name: str
    title: str
    document: str
    reference: str
    source: str
    question: str
    form: str
    panels: tuple[Panel, ...]
    rows: tuple[Row, ...]
    full: Size
    quick: Size
    reported: tuple[Reported, ...] = ()
    claims: tuple[Claim, ...] = ()
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


def parse(table: dict[str, Any], *, where: str) -> Experiment:
    """An experiment from the tables of its TOML file; raises where something is not known."""
    table = dict(table)
    panels = tuple(
        _panel(entry, f"{where}, panel {number + 1}")
        for number, entry in enumerate(_tables(table, "panel", where))
    )
    parts: dict[str, Any] = {
        "panels": panels,
        "rows": _several(Row, table, "row", where),
        "reported": _several(Reported, table, "reported", where),
        "claims": _several(Claim, table, "claim", where),
        "full": _made(Size, table.pop("full", {}), f"{where}, full"),
        "quick": _made(Size, table.pop("quick", {}), f"{where}, quick"),
    }
    known = [f.name for f in fields(Experiment) if f.name not in parts]
    _check_keys(table, [*known, "panel", "row", "reported", "claim", "full", "quick"], where)
    plain = {name: _typed(table[name], _hints(Experiment)[name], f"{where}: {name}")
             for name in known if name in table}  # fmt: skip
    _check_required(Experiment, {*plain, *parts}, where)
    experiment = Experiment(**plain, **parts)
    _check(experiment, where)
    return experiment


def _panel(entry: dict[str, Any], where: str) -> Panel:
    entry = dict(entry)
    sweep = entry.pop("sweep", None)
    made = _made(Panel, entry, where)
    if sweep is None:
        return made
    axis = _made(Sweep, sweep, f"{where}, sweep")
    check_choice(f"{where}: sweep.scale", axis.scale, SCALES)
    check_choice(f"{where}: the part in sweep.parameter", axis.part, PARTS)
    return Panel(**{**_as_dict(made), "sweep": axis})


def _as_dict(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _several(cls: type[T], table: dict[str, Any], key: str, where: str) -> tuple[T, ...]:
    entries = _tables(table, key, where)
    return tuple(_made(cls, entry, f"{where}, {key} {n + 1}") for n, entry in enumerate(entries))


def _tables(table: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = table.pop(key, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise OptionError(f"{where}: {key} must be tables, each under [[{key}]].")
    return entries


def _made(cls: type[T], table: Any, where: str) -> T:
    if not isinstance(table, dict):
        raise OptionError(f"{where} must be a table. Got {table!r} instead.")
    hints = _hints(cls)
    _check_keys(table, list(hints), where)
    _check_required(cls, table, where)
    return cls(**{k: _typed(v, hints[k], f"{where}: {k}") for k, v in table.items()})


def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _check_keys(table: dict[str, Any], known: list[str], where: str) -> None:
    for key in table:
        if key not in known:
            raise OptionError(
                f"{where}: {key!r} is no key here.{did_you_mean(key, known)} "
                f"There are: {', '.join(sorted(known))}."
            )


def _check_required(cls: Any, found: Any, where: str) -> None:
    from dataclasses import MISSING

    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in found]
    if missing:
        raise OptionError(f"{where}: {', '.join(missing)} must be given.")


def _typed(value: Any, wanted: Any, where: str) -> Any:
    """The value as the field wants it: lists become tuples, whole numbers may stand for others."""
    origin, arguments = typing.get_origin(wanted), typing.get_args(wanted)
    if wanted is Any:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(item, arguments[0], where) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: _typed(item, arguments[1], where) for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        for one in arguments:
            if one is not type(None) and _fits(value, one):
                return _typed(value, one, where)
    elif _fits(value, wanted):
        return float(value) if wanted is float else value
    name = getattr(wanted, "__name__", str(wanted)) if origin is None else str(wanted)
    raise OptionError(f"{where} must be {name}. Got {value!r} instead.")


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is bool or isinstance(value, bool):
        return wanted is bool and isinstance(value, bool)
    if wanted is float:
        return isinstance(value, int | float)
    return isinstance(wanted, type) and isinstance(value, wanted)


def _check(experiment: Experiment, where: str) -> None:
    """Names that point at each other must be there."""
    check_choice(f"{where}: form", experiment.form, FORMS)
    if not experiment.panels or not experiment.rows:
        raise OptionError(f"{where}: an experiment needs at least one [[panel]] and one [[row]].")
    rows, panels = [r.name for r in experiment.rows], [p.name for p in experiment.panels]
    for kind, names in (("row", rows), ("panel", panels)):
        if len(set(names)) < len(names):
            raise OptionError(f"{where}: two {kind}s have one name. Got {', '.join(names)}.")
    for row in experiment.rows:
        check_choice(f"{where}, row {row.name!r}: role", row.role, ROLES)
    named = [(name, "a panel") for panel in experiment.panels for name in panel.rows]
    named += [(each.row, "a reported figure") for each in experiment.reported]
    for claim in experiment.claims:
        check_choice(f"{where}: a claim's kind", claim.kind, CLAIMS)
        if claim.kind == "larger-gap" and len(claim.rows) != 4:
            raise OptionError(f"{where}: 'larger-gap' needs four rows, two gaps. Got {claim.rows}.")
        items = [*claim.rows, *([claim.target] if claim.target else [])]
        named += [(name.partition(":")[0], "a claim") for name in items]
        _check_named([(claim.panel, "a claim")] if claim.panel else [], panels, "panel", where)
        wanted = {name.partition(":")[2] or claim.metric for name in items} - {""}
        metrics = [m for p in experiment.panels if claim.panel in ("", p.name) for m in p.metrics]
        _check_named([(metric, "a claim") for metric in wanted], metrics, "metric", where)
    _check_named(named, rows, "row", where)


def _check_named(named: list[tuple[str, str]], known: list[str], kind: str, where: str) -> None:
    for name, who in named:
        if name not in known:
            raise OptionError(
                f"{where}: {who} speaks of the {kind} {name!r}, which is not there."
                f"{did_you_mean(name, known)} There are: {', '.join(known)}."
            )


# The experiments that come with untilt, and files of one's own.

SUFFIX = ".toml"


def names() -> tuple[str, ...]:
    """Names of the experiments that come with untilt, sorted."""
    folder = files("untilt.papers") / "catalogue"
    found = (entry.name for entry in folder.iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def load(name: str) -> Experiment:
    """An experiment by its name, or from a file of one's own that ends in .toml."""
    if name.endswith(SUFFIX):
        path = Path(name)
        return _parsed(path.read_text(encoding="utf8"), name, path.stem)
    if name not in names():
        raise OptionError(
            f"there is no experiment {name!r}.{did_you_mean(name, names())} "
            f"There are: {', '.join(names())}; a file of your own ends in {SUFFIX}."
        )
    text = (files("untilt.papers") / "catalogue" / f"{name}{SUFFIX}").read_text("utf8")
    return _parsed(text, f"{name}{SUFFIX}", name)


def _parsed(text: str, where: str, name: str) -> Experiment:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileFormatError(f"{where} is not TOML: {error}. Mend that place.") from error
    table.setdefault("name", name)
    return parse(table, where=where)

"""The methods of untilt: each declares one record in its own file, and every list is derived here.

A weighting, bias estimator, curve, click model, ranker, metric, evaluator, protocol or format of an
export carries its record as a decorator:

    @method("weighting", "prs", title="Propensity ratio scoring", note="...", needs=("bias",))
    @dataclass(frozen=True)
    class PRS(Weighting): ...

From the records come the public names, what `untilt.load` accepts, the command line's choices and
their help, the candidates of `untilt.run`, the words of the report and the tables of the
documentation. Records are read from the source text, without importing the method: `import untilt`
and `untilt --help` load neither NumPy nor LightGBM. A record therefore holds literals only.

A package of your own joins by an entry point in the group `untilt.methods` that names a module
with records: see CONTRIBUTING.md. In a notebook or a module without one, the decorator alone adds
the method, for as long as Python runs.
"""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

from untilt.errors import OptionError, did_you_mean

T = TypeVar("T")
Kind = Literal[
    "weighting", "objective", "bias", "curve", "click model", "ranker", "metric", "evaluator",
    "protocol", "export",
]  # fmt: skip
RestsOn = Literal[
    "", "experiment", "repeated positions", "relevance model", "labels", "given"
]  # fmt: skip

GROUP = "untilt.methods"
_ENTRY_POINTS = "*-info/entry_points.txt"
# Where records may stand; a new folder of methods needs no line here if it lies in one of these.
_PACKAGES = (
    "_core", "bias", "clickmodels", "evaluation", "exports", "metrics", "networks", "rankers",
    "simulation", "weighting",
)  # fmt: skip
# Methods that a saved file may hold; other classes say so by @storable.
_STORED = ("ranker", "weighting", "curve", "click model")
_MARKED = re.compile(r"^@(?:method\(|storable$).*?^(?:class|def) \w+", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Method:
    """What is known of a method without importing it.

    Parameters
    ----------
    kind, name : the name is unique in its kind, and is what people type ("prs", "all-pairs")
    title : a few words, for headings and tables
    note : one line for help texts and the report
    reference : key in docs/references.bib
    needs : what must be given: "bias", "trust" (a bias with eps+ and eps-), "features",
        "relevance", "ranker" (lists that name who made them), "propensity", "context", "labels",
        "feedback" (several label columns), "cut" (a metric that means nothing without its k), "jax"
    takes : options that the command line may pass on, such as "clip"
    aliases : other names that are understood
    rests_on : of a bias estimator or curve: what its claim rests on
    cost : of training, in trainings of one LambdaMART
    drop : where time is short a run gives up candidates of a small number first. The candidate with
        the largest is its default, which is kept unless another is clearly better
    choose : where it may be chosen: "train", "select", "run"; "usual" and "usual in select" are
        tried without being asked, by a run and by `untilt select`
    order : rank in lists; equal ranks are sorted by name
    default : whether it is taken where none of its kind is named
    options : arguments that make this method out of its class, such as against="all"
    version : raised when results change; finished cells of experiments are kept under it
    public : whether `untilt` exports the class
    home, target : module and name of the class or function
    """

    kind: Kind
    name: str
    title: str
    note: str
    reference: str = ""
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    rests_on: RestsOn = ""
    cost: float = 1.0
    drop: int = 15
    choose: tuple[str, ...] = ()
    order: int = 50
    default: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    public: bool = True
    home: str = ""
    target: str = ""

    def load(self) -> Any:
        """The class or function behind the record; imports its module."""
        added = _added.get((self.kind, self.name))
        return getattr(import_module(self.home), self.target) if added is None else added[1]

    def make(self, *args: Any, **given: Any) -> Any:
        """One such object: the record's own options, then those given."""
        return self.load()(*args, **{**self.options, **given})


def method(kind: Kind, name: str, **facts: Any) -> Callable[[T], T]:
    """Declare a record on the class or function that follows; see `Method` for the fields.

    All arguments must be literals. A class may carry several records with different `options`.
    """
    record = Method(kind=kind, name=name, **facts)  # a wrong field fails here, at the import

    def declare(target: T) -> T:
        home: Any = target.__module__
        if home.partition(".")[0] != __package__ and home not in dict(_joined_sources()):
            mine = replace(record, home=home, target=getattr(target, "__qualname__", ""))
            if any(each.home != home and each.name == name for each in methods(kind)):
                raise OptionError(f"there is a {kind} {name!r} already. Name yours differently.")
            _added[kind, name] = mine, target
            _catalog.cache_clear()
        return target

    return declare


# Methods that a notebook or a module without an entry point has declared.
_added: dict[tuple[Kind, str], tuple[Method, Any]] = {}


def storable(target: T) -> T:
    """Declare that a saved ranker may hold objects of this class (a dataclass or named tuple)."""
    return target


def methods(kind: Kind | None = None, *, choose: str | None = None) -> tuple[Method, ...]:
    """The records of a kind (all without), in order; only those that may be chosen there."""
    return tuple(
        record
        for record in _catalog()[0]
        if kind in (None, record.kind) and (choose is None or choose in record.choose)
    )


def names(kind: Kind, *, choose: str | None = None) -> tuple[str, ...]:
    """The names of a kind, in order."""
    return tuple(record.name for record in methods(kind, choose=choose))


def find(kind: Kind, name: str, *, what: str | None = None, also: tuple[str, ...] = ()) -> Method:
    """The record of this name, alias or class; dashes and capitals do not matter.

    An error lists the names, and those in `also`; `what` begins its message.
    """
    wanted = _plain(str(name))
    for record in methods(kind):
        if wanted in map(_plain, (record.name, record.target, *record.aliases)):
            return record
    known = (*names(kind), *also)
    raise OptionError(
        f"{what or kind} must be one of {', '.join(map(repr, known))}. Got {name!r} instead."
        f"{did_you_mean(str(name), known)}"
    )


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def default(kind: Kind) -> Method:
    """The record that is taken where none of its kind is named."""
    return next(record for record in methods(kind) if record.default)


def record_of(target: Any, kind: Kind | None = None) -> Method:
    """The first record of a class, function or object; of this kind, where it has several."""
    owner = target if hasattr(target, "__qualname__") else type(target)
    for record in methods(kind):
        if (record.home, record.target) == (owner.__module__, owner.__qualname__):
            return record
    raise OptionError(f"{owner.__qualname__} carries no record: decorate it with @method(...).")


class RecordName:
    """An attribute of a base class: the name in the record of the subclass."""

    def __get__(self, instance: object, owner: type) -> str:
        try:
            return record_of(owner).name
        except OptionError as error:
            raise AttributeError(str(error)) from None


def homes_of(kinds: Collection[str]) -> dict[str, str]:
    """Class or function -> module, of our own public records of these kinds."""
    own = _read(_own_sources())[0]
    return {each.target: each.home for each in own if each.public and each.kind in kinds}


def storable_homes() -> dict[str, str]:
    """Name -> module of every class that a saved file may hold, methods included."""
    held = {each.target: each.home for each in methods() if each.kind in _STORED}
    return {**dict(_catalog()[1]), **held}


@cache
def _catalog() -> tuple[tuple[Method, ...], tuple[tuple[str, str], ...]]:
    """All records in order, and the storable classes with their modules."""
    own, joined = _read(_own_sources()), _read(_joined_sources())
    added = [record for record, _ in _added.values()]
    records = sorted((*own[0], *joined[0], *added), key=lambda each: (each.order, each.name))
    return tuple(records), (*own[1], *joined[1])


@cache
def _own_sources() -> tuple[tuple[str, Path], ...]:
    """The modules of this package that may hold records."""
    here = Path(__file__).parent
    below = (_modules_below(f"untilt.{package}", here / package) for package in _PACKAGES)
    return tuple(source for sources in below for source in sources)


@cache
def _joined_sources() -> tuple[tuple[str, Path], ...]:
    """Those of other packages, by their entry points."""
    installed = (each for folder in sys.path for each in Path(folder).glob(_ENTRY_POINTS))
    if not any(GROUP in each.read_text(encoding="utf8") for each in installed):
        return ()
    from importlib.metadata import entry_points  # takes 40 ms to import, so only where needed

    points = entry_points(group=GROUP)
    return tuple(source for point in points for source in _modules_of(point.value))


@cache
def _read(
    sources: tuple[tuple[str, Path], ...],
) -> tuple[tuple[Method, ...], tuple[tuple[str, str], ...]]:
    """The records and the storable classes of these modules, as they stand in the files."""
    records: list[Method] = []
    stored: list[tuple[str, str]] = []
    for module, path in sources:
        text = path.read_text(encoding="utf8")
        if "\n@method(" not in text and "\n@storable\n" not in text:
            continue
        for target, declared, is_stored in _declared(text, module):
            records += declared
            if is_stored:
                stored.append((target, module))
    return tuple(records), tuple(stored)


def _modules_of(name: str) -> Iterator[tuple[str, Path]]:
    """A module with its source; a package with all modules below it."""
    from importlib.util import find_spec

    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise OptionError(
            f"the entry point {name!r} of the group {GROUP!r} names no module with source."
        )
    yield name, Path(spec.origin)
    for folder in spec.submodule_search_locations or ():
        yield from _modules_below(name, Path(folder))


def _modules_below(package: str, folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*.py")):
        if path.name != "__init__.py":
            yield ".".join([package, *path.relative_to(folder).with_suffix("").parts]), path


def _declared(text: str, module: str) -> list[tuple[str, list[Method], bool]]:
    """(class or function, its records, whether it is storable) for each marked one in a source."""
    import ast

    declared = []
    for match in _MARKED.finditer(text):
        node = ast.parse(match.group() + ("():" if "\ndef " in match.group() else ":") + " ...")
        definition = node.body[0]
        assert isinstance(definition, ast.ClassDef | ast.FunctionDef)
        records, is_stored = [], False
        for mark in definition.decorator_list:
            if isinstance(mark, ast.Name):
                is_stored = is_stored or mark.id == "storable"
            elif isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "method":
                kind, name = (ast.literal_eval(each) for each in mark.args)
                facts = {str(each.arg): ast.literal_eval(each.value) for each in mark.keywords}
                records.append(
                    Method(kind=kind, name=name, home=module, target=definition.name, **facts)
                )
        declared.append((definition.name, records, is_stored))
    return declared

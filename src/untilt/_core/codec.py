"""Results as JSON and back, by the type hints of their classes: one codec for all result files.

A frozen dataclass (or named tuple) is an object of its fields; an array a list, of lists where it
has more dimensions; a mapping an object, or a list of pairs where its keys are no text; a fact its
code, fields and sentence. Numbers survive to the last bit; what is not finite stands as "nan",
"inf" or "-inf", for which JSON has no word. A field that is None, and None by default, is left out.

`json_renamed` of a class tells the earlier names of its fields, which files may still have; ""
stands for a field that is no more.
A class may name properties in `json_properties`: they are written for whoever reads the file with
other tools, and ignored when it is read back.

A file of results carries its kind, the version of its format and the SHA-256 of everything else in
it. Layout and order of keys do not matter to the checksum, every value does: a file that was edited
or damaged is noticed. Reading checks names and types too, and an error says where. The checksum has
no key: whoever writes a file on purpose can give it any figures, but nothing in it other than an
object of the right class comes out of here, or a `FileFormatError`.

A file has at most 256 MiB, 5 million values and 100 levels of nesting, its whole numbers 64 bits.

Values of any kind as JSON that describes itself, and back: no type hints are needed.

What JSON has no word for stands in an object with one key that starts with "$":

    {"$float": "nan"}    {"$tuple": [...]}    {"$dict": [[key, value], ...]}
    {"$array": [...], "dtype": "<f8", "shape": [...]}      exact
    {"$fact": "area.code", "severity": "note", "template": "...", "fields": {...}}

A saved ranker or click model adds marks of its own (`untilt._core.saved`). Where the class of a
value is known beforehand, `untilt._core.codec` writes plainer JSON.
"""

import hashlib
import json
import math
import os
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import partial
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from untilt._core.arrays import AnyArray, handed_over
from untilt._core.files import replacing
from untilt._core.memory import refusing
from untilt._core.paths import check_name, is_utf8
from untilt.errors import FileFormatError, OptionError
from untilt.facts import Command, Fact, as_fact, stored

_DTYPE = re.compile(r"[<>|=]?([biuf][0-9]{1,2}|U[0-9]{1,8})")  # numbers, and text of one width
_MOST_TEXT = 1 << 28  # bytes: each entry takes the width of the longest
_SIMPLE = (str, bool, int, type(None))


class TaggedEncoder:
    """Numbers, text, arrays, facts, lists, tuples and mappings; subclasses add objects.

    `said` words commands among the fields of facts.
    """

    def __init__(self, said: Callable[[str], str] = str) -> None:
        self.said = said

    def encode(self, value: Any, where: str) -> Any:  # noqa: PLR0911  one for each kind
        """The value as JSON; `where` names it in errors."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if isinstance(value, Fact):
            record = value.record(self.said)
            del record["code"], record["template" if not value.template else "text"]
            return {"$fact": value.code, **record, "fields": self.encode(record["fields"], where)}
        if isinstance(value, Command):
            return self.said(value)
        if isinstance(value, _SIMPLE):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, np.ndarray):
            return self.array(value, where)
        if isinstance(value, Mapping):
            return self._mapping(value, where)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            entries = [self.encode(entry, f"{where}.{i}") for i, entry in enumerate(value)]
            return entries if isinstance(value, list) else {"$tuple": entries}
        return self.object(value, where)

    def array(self, value: AnyArray, where: str) -> Any:
        """An array of numbers, entry by entry."""
        if value.dtype.kind not in "biuf":
            raise cannot_save(value, where)
        if value.dtype.kind == "f":
            # A float32 or float16 is a double without loss; JSON prints doubles exactly.
            entries = [e if math.isfinite(e) else str(e) for e in value.astype(float).flat]
        else:
            entries = value.ravel().tolist()
        return {"$array": entries, "dtype": value.dtype.str, "shape": list(value.shape)}

    def object(self, value: Any, where: str) -> Any:
        """Anything else; none here."""
        raise cannot_save(value, where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: self.encode(entry, f"{where}.{key}") for key, entry in value.items()}
        pairs = enumerate(value.items())
        return {"$dict": [self.encode(list(pair), f"{where}.{i}") for i, pair in pairs]}


class TaggedDecoder:
    """The way back. Raises `FileFormatError` for a mark that it does not know."""

    def decode(self, value: Any) -> Any:
        """The value that was encoded."""
        if isinstance(value, list):
            return [self.decode(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        marks = [key for key in value if key.startswith("$")]
        if not marks:
            return {key: self.decode(entry) for key, entry in value.items()}
        reader = self.READERS.get(marks[0])
        if reader is None:
            raise FileFormatError(f"it holds {marks[0]!r}, which this untilt cannot read.")
        return reader(self, value)

    def _array(self, value: dict[str, Any]) -> AnyArray:
        entries, shape, dtype = value["$array"], value["shape"], value["dtype"]
        sizes = shape if isinstance(shape, list) else [-1]
        if not isinstance(entries, list) or not all(type(n) is int and n >= 0 for n in sizes):
            raise FileFormatError("an array is no list of entries with a shape.")
        if math.prod(sizes) != len(entries):
            raise FileFormatError(f"an array of shape {sizes} has {len(entries):,} entries.")
        if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
            raise FileFormatError(f"an array is of type {str(dtype)[:40]!r}, which is not read.")
        kind = np.dtype(dtype)
        if kind.itemsize * len(entries) > _MOST_TEXT and kind.kind == "U":
            raise FileFormatError("an array of text is too wide.")
        return np.array(entries, dtype=kind).reshape(sizes)

    def _fact(self, value: dict[str, Any]) -> Fact:
        return fact_of(value["$fact"], self.decode(value["fields"]), value)

    READERS: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], Any]]] = {
        "$float": lambda _, value: float(value["$float"]),
        "$tuple": lambda self, value: tuple(self.decode(value["$tuple"])),
        "$dict": lambda self, value: dict(self.decode(value["$dict"])),
        "$array": _array,
        "$fact": _fact,
    }


def fact_of(code: Any, fields: Any, record: Mapping[str, Any]) -> Fact:
    """The fact of a record in a file: by its template, its text, or in old files by its code."""
    template, text = record.get("template", ""), record.get("text", "")
    texts = (code, template, text)
    whole = isinstance(fields, dict) and all(isinstance(t, str) for t in (*texts, *fields))
    parts = fields.get("parts", ()) if whole else ()
    if (
        not whole
        or not isinstance(parts, list | tuple)
        or not all(isinstance(part, Fact) for part in parts)
    ):
        raise FileFormatError(f"a fact is no code with fields and text: {reprlib.repr(code)}.")
    return stored(code, fields, severity=record.get("severity"), template=template, text=text)


def cannot_save(value: Any, where: str) -> OptionError:
    """The error for a value that no file can hold."""
    return OptionError(
        f"{where} is a {type(value).__name__}, which cannot be saved. Make it a dataclass and pass "
        "its class to untilt.register, or leave it out with set_params."
    )


T = TypeVar("T")
Plain = dict[str, Any]
_NOT_FINITE = ("nan", "inf", "-inf")
# 5 million values are the covariance of a curve of 2,200 positions.
MOST_BYTES, MOST_VALUES, MOST_NESTED = 256 << 20, 5_000_000, 100
_INT64 = range(-(2**63), 2**63)
# What values that do not fit together can raise, when an object is made of them or used.
DO_NOT_FIT = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError,
    TypeError, ValueError,
)  # fmt: skip
# What an array is read as, where its hint leaves the width open.
_DTYPES: dict[Any, Any] = {Any: None, np.signedinteger: np.int64, np.floating: np.float64}


def to_plain(  # noqa: PLR0911  one for each kind
    value: Any, *, exact: bool = True, said: Callable[[str], str] = str
) -> Any:
    """Dictionaries, lists, text, numbers, true, false and null.

    Numbers that are not finite become text that reads back, or null for other tools (not `exact`).
    `said` words facts and commands for whoever shows them; files are in Python's words.
    """
    if isinstance(value, Fact):
        record = value.record(said)
        return {**record, "fields": TaggedEncoder(said).encode(record["fields"], value.code)}
    if isinstance(value, Command):
        return said(value)
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value)) if exact else None
    if isinstance(value, str | int | NoneType):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    plain = partial(to_plain, exact=exact, said=said)
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value):
            return {str(key): plain(each) for key, each in value.items()}
        return [[to_plain(key, exact=exact), plain(each)] for key, each in value.items()]
    if is_dataclass(value) or hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in _written(value)}
    return [plain(each) for each in value]


def _written(value: Any) -> list[str]:
    """Fields, then the properties that the class names for readers of the file."""
    defaults, names = _defaults(type(value)), field_names(type(value))
    empty = {name for name in names if getattr(value, name) is None}
    left_out = {name for name in empty if defaults.get(name, MISSING) is None}
    names = (*names, *getattr(value, "json_properties", ()))
    return [name for name in names if name not in left_out]


def from_plain(kind: type[T], plain: Any, *, where: str) -> T:
    """The object of class `kind` that `to_plain` wrote; `where` begins the message of an error."""
    if not isinstance(plain, Mapping):
        raise _refusal(where, "an object", plain)
    hints, names, defaults = get_type_hints(kind), field_names(kind), _defaults(kind)
    renamed: Mapping[str, str] = getattr(kind, "json_renamed", {})
    given = {
        renamed.get(n, n): v
        for n, v in plain.items()
        if n not in getattr(kind, "json_properties", ()) and renamed.get(n, n)
    }
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given and name not in defaults]
    if unknown or missing:
        parts = [f"{where} is no {kind.__name__} that this untilt knows."]
        parts += [f"Missing: {', '.join(missing)}."] if missing else []
        parts += [f"Unknown: {_some(unknown)}."] if unknown else []
        raise FileFormatError(" ".join([*parts, "Write it again, or upgrade untilt."]))
    read = {name: _read(hints[name], given[name], f"{where}.{name}") for name in given}
    try:
        return kind(**read)
    except DO_NOT_FIT as error:
        raise FileFormatError(f"{where} is no {kind.__name__}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _some(names: Sequence[str]) -> str:
    """The first few names; a damaged file may have a million of them."""
    told = ", ".join(str(name)[:40] for name in names[:8])
    return told if len(names) <= 8 else f"{told} and {len(names) - 8:,} more"


def field_names(kind: type) -> tuple[str, ...]:
    """Fields that the constructor of a dataclass or named tuple takes."""
    if hasattr(kind, "_fields"):
        return tuple(kind._fields)
    return tuple(field.name for field in fields(kind) if field.init)


def _defaults(kind: type) -> Plain:
    """Field -> default; a factory stands for itself."""
    if hasattr(kind, "_field_defaults"):
        return dict(kind._field_defaults)
    found = {}
    for field in fields(kind):
        if field.default is not MISSING or field.default_factory is not MISSING:
            found[field.name] = field.default
    return found


def _read(hint: Any, plain: Any, where: str) -> Any:  # noqa: PLR0911  one for each kind
    """One value of the type `hint`."""
    origin = get_origin(hint)
    if hint is Any:
        return plain
    if origin in (Union, UnionType):
        return _read_union(get_args(hint), plain, where)
    if origin is Literal:
        if any(type(plain) is type(each) and plain == each for each in get_args(hint)):
            return plain
        raise _refusal(where, f"one of {', '.join(map(str, get_args(hint)))}", plain)
    if origin is np.ndarray:
        return _read_array(hint, plain, where)
    if origin is tuple:
        return _read_tuple(get_args(hint), plain, where)
    if origin is not None and issubclass(origin, Mapping):
        return _read_mapping(get_args(hint), plain, where)
    if origin is not None and issubclass(origin, Sequence):
        return list(_read_tuple((get_args(hint)[0], ...), plain, where))
    if isinstance(hint, type) and (is_dataclass(hint) or hasattr(hint, "_fields")):
        return from_plain(hint, plain, where=where)
    return _read_scalar(hint, plain, where)


def _read_union(parts: tuple[Any, ...], plain: Any, where: str) -> Any:
    if plain is None and NoneType in parts:
        return None
    wanted = [part for part in parts if part is not NoneType]
    for part in wanted[:-1]:
        try:
            return _read(part, plain, where)
        except FileFormatError:
            continue
    return _read(wanted[-1], plain, where)


def _read_array(hint: Any, plain: Any, where: str) -> AnyArray:
    (scalar,) = get_args(get_args(hint)[1])
    wanted = _DTYPES.get(get_origin(scalar) or scalar, scalar)
    try:
        array = np.array(_numbers(plain))
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise _refusal(where, "an array of numbers", plain) from None
    if array.dtype.kind not in "bif":
        raise _refusal(where, "an array of numbers", plain)
    if wanted is not None:
        is_other = (array.dtype.kind == "b") != (np.dtype(wanted).kind == "b")
        if array.size and (is_other or not np.can_cast(array.dtype, wanted, "same_kind")):
            raise _refusal(where, f"an array of {np.dtype(wanted).name}", plain)
        array = array.astype(wanted, copy=False)
    return handed_over(array)


def _numbers(plain: Any) -> list[Any]:
    """Numbers, or lists of these of any depth, with "nan" and "inf" as numbers; else TypeError."""
    if not isinstance(plain, list):
        raise TypeError
    kinds = set(map(type, plain))
    if kinds <= {list}:
        return [_numbers(each) for each in plain]
    if kinds <= {int, float} or kinds == {bool}:
        return plain
    if not kinds <= {int, float, str}:
        raise TypeError
    # Looked at one by one: NumPy makes each entry as wide as the longest text among them.
    return [_not_finite(each) if isinstance(each, str) else each for each in plain]


def _not_finite(text: str) -> float:
    if text not in _NOT_FINITE:
        raise ValueError
    return float(text)


def _read_tuple(parts: tuple[Any, ...], plain: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(plain, list | tuple):
        raise _refusal(where, "a list", plain)
    kinds = (parts[0],) * len(plain) if parts[-1] is ... else parts
    if len(kinds) != len(plain):
        raise _refusal(where, f"a list of {len(kinds)}", plain)
    pairs = enumerate(zip(kinds, plain, strict=True))
    return tuple(_read(kind, each, f"{where}[{i}]") for i, (kind, each) in pairs)


def _read_mapping(parts: tuple[Any, Any], plain: Any, where: str) -> dict[Any, Any]:
    key, value = parts
    if key is str and isinstance(plain, Mapping):
        return {name: _read(value, each, f"{where}.{name}") for name, each in plain.items()}
    if plain in ([], {}):  # without an entry there is no key that could tell the two forms apart
        return {}
    if key is str or not isinstance(plain, list):
        raise _refusal(where, "an object" if key is str else "a list of pairs", plain)
    pairs = enumerate(plain)
    return dict(_read_tuple((key, value), pair, f"{where}[{i}]") for i, pair in pairs)


def _read_scalar(hint: Any, plain: Any, where: str) -> Any:
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    if hint is float and isinstance(plain, str) and plain in _NOT_FINITE:
        return float(plain)
    if hint is float and is_number and (isinstance(plain, float) or plain in _INT64):
        return float(plain)
    if hint is int and is_number and isinstance(plain, int) and plain in _INT64:
        return plain
    if hint is bool and isinstance(plain, bool):
        return plain
    if hint in (str, Fact) and isinstance(plain, Mapping) and {"code", "fields"} <= set(plain):
        return _read_fact(plain, where)
    if hint in (str, Fact) and isinstance(plain, str):
        return plain if hint is str else as_fact(plain)
    names: dict[Any, str] = {
        float: "a number", int: "a whole number", str: "text", bool: "true or false",
        Fact: "a fact (code, fields)",
    }  # fmt: skip
    raise _refusal(where, names.get(hint, str(hint)), plain)


def _read_fact(plain: Mapping[str, Any], where: str) -> Fact:
    try:
        return fact_of(plain["code"], TaggedDecoder().decode(plain["fields"]), plain)
    except DO_NOT_FIT as error:
        raise FileFormatError(f"{where} is no fact: {_told(error)}") from error


def _refusal(where: str, wanted: str, plain: Any) -> FileFormatError:
    return FileFormatError(f"{where} must be {wanted}. Found {_shown(plain)} instead.")


def _shown(plain: Any) -> str:
    """A value for a message: never longer than 40 characters, however large it is."""
    shown = reprlib.repr(plain) if isinstance(plain, list | dict | int) else repr(plain)[:50]
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def sealed(value: Any, *, kind: str, version: int) -> Plain:
    """The object with its kind, the version of its format and a checksum."""
    plain = to_plain(value)
    assert not {"kind", "version", "sha256"} & set(plain)
    record = {"kind": kind, "version": version, **plain}
    return {**record, "sha256": checksum(record)}


def unsealed(
    record: Any, cls: type[T], *, kind: str, version: int, where: str, again: str, strict: bool
) -> T:
    """The object that `sealed` wrote.

    Parameters
    ----------
    where : names the source in errors
    again : a sentence that says how to get such a file
    strict : refuse a record without a checksum; files that people may write themselves need none
    """
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise FileFormatError(f'{where} is JSON, but lacks "kind": "{kind}". {again}')
    if record.get("version") != version:
        raise FileFormatError(
            f"{where} has version {_shown(record.get('version'))} of the format; this untilt reads "
            f"version {version}. {again}"
        )
    rest = {name: each for name, each in record.items() if name != "sha256"}
    seal = record.get("sha256")
    try:
        found = checksum(rest)
    except DO_NOT_FIT as error:
        raise FileFormatError(f"{where} is no JSON: {_told(error)}. {again}") from error
    if (strict or seal is not None) and seal != found:
        raise FileFormatError(
            f"{where} was changed after it was written, or is damaged: its checksum does not match "
            f"its content. {again}"
        )
    del rest["kind"], rest["version"]
    return from_plain(cls, rest, where=where)


def checksum(record: Plain) -> str:
    """SHA-256 of the values, whatever the layout of the file."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def write_json(path: str | os.PathLike[str], plain: Any) -> None:
    """Write JSON that people can read, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(json_text(plain), encoding="utf-8")


def read_json(text: str, *, where: str, again: str) -> Any:
    """The values of JSON text; `where` and `again` as in `unsealed`."""
    values = sum(map(text.count, ",[{"))
    if values > MOST_VALUES:
        raise FileFormatError(
            f"{where} has about {values:,} values, and {MOST_VALUES:,} are the most that are read. "
            f"{again}"
        )
    try:
        plain = json.loads(text, parse_constant=_refused_constant)
        _check_bounds(plain)
    except (ValueError, RecursionError, MemoryError) as error:
        raise FileFormatError(
            f"{where} is no JSON ({_told(error)}): it is damaged, cut short or something else. "
            f"{again}"
        ) from error
    return plain


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _check_bounds(plain: Any) -> None:
    """Raise ValueError for nesting without end, whole numbers over 64 bits, and 1e999."""
    level = [[plain]]
    for _ in range(MOST_NESTED + 1):
        below: list[list[Any]] = []
        for values in level:
            kinds = set(map(type, values))
            if float in kinds and not all(math.isfinite(e) for e in values if type(e) is float):
                raise ValueError("a number is too large")
            if int in kinds and not all(each in _INT64 for each in values if type(each) is int):
                raise ValueError("a whole number has more than 64 bits")
            below += [e for e in values if type(e) is list] if list in kinds else []
            below += [[*e.values()] for e in values if type(e) is dict] if dict in kinds else []
        if not below:
            return
        level = below
    raise ValueError(f"lists and objects are nested more than {MOST_NESTED} deep")


def read_file(path: str | os.PathLike[str], *, again: str) -> Any:
    """The values of a JSON file; what the operating system refuses stays an `OSError`."""
    where = os.fspath(path)
    check_name(path)
    data = bytearray()
    with refusing(where, "Read it where there is more."):
        # In pieces: a read of so many bytes at once takes the memory for all of them first.
        with open(path, "rb") as file:
            while len(data) <= MOST_BYTES and (piece := file.read(1 << 20)):
                data += piece
        if len(data) > MOST_BYTES:
            raise FileFormatError(
                f"{where} is larger than {MOST_BYTES >> 20} MiB, the most that is read. {again}"
            )
        return read_json(data.decode("utf-8", errors="replace"), where=where, again=again)


def json_text(plain: Any) -> str:
    """JSON with a line for each entry; a list of numbers or of short words stands on one line."""
    text = _laid_out(plain, "\n", _leaf) + "\n"
    # Half of a character, as a file name may hold it, has no bytes in UTF-8: then all is escaped.
    return text if is_utf8(text) else _laid_out(plain, "\n", json.dumps) + "\n"


def _laid_out(plain: Any, newline: str, leaf: Callable[[Any], str]) -> str:
    inside = newline + " "
    if isinstance(plain, dict) and plain:
        rows = [f"{leaf(name)}: {_laid_out(each, inside, leaf)}" for name, each in plain.items()]
        return "{" + inside + f",{inside}".join(rows) + newline + "}"
    if isinstance(plain, list) and any(_needs_a_line(each) for each in plain):
        rows = [_laid_out(each, inside, leaf) for each in plain]
        return "[" + inside + f",{inside}".join(rows) + newline + "]"
    return leaf(plain)


def _needs_a_line(plain: Any) -> bool:
    return isinstance(plain, dict | list) or (isinstance(plain, str) and len(plain) > 40)


def _leaf(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)

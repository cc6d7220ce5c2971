"""A ranker or a click model in one file: versioned, checked, and nothing in it is ever run.

The file is a zip archive that any tool opens: `untilt.json` tells all that people want to know
(kind, versions, parameters, feature names, weighting, bias, training summary), large arrays and
LightGBM's text model lie beside it, under a seal:

    untilt ranker 1 sha256 <64 digits>
    untilt keyed hmac-sha256 <64 digits> untilt ranker 1 sha256 <64 digits>

The checksum is over all bytes before its digits: damage anywhere, down to one bit, is found before
anything is read. It needs no key, so it says nothing about who wrote the file. The keyed seal does:
whoever has no key can neither write a file that is taken nor change one.

The key comes from the environment (UNTILT_SEAL_KEY, or a file named by UNTILT_SEAL_KEY_FILE). Where
one is set, every file is written with a keyed seal, and a file without one, or under another key,
is refused. Several keys stand one after another, separated by white space: the first writes, all
are tried on reading, so that keys can be changed one after the other. Without a key a file with a
keyed seal is read like any other: who could strip a seal would strip a warning with it.
"""

import hashlib
import hmac
import json
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from untilt._core import codec
from untilt._core.archive import Archive, from_npy_bytes, npy_bytes, packed, read_whole
from untilt._core.arrays import AnyArray
from untilt._core.clock import time_of_writing
from untilt._core.codec import TaggedDecoder, TaggedEncoder
from untilt._core.files import replacing
from untilt._core.memory import refusing
from untilt._core.restored import check_types
from untilt._core.tree_text import check_tree_model
from untilt._version import __version__
from untilt.catalog import record_of, storable_homes
from untilt.errors import FileFormatError, MemoryLimitError, OptionError, did_you_mean

FORMAT = 1
KEY, KEY_FILE = "UNTILT_SEAL_KEY", "UNTILT_SEAL_KEY_FILE"
SHORTEST_KEY = 32  # bytes; fewer can be guessed where they are words
_DIGITS = 64
_PLAIN = "untilt {saved_as} {format} sha256 "
_KEYED = "untilt keyed hmac-sha256 "
_SEAL = re.compile(
    rb"(?:untilt keyed hmac-sha256 ([0-9a-f]{64}) )?"
    rb"untilt [a-z ]{1,30} (\d{1,9}) sha256 ([0-9a-f]{64})\Z"
)
_DOMAIN = b"untilt keyed seal of a model, version 1\0"


def seal(parts: Mapping[str, bytes], saved_as: str) -> bytes:
    """The bytes of a file; with a key in the environment, under its seal."""
    keys = seal_keys()
    plain = _PLAIN.format(saved_as=saved_as, format=FORMAT).encode()
    keyed = _KEYED.encode() + b"0" * _DIGITS + b" " if keys else b""
    data = packed(parts, comment=keyed + plain + b"0" * _DIGITS)[:-_DIGITS]
    if keys:
        end = len(data) - len(plain) - 1
        data = data[: end - _DIGITS] + _mac(keys[0], data, end) + data[end:]
    return data + hashlib.sha256(data).hexdigest().encode()


def unseal(data: bytes, keys: tuple[bytes, ...]) -> Archive:
    """The parts of a file whose checksum is right and whose keyed seal is by one of the keys.

    Without keys the checksum is enough. Raises `FileFormatError`.
    """
    found = _SEAL.search(data[-256:])
    if found is None:
        raise FileFormatError("it has no seal of untilt.")
    if int(found[2]) > FORMAT:
        raise FileFormatError(
            f"it was written in format {int(found[2])} by a newer untilt; this one ({__version__}) "
            f"reads up to format {FORMAT}. Upgrade untilt."
        )
    computed = hashlib.sha256(memoryview(data)[:-_DIGITS]).hexdigest().encode()
    if not hmac.compare_digest(computed, found[3]):
        raise FileFormatError(
            "it is damaged: its checksum does not match its content. Copy it again from where it "
            "was saved, or save the model again."
        )
    if keys:
        _check_keyed(data, found, keys)
    return Archive(data, comment=found[0])


def has_seal(data: bytes) -> bool:
    """Whether the bytes end as a sealed file does."""
    return _SEAL.search(data[-256:]) is not None


def _check_keyed(data: bytes, found: re.Match[bytes], keys: tuple[bytes, ...]) -> None:
    if found[1] is None:
        raise FileFormatError(
            f"it has no keyed seal, and a key is set ({KEY} or {KEY_FILE}), so only files under a "
            "key are taken. Have it saved with the key set, or unset the key to take any file."
        )
    end = len(data) - (found.end(0) - found.end(1))
    if not any(hmac.compare_digest(_mac(key, data[:-_DIGITS], end), found[1]) for key in keys):
        raise FileFormatError(
            f"it was sealed with another key than the one set ({KEY} or {KEY_FILE}), or changed by "
            "somebody without a key. Do not use it unless you know who wrote it."
        )


def _mac(key: bytes, data: bytes, end: int) -> bytes:
    """The digits of the keyed seal that ends at `end`, over all but themselves and the checksum."""
    message = hmac.new(key, _DOMAIN, hashlib.sha256)
    message.update(memoryview(data)[: end - _DIGITS])
    message.update(memoryview(data)[end:])
    return message.hexdigest().encode()


def seal_keys() -> tuple[bytes, ...]:
    """The keys in the environment, the one to write with first; none where none is set."""
    given, path = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if given is None and path is None:
        return ()
    if given is not None and path is not None:
        raise OptionError(f"{KEY} and {KEY_FILE} are both set. Unset one of them.")
    if given is None:
        assert path is not None
        given = _key_text(path)
    keys = tuple(each.encode("utf-8", "surrogateescape") for each in given.split())
    if not keys or min(map(len, keys)) < SHORTEST_KEY:
        source = KEY if path is None else f"the file named by {KEY_FILE}"
        raise OptionError(
            f"{source} must hold keys of at least {SHORTEST_KEY} characters each. "
            f"Got {f'one of {min(map(len, keys))}' if keys else 'none'}. Make one with: "
            "python -c 'import secrets; print(secrets.token_hex(32))'"
        )
    return keys


def _key_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"the file named by {KEY_FILE} cannot be read ({error}). Give the path of a text file "
            "with a key, or unset the variable."
        ) from error


class Saved:
    """Base of what can be saved: the parameters of its constructor, and what was learned.

    `saved_as` : what its files are called
    """

    saved_as: ClassVar[str]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to one file that `untilt.load` reads; no pickle inside."""
        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What `save` wrote, if it is one of these; `untilt.load` takes all."""
        found = load(path)
        if not isinstance(found, cls):
            raise FileFormatError(
                f"{path} holds a {type(found).__name__}, and no {cls.__name__}: "
                "untilt.load(path) gives it as what it is."
            )
        return found

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters of the constructor, as scikit-learn has it."""
        raise NotImplementedError

    def _check_fitted(self) -> None:
        """Raise unless something was learned."""
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        """What was learned: every attribute whose name ends in an underscore.

        Values of any kind that `Encoder` can write; a class that holds something else turns it into
        such values here, and back in `_restore`.
        """
        learned = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {name: value for name, value in learned.items() if name.endswith("_")}

    def _restore(self, state: dict[str, Any]) -> None:
        """Set what `_state` gave."""
        for name, value in state.items():
            setattr(self, name, value)

    def _check_restored(self) -> None:
        """Raise unless what a file gave fits together, so that using it can do no harm.

        Here nothing is asked; a class adds what its own methods rely on: arrays of one length,
        indices within them, numbers that are numbers (`untilt._core.restored`).
        """


# Classes of the user's own. Of untilt's, the catalogue says which a saved file may hold and where
# they live: a file only names a class, and a name that neither knows is refused.
_registered: dict[str, type] = {}


def register(cls: type) -> type:
    """Let files hold objects of this class; usable as a decorator.

    For a weighting, curve, ranker or click model of your own: a dataclass, a named tuple, a
    `Ranker` or a `ClickModel`. The file stores the class's name, so register it before loading,
    too.
    """
    if not (is_storable(cls) or issubclass(cls, Saved)):
        raise OptionError(
            "only dataclasses, named tuples and rankers or click models can be registered. "
            f"Got {cls.__name__}."
        )
    if cls.__name__ in storable_homes():
        raise OptionError(f"untilt has a {cls.__name__} of its own. Give your class another name.")
    _registered[cls.__name__] = cls
    return cls


def known_class(name: str) -> type:
    """The class that this name stands for in a file."""
    known = _registered.get(name) or _built_in(name)
    if known is None:
        hint = did_you_mean(name, [*storable_homes(), *_registered])
        raise FileFormatError(
            f"it holds a {name!r}, which this untilt does not know.{hint} Upgrade untilt, or call "
            "untilt.register on your own class before loading."
        )
    return known


def _built_in(name: str) -> type | None:
    """The storable class of this name; None also for methods that are functions."""
    home = storable_homes().get(name)
    target = None if home is None else getattr(import_module(home), name)
    return target if isinstance(target, type) else None


def is_known(value: object) -> bool:
    """Whether a file can name the class of this value (this very class, not one of its name)."""
    name = type(value).__name__
    return (_registered.get(name) or _built_in(name)) is type(value)


def is_storable(cls: type) -> bool:
    """Whether the fields of a class are all there is to its objects."""
    return (is_dataclass(cls) and not issubclass(cls, Saved)) or is_named_tuple(cls)


def is_named_tuple(cls: type) -> bool:
    """Whether a class was made by `NamedTuple`."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


# Values as JSON and parts, and back. To the marks of `untilt._core.codec` such a file adds
#
#     {"$part": "arrays/weights.npy"}       a large array, in a file of its own
#     {"$texts": ["a", "b"]}                an array of texts of any length
#     {"$booster": "model.txt"}             LightGBM's text
#     {"$type": "IPS", "fields": {...}}     an object of a known class
#     {"$gone": "Generator"}                had a state worth nothing later; None

Parts = dict[str, bytes]

_SMALL = 1000  # entries; larger arrays get a part of their own


class Encoder(TaggedEncoder):
    """Encodes values; arrays and models that get a file of their own are collected in `parts`."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: Parts = {}

    def array(self, value: AnyArray, where: str) -> Any:
        """Entry by entry, or a part where there are many; text too, for ids."""
        if value.dtype.kind == "O" and all(isinstance(entry, str) for entry in value.flat):
            return {"$texts": value.tolist()}
        if value.dtype.kind == "U":
            return {"$array": value.ravel().tolist(), "dtype": value.dtype.str,
                    "shape": list(value.shape)}  # fmt: skip
        if value.size > _SMALL and value.dtype.kind in "biuf":
            return {"$part": self._part(f"arrays/{where}.npy", npy_bytes(value))}
        return super().array(value, where)

    def object(self, value: Any, where: str) -> Any:
        """Objects of known classes, and LightGBM's model."""
        if is_known(value) and _makes_itself(type(value)):
            return {"$type": type(value).__name__, "fields": codec.to_plain(value)}
        if is_known(value) and is_storable(type(value)):
            named = {name: getattr(value, name) for name in codec.field_names(type(value))}
            encoded = {name: self.encode(v, f"{where}.{name}") for name, v in named.items()}
            return {"$type": type(value).__name__, "fields": encoded}
        if isinstance(value, Saved) and is_known(value):
            # A model inside another, such as the click model of a weighting: by its name alone,
            # because what was learned with it is all that is used again.
            return record_of(value).name
        if type(value).__name__ == "Booster" and hasattr(value, "model_to_string"):
            return {"$booster": self._part("model.txt", _tree_text(value, where).encode())}
        if isinstance(value, (np.random.Generator, np.random.SeedSequence)):
            return {"$gone": type(value).__name__}
        return super().object(value, where)

    def _part(self, name: str, data: bytes) -> str:
        assert name not in self.parts
        self.parts[name] = data
        return name


class Decoder(TaggedDecoder):
    """The way back. Raises `FileFormatError` for anything that `Encoder` does not write."""

    def __init__(self, parts: Mapping[str, bytes] | Archive) -> None:
        self._part = parts.read if isinstance(parts, Archive) else parts.__getitem__

    def _type(self, value: dict[str, Any]) -> Any:
        cls = known_class(value["$type"])
        if not is_storable(cls):
            raise FileFormatError(f"a {cls.__name__} cannot be part of a saved ranker.")
        if _makes_itself(cls):
            return codec.from_plain(cls, value["fields"], where=f"its {cls.__name__}")
        fields = {name: self.decode(entry) for name, entry in value["fields"].items()}
        check_types(fields, cls)
        return cls(**fields)

    def _booster(self, value: dict[str, Any]) -> Any:
        import lightgbm

        text = self._part(value["$booster"]).decode()
        check_tree_model(text)
        try:
            return lightgbm.Booster(model_str=text)
        except lightgbm.basic.LightGBMError as error:
            raise FileFormatError(
                f"its tree model cannot be read by LightGBM {lightgbm.__version__} ({error}). "
                "The version that wrote it is in untilt.json inside the file."
            ) from error

    def _texts(self, value: dict[str, Any]) -> AnyArray:
        texts = value["$texts"]
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            raise FileFormatError("it holds a list of texts with something else in it.")
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array

    READERS: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], Any]]] = {
        **TaggedDecoder.READERS,
        "$part": lambda self, value: from_npy_bytes(self._part(value["$part"])),
        "$texts": _texts,
        "$booster": _booster,
        "$type": _type,
        "$gone": lambda _, __: None,
    }


def _tree_text(booster: Any, where: str) -> str:
    """LightGBM's text, checked as on loading: what could not be loaded again is not saved."""
    text: str = booster.model_to_string()
    try:
        check_tree_model(text)
    except FileFormatError as error:
        raise OptionError(f"{where} cannot be saved: {error}") from error
    return text


def _makes_itself(cls: type) -> bool:
    """Whether a dataclass has a constructor of its own, which checks and converts (a curve)."""
    return is_dataclass(cls) and not cls.__dataclass_params__.init  # type: ignore[attr-defined]


HEADER = "untilt.json"
_LIBRARIES = ("numpy", "scipy", "lightgbm")
# Of the header: values, and lists or objects of them. Each takes up to 100 bytes of memory.
_MOST_VALUES, _MOST_LISTS = 20_000_000, 2_000_000


def save(model: Saved, path: str | os.PathLike[str]) -> None:
    """Write a fitted ranker or click model to one file, whole or not at all; `load` reads it."""
    model._check_fitted()
    if not is_known(model):
        raise OptionError(
            f"{type(model).__name__} is not known to untilt. Pass the class to "
            "untilt.register before saving and before loading."
        )
    encoder = Encoder()
    header = {
        "format": FORMAT,
        "kind": type(model).__name__,
        "untilt": __version__,
        "created": time_of_writing(),
        "libraries": {"python": platform.python_version()}
        | {library: version(library) for library in _LIBRARIES},
        "parameters": encoder.encode(model.get_params(deep=False), "parameters"),
        "state": encoder.encode(model._state(), "state"),
    }
    if not _is_bounded(described := _json_bytes(header)):
        raise OptionError(
            f"this {type(model).__name__} holds too many single values to be saved: at most "
            f"{_MOST_VALUES:,}, arrays of numbers apart. Fit it on fewer documents."
        )
    data = seal({HEADER: described, **encoder.parts}, model.saved_as)
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def load(path: str | os.PathLike[str]) -> Any:
    """The ranker or click model that `save` wrote.

    Raises `FileFormatError` if the file is anything else: whatever its content, nothing in it is
    run, and it is taken only if it can be used without harm. With a key in the environment
    (UNTILT_SEAL_KEY, UNTILT_SEAL_KEY_FILE) a file must be sealed with it.
    """
    return load_data(path)[0]


def load_data(path: str | os.PathLike[str]) -> tuple[Any, bytes]:
    """The same, and the bytes that it was read from."""
    try:
        data = read_whole(path)
        return _loaded(data), data
    except FileFormatError as error:
        raise FileFormatError(f"{path} cannot be loaded: {error}") from error


def _loaded(data: bytes) -> Saved:
    if not has_seal(data):
        raise FileFormatError(_what_else(data))
    keys = seal_keys()
    try:
        with refusing("a saved model", "Load it where there is more."):
            parts = unseal(data, keys)
            return _model_of(_header(parts.read(HEADER)), parts)
    except (FileFormatError, MemoryLimitError):
        raise
    except Exception as error:
        # Whatever libraries and classes make of values that they did not write: zlib, NumPy,
        # LightGBM, constructors. Nothing but reading happens here.
        raise FileFormatError(
            f"its checksum is right, but this untilt ({__version__}) cannot make a model of it "
            f"({type(error).__name__}: {error}). Use the untilt that wrote it; its version stands "
            "in untilt.json inside the file."
        ) from error


def _model_of(header: dict[str, Any], parts: Archive) -> Saved:
    cls = known_class(header["kind"])
    if not issubclass(cls, Saved):
        raise FileFormatError(f"a {cls.__name__} is no ranker and no click model.")
    decoder = Decoder(parts)
    model = cls(**decoder.decode(header["parameters"]))
    state = decoder.decode(header["state"])
    if parts.unread:
        raise FileFormatError(f"its part {parts.unread[0][:40]!r} belongs to nothing in it.")
    if not all(name.endswith("_") and not name.startswith("_") for name in state):
        raise FileFormatError(f"it holds values that no {cls.saved_as} learns.")
    check_types(state, cls)
    model._restore(state)
    model._check_fitted()
    model._check_restored()
    return model


def _header(data: bytes) -> dict[str, Any]:
    if not _is_bounded(data):
        raise FileFormatError(f"it holds more than {_MOST_VALUES:,} single values.")
    header = json.loads(data, parse_constant=_no_constant)
    if not isinstance(header, dict):
        raise FileFormatError(f"{HEADER} inside it is no JSON object.")
    return header


def _is_bounded(header: bytes) -> bool:
    return header.count(b",") <= _MOST_VALUES and (
        header.count(b"[") + header.count(b"{") <= _MOST_LISTS
    )


def _no_constant(name: str) -> float:
    raise FileFormatError(f"it holds {name}, which is no JSON.")


def _json_bytes(header: dict[str, Any]) -> bytes:
    text = json.dumps(header, indent=1, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _what_else(data: bytes) -> str:
    """What a file without a seal seems to be, and what to do with it."""
    if not data:
        return "it is empty. Save the model again."
    # The name of the first entry stands at byte 30 of a zip archive.
    if data[30 : 30 + len(HEADER)] == HEADER.encode():
        return (
            f"it begins as a model of untilt, but its end is missing or changed ({len(data):,} "
            "bytes were found). Copy it again from where it was saved, or save the model again."
        )
    if data.startswith(b"tree\n"):
        return (
            "it is a LightGBM text model, not a ranker saved by untilt. Read it with "
            "lightgbm.Booster(model_file=...)."
        )
    if data.lstrip()[:1] == b"{":
        return (
            "it is JSON, not a ranker saved by untilt. A position bias is read by "
            "ut.PositionBias.load(path)."
        )
    return "it is no ranker or click model saved by untilt. Write one with model.save(path)."

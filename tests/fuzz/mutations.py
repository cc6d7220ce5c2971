"""Ways to damage an input: bytes, text, JSON values, columns, and sealed archives from inside.

Each takes a `random.Random` and gives a new value; the same generator gives the same damage.
"""

import hashlib
import io
import json
import random
import zipfile
from typing import Any

# Numbers and text that readers get wrong: borders of types, values without a meaning, odd letters.
NUMBERS: list[Any] = [
    0, -1, 1, 2, 255, 256, 32767, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 + 1, 2**63 - 1,
    2**63, -(2**63), 2**64, 10**19, 10**400, 0.0, -0.0, 0.5, 1.5, -1e-9, 5e-324, 1e38, 3.5e38,
    1e308, -1e308,
]  # fmt: skip
WORDS: list[str] = [
    "", " ", "\t", "\n", "\x00", "nan", "NaN", "inf", "-Infinity", "None", "null", "true", "1e999",
    "0x10", "9" * 400, "-", "--", "../../x", "a/b", "'", '"', "\\", ";", "%s", "{0}", "$type",
    "é", "日本", "\u202e", "\ufeff", "\U0001f4a5", "\x1b[2J", "\x07\x9b", "\ufffe",
    "\ud800", "x" * 5000, "1:1", "qid:1",
]  # fmt: skip
MAGIC: list[bytes] = [
    b"PAR1", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"\x93NUMPY", b"DUCK", b"\x00" * 8,
    b"\xff" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\xfe\xff", b"\xef\xbb\xbf", b"\r\n",
    b"\n", b",", b'"', b"{", b"[", b"}", b"nan", b"-1", b"99999999999999999999",
]  # fmt: skip


DEEP = 5000
# Stands for lists inside lists, deeper than Python's own encoder can write; see `json_text`.
NESTED = "a list inside a list inside a list"


def junk(rng: random.Random) -> Any:  # noqa: PLR0911  one for each kind
    """A JSON value that nobody expects."""
    kind = rng.randrange(8)
    if kind <= 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(WORDS)
    if kind == 3:
        return rng.choice([None, True, False, [], {}, [[]], [None], [{}], {"": ""}, [0, "a", None]])
    if kind == 4:
        return [rng.choice(NUMBERS) for _ in range(rng.choice([1, 2, 3, 50, 2000]))]
    if kind == 5:
        return rng.choice([[[[0]]], NESTED])
    if kind == 6:
        return rng.choice(TAGGED)
    return {rng.choice(WORDS): rng.choice(NUMBERS) for _ in range(rng.randrange(1, 5))}


# Marks of saved files, used wrongly.
TAGGED: list[Any] = [
    {"$float": "nan"}, {"$float": "x"}, {"$float": [1]}, {"$tuple": 3}, {"$tuple": [1, 2]},
    {"$dict": [[1, 2], [3, 4]]}, {"$dict": [[[], 1]]}, {"$dict": [1]}, {"$gone": 1}, {"$odd": 1},
    {"$array": [1, 2], "dtype": "<f8", "shape": [2]}, {"$array": [1], "dtype": "O", "shape": [1]},
    {"$array": [1], "dtype": "V9999999999", "shape": [1]}, {"$array": [], "dtype": "<f8"},
    {"$array": [1, 2], "dtype": "<f8", "shape": [-1, 2]}, {"$array": ["x"], "dtype": "<i4",
    "shape": [1]},
    {"$array": [1e300], "dtype": "<f2", "shape": [1]}, {"$array": [-1], "dtype": "<u8",
    "shape": [1]},
    {"$array": [0], "dtype": "<f8", "shape": [2**62, 2**62]}, {"$array": 1, "dtype": 7, "shape": 2},
    {"$array": ["a" * 100], "dtype": "<U1000000000", "shape": [1]},
    {"$part": "model.txt"}, {"$part": "untilt.json"}, {"$part": "../x"}, {"$part": 7},
    {"$texts": [1, None]}, {"$texts": "abc"}, {"$booster": "model.txt"},
    {"$booster": "untilt.json"},
    {"$booster": None}, {"$type": "IPS", "fields": {}}, {"$type": "Nobody", "fields": {}},
    {"$type": "PowerLaw", "fields": {"eta": "x"}}, {"$type": "PositionBias", "fields": {}},
    {"$type": "LambdaMART", "fields": {}}, {"$type": 7, "fields": 7}, {"$type": "PowerLaw"},
    {"$fact": "bias.curve-is-right", "fields": {}}, {"$fact": "no.such", "fields": {}},
    {"$fact": "..", "fields": []}, {"$fact": 1, "fields": 1}, {"code": "audit.leak", "fields": {}},
]  # fmt: skip


# Bytes


def damaged(data: bytes, rng: random.Random) -> bytes:
    """One to four random damages."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        data = rng.choice(_BYTE_DAMAGES)(data, rng)
    return data


def _place(data: bytes, rng: random.Random) -> int:
    # Heads and tails tell most of a file's structure: half of all damages go there.
    if rng.random() < 0.25:
        return min(len(data), rng.randrange(64))
    if rng.random() < 0.33:
        return max(0, len(data) - rng.randrange(1, 256))
    return rng.randrange(len(data) + 1)


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 8, 64]) if data else 0):
        place = min(_place(data, rng), len(data) - 1)
        changed[place] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(data: bytes, rng: random.Random) -> bytes:
    place = _place(data, rng)
    return data[:place] if rng.random() < 0.7 else data[place:]


def _spliced(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([1, 4, 16, 300])
    source, place = _place(data, rng), _place(data, rng)
    piece = data[source : source + size]
    return data[:place] + piece + data[place + (len(piece) if rng.random() < 0.7 else 0) :]


def _with_magic(data: bytes, rng: random.Random) -> bytes:
    place, piece = _place(data, rng), rng.choice(MAGIC)
    return data[:place] + piece + data[place + (len(piece) if rng.random() < 0.7 else 0) :]


def _overwritten(data: bytes, rng: random.Random) -> bytes:
    place, size = _place(data, rng), rng.choice([1, 8, 100])
    return data[:place] + rng.randbytes(size) + data[place + size :]


def _new(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice([0, 1, 7, 12, 300, 5000])
    return rng.choice([b"", *MAGIC, data[:16]]) + rng.randbytes(size)


_BYTE_DAMAGES = [_flipped, _flipped, _cut, _spliced, _with_magic, _overwritten, _overwritten, _new]


# Text: lines, words and numbers


def reworded(text: str, rng: random.Random, separators: str = " \t,:=") -> str:
    """Text with some of its words, numbers or lines changed."""
    lines = text.split("\n")
    for _ in range(rng.choice([1, 1, 2, 5])):
        place = rng.randrange(len(lines))
        kind = rng.randrange(8)
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(place, rng.choice(lines))
        elif kind == 2:
            other = rng.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        else:
            lines[place] = _reworded_line(lines[place], rng, separators)
        lines = lines or [""]
    return "\n".join(lines)


def _reworded_line(line: str, rng: random.Random, separators: str) -> str:
    ends = [i for i, letter in enumerate(line) if letter in separators] + [len(line)]
    number = rng.randrange(len(ends))
    start = ends[number - 1] + 1 if number else 0
    word = line[start : ends[number]]
    new = rng.choice(
        [str(rng.choice(NUMBERS)), rng.choice(WORDS), str(rng.randrange(-5, 50)), word * 2]
    )
    return line[:start] + new + line[ends[number] :]


# JSON values


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one to three places changed: other types, numbers, lengths, names."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_places(value))
        if not places:
            return junk(rng)
        # By depth first: otherwise the many numbers of arrays hide the few keys of a head.
        depth = rng.choice(sorted({len(place) for place in places}))
        place = rng.choice([each for each in places if len(each) == depth])
        _change_at(value, place, rng)
    return value


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    entries: Any = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value[:40])
    for key, each in entries:
        yield (*path, key)
        if len(path) < 12:
            yield from _places(each, (*path, key))


def _change_at(value: Any, place: tuple[Any, ...], rng: random.Random) -> None:
    owner = value
    for key in place[:-1]:
        owner = owner[key]
    key, kind = place[-1], rng.randrange(10)
    old = owner[key]
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, dict):
        owner[rng.choice([*WORDS, key + "x", key[:-1]])] = owner.pop(key)
    elif kind == 2 and isinstance(old, list) and old:
        owner[key] = rng.choice(
            [old[:-1], old + old[:1], old * 2, old[::-1], [old], old[:1] * 5000]
        )
    elif kind == 3:
        owner[key] = rng.choice([[old], {"a": old}, str(old)[:200], [old, old]])
    elif kind <= 5 and isinstance(old, int | float):
        half = old + 0.5 if abs(old) < 1e300 else old  # whole numbers may be too long for a float
        owner[key] = rng.choice([old + 1, -old, old * 1000, half, *NUMBERS])
    else:
        owner[key] = junk(rng)


def json_text(value: Any, **layout: Any) -> str:
    """JSON as Python writes it, NaN included."""
    return json.dumps(value, **layout).replace(f'"{NESTED}"', "[" * DEEP + "]" * DEEP)


def json_bytes(value: Any) -> bytes:
    """The same as bytes."""
    return json_text(value).encode("utf-8", errors="surrogatepass")


def checksum(record: Any) -> str:
    """That of a sealed JSON file: SHA-256 of its values in one line, keys sorted."""
    text = json_text(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


# Saved rankers and click models: changed inside, then sealed again


def parts_of(data: bytes) -> dict[str, bytes]:
    """The parts of a saved file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def resealed(data: bytes, parts: dict[str, bytes], *, level: int = 6) -> bytes:
    """These parts under the seal of the original, with a digest that fits."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        comment = archive.comment
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part, zipfile.ZIP_DEFLATED)
        archive.comment = comment
    return with_digest(buffer.getvalue())


def with_digest(data: bytes) -> bytes:
    """The file with the digest of what stands before it, whatever that is."""
    body = data[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()

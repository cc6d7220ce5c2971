"""`make fuzz-guided`: bytes that atheris mutates towards code that was not reached before.

    python -m tests.fuzz.guided --seconds 60 --door segment

The seeded fuzzer beside it has more doors and runs anywhere; this one finds the byte that opens a
branch. Each door takes bytes, and anything that is raised but a refusal ends the run.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

DOORS: dict[str, tuple[Callable[[bytes, Path], None], Callable[[], list[bytes]]]] = {}
EVENT = {"event": "e", "list": "20241004-" + "0" * 24, "document": "a", "label": "click"}
SHOWN = {
    "type": "shown", "list": EVENT["list"], "time": 1_728_000_000_000_000, "session": "s",
    "query": "q", "documents": ["a", "b"], "ranker": "base", "model": "m", "names": "n",
    "features": b"\0" * 16, "experiment": "swaps:1-2=0.1", "probability": 0.9,
}  # fmt: skip
FEEDBACK = {**EVENT, "type": "feedback", "time": SHOWN["time"], "received": SHOWN["time"]}


def door(seeds: Callable[[], list[bytes]]) -> Callable[..., Callable[[bytes, Path], None]]:
    """Register a door and the good inputs that it begins with."""

    def add(enter: Callable[[bytes, Path], None]) -> Callable[[bytes, Path], None]:
        DOORS[enter.__name__] = (enter, seeds)
        return enter

    return add


def _requests() -> list[bytes]:
    import msgspec

    ranked = {"session": "s", "query": "q", "documents": ["a", 2], "features": [[1, None], [2, 3]]}
    both = (ranked, {"events": [{**EVENT, "time": "2026-11-16T15:00:00Z", "value": 2}]})
    packed = [msgspec.msgpack.encode(each) for each in both]
    return [b"j" + json.dumps(each).encode() for each in both] + [b"m" + each for each in packed]


def _is_sentence(text: str) -> None:
    assert text.endswith("."), text


@door(_requests)
def request(data: bytes, folder: Path) -> None:
    """The body of a request; its first letter says the format."""
    from untilt.serving import wire
    from untilt.serving.models import _checked_names, _matrix

    kind, body = (wire.JSON if data[:1] == b"j" else wire.MSGPACK), data[1:]
    try:
        ranked: wire.RankRequest = wire.decode(body, kind, wire.RankRequest)
        wire.plain_ids(ranked.documents, "a document's id")
        names = _checked_names(ranked.feature_names) or ("a", "b")
        if ranked.features is not None:
            _matrix(ranked.features, names, len(ranked.documents))
    except wire.RequestError as error:
        _is_sentence(error.text)
    try:
        fed: wire.FeedbackRequest = wire.decode(body, kind, wire.FeedbackRequest)
        for each in fed.events:
            wire.unpack(wire.pack(wire.checked_event(each, 0)))
    except wire.RequestError as error:
        _is_sentence(error.text)


def _records() -> list[bytes]:
    import msgspec

    names = {"type": "names", "id": "n", "names": ["x", "y"]}
    return [msgspec.msgpack.encode(each) for each in (names, SHOWN, FEEDBACK)]


@door(_records)
def record(data: bytes, folder: Path) -> None:
    """A record of a journal, which is itself again once it was read."""
    from untilt.serving import wire

    try:
        found = wire.unpack(data)
    except ValueError:
        return
    assert wire.unpack(wire.pack(found)) == found


def _segments() -> list[bytes]:
    from untilt.serving.journal import framed

    return [framed(_records(), b"salt" * 4, 0), framed(_records() * 3, b"salt" * 4, 0)[:-7]]


@door(_segments)
def segment(data: bytes, folder: Path) -> None:
    """A file in the folder of a journal: every byte is of a record, damaged or cut."""
    from untilt.errors import UntiltError
    from untilt.serving.journal import SegmentRead, payloads

    path = folder / "x.journal"
    path.write_bytes(data)
    read = SegmentRead(path)
    try:
        found = list(payloads(path, read))
    except UntiltError:
        return
    assert read.records == len(found)
    assert read.cut + read.damaged + sum(map(len, found)) <= len(data)


def _curves() -> list[bytes]:
    import untilt as ut

    return [ut.PowerLaw(1.0).to_bias(5).to_json().encode()]


@door(_curves)
def curve(data: bytes, folder: Path) -> None:
    """A file of a curve, with a checksum that fits where it is JSON."""
    from tests.fuzz.mutations import checksum

    import untilt as ut

    path = folder / "bias.json"
    try:
        given = json.loads(data)
        if isinstance(given, dict):
            given.pop("sha256", None)
            data = json.dumps({**given, "sha256": checksum(given)}).encode()
    except (ValueError, RecursionError):
        pass
    path.write_bytes(data)
    try:
        repr(ut.PositionBias.load(path))
    except ut.UntiltError:
        return


def main() -> int:
    """Fuzz one door after the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("--seconds", type=int, default=60, help="for all doors together")
    parser.add_argument("--door", action="append", choices=sorted(DOORS))
    given = parser.parse_args()
    if find_spec("atheris") is None:
        sys.stdout.write("atheris is not installed, so nothing was tried: pip install atheris.\n")
        return 0
    doors = given.door or sorted(DOORS)
    wrong = 0
    for name in doors:  # libFuzzer ends its process
        child = os.fork()
        if child == 0:
            guided(name, max(1, given.seconds // len(doors)))
        wrong += os.waitpid(child, 0)[1] != 0
    return int(wrong > 0)


def guided(name: str, seconds: int) -> None:
    """Feed a door for so long."""
    import atheris

    enter, seeds = DOORS[name]
    with atheris.instrument_imports(include=["untilt.serving", "untilt._core", "untilt.bias"]):
        good = seeds()
    with TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for number, each in enumerate(good):
            (corpus / str(number)).write_bytes(each)
            enter(each, Path(folder))
        words = [sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", str(corpus)]
        atheris.Setup(words, lambda data: enter(data, Path(folder)))
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())

"""What goes over the wire and into the journal: typed, checked once, in JSON or MessagePack.

The same structures are read from both formats; msgspec checks types while it decodes. Everything
about a request that can be wrong becomes a `RequestError` with a sentence.
"""

import math
import re
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

JSON, MSGPACK = "application/json", "application/msgpack"
TYPES = (JSON, MSGPACK, "application/x-msgpack")
MOST_ID = 256  # characters
MOST_EVENTS = 1000  # a request
MOST_SHOWN = 1000  # as deep as a log goes
_LIST = re.compile(r"[0-9]{8}-[0-9a-f]{24}")
LABEL = re.compile(r"[a-z][a-z0-9_]{0,31}")
CLICK = "click"
# Columns of the collected log: no label may have such a name.
TAKEN = frozenset(
    ("query_id", "session_id", "doc_id", "position", "ranker", "timestamp", "count", "session",
     "model", "probability", "experiment", "version", "random", "shadow_position",
     "shadow_model", "team")
)  # fmt: skip

Id = str | int
Row = list[float | None] | dict[str, float | None]


class RequestError(Exception):
    """A request that cannot be answered, with a sentence and the status of HTTP."""

    def __init__(self, text: str, *, status: int = 400) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class RankRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Candidates of one query, to be ordered.

    session : the visit; decides what is explored and which ranker answers
    query : what was asked for
    documents : the candidates
    features : one row per candidate: numbers in the order of `feature_names` (the ranker's, where
        these are not given) or a mapping by name; or all of them as float32, little endian, row by
        row, in one piece of bytes (base64 in JSON). Not given: looked up in the server's table
    size : how many are shown; all where not given
    """

    session: Id
    query: Id
    documents: list[Id]
    features: list[Row] | bytes | None = None
    feature_names: list[str] | None = None
    size: int | None = None


class RankResponse(msgspec.Struct):
    """The documents in the order to show them.

    list_id : the id that feedback names; None where the list could not be logged
    """

    list_id: str | None = msgspec.field(name="list")
    documents: list[Id]
    ranker: str
    model: str


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """One piece of feedback. `event` makes it idempotent: sent again, it counts once."""

    event: Id
    list_id: str = msgspec.field(name="list")
    document: Id
    label: str = CLICK
    value: float = 1.0
    time: datetime | None = None


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Feedback on shown lists."""

    events: list[Event]


# Records of the journal. Times are microseconds since 1970 in UTC.


class Names(msgspec.Struct, tag="names"):
    """The names of features that later records of a segment refer to by `id`."""

    id: str
    names: list[str]


class Shown(msgspec.Struct, tag="shown", omit_defaults=True):
    """A list as it was shown.

    ranker, probability, experiment : the arm, how likely it was for this list, and the exploration
    model : digest of the ranker's file
    features : float32, row by row, where they came with the request; `names` says what they are
    teams : of an interleaved list: 1 where the candidate put a document, 2 for the current one
    shadow, shadow_model : positions that another ranker would have given, not shown
    """

    list_id: str = msgspec.field(name="list")
    time: int
    session: str
    query: str
    documents: list[str]
    ranker: str
    model: str
    probability: float = 1.0
    experiment: str = ""
    features: bytes | None = None
    names: str = ""
    teams: list[int] | None = None
    shadow: list[int] | None = None
    shadow_model: str = ""


class Feedback(msgspec.Struct, tag="feedback", omit_defaults=True):
    """An event as it is kept: `time` as it was told, or else when it was `received`."""

    event: str
    list_id: str = msgspec.field(name="list")
    document: str
    time: int
    received: int
    label: str = CLICK
    value: float = 1.0


Record = Names | Shown | Feedback
_decoders: dict[tuple[str, type], Any] = {
    (kind, wanted): (msgspec.json if kind == JSON else msgspec.msgpack).Decoder(wanted)
    for kind in (JSON, MSGPACK)
    for wanted in (RankRequest, FeedbackRequest)
}
_to_json, _to_msgpack = msgspec.json.Encoder(), msgspec.msgpack.Encoder()
_record = msgspec.msgpack.Decoder(Record)


def kind_of(content_type: str | None) -> str:
    """The format of a body. Any other type is refused: forms of foreign pages have other types."""
    named = (content_type or "").partition(";")[0].strip().lower()
    if named not in TYPES:
        raise RequestError(
            f"the body must be {JSON} or {MSGPACK}, by the header Content-Type. Got {named!r}.",
            status=415,
        )
    return JSON if named == JSON else MSGPACK


def decode(body: bytes, kind: str, wanted: type) -> Any:
    """The request in a body, or a `RequestError` that says where it is wrong."""
    try:
        return _decoders[kind, wanted].decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is no such request: {error}.") from None
    except RecursionError:
        raise RequestError("the body is nested too deep.") from None


def encode(value: Any, kind: str) -> bytes:
    """The value in a format."""
    return (_to_json if kind == JSON else _to_msgpack).encode(value)


def pack(record: Record) -> bytes:
    """A record for the journal."""
    return _to_msgpack.encode(record)


def unpack(payload: bytes) -> Record:
    """A record from the journal."""
    record: Record = _record.decode(payload)
    return record


# Checks that types cannot express.


def plain_id(value: Id, what: str) -> str:
    """An id as the log holds it: text of 1 to 256 characters."""
    text = str(value)
    if not 0 < len(text) <= MOST_ID:
        raise RequestError(f"{what} must have 1 to {MOST_ID} characters. Got {len(text)}.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise RequestError(f"{what} holds half of a character pair.") from None
    return text


def plain_ids(values: list[Id], what: str) -> list[str]:
    """The same for many at once: a tenth of the time, unless one of them is wrong."""
    texts = [str(value) for value in values]
    lengths = set(map(len, texts))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        lengths.add(0)
    if min(lengths) == 0 or max(lengths) > MOST_ID:
        return [plain_id(value, what) for value in values]
    return texts


def checked_event(event: Event, now: int) -> Feedback:
    """The event as it is kept, or a `RequestError`."""
    if not LABEL.fullmatch(event.label) or event.label in TAKEN:
        raise RequestError(
            f"the label {event.label!r} cannot be a column of a log: small letters, digits and _, "
            f"32 at most, and none of {', '.join(sorted(TAKEN))}."
        )
    if not (math.isfinite(event.value) and event.value >= 0):
        raise RequestError(
            f"the value of an event must be a number of at least 0. Got {event.value}."
        )
    if list_day(event.list_id) is None:
        raise RequestError(
            f"{event.list_id[:64]!r} is no id of a list. Send the one that /rank gave."
        )
    return Feedback(
        event=plain_id(event.event, "an event's id"),
        list_id=event.list_id,
        document=plain_id(event.document, "a document's id"),
        time=now if event.time is None else _microseconds(event.time),
        received=now,
        label=event.label,
        value=event.value,
    )


def new_list_id(now: int, *parts: str) -> str:
    """The id of a list that is shown now, by UTC's day and what makes it this list.

    The same list, shown to the same session again on the same day, is the same showing.
    """
    day = datetime.fromtimestamp(now // 1_000_000, UTC).strftime("%Y%m%d")
    return f"{day}-{hashed(*parts)}"


def list_day(list_id: str) -> str | None:
    """2026-11-16 of such an id; None where it is none."""
    if not _LIST.fullmatch(list_id):
        return None
    try:
        return datetime.strptime(list_id[:8], "%Y%m%d").date().isoformat()
    except ValueError:
        return None


def hashed(*parts: str) -> str:
    """24 hexadecimal digits that depend on all parts."""
    return blake2b("\x00".join(parts).encode(), digest_size=12).hexdigest()


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise RequestError(
            "the time of an event needs its offset, as in 2026-11-16T15:00:00Z or +01:00: nobody "
            "can say which zone it is in without. Or leave it out."
        )
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds

"""What goes over the wire and into the journal: typed, checked once, in JSON or MessagePack.

The same structures are read from both formats; msgspec checks types while it decodes. Everything
about a request that can be wrong becomes a `RequestError` with a sentence.
"""

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta

JSON, MSGPACK = "application/json", "application/msgpack"
TYPES = (JSON, MSGPACK, "application/x-msgpack")
MOST_ID = 256  # characters
MOST_EVENTS = 1000  # a request
MOST_SHOWN = 1000  # as deep as a log goes
MOST_NAMES = 4096  # of features
MOST_DECLARED = 1 << 20  # characters in all lists of names that were sent
MOST_LABELS = 64
LABEL = re.compile(r"[a-z][a-z0-9_]{0,31}")
CLICK = "click"
# Columns of the collected log: no label may have such a name.
TAKEN = frozenset(
    ("query_id", "session_id", "doc_id", "position", "ranker", "timestamp", "count", "session",
     "model", "probability", "experiment", "version", "random", "shadow_position",
     "shadow_model", "team")
)  # fmt: skip
# They would reach terminals, charts and the borders of what is hashed.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

Text = Annotated[str, Meta(min_length=1, max_length=MOST_ID)]
Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Id = Text | Number
ListId = Annotated[str, Meta(pattern=r"\A[0-9]{8}-[0-9a-f]{24}\Z")]
Label = Annotated[str, Meta(pattern=rf"\A{LABEL.pattern}\Z")]
Value = Annotated[float, Meta(ge=0, le=1e300)]
Time = Annotated[int, Meta(ge=0, lt=253_402_300_800_000_000)]  # microseconds since 1970 in UTC
Place = Annotated[int, Meta(ge=0, lt=2**31)]
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
    documents: Annotated[list[Id], Meta(min_length=1)]
    features: list[Row] | bytes | None = None
    feature_names: Annotated[list[Text], Meta(max_length=MOST_NAMES)] | None = None
    size: Annotated[int, Meta(ge=1)] | None = None


class RankResponse(msgspec.Struct):
    """The documents in the order to show them.

    list_id : the id that feedback names; None where the list could not be logged
    """

    list_id: str | None = msgspec.field(name="list")
    documents: list[Id]
    ranker: str
    model: str


class Event(msgspec.Struct, forbid_unknown_fields=True):
    """One piece of feedback. Sent again with the same four (event to label), it counts once."""

    event: Id
    list_id: ListId = msgspec.field(name="list")
    document: Id
    label: Label = CLICK
    value: Value = 1.0
    time: datetime | None = None


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Feedback on shown lists."""

    events: Annotated[list[Event], Meta(min_length=1, max_length=MOST_EVENTS)]


# Records of the journal: what these types allow is all that a reader of it has to expect.


class Names(msgspec.Struct, tag="names"):
    """The names of features that later records of a segment refer to by `id`."""

    id: Text
    names: Annotated[list[Text], Meta(min_length=1, max_length=1 << 18)]


class Shown(msgspec.Struct, tag="shown", omit_defaults=True):
    """A list as it was shown.

    ranker, probability, experiment : the arm, how likely it was for this list, and the exploration
    model : digest of the ranker's file
    features : float32, row by row, where they came with the request; `names` says what they are
    teams : of an interleaved list: 1 where the candidate put a document, 2 for the current one
    shadow, shadow_model : positions that another ranker would have given, not shown
    """

    list_id: ListId = msgspec.field(name="list")
    time: Time
    session: Text
    query: Text
    documents: Annotated[list[Text], Meta(min_length=1, max_length=MOST_SHOWN)]
    ranker: Text
    model: Text
    probability: Annotated[float, Meta(gt=0, le=1)] = 1.0
    experiment: Annotated[str, Meta(max_length=1 << 16)] = ""
    features: bytes | None = None
    names: str = ""
    teams: list[Place] | None = None
    shadow: list[Place] | None = None
    shadow_model: Annotated[str, Meta(max_length=MOST_ID)] = ""


class Feedback(msgspec.Struct, tag="feedback", omit_defaults=True):
    """An event as it is kept: `time` as it was told, or else when it was `received`."""

    event: Text
    list_id: ListId = msgspec.field(name="list")
    document: Text
    time: Annotated[int, Meta(ge=-(2**60), le=2**60)]
    received: Time
    label: Label = CLICK
    value: Value = 1.0


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
    """A record from the journal, or a `ValueError`: its file may come from anywhere."""
    try:
        record: Record = _record.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{error}") from error
    if isinstance(record, Names):
        wrong = not are_plain(record.names) or len(set(record.names)) < len(record.names)
    elif isinstance(record, Shown):
        n = len(record.documents)
        beside = (part for part in (record.teams, record.shadow) if part is not None)
        wrong = len(set(record.documents)) < n or any(len(part) != n for part in beside)
        wrong |= not record.list_id.startswith(day_of(record.time).replace("-", ""))
    else:
        wrong = list_day(record.list_id) is None or record.label in TAKEN
    if wrong:
        raise ValueError("parts of the record contradict each other")
    return record


# Checks that types cannot express.


def are_plain(texts: list[str]) -> bool:
    """Whether no text has control characters or halves of characters."""
    joined = "".join(texts)
    return joined.isprintable() or not _CONTROL.search(joined)


def plain_ids(values: list[Id], what: str) -> list[str]:
    """Ids as the log holds them."""
    texts = [str(value) for value in values]
    if not are_plain(texts):
        raise RequestError(f"{what} holds a control character, such as a tab. Leave it out.")
    return texts


def checked_event(event: Event, now: int) -> Feedback:
    """The event as it is kept, or a `RequestError`."""
    if event.label in TAKEN:
        raise RequestError(
            f"the label {event.label!r} is a column of the log. Choose another; taken are "
            f"{', '.join(sorted(TAKEN))}."
        )
    if list_day(event.list_id) is None:
        raise RequestError(f"{event.list_id!r} is no id of a list. Send the one that /rank gave.")
    name, document = plain_ids([event.event, event.document], "an id")
    time = now if event.time is None else _microseconds(event.time)
    return Feedback(name, event.list_id, document, time, now, event.label, event.value)


def new_list_id(now: int, *parts: str) -> str:
    """The id of a list that is shown now, by UTC's day and what makes it this list.

    The same list, shown to the same session again on the same day, is the same showing.
    """
    return f"{day_of(now).replace('-', '')}-{hashed(*parts)}"


def day_of(time: int) -> str:
    """2026-11-16, by UTC."""
    return datetime.fromtimestamp(time // 1_000_000, UTC).date().isoformat()


def list_day(list_id: str) -> str | None:
    """2026-11-16 of the id of a list; None where it names no day."""
    try:
        return datetime.strptime(list_id[:8], "%Y%m%d").date().isoformat()
    except ValueError:
        return None


def hashed(*parts: str) -> str:
    """24 hexadecimal digits that depend on all parts."""
    return blake2b(_to_msgpack.encode(parts), digest_size=12).hexdigest()


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise RequestError(
            "the time of an event needs its offset, as in 2026-11-16T15:00:00Z or +01:00: without "
            "it the time zone is unknown. Or leave the time out."
        )
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

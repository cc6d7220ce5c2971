"""Click logs with a known truth, by protocols or by fitted click models."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.files import replacing_all
from untilt._core.progress import progress
from untilt._core.random import Seed, child_generator
from untilt._core.threads import kernel_threads
from untilt.clickmodels.click_model import ClickModel
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists, check_judged
from untilt.data.read.database import literal, open_database, translated_errors
from untilt.data.write_log import Columns, write_columns
from untilt.errors import NotFittedError, OptionError, check_least
from untilt.simulation.behaviour import Behaviour
from untilt.simulation.production import MeanExamination, Setting, Truth, prepare
from untilt.simulation.protocols import DLA, Protocol
from untilt.simulation.sampler import Sessions, distinct_sessions, draw_sessions

# Sessions whose clicks a fitted click model draws.


@dataclass(frozen=True)
class Fitted(Protocol):
    """Clicks drawn by a fitted click model; documents are matched by (query id, document id).

    Made by `simulate(judged, protocol=model)`, which draws the lists by the tables of this protocol
    and their clicks by `model.sample`.
    """

    name: ClassVar[str] = "fitted"

    model: ClickModel
    depth: int | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:  # noqa: ARG002
        """Nobody clicks while lists are drawn: labels play no part, the model clicks afterwards."""
        return Behaviour(relevance=np.zeros(len(labels)), examination=np.ones(depth))


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedBehaviour(Behaviour):
    """What a fitted model does with lists; `documents` is a log of the documents alone.

    examination : (K,) P(click at k) over the attraction of what was shown there, both summed over
        the log's sessions. For PBM this is theta; for others its mean
    """

    model: ClickModel
    documents: ClickLog

    def click_probability(self, document: IntArray, position: IntArray) -> FloatArray:  # noqa: ARG002
        """Has no answer: see the message."""
        raise OptionError(
            "under a fitted click model a click may depend on the whole list. Ask "
            "truth.click_probabilities(log): it knows the lists."
        )

    def click_probabilities(
        self, indptr: IntArray, document: IntArray, position: IntArray
    ) -> FloatArray:
        """(rows,) P(click) of every row of these lists."""
        return self.model.click_probability(_lists(self.documents, indptr, document, position))

    def of_documents(self, documents: IntArray) -> "FittedBehaviour":
        """Of these documents alone, in this order."""
        mine = self.documents
        fewer = mine._with(doc_id=mine.doc_id[documents], doc_query=mine.doc_query[documents])
        return replace(self, relevance=self.relevance[documents], documents=fewer)


def as_fitted(protocol: object) -> Fitted | None:
    """The protocol of a fitted click model, as deep as its pages; None of anything else.

    A click model is known by what it can do: models of one's own are welcome.
    """
    if isinstance(protocol, type) or not all(
        callable(getattr(protocol, name, None)) for name in ("sample", "click_probability")
    ):
        return None
    model = cast(ClickModel, protocol)
    if not hasattr(model, "documents_"):
        raise NotFittedError(
            f"protocol={type(model).__name__}() has not learned how people click. Fit it first: "
            "simulate(judged, protocol=model.fit(log))."
        )
    return Fitted(model, depth=int(model.depth_))


def with_clicks(lists: ClickLog, model: ClickModel, seed: Seed) -> tuple[ClickLog, FittedBehaviour]:
    """The lists with clicks drawn by the model, and what the model does on them."""
    index = model.documents_.index_of(lists)
    if not np.any(index >= 0):
        raise OptionError(
            f"this {type(model).__name__} knows none of the {lists.n_documents:,} judged "
            "documents. Documents are matched by query id and document id: fit it on a log of the "
            "same queries."
        )
    log = model.sample(lists, seed=child_generator(seed, 23))
    relevance = np.append(model.relevance_, model.prior_mean_)[index]
    behaviour = FittedBehaviour(
        relevance=relevance,
        examination=_mean_examination(lists, model, index),
        model=model,
        documents=lists.take(np.empty(0, dtype=np.int64)),
    )
    return log, behaviour


def _mean_examination(lists: ClickLog, model: ClickModel, index: IntArray) -> FloatArray:
    attraction = getattr(model, "attraction_", model.relevance_)
    mean = getattr(model, "attraction_mean_", model.prior_mean_)
    weight = np.append(attraction, mean)[index][lists.document]
    clicked = np.bincount(lists.position - 1, model.click_probability(lists), lists.depth)
    return clicked / np.bincount(lists.position - 1, weight, lists.depth)


def _lists(
    documents: ClickLog, indptr: IntArray, document: IntArray, position: IntArray
) -> ClickLog:
    n = len(indptr) - 1
    # An empty list has no document that knows its query, and no row to predict.
    first = document[np.minimum(indptr[:-1], max(len(document) - 1, 0))]
    return documents._with(
        indptr=indptr, query=documents.doc_query[first] if n else np.empty(0, dtype=np.int64),
        document=document, position=position, label=np.zeros(len(document)),
        count=np.ones(n, dtype=np.int64), ranker=None, time=None,
    )  # fmt: skip


DEFAULT = DLA()
SESSIONS_PER_QUERY = 100  # where no size is asked for
COUNTING_CHUNK = 2**15  # sessions at a time while clicks are counted
HOPELESS = 2**18  # sessions without any click, after which more are not tried


@dataclass(frozen=True, eq=False)
class Simulation:
    """A click log and what it was made from."""

    log: ClickLog
    truth: Truth


def simulate(
    judged: JudgedLists,
    protocol: str | Protocol | ClickModel = DEFAULT,
    *,
    n_sessions: int | None = None,
    n_clicks: int | None = None,
    sessions_per_query: int | None = None,
    ranker: Any = None,
    seed: Seed = 0,
    depth: int | None = None,
    query_weights: npt.ArrayLike | None = None,
    max_label: float | None = None,
    keep_unshown: bool = True,
    collapse: bool = True,
    n_threads: int | None = None,
) -> Simulation:
    """Draw sessions of users who click by a known rule, and return the log with the truth.

    A production ranker orders the documents of each query, a session shows the top of its query's
    list, and its reader clicks as `protocol` says. The queries whose labels trained the production
    ranker give no sessions. The same seed gives the same log, whatever the number of threads.

    Parameters
    ----------
    protocol : "prs", "dla", "cascade", "trust", "dwell", "swap", "shuffle", "harvest", or a value
        with other parameters such as protocols.DLA(theta=0.5), or a fitted click model such as
        UBM().fit(log), which knows documents by (query id, document id); "dla" where not given
    n_sessions : sessions, each of a query drawn with replacement
    n_clicks : as many sessions as it takes to reach so many clicks; the last may exceed it
    sessions_per_query : every query gets just so many. Only one of these three can be given; 100
        per query, drawn with replacement, where none is
    ranker : who orders the lists: scores (one per judged document), something fitted with
        `predict`, or several of them by name for "harvest". None trains the papers' production
        ranker on 1% of the queries: `production_ranker(judged, seed=seed)`
    depth : positions of a list, where the protocol's own are not wanted; at most 1,000
    query_weights : "uniform" (the default), "zipf" (1/rank, ranks drawn at random) or an array
    max_label : the highest grade there is; the highest here where not given
    keep_unshown : keep documents that no session showed, as unshown candidates
    collapse : merge equal sessions, as `ClickLog.collapse` would; else each keeps its number as
        its `time`
    n_threads : at most so many; all that numba has where not given

    >>> from untilt.simulation.synthetic import make_judged
    >>> sim = simulate(make_judged(n_queries=200), protocol="dla", n_sessions=1000)
    >>> sim.log.n_sessions, float(sim.truth.examination[0])
    (1000, 0.68)
    """
    check_judged(judged, "simulate draws new clicks from labels")
    size = Size(n_sessions, n_clicks, sessions_per_query)
    fitted = as_fitted(protocol)
    if fitted is not None and n_clicks is not None:
        raise OptionError(
            "n_clicks cannot be asked of a fitted click model: it draws all sessions at once. Ask "
            "for n_sessions or sessions_per_query."
        )
    with threads(n_threads):
        setting = prepare(
            judged, protocol if fitted is None else fitted, ranker=ranker, seed=seed, depth=depth,
            query_weights=query_weights, max_label=max_label, in_turn=size.in_turn,
        )  # fmt: skip
        total = size.total(setting)
        if collapse and fitted is None:
            number, count = distinct_sessions(setting.plan, total)
        else:
            number, count = np.arange(total), np.ones(total, dtype=np.int64)
        made = draw_sessions(setting.plan, number)
    log = _log(setting, made, count, time=None if collapse else number)
    if fitted is not None:
        log, behaviour = with_clicks(log, fitted.model, seed)
        log = log.collapse() if collapse else log
        setting = replace(setting, behaviour=behaviour)
    examination = MeanExamination(setting.behaviour)
    examination.add(made.indptr, made.document, count)
    simulation = Simulation(log, setting.truth(examination))
    return simulation if keep_unshown else _only_shown(simulation)


@dataclass(frozen=True)
class Size:
    """How many sessions: by their number, by the clicks they bring, or per query.

    At most one is given; 100 per query, drawn with replacement, where none is.
    """

    n_sessions: int | None
    n_clicks: int | None
    sessions_per_query: int | None

    def __post_init__(self) -> None:
        given = {name: size for name, size in vars(self).items() if size is not None}
        if len(given) > 1:
            raise OptionError(f"give only one of {', '.join(vars(self))}. Got {', '.join(given)}.")
        for name, size in given.items():
            check_least(name, size, 1)

    @property
    def in_turn(self) -> bool:
        """Whether queries take turns instead of being drawn."""
        return self.sessions_per_query is not None

    def total(self, setting: Setting) -> int:
        """The number of sessions."""
        if self.n_clicks is not None:
            return _sessions_for_clicks(setting, self.n_clicks)
        if self.n_sessions is not None:
            return self.n_sessions
        return (self.sessions_per_query or SESSIONS_PER_QUERY) * setting.judged.n_queries


def _sessions_for_clicks(setting: Setting, n_clicks: int) -> int:
    """The smallest number of sessions that bring n_clicks."""
    so_far = begin = 0
    while True:
        number = np.arange(begin, begin + COUNTING_CHUNK)
        made = draw_sessions(setting.plan, number)
        clicks = so_far + np.cumsum(ragged.sums_by_list(made.indptr, made.click))
        if clicks[-1] >= n_clicks:
            return begin + 1 + int(np.searchsorted(clicks, n_clicks))
        so_far, begin = int(clicks[-1]), begin + COUNTING_CHUNK
        if so_far == 0 and begin >= HOPELESS:
            raise OptionError(
                f"n_clicks={n_clicks:,} cannot be reached: {begin:,} sessions brought no click. "
                "Check that relevant documents are shown (depth, ranker), or ask for n_sessions."
            )


def threads(n_threads: int | None) -> AbstractContextManager[None]:
    """Let compiled kernels use at most so many threads inside the block."""
    if n_threads is not None:
        check_least("n_threads", n_threads, 1)
    return kernel_threads(n_threads)


def _log(setting: Setting, made: Sessions, count: IntArray, time: IntArray | None) -> ClickLog:
    judged = setting.judged
    assert judged.doc_id is not None
    none = np.empty(0, dtype=np.int64)
    documents = ClickLog(
        query_id=judged.query_id,
        doc_id=judged.doc_id,
        doc_query=ragged.list_of_row(judged.indptr),
        indptr=np.zeros(1, dtype=np.int64),
        query=none,
        document=none,
        position=none,
        label=np.empty(0),
        features=judged.features,
        feature_names=judged.feature_names,
        label_name=setting.protocol.feedback,
        ranker_names=setting.ranker_names,
        turnover=1.0,  # sessions are drawn independently of each other
    )
    # Right by construction, so not checked again: that would sort all rows once more.
    return documents._with(
        indptr=made.indptr,
        query=made.query,
        document=made.document,
        position=(ragged.index_in_list(made.indptr) + 1).astype(np.int32),
        label=made.label,
        count=count,
        ranker=made.variant if setting.ranker_names else None,
        time=time,
        extra_labels={} if made.dwell is None else {"click": made.click.astype(np.float64)},
    )


def _only_shown(simulation: Simulation) -> Simulation:
    """Without the documents and queries that no session showed."""
    log, truth = simulation.log, simulation.truth
    documents, document = np.unique(log.document, return_inverse=True)
    queries, query = np.unique(log.query, return_inverse=True)
    judged, behaviour = truth.judged, truth.behaviour.of_documents(documents)
    assert judged.doc_id is not None
    doc_query = np.searchsorted(queries, log.doc_query[documents])
    kept = JudgedLists(
        features=judged.features[documents],
        labels=judged.labels[documents],
        indptr=np.searchsorted(doc_query, np.arange(len(queries) + 1)),
        query_id=judged.query_id[queries],
        doc_id=judged.doc_id[documents],
        feature_names=judged.feature_names,
    )
    smaller = log._with(
        query_id=kept.query_id, doc_id=kept.doc_id, doc_query=doc_query, features=kept.features,
        query=query, document=document,
    )  # fmt: skip
    return Simulation(
        smaller,
        replace(
            truth,
            judged=kept,
            behaviour=behaviour,
            query_probability=truth.query_probability[queries],
        ),
    )


# ---- logs larger than memory: written to Parquet, chunk by chunk; and as UBI


@dataclass(frozen=True, eq=False)
class SimulatedFiles:
    """Where a simulated log lies, how large it is, and what it was made from.

    The truth's documents are in the order of the documents file.
    """

    log: Path
    documents: Path
    n_sessions: int
    n_impressions: int
    n_clicks: int
    truth: Truth


def simulate_to_parquet(
    judged: JudgedLists,
    folder: str | os.PathLike[str],
    protocol: str | Protocol = DEFAULT,
    *,
    n_sessions: int | None = None,
    n_clicks: int | None = None,
    sessions_per_query: int | None = None,
    ranker: Any = None,
    seed: Seed = 0,
    depth: int | None = None,
    query_weights: npt.ArrayLike | None = None,
    max_label: float | None = None,
    chunk_sessions: int = 200_000,
    n_threads: int | None = None,
) -> SimulatedFiles:
    """Write the log of `simulate` as one row per impression, chunk by chunk.

    Memory holds one chunk and up to 1 GB of rows on their way to the file; more are on the disk.

    The folder gets `clicks.parquet` (query_id, session_id, doc_id, position, click, timestamp;
    dwell where the protocol has it; ranker where there are several) and `documents.parquet`
    (query_id, doc_id, features). Session id and timestamp are the session's number. Both files
    appear together, whole or not at all. `read_log(files.log, documents=files.documents)` reads
    them back.

    Options are those of `simulate`; `chunk_sessions` changes neither rows nor their order.
    """
    size = Size(n_sessions, n_clicks, sessions_per_query)
    check_least("chunk_sessions", chunk_sessions, 1)
    with threads(n_threads):
        setting = prepare(
            judged, protocol, ranker=ranker, seed=seed, depth=depth, query_weights=query_weights,
            max_label=max_label, in_turn=size.in_turn,
        )  # fmt: skip
        return _write(setting, Path(folder), size.total(setting), chunk_sessions)


def _write(setting: Setting, folder: Path, total: int, chunk_sessions: int) -> SimulatedFiles:
    columns = _Columns(setting)
    log, documents = folder / "clicks.parquet", folder / "documents.parquet"
    counted = _Counted(MeanExamination(setting.behaviour))

    def impressions() -> Iterator[Columns]:
        yield columns.impressions(draw_sessions(setting.plan, np.empty(0, dtype=np.int64)))
        for made in _chunks(setting, total, chunk_sessions):
            counted.add(made)
            yield columns.impressions(made)

    with replacing_all(folder, [log.name, documents.name]) as place:
        write_columns(place / documents.name, documents, [columns.documents()])
        write_columns(place / log.name, log, impressions())
    truth = setting.truth(counted.examination)
    return SimulatedFiles(log, documents, total, counted.impressions, counted.clicks, truth)


@dataclass
class _Counted:
    """What is counted as sessions are written."""

    examination: MeanExamination
    impressions: int = 0
    clicks: int = 0

    def add(self, made: Sessions) -> None:
        self.examination.add(made.indptr, made.document)
        self.impressions += len(made.document)
        self.clicks += int(made.click.sum())


def _chunks(setting: Setting, total: int, chunk_sessions: int) -> Iterator[Sessions]:
    with progress("simulating", total=total) as advance:
        for begin in range(0, total, chunk_sessions):
            number = np.arange(begin, min(begin + chunk_sessions, total))
            yield draw_sessions(setting.plan, number)
            advance(len(number))


class _Columns:
    """Sessions and documents as columns of a table."""

    def __init__(self, setting: Setting) -> None:
        assert setting.judged.doc_id is not None
        self.judged = setting.judged
        self.query_id, self.doc_id = (
            np.asarray(ids, dtype=object) if ids.dtype.kind == "U" else ids
            for ids in (setting.judged.query_id, setting.judged.doc_id)
        )
        self.rankers = np.array(setting.ranker_names, dtype=object)

    def impressions(self, made: Sessions) -> Columns:
        """One row per document of each session."""
        lengths = ragged.lengths(made.indptr)
        session = np.repeat(made.number, lengths)
        columns: dict[str, AnyArray] = {
            "query_id": self.query_id[np.repeat(made.query, lengths)],
            "session_id": session,
            "doc_id": self.doc_id[made.document],
            "position": (ragged.index_in_list(made.indptr) + 1).astype(np.int32),
            "click": made.click.astype(np.int8),
        }
        if made.dwell is not None:
            columns["dwell"] = made.dwell
        if len(self.rankers):
            columns["ranker"] = self.rankers[np.repeat(made.variant, lengths)]
        return {**columns, "timestamp": session}

    def documents(self) -> Columns:
        """One row per document: its ids and its features."""
        owner = ragged.list_of_row(self.judged.indptr)
        columns = {"query_id": self.query_id[owner], "doc_id": self.doc_id}
        for j, name in enumerate(self.judged.feature_names):
            columns[name] = self.judged.features[:, j]
        return columns


# The same as an export of User Behavior Insights, to try the way from one to a report.

QUERIES, EVENTS = "ubi_queries.jsonl", "ubi_events.jsonl"
# Sessions of a simulation are a minute apart, from here on.
_BEGIN = "TIMESTAMP '2026-01-01'"


def write_ubi(
    log: str | os.PathLike[str], folder: str | os.PathLike[str], *, impressions: bool = True
) -> tuple[Path, Path]:
    """Write a log of `simulate_to_parquet` as the documents of UBI 1.3; the two files.

    A session is a request with a query_id of its own, the query's id its user_query. Ordinals count
    from 0. Without `impressions` the hits alone say what was shown.
    """
    path = os.fspath(log)
    with (
        replacing_all(Path(folder), [QUERIES, EVENTS]) as place,
        open_database(memory_limit=None, temp_directory=place, threads=None, files=[path]) as base,
        progress("writing the export"),
        translated_errors(path),
    ):
        base.run(f"CREATE TEMP VIEW log AS SELECT * FROM read_parquet({literal(base.path(path))})")
        written = {QUERIES: _queries(base.columns("log")), EVENTS: _events(impressions)}
        for name, sql in written.items():
            # DuckDB may write into its own folder alone.
            made = base.scratch / name
            base.run(f"COPY ({sql}) TO {literal(str(made))} (FORMAT json)")
            os.replace(made, place / name)
    return Path(folder, QUERIES), Path(folder, EVENTS)


def _time(seconds: str) -> str:
    """SQL of the time in a session, as text."""
    moment = f"{_BEGIN} + to_minutes(session_id) + to_seconds({seconds})"
    return f"strftime({moment}, '%Y-%m-%dT%H:%M:%SZ')"


def _queries(columns: dict[str, str]) -> str:
    about = "{'simulated': true}"
    if "ranker" in columns:
        about = "{'simulated': true, 'ranker': any_value(CAST(ranker AS VARCHAR))}"
    return (
        "SELECT 'session-' || session_id AS query_id, 'response-' || session_id AS "
        f"query_response_id, {_time('0')} AS timestamp, CAST(query_id AS VARCHAR) AS user_query, "
        "'client-' || (session_id % 1000) AS client_id, 'untilt' AS application, "
        "list(CAST(doc_id AS VARCHAR) ORDER BY position) AS query_response_hit_ids, "
        f"{about} AS query_attributes FROM log GROUP BY session_id, query_id ORDER BY session_id"
    )


def _events(impressions: bool) -> str:
    actions = {"click": "position + 1", **({"impression": "1"} if impressions else {})}
    events = [
        f"SELECT '{action}' AS action_name, 'session-' || session_id AS query_id, "
        f"{_time(seconds)} AS timestamp, 'client-' || (session_id % 1000) AS client_id, "
        "'untilt' AS application, {'object': {'object_id': CAST(doc_id AS VARCHAR)}, 'position': "
        "{'ordinal': position - 1}} AS event_attributes FROM log "
        + ("WHERE click > 0" if action == "click" else "")
        for action, seconds in actions.items()
    ]
    return f"SELECT * FROM ({' UNION ALL '.join(events)}) ORDER BY timestamp, query_id"

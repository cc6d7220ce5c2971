"""The server: routes, limits, and the way of one request through ranker, exploration and journal.

Safe by default: bodies, candidates, requests under way and time are bounded; what is too much is
answered with 503 and Retry-After before it takes memory; bad input with 4xx and a sentence. No
request names a file.
"""

import asyncio
import hmac
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from untilt._core.arrays import FloatArray
from untilt.bias.given import Examination
from untilt.errors import UntiltError, WriteError
from untilt.evaluation.live import team_draft
from untilt.serving import wire
from untilt.serving.explore import INTERLEAVED, NOT_DRAWN, Drawn, Exploration, uniform
from untilt.serving.journal import Journal, tell
from untilt.serving.models import Candidates, FeatureTable, Model, Models, candidates_of
from untilt.serving.options import Settings
from untilt.serving.shared import Counters, Family, SessionTable
from untilt.serving.wire import JSON, RequestError, Shown

LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LOOPBACK = re.compile(r"(127\.0\.0\.1|\[::1\]|localhost)(:[0-9]+)?", re.IGNORECASE)
STOP_SECONDS = 5.0  # for the disk, once the last request was answered
T = TypeVar("T")
Answer = Callable[..., Awaitable[Any]]
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_NO_PATH = "there is no such path: /rank, /feedback, /health, /ready, /model, /metrics, /reload."


class Server:
    """One worker: its rankers, journal and counters."""

    def __init__(
        self,
        models: Models,
        settings: Settings,
        exploration: Exploration,
        *,
        curve: Examination | None = None,
        table: FeatureTable | None = None,
        token: str | None = None,
    ) -> None:
        self.models, self.settings, self.exploration = models, settings, exploration
        self.table, self.token = table, token
        folder = Path(settings.log)
        arms = [arm.name for arm in exploration.arms] + ["base"] * bool(exploration)
        self.journal = Journal(folder)
        self.sessions = SessionTable(folder / "sessions.table")
        self.counters = Counters(folder / "counters", [NOT_DRAWN.ranker, INTERLEAVED.ranker, *arms])
        self.under_way = 0
        self.stopping = False
        self.started = time.time()
        self._watching: asyncio.Task[None] | None = None
        self._theta: FloatArray | None = None
        if curve is not None:
            known = len(getattr(curve, "examination", range(wire.MOST_SHOWN)))
            # Below the last known position: as there, so that nothing seems to be lost or gained.
            positions = np.minimum(np.arange(1, wire.MOST_SHOWN + 1), known)
            self._theta = np.asarray(curve.at(positions), float)
        self._names: dict[str, tuple[str, ...]] = {}  # of features, declared in the journal
        self._labels = {wire.CLICK}
        self._seen: dict[str, int] = {}

    # The way of a list.

    async def rank(self, body: bytes, kind: str) -> wire.RankResponse:
        """POST /rank."""
        start = time.perf_counter()
        wanted: wire.RankRequest = wire.decode(body, kind, wire.RankRequest)
        session, query = wire.plain_ids([wanted.session, wanted.query], "session or query")
        documents, size = self._checked(wanted)
        model = self.models.answering(session)
        candidates = candidates_of(
            wanted, query, documents, model, self.table,
            unknown_last=self.settings.unknown == "last",
        )  # fmt: skip
        digest, teams, both = model.digest, None, self.models.both(session)
        if both is not None:
            new, old = (_ordered(each, candidates)[0] for each in both)
            seed = int(2**53 * uniform(self.models.salt, b"draft", f"{session}\x00{query}"))
            order, teams = team_draft(new, old, size, seed)
            drawn, digest = INTERLEAVED, "+".join(each.digest for each in both)
        else:
            order, scores = _ordered(model, candidates)
            order, scores = order[:size], scores[:size]
            drawn = self._explored(session, query, [documents[i] for i in order], scores, model)
        if drawn.order is not None:
            order = [order[place] for place in drawn.order]
        shown = [documents[i] for i in order]
        shadow = self._shadow(candidates, order)
        record = Shown(
            list_id="", time=0, session=session, query=query, documents=shown, model=digest,
            ranker=drawn.ranker, probability=drawn.probability, teams=teams, shadow=shadow,
            experiment="" if drawn in (NOT_DRAWN, INTERLEAVED) else self.exploration.text,
            shadow_model="" if shadow is None else getattr(self.models.candidate, "digest", ""),
        )  # fmt: skip
        if model is not self.models.current:
            self.counters.add("untilt_candidate_lists_total")
        self.counters.add("untilt_unknown_documents_total", (candidates.known or ()).count(False))
        logged = await self._log(record, candidates, order)
        self.counters.ranked(time.perf_counter() - start, drawn.ranker, len(documents))
        return wire.RankResponse(logged, [wanted.documents[i] for i in order], drawn.ranker, digest)

    def _checked(self, wanted: wire.RankRequest) -> tuple[list[str], int]:
        n, most = len(wanted.documents), self.settings.most_documents
        if n > most:
            raise RequestError(f"a request must have 1 to {most:,} documents. Got {n:,}.")
        size = n if wanted.size is None else wanted.size
        documents = wire.plain_ids(wanted.documents, "a document's id")
        if len(set(documents)) < n:
            raise RequestError("a request must name each document once.")
        return documents, min(size, n, wire.MOST_SHOWN)

    def _explored(
        self, session: str, query: str, documents: list[str], scores: FloatArray, model: Model
    ) -> Drawn:
        """The arm of a list; "production" where it takes no part."""
        exploration, n = self.exploration, len(documents)
        if not exploration or n < 2:
            return NOT_DRAWN
        theta = None if self._theta is None else self._theta[:n]
        gamma = None if model.relevance is None else model.relevance.of(scores)
        if not exploration.is_affordable(n, theta, gamma):
            self.counters.add("untilt_capped_total")
            return NOT_DRAWN
        if not self.sessions.takes_part(session, (query, model.digest, *documents)):
            return NOT_DRAWN
        self.counters.add("untilt_expected_loss_clicks_total", exploration.cost(n, theta, gamma))
        return exploration.draw(session, n)

    def _shadow(self, candidates: Candidates, order: list[int]) -> list[int] | None:
        """Positions that the candidate would have given to what is shown, in its order."""
        candidate = self.models.candidate
        if candidate is None or not self.settings.shadow:
            return None
        theirs, _ = _ordered(candidate, candidates)
        place = {document: position for position, document in enumerate(theirs, start=1)}
        self.counters.add("untilt_shadow_lists_total")
        self.counters.add("untilt_shadow_same_first_total", float(theirs[0] == order[0]))
        return [place[document] for document in order]

    async def _log(self, record: Shown, candidates: Candidates, order: list[int]) -> str | None:
        """The id of the list once it is on the disk; None where the disk refuses."""
        record.time = time.time_ns() // 1000
        record.list_id = wire.new_list_id(
            record.time, record.session, record.query, record.model, record.ranker,
            *record.documents,
        )  # fmt: skip
        if candidates.inline:
            record.names = self._declared(candidates.names)
            record.features = candidates.values[order].astype("<f4").tobytes()
        try:
            await asyncio.wait_for(self.journal.append(wire.pack(record)), self.settings.timeout)
        except WriteError:
            # Readers get their list all the same: a search must not stop because a disk is full.
            self.counters.add("untilt_unlogged_lists_total")
            return None
        except TimeoutError:
            # It is on its way and will be in the log. Without its id it would be there as a list
            # that nobody clicked; with it, its clicks count, or neither does.
            self.counters.add("untilt_late_lists_total")
        return record.list_id

    def _declared(self, names: tuple[str, ...]) -> str:
        """The id of these names of features in the journal. The rankers' own are always taken.

        Others are bounded, all together: they are held in memory, written into each segment, and
        each becomes a column.
        """
        key = wire.hashed(*names)
        if key not in self._names:
            others = {**self._names, key: names}
            for model in self.models.all:
                others.pop(wire.hashed(*model.names), None)
            sent = [name for each in others.values() for name in each]
            if sum(map(len, sent)) > wire.MOST_DECLARED or len(set(sent)) > wire.MOST_NAMES:
                raise RequestError(
                    "this server received too many different lists of feature names. Send the "
                    "names always in one order."
                )
            self._names[key] = names
            self.journal.declare(key, wire.pack(wire.Names(key, list(names))))
        return key

    async def feedback(self, body: bytes, kind: str) -> dict[str, int]:
        """POST /feedback: answered once every event is on the disk."""
        wanted: wire.FeedbackRequest = wire.decode(body, kind, wire.FeedbackRequest)
        now = time.time_ns() // 1000
        kept = [wire.pack(wire.checked_event(event, now)) for event in wanted.events]
        labels = self._labels | {event.label for event in wanted.events}
        if len(labels) > wire.MOST_LABELS or not labels <= set(self.settings.labels or labels):
            raise RequestError(
                f"this server takes the labels {', '.join(self.settings.labels or self._labels)}. "
                "Name others when it starts: --label NAME."
            )
        self._labels = labels
        try:
            await asyncio.wait_for(self.journal.append(*kept), self.settings.timeout)
        except (WriteError, TimeoutError):
            raise RequestError(
                "the events could not be written to the disk. Send them again later.", status=503
            ) from None
        self.counters.add("untilt_events_total", len(kept))
        return {"accepted": len(kept)}

    # What a server says of itself.

    async def health(self) -> dict[str, str]:
        """GET /health: the process answers."""
        return {"status": "ok"}

    async def ready(self) -> dict[str, str]:
        """GET /ready: it can rank; 503 while it stops."""
        if self.stopping:
            raise RequestError("the server is stopping.", status=503)
        return {"status": "ready"}

    async def model(self) -> dict[str, Any]:
        """GET /model: which rankers answer, and how."""
        models, settings = self.models, self.settings
        return {
            "current": models.current.described(),
            "candidate": None if models.candidate is None else models.candidate.described(),
            "share": settings.share,
            "interleave": settings.interleave,
            "shadow": settings.shadow,
            "explore": self.exploration.text,
            "most_lost": settings.most_lost,
            "problem": models.problem,
        }

    async def metrics(self) -> Response:
        """GET /metrics: the text format of Prometheus."""
        self._catch_up()
        mine = "of the worker that answered."
        gauges: list[Family] = [
            (f"untilt_{name}", "gauge", text, {labels: float(value)})
            for name, text, labels, value in (
                ("requests_under_way", f"Requests {mine}", "", self.under_way),
                ("journal_pending_bytes", f"Bytes that wait for the disk, {mine}", "",
                 self.journal.pending_bytes),
                ("start_time_seconds", f"Start {mine}", "", self.started),
                ("model_info", "The current ranker.",
                 f'{{model="{self.models.current.digest}"}}', 1),
            )
        ]  # fmt: skip
        return Response(self.counters.text(gauges), media_type="text/plain; version=0.0.4")

    def _catch_up(self) -> None:
        """Add what the journal and the rankers counted since the last time."""
        now = {
            "untilt_journal_bytes_total": self.journal.written_bytes,
            "untilt_journal_syncs_total": self.journal.syncs,
            "untilt_reloads_total": self.models.reloads,
            "untilt_reload_failures_total": self.models.failures,
        }
        for name, value in now.items():
            self.counters.add(name, value - self._seen.get(name, 0))
        self._seen = now

    async def reload(self, _body: bytes, _kind: str) -> dict[str, Any]:
        """POST /reload: look at the rankers' files now. The request says nothing of paths."""
        changed = None
        with suppress(TimeoutError):
            changed = await _beside(self.models.reload, self.settings.timeout)
        if changed is None:
            raise RequestError("a reload is running. /model shows its result.", status=409)
        if self.models.problem is not None:
            raise RequestError(
                f"the server keeps the old ranker: {self.models.problem}",
                status=500,
            )
        return {"changed": changed, "model": self.models.current.digest}

    # Limits.

    def route(
        self, path: str, answer: Answer, *, method: str = "GET", open_to_all: bool = False
    ) -> Route:
        """A path, with all that is around its answer: room, token, format, errors, counters.

        A POST is answered from its body and the format of that; a GET from nothing.
        """

        async def answered(request: Request) -> Response:
            is_post = method == "POST"
            if is_post and self.under_way >= self.settings.at_once:
                self.counters.add("untilt_refused_total")
                return _refusal(503, "too many requests at a time. Send it again later.")
            self.under_way += is_post
            try:
                if not open_to_all:
                    self._check_token(request)
                kind = wire.kind_of(request.headers.get("content-type")) if is_post else JSON
                given = (await self._body(request), kind) if is_post else ()
                found = await answer(*given)
                return found if isinstance(found, Response) else _response(found, kind)
            except RequestError as error:
                return _refusal(error.status, error.text)
            except UntiltError as error:
                return _refusal(400, str(error))
            finally:
                self.under_way -= is_post

        async def counted(request: Request) -> Response:
            response = await answered(request)
            self.counters.request(path, response.status_code)
            return response

        return Route(path, counted, methods=[method])

    async def _body(self, request: Request) -> bytes:
        parts, size = [], 0
        most, seconds = self.settings.most_body, self.settings.timeout
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise RequestError(f"the body has more than {most:,} bytes.", status=413)
                    parts.append(part)
        except TimeoutError:
            raise RequestError(
                f"the body did not arrive within {seconds:g} seconds.", status=408
            ) from None
        except ClientDisconnect:
            raise RequestError("the connection ended before the body did.") from None
        return b"".join(parts)

    def _check_token(self, request: Request) -> None:
        if self.token is None:
            host = request.headers.get("host", LOOPBACK[0])
            if self.settings.loopback and not _LOOPBACK.fullmatch(host):
                # A page whose name leads to this machine would come by its reader's browser.
                raise RequestError(
                    f"this server answers only to {', '.join(LOOPBACK)}. "
                    "Start it with a token to reach it by another name.", status=403,
                )  # fmt: skip
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.encode(), self.token.encode())
        if scheme.lower() != "bearer" or not right:
            raise RequestError(
                "this server needs its token: Authorization: Bearer TOKEN.", status=401
            )

    # From start to stop.

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.settings.watch_seconds)
            with suppress(TimeoutError):
                await _beside(self.models.reload, self.settings.timeout)

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """What runs beside the requests, and what ends after the last of them."""
        if self.settings.watch_seconds > 0:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self.stopping = True
            if self._watching is not None:
                self._watching.cancel()
                with suppress(asyncio.CancelledError):
                    await self._watching
            with suppress(TimeoutError):  # the disk hangs
                await asyncio.wait_for(self.journal.close(), STOP_SECONDS)
            self._catch_up()
            self.close()

    def close(self) -> None:
        """Let go of the files that workers share."""
        self.sessions.close()
        self.counters.close()


async def _beside(work: Callable[[], T], seconds: float) -> T:
    """In a thread that nobody waits for at the end: a disk may hold it for ever."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        result = work()
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(tell, done, result)

    threading.Thread(target=run, daemon=True).start()
    # Not by `wait_for`, which in Python 3.11 forgets that it was cancelled as the result came.
    async with asyncio.timeout(seconds):
        return await done


def _response(
    value: Any, kind: str = JSON, status: int = 200, more: Mapping[str, str] | None = None
) -> Response:
    return Response(wire.encode(value, kind), status, {**_HEADERS, **(more or {})}, kind)


def _refusal(status: int, text: str, more: Mapping[str, str] | None = None) -> Response:
    headers = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(status, more)
    return _response({"error": text}, JSON, status, headers)


def _ordered(model: Model, candidates: Candidates) -> tuple[list[int], FloatArray]:
    """Candidates from the best down, and their scores; ties stay as they came."""
    values = candidates.of(model)
    if candidates.known is not None:
        known = np.flatnonzero(candidates.known)
        scores = np.full(len(values), -np.inf)
        if len(known):
            scores[known] = model.ranker.predict(values[known])
    else:
        scores = model.ranker.predict(values)
    order = np.argsort(-scores, kind="stable")
    return order.tolist(), scores[order]


def make_app(server: Server, *, more: Sequence[Route] = ()) -> Starlette:
    """The ASGI application of a server, with further routes."""
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware

    middleware = []
    if server.settings.cors:
        middleware.append(
            Middleware(
                CORSMiddleware, allow_origins=list(server.settings.cors), allow_methods=["POST"],
                allow_headers=["authorization", "content-type"],
            )
        )  # fmt: skip
    routes = [
        *(server.route(f"/{answer.__name__}", answer, method="POST")
          for answer in (server.rank, server.feedback, server.reload)),
        *(server.route(f"/{answer.__name__}", answer) for answer in (server.model, server.metrics)),
        *(server.route(f"/{answer.__name__}", answer, open_to_all=True)
          for answer in (server.health, server.ready)),
        *more,
    ]  # fmt: skip

    async def lost(_request: Request, error: Any) -> Response:
        told = {404: _NO_PATH, 405: "this path takes another method."}
        text = told.get(error.status_code, str(error.detail))
        return _refusal(error.status_code, text, error.headers)

    from starlette.exceptions import HTTPException

    app = Starlette(
        routes=routes, middleware=middleware, lifespan=server.lifespan,
        exception_handlers={HTTPException: lost},
    )  # fmt: skip
    app.router.redirect_slashes = False  # to whatever host a request names
    return app

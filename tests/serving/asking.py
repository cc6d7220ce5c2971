"""Calls to a server inside this process, by its ASGI application: no port, no client library."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import untilt as ut
from untilt.serving.app import Server, make_app
from untilt.serving.options import Settings
from untilt.serving.start import make_server


@dataclass
class Answered:
    """Status, headers and body of an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


@dataclass
class Asking:
    """A server in this event loop."""

    server: Server
    app: Any
    headers: dict[str, str] = field(default_factory=dict)

    async def __call__(
        self,
        method: str,
        path: str,
        body: Any = b"",
        *,
        parts: list[bytes] | None = None,
        never_ends: bool = False,
        **headers: str,
    ) -> Answered:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        sent = {"content-type": "application/json", **self.headers}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        left = [body] if parts is None else list(parts)
        answer = Answered(0, {}, b"")

        async def receive() -> dict[str, Any]:
            if left:
                part = left.pop(0)
                return {"type": "http.request", "body": part, "more_body": bool(left) or never_ends}
            if never_ends:
                await asyncio.sleep(3600)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
            else:
                answer.body += message.get("body", b"")

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "scheme": "http", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
            "headers": [(k.lower().encode(), v.encode()) for k, v in sent.items()],
        }  # fmt: skip
        await self.app(scope, receive, send)
        return answer

    async def rank(self, **request: Any) -> Answered:
        return await self("POST", "/rank", request)

    async def feedback(self, *events: dict[str, Any]) -> Answered:
        return await self("POST", "/feedback", {"events": list(events)})


def with_server(
    settings: Settings, talk: Callable[[Asking], Coroutine[Any, Any, Any]], **headers: str
) -> Any:
    """Start a server, talk to it, and stop it; what the talk returned."""

    async def whole() -> Any:
        server = make_server(settings)
        app = make_app(server)
        async with server.lifespan(app):
            return await talk(Asking(server, app, headers))

    return asyncio.run(whole())


def saved_ranker(path: Path, *, weights: tuple[float, ...] = (1.0, 0.0)) -> Path:
    """A linear ranker with these weights, up to what fitting makes of them: by the first feature,
    or by the second, ..."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, len(weights))).astype(np.float32)
    labels = (features @ np.array(weights) > 0).astype(float)
    judged = ut.JudgedLists(
        features=features, labels=labels, indptr=np.arange(0, 401, 10), query_id=np.arange(40),
        feature_names=tuple("ab")[: len(weights)],
    )  # fmt: skip
    ut.LinearRanker().fit(judged).save(path)
    return path

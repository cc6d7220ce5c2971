"""A connection to a server: what comes before a whole request is bounded in time and size.

uvicorn has no such bounds, and a connection that says nothing costs a client nothing. So a head has
ten seconds and 32 KiB, and where there are too many connections, the one that has waited longest
for a request gives way: a new one, such as that of a health check, always gets in.
"""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
MOST_HEAD, MOST_URL = 32 << 10, 8 << 10  # bytes
MOST_CONNECTIONS = 512  # a process may have 1,024 files open, where nobody says otherwise


class Connection(HttpToolsProtocol):
    """uvicorn's own, with these bounds."""

    # Those without a request under way, the oldest first.
    waiting: ClassVar[dict["Connection", None]] = {}
    _timer: asyncio.TimerHandle | None = None
    _head = 0  # bytes of one that is not whole yet
    _heads = 0
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        """One more; too many, and the one that has waited longest goes."""
        super().connection_made(transport)
        self.waiting[self] = None
        self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        if len(self.connections) > MOST_CONNECTIONS and self.waiting:
            next(iter(self.waiting)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended."""
        self._end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a head or of a body."""
        if self._timer is None and self in self.waiting:  # after an earlier request
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)
        before = (self._in_head, self._heads)
        super().data_received(data)
        still = before == (True, self._heads)
        self._head = self._head + len(data) if still else 0
        if self._head > MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_headers_complete(self) -> None:
        """A whole head: the request begins."""
        size = sum(len(name) + len(value) for name, value in self.headers)
        if len(self.url) > MOST_URL or size > MOST_HEAD:
            raise ValueError("too long")  # answered with 400
        self._in_head, self._heads = False, self._heads + 1
        self._end()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """What follows is another head."""
        self._in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection waits for another request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self.waiting[self] = None

    def _end(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

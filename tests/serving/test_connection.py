"""Connections over loopback: what says nothing, too slowly or too much, goes; others get in."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
import uvicorn
from tests.serving.asking import saved_ranker

from untilt.serving import connection
from untilt.serving.app import make_app
from untilt.serving.connection import Connection
from untilt.serving.options import Settings
from untilt.serving.start import make_server

ASKED = {"session": "s", "query": "q", "documents": ["x", "y"], "features": [[1, 0], [2, 0]]}


@pytest.fixture
def talking(tmp_path):
    """Runs a talk with the port of a server in this event loop."""

    def run(talk):
        async def whole():
            given = Settings(
                str(saved_ranker(tmp_path / "r.untilt")), str(tmp_path / "log"), watch_seconds=0.0
            )
            config = uvicorn.Config(
                make_app(make_server(given)), port=0, http=Connection, ws="none",
                log_level="error", lifespan="on",
            )  # fmt: skip
            server = uvicorn.Server(config)
            task = asyncio.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            try:
                return await talk(server.servers[0].sockets[0].getsockname()[1])
            finally:
                server.should_exit = True
                await task

        return asyncio.run(whole())

    return run


@asynccontextmanager
async def connected(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def asked(port, *parts, pause=0.0):
    """What a server answers to these bytes."""
    async with connected(port) as (reader, writer):
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            return await asyncio.wait_for(reader.read(100_000), 3) or b"closed"
        except ConnectionError:
            return b"closed"


def post(path, body, more=b""):
    data = json.dumps(body).encode()
    return (
        b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%b"
        b"Content-Length: %d\r\n\r\n%b" % (path, more, len(data), data)
    )


HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def test_silent_and_slow_heads_go_and_kept_connections_stay(talking, monkeypatch):
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.5)

    async def talk(port):
        silent = asyncio.create_task(asked(port))
        slow = asyncio.create_task(asked(port, *[HEALTH[i : i + 1] for i in range(12)], pause=0.2))
        answers, rest = [], b""
        async with connected(port) as (reader, writer):
            for _ in range(4):  # longer in all than a head may take
                writer.write(HEALTH)
                answers.append(await reader.readuntil(b'"ok"}'))
                await asyncio.sleep(0.3)
            writer.write(HEALTH[:20])  # a slow head after good ones
            with suppress(ConnectionError):
                rest = await asyncio.wait_for(reader.read(), 3)
        return answers, rest, await silent, await slow

    answers, rest, silent, slow = talking(talk)
    assert all(b"200 OK" in each for each in answers)
    assert (rest, silent, slow) == (b"", b"closed", b"closed")


def test_long_heads_are_refused(talking):
    async def talk(port):
        long = b"x" * 40_000
        heads = [
            HEALTH.replace(b"/health", b"/" + long),
            HEALTH.replace(b"/health", b"/" + b"x" * 9_000),
            post(b"/rank", ASKED, b"X-Long: %b\r\n" % long),
            post(b"/rank", ASKED, b"".join(b"X-%d: y\r\n" % i for i in range(9_000))),
        ]
        found = [await asked(port, each) for each in heads]
        # One header that never ends.
        found.append(await asked(port, HEALTH[:-2] + b"X: ", *[b"y" * 8_000] * 20, pause=0.01))
        fine = await asked(port, post(b"/rank", ASKED, b"X-Long: %b\r\n" % long[:20_000]))
        large = {
            **ASKED,
            "documents": [f"{i:0200}" for i in range(900)],
            "features": [[0, 0]] * 900,
        }
        return found, fine, await asked(port, post(b"/rank", large))

    found, fine, large = talking(talk)
    assert all(each == b"closed" or b" 400 " in each[:20] for each in found), found
    assert b" 200 " in fine[:20]
    assert b" 200 " in large[:20], large


def test_the_longest_silent_gives_way_to_a_new_one(talking, monkeypatch):
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 20)

    async def talk(port):
        async with AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(connected(port)) for _ in range(60)]
            health = await asked(port, HEALTH)
            ranked = await asked(port, post(b"/rank", ASKED))
            gone = 0
            for reader, _ in silent:
                try:
                    gone += await asyncio.wait_for(reader.read(), 0.1) == b""
                except (TimeoutError, ConnectionError) as error:
                    gone += isinstance(error, ConnectionError)
            return health, ranked, gone

    health, ranked, gone = talking(talk)
    assert b" 200 " in health[:20]
    assert b" 200 " in ranked[:20]
    assert gone >= 40


def test_an_upgrade_is_answered_and_writes_nothing(talking, caplog, capfd):
    async def talk(port):
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
        return await asked(port, HEALTH[:-2] + upgrade)

    assert b"HTTP/1.1 " in talking(talk)[:20]
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_requests_in_one_piece_are_all_answered(talking):
    async def talk(port):
        async with connected(port) as (reader, writer):
            writer.write((post(b"/rank", ASKED) + HEALTH) * 5)
            found = b""
            while found.count(b"HTTP/1.1 200") < 10 or not found.endswith(b'"ok"}'):
                found += await asyncio.wait_for(reader.read(100_000), 5)
            writer.write(HEALTH)
            return await asyncio.wait_for(reader.read(100_000), 5)

    assert b"200 OK" in talking(talk)

"""The shop of `untilt serve --demo`, in this process and in a real browser where there is one."""

import asyncio
import re
import shutil
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from tests.serving.asking import Asking
from tests.serving.killing import Running

from untilt.serving.app import make_app
from untilt.serving.demo import DEPTH, Demo

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def test_the_shop_learns_what_people_want(tmp_path):
    async def whole():
        demo = Demo(tmp_path)
        app = make_app(demo.server, more=demo.routes())
        async with demo.server.lifespan(app):
            ask = Asking(demo.server, app)
            empty = (await ask("GET", "/demo/state")).json
            refused = (await ask("POST", "/demo/train", {})).json
            shop = (await ask("GET", "/demo/shop")).json
            await readers(ask, shop, 500)
            before = (await ask("GET", "/demo/state")).json
            trained = (await ask("POST", "/demo/train", {})).json
            after = (await ask("GET", "/demo/state")).json
            page = await ask("GET", "/")
            form = await ask("POST", "/demo/train", content_type="text/plain")
            assert form.status == 415  # a page of another origin can send that
            demo.server.settings = replace(demo.server.settings, loopback=True)
            assert (await ask("GET", "/demo/state", host="rebind.evil.com")).status == 403
        return empty, refused, before, trained, after, page

    empty, refused, before, trained, after, page = asyncio.run(whole())
    assert (empty["sessions"], empty["curve"], refused["trained"]) == (0, None, False)
    assert before["sessions"] == 500
    assert [each["shown"] for each in before["positions"]] == [500] * DEPTH
    assert len(before["curve"]) == DEPTH
    truth = 1 / np.arange(1, DEPTH + 1) ** 0.9
    inside = [p["low"] <= t <= p["high"] for p, t in zip(before["curve"], truth, strict=True)]
    assert sum(inside) >= DEPTH - 1
    assert trained == {"trained": True, "why": ""}
    assert after["value"][1] > after["value"][0] + 0.1
    assert page.status == 200
    # Nothing is fetched from elsewhere.
    assert set(re.findall(rb"https?://[\w.]+", page.body)) <= {b"http://www.w3.org"}
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    # A browser refuses style attributes and handlers in tags under this policy.
    assert not re.search(rb'<[^>]* (style|on\w+)="', page.body)


async def readers(ask, shop, n):
    """As the page plays them."""
    rng, queries, events = np.random.default_rng(0), list(shop["queries"]), []
    for i in range(n):
        query = queries[rng.integers(len(queries))]
        gamma = {each["title"]: each["gamma"] for each in shop["queries"][query]}
        asked = {"session": f"v{i}", "query": query, "documents": list(gamma), "size": DEPTH}
        shown = (await ask.rank(**asked)).json
        events += [
            {"event": f"{i}-{k}", "list": shown["list"], "document": title}
            for k, title in enumerate(shown["documents"])
            if rng.uniform() < shop["theta"][k] * gamma[title]
        ]
    for start in range(0, len(events), 500):
        assert (await ask.feedback(*events[start : start + 500])).status == 200


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_the_page_in_a_browser(tmp_path):
    server = Running("--demo", "--no-open")
    try:
        dom = in_browser(f"http://127.0.0.1:{server.port}/?play=240", tmp_path, "--dump-dom")
    finally:
        assert server.stop() == 0, server.said
    assert 'data-failed="' not in dom, re.findall(r'data-failed="[^"]*"', dom)
    assert 'data-played="yes"' in dom
    assert 'data-known="yes"' in dom
    # 240 visitors, and the list of whoever opened the page.
    assert re.search(r"\d+ clicks in 24[12] searches", dom)
    assert "Trained, and already answering" in dom
    gain = re.search(r'data-gain="([^"]+)"', dom)
    assert gain
    assert float(gain[1]) > 0


def in_browser(address, folder, *options):
    """What headless Chromium says; it fetches nothing but this address."""
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--no-first-run", "--disable-extensions", "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=120000",
        "--window-size=1280,1150", *options, address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout

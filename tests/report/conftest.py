"""A headless Chromium, spoken to over a pipe; its tests are skipped where there is none."""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from untilt.report import decision as d

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
    "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE = 30.0
# High copies first: the two may already be 3 and 4 crosswise.
PIPES_AS_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3]]
os.dup2(high[0], 3), os.dup2(high[1], 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """Just enough of the DevTools protocol: JSON messages that end with a zero byte."""

    def __init__(self, program: str, profile: Path) -> None:
        to_child, self._out = os.pipe()
        self._in, from_child = os.pipe()

        # A process of its own puts the pipes where Chromium wants them: a preexec_fn would fork in
        # Python, which JAX, loaded by other tests of this process, forbids.
        self.process = subprocess.Popen(
            [sys.executable, "-c", PIPES_AS_3_AND_4, str(to_child), str(from_child), program,
             *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_child, from_child),
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        os.set_blocking(self._in, False)
        self._left = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        return self._wait(lambda m: m.get("id") == self._number, method)

    def _wait(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for message in self._messages():
                if "method" in message:
                    self.events.append(message)
                elif wanted(message):
                    assert "error" not in message, (what, message["error"])
                    return message["result"]
            time.sleep(0.005)
        raise TimeoutError(what)

    def _messages(self) -> list[dict[str, Any]]:
        try:
            self._left += os.read(self._in, 1 << 20)
        except BlockingIOError:
            return []
        *whole, self._left = self._left.split(b"\0")
        return [json.loads(each) for each in whole]

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(timeout=10)
        except (TimeoutError, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self._in)
        os.close(self._out)


class Tab:
    """One page, opened at a size and in a colour scheme, with everything that it complained of."""

    def __init__(
        self,
        browser: Browser,
        *,
        width: int = 1280,
        dark: bool = False,
        scripts: bool = True,
        media: str = "screen",
    ) -> None:
        self.browser, self.width, self.scripts = browser, width, scripts
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        until = time.monotonic() + PATIENCE
        while self.value("document.readyState + '|' + document.title") == "complete|":
            assert time.monotonic() < until
        done = "document.readyState == 'complete' && location.protocol == 'file:'"
        if self.scripts:
            drawn = "document.documentElement.dataset.charts"
            done += f" && !!({drawn} || !document.getElementById('chart-config'))"
        while not self.value(done):
            assert time.monotonic() < until, "the charts were never drawn"
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _events(self, method: str) -> list[dict[str, Any]]:
        return [
            event["params"]
            for event in self.browser.events
            if event["method"] == method and event.get("sessionId") == self.session
        ]

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and what was thrown."""
        said = [str(e["args"]) for e in self._events("Runtime.consoleAPICalled")
                if e["type"] in ("error", "warning", "assert")]  # fmt: skip
        said += [str(e["exceptionDetails"]) for e in self._events("Runtime.exceptionThrown")]
        return said + [e["entry"]["text"] for e in self._events("Log.entryAdded")]

    @property
    def requests(self) -> list[str]:
        """Addresses asked for, but for data that stands in the page itself."""
        asked = [e["request"]["url"] for e in self._events("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith("data:")]

    def screenshot(self, path: Path, *, top: int = 0, height: int | None = None) -> Path:
        full = self.value("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": top, "width": self.width, "height": height or full, "scale": 1}
        taken = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        taken = self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium here")
    started = Browser(program, tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(path: Path, **options: Any) -> Tab:
        tabs.append(Tab(browser, **options))
        tabs[-1].open(path)
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.close()


def curve(name: str, *values: float, half: float = 0.0) -> d.PositionCurve:
    ends = (tuple(v - half for v in values), tuple(v + half for v in values)) if half else ((), ())
    return d.PositionCurve(name, tuple(range(1, len(values) + 1)), values, *ends)


@pytest.fixture
def decision() -> d.Decision:
    """Every part filled, by hand."""
    return d.Decision(
        title="Shop search",
        answer=d.Answer(
            "new", "logged order", "dcg@10", d.Value(1.2, 1.1, 1.3), d.Value(1.0, 0.9, 1.1),
            d.Value(0.2, 0.12, 0.28), "better",
        ),
        how_sure=d.HowSure(4000, 200, 1234.5, 9.75, 0.02, 0.03, None, True, ("A note.",)),
        log=d.LogShape(
            "clicks.parquet", 10_000, 40_000, 3500.0, 500, 6000, 4, 12, 800, 0.61,
            rankers={"a": 6000, "b": 4000}, splits={"train": 300}, dropped_rows={"position 0": 7},
        ),
        click_rates=(curve("click rate", 0.4, 0.2, 0.1, 0.05, half=0.01),),
        examination=d.Examination((curve("AllPairs", 1.0, 0.6, 0.4, 0.3, half=0.05),
                                   curve("PowerLaw", 1.0, 0.5, 0.33, 0.25))),
        identifiability=d.Identifiability(
            (1, 2, 3, 4), (d.GraphEdge(1, 2, 30, 120.5), d.GraphEdge(3, 4, 10, 20.0)),
            ((1, 2), (3, 4)), (d.Swap(2, 3, 0.01),), identified=False,
        ),
        rankers=d.Rankers("dcg@10", "logged order", (
            d.RankerResult("logged order", d.Value(1.0, 0.9, 1.1)),
            d.RankerResult("raw", d.Value(1.05, 0.95, 1.15), d.Value(0.05, -0.02, 0.12), False),
            d.RankerResult("new", d.Value(1.2, 1.1, 1.3), d.Value(0.2, 0.12, 0.28), True, True),
        ), "ips"),
        clip_curve=d.ClipCurve(
            "new", "dcg@10", (0.25, 0.5, 1.0), (1.2, 1.1, 0.9), (1.1, 1.0, 0.8), (1.3, 1.2, 1.0),
            (0.0, 0.2, 0.9), 0.25,
        ),
        moved=(curve("raw", 1.5, 2.2, 2.9, 3.4), curve("new", 2.0, 2.4, 2.6, 3.0, half=0.1)),
        pair_bias=(curve("t+ (clicked)", 1, 0.6, 0.4, 0.2), curve("t-", 1, 0.98, 0.97, 0.95)),
        importances=(d.FeatureImportance("bm25", 0.7), d.FeatureImportance("age", 0.3)),
        importance_of="gain of splits",
        changed=(
            d.ChangedQuery("red shoes", (
                d.MovedDocument("A", 3.5, 1, 4.0, 20), d.MovedDocument("B", None, 2, 0.0, 0),
                d.MovedDocument("C", 1.0, 3, 9.0, 40, 2.0),
            ), 40, 2.25, "mean places moved"),
            d.ChangedQuery("hats", (d.MovedDocument("D", 1.0, 1),)),
        ),
        warnings=("Something may mislead.",),
        how_computed=d.HowComputed(
            "untilt run clicks.parquet", "2026-01-01", 3, "2 cores", {"untilt": "0.1"},
            {"metric": "dcg@10"}, {"train": 300},
            (d.Step("read", 0.5), d.Step("bias", 1.0, "kept")),
        ),
    )  # fmt: skip

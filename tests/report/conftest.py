"""A decision with every part filled, and a headless Chromium, spoken to over a pipe.

Tests with the browser are skipped where there is none.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt._core.statistics import Interval
from untilt.auditing.audit import Audit
from untilt.auditing.checks import Coverage, LogSize, RelevanceProxy
from untilt.auditing.interventions import Interventions
from untilt.bias.position_graph import JoiningSwap, PositionGraph
from untilt.clickmodels.compare import Measured
from untilt.data.counts import ClickRates
from untilt.evaluation.clip_curve import ClipCurve
from untilt.evaluation.results import Estimate, SystemComparison, SystemDifference
from untilt.evaluation.sensitivity import Cause, Sensitivity
from untilt.evaluation.uncertainty import CurveCheck
from untilt.evaluation.unshown import Bound, Unshown
from untilt.facts import TEXT, note
from untilt.report import decision as d
from untilt.report import step_results as r

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


def estimate(system: str, value: float, half: float = 0.1) -> Estimate:
    """A value of a system on 4,000 sessions of 200 queries."""
    return Estimate(
        system=system, metric="dcg@10", evaluator="ips", value=value, std_error=half / 2,
        interval=Interval(value - half, value + half), sampling_error=half / 2, bias_error=0.0,
        effective_n=1234.5, largest_weight=9.75, clipped_share=0.02, unsupported_share=0.0,
        unshown_share=0.03, n_sessions=4000, n_queries=200, warnings=(),
    )  # fmt: skip


def difference(
    system: str, value: float, half: float, more_sessions: float = 0.0
) -> SystemDifference:
    """A difference to the logged order."""
    return SystemDifference(
        system=system, baseline="logged order", value=value, std_error=half / 2,
        interval=Interval(value - half, value + half), p_value=0.01, corrected_p=0.02,
        decided=abs(value) > half, sessions_needed=4000 + more_sessions,
        more_sessions=more_sessions,
    )  # fmt: skip


def unshown(share: float, nothing: float, as_shown: float) -> Unshown:
    """Both differences where all candidates are ranked, with intervals of 0.08 to either side."""
    ends = (Bound(v, 0.04, Interval(v - 0.08, v + 0.08)) for v in (nothing, as_shown))
    return Unshown(share, 0.7, 10, *ends)


def held_out(*differences: SystemDifference, higher_is_better: bool = True, **more) -> r.HeldOut:
    """Systems that differ so from a logged order of value 1; the last is chosen."""
    logged = estimate("logged order", 1.0)
    return r.HeldOut(
        chosen=differences[-1].system if differences else "logged order",
        estimates=(logged, *(estimate(each.system, 1.0 + each.value) for each in differences)),
        comparison=SystemComparison(
            differences, "dcg@10", "logged order", higher_is_better, "holm", 0.8, 0.95
        ),
        evaluator="ips",
        scale=note(
            "estimate.scale-relative", "relative: relevance counts as the click rate at position 1"
        )(),
        **more,
    )


def audited() -> Audit:
    """Four positions, 1 and 2 joined by shared documents, 3 and 4 too."""
    documents = np.array([[60, 30, 0, 0], [30, 60, 0, 0], [0, 0, 60, 10], [0, 0, 10, 60]])
    weight = np.array([[0, 120.5, 0, 0], [120.5, 0, 0, 0], [0, 0, 0, 20], [0, 0, 20, 0]])
    rate = np.array([0.4, 0.2, 0.1, 0.05])
    return Audit(
        label_name="click",
        is_binary=True,
        size=LogSize(10_000, 800, 500, 6000, 40_000, 4, 12, 500, 3500.0, 4, 4.0),
        click_rates=ClickRates(
            position=np.arange(1, 5), impressions=np.full(4, 10_000), clicks=10_000 * rate,
            rate=rate, std_error=np.full(4, 0.005), low=rate - 0.01, high=rate + 0.01, level=0.95,
        ),
        share_without_click=0.61,
        positions_without_click=(),
        positions_never_shown=(),
        rankers={"a": 6000, "b": 4000},
        interventions=Interventions(0, 0, {}),
        constant_features=(),
        missing_features={},
        duplicate_impressions=0,
        sessions_with_gaps=0,
        coverage=Coverage(6000, 5000, 12.0, 10.0, 0.5, 0.8, 100),
        relevance=RelevanceProxy(-0.2, 0.05, TEXT(text="by clicks")),
        graph=PositionGraph(
            documents=documents, impressions=np.where(documents > 0, 1000.0, 0.0),
            clicks=np.where(documents > 0, 100.0, 0.0), weight=weight, components=((1, 2), (3, 4)),
            clicked_components=((1, 2), (3, 4)), swaps=(JoiningSwap(2, 3, 0.01),),
        ),
        evidence=None,
    )  # fmt: skip


def new_positions(*values: float, half: float = 0.1) -> r.NewPositions:
    value = np.array(values)
    return r.NewPositions(np.arange(1, len(values) + 1), value, value - half, value + half)


@pytest.fixture
def decision() -> d.Decision:
    """Every part filled, by hand."""
    theta = np.array([1.0, 0.6, 0.4, 0.3])
    clips, value = np.array([0.25, 0.5, 1.0]), np.array([1.2, 1.1, 0.9])
    told = TEXT(text="a note")
    return d.Decision(
        title="Shop search",
        source=r.LogSource("clicks.parquet", 40_007, {"position 0": 7}),
        audit=audited(),
        split=r.Split("query", {"train": 6000}, {"train": 300}, (told,)),
        bias=r.UsedBias(
            ut.PositionBias(
                theta, std_error=np.full(4, 0.025), low=theta - 0.05, high=theta + 0.05,
                method="AllPairs",
            ),
            "measured",
            TEXT(text="rankers disagree"),
        ),
        plan=r.TrainingPlan(("clicks", "prs"), 300),
        training=r.Training(
            (
                r.TrainedCandidate(
                    "prs", "new", "the one to try", "a.untilt", estimate("new", 1.1), True
                ),
            ),
            "new",
            0.25,
            default="new",
            comparison=SystemComparison(
                (replace(difference("raw", -0.02, 0.01), baseline="new"),),
                *("dcg@10", "new", True, "holm", 0.8, 0.95),
            ),
            why=note("run.default-kept", "The default, {default}, was kept.")(default="new"),
        ),
        candidate=r.Shipped(
            "prs", True, 500, 10_000,
            note("run.refit", "refit")(file="candidate.untilt", system="new", queries=500),
            r.Learned(
                TEXT(text="what it learned from"),
                {"clicks": 0.7, "old ranker": 0.3},
                {"clicks": r.TreeValues((1, 2, 4, 8), (-3.0, -2.0, -1.5, -1.8), 4)},
                {"kappa": -0.9},
                {"shown": 4000.0, "unshown": 900.0, "rho of unshown": 0.2},
            ),
        ),
        click_models=r.ClickModels(
            (
                r.ClickModelFigures(
                    "pbm", *(Measured(v, Interval(v, v)) for v in (-0.5, 1.5, 1.4))
                ),
            ),
            (told,),
        ),
        held_out=held_out(
            difference("raw", 0.05, 0.07),
            replace(difference("new", 0.2, 0.08), unshown=unshown(0.4, -0.1, 0.3)),
            check=CurveCheck(
                position=np.array([1, 2]), observed=np.array([100.0, 50.0]),
                expected=np.array([98.0, 52.0]), z=np.array([0.2, -0.3]), n_documents=30,
            ),
            to_raw=difference("new", 0.15, 0.1),
            clip=0.25,
            clip_curve=ClipCurve(
                clip=clips, value=value, std_error=np.full(3, 0.05), low=value - 0.1,
                high=value + 0.1, bias=value - 1.2, mse=np.array([0.1, 0.2, 0.3]),
                clipped_share=np.array([0.0, 0.2, 0.9]), metric="dcg@10", level=0.95,
                evaluator="clipped",
            ),
            sensitivity=Sensitivity(
                "new", "logged order", "dcg@10", 0.2, Interval(0.12, 0.28),
                (
                    Cause(
                        "curve",
                        note("sensitivity.tried-curve", "tried")(position=4, least=0.5, most=2.0),
                        0.5, 2.0, 0.35, -0.05,
                        note("sensitivity.turns-curve", "turns")(position=4, amount=1.6), 1.6, 1.2,
                    ),
                    Cause(
                        "trust", note("sensitivity.tried-trust", "tried")(least=0.0, most=0.2),
                        0.0, 0.2, 0.2, 0.22, note("sensitivity.holds-trust", "holds")(amount=None),
                    ),
                ),
            ),
            new_positions={
                "raw": new_positions(1.5, 2.2, 2.9, 3.4), "new": new_positions(2.0, 2.4, 2.6, 3.0),
            },
            pair_bias=r.PairBias(np.array([1, 0.6, 0.4, 0.2]), np.array([1, 0.98, 0.97, 0.95]), 12),
            importances={"bm25": 0.7, "age": 0.3},
            importance_of="gain of splits",
            changed=(
                r.ChangedQuery("red shoes", (
                    r.MovedDocument("A", 3.5, 1.0, 4.0, 20),
                    r.MovedDocument("B", None, 2.0, 0.0, 0),
                    r.MovedDocument("C", 1.0, 3.0, 9.0, 40, 2.0),
                ), 40, 2.25),
                r.ChangedQuery("hats", (r.MovedDocument("D", 1.0, 1.0),)),
            ),
        ),
        further_warnings=("Something may mislead.",),
        provenance=r.Provenance(
            "untilt run clicks.parquet", "2026-01-01", 3, "2 cores", {"untilt": "0.1"},
            {"metric": "dcg@10"}, {"train": 300},
            (r.StepTime("read", 0.5), r.StepTime("bias", 1.0, resumed=True)),
        ),
    )  # fmt: skip


@pytest.fixture
def undecided() -> Callable[[float], d.Decision]:
    """A difference that is not decided, with so many more sessions needed."""

    def made(more_sessions: float) -> d.Decision:
        return d.Decision("t", held_out=held_out(difference("new", 0.02, 0.08, more_sessions)))

    return made


@pytest.fixture
def decided() -> Callable[..., d.Decision]:
    """A decided difference of this value, of a metric where higher (or lower) is better.

    `never` are the share, and both differences, of documents that nobody was shown.
    """

    def made(
        value: float,
        *,
        higher_is_better: bool = True,
        never: tuple[float, float, float] | None = None,
        **parts: Any,
    ) -> d.Decision:
        gap = difference("new", value, 0.08)
        gap = gap if never is None else replace(gap, unshown=unshown(*never))
        part = held_out(gap, higher_is_better=higher_is_better)
        return d.Decision("t", held_out=part, **parts)

    return made

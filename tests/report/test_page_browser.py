"""The page in a real browser: it draws, says nothing on the console, and asks for nothing."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from untilt.data.counts import ClickRates
from untilt.report import step_results as r
from untilt.report.decision import write_report

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIGURES = "document.querySelectorAll('figure').length"
DRAWN = "document.querySelectorAll('figure.is-live .live svg').length"
VISIBLE = "getComputedStyle(document.querySelector('{}')).display != 'none'"


@pytest.fixture
def report(decision, tmp_path) -> Path:
    return write_report(decision, tmp_path / "report.html")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_draws_without_a_complaint_or_a_request(report, open_page, width, dark):
    tab = open_page(report, width=width, dark=dark)
    assert tab.value("document.documentElement.dataset.charts") == "ready"
    folded = tab.value("document.querySelectorAll('details.folded:not([open]) figure').length")
    assert tab.value(DRAWN) == tab.value(FIGURES) - folded > 0
    # A chart that is folded away is drawn when its section is opened, as wide as the others.
    assert folded > 0
    tab.value("document.querySelectorAll('details.folded').forEach(each => { each.open = true })")
    deadline = time.monotonic() + 20
    while tab.value(DRAWN) < tab.value(FIGURES) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tab.value(DRAWN) == tab.value(FIGURES)
    assert tab.complaints == []
    assert tab.requests == [report.as_uri()]
    assert tab.value(OVERFLOW) <= 0


def test_the_browser_would_refuse_to_fetch(report, open_page):
    tab = open_page(report)
    tab.value("void fetch('http://192.0.2.1/x').catch(() => {})")
    tab.value("void (new Image().src = 'http://192.0.2.1/y')")
    refused = [each for each in tab.complaints if "Content Security Policy" in each]
    assert any("192.0.2.1/x" in each for each in refused)
    assert any("192.0.2.1/y" in each for each in refused)


def test_charts_follow_the_colour_scheme(report, open_page):
    line = "document.querySelector('#figure-click-rate .live path[stroke*=c1]')"
    colour = f"getComputedStyle({line}).stroke"
    light, dark = (open_page(report, dark=dark).value(colour) for dark in (False, True))
    assert light == "rgb(0, 114, 178)"
    assert dark == "rgb(86, 180, 233)"


def test_without_scripts_the_drawings_stay(report, open_page):
    tab = open_page(report, scripts=False)
    assert tab.value(DRAWN) == 0
    drawings = tab.value("document.querySelectorAll('figure .drawing svg').length")
    assert drawings == tab.value(FIGURES) > 0
    assert tab.value(VISIBLE.format("#figure-click-rate .drawing"))
    assert tab.value(OVERFLOW) <= 0


def test_paper_is_light_and_has_the_drawings(report, open_page, tmp_path):
    tab = open_page(report, dark=True, media="print", width=700)
    assert tab.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.value("getComputedStyle(document.body).color") == "rgb(27, 29, 31)"
    assert tab.value(VISIBLE.format("#figure-click-rate .drawing"))
    assert not tab.value(VISIBLE.format("#figure-click-rate .live"))
    assert not tab.value(VISIBLE.format("nav"))
    assert tab.pdf(tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")


def test_a_tooltip_has_the_values_of_all_curves(report, open_page):
    tab = open_page(report)
    found = tab.value(
        "(() => { const f = document.querySelector('#figure-examination');"
        "f.scrollIntoView({behavior: 'instant'}); const b = f.querySelector('.live svg')"
        ".getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2]; })()"
    )
    for x in (found[0], found[0] + 30):
        tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=found[1])
    text = tab.value("document.getElementById('vg-tooltip-element')?.innerText ?? ''")
    assert "AllPairs" in text
    assert "AllPairs" in text
    assert "0.400  [0.350, 0.450]".replace("  ", " ") in " ".join(text.split())


def test_hostile_text_does_not_run(decision, open_page, tmp_path):
    attack = "</script><script>window.hit=1</script><img src=x onerror='window.hit=1'>"
    part = decision.held_out
    wild = replace(
        decision,
        title=attack,
        held_out=replace(
            part,
            new_positions={attack + name: each for name, each in part.new_positions.items()},
            importances={attack: 1.0},
            changed=(r.ChangedQuery(attack, (r.MovedDocument(attack, 1.0, 2),)),),
        ),
        further_warnings=(attack,),
    )
    tab = open_page(write_report(wild, tmp_path / "wild.html"), width=390)
    assert tab.value("window.hit") is None
    assert tab.value("document.title") == attack
    assert tab.complaints == []
    assert tab.value(OVERFLOW) <= 0


def test_deep_lists_and_one_position_alone_fit_a_phone(decision, open_page, tmp_path):
    position = np.arange(1, 121)
    rate = 1 / position
    rates = ClickRates(
        position=position, impressions=np.full(120, 1000), clicks=1000 * rate, rate=rate,
        std_error=0.05 * rate, low=0.9 * rate, high=1.1 * rate, level=0.95,
    )  # fmt: skip
    joined = np.eye(120) + np.eye(120, k=1) + np.eye(120, k=-1)
    chain = (tuple(position.tolist()),)
    graph = replace(
        decision.audit.graph, documents=(5 * joined).astype(int), impressions=joined,
        clicks=joined, weight=10.0 * joined, components=chain, clicked_components=chain, swaps=(),
    )  # fmt: skip
    one = r.PairBias(np.array([0.5]), np.array([0.5]), 1)
    data = replace(
        decision,
        audit=replace(decision.audit, click_rates=rates, graph=graph),
        held_out=replace(decision.held_out, pair_bias=one),
    )
    tab = open_page(write_report(data, tmp_path / "deep.html"), width=390)
    assert tab.complaints == []
    assert tab.value(OVERFLOW) <= 0

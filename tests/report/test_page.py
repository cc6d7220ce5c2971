"""The page without a browser: what stands on it, escaped, and charts that Vega-Lite accepts."""

import html
import json
import re
from base64 import b64encode
from collections import Counter
from dataclasses import MISSING, fields, replace
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any

import altair
import pytest

from untilt._core import codec
from untilt.auditing.reading import ReadingTest, ReadingTests
from untilt.charts.convert import ChartsNotDrawnError
from untilt.evaluation.estimate_view import compared_section
from untilt.facts import codes
from untilt.report import decision as d
from untilt.report import step_results as r
from untilt.report.decision import first_sentence
from untilt.report.page import page, sections_of
from untilt.report.sections import importance_section
from untilt.views import Section

ORDER = [
    "how-sure", "sensitivity", "unshown", "log", "positions", "comparable", "rankers", "choice",
    "learner",
    "clip", "moved", "pair-bias", "importance", "changed", "warnings", "computed",
]  # fmt: skip


def figures_of(decision):
    """Every chart of the page."""
    return [figure for section in sections_of(decision) for figure in section.figures]


def chart_specs(decision):
    """Name -> Vega-Lite specification of each chart on the page."""
    return {figure.name: figure.spec for figure in figures_of(decision)}


class Reader(HTMLParser):
    """Elements, ids and text of a page, scripts and styles apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.scripts: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data


def test_sections_stand_in_the_order_of_a_decision(decision):
    assert [section.name for section in sections_of(decision)] == ORDER


HELD_OUT = [
    "how-sure", "sensitivity", "unshown", "rankers", "clip", "moved", "pair-bias", "importance",
    "changed",
]  # fmt: skip
PART = {
    "held_out": HELD_OUT, "audit": ["log", "comparable"], "provenance": ["computed"],
    "bias": [], "source": [], "split": [], "training": ["choice"], "candidate": ["learner"],
}  # fmt: skip
OF_HELD_OUT = {
    "clip_curve": "clip", "new_positions": "moved", "pair_bias": "pair-bias",
    "importances": "importance", "changed": "changed", "sensitivity": "sensitivity",
}  # fmt: skip


def defaults(kind):
    return {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(kind)
    }


@pytest.mark.parametrize("part", PART)
def test_a_part_without_data_has_no_section(decision, part):
    names = [section.name for section in sections_of(replace(decision, **{part: None}))]
    assert names == [name for name in ORDER if name not in PART[part]]


@pytest.mark.parametrize("part", OF_HELD_OUT)
def test_what_was_not_evaluated_has_no_section(decision, part):
    without = replace(decision.held_out, **{part: defaults(r.HeldOut)[part]})
    names = [section.name for section in sections_of(replace(decision, held_out=without))]
    assert names == [name for name in ORDER if name != OF_HELD_OUT[part]]


def test_no_warnings_no_section(decision):
    quiet = replace(decision, audit=None, further_warnings=())
    assert quiet.warnings == ()
    assert "warnings" not in [section.name for section in sections_of(quiet)]


def test_clicks_and_examination_share_a_section(decision):
    without_clicks = {s.name: s for s in sections_of(replace(decision, audit=None))}
    assert [f.name for f in without_clicks["positions"].figures] == ["examination"]
    without_curve = {s.name: s for s in sections_of(replace(decision, bias=None))}
    assert [f.name for f in without_curve["positions"].figures] == ["click-rate"]
    neither = sections_of(replace(decision, audit=None, bias=None))
    assert "positions" not in [section.name for section in neither]


def test_the_audits_own_curve_stands_beside_a_modelled_one(decision):
    evidence = replace(decision.bias.bias, method="Pivot")
    data = replace(decision, audit=replace(decision.audit, evidence=evidence))
    (figure,) = (f for f in figures_of(data) if f.name == "examination")
    assert [key.name for key in figure.keys] == ["AllPairs", "Pivot, to compare"]


def test_a_page_without_anything_says_so_and_needs_no_script():
    empty = d.Decision("Pages")
    read = Reader(page(empty))
    assert read.tags["script"] == 0
    assert empty.no_answer in read.text
    assert read.tags["section"] == 1


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\'"&{{7*7}}'


KEPT = ("better", "dcg@10", "query", "measured", "holm", "ips", "clipped", "list", "general.text")
KEYED = (
    "rankers", "dropped", "sessions", "queries", "versions", "options", "sizes", "importances",
    "new_positions", "missing_features",
)  # fmt: skip


def hostile(decision: d.Decision) -> d.Decision:
    """Every text of the data is an attack."""

    seen: dict[str, str] = {}  # different names stay different, the same ones the same

    def attack(value):
        if isinstance(value, str) and value not in KEPT:
            return HOSTILE + seen.setdefault(value, "x" * len(seen))
        if isinstance(value, list):
            return [attack(each) for each in value]
        if isinstance(value, dict) and "code" in value:  # a fact
            own = value["code"] == "general.text"
            return {**value, "fields": {"text": HOSTILE} if own else value["fields"]}
        if isinstance(value, dict):
            return {
                k: {attack(name): attack(x) for name, x in v.items()}
                if k in KEYED and isinstance(v, dict)
                else v
                if k == "file"  # of a candidate: what is no plain name is refused
                else attack(v)
                for k, v in value.items()
            }
        return value

    return codec.from_plain(d.Decision, attack(codec.to_plain(decision)), where="figures")


def test_hostile_text_stays_text(decision):
    tame, wild = Reader(page(decision)), Reader(page(hostile(decision)))
    assert wild.tags["img"] == 0
    assert wild.tags["script"] == tame.tags["script"]
    assert wild.tags["section"] == tame.tags["section"]
    assert not [name for name, _ in wild.attributes if name.startswith("on")]
    assert wild.text.count(HOSTILE) > 30
    assert "49" not in wild.text.replace(HOSTILE, "")
    for script in wild.scripts:
        assert "alert(1)" not in script or json.loads(script)


def test_no_script_but_its_own_may_run(decision):
    """A browser runs what the policy has the hash of, and compiles no text."""
    text = page(decision)
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', text)[1])
    allowed = re.search(r"script-src ([^;]*)", policy)[1].split()
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 2
    digests = [b64encode(sha256(each.encode()).digest()).decode() for each in scripts]
    assert allowed == [f"'sha256-{each}'" for each in digests]
    assert not re.search(
        r"<[^>]* on\w+=", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    )


def test_ids_are_unique_and_links_lead_somewhere(decision):
    read = Reader(page(decision))
    assert [name for name, n in Counter(read.ids).items() if n > 1] == []
    targets = [v[1:] for name, v in read.attributes if name == "href" and v]
    assert set(targets) <= set(read.ids)
    assert len(targets) == len(ORDER) + 2


def test_nothing_names_an_outside_address_to_be_fetched(decision):
    read = Reader(page(decision))
    wanted = ("src", "href", "xlink:href", "action", "poster", "data", "srcset")
    assert [v for name, v in read.attributes if name in wanted and not str(v).startswith("#")] == []
    style = re.search(r"<style>(.*?)</style>", page(decision), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_each_chart_has_words_and_a_table(decision):
    for figure in figures_of(decision):
        assert len(figure.description) > 30
        assert figure.spec["description"] == figure.description
        assert len(figure.table.rows) > 0
        assert all(len(row) == len(figure.table.header) for row in figure.table.rows)


def test_vega_lite_accepts_every_chart(decision):
    specs = chart_specs(decision)
    assert len(specs) == 13
    for spec in specs.values():
        altair.Chart.from_dict(spec, validate=True)


def test_user_text_is_never_an_expression_or_a_field(decision):
    """Names of curves and features stand in data and in titles, nowhere else."""

    def names(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "values":
                    continue
                if key in ("field", "expr", "filter", "test", "param", "name", "signal"):
                    yield str(value)
                yield from names(value)
        elif isinstance(node, list):
            for each in node:
                yield from names(each)

    for spec in chart_specs(hostile(decision)).values():
        assert not [each for each in names(spec) if "alert" in each]


def test_tables_hold_the_figures(decision):
    figures = {figure.name: figure for figure in figures_of(decision)}
    assert figures["click-rate"].table.rows[0] == ("1", "10,000", "0.4000", "0.3900", "0.4100")
    assert figures["examination"].table.header == ("position", "theta", "interval")
    assert figures["graph"].table.rows[0] == ("1 and 2", "30", "120")
    assert figures["importance"].table.rows == (("bm25", "70.0%"), ("age", "30.0%"))


def section(data: d.Decision, name: str) -> Section:
    return next(each for each in sections_of(data) if each.name == name)


def test_what_would_turn_the_answer_is_told_in_words_and_numbers(decision):
    told = section(decision, "sensitivity")
    (figure,) = told.figures
    assert [row[0] for row in figure.table.rows] == [
        "Curve steeper or flatter",
        "Clicks out of trust in the top",
    ]
    assert figure.table.rows[0][2] == "\u22120.050 to +0.350"
    assert len(told.notes) == 1  # trust turns nothing
    assert (
        "These flip the answer within their range: curve steeper or flatter." in told.paragraphs[0]
    )
    nothing = replace(decision.held_out.sensitivity, causes=())
    without = replace(decision, held_out=replace(decision.held_out, sensitivity=nothing))
    assert "sensitivity" not in [each.name for each in sections_of(without)]


def test_what_rankers_are_stands_under_their_table(decision):
    compared = section(decision, "rankers")
    assert compared.notes == ("new: the one to try.",)
    assert compared.tables[0].rows[2][:4] == ("new (chosen)", "1.20", "1.10 to 1.30", "0.05")
    assert compared.figures[0].table.rows[1][:3] == ("new", "+0.200", "+0.120 to +0.280")
    alone = replace(
        decision.held_out,
        chosen="logged order",
        estimates=decision.held_out.estimates[:1],
        comparison=replace(decision.held_out.comparison, entries=()),
    )
    section_alone = compared_section(
        alone.estimates, alone.comparison, evaluator="ips", baseline=None, chosen=None, notes={}
    )
    assert section_alone.figures == ()  # nothing is compared with anything
    assert section_alone.tables[0].header[:3] == ("ranker", "DCG@10", "95% interval")


@pytest.mark.parametrize(("evaluator", "told"), [("ips", False), ("clipped", True)])
def test_a_clip_curve_by_another_evaluator_than_the_answer_says_so(decision, evaluator, told):
    curve = replace(decision.held_out.clip_curve, evaluator=evaluator)
    data = replace(decision, held_out=replace(decision.held_out, clip_curve=curve))
    caption = section(data, "clip").figures[0].caption
    assert ("the answer by ips" in " ".join(caption)) == told


def test_more_curves_than_colours_are_in_the_table(decision):
    curve = decision.held_out.new_positions["raw"]
    many = replace(decision.held_out, new_positions={f"ranker {i}": curve for i in range(9)})
    (figure,) = section(replace(decision, held_out=many), "moved").figures
    assert figure.caption[0].startswith("The first 7 of 9 curves are drawn.")
    assert len(figure.table.header) == 1 + 3 * 9
    assert len(figure.keys) == 7


def test_the_answer_in_a_sentence(decided, undecided):
    assert first_sentence(decided(0.2).answer) == (
        "The new ranker \u201cnew\u201d would have served readers better than the logged order: "
        "+20.0% DCG@10 per session (+0.200, 95% interval +0.120 to +0.280)."
    )
    worse = first_sentence(decided(-0.2).answer)
    assert "worse than the logged order: \u221220.0%" in worse
    assert first_sentence(undecided(1.0).answer).startswith(
        "The difference between the new ranker \u201cnew\u201d and the logged order may be chance"
    )


def test_the_page_says_how_many_sessions_are_missing(undecided):
    missing = {tile.label: tile.value for tile in section(undecided(12_000.0), "how-sure").tiles}
    assert missing["Still needed"] == "12,000"
    hopeless = section(undecided(float("inf")), "how-sure")
    assert "Still needed" not in [tile.label for tile in hopeless.tiles]


def test_changed_queries_show_old_and_new_places(decision):
    changed = section(decision, "changed")
    assert changed.tables[0].header == (
        "document", "new", "old", "moves", "clicks", "shown", "label",
    )  # fmt: skip
    assert changed.tables[0].rows == (
        ("A", "1", "3.5", "\u2191 2", "4", "20", "\u2013"),
        ("B", "2", "not shown", "", "0", "0", "\u2013"),
        ("C", "3", "1", "\u2193 2", "9", "40", "2"),
    )
    assert changed.tables[1].header == ("document", "new", "old", "moves")
    assert [table.opened for table in changed.tables] == [True, False]


def test_long_names_of_features_keep_their_ends():
    names = [f"title_bm25_normalised_by_length_{i}" for i in range(3)]
    (figure,) = importance_section(dict.fromkeys(names, 0.3), "").figures
    labels = [row["label"] for row in figure.spec["data"]["values"]]
    assert labels == [f"title_bm\u2026d_by_length_{i}" for i in range(3)]


def test_documents_that_nobody_was_shown_have_a_picture_with_both_ends(decision):
    found = section(decision, "unshown")
    (figure,) = found.figures
    assert [row[1] for row in figure.table.rows] == ["+0.200", "\u22120.100", "+0.300"]
    assert "40.0%" in found.paragraphs[0]
    assert "70.0%" in found.paragraphs[0]
    part = replace(decision.held_out, among="candidates")
    (figure,) = section(replace(decision, held_out=part), "unshown").figures
    assert len(figure.table.rows) == 2


def test_a_log_without_such_documents_has_no_such_section(decided):
    for never in (None, (0.0, 0.2, 0.2)):
        names = [each.name for each in sections_of(decided(0.2, never=never))]
        assert "unshown" not in names


def test_a_model_of_reading_that_fails_is_drawn_and_told(decision):
    fails: dict[str, Any] = {"question": "time", "detail": "spread", "adjusted": 1e-3}
    passes: dict[str, Any] = {"question": "clicks-above", "adjusted": 0.5}
    usual: dict[str, Any] = {
        "ratio": 1.6, "low": 1.4, "high": 1.9, "p_value": 1e-3, "effective_queries": 80.0
    }  # fmt: skip
    tests = ReadingTests((ReadingTest(**usual, **passes), ReadingTest(**usual, **fails)))
    changed = replace(decision, audit=replace(decision.audit, reading=tests))
    sections = {section.name: section for section in sections_of(changed)}
    section, names = sections["reading"], list(sections)
    assert names.index("reading") == names.index("comparable") + 1
    assert [row[-1] for row in section.figures[0].table.rows] == ["fits", "fails"]
    assert codes(tests.facts) == ["reading.time-spread-serious"]
    assert len(section.cautions) == 1
    nothing = replace(decision, audit=replace(decision.audit, reading=ReadingTests()))
    assert "reading" not in [section.name for section in sections_of(nothing)]


def test_where_charts_cannot_be_drawn_the_page_says_so_and_keeps_their_figures(
    decision, monkeypatch
):
    def ended(*_):
        raise ChartsNotDrawnError("the engine ended")

    monkeypatch.setattr("untilt.report.page.converted", ended)
    monkeypatch.setattr("untilt.report.page._library", ended)
    text, n_charts = page(decision), len(chart_specs(decision))
    assert n_charts > 1
    assert text.count("This chart is not drawn") == n_charts
    assert text.count("Figures of this chart") == n_charts
    assert 'class="drawing"' not in text
    assert "data-chart" not in text


def test_without_the_extra_for_pictures_each_chart_is_drawn_by_the_browser(decision, monkeypatch):
    with_pictures = page(decision)
    monkeypatch.setattr("untilt.report.page.can_convert", lambda: False)
    text, n_charts = page(decision), len(chart_specs(decision))
    assert text.count('data-chart class="only-live"') == n_charts
    assert text.count("<noscript>") == n_charts
    assert 'class="drawing"' not in text
    assert "This chart is not drawn" not in text
    script = re.compile(r'<script type="application/json">(.*?)</script>', re.DOTALL)
    assert script.findall(text) == script.findall(with_pictures)
    assert "window.vegaEmbed" in text

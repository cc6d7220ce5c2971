"""The page without a browser: what stands on it, escaped, and charts that Vega-Lite accepts."""

import json
import re
from collections import Counter
from dataclasses import fields, replace
from html.parser import HTMLParser

import altair
import pytest

from untilt.report import decision as d
from untilt.report.page.page import chart_specs, page
from untilt.report.page.sections import sections_of
from untilt.report.page.words import first_sentence, second_sentence

ORDER = [
    "how-sure", "log", "positions", "comparable", "rankers", "clip", "moved", "pair-bias",
    "importance", "changed", "warnings", "computed",
]  # fmt: skip


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


PART = {
    "how_sure": "how-sure", "log": "log", "identifiability": "comparable", "rankers": "rankers",
    "clip_curve": "clip", "moved": "moved", "pair_bias": "pair-bias", "importances": "importance",
    "changed": "changed", "warnings": "warnings", "how_computed": "computed",
}  # fmt: skip


@pytest.mark.parametrize("part", PART)
def test_a_part_without_data_has_no_section(decision, part):
    default = {f.name: f.default for f in fields(d.Decision)}[part]
    names = [section.name for section in sections_of(replace(decision, **{part: default}))]
    assert names == [name for name in ORDER if name != PART[part]]


def test_clicks_and_examination_share_a_section(decision):
    without_clicks = {s.name: s for s in sections_of(replace(decision, click_rates=()))}
    assert [f.name for f in without_clicks["positions"].figures] == ["examination"]
    without_curve = {s.name: s for s in sections_of(replace(decision, examination=None))}
    assert [f.name for f in without_curve["positions"].figures] == ["click-rate"]
    neither = sections_of(replace(decision, click_rates=(), examination=None))
    assert "positions" not in [section.name for section in neither]


def test_a_page_without_anything_says_so_and_needs_no_script():
    read = Reader(page(d.Decision("Pages", no_answer="This log has no features.")))
    assert read.tags["script"] == 0
    assert "This log has no features." in read.text
    assert read.tags["section"] == 1


HOSTILE = '</script><script>alert(1)</script><img src=x onerror="alert(2)">\'"&{{7*7}}'


def hostile(decision: d.Decision) -> d.Decision:
    """Every text of the data is an attack."""

    def attack(value):
        if isinstance(value, str) and value not in ("better", "dcg@10"):
            return HOSTILE
        if isinstance(value, list):
            return [attack(each) for each in value]
        if isinstance(value, dict):
            keyed = {"rankers", "splits", "dropped_rows", "versions", "options", "sizes"}
            return {
                k: {HOSTILE + str(i): attack(x) for i, x in enumerate(v.values())}
                if k in keyed and isinstance(v, dict) and "metric" not in v
                else attack(v)
                for k, v in value.items()
            }
        return value

    plain = decision.to_dict()
    head = {name: plain.pop(name) for name in ("format", "version")}
    return d.Decision.from_dict({**head, **attack(plain)})


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
    for section in sections_of(decision):
        for figure in section.figures:
            assert len(figure.description) > 30
            assert figure.spec["description"] == figure.description
            assert len(figure.table.rows) > 0
            assert all(len(row) == len(figure.table.header) for row in figure.table.rows)


def test_vega_lite_accepts_every_chart(decision):
    specs = chart_specs(decision)
    assert len(specs) == 8
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
    figures = {f.name: f for s in sections_of(decision) for f in s.figures}
    assert figures["click-rate"].table.rows[0] == ("1", "0.4000", "0.3900", "0.4100")
    assert figures["examination"].table.header == (
        "position", "AllPairs", "low", "high", "PowerLaw",
    )  # fmt: skip
    assert figures["graph"].table.rows[0] == ("1 and 2", "30", "120")
    assert figures["importance"].table.rows == (("bm25", "70.0%"), ("age", "30.0%"))


def test_what_rankers_are_stands_under_their_table(decision):
    entries = tuple(replace(e, note="the one to beat") for e in decision.rankers.entries[:1])
    data = replace(decision, rankers=replace(decision.rankers, entries=entries))
    section = next(s for s in sections_of(data) if s.name == "rankers")
    assert section.notes == ("logged order: the one to beat.",)
    assert section.figures == ()  # nothing is compared with anything
    assert section.tables[0].header == ("ranker", "DCG@10", "95% interval")


@pytest.mark.parametrize(("method", "said"), [("", False), ("ips", False), ("clipped", True)])
def test_a_clip_curve_by_another_method_than_the_answer_says_so(decision, method, said):
    curve = replace(decision.clip_curve, method=method)
    section = next(s for s in sections_of(replace(decision, clip_curve=curve)) if s.name == "clip")
    assert ("the answer by inverse propensity scoring" in section.figures[0].caption) == said


def test_more_curves_than_colours_are_in_the_table(decision):
    many = tuple(replace(decision.moved[0], name=f"ranker {i}") for i in range(9))
    (figure,) = next(
        s for s in sections_of(replace(decision, moved=many)) if s.name == "moved"
    ).figures
    assert figure.caption.startswith("The first 7 of 9 curves are drawn.")
    assert len(figure.table.header) == 10
    assert len(figure.keys) == 7


def answer(verdict: str, value: float, half: float, **more) -> d.Answer:
    difference = d.Value(value, value - half, value + half)
    return d.Answer("new", "logged order", "dcg@10", d.Value(1 + value), d.Value(1.0), difference,
                    verdict, **more)  # fmt: skip


def test_the_answer_in_two_sentences():
    better = answer("better", 0.2, 0.08)
    assert first_sentence(better) == (
        "The new ranker \u201cnew\u201d would have served readers better than the logged order: "
        "+20.0% DCG@10 per session (+0.200, 95% interval +0.120 to +0.280)."
    )
    assert "try it on a share of the traffic" in second_sentence(better, None)
    worse = answer("worse", -0.2, 0.08)
    assert "worse than the logged order: \u221220.0%" in first_sentence(worse)
    assert second_sentence(worse, None).endswith("keep the logged order.")


def test_an_undecided_answer_says_what_is_missing():
    unsure = answer("undecided", 0.02, 0.08)
    assert first_sentence(unsure).startswith(
        "This log cannot tell whether the new ranker \u201cnew\u201d is better"
    )
    assert "about 12,000 more held-out sessions" in second_sentence(unsure, 12_000.0)
    assert second_sentence(unsure, float("inf")).endswith("do not decide on these figures alone.")
    assert second_sentence(replace(unsure, recommendation="Wait."), None) == "Wait."


def test_changed_queries_show_old_and_new_places(decision):
    section = next(s for s in sections_of(decision) if s.name == "changed")
    assert section.tables[0].header == (
        "document", "new", "old", "moves", "clicks", "shown", "label",
    )  # fmt: skip
    assert section.tables[0].rows == (
        ("A", "1", "3.5", "\u2191 2", "4", "20", "\u2013"),
        ("B", "2", "not shown", "", "0", "0", "\u2013"),
        ("C", "3", "1", "\u2193 2", "9", "40", "2"),
    )
    assert section.tables[1].header == ("document", "new", "old", "moves")
    assert [table.opened for table in section.tables] == [True, False]


def test_long_names_of_features_keep_their_ends():
    names = [f"title_bm25_normalised_by_length_{i}" for i in range(3)]
    spec = chart_specs(
        d.Decision("t", importances=tuple(d.FeatureImportance(n, 0.3) for n in names))
    )
    labels = [row["label"] for row in spec["importance"]["data"]["values"]]
    assert labels == [f"title_bm\u2026d_by_length_{i}" for i in range(3)]

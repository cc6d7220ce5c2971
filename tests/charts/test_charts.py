"""Charts hold the numbers they were given, and their files need nothing else."""

import json
import re
import sys
from pathlib import Path

import altair
import numpy as np
import pytest

from untilt import ClickLog
from untilt.charts import convert, theme
from untilt.charts.curves import Curve, XAxis, curves_chart
from untilt.charts.intervals import (
    Bar,
    TornadoBar,
    bars_chart,
    groups_chart,
    intervals_chart,
    tornado_chart,
)
from untilt.charts.theme import (
    DARK,
    FILE,
    LIGHT,
    PAGE,
    css_variables,
    finished,
    panel_title,
    save_chart,
)
from untilt.errors import MissingExtraError, OptionError, ShapeError


def small_log() -> ClickLog:
    """Two queries; four sessions; position 1 is clicked in three of them, position 2 in one."""
    return ClickLog(
        query_id=[7, 8],
        doc_id=[1, 2, 1, 2],
        doc_query=[0, 0, 1, 1],
        indptr=[0, 2, 4, 6, 8],
        query=[0, 0, 1, 1],
        document=[0, 1, 1, 0, 2, 3, 3, 2],
        position=[1, 2] * 4,
        label=[1, 0, 1, 0, 1, 1, 0, 0],
    )


def curve(value=(1.0, 0.5, 0.25)) -> Curve:
    value = np.asarray(value)
    return Curve(np.arange(1, len(value) + 1), value, value - 0.1, value + 0.1)


def chart_of(**curves):
    return finished(curves_chart(curves, value_title="examination"), title="Bias")


def rows(chart):
    return chart.to_dict()["data"]["values"]


def marks(chart) -> dict[str, dict]:
    """Mark -> the last layer with it."""
    return {layer["mark"]["type"]: layer for layer in chart.to_dict()["layer"]}


def test_click_rates_are_drawn_as_they_were_counted():
    rates = small_log().ctr_by_position()
    drawn = rows(rates.plot())
    assert [(row["x"], row["value"]) for row in drawn] == [(1, 3 / 4), (2, 1 / 4)]
    assert [row["low"] for row in drawn] == pytest.approx(rates.low)
    assert [row["high"] for row in drawn] == pytest.approx(rates.high)


def test_several_curves_share_one_chart_and_have_a_legend():
    colour = marks(chart_of(before=curve(), after=curve()))["line"]["encoding"]["color"]
    assert colour["scale"] == {"domain": ["before", "after"], "range": list(FILE.series[:2])}
    assert colour["legend"] is not None


def test_one_curve_needs_no_legend_and_the_page_has_its_own():
    assert marks(chart_of(alone=curve()))["line"]["encoding"]["color"]["legend"] is None
    both = {"before": curve(), "after": curve()}
    on_page = marks(curves_chart(both, value_title="", theme=PAGE))["line"]["encoding"]["color"]
    assert on_page["legend"] is None
    assert on_page["scale"]["range"] == ["var(--c1)", "var(--c2)"]


def test_the_truth_is_drawn_in_ink_and_the_others_keep_their_colours():
    both = {"truth": curve(), "estimate": curve()}
    line = marks(curves_chart(both, value_title="", truth="truth"))["line"]
    assert line["encoding"]["color"]["scale"]["range"] == [LIGHT["ink"], FILE.series[0]]


def test_one_tooltip_has_the_values_of_all_curves():
    first, second = curve([1.0, 0.5]), Curve([1, 3], [0.9, 0.2])
    chart = curves_chart(
        {"a": first, "b": second}, value_title="", decimals=2, more={"n": ["x", "y", "z"]}
    )
    columns = marks(chart)["rect"]
    assert [tip["title"] for tip in columns["encoding"]["tooltip"]] == ["position", "a", "b", "n"]
    missing = "\u2013"
    assert [[row[f"t{i}"] for i in range(3)] for row in columns["data"]["values"]] == [
        ["1.00  [0.90, 1.10]", "0.90", "x"],
        ["0.50  [0.40, 0.60]", missing, "y"],
        [missing, "0.20", "z"],
    ]
    edges = [(row["from"], row["to"]) for row in columns["data"]["values"]]
    assert edges[1] == (1.5, 2.5)


def test_columns_of_a_logarithmic_axis_meet_at_geometric_means():
    axis = XAxis("clip", "log")
    (start, first), (second, end) = axis.columns([1.0, 100.0])
    assert first == second == 10.0
    assert (start, end) == pytest.approx((100**-0.03, 100**1.03))


def test_lines_behind_the_curves():
    chart = curves_chart(
        {"a": curve()}, value_title="", level=1.0, marked=2.0, diagonal=True
    ).to_dict()
    diagonal, level, marked = chart["layer"][:3]
    assert diagonal["data"]["values"] == [{"x": 1, "value": 1}, {"x": 3, "value": 3}]
    assert level["data"]["values"] == [{"value": 1.0}]
    assert marked["data"]["values"] == [{"x": 2.0}]


def test_what_is_not_finite_leaves_a_gap():
    drawn = rows(chart_of(gap=curve([1.0, np.nan, 0.25])))
    assert [row["value"] for row in drawn] == [1.0, None, 0.25]


def test_without_an_interval_there_is_no_band():
    assert "area" in marks(chart_of(measured=curve()))
    known = chart_of(known=Curve(np.arange(1, 3), np.array([1.0, 0.5])))
    assert "area" not in marks(known)
    assert [(row["low"], row["high"]) for row in rows(known)] == [(None, None)] * 2


def test_named_values_keep_their_order_and_intervals():
    values = {"shown": Bar(0.5, 0.4, 0.6), "new": Bar(0.7, 0.65, 0.75, "good")}
    chart = intervals_chart(values, value_title="ndcg@10")
    keys = ("name", "value", "low", "high", "label")
    assert [tuple(row[key] for key in keys) for row in rows(chart)] == [
        ("shown", 0.5, 0.4, 0.6, "0.500"),
        ("new", 0.7, 0.65, 0.75, "good"),
    ]
    assert chart.to_dict()["layer"][0]["encoding"]["y"]["sort"] == ["shown", "new"]
    with pytest.raises(ShapeError, match="at least one value"):
        intervals_chart({}, value_title="ndcg@10")


def test_the_chosen_value_is_in_colour_or_all_are():
    plain, chosen = Bar(0.5, 0.4, 0.6), Bar(0.7, 0.6, 0.8, chosen=True)
    one = rows(intervals_chart({"a": plain, "b": chosen}, value_title="", names="above"))
    assert [(row["label"], row["chosen"]) for row in one] == [
        ("a: 0.500", False),
        ("b, chosen: 0.700", True),
    ]
    assert all(row["chosen"] for row in rows(intervals_chart({"a": plain}, value_title="")))


def test_reported_values_and_a_line_stand_beside_the_intervals():
    chart = intervals_chart(
        {"a": Bar(1, 0.9, 1.1), "b": Bar(2, 1.9, 2.1)}, value_title="", at=0.0, reported={"b": 1.5}
    ).to_dict()
    assert chart["layer"][0]["data"]["values"] == [{"value": 0.0}]
    assert chart["layer"][-1]["data"]["values"] == [{"i": 1, "name": "b", "value": 1.5}]


@pytest.mark.parametrize("kind", ["intervals", "tornado"])
def test_no_line_goes_through_a_name_above_its_bar(kind):
    """Names and lines lie in different parts of each row: letters are 13 pixels high."""
    if kind == "tornado":
        bars = {"a": TornadoBar(-1, 2, "flips at 3"), "b": TornadoBar(0, 1, "never flips")}
        chart = tornado_chart(bars, value=0.5, value_title="").to_dict()
        at = {0.0, 0.5}
    else:
        values = {"a": Bar(1, -1, 2), "b": Bar(0.5, 0, 1)}
        chart = intervals_chart(values, value_title="", names="above", at=0.0).to_dict()
        at = {0.0}
    names = [each["mark"] for each in chart["layer"] if each["mark"]["type"] == "text"]
    lines = [each for each in chart["layer"] if each["mark"].get("y2Offset")]
    assert {(row["value"], row["i"]) for each in lines for row in each["data"]["values"]} == {
        (value, i) for value in at for i in (0, 1)
    }
    lowest = max(each["yOffset"] for each in names) + 13 / 2
    row = chart["height"] / 2
    for mark in (each["mark"] for each in lines):
        assert lowest < mark["yOffset"] < mark["y2Offset"] < row / 2
    assert all(each["limit"] == {"expr": "width"} for each in names)


def test_pictures_of_the_documentation_have_the_font_that_they_were_measured_in():
    """A font with other widths puts the marks of a legend over its words."""
    images = sorted((Path(__file__).resolve().parents[2] / "docs" / "images").glob("*.svg"))
    fonts = {
        font for each in images for font in re.findall(r'font-family="([^"]*)"', each.read_text())
    }
    # One picture is drawn by a test of recovery, without the theme.
    assert fonts - {"sans-serif"} == {theme.FILE.config()["font"]}


def test_groups_and_bars_hold_their_values():
    groups = {"few": {"a": Bar(1, 0.9, 1.1), "b": Bar(2, 1.9, 2.1)}, "many": {"a": Bar(3, 2, 4)}}
    drawn = rows(groups_chart(groups, value_title=""))
    assert [(row["group"], row["name"], row["value"]) for row in drawn] == [
        ("few", "a", 1), ("few", "b", 2), ("many", "a", 3),
    ]  # fmt: skip
    drawn = rows(bars_chart({"bm25": 0.7, "age": 0.3}, value_title=""))
    assert [(row["name"], row["share"]) for row in drawn] == [("bm25", 0.7), ("age", 0.3)]


def test_charts_stand_side_by_side_under_one_heading():
    parts = [
        curves_chart({name: curve(value)}, value_title="").properties(title=panel_title(name))
        for name, value in (("a", [1.0, 0.5]), ("b", [1.0, 0.4]))
    ]
    page = finished(altair.hconcat(*parts), title="Both", subtitle="band: interval").to_dict()
    assert [part["title"]["text"] for part in page["hconcat"]] == ["a", "b"]
    assert page["title"]["text"] == "Both"
    assert page["title"]["subtitle"] == "band: interval"
    assert page["config"] == finished(parts[0]).to_dict()["config"]


def test_page_and_file_have_the_same_colours():
    assert set(LIGHT) == set(DARK) == set(PAGE.colours)
    style = css_variables()
    for name in LIGHT:
        assert f"--{name}: {LIGHT[name]};" in style
        assert f"--{name}: {DARK[name]};" in style


@pytest.mark.parametrize(
    ("deepest", "written"),
    [
        (1, [1]),
        (3, [1, 2, 3]),
        (20, list(range(1, 21))),
        (21, [1, *range(2, 22, 2)]),
        (100, [1, *range(5, 101, 5)]),
    ],
)
def test_positions_are_whole_numbers_from_one(deepest, written):
    value = np.ones(deepest)
    line = marks(chart_of(flat=curve(value)))["line"]
    assert line["encoding"]["x"]["axis"]["values"] == written


def test_too_many_curves_and_none_are_refused():
    with pytest.raises(OptionError, match=r"at most 7 curves clearly\. Got 8"):
        chart_of(**{f"c{j}": curve() for j in range(8)})
    with pytest.raises(ShapeError, match="at least one curve"):
        chart_of()
    with pytest.raises(ShapeError, match="at least one position"):
        chart_of(empty=Curve(np.array([], dtype=int), np.array([])))


def test_files_are_of_their_kind(tmp_path):
    chart = chart_of(truth=curve(), other=curve([0.9, 0.6, 0.2]))
    png = save_chart(chart, tmp_path / "new" / "bias.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert save_chart(chart, tmp_path / "bias.svg").read_text().startswith("<svg")
    assert json.loads(save_chart(chart, tmp_path / "bias.json").read_text())["layer"]


def test_the_page_opens_without_a_network(tmp_path):
    page = save_chart(chart_of(truth=curve()), tmp_path / "bias.html").read_text()
    assert "examination" in page
    assert not re.search(
        r"<script[^>]*\ssrc\s*=|<link[^>]*\shref\s*=|import\s+.*from\s+.https?:", page
    )


def test_an_unknown_kind_of_file_is_refused_and_not_written(tmp_path):
    with pytest.raises(OptionError, match=r"\.html, \.png, \.svg, \.json.*'bias\.bmp'"):
        save_chart(chart_of(truth=curve()), tmp_path / "bias.bmp")
    assert list(tmp_path.iterdir()) == []


def test_the_script_that_draws_is_made_once_for_a_version(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "_BESIDE_COMPILED_CODE", tmp_path / "__pycache__")
    made = _bundles(monkeypatch, "\u2014\r\n")
    again = convert.vega_library.__wrapped__
    assert [again(), again()] == ["\u2014\r\n"] * 2
    assert len(made) == 1
    monkeypatch.setattr(convert, "version", lambda _: "another")
    again()
    assert len(made) == 2
    assert len(list((tmp_path / "__pycache__").iterdir())) == 2


def test_where_the_script_cannot_be_kept_it_is_made_again(tmp_path, monkeypatch):
    folder = tmp_path / "__pycache__"
    folder.write_text("no folder")
    monkeypatch.setattr(convert, "_BESIDE_COMPILED_CODE", folder)
    made = _bundles(monkeypatch, "code")
    assert [convert.vega_library.__wrapped__() for _ in range(2)] == ["code"] * 2
    assert len(made) == 2
    assert folder.read_text() == "no folder"


def _bundles(monkeypatch, code):
    """A stand-in for vl-convert; the list grows by each call."""
    made = []

    def converted(calls):
        made.append(calls)
        return [code]

    monkeypatch.setattr(convert, "converted", converted)
    return made


def test_the_script_of_a_wheel_needs_no_engine(tmp_path, monkeypatch):
    (tmp_path / "vega.js").write_text("window.vegaEmbed = (place) => '</script>';")
    monkeypatch.setattr(convert, "_IN_THE_WHEEL", tmp_path / "vega.js")
    monkeypatch.setattr(theme, "vega_library", convert.vega_library.__wrapped__)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    chart = chart_of(**{"</script><b>": curve()})
    save_chart(chart, tmp_path / "bias.html")
    text = (tmp_path / "bias.html").read_text()
    assert text.count("</script>") == 3
    spec = text.partition('id="spec">')[2].partition("</script>")[0]
    assert json.loads(spec) == json.loads(chart.to_json())
    for name in ("bias.png", "bias.svg"):
        with pytest.raises(MissingExtraError, match=r"pip install 'untilt\[pictures\]'"):
            save_chart(chart, tmp_path / name)
    with pytest.raises(ImportError):
        convert.converted([])

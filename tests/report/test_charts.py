"""Charts hold the numbers they were given, and their files need nothing else."""

import json
import re

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError
from untilt.report.charts.charts import (
    PALETTE,
    Curve,
    click_rate_chart,
    interval_chart,
    position_chart,
    save_chart,
    stacked,
)


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
    return position_chart(curves, title="Bias", value_title="examination")


def rows(chart):
    return chart.to_dict()["data"]["values"]


def test_click_rates_are_drawn_as_they_were_counted():
    rates = small_log().ctr_by_position()
    drawn = rows(click_rate_chart(rates))
    assert [(row["position"], row["value"]) for row in drawn] == [(1, 3 / 4), (2, 1 / 4)]
    assert [row["low"] for row in drawn] == pytest.approx(rates.low)
    assert [row["high"] for row in drawn] == pytest.approx(rates.high)


def test_several_logs_share_one_chart_and_have_a_legend():
    rates = small_log().ctr_by_position()
    spec = click_rate_chart({"before": rates, "after": rates}).to_dict()
    colour = spec["layer"][1]["encoding"]["color"]
    assert colour["scale"] == {"domain": ["before", "after"], "range": list(PALETTE[:2])}
    assert colour["legend"] is not None


def test_one_curve_needs_no_legend():
    spec = chart_of(alone=curve()).to_dict()
    assert spec["layer"][1]["encoding"]["color"]["legend"] is None


def test_what_is_not_finite_leaves_a_gap():
    drawn = rows(chart_of(gap=curve([1.0, np.nan, 0.25])))
    assert [row["value"] for row in drawn] == [1.0, None, 0.25]


def test_without_an_interval_the_band_has_no_width():
    drawn = rows(chart_of(known=Curve(np.arange(1, 3), np.array([1.0, 0.5]))))
    assert [(row["low"], row["high"]) for row in drawn] == [(1.0, 1.0), (0.5, 0.5)]


def test_named_values_keep_their_order_and_intervals():
    values = {"shown": (0.5, 0.4, 0.6), "new": (0.7, 0.65, 0.75)}
    chart = interval_chart(values, title="Quality", value_title="ndcg@10")
    assert rows(chart) == [
        {"name": "shown", "value": 0.5, "low": 0.4, "high": 0.6},
        {"name": "new", "value": 0.7, "low": 0.65, "high": 0.75},
    ]
    assert chart.to_dict()["layer"][0]["encoding"]["y"]["sort"] == ["shown", "new"]
    with pytest.raises(ShapeError, match="at least one value"):
        interval_chart({}, title="Quality", value_title="ndcg@10")


def test_charts_stack_and_stay_as_they_were():
    first, second = chart_of(truth=curve()), chart_of(other=curve())
    before = first.to_dict()
    page = stacked(first, second).to_dict()
    assert [part["title"]["text"] for part in page["vconcat"]] == ["Bias", "Bias"]
    assert page["config"] == before["config"]
    assert first.to_dict() == before


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
    layers = chart_of(flat=curve(value)).to_dict()["layer"]
    assert layers[0]["encoding"]["x"]["axis"]["values"] == written


def test_too_many_curves_and_none_are_refused():
    with pytest.raises(OptionError, match=r"at most 7 curves apart\. Got 8"):
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

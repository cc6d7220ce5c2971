"""The curve and what it refuses."""

import json
from typing import Any

import numpy as np
import pytest

from untilt import KnownBias, PositionBias, PowerLaw
from untilt.bias.log_ratios import from_log_ratios, log_ratios
from untilt.errors import DepthError, OptionError, ShapeError
from untilt.facts import as_fact

CURVE = PositionBias(np.array([1.0, 0.5, 0.25]), std_error=np.array([0.0, 0.1, 0.2]), level=0.9)


def test_intervals_are_normal_and_never_below_zero():
    z = 1.6448536269514722  # of 90%
    assert CURVE.high == pytest.approx([1.0, 0.5 + z * 0.1, 0.25 + z * 0.2])
    assert CURVE.low == pytest.approx([1.0, 0.5 - z * 0.1, 0.0])
    assert CURVE.interval(2).high == pytest.approx(0.5 + z * 0.1)
    assert CURVE.interval(2).level == 0.9
    assert 0.5 in CURVE.interval(2)


def test_a_known_curve_has_no_width():
    interval = KnownBias([1.0, 0.3]).interval(2)
    assert (interval.low, interval.high) == (0.3, 0.3)


WITHOUT = PositionBias([1.0, 0.5, 0.25], method="learned", estimated=True)


def test_an_estimate_without_an_interval_is_not_known_and_never_exact():
    assert (WITHOUT.is_known, WITHOUT.has_interval, WITHOUT.estimated) == (False, False, True)
    assert (WITHOUT.interval(2).low, WITHOUT.interval(2).high) == (0.0, float("inf"))
    assert WITHOUT.text(2) == ("0.5000", "no interval")
    assert "no interval" in repr(WITHOUT)
    assert "no interval" in WITHOUT._repr_html_()
    assert np.isinf(WITHOUT.uncertainty).all()
    assert WITHOUT.known_depth == 3
    assert np.isnan(log_ratios(WITHOUT)[1]).all()


def test_a_given_curve_and_one_with_errors_stay_what_they_were():
    given = KnownBias([1.0, 0.5])
    assert (given.is_known, given.has_interval, given.text(2)) == (True, False, ("0.5000", ""))
    assert (CURVE.is_known, CURVE.has_interval, CURVE.estimated) == (False, True, True)


@pytest.mark.parametrize("curve", [KnownBias([1.0, 0.5]), CURVE, WITHOUT])
def test_a_file_keeps_what_is_known_and_an_older_one_still_loads(curve, tmp_path):
    curve.save(tmp_path / "bias.json")
    again = PositionBias.load(tmp_path / "bias.json")
    assert (again.estimated, again.has_interval) == (curve.estimated, curve.has_interval)
    record = json.loads(curve.to_json())
    older = {each: value for each, value in record.items() if each not in ("estimated", "sha256")}
    read = PositionBias.from_json(json.dumps(older))
    assert read.estimated == (curve.std_error is not None)


def test_a_curve_that_assumes_something_reads_as_an_estimate():
    """As an older file of pairwise debiasing, or an estimator of one's own that gives no errors."""
    learned = PositionBias([1.0, 0.5], method="mine", assumes=["clicks are proportional"])
    assert (learned.is_known, learned.has_interval) == (False, False)
    assert PositionBias([1.0, 0.5], method="mine", assumes=["x"], estimated=False).is_known
    assert KnownBias([1.0, 0.5]).fit_power_law().is_known
    assert PowerLaw(1.0).to_bias(3).is_known


def test_shapes_of_an_estimate_without_an_interval_have_none_either():
    for shaped in (WITHOUT.fit_power_law(depth=5), WITHOUT.smooth()):
        assert (shaped.estimated, shaped.has_interval) == (True, False)
    assert WITHOUT.fit_power_law(depth=5).eta == pytest.approx(
        KnownBias([1.0, 0.5, 0.25]).fit_power_law().eta
    )


def test_nothing_is_compared_with_an_estimate_without_an_interval():
    with pytest.raises(OptionError, match="learned is an estimate without an interval"):
        CURVE.compare(WITHOUT)


def test_interval_ends_alone_make_a_standard_error():
    bias = PositionBias([1.0, 0.5], low=[1.0, 0.4], high=[1.0, 0.8], level=0.9)
    assert bias.std_error == pytest.approx([0.0, 0.4 / 2 / 1.6448536269514722])
    assert bias.estimated


def test_a_chart_says_which_curve_has_no_interval():
    spec = WITHOUT.plot({"measured": CURVE}).to_dict()
    assert "no interval: learned" in json.dumps(spec["title"])
    assert "90% interval" in json.dumps(spec["title"])


def test_errors_come_from_the_covariance():
    bias = PositionBias(np.array([1.0, 0.5]), covariance=np.array([[0.0, 0], [0, 0.04]]))
    assert bias.std_error == pytest.approx([0, 0.2])


@pytest.mark.parametrize("position", [0, 4, -1])
def test_positions_it_does_not_cover(position):
    with pytest.raises(DepthError):
        CURVE.interval(position)
    with pytest.raises(DepthError):
        CURVE.at(position)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"examination": [1.0, 0.0]}, OptionError, "above 0 everywhere. Got 0.0 at position 2"),
        ({"examination": [[1.0]]}, ShapeError, "flat"),
        ({"std_error": [0.1, -0.1]}, OptionError, "must not be negative. Got -0.1"),
        ({"std_error": [0.1]}, ShapeError, r"shape \(2,\). Got \(1,\)"),
        ({"low": [0.9, 0.1]}, OptionError, "both low and high"),
        ({"level": 1.5, "std_error": [0.1, 0.1]}, OptionError, "level must lie between 0 and 1"),
    ],
)
def test_what_it_refuses(fields, error, message):
    values = {"examination": [1.0, 0.5], **fields}
    given: dict[str, Any] = {
        name: value if name == "level" else np.array(value) for name, value in values.items()
    }
    with pytest.raises(error, match=message):
        PositionBias(**given)


def test_log_ratios_by_the_delta_method():
    """var(log a/b) = var(a)/a^2 + var(b)/b^2 - 2 cov/(a b)."""
    covariance = np.array([[0.01, 0.002, 0.0], [0.002, 0.02, 0.001], [0.0, 0.001, 0.03]])
    a, b, c = 0.8, 0.5, 0.4
    z, V = log_ratios(PositionBias(np.array([a, b, c]), covariance=covariance, relative=False))
    assert z == pytest.approx([0, np.log(b / a), np.log(c / a)])
    assert V[0] == pytest.approx(np.zeros(3))
    assert V[1, 1] == pytest.approx(0.02 / b**2 + 0.01 / a**2 - 2 * 0.002 / (a * b))
    assert V[1, 2] == pytest.approx(0.001 / (b * c) - 0.002 / (a * b) + 0.01 / a**2)


def test_from_log_ratios_and_back():
    V = np.array([[0, 0, 0], [0, 0.04, 0.01], [0, 0.01, 0.09]])
    z = np.log([1, 0.5, 0.2])
    bias = from_log_ratios(z, V, level=0.95, method="m", assumes=(), status=as_fact("s"))
    again, covariance = log_ratios(bias)
    assert again == pytest.approx(z)
    assert covariance == pytest.approx(V)
    # The interval is symmetric on the log scale: low * high = theta^2.
    assert bias.low * bias.high == pytest.approx(bias.examination**2)
    assert np.log(bias.high[2] / 0.2) == pytest.approx(1.959964 * 0.3, rel=1e-6)
    assert bias.relative


def test_arrays_cannot_be_written_to():
    values = np.array([1.0, 0.5])
    bias = PositionBias(values, std_error=np.array([0.0, 0.1]))
    values[1] = 0.9
    assert bias.examination[1] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        bias.examination[0] = 2


def test_plot_holds_every_curve_with_its_band():
    chart = CURVE.plot({"known": KnownBias([1.0, 0.5])}, title="Both").to_dict()
    rows = chart["data"]["values"]
    assert len(rows) == 3 + 2
    assert rows[1]["name"] == CURVE.method
    assert (rows[1]["low"], rows[1]["high"]) == pytest.approx((CURVE.low[1], CURVE.high[1]))
    known = {key: rows[4][key] for key in ("name", "x", "value", "low", "high")}
    assert known == {"name": "known", "x": 2, "value": 0.5, "low": None, "high": None}
    assert chart["title"]["text"] == "Both"
    assert "90%" in chart["title"]["subtitle"]


def test_plot_writes_a_picture(tmp_path):
    CURVE.plot().save(str(tmp_path / "bias.png"))
    assert (tmp_path / "bias.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_too_many_curves_for_one_chart():
    with pytest.raises(OptionError, match="at most 7 curves clearly"):
        CURVE.plot({f"curve {i}": CURVE for i in range(7)})

"""Curves that are given: their values as written down, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from untilt import ClickCountGuess, EyeTracking, KnownBias, PageSteps, PositionBias, PowerLaw
from untilt.bias.given import GivenCurve, as_examination, as_position_bias
from untilt.errors import DepthError, OptionError, ShapeError

CURVES = [
    PowerLaw(1.0),
    EyeTracking(1.0),
    PageSteps.slight(),
    PageSteps.rough(),
    PageSteps.counterfactual(),
    ClickCountGuess((9.0, 4.0, 0.0)),
]


def test_power_law():
    assert PowerLaw(1.0).at(np.array([1, 2, 10])) == pytest.approx([1, 1 / 2, 1 / 10])
    assert PowerLaw(2.0).at(np.array([1, 2, 10])) == pytest.approx([1, 1 / 4, 1 / 100])
    assert PowerLaw(0.0).at(np.array([1, 50])).tolist() == [1, 1]
    assert PowerLaw() == PowerLaw(1.0)


def test_eye_tracking():
    """The ten measured shares, to a power, and the tenth below them."""
    measured = [0.68, 0.61, 0.48, 0.34, 0.28, 0.20, 0.11, 0.10, 0.08, 0.06]
    assert EyeTracking(1.0).at(np.arange(1, 11)) == pytest.approx(measured)
    assert EyeTracking(0.5).at(3) == pytest.approx(0.48**0.5)
    assert EyeTracking(1.0).at(np.array([11, 200])) == pytest.approx([0.06, 0.06])
    assert EyeTracking(0.0).at(np.array([1, 9])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("curve", "pages"),
    [
        (PageSteps.slight(), [1, 1 / 1.1, 1 / 1.2]),
        (PageSteps.rough(), [1, 1 / 2, 1 / 3]),
        (PageSteps.counterfactual(), [1 / 3, 1 / 2, 1]),
    ],
    ids=["slight", "rough", "counterfactual"],
)
def test_rough_guesses_step_with_the_page(curve, pages):
    at = curve.at(np.array([1, 10, 11, 20, 21, 300]))
    assert at == pytest.approx(np.repeat(pages, 2))


def test_click_counts_as_a_guess():
    curve = ClickCountGuess((9.0, 4.0, 0.0))
    assert curve.at(np.array([1, 2, 3, 4])) == pytest.approx([1 / 10, 1 / 5, 1, 1])


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_every_curve_is_a_value_that_answers_anywhere(curve):
    theta = curve.at(np.arange(1, 60))
    assert np.all(theta > 0)
    assert np.all(theta <= 1)
    assert curve.at(7) == theta[6]
    assert curve == type(curve)(**vars(curve))
    assert hash(curve) == hash(type(curve)(**vars(curve)))
    assert repr(curve).startswith(type(curve).__name__)


@pytest.mark.parametrize("curve", CURVES, ids=str)
def test_every_curve_becomes_a_bias_without_doubt(curve):
    bias = curve.to_bias(5)
    assert bias.examination == pytest.approx(curve.at(np.arange(1, 6)))
    assert bias.is_known
    assert bias.method == repr(curve)
    assert [fact.code for fact in bias.assumes] == ["bias.curve-is-right"]


@pytest.mark.parametrize("curve", [*CURVES, KnownBias([1.0, 0.5])], ids=type)
@pytest.mark.parametrize("position", [0, np.array([2, -3, 1])])
def test_positions_start_at_one(curve, position):
    with pytest.raises(DepthError, match=r"positions start at 1\. Got (0|-3) instead"):
        curve.at(position)


def test_a_known_bias_is_stored_as_given():
    theta = np.array([1.0, 0.4])
    bias = KnownBias(theta, eps_plus=[0.9, 0.8], eps_minus=[0.2, 0.1])
    theta[0] = 7
    assert bias.examination.tolist() == [1.0, 0.4]
    assert bias.has_trust
    assert bias.relative
    assert not KnownBias([1.0], absolute=True).relative
    assert not KnownBias([1.0]).has_trust


def test_affine_curves_of_trust_bias():
    """alpha = theta (eps+ - eps-), beta = theta eps-: the click rate is alpha gamma + beta."""
    bias = KnownBias([1.0, 0.4], eps_plus=[0.9, 0.8], eps_minus=[0.2, 0.1])
    alpha, beta = bias.affine()
    assert alpha == pytest.approx([0.7, 0.4 * 0.7])
    assert beta == pytest.approx([0.2, 0.4 * 0.1])
    gamma = 0.3
    click_rate = bias.examination * (bias.eps_plus * gamma + bias.eps_minus * (1 - gamma))
    assert alpha * gamma + beta == pytest.approx(click_rate)


def test_affine_curves_without_trust_bias():
    alpha, beta = KnownBias([1.0, 0.4]).affine()
    assert alpha.tolist() == [1.0, 0.4]
    assert beta.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "bias",
    [[1.0, 0.5], (1.0, 0.5), np.array([1.0, 0.5]), pd.Series([1.0, 0.5])],
    ids=lambda bias: type(bias).__name__,
)
def test_arrays_of_all_kinds_are_curves(bias):
    """A Series has an `at` of its own, which is no curve."""
    curve = as_examination(bias)
    assert isinstance(curve, PositionBias)
    assert curve.at(2) == 0.5


@pytest.mark.parametrize("bias", [*CURVES, KnownBias([1.0, 0.5])], ids=type)
def test_curves_are_taken_as_they_are(bias):
    assert as_examination(bias) is bias


class Halving:
    """A curve of a user's own: anything with `at` will do."""

    def at(self, position):
        return 0.5 ** (np.asarray(position) - 1.0)


def test_any_object_with_at_is_a_curve():
    curve = Halving()
    assert as_examination(curve) is curve
    bias = as_position_bias(curve, 3)
    assert bias.examination.tolist() == [1, 1 / 2, 1 / 4]
    assert bias.method == "Halving"


def test_what_is_no_curve_is_refused():
    with pytest.raises(
        OptionError, match=r"bias must be a PositionBias, a curve such as Power.*int"
    ):
        as_examination(3)


def test_as_position_bias_reaches_the_depth_or_says_so():
    assert as_position_bias(PowerLaw(1.0), 4).depth == 4
    known = KnownBias([1.0, 0.5, 0.3])
    assert as_position_bias(known, 2) is known
    with pytest.raises(DepthError, match=r"position 5 has no examination .*positions 1\.\.3\. Cut"):
        as_position_bias(known, 5)


def test_given_curves_share_one_base():
    assert all(isinstance(curve, GivenCurve) for curve in CURVES)


@pytest.mark.parametrize(
    ("examination", "error", "message"),
    [
        ([], ShapeError, r"examination must be a flat array with at least one position"),
        ([[1.0]], ShapeError, r"examination must be a flat array"),
        ([1.0, 0.0], OptionError, r"above 0 everywhere\. Got 0\.0 at position 2\..*cut the log"),
        ([1.0, np.nan], OptionError, r"above 0 everywhere\. Got nan at position 2"),
    ],
)
def test_a_known_bias_must_be_a_curve(examination, error, message):
    with pytest.raises(error, match=message):
        KnownBias(examination)


def test_trust_bias_covers_the_same_positions():
    with pytest.raises(ShapeError, match=r"eps_plus must have shape \(2,\)\. Got \(1,\) instead"):
        KnownBias([1.0, 0.5], eps_plus=[0.9])

"""Every table by hand arithmetic, and every refusal with its text."""

import numpy as np
import pytest

from untilt import IPS, PNS, PRS, AffineIPS, Balanced, BayesIPS, KnownBias, Naive, PowerLaw
from untilt.errors import DepthError, OptionError

THETA = [1.0, 0.5, 0.2]


@pytest.fixture
def trust():
    """alpha = theta (eps+ - eps-) = 0.8, 0.3, 0.1 and beta = theta eps- = 0.1, 0.05, 0.04."""
    return KnownBias(THETA, eps_plus=[0.9, 0.7, 0.7], eps_minus=[0.1, 0.1, 0.2])


def test_naive_weighs_all_pairs_alike():
    assert Naive().table(2).tolist() == [[1, 1], [1, 1]]


def test_ips_divides_by_examination_of_the_click():
    assert IPS(THETA).table(3) == pytest.approx(np.array([[1] * 3, [2] * 3, [5] * 3]))


def test_ips_clip_is_a_floor_of_examination():
    expected = [[1, 1, 1], [2, 2, 2], [1 / 0.25] * 3]
    assert IPS(THETA, clip=0.25).table(3) == pytest.approx(np.array(expected))


def test_ips_against_all_is_the_same_table_over_other_pairs():
    assert IPS(THETA).against == "unclicked"
    assert IPS(THETA, against="all").against == "all"
    assert np.array_equal(IPS(THETA, against="all").table(3), IPS(THETA).table(3))


def test_pns_multiplies_by_examination_of_the_other():
    assert PNS(THETA).table(3) == pytest.approx(np.array([[1.0, 0.5, 0.2]] * 3))


def test_prs_is_the_ratio():
    expected = [
        [1.0, 0.5 / 1.0, 0.2 / 1.0],
        [1.0 / 0.5, 1.0, 0.2 / 0.5],
        [1.0 / 0.2, 0.5 / 0.2, 1.0],
    ]
    assert PRS(THETA, clip=np.inf).table(3) == pytest.approx(np.array(expected))


def test_prs_clips_at_one_by_default():
    expected = [[1, 0.5, 0.2], [1, 1, 0.4], [1, 1, 1]]
    assert PRS(THETA).table(3) == pytest.approx(np.array(expected))
    assert PRS(THETA, clip=2.0).table(3)[2].tolist() == [2.0, 2.0, 1.0]


def test_prs_clipped_on_the_clicked_side_is_ips_times_pns():
    expected = [[1, 0.5, 0.2], [1 / 0.5, 1, 0.2 / 0.5], [1 / 0.25, 0.5 / 0.25, 0.2 / 0.25]]
    clicked = PRS(THETA, clip=0.25, clip_of="clicked").table(3)
    assert clicked == pytest.approx(np.array(expected))
    assert clicked == pytest.approx(IPS(THETA, clip=0.25).table(3) * PNS(THETA).table(3))
    assert np.array_equal(PRS(THETA, clip=1.0, clip_of="clicked").table(3), PNS(THETA).table(3))
    unclipped = PRS(THETA, clip=0.0, clip_of="clicked").table(3)
    assert unclipped == pytest.approx(PRS(THETA, clip=np.inf).table(3))


def test_what_prs_can_clip():
    with pytest.raises(OptionError, match=r"clip must lie between 0 and 1\. Got 2\.0 instead"):
        PRS(THETA, clip=2.0, clip_of="clicked")
    with pytest.raises(OptionError, match="clip_of"):
        PRS(THETA, clip_of="unclicked")  # type: ignore[arg-type]


def test_bayes_ips_scales_by_the_odds_that_a_click_is_relevant(trust):
    rows = [0.9 / 1.0 / 1.0, 0.7 / 0.8 / 0.5, 0.7 / 0.9 / 0.2]
    assert BayesIPS(trust).table(3) == pytest.approx(np.array([[row] * 3 for row in rows]))
    assert BayesIPS(trust, clip=0.5).table(3)[2] == pytest.approx([0.7 / 0.9 / 0.5] * 3)


def test_balanced_is_the_smaller_examination_over_that_of_the_click():
    weighting = Balanced(THETA)
    expected = [[1, 0.5, 0.2], [1, 1, 0.4], [1, 1, 1]]
    assert weighting.table(3) == pytest.approx(np.array(expected))
    assert weighting.against == "all"
    assert weighting.offset(3) is None
    assert not weighting.per_session_norm


def test_balanced_with_trust_bias_takes_alpha_and_subtracts_beta(trust):
    table = np.array([[1, 0.3 / 0.8, 0.1 / 0.8], [1, 1, 0.1 / 0.3], [1, 1, 1]])
    beta = np.array([0.1, 0.05, 0.04])
    assert Balanced(trust).table(3) == pytest.approx(table)
    assert Balanced(trust).offset(3) == pytest.approx(-beta[:, None] * table)


def test_affine_ips_inverts_alpha_and_subtracts_beta(trust):
    table = np.array([[1 / 0.8] * 3, [1 / 0.3] * 3, [1 / 0.1] * 3])
    beta = np.array([0.1, 0.05, 0.04])
    assert AffineIPS(trust).table(3) == pytest.approx(table)
    assert AffineIPS(trust).offset(3) == pytest.approx(-beta[:, None] * table)
    clipped = AffineIPS(trust, clip=0.25)
    assert clipped.table(3)[2] == pytest.approx([1 / 0.25] * 3)
    assert clipped.offset(3)[2] == pytest.approx([-0.04 / 0.25] * 3)


def test_affine_ips_without_trust_bias_is_ips_against_all():
    assert np.array_equal(AffineIPS(THETA).table(3), IPS(THETA).table(3))
    assert AffineIPS(THETA).offset(3) is None
    assert AffineIPS(THETA).against == "all"


@pytest.mark.parametrize("bias", [THETA, tuple(THETA), np.array(THETA), KnownBias(THETA)])
def test_a_bias_may_be_an_array_or_a_curve(bias):
    assert np.array_equal(PRS(bias).table(3), PRS(THETA).table(3))


def test_a_given_curve_answers_at_any_depth():
    assert PNS(PowerLaw(1.0)).table(40)[0, 39] == 1 / 40


def test_a_table_may_be_cut_short_but_not_stretched():
    assert np.array_equal(PRS(THETA).table(2), PRS(THETA).table(3)[:2, :2])
    with pytest.raises(DepthError, match=r"position 4 has no examination estimate: given covers"):
        PRS(THETA).table(4)


@pytest.mark.parametrize("clip", [-0.1, 1.5, np.nan])
@pytest.mark.parametrize("kind", [IPS, BayesIPS, AffineIPS])
def test_a_clip_of_examination_is_a_probability(kind, clip, trust):
    with pytest.raises(OptionError, match=r"clip must lie between 0 and 1\. Got .* no clipping"):
        kind(trust, clip=clip)


@pytest.mark.parametrize("clip", [0.0, -1.0, np.nan])
def test_a_clip_of_the_ratio_is_positive(clip):
    with pytest.raises(OptionError, match=r"clip must be above 0\. Got .*; 1\.0 is best"):
        PRS(THETA, clip=clip)


def test_against_has_two_values():
    with pytest.raises(
        OptionError, match=r"against must be one of 'unclicked', 'all'\. Got 'some'"
    ):
        IPS(THETA, against="some")  # type: ignore[arg-type]


@pytest.mark.parametrize("bias", [THETA, PowerLaw(1.0), KnownBias(THETA, eps_plus=[1, 1, 1])])
def test_bayes_ips_needs_trust_bias(bias):
    with pytest.raises(OptionError, match=r"BayesIPS needs a bias with eps_plus and eps_minus"):
        BayesIPS(bias)


@pytest.mark.parametrize("kind", [Balanced, AffineIPS])
@pytest.mark.parametrize("eps_minus", [0.5, 0.6])
def test_an_affine_correction_needs_clicks_that_tell(kind, eps_minus):
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.5], eps_minus=[0.1, eps_minus])
    with pytest.raises(
        OptionError, match=rf"above eps_minus at every .* eps_minus {eps_minus} at position 2"
    ):
        kind(bias)


def test_bayes_ips_needs_clicks_at_all():
    bias = KnownBias([1.0, 0.5], eps_plus=[0.9, 0.0], eps_minus=[0.1, 0.0])
    with pytest.raises(OptionError, match=r"eps_plus or eps_minus must be above 0 .* position 2"):
        BayesIPS(bias)


@pytest.mark.parametrize("kind", [IPS, PNS, PRS, BayesIPS, Balanced, AffineIPS])
def test_what_is_no_curve_is_refused(kind):
    with pytest.raises(OptionError, match=r"bias must be a PositionBias, .* Got str instead"):
        kind("steep")

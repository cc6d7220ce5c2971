"""Equations 30 and 31 of [hu2019unbiased]_ by hand."""

import numpy as np
import pytest

from untilt import PairwiseDebiasing
from untilt.errors import OptionError
from untilt.facts import codes
from untilt.weighting.base import LearnedTable
from untilt.weighting.tables import Ratios


def test_the_start_is_all_ones():
    assert np.array_equal(PairwiseDebiasing().table(3), np.ones((3, 3)))


def test_first_update_by_hand():
    """With t+ = t- = 1 the ratios are plain sums of rows and of columns."""
    S = np.array([[4.0, 2.0], [1.0, 2.0]])
    state = PairwiseDebiasing(p=0).update(S, None)
    assert state.plus == pytest.approx([1, (1 + 2) / (4 + 2)])
    assert state.minus == pytest.approx([1, (2 + 2) / (4 + 1)])


def test_second_update_divides_each_loss_by_the_ratio_of_the_other_side():
    S = np.array([[4.0, 2.0], [1.0, 2.0]])
    before = Ratios(plus=np.array([1.0, 0.5]), minus=np.array([1.0, 0.8]))
    state = PairwiseDebiasing(p=0).update(S, before)
    assert state.plus == pytest.approx([1, (1 / 1 + 2 / 0.8) / (4 / 1 + 2 / 0.8)])
    assert state.minus == pytest.approx([1, (2 / 1 + 2 / 0.5) / (4 / 1 + 1 / 0.5)])


def test_three_positions_and_p_of_one():
    """p = 1 takes the square root. The diagonal is empty: no document competes with itself."""
    S = np.array([[0.0, 6.0, 2.0], [4.0, 0.0, 1.0], [2.0, 1.0, 0.0]])
    before = Ratios(plus=np.array([1.0, 0.5, 0.25]), minus=np.array([1.0, 2.0, 4.0]))
    state = PairwiseDebiasing(p=1).update(S, before)
    row_1, row_2, row_3 = 6 / 2 + 2 / 4, 4 / 1 + 1 / 4, 2 / 1 + 1 / 2
    column_1, column_2, column_3 = 4 / 0.5 + 2 / 0.25, 6 / 1 + 1 / 0.25, 2 / 1 + 1 / 0.5
    assert state.plus == pytest.approx([1, (row_2 / row_1) ** 0.5, (row_3 / row_1) ** 0.5])
    assert state.minus == pytest.approx(
        [1, (column_2 / column_1) ** 0.5, (column_3 / column_1) ** 0.5]
    )


def test_larger_p_holds_the_ratios_closer_to_one():
    S = np.array([[4.0, 2.0], [1.0, 2.0]])
    plus = [PairwiseDebiasing(p=p).update(S, None).plus[1] for p in (0, 1, 3, np.inf)]
    assert plus == pytest.approx([0.5, 0.5 ** (1 / 2), 0.5 ** (1 / 4), 1.0])


def test_the_table_divides_by_both_ratios():
    state = Ratios(plus=np.array([1.0, 0.5]), minus=np.array([1.0, 0.8]))
    expected = [[1, 1 / 0.8], [1 / 0.5, 1 / (0.5 * 0.8)]]
    assert PairwiseDebiasing().table_of(state) == pytest.approx(np.array(expected))


def test_the_loss_of_a_factor_is_found_again():
    """S = t+ (outer) t- with one common unbiased loss is a fixed point of both equations."""
    plus, minus = np.array([1.0, 0.6, 0.3]), np.array([1.0, 1.2, 1.5])
    state = PairwiseDebiasing(p=0).update(7.0 * np.outer(plus, minus), Ratios(plus, minus))
    assert state.plus == pytest.approx(plus)
    assert state.minus == pytest.approx(minus)


def test_scale_of_the_losses_makes_no_difference():
    S = np.array([[4.0, 2.0], [1.0, 2.0]])
    one, many = PairwiseDebiasing().update(S, None), PairwiseDebiasing().update(1e6 * S, None)
    assert one.plus == pytest.approx(many.plus)
    assert one.minus == pytest.approx(many.minus)


def test_a_position_without_clicks_is_held_at_the_floor():
    S = np.array([[1.0, 1.0], [0.0, 0.0]])
    state = PairwiseDebiasing(floor=0.01).update(S, None)
    assert state.plus.tolist() == [1.0, 0.01]
    steep = PairwiseDebiasing(floor=0.01).update(np.array([[1.0, 0.0], [1e6, 0.0]]), None)
    assert steep.plus.tolist() == [1.0, 100.0]


def test_inputs_are_not_written_to():
    S, ones = np.array([[4.0, 2.0], [1.0, 2.0]]), np.ones(2)
    PairwiseDebiasing().update(S, Ratios(ones, ones))
    assert np.array_equal(S, [[4.0, 2.0], [1.0, 2.0]])
    assert np.array_equal(ones, [1.0, 1.0])


def test_the_learned_bias_is_the_click_side():
    state = Ratios(plus=np.array([1.0, 0.4]), minus=np.array([1.0, 1.1]))
    bias = PairwiseDebiasing(p=1).bias_of(state, [state, state])
    assert bias.examination.tolist() == [1.0, 0.4]
    assert bias.relative
    assert bias.method == "pairwise debiasing (p=1)"
    assert bias.status.code == "bias.boosting-rounds"
    assert bias.status.fields["rounds"] == 2
    assert codes(bias.assumes) == ["bias.clicks-proportional", "bias.no-clicks-proportional"]


@pytest.mark.parametrize("S", [[[0.0, 0.0], [1.0, 2.0]], [[0.0, 1.0], [0.0, 1.0]]])
def test_position_one_must_have_pairs(S):
    with pytest.raises(OptionError, match=r"position 1 has no clicked-unclicked pair in this log"):
        PairwiseDebiasing().update(np.array(S), None)


@pytest.mark.parametrize("p", [-0.5, np.nan])
def test_p_is_not_negative(p):
    with pytest.raises(OptionError, match=r"p must be at least 0\. Got .* instead"):
        PairwiseDebiasing(p=p)


@pytest.mark.parametrize("floor", [0.0, -1.0, 1.5, np.nan])
def test_the_floor_lies_between_zero_and_one(floor):
    with pytest.raises(OptionError, match=r"floor must lie above 0 and up to 1\. Got"):
        PairwiseDebiasing(floor=floor)


def test_losses_per_session_find_the_factor_whatever_the_lengths_of_the_lists():
    """60 sessions show two positions and 40 show three; each pair costs t+_k t-_l per session."""
    plus, minus = np.array([1.0, 0.6, 0.3]), np.array([1.0, 1.2, 1.5])
    together = np.array([[100.0, 100, 40], [100, 100, 40], [40, 40, 40]])
    S = np.outer(plus, minus) * together

    mean, summed = (
        LearnedTable(PairwiseDebiasing(losses=losses), 3, together) for losses in ("mean", "sum")
    )
    for _ in range(20):
        mean.update(S)
        summed.update(S)
    assert mean.history[-1].plus == pytest.approx(plus)
    assert mean.history[-1].minus == pytest.approx(minus)
    # As published, 40 sessions at position 3 stand beside 100 at position 1.
    row_1, row_3 = 100 * 1 + 100 * 1.2 + 40 * 1.5, 0.3 * 40 * (1 + 1.2 + 1.5)
    assert summed.history[0].plus[2] == pytest.approx(row_3 / row_1)
    assert summed.history[-1].plus[2] < 0.6 * plus[2]


def test_positions_never_shown_together_add_nothing():
    together = np.array([[5.0, 5, 0], [5, 5, 5], [0, 5, 5]])
    S = np.array([[0.0, 5.0, 0.0], [10.0, 0.0, 5.0], [0.0, 5.0, 0.0]])
    learned = LearnedTable(PairwiseDebiasing(), 3, together)
    learned.update(S)
    assert learned.history[0].plus == pytest.approx([1, (10 / 5 + 5 / 5) / (5 / 5), 1])


def test_equal_lists_give_the_published_ratios_to_the_bit(rng):
    S, together = rng.uniform(1, 2, (4, 4)), np.full((4, 4), 7.0)
    mean, summed = (
        LearnedTable(PairwiseDebiasing(losses=losses), 4, together) for losses in ("mean", "sum")
    )
    assert np.array_equal(mean.update(S), summed.update(S))


def test_losses_are_means_or_sums():
    with pytest.raises(OptionError, match="losses"):
        PairwiseDebiasing(losses="median")  # type: ignore[arg-type]

"""Which curve fits the clicks on documents that moved: three rankers, and a truth that is known."""

from dataclasses import replace

import numpy as np
import pytest
from tests.bias.moving_documents import three_rankers

from untilt import ClickLog, KnownBias, PowerLaw
from untilt.bias.compare_curves import compare_curves
from untilt.errors import OptionError

POWERS = {"0.5": PowerLaw(0.5), "1": PowerLaw(1.0), "2": PowerLaw(2.0)}


def test_the_true_curve_is_found_whichever_it_is():
    for name in POWERS:
        found = compare_curves(three_rankers(power=float(name), seed=3), POWERS)
        assert found.best == name
        assert [entry.name for entry in found if entry.is_worse] == [n for n in POWERS if n != name]
        assert found[name].fact.code == "bias.curve-as-steep"
        for other in POWERS:
            power = found[other].power
            expected = float(name) / float(other)
            assert abs(power.value - expected) < 4 * power.std_error, (name, other)
            if other != name:
                flat = float(other) < float(name)
                code = "bias.curve-too-flat" if flat else "bias.curve-too-steep"
                assert found.fact(other).code == code


def test_the_standard_error_of_the_power_covers_the_truth():
    fits = [compare_curves(three_rankers(n_queries=40, seed=s), POWERS)["1"] for s in range(60)]
    z = np.array([(each.power.value - 1) / each.power.std_error for each in fits])
    assert abs(z.mean()) < 0.5
    assert 0.75 < z.std() < 1.3
    assert np.mean(np.abs(z) > 2) < 0.15


def test_the_score_by_hand():
    """Document 0: 3 clicks in 4 sessions at 1, 1 in 4 at 2; document 1 never moves."""
    log = ClickLog(
        query_id=[0], doc_id=[0, 1], doc_query=[0, 0], indptr=[0, 1, 2, 3, 4, 5],
        query=[0, 0, 0, 0, 0], document=[0, 0, 0, 0, 1], position=[1, 1, 2, 2, 3],
        label=[1, 0, 1, 0, 1], count=[30, 10, 10, 30, 7],
    )  # fmt: skip
    found = compare_curves(log, {"half": [1.0, 0.5, 0.5], "third": [1.0, 1 / 3, 0.1]})
    assert (found.n_documents, found.n_clicks) == (1, 40)
    assert found["half"].score == pytest.approx((3 * np.log(2 / 3) + np.log(1 / 3)) / 4)
    assert found["third"].score == pytest.approx((3 * np.log(3 / 4) + np.log(1 / 4)) / 4)
    # 3 to 1 is what theta_2 = 1/3 says exactly: 2^-p = 1/3.
    assert found["third"].power.value == pytest.approx(1)
    assert found["half"].power.value == pytest.approx(np.log(3) / np.log(2))


def test_counts_are_repeats_and_order_does_not_matter():
    log = three_rankers(n_queries=12)
    one = compare_curves(log, POWERS)
    shuffled = log.take(np.random.default_rng(0).permutation(log.n_lists))
    for other in (log.collapse(), shuffled):
        two = compare_curves(other, POWERS)
        for name in POWERS:
            assert two[name].score == pytest.approx(one[name].score, rel=1e-12)
            assert two[name].power.value == pytest.approx(one[name].power.value, rel=1e-8)


def test_a_factor_of_the_curve_and_positions_that_one_does_not_know_change_nothing():
    log = three_rankers(n_queries=20)
    theta = 1 / np.arange(1.0, 7)
    short = {"whole": theta, "short": theta[:4]}
    found = compare_curves(log, {**short, "half": theta / 2})
    assert found["half"].score == pytest.approx(found["whole"].score)
    assert found["short"].score == pytest.approx(found["whole"].score)
    assert found.n_clicks < compare_curves(log, {"whole": theta}).n_clicks


def test_trust_is_told_from_a_curve_without_it():
    log = three_rankers(trust=True, n_queries=150, sessions=100)
    theta = 1 / np.arange(1.0, 7)
    trust = KnownBias(theta, eps_plus=np.ones(6), eps_minus=0.3 * theta)
    found = compare_curves(log, {"trust": trust, "plain": theta})
    assert found.best == "trust"
    assert found["plain"].is_worse
    assert not found["trust"].is_wrong
    assert found["plain"].fact.code == "bias.curve-too-flat"


def test_where_nothing_moved_nothing_is_told():
    found = compare_curves(three_rankers(moves=False, n_queries=5), POWERS)
    assert not found.possible
    assert found.best is None
    assert found.fact("1").code == "bias.curve-nothing-moved"
    assert "too few" in repr(found)
    silent = three_rankers(n_queries=5)
    assert not compare_curves(replace(silent, label=silent.label * 0), POWERS).possible


def test_errors_and_table():
    log = three_rankers(n_queries=10)
    with pytest.raises(OptionError, match="no curve to compare"):
        compare_curves(log, {})
    found = compare_curves(log, POWERS)
    with pytest.raises(OptionError, match="no curve '3'"):
        found["3"]
    assert "documents that moved" in repr(found)

"""Experiments in an audit: used where they are what they are called, named where they are not."""

import numpy as np

from untilt import audit
from untilt.facts import codes


def clicks_on(rng, order, last=None):
    """Clicks of theta_k = 0.6 / k on every document; none below position `last`."""
    return [d for k, d in enumerate(order[:last], 1) if rng.random() < 0.6 / k]


def sessions(rng, shuffled, *, last=None, queries=40, usual=60):
    """`shuffled(rng)` gives the order of 20 sessions of each query; others show 0, 1, ..., 7."""
    made = []
    for q in range(queries):
        orders = [(shuffled(rng), "shuffle") for _ in range(20)]
        orders += [(list(range(8)), "production")] * usual
        made += [(q, each, clicks_on(rng, each, last), 1, name) for each, name in orders]
    return made


def at_random(rng):
    return rng.permutation(8).tolist()


def test_an_honest_shuffle_is_used_and_its_tests_are_told(make_log, rng):
    found = audit(make_log(sessions(rng, at_random)))
    assert found.advice.estimator == "ShuffledTop"
    tested = next(note for note in found.notes if note.code == "audit.experiment-tested")
    assert set(tested.fields["parts"][0].fields["p_values"]) == {
        "positions", "orders", "other sessions",
    }  # fmt: skip
    assert found.interventions.failed == ()


def test_a_deep_position_without_a_click_does_not_hide_the_shuffle(make_log, rng):
    """Nobody clicks at 8 in shuffled sessions; in others a click there joins it to the rest."""
    made = sessions(rng, at_random, last=7)
    made += [(0, list(range(8)), [7], 1, "production"), (0, [7, *range(7)], [7], 1, "production")]
    found = audit(make_log(made))
    assert found.interventions.shuffled_depth == 7
    assert found.advice.estimator == "ShuffledTop"


def test_an_experiment_that_ends_far_above_the_clicks_is_not_preferred(make_log, rng):
    made = sessions(rng, at_random, last=2, usual=0)
    made += [
        (q, rng.permutation(8).tolist(), [0, 1, 2, 3], 1, "production")
        for q in range(40)
        for _ in range(20)
    ]
    found = audit(make_log(made))
    assert found.interventions.shuffled_depth == 2
    assert found.advice.estimator == "AllPairs"


def test_two_fixed_orders_called_shuffle_are_named_and_not_used(make_log, rng):
    two = [list(range(8)), [1, 0, 3, 2, 5, 4, 7, 6]]
    found = audit(make_log(sessions(rng, lambda rng: two[rng.integers(2)])))
    failed = next(each for each in found.warnings if each.code == "audit.experiment-failed")
    assert failed.severity == "serious"
    assert "bias.shuffle-orders" in codes(failed.fields["parts"])
    assert found.interventions.shuffled_depth == 0
    assert found.advice.estimator != "ShuffledTop"


def test_swaps_that_were_never_shown_are_named_and_not_used(make_log, rng):
    order = list(range(4))
    names = ["base", "swap:1-2", "swap:1-3", "swap:1-4"]
    made = [
        (q, order, clicks_on(rng, order), 1, names[rng.integers(4)])
        for q in range(40)
        for _ in range(20)
    ]
    found = audit(make_log(made))
    assert "audit.experiment-failed" in codes(found.warnings)
    assert found.advice.estimator not in ("PivotSwap", "AdjacentSwap")


def test_shuffled_sessions_that_cannot_be_used_are_not_passed_over_in_silence(make_log, rng):
    made = [(q, at_random(rng), [], 1, "shuffle") for q in range(20) for _ in range(5)]
    made += [(q, list(range(8)), [0, 1], 1, "production") for q in range(20)]
    found = audit(make_log(made))
    unusable = next(each for each in found.warnings if each.code == "audit.shuffle-unusable")
    assert unusable.fields["sessions"] == 100
    assert "clicks at 1" in unusable.fields["why"]


def test_pages_loaded_again_are_a_doubt_and_no_refusal(make_log, rng):
    made = []
    for q in range(60):
        for _ in range(10):
            order = at_random(rng)
            again = 2 if rng.random() < 0.02 else 1
            made.append((q, order, clicks_on(rng, order), again, "shuffle"))
    made.append((0, np.arange(8).tolist(), [0], 1, "production"))
    found = audit(make_log(made))
    assert "audit.experiment-doubt" in codes(found.warnings)
    assert found.advice.estimator == "ShuffledTop"

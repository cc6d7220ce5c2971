"""Which candidate is taken: the default, unless another is better by more than chance."""

import numpy as np
import pytest

import untilt as ut
from untilt.workflow.stage_rankers import choose


@pytest.fixture(scope="module")
def world():
    made = ut.simulate(ut.make_judged(120, 4, seed=3), "harvest", n_sessions=6000, seed=3)
    return made.log, made.truth.relevance, ut.KnownBias(made.truth.examination)


def chosen(world, scores, metric="dcg@10"):
    log, _, bias = world
    return choose(ut.estimate(log, scores, bias, metric=metric), "auto")


@pytest.mark.parametrize("metric", ["dcg@10", "arp"])
def test_what_is_clearly_better_takes_the_place_of_the_default(world, metric):
    _, relevance, _ = world
    by_chance = np.random.default_rng(0).random(len(relevance))
    name, why, comparison = chosen(world, {"auto": by_chance, "other": relevance}, metric)
    assert name == why.fields["chosen"] == "other"
    assert why.code == "run.default-beaten"
    assert comparison.baseline == "auto"
    # And the other way round, which is clearly worse, it does not.
    name, why, _ = chosen(world, {"auto": relevance, "other": by_chance}, metric)
    assert (name, why.code) == ("auto", "run.default-kept")
    assert why.fields["other"] == "other"


def test_the_best_of_several_that_are_better(world):
    _, relevance, _ = world
    random = np.random.default_rng(1)
    noise = random.random(len(relevance))
    scores = {"auto": noise, "good": relevance + 0.3 * noise, "best": relevance}
    assert chosen(world, scores)[0] == "best"


def test_luck_among_many_equal_candidates_seldom_wins(world):
    """Nine equal candidates: the best of them leads nearly always, but not by two errors.

    By Holm's correction a switch has probability 0.023 at most: more than 4 of 40 have 0.003.
    """
    log, _, bias = world
    taken = led = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        scores = {"auto": random.random(log.n_documents)}
        scores |= {f"other {i}": random.random(log.n_documents) for i in range(8)}
        estimates = ut.estimate(log, scores, bias)
        taken += choose(estimates, "auto")[0] != "auto"
        led += estimates.best.system != "auto"
    assert led > 25
    assert taken <= 4


def test_the_same_order_is_not_better(world):
    _, relevance, _ = world
    name, why, _ = chosen(world, {"auto": relevance, "same": 2 * relevance})
    assert (name, why.fields["difference"]) == ("auto", 0.0)


def test_a_single_candidate_is_taken(world):
    _, relevance, _ = world
    name, why, comparison = chosen(world, {"auto": relevance})
    assert (name, why.code, comparison) == ("auto", "run.only-candidate", None)

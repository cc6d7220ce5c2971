"""No firm answer from a curve or an evaluator that the log cannot carry: worlds of `varying`.

`make test` judges one log of some worlds; `make test-slow` several of all, with shares over them.
Rates by world, before and now, are those of benchmarks/bench_varying.py (docs/evidence.md).
"""

from collections import defaultdict

import numpy as np
import pytest
from tests.wall.judging import without_pages
from tests.wall.varying import WORLDS
from tests.wall.verdicts import verdicts

UNSOUND = [name for name, world in WORLDS.items() if not world.sound]
FIRM = {  # the kind of evidence that each sound world with a firm verdict has
    "rankers": "randomised",
    "rankers_weaker": "randomised",
    "shuffles": "experiment",
    "swaps": "experiment",
}
SEED = 400  # no rule was set on these


def judged(name, seed, folder):
    with without_pages():
        return list(verdicts(WORLDS[name], seed, folder / f"{name}-{seed}"))


@pytest.mark.parametrize("name", ["stock", "segment", "weekly_named", "advert", "intent"])
def test_a_log_that_cannot_tell_gives_no_firm_wrong_answer(name, tmp_path):
    told = judged(name, SEED, tmp_path)
    assert not any(each.is_wrong for each in told)


@pytest.mark.parametrize("name", ["rankers", "swaps"])
def test_evidence_that_carries_a_verdict_gives_one(name, tmp_path):
    told = judged(name, SEED, tmp_path)
    assert {each.kind for each in told} == {FIRM[name]}
    assert not any(each.is_wrong for each in told)
    assert {"better", "worse"} & {each.said for each in told}


def test_the_first_page_decides_how_long_a_list_is(tmp_path):
    told = judged("second_page", SEED, tmp_path)
    assert not any(each.is_wrong for each in told)
    assert all(each.covered for each in told)


@pytest.mark.slow
def test_rates_over_worlds(tmp_path):
    by_world = defaultdict(list)
    for name in WORLDS:
        for seed in range(SEED + 1, SEED + 4):
            by_world[name] += judged(name, seed, tmp_path)
    unsound = [each.is_wrong for name in UNSOUND for each in by_world[name]]
    assert np.mean(unsound) <= 0.05
    sound = [each.is_wrong for name in WORLDS if name not in UNSOUND for each in by_world[name]]
    assert np.mean(sound) <= 0.025
    firm = [each for name in FIRM for each in by_world[name]]
    assert np.mean([each.said in ("better", "worse") for each in firm]) > 0.6
    assert np.mean([bool(each.covered) for each in firm]) >= 0.9

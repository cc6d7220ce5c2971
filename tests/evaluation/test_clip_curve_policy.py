"""The clip curve of the policy-aware estimate is that estimate, clip by clip."""

import numpy as np
import pytest

import untilt as ut


@pytest.fixture(scope="module")
def log():
    return ut.simulate(ut.make_judged(150, 6, seed=3), "harvest", n_sessions=4000, seed=3).log


@pytest.mark.parametrize("system", [ut.shown, "scores"])
def test_each_point_is_the_estimate_at_that_clip(log, system):
    given = np.random.default_rng(0).random(log.n_documents) if system == "scores" else system
    curve = ut.clip_curve(log, given, ut.PowerLaw(1.0), evaluator="policy-aware", clip=[0.05, 0.3])
    for clip, value, error in zip(curve.clip, curve.value, curve.std_error, strict=True):
        found = ut.estimate(log, given, ut.PowerLaw(1.0), evaluator="policy-aware", clip=clip)
        assert value == pytest.approx(found.entries[0].value)
        assert error == pytest.approx(found.sums.means().std_error[0])
        # The estimate's own error is that without the clip.
        assert found.entries[0].std_error == pytest.approx(curve.std_error[0])
        assert found.entries[0].clipping_bias == pytest.approx(value - curve.value[0])


def test_the_first_point_clips_nothing(log):
    scores = np.random.default_rng(0).random(log.n_documents)
    curve = ut.clip_curve(log, scores, ut.PowerLaw(1.0), evaluator="policy-aware")
    plain = ut.estimate(log, scores, ut.PowerLaw(1.0), evaluator="policy-aware").entries[0]
    assert curve.clipped_share[0] == 0
    assert curve.value[0] == pytest.approx(plain.value)
    assert np.all(np.diff(curve.clipped_share) >= 0)
    assert curve.clipped_share[-1] > 0


def test_where_all_sessions_show_one_list_both_curves_are_one():
    log = ut.simulate(ut.make_judged(150, 6, seed=4), "dla", n_sessions=3000, seed=4).log
    scores = np.random.default_rng(1).random(log.n_documents)
    clips = [0.2, 0.5, 1.0]
    one = ut.clip_curve(log, scores, ut.PowerLaw(1.0), clip=clips)
    two = ut.clip_curve(log, scores, ut.PowerLaw(1.0), clip=clips, evaluator="policy-aware")
    assert two.value == pytest.approx(one.value)
    assert two.clipped_share == pytest.approx(one.clipped_share)

"""The files of a run: the candidate always, the ranker where a step is safe."""

from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt._core.feature_table import OLD_RANK, with_old_rank


@pytest.fixture(scope="module")
def strong(tmp_path_factory):
    """A run on lists in the order of relevance, with features that hardly know it."""
    judged = ut.make_judged(n_queries=120, n_features=4, seed=2)
    order = judged.labels + 1e-6 * np.arange(len(judged))
    log = ut.simulate(judged, "dla", n_sessions=4000, seed=2, ranker=[order]).log
    folder = tmp_path_factory.mktemp("strong") / "run"
    options: dict[str, Any] = {
        "method": "balanced",
        "trees": 8,
        "threads": 1,
        "folds": 1,
        "bias": "power-law:1",
    }
    return ut.run(log, folder, **options)


def test_a_strong_old_order_stays(strong):
    assert strong.ranker is None
    assert strong.decision.shipped is None
    assert not (strong.folder / "ranker.untilt").exists()
    assert type(strong.candidate) is ut.LambdaMART
    assert "There is no ranker.untilt" in repr(strong)
    assert "candidate.untilt" in (strong.folder / "ranker.md").read_text(encoding="utf8")


def test_the_file_is_the_step_of_the_report(finished, made):
    step = finished.decision.held_out.step
    assert finished.decision.ships == step.w
    features = ut.read_log(made.log, documents=made.documents).features
    indptr = np.array([0, len(features)])
    rows = with_old_rank(features, finished.ranker.feature_names_, indptr)
    assert (OLD_RANK in finished.ranker.feature_names_) == (step.w < 1)
    scores, whole = finished.ranker.predict(rows), finished.candidate.predict(features)
    if step.w < 1:
        scores = scores + (1 - step.w) / step.old_spread * np.log(np.minimum(rows[:, -1], 250))
    assert np.corrcoef(scores, whole)[0, 1] == pytest.approx(1, abs=1e-6)


def test_several_logged_rankers_are_compared_with_the_best(finished):
    decision = finished.decision
    names = [each.name for each in decision.held_out.step.rankers]
    values = [each.value for each in decision.held_out.step.rankers]
    assert values[0] == max(values)
    assert decision.held_out.baseline.fields["rankers"] == (names[0],)
    assert "step" in [section.name for section in finished.view()]


def test_a_logged_score_is_what_the_step_starts_from(tmp_path, monkeypatch):
    from untilt.auditing.audit import Audit

    monkeypatch.setattr(Audit, "old_score", "f1", raising=False)
    judged = ut.make_judged(n_queries=120, n_features=4, seed=3)
    scores = judged.features[:, 0].astype(float)
    log = ut.simulate(judged, "dla", n_sessions=6000, seed=3, ranker=[scores]).log
    found = ut.run(
        log, tmp_path / "run", method="balanced", trees=8, threads=1, folds=1, bias="power-law:1"
    )
    assert found.decision.held_out.step.old == "f1"
    if found.ranker is not None:
        assert found.ranker.feature_names_ == found.candidate.feature_names_

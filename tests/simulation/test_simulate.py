"""The same seed gives the same log; sizes are what was asked for; options are checked."""

from typing import Any

import numpy as np
import pytest

from untilt import JudgedLists, catalog, make_judged, read_letor, simulate
from untilt.data.clicklog import check_log
from untilt.errors import OptionError, UntiltError
from untilt.simulation import protocols
from untilt.simulation.production import prepare, production_ranker
from untilt.simulation.sampler import distinct_sessions

ARRAYS = ("query_id", "doc_id", "doc_query", "indptr", "query", "document", "position", "label")
PROTOCOLS = [record.load() for record in catalog.methods("protocol")]
KINDS = pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.name)


def same(a, b) -> bool:
    if a.ranker_names != b.ranker_names or a.label_name != b.label_name:
        return False
    pairs = [(getattr(a, name), getattr(b, name)) for name in (*ARRAYS, "count", "features")]
    pairs += [(a.extra_labels.get(name), b.extra_labels.get(name)) for name in a.extra_labels]
    pairs += [(a.ranker, b.ranker)]
    return all(x is y is None or np.array_equal(x, y) for x, y in pairs)


# ---- the same seed, the same log


@KINDS
def test_threads_change_nothing(judged, kind):
    for collapse in (True, False):
        one = simulate(judged, kind(), n_sessions=5000, seed=9, n_threads=1, collapse=collapse)
        two = simulate(judged, kind(), n_sessions=5000, seed=9, n_threads=2, collapse=collapse)
        assert same(one.log, two.log)


@KINDS
def test_another_seed_is_another_log(judged, scores, kind):
    ranker = {"a": scores, "b": -scores} if kind.name == "harvest" else scores
    one, two = (simulate(judged, kind(), n_sessions=500, seed=s, ranker=ranker) for s in (1, 2))
    assert not same(one.log, two.log)


@KINDS
def test_collapsing_here_equals_collapsing_afterwards(judged, kind):
    plain = simulate(judged, kind(), n_sessions=4000, seed=2, collapse=False)
    collapsed = simulate(judged, kind(), n_sessions=4000, seed=2)
    assert plain.log.n_lists == plain.log.n_sessions == 4000
    assert same(plain.log.collapse(), collapsed.log)
    np.testing.assert_allclose(plain.truth.examination, collapsed.truth.examination)


@KINDS
def test_a_longer_log_begins_with_the_shorter_one(judged, kind):
    short = simulate(judged, kind(), n_sessions=300, seed=2, collapse=False).log
    long = simulate(judged, kind(), n_sessions=700, seed=2, collapse=False).log
    assert same(short, long.take(np.arange(300)))


@KINDS
def test_blocks_and_chunks_change_nothing(judged, kind):
    setting = prepare(
        judged,
        kind(),
        ranker=None,
        seed=0,
        depth=None,
        query_weights="zipf",
        max_label=None,
        in_turn=False,
    )
    whole = distinct_sessions(setting.plan, 900)
    assert whole[1].sum() == 900
    for block, chunk_rows in ((300, 2**21), (899, 500), (450, 1)):
        part = distinct_sessions(setting.plan, 900, block=block, chunk_rows=chunk_rows)
        assert np.array_equal(whole[0], part[0])
        assert np.array_equal(whole[1], part[1])


def test_lists_longer_than_a_word_of_bits(scores):
    """65 and more places need a second word; its clicks must count too."""
    judged = make_judged(n_queries=8, n_features=5, mean_docs=90, seed=1)
    assert np.diff(judged.indptr).max() > 128
    order = np.random.default_rng(0).random(len(judged))
    options: dict[str, Any] = {"n_sessions": 3000, "ranker": order}
    protocol = protocols.PRS(eta=0.1)
    plain = simulate(judged, protocol, collapse=False, **options).log
    assert plain.label[plain.position > 64].sum() > 0
    assert same(plain.collapse(), simulate(judged, protocol, **options).log)


def test_a_seed_may_be_a_generator_or_a_sequence(judged):
    for make in (np.random.default_rng, np.random.SeedSequence):
        one, two = (simulate(judged, n_sessions=100, seed=make(3)).log for _ in range(2))
        assert same(one, two)


@KINDS
def test_logs_keep_the_rules_of_logs(judged, kind):
    for collapse in (True, False):
        for keep in (True, False):
            log = simulate(judged, kind(), n_sessions=300, collapse=collapse, keep_unshown=keep).log
            check_log(log)
            with pytest.raises(ValueError, match="read-only"):
                log.label[0] = 1


# ---- how much


@pytest.mark.parametrize("n_clicks", [1, 17, 5000])
def test_sessions_end_with_the_click_that_was_asked_for(judged, n_clicks):
    log = simulate(judged, "prs", n_clicks=n_clicks, collapse=False).log
    last = log.label[log.indptr[-2] :].sum()
    assert log.label.sum() - last < n_clicks <= log.label.sum()


def test_clicks_asked_for_equal_the_sessions_that_bring_them(judged):
    by_clicks = simulate(judged, "dwell", n_clicks=3000).log
    assert same(by_clicks, simulate(judged, "dwell", n_sessions=by_clicks.n_sessions).log)


def test_every_query_gets_its_sessions(judged):
    sim = simulate(judged, sessions_per_query=7)
    assert np.bincount(sim.log.query, sim.log.sessions).tolist() == [7] * sim.log.n_queries
    assert sim.log.n_queries == judged.n_queries - len(sim.truth.training_queries)


def test_a_hundred_sessions_per_query_by_default(judged):
    log = simulate(judged).log
    assert log.n_sessions == 100 * log.n_queries


def test_time_is_the_number_of_the_session(judged):
    log = simulate(judged, n_sessions=50, collapse=False).log
    assert log.time.tolist() == list(range(50))
    early, late = log.split(0.4, by="time")
    assert (early.n_sessions, late.n_sessions) == (20, 30)


def test_depth_is_the_protocols_or_as_asked(judged, scores):
    def depth(protocol, **options):
        return simulate(judged, protocol, n_sessions=2000, ranker=scores, **options).log.depth

    longest = int(np.diff(judged.indptr).max())
    assert depth("dla") == 10
    assert depth("prs") == longest
    assert depth("prs", depth=4) == 4
    assert depth(protocols.DLA(depth=3)) == 3
    assert depth(protocols.DLA(depth=None)) == longest
    assert depth(protocols.Swap(clicks=protocols.DLA(depth=6))) == 6
    assert depth(protocols.Swap(clicks=protocols.DLA(depth=6), depth=8)) == 8


# ---- who shows the lists


def test_the_production_ranker_orders_the_lists_and_its_queries_are_left_out(judged):
    sim = simulate(judged, n_sessions=2000, seed=6)
    ranker = production_ranker(judged, seed=6)
    assert np.array_equal(sim.truth.training_queries, ranker.training_queries)
    assert len(ranker.training_queries) == 5
    assert not set(ranker.training_queries.tolist()) & set(sim.log.query_id.tolist())
    given = simulate(judged, n_sessions=2000, seed=6, ranker=ranker)
    assert same(sim.log, given.log)
    s = ranker.predict(sim.log.features)[sim.log.document]
    inside = np.diff(sim.log.position) == 1
    assert np.all(np.diff(s)[inside] <= 0)


def test_scores_are_a_ranker_and_leave_no_query_out(judged, scores):
    class Fitted:
        def predict(self, features):
            assert features.shape == judged.features.shape
            return scores

    by_array = simulate(judged, n_sessions=500, ranker=scores)
    for ranker in (Fitted(), scores.tolist(), {"mine": scores}, [scores]):
        assert same(by_array.log, simulate(judged, n_sessions=500, ranker=ranker).log)
    assert by_array.log.n_queries == judged.n_queries
    assert len(by_array.truth.training_queries) == 0


def test_equal_scores_stand_in_random_order():
    """Files are often sorted by label; a ranker that knows nothing must not profit from it."""
    labels = np.tile([4.0, 0, 0, 0], 400)
    judged = JudgedLists(np.zeros((1600, 1)), labels, np.arange(0, 1601, 4), np.arange(400))
    sim = simulate(judged, sessions_per_query=1, ranker=np.zeros(1600))
    first = sim.log.document[sim.log.position == 1]
    assert abs(np.mean(labels[first] == 4) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 400)


def test_unshown_candidates_stay_or_go(judged, scores):
    kept = simulate(judged, n_sessions=60, ranker=scores)
    cut = simulate(judged, n_sessions=60, ranker=scores, keep_unshown=False)
    assert kept.log.n_documents == len(judged)
    assert cut.log.n_documents == len(np.unique(kept.log.document))
    assert cut.log.n_queries == len(np.unique(kept.log.query))
    for name in ("count", "label", "position"):
        assert np.array_equal(getattr(kept.log, name), getattr(cut.log, name))
    for of_documents in ("doc_id", "features"):
        before, after = getattr(kept.log, of_documents), getattr(cut.log, of_documents)
        assert np.array_equal(before[kept.log.document], after[cut.log.document])
    assert np.array_equal(kept.log.query_id[kept.log.query], cut.log.query_id[cut.log.query])
    np.testing.assert_allclose(
        kept.truth.click_probabilities(kept.log), cut.truth.click_probabilities(cut.log)
    )
    labels = cut.truth.judged.labels[cut.log.document]
    assert np.array_equal(labels, judged.labels[kept.log.document])


@pytest.mark.parametrize("kind", [protocols.Cascade, protocols.Dwell], ids=lambda kind: kind.name)
def test_truth_of_what_was_shown_alone(judged, scores, kind):
    kept = simulate(judged, kind(), n_sessions=60, ranker=scores)
    cut = simulate(judged, kind(), n_sessions=60, ranker=scores, keep_unshown=False)
    np.testing.assert_allclose(
        kept.truth.expected_label(kept.log), cut.truth.expected_label(cut.log)
    )


# ---- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "dlaa"}, "Did you mean 'dla'?"),
        ({"protocol": "clicks"}, "protocol must be one of 'prs', 'dla'"),
        ({"protocol": protocols.DLA}, r"write DLA\(\), with parentheses"),
        ({"protocol": 3}, "protocol must be one of"),
        ({"n_sessions": 5, "n_clicks": 5}, "give only one of"),
        ({"n_sessions": 0}, "n_sessions must be at least 1. Got 0"),
        ({"sessions_per_query": -1}, "sessions_per_query must be at least 1"),
        ({"n_threads": 0}, "n_threads must be at least 1"),
        ({"depth": 0}, "depth must lie between 1 and 1,000"),
        ({"query_weights": "zip"}, "'uniform', 'zipf' or an array"),
        ({"query_weights": [1.0, 2.0]}, "one entry for each of the 120 queries"),
        ({"query_weights": np.full(120, -1.0)}, "finite and at least 0"),
        ({"query_weights": np.zeros(120)}, "0 for all queries"),
        ({"ranker": np.zeros(3)}, "one score for each of the 1,769 judged"),
        ({"ranker": "best"}, "must be an array of scores"),
        ({"max_label": 2}, "must not be below the highest label, 4"),
        ({"protocol": protocols.PRS(noise=0.5)}, r"noise must lie in \[0, 0.5\). Got 0.5"),
        ({"protocol": protocols.PRS(eta=-1)}, "eta must be at least 0"),
        ({"protocol": protocols.DLA(theta=-1)}, "theta must be at least 0"),
        ({"protocol": protocols.DLA(epsilon=2)}, "epsilon must lie between 0 and 1"),
        ({"protocol": protocols.DLA(examination=(1.2,) * 10)}, "Got 1.2 at position 1 instead"),
        ({"protocol": protocols.DLA(examination=(0.5, 0.2))}, "position 10 has no examination"),
        ({"protocol": protocols.Trust(eps_plus=(0.9,))}, "eps_plus must reach"),
        ({"protocol": protocols.Trust(eps_minus=(2.0,) * 10)}, "eps_minus must lie between"),
        ({"protocol": protocols.Cascade(beta=1.1)}, "beta must lie between 0 and 1"),
        ({"protocol": protocols.Cascade(satisfaction=-1)}, "satisfaction must lie"),
        ({"protocol": protocols.Dwell(spread=-1)}, "spread must be at least 0"),
    ],
    ids=lambda value: None if isinstance(value, str) else repr(value)[:40],
)
def test_wrong_options_are_refused(judged, options, message):
    with pytest.raises(UntiltError, match=message):
        simulate(judged, **options)


def test_scores_must_be_finite(judged, scores):
    broken = scores.copy()
    broken[7] = np.nan
    with pytest.raises(OptionError, match="Got nan for document row 7"):
        simulate(judged, n_sessions=5, ranker=broken)


def test_labels_must_hold_something_relevant():
    judged = JudgedLists(np.zeros((3, 1)), np.zeros(3), np.array([0, 3]), np.array([0]))
    with pytest.raises(OptionError, match="all labels are 0"):
        simulate(judged, n_sessions=5, ranker=[1, 2, 3])


def test_clicks_that_never_come_are_not_waited_for():
    judged = JudgedLists(np.zeros((2, 1)), np.array([1.0, 4]), np.array([0, 2]), np.array([0]))
    hidden = protocols.PRS(noise=0.0, depth=1)
    with pytest.raises(OptionError, match="sessions brought no click"):
        simulate(judged, hidden, n_clicks=5, ranker=[2, 1])


def test_no_query_left(judged):
    tiny = judged.take(np.arange(4))
    with pytest.raises(OptionError, match="no query is left for sessions"):
        simulate(tiny, n_sessions=5)


def test_queries_without_documents_have_no_sessions(scores):
    labels = np.array([0.0, 1, 2])
    judged = JudgedLists(
        np.zeros((3, 1)), labels, np.array([0, 0, 3, 3]), np.array(["a", "b", "c"])
    )
    sim = simulate(judged, n_sessions=50, ranker=[1.0, 2.0, 3.0])
    assert sim.log.query_id.tolist() == ["b"]


# ---- real data


def test_real_judged_lists(data_dir):
    judged = read_letor(data_dir / "mq2008" / "S1.txt.gz")
    sim = simulate(judged, "prs", n_clicks=2000)
    assert sim.log.extra_labels == {}
    assert np.array_equal(sim.truth.relevance, (sim.truth.judged.labels >= 1).astype(float))
    assert sim.log.label @ sim.log.row_count >= 2000

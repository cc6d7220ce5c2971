"""The worlds of benchmarks/bench_quality.py: clicks as stated, nothing of `ut.simulate`."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
SMALL = {"queries": 30, "sessions": 40}


@pytest.fixture(scope="module")
def q(benchmark_module):
    return benchmark_module("quality_world")


def settings(q):
    small = q.Setting(**SMALL)
    return [
        small,
        replace(small, protocol="prs", cut=0, rankers=1),
        replace(small, reader="trust"),
        replace(small, reader="cascade", cut=0),
        replace(small, uneven=True),
        replace(small, reader="mixed"),
        replace(small, protocol="flat", rankers=1),
        replace(small, protocol="top", personal=0.8),
    ]


def test_nothing_of_the_simulator_is_loaded():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import quality_world as q; "
        "q.make_world(q.Setting(queries=10, sessions=5), 0); "
        "bad = [m for m in sys.modules if m.startswith(('untilt.simulation', 'untilt.rankers', "
        "'untilt.bias'))]; sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", code, str(BENCHMARKS)], check=True)


def test_examination_and_worth_of_the_protocols(q):
    dla, prs = q.Setting(), q.Setting(protocol="prs")
    assert q.examination(dla, 20)[[0, 9, 19]] == pytest.approx([0.68, 0.06, 0.03])
    assert q.examination(prs, 4) == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4])
    labels = np.arange(5.0)
    assert q.relevance(labels, dla, top=4) == pytest.approx(
        [0.1, 0.1 + 0.9 / 15, 0.1 + 0.9 * 3 / 15, 0.1 + 0.9 * 7 / 15, 1.0]
    )
    assert q.relevance(labels, prs, top=4) == pytest.approx([0.1, 0.1, 0.1, 0.9, 0.9])
    assert q.relevance(labels[:3], prs, top=2) == pytest.approx([0.1, 0.9, 0.9])


def test_probability_of_clicks_by_hand(q):
    worth = np.array([0.5, 0.2, 1.0])
    theta = np.array([0.68, 0.61, 0.48])
    assert q.click_probability(worth, q.Setting()) == pytest.approx(theta * worth)
    plus, minus = np.array([0.98, 0.97, 0.96]), 0.65 / np.array([1, 2, 3])
    trusted = theta * (plus * worth + minus * (1 - worth))
    assert q.click_probability(worth, q.Setting(reader="trust")) == pytest.approx(trusted)
    second = 0.5 * 0.5 + 0.5 * 0.9
    third = second * (0.2 * 0.5 + 0.8 * 0.9)
    assert q.click_probability(worth, q.Setting(reader="cascade")) == pytest.approx(
        [0.5, second * 0.2, third * 1.0]
    )


@pytest.mark.parametrize("reader", ["pbm", "trust", "cascade", "mixed"])
@pytest.mark.parametrize("protocol", ["dla", "prs", "steep"])
def test_drawn_clicks_follow_it(q, reader, protocol):
    worth = np.array([0.9, 0.1, 0.4, 0.0, 1.0, 0.3])
    setting = q.Setting(reader=reader, protocol=protocol)
    n = 40_000
    rate = q.draw_clicks(worth, n, setting, np.random.default_rng(5)).mean(axis=0)
    wanted = q.click_probability(worth, setting)
    assert np.all(np.abs(rate - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / n) + 1e-12)


def test_worlds_are_what_their_names_say(q):
    def made(name, **changes):
        return q.make_world(replace(q.WORLDS[name], queries=30, **changes), 0)

    added = made("score-and-rank-1", sessions=3)
    score, rank = added.test.features[:, -2:].T
    assert score == pytest.approx(added.old[0].astype(np.float32))
    assert np.array_equal(rank, q.old_rank(added.test, added.old[0]))
    log = added.log
    assert np.array_equal(log.features[log.document, -1], log.position)  # one ranker, top ten
    assert np.diff(made("candidates-150").train.indptr).tolist() == [150] * 30
    sparse = q.make_world(replace(q.WORLDS["queries-5000"], queries=200), 0).log
    assert sparse.count.sum() / 200 == pytest.approx(1.4, abs=0.15)
    personal = made("personal", sessions=20).log
    assert personal.slates().n_groups > 0.9 * 30 * 20
    gaps = np.isnan(made("missing").log.features)
    assert 0.3 < gaps[:, ::2].mean() < 0.6
    assert not gaps[:, 1::2].any()
    strong, few = (made(name, sessions=1) for name in ("strong-1", "steep-curve"))
    ndcg = [q.ndcg_by_query(each.test, each.old[0]).mean() for each in (strong, few)]
    assert ndcg[0] > ndcg[1] + 0.05
    assert q.relevance(np.arange(5.0), q.WORLDS["top-grade"], top=4)[-1] == 0.9
    assert q.examination(q.WORLDS["flat-curve"], 2)[1] == pytest.approx(2**-0.3)


def test_clicks_of_a_log_follow_the_model(q):
    """Summed over all lists of a log, by position: within four standard errors."""
    for setting in settings(q):
        world = q.make_world(setting, seed=1)
        log, depth = world.log, world.log.depth
        clicks, wanted, variance = np.zeros(depth), np.zeros(depth), np.zeros(depth)
        for i in range(log.n_lists):
            rows = slice(log.indptr[i], log.indptr[i + 1])
            chance = q.click_probability(world.worth[log.document[rows]], setting)
            clicks[: len(chance)] += log.count[i] * log.label[rows]
            wanted[: len(chance)] += log.count[i] * chance
            variance[: len(chance)] += log.count[i] * chance * (1 - chance)
        assert np.all(np.abs(clicks - wanted) < 4 * np.sqrt(variance) + 1e-9), setting.name


def test_documents_nobody_was_shown_are_in_the_log(q):
    cut, whole = (q.make_world(replace(q.Setting(**SMALL), cut=cut), 0) for cut in (10, 0))
    assert cut.log.n_documents == len(cut.train) == whole.log.n_documents
    assert np.array_equal(cut.log.features, cut.train.features)
    assert len(np.unique(cut.log.document)) == cut.shown.sum() < len(cut.shown)
    assert cut.log.depth == 10
    assert whole.shown.all()
    assert whole.log.depth == np.diff(whole.train.indptr).max()
    assert len(cut.shown_train) == cut.shown.sum()


def test_every_query_gets_its_sessions(q):
    even, _, _, _, uneven, *_ = (q.make_world(each, 0).log for each in settings(q))
    of = [np.bincount(log.query, weights=log.count, minlength=30) for log in (even, uneven)]
    assert np.all(of[0] == 40)
    assert of[1].min() >= 1
    assert of[1].max() > 2 * of[1].mean()
    assert of[1].mean() == pytest.approx(40, rel=0.1)


def test_one_ranker_shows_one_list_and_three_show_several(q):
    def slates(log):
        return log.slates().n_groups / log.n_queries

    one, three = (q.make_world(replace(q.Setting(**SMALL), rankers=n), 0) for n in (1, 3))
    assert slates(one.log) == 1
    assert 2 < slates(three.log) <= 3
    assert one.log.ranker is None
    assert three.log.ranker_names == ("0", "1", "2")
    assert three.old.shape == (3, len(three.test))


def test_a_seed_is_a_world(q):
    first, again, other = (q.make_world(q.Setting(**SMALL), seed) for seed in (3, 3, 4))
    assert np.array_equal(first.log.label, again.log.label)
    assert np.array_equal(first.test.features, again.test.features)
    assert len(first.log.label) != len(other.log.label)
    assert first.train.n_queries == 30


def test_labels_are_graded_and_features_tell_of_them(q):
    world = q.make_world(q.Setting(queries=300, sessions=1), 0)
    train = world.train
    share = np.bincount(train.labels.astype(int)) / len(train)
    assert share == pytest.approx([0.50, 0.22, 0.14, 0.09, 0.05], abs=0.03)
    same = [np.ptp(train.features[: train.indptr[1]], axis=0) == 0]
    assert np.count_nonzero(same) >= 4  # columns of the query
    rng = np.random.default_rng(0)
    chance = q.ndcg_by_query(world.test, rng.random(len(world.test))).mean()
    old = [q.ndcg_by_query(world.test, each).mean() for each in world.old]
    assert chance < min(old)
    assert chance + 0.1 < np.mean(old)
    assert max(old) < 0.8


def test_ndcg_by_hand(q):
    from untilt import JudgedLists

    judged = JudgedLists(np.zeros((5, 1)), [2, 0, 1, 0, 1], [0, 3, 5], ["a", "b"])
    dcg = 1 / np.log2(3) + 3 / np.log2(4)
    best = 3 + 1 / np.log2(3)
    values = q.ndcg_by_query(judged, np.array([1.0, 3.0, 2.0, 0.0, 5.0]))
    assert values == pytest.approx([dcg / best, 1.0])
    assert q.ndcg_by_query(judged, np.array([1.0, 3.0, 2.0, 0.0, 5.0]), k=1) == pytest.approx(
        [0, 1]
    )


@pytest.mark.parametrize(
    ("data", "queries"), [("mq2008", 784), ("ohsumed", 106), ("mslr-sample", 86)]
)
def test_real_sets_have_five_parts(q, data, queries, data_dir, monkeypatch):
    monkeypatch.setattr(q, "DATA", data_dir)
    whole, part = q.real_set(data)
    assert whole.n_queries == queries
    assert len(np.unique(whole.query_id)) == queries
    assert set(part.tolist()) == {0, 1, 2, 3, 4}
    tests = [q.make_world(q.Setting(data=data, sessions=2), fold).test for fold in range(5)]
    assert len({each for test in tests for each in test.query_id}) == sum(
        test.n_queries for test in tests
    )


def test_a_sparse_set_in_plain_text_is_read(q, tmp_path, monkeypatch):
    (tmp_path / "small").mkdir()
    text = "2 qid:a 1:0.5 3:1 # one\n0 qid:a 2:4\n1 qid:b 1:7\n"
    (tmp_path / "small" / "all.txt").write_text(text)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("no judged set\n")
    monkeypatch.setattr(q, "DATA", tmp_path)
    assert q.real_sets() == ["small"]
    whole, part = q.real_set("small")
    assert whole.features.tolist() == [[0.5, 0, 1], [0, 4, 0], [7, 0, 0]]
    assert whole.labels.tolist() == [2, 0, 1]
    assert part.tolist() == [0, 1]


def test_labels_of_shown_are_the_most_that_clicks_could_say(q, benchmark_module):
    """All grades of what was shown, or two where readers click by two."""
    rows = benchmark_module("quality_rows")
    for setting in settings(q)[:2]:
        fits, seen = rows.Fits(q.make_world(setting, 0)), []
        fits._best_prefix = lambda _, judged, seen=seen: seen.append(judged)
        fits.shown_labels()
        told, shown = seen[0].labels, fits.world.shown
        labels, worth = fits.world.train.labels[shown], fits.world.worth[shown]
        assert len(told) == shown.sum()
        if setting.protocol == "prs":
            assert np.array_equal(told, labels > 2)
        else:
            assert np.array_equal(told, labels)
        assert np.array_equal(np.argsort(told, kind="stable"), np.argsort(worth, kind="stable"))

"""The old rank and the old score are found among the features, and no other feature is."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from untilt import audit, run
from untilt.auditing.sort_keys import left_out_of_curve, sort_keys
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError
from untilt.facts import codes

N, K = 60, 10
POSITION = np.broadcast_to(np.arange(1.0, K + 1), (N, K))


def log_of(features, length=None, first=None, **changes):
    """One list per query, of `length` (queries,) documents from position `first` (queries,) on."""
    length = np.full(N, K) if length is None else length
    shown = np.arange(K) < length[:, None]
    first = np.ones(N, dtype=int) if first is None else first
    n = int(shown.sum())
    columns = [np.broadcast_to(each, (N, K))[shown] for each in features.values()]
    values = {
        "query_id": np.arange(N), "doc_id": np.arange(n),
        "doc_query": np.repeat(np.arange(N), length),
        "indptr": np.concatenate([[0], np.cumsum(length)]), "query": np.arange(N),
        "document": np.arange(n), "position": (first[:, None] + np.arange(K))[shown],
        "label": (np.arange(n) % 4 == 0).astype(float), "features": np.column_stack(columns),
        "feature_names": tuple(features), "missing": "keep",
    }  # fmt: skip
    return ClickLog(**values | changes)


def kinds(log, **options):
    return {key.feature: key.kind for key in sort_keys(log, **options)}


def scores(rng, shape=(N, K)):
    """Scores of sorted lists, the highest on top; queries differ in their level."""
    return -np.sort(-rng.normal(size=shape), axis=1) + rng.normal(size=(shape[0], 1))


RNG = np.random.default_rng(0)
LENGTHS = RNG.integers(1, K + 1, N)
L = LENGTHS[:, None]
RANKS = {
    "as it is": POSITION,
    "scaled": 2.5 * POSITION - 7,
    "from the end": L - POSITION,
    "reciprocal": 1 / POSITION,
    "logarithm": np.log(POSITION),
    "discount": 1 / np.log2(1 + POSITION),
    "over the length": POSITION / L,
    "from 0 to 1": (POSITION - 1) / np.maximum(L - 1, 1),
    "over the candidates": POSITION / RNG.integers(20, 900, (N, 1)),
    "with noise": POSITION * (1 + 1e-6 * RNG.normal(size=(N, K))),
    "with gaps": np.where(RNG.random((N, K)) < 0.2, np.nan, POSITION),
    "wrong in few rows": np.where(RNG.random((N, K)) < 0.004, POSITION + 0.4, POSITION),
}
OTHERS = {
    "a score": (scores(RNG), "score"),
    "the lowest on top": (-scores(RNG), "score"),
    "of one level": (-np.sort(-RNG.random((N, K)), axis=1), "score"),
    "less a number of the query": (scores(RNG) - RNG.normal(size=(N, 1)), "score"),
    "rounded": (np.round(scores(RNG), 1), "score"),
    "known for most": (np.where(RNG.random((N, K)) < 0.2, np.nan, scores(RNG)), "score"),
    "of some lists": (np.where(np.arange(N)[:, None] < 20, scores(RNG), 1.0), None),
    "rarely known": (np.where(np.arange(N)[:, None] < 20, scores(RNG), np.nan), None),
    "correlated": (scores(RNG) + 0.4 * RNG.normal(size=(N, K)), None),
    "random": (RNG.normal(size=(N, K)), None),
    "of the query": (RNG.normal(size=(N, 1)), None),
    "constant": (np.ones((N, K)), None),
    "a rare flag": ((RNG.random((N, K)) < 0.05).astype(float), None),
    "a flag of the top": ((POSITION + RNG.integers(0, 4, (N, K)) < 5).astype(float), None),
}


@pytest.mark.parametrize("form", RANKS)
def test_a_rank_is_found_in_every_form(form):
    assert kinds(log_of({form: RANKS[form]}, LENGTHS)) == {form: "rank"}


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_position_does_not_explain_is_a_score_or_nothing(name):
    x, kind = OTHERS[name]
    assert kinds(log_of({name: x})) == ({} if kind is None else {name: kind})


@pytest.mark.parametrize("seed", range(20))
def test_a_good_feature_is_neither(seed):
    """Rank correlations of .9 with the position, also in lists of two and three."""
    rng = np.random.default_rng(seed)
    names = [f"f{j}" for j in range(20)]
    length = rng.integers(1, 4, N)
    features = {name: scores(rng) + 0.5 * rng.normal(size=(N, K)) for name in names}
    assert kinds(log_of(features)) == kinds(log_of(features, length)) == {}


def test_deep_lists_of_one_level():
    """The hundredth of a hundred uniform scores is nearly the same number in each list."""
    rng = np.random.default_rng(1)
    n, k = 30, 100
    x = -np.sort(-rng.random((n, k)), axis=1)
    features = np.column_stack([x.ravel(), np.tile(np.arange(k), n)])
    log = ClickLog(
        query_id=np.arange(n), doc_id=np.arange(n * k), doc_query=np.repeat(np.arange(n), k),
        indptr=np.arange(n + 1) * k, query=np.arange(n), document=np.arange(n * k),
        position=np.tile(np.arange(1, k + 1), n), label=np.zeros(n * k), features=features,
        feature_names=("score", "rank"),
    )  # fmt: skip
    assert kinds(log) == {"score": "score", "rank": "rank"}


def test_pages_of_their_own():
    rng = np.random.default_rng(2)
    first = 1 + K * rng.integers(0, 3, N)
    features = {
        "in page": POSITION, "in all": first[:, None] - 1 + POSITION, "score": scores(rng),
    }  # fmt: skip
    expected = {"in page": "rank", "in all": "rank", "score": "score"}
    assert kinds(log_of(features, first=first)) == expected


@pytest.mark.parametrize("length", [1, 2])
def test_short_lists(length):
    rng = np.random.default_rng(3)
    features = {"rank": POSITION, "score": scores(rng), "flag": rng.random((N, K)) < 0.5}
    expected = {} if length == 1 else {"rank": "rank", "score": "score"}
    assert kinds(log_of(features, np.full(N, length))) == expected


def test_one_query_shows_nothing():
    """Its documents are where they are: any value is explained by the position."""
    log = log_of({"score": scores(np.random.default_rng(0)), "rank": POSITION})
    assert kinds(log.take(np.arange(1))) == {}
    assert kinds(log.take(np.arange(3))) == {"score": "score", "rank": "rank"}


def test_the_correlation_is_the_mean_of_spearmans():
    rng = np.random.default_rng(4)
    x = np.round(scores(rng) + 0.03 * rng.normal(size=(N, K)), 1)
    (key,) = sort_keys(log_of({"score": x}, LENGTHS), old_score="score")
    slow = [spearmanr(row[:n], np.arange(n)).statistic for row, n in zip(x, LENGTHS, strict=True)
            if len(set(row[:n])) > 1]  # fmt: skip
    assert key.correlation == pytest.approx(np.mean(slow), abs=1e-12)


def test_counts_equal_repeated_sessions_and_clicks_do_not_matter():
    rng = np.random.default_rng(5)
    log = log_of({"score": scores(rng), "rank": POSITION, "f": rng.normal(size=(N, K))})
    lists = np.repeat(np.arange(N), rng.integers(1, 6, N))
    repeated = log.take(lists)
    clicked = repeated.with_label(rng.integers(0, 2, len(repeated.document)).astype(float))
    expected = sort_keys(repeated)
    assert [key.kind for key in expected] == ["score", "rank"]
    assert sort_keys(repeated.collapse()) == sort_keys(clicked) == expected
    assert sort_keys(repeated.take(rng.permutation(len(lists)))) == expected


def test_the_list_that_a_query_was_shown_most_often_counts():
    """A query with most of the sessions and orders that were shown once change nothing."""
    rng = np.random.default_rng(11)
    log = log_of({"score": scores(rng), "rank": POSITION})
    order = np.argsort(rng.random((300, K)), axis=1)
    jittered = log.take(np.zeros(300, dtype=int))._with(document=order.ravel().astype(np.int32))
    lists = [log.take(np.arange(N), count=np.full(N, 5)), jittered]
    both = log._with(
        indptr=np.arange(N + 301) * K, **{
            name: np.concatenate([getattr(each, name) for each in lists])
            for name in ("query", "document", "position", "label", "count")
        },
    )  # fmt: skip
    assert both.n_sessions == 5 * N + 300
    assert sort_keys(both) == sort_keys(log)


@pytest.mark.parametrize(("share", "found"), [(0.1, {"rank"}), (0.4, {"rank", "score"})])
def test_each_ranker_by_itself(share, found):
    """A rank of any ranker is one; the score of a ranker for few sessions, a price say, is not."""
    rng = np.random.default_rng(6)
    both = {"score": scores(rng), "rank": POSITION, "shuffled": POSITION}
    log = log_of(both)
    order = np.argsort(rng.random((N, K)), axis=1) + K * np.arange(N)[:, None]
    shuffled = log._with(document=order.ravel().astype(np.int32))
    sessions = np.full(N, round(1000 * share)), np.full(N, round(1000 * (1 - share)))
    joined = ClickLog(
        log.query_id, log.doc_id, log.doc_query, np.arange(2 * N + 1) * K, np.tile(log.query, 2),
        np.concatenate([log.document, shuffled.document]), np.tile(log.position, 2),
        np.tile(log.label, 2), np.concatenate(sessions), log.features[:, :2], ("score", "rank"),
        np.repeat([0, 1], N), ("one", "other"),
    )  # fmt: skip
    keys = sort_keys(joined)
    assert {key.feature for key in keys} == found
    assert all(key.share == pytest.approx(share) for key in keys)
    experiment = joined._with(ranker_names=("one", "shuffle"))
    assert kinds(experiment) == {"score": "score", "rank": "rank"}


def test_the_score_is_named():
    rng = np.random.default_rng(7)
    log = log_of({"other": scores(rng), "noisy": scores(rng) + rng.normal(size=(N, K)),
                  "rank": POSITION})  # fmt: skip
    keys = sort_keys(log, old_score="noisy")
    assert [(key.feature, key.kind) for key in keys] == [
        ("noisy", "score"), ("other", "score"), ("rank", "rank"),
    ]  # fmt: skip
    assert -0.9 < keys[0].correlation < -0.4
    assert left_out_of_curve(log, keys) == ("noisy", "other")
    with pytest.raises(OptionError, match=r"must name a feature.*'nosy'.*Did you mean 'noisy'"):
        sort_keys(log, old_score="nosy")
    with pytest.raises(OptionError, match=r"'rank', which is the rank"):
        sort_keys(log, old_score="rank")
    with pytest.raises(OptionError, match="must name a feature"):
        sort_keys(log._with(features=None, feature_names=()), old_score="rank")


def test_a_curve_takes_the_score_where_there_is_nothing_else():
    rng = np.random.default_rng(8)
    log = log_of({"score": scores(rng), "one": np.ones((N, K))})
    assert left_out_of_curve(log, sort_keys(log)) == ()


def test_the_audit_names_both_and_builds_nothing_on_the_rank():
    rng = np.random.default_rng(9)
    x = scores(rng)
    found = audit(log_of({"score": x, "f": rng.normal(size=(N, K)), "rank": POSITION}))
    assert (found.old_score, found.kept_out(), found.kept_out(["rank"])) == ("score", ("rank",), ())
    assert "audit.old-score" in codes(found.notes)
    (rank,) = (fact for fact in found.warnings if fact.code == "audit.old-rank")
    assert rank.fields["feature"] == "rank"
    alone = audit(log_of({"rank": POSITION}))
    nothing = audit(log_of({"one": np.ones((N, K))}))
    assert alone.advice == nothing.advice
    assert alone.reading == nothing.reading
    assert found.to_dict()["old_score"] == "score"


def test_a_run_keeps_the_rank_out_and_estimates_the_curve_without_the_score(tmp_path):
    """The curve is what it is on the log without both; the ranker has the score."""
    log = clicked_log()
    options: dict[str, Any] = {"method": "clicks", "trees": 5, "threads": 1, "seed": 0}
    without = log._with(features=log.features[:, :1], feature_names=("f",))
    both, neither = (run(e, tmp_path / str(i), **options) for i, e in enumerate((log, without)))
    assert both.decision.kept_out == ("rank",)
    assert both.ranker.feature_names_ == ("f", "score")
    np.testing.assert_array_equal(both.bias.examination, neither.bias.examination)
    assert "audit.old-rank-kept-out" in codes(both.warnings)
    named = run(log, tmp_path / "named", features="f,score,rank", old_score="score", **options)
    assert named.decision.kept_out == ()
    assert "audit.old-rank-used" in codes(named.warnings)


def clicked_log():
    """60 queries x 40 sessions by one ranker; a feature that explains relevance, score and rank."""
    rng = np.random.default_rng(10)
    x = scores(rng)
    grade = (x + rng.normal(size=x.shape) > 0).astype(float)
    relevance = 0.1 + 0.8 * grade
    log = log_of({"f": grade + 0.1 * rng.normal(size=x.shape), "score": x, "rank": POSITION})
    log = log.take(np.repeat(np.arange(N), 40))
    seen = rng.random((N * 40, K)) < 1 / POSITION[0]
    clicks = seen & (rng.random(seen.shape) < np.repeat(relevance, 40, axis=0))
    return log.with_label(clicks.ravel().astype(float)).collapse()

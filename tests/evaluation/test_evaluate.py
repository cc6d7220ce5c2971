"""evaluate: means with intervals over queries, and paired differences."""

import json

import numpy as np
import pytest
from scipy import stats

from untilt import JudgedLists
from untilt.errors import OptionError, ShapeError
from untilt.evaluation.judged import Evaluation, evaluate
from untilt.metrics import ARP, MAP, NDCG

METRICS = ["ndcg@10", "map", "arp"]


def make_judged(rng: np.random.Generator, n_queries: int = 40) -> JudgedLists:
    lengths = rng.integers(1, 12, n_queries)
    indptr = np.r_[0, np.cumsum(lengths)]
    return JudgedLists(
        features=rng.normal(size=(indptr[-1], 3)),
        labels=rng.integers(0, 3, indptr[-1]),
        indptr=indptr,
        query_id=[f"query {i}" for i in range(n_queries)],
    )


@pytest.fixture
def judged(rng: np.random.Generator) -> JudgedLists:
    return make_judged(rng)


@pytest.fixture
def scores(judged: JudgedLists, rng: np.random.Generator) -> np.ndarray:
    return judged.labels + rng.normal(size=len(judged))


def test_mean_error_and_interval_over_queries(judged: JudgedLists, scores: np.ndarray) -> None:
    entry = evaluate(judged, scores, METRICS, level=0.9)["ndcg@10"]
    values = NDCG(10).per_list(scores, judged.labels, judged.indptr)
    n = judged.n_queries
    assert entry.metric == NDCG(10)
    assert entry.n_queries == n
    np.testing.assert_array_equal(entry.per_query, values)
    assert entry.value == pytest.approx(values.mean())
    assert entry.std_error == pytest.approx(values.std(ddof=1) / np.sqrt(n))
    low, high = stats.t.interval(0.9, n - 1, loc=values.mean(), scale=stats.sem(values))
    assert (entry.interval.low, entry.interval.high) == (pytest.approx(low), pytest.approx(high))
    assert entry.interval.level == 0.9


def test_access_by_name_metric_and_iteration(judged: JudgedLists, scores: np.ndarray) -> None:
    evaluation = evaluate(judged, scores, METRICS)
    assert evaluation["NDCG@10"] is evaluation[NDCG(10)]
    assert [str(entry.metric) for entry in evaluation] == METRICS
    assert evaluation.metrics == (NDCG(10), MAP(), ARP())
    assert len(evaluation) == 3
    assert "map" in evaluation
    assert "mrr" not in evaluation
    assert list(evaluation.per_query) == METRICS
    assert evaluation.per_query["map"] is evaluation["map"].per_query
    with pytest.raises(OptionError, match=r"no metric 'ndcg@5' here. Did you mean 'ndcg@10'"):
        evaluation["ndcg@5"]
    assert json.loads(json.dumps(evaluation.to_dict()))["map"]["n_queries"] == judged.n_queries


def test_a_single_metric_and_the_default_ones(judged: JudgedLists, scores: np.ndarray) -> None:
    assert evaluate(judged, scores, "arp").metrics == (ARP(),)
    assert evaluate(judged, scores).metrics == (NDCG(10), MAP())


def test_anything_that_predicts_gives_the_scores(judged: JudgedLists) -> None:
    class Weighted:
        def predict(self, features: np.ndarray) -> np.ndarray:
            return features @ np.array([1.0, -2.0, 0.5])

    by_object = evaluate(judged, Weighted(), METRICS)
    by_array = evaluate(judged, judged.features @ np.array([1.0, -2.0, 0.5]), METRICS)
    for metric in METRICS:
        assert by_object[metric].value == by_array[metric].value


def test_everything_is_read_only(judged: JudgedLists, scores: np.ndarray) -> None:
    weights = np.ones(judged.n_queries)
    evaluation = evaluate(judged, scores, weights=weights)
    with pytest.raises(AttributeError):
        evaluation.level = 0.5  # type: ignore[misc]
    for array in (evaluation["map"].per_query, evaluation.weights, evaluation.query_id):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(TypeError):
        evaluation.per_query["map"] = 0  # type: ignore[index]
    assert weights.flags.writeable
    assert scores.flags.writeable


def test_weights_count_queries_several_times(judged: JudgedLists, scores: np.ndarray) -> None:
    weights = np.arange(judged.n_queries) % 4
    repeated = np.repeat(np.arange(judged.n_queries), weights)
    rows = [np.arange(judged.indptr[q], judged.indptr[q + 1]) for q in repeated]
    weighted = evaluate(judged, scores, METRICS, weights=weights)
    plain = evaluate(judged.take(repeated), scores[np.concatenate(rows)], METRICS)
    for metric in METRICS:
        assert weighted[metric].value == pytest.approx(plain[metric].value, rel=1e-12)
    assert weighted["map"].n_queries == np.count_nonzero(weights)


def test_rules_reach_the_metrics() -> None:
    judged = JudgedLists(
        features=np.zeros((5, 1)), labels=[1, 0, 0, 0, 0], indptr=[0, 3, 5], query_id=[1, 2]
    )
    tied = np.zeros(5)
    assert evaluate(judged, tied, "mrr")["mrr"].value == pytest.approx((1 + 1 / 2 + 1 / 3) / 3 / 2)
    optimistic = evaluate(judged, tied, "mrr", ties="optimistic", empty="skip")
    assert optimistic["mrr"].value == 1
    assert optimistic["mrr"].n_queries == 1
    assert (optimistic.ties, optimistic.empty) == ("optimistic", "skip")
    assert evaluate(judged, tied, "mrr", ties="pessimistic", empty="one")["mrr"].value == (
        pytest.approx((1 / 3 + 1) / 2)
    )


def test_one_query_has_no_interval(judged: JudgedLists, scores: np.ndarray) -> None:
    one = judged.take([3])
    entry = evaluate(one, scores[judged.indptr[3] : judged.indptr[4]])["map"]
    assert np.isnan(entry.std_error)
    assert entry.interval.low == -np.inf
    assert entry.interval.high == np.inf


def test_repr_is_a_table(judged: JudgedLists, scores: np.ndarray) -> None:
    evaluation = evaluate(judged, scores, METRICS)
    lines = repr(evaluation).splitlines()
    assert lines[0] == (
        "Evaluation on 40 judged queries (ties: average; queries without a relevant document: zero)"
    )
    assert lines[1].split() == ["metric", "mean", "std", "error", "95%", "interval", "queries"]
    assert lines[2].split()[:2] == ["ndcg@10", f"{evaluation['ndcg@10'].value:.4f}"]
    assert lines[4].startswith("  arp (lower is better)")
    assert len({len(line) for line in lines[1:]}) == 1
    assert evaluation._repr_html_().startswith("<h4>Evaluation on 40 judged queries")
    assert repr(evaluation["map"]).startswith(f"map {evaluation['map'].value:.4f} +- ")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"metrics": ["ndgc@10"]}, OptionError, "Did you mean 'ndcg'"),
        ({"metrics": []}, OptionError, "no metric was asked for"),
        ({"level": 95}, OptionError, "level must lie between 0 and 1. Got 95"),
        ({"scores": np.zeros(3)}, ShapeError, "scores and labels must be flat arrays"),
        ({"scores": np.full(5, np.nan)}, OptionError, "scores must not be NaN: 5 are"),
        ({"weights": [1.0]}, ShapeError, r"weights must have shape \(2,\)"),
        ({"ties": "random"}, OptionError, "ties must be one of"),
    ],
)
def test_errors(change: dict, error: type, message: str) -> None:
    judged = JudgedLists(
        features=np.zeros((5, 1)), labels=[1, 0, 0, 0, 0], indptr=[0, 3, 5], query_id=[1, 2]
    )
    with pytest.raises(error, match=message):
        evaluate(judged, **({"scores": np.zeros(5), "metrics": "map"} | change))


# ---- two rankers


@pytest.fixture
def pair(judged: JudgedLists, rng: np.random.Generator) -> tuple[Evaluation, Evaluation]:
    better = judged.labels + 0.5 * rng.normal(size=len(judged))
    return evaluate(judged, better, METRICS), evaluate(
        judged, rng.normal(size=len(judged)), METRICS
    )


def test_minus_is_the_paired_t_test(pair: tuple[Evaluation, Evaluation]) -> None:
    first, second = pair
    comparison = first.minus(second)
    assert comparison.metrics == first.metrics
    for metric in ("ndcg@10", "map"):
        a, b = first[metric].per_query, second[metric].per_query
        theirs = stats.ttest_rel(a, b)
        ours = comparison[metric]
        assert ours.value == pytest.approx((a - b).mean())
        assert ours.p_value == pytest.approx(theirs.pvalue, rel=1e-9)
        assert ours.interval.low == pytest.approx(theirs.confidence_interval(0.95).low)
        assert ours.interval.high == pytest.approx(theirs.confidence_interval(0.95).high)
        np.testing.assert_array_equal(ours.per_query, a - b)
    assert comparison["ndcg@10"].value > 0 > comparison["arp"].value


def test_minus_itself_is_nothing_and_the_other_way_is_negative(
    pair: tuple[Evaluation, Evaluation],
) -> None:
    first, second = pair
    same = first.minus(first)["map"]
    assert (same.value, same.std_error, same.p_value) == (0, 0, 1)
    one, other = first.minus(second)["map"], second.minus(first)["map"]
    assert one.value == pytest.approx(-other.value)
    assert one.p_value == pytest.approx(other.p_value)


def test_minus_keeps_what_both_have(judged: JudgedLists, scores: np.ndarray) -> None:
    one, other = evaluate(judged, scores, ["map", "mrr"]), evaluate(judged, scores, ["arp", "mrr"])
    assert [str(metric) for metric in one.minus(other).metrics] == ["mrr"]
    with pytest.raises(OptionError, match="share no metric: map, mrr against arp"):
        one.minus(evaluate(judged, scores, "arp"))


def test_minus_leaves_out_what_neither_values(judged: JudgedLists, scores: np.ndarray) -> None:
    one = evaluate(judged, scores, "map:relevant_from=2", empty="skip")
    comparison = one.minus(evaluate(judged, -scores, "map:relevant_from=2", empty="skip"))
    entry = comparison["map:relevant_from=2"]
    assert entry.n_queries == one["map:relevant_from=2"].n_queries < judged.n_queries


def test_minus_of_a_single_query_has_no_p_value(judged: JudgedLists, scores: np.ndarray) -> None:
    few, own = judged.take([3]), scores[judged.indptr[3] : judged.indptr[4]]
    assert np.isnan(evaluate(few, own).minus(evaluate(few, -own))["map"].p_value)


def test_minus_needs_the_same_queries_weights_and_rule(
    judged: JudgedLists, scores: np.ndarray
) -> None:
    one = evaluate(judged, scores)
    with pytest.raises(ShapeError, match=r"same queries in the same order\. Got 40 and 39"):
        one.minus(evaluate(judged.take(np.arange(39)), scores[: judged.indptr[39]]))
    with pytest.raises(OptionError, match="weigh queries differently"):
        one.minus(evaluate(judged, scores, weights=np.arange(40)))
    with pytest.raises(OptionError, match="differently: 'zero' and 'skip'"):
        one.minus(evaluate(judged, scores, empty="skip"))


def test_comparison_repr(pair: tuple[Evaluation, Evaluation]) -> None:
    comparison = pair[0].minus(pair[1])
    lines = repr(comparison).splitlines()
    assert lines[0] == "Comparison, first minus second, paired over 40 queries"
    assert lines[1].split() == ["metric", "difference", "std", "error", "95%", "interval", "p"]
    assert f"{comparison['map'].value:+.4f}" in lines[3]
    assert repr(comparison["map"]).startswith(f"map {comparison['map'].value:+.4f} +- ")


def test_interval_covers_the_mean_of_the_population(rng: np.random.Generator) -> None:
    population = make_judged(rng, 4000)
    scores = population.labels + rng.normal(size=len(population))
    values = NDCG(10).per_list(scores, population.labels, population.indptr)
    truth = values.mean()
    covered = 0
    for _ in range(200):
        drawn = rng.choice(4000, size=50, replace=False)
        rows = [np.arange(population.indptr[q], population.indptr[q + 1]) for q in drawn]
        entry = evaluate(population.take(drawn), scores[np.concatenate(rows)], "ndcg@10")["ndcg@10"]
        covered += truth in entry.interval
    # 95% of 200 is 190 with a standard deviation of 3.1; four of those either way.
    assert 178 <= covered <= 200

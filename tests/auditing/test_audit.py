"""An audit on logs small enough to count by hand, and on simulated ones whose truth is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import ClickLog, PositionBias, audit, catalog, make_judged, simulate
from untilt._core import codec
from untilt.auditing.audit import Audit
from untilt.auditing.checks import by_curve, by_prediction
from untilt.data.counts import position_counts
from untilt.errors import OptionError
from untilt.facts import codes
from untilt.simulation.protocols import DLA, Shuffle, Swap


def small_log(**changes) -> ClickLog:
    """Query 7: documents 0, 1, 2 shown (1, 2) twice, then (2, 1); 2 is never shown.

    Query 8: document 3 at position 1 and 4 at position 3, with 3 again at position 4.
    """
    made: dict[str, Any] = {
        "query_id": [7, 8],
        "doc_id": ["a", "b", "c", "a", "b"],
        "doc_query": [0, 0, 0, 1, 1],
        "indptr": [0, 2, 4, 7],
        "query": [0, 0, 1],
        "count": [2, 1, 1],
        "document": [0, 1, 1, 0, 3, 4, 3],
        "position": [1, 2, 1, 2, 1, 3, 4],
        "label": [1, 0, 1, 1, 0, 0, 0],
        "features": [[1, 5, np.nan], [2, 5, 1], [3, 5, 1], [4, 5, np.nan], [5, 5, 1]],
        "feature_names": ("price", "currency", "stars"),
        "ranker": [0, 1, 1],
        "ranker_names": ("old", "new", "unused"),
    }
    return ClickLog(**(made | changes))


def repeated(log: ClickLog) -> ClickLog:
    """Each list once per session, in another order."""
    lists = np.repeat(np.arange(log.n_lists), log.sessions)[::-1]
    return log.take(lists, count=np.ones(len(lists), dtype=np.int64))


def fields(facts):
    """Code -> fields of some facts."""
    return {fact.code: fact.fields for fact in facts}


@pytest.fixture(scope="module")
def judged():
    return make_judged(n_queries=250, n_features=12, seed=3)


@pytest.fixture(scope="module")
def audits(judged) -> dict[str, Audit]:
    protocols: dict[str, Any] = {
        "dla": DLA(),
        "harvest": "harvest",
        "pivot": Swap(pivot=2),
        "adjacent": Swap(adjacent=True),
        "shuffle": Shuffle(top=4, share=0.5),
    }
    return {
        name: audit(simulate(judged, protocol, n_sessions=15_000, seed=1, n_threads=2).log)
        for name, protocol in protocols.items()
    }


# ---- facts, by hand


def test_size_and_shape():
    size = audit(small_log()).size
    assert size.sessions == 2 + 1 + 1
    assert size.distinct_lists == 3
    assert (size.queries, size.queries_with_sessions, size.documents) == (2, 2, 5)
    assert size.impressions == 2 * 2 + 2 + 3
    assert size.clicks == 2 + 1 + 1
    assert (size.deepest_position, size.shortest_list, size.median_list) == (4, 2, 2)
    assert size.features == 3


def test_click_rates_and_positions():
    found = audit(small_log())
    np.testing.assert_array_equal(found.click_rates.impressions, [4, 3, 1, 1])
    np.testing.assert_allclose(found.click_rates.rate, [3 / 4, 1 / 3, 0, 0])
    assert np.all(found.click_rates.low <= found.click_rates.rate)
    assert found.positions_without_click == (3, 4)
    assert found.positions_never_shown == ()
    assert found.share_without_click == 1 / 4


def test_positions_that_no_list_shows():
    log = small_log(position=[1, 2, 1, 2, 1, 4, 5])
    assert audit(log).positions_never_shown == (3,)
    assert fields(audit(log).warnings)["audit.positions-never-shown"] == {"positions": (3,)}


def test_gaps_duplicates_and_rankers():
    found = audit(small_log())
    assert found.sessions_with_gaps == 1  # query 8 has no position 2
    assert found.duplicate_impressions == 1  # document 3 of query 8, at 1 and again at 4
    assert dict(found.rankers) == {"old": 2, "new": 2}
    three_times = small_log(document=[0, 1, 1, 0, 3, 3, 3], count=[2, 1, 5])
    assert audit(three_times).duplicate_impressions == 2 * 5


def test_features_constant_and_missing():
    found = audit(small_log())
    assert found.constant_features == ("currency", "stars")
    assert dict(found.missing_features) == {"stars": 2 / 5}
    without = audit(small_log(features=None, feature_names=()))
    assert without.constant_features == ()
    assert "audit.no-features" in codes(without.warnings)


def test_how_much_of_the_candidates_was_shown():
    found = audit(small_log()).coverage
    assert (found.candidates, found.shown) == (5, 4)
    assert found.share == 4 / 5
    assert found.median_share == (2 / 3 + 1) / 2
    assert found.lowest_share == 2 / 3
    assert found.queries_shown_whole == 1
    assert found.unshown == 1
    told = next(each for each in audit(small_log()).notes if each.code == "audit.coverage")
    assert told.fields["unshown"] == 1
    assert told.fields["share"] == pytest.approx(1 / 5)
    assert told.fields["queries"] == 1 / 2


def test_a_log_of_shown_documents_says_that_it_knows_no_others():
    log = small_log()
    never = np.setdiff1d(np.arange(log.n_documents), log.document)
    assert "audit.all-shown" not in codes(audit(log).notes)
    whole = log.take(log.query != log.doc_query[never[0]])
    assert "audit.all-shown" in codes(audit(whole).notes)


def test_candidates_of_queries_without_sessions_do_not_count():
    log = small_log()
    found = audit(log.take(np.array([0, 1]))).coverage
    assert (found.candidates, found.shown) == (3, 2)


# ---- the graph and the verdict


def test_positions_that_share_documents_are_joined():
    found = audit(small_log())
    assert found.graph.components == ((1, 2, 4), (3,))
    assert found.comparable == (1, 2)  # nobody clicked at 4
    assert found.not_comparable == (3, 4)
    assert not found.is_identified
    edges = {(edge.upper, edge.lower): edge.documents for edge in found.graph.edges}
    assert edges == {(1, 2): 2, (1, 4): 1}


def test_the_verdict_names_the_groups_and_the_swaps(audits):
    split = audits["shuffle"]
    assert split.comparable == (1, 2, 3, 4)
    assert split.not_comparable == (5, 6, 7, 8, 9, 10)
    apart, joining = split.verdict.parts[0], split.verdict.parts[-1]
    assert apart.code == "audit.positions-apart"
    assert apart.fields["positions"] == (5, 6, 7, 8, 9, 10)
    assert joining.code == "audit.swaps-that-join"
    assert joining.fields["pairs"][:2] == ((1, 5), (1, 6))
    assert [(swap.upper, swap.lower) for swap in split.graph.swaps] == [
        (1, k) for k in range(5, 11)
    ]
    whole = audits["harvest"]
    assert whole.is_identified
    assert whole.not_comparable == ()
    assert whole.verdict.startswith("Yes")


def test_evidence_is_the_curve_of_all_pairs(judged):
    from untilt import AllPairs

    log = simulate(judged, "harvest", n_sessions=5_000, seed=2, n_threads=2).log
    found = audit(log, level=0.9)
    expected = AllPairs(level=0.9).fit(log).bias_
    np.testing.assert_allclose(found.evidence.high, expected.high)
    factor = np.sqrt(expected.high / expected.low).max()
    precision = found.verdict.part("audit.precision")
    assert precision.fields["factor"] == pytest.approx(factor)
    assert ("audit.wide-interval" in codes(found.warnings)) == (factor > 1.5)


# ---- advice


@pytest.mark.parametrize(
    ("protocol", "estimator", "options"),
    [
        ("harvest", "AllPairs", {}),
        ("pivot", "PivotSwap", {"pivot": 2}),
        ("adjacent", "AdjacentSwap", {}),
        ("shuffle", "ShuffledTop", {}),
        ("dla", "RegressionEM", {}),
    ],
)
def test_each_protocol_gets_the_estimator_made_for_it(audits, protocol, estimator, options):
    advice = audits[protocol].advice
    assert advice.estimator == estimator
    assert dict(advice.options) == options
    assert advice.believes
    assert advice.why
    assert f"untilt.{estimator}(" in advice.call
    assert f"--method {catalog.find('bias', estimator).name}" in advice.command


@pytest.mark.parametrize("protocol", ["harvest", "pivot", "adjacent", "shuffle"])
def test_what_is_advised_can_be_fitted(judged, protocol):
    """The call in the advice is Python that runs on the log."""
    import untilt

    made: dict[str, Any] = {
        "pivot": Swap(pivot=2),
        "adjacent": Swap(adjacent=True),
        "shuffle": Shuffle(top=4),
    }
    chosen = made.get(protocol, protocol)
    log = simulate(judged, chosen, n_sessions=15_000, seed=1, n_threads=2).log
    found = eval(audit(log).advice.call, {"untilt": untilt, "log": log})
    assert found.depth == (4 if protocol == "shuffle" else 10)


def test_without_features_a_log_that_falls_apart_needs_a_swap(judged):
    log = simulate(judged, DLA(), n_sessions=3_000, seed=1, n_threads=2).log
    advice = audit(replace(log, features=None, feature_names=())).advice
    assert advice.estimator == ""
    assert "untilt plan" in advice.command
    assert advice.why.part("audit.swap-positions").fields["pairs"][0] == (1, 2)
    steps = audit(log._with(features=None, feature_names=())).next_steps
    assert codes(steps) == ["audit.use-none", "audit.on-command-line"]


def test_partly_joined_without_features_is_all_pairs_on_top(judged):
    log = simulate(judged, Shuffle(top=4), n_sessions=6_000, seed=1, n_threads=2).log
    nameless = replace(log, features=None, feature_names=(), ranker=None, ranker_names=())
    advice = audit(nameless).advice
    assert (advice.estimator, dict(advice.options)) == ("AllPairs", {"depth": 4})
    assert advice.why.part("audit.below").fields == {"depth": 4}


def test_positions_that_deeper_ones_join_are_not_asked_of_an_estimator(make_log):
    """3 shares a document with 5 alone, and 5 with 1; nothing joins 4: cut there, 3 is lost."""
    log = make_log(
        [
            (0, [1, 2, None, None, None], [1, 2], 3, "a"),
            (0, [2, 1, None, None, None], [1, 2], 2, "b"),
            (1, [1, None, 2, None, 3], [1, 2, 3], 2, "a"),
            (1, [3, None, 4, 5, 1], [3, 1, 4], 1, "b"),
            (1, [3, None, 4, 5, 2], [3, 2, 4], 1, "b"),
        ]
    )
    found = audit(log._with(features=None, feature_names=()))
    assert found.comparable == (1, 2, 3, 5)
    assert found.evidence is not None
    assert found.evidence.depth == 2
    assert (found.advice.estimator, dict(found.advice.options)) == ("AllPairs", {"depth": 2})


def one_off_queries(log: ClickLog) -> ClickLog:
    """Every session asks a query of its own."""
    log = repeated(log)
    start = np.zeros(len(log.document), dtype=bool)
    start[log.indptr[:-1]] = True
    owner = np.cumsum(start) - 1
    return ClickLog(
        query_id=np.arange(log.n_lists),
        doc_id=log.document,
        doc_query=owner,
        indptr=log.indptr,
        query=np.arange(log.n_lists),
        document=np.arange(len(log.document)),
        position=log.position,
        label=log.label,
        ranker=log.ranker,
        ranker_names=log.ranker_names,
    )


def test_one_off_queries_are_compared_by_length_or_by_shuffle(judged):
    swapped = simulate(judged, Swap(), n_sessions=8_000, seed=1, n_threads=2).log
    advice = audit(one_off_queries(swapped)).advice
    assert advice.estimator == "PivotSwap"
    assert dict(advice.options) == {"pivot": 1, "within": "length"}
    shuffled = simulate(judged, Shuffle(), n_sessions=4_000, seed=1, n_threads=2).log
    assert audit(one_off_queries(shuffled)).advice.estimator == "ShuffledTop"


@pytest.mark.parametrize("names", [("swap:1-2", "swap:1-4"), ("swap:1-2", "swap:3-4")])
def test_swaps_with_a_hole_are_not_sent_to_an_estimator_that_refuses_them(names):
    """Position 3 was never swapped with 1, nor 2 with 3; both swap estimators would raise."""
    a, b = ([int(k) - 1 for k in name[5:].split("-")] for name in names)
    lists = [np.arange(4) for _ in range(3)]
    lists[1][a] = lists[1][a[::-1]]
    lists[2][b] = lists[2][b[::-1]]
    log = ClickLog(
        query_id=[7],
        doc_id=np.arange(4),
        doc_query=np.zeros(4, dtype=int),
        indptr=np.arange(0, 25, 4),
        query=np.zeros(6, dtype=int),
        count=[50] * 6,
        document=np.concatenate([*lists, *lists]),
        position=np.tile([1, 2, 3, 4], 6),
        label=np.repeat([1.0, 0.0], 12),
        ranker=[0, 1, 2] * 2,
        ranker_names=("base", *names),
    )
    advice = audit(log).advice
    assert (advice.estimator, dict(advice.options)) == ("AllPairs", {"depth": 2})


def test_nothing_to_learn_is_said():
    dead = audit(small_log(label=np.zeros(7)))
    assert dead.advice.estimator == ""
    assert dead.advice.why.code == "audit.nobody-clicked"
    assert codes(dead.verdict) == ["audit.no-clicks-at-all"]
    alone = audit(small_log().top(1))
    assert alone.advice.why.code == "audit.no-bias"
    assert codes(alone.verdict) == ["audit.one-position"]


# ---- position and relevance


def true_correlation(simulation) -> float:
    """Of position and true relevance, over impressions and within queries."""
    log = simulation.log
    n = log.row_count
    query = np.repeat(log.query, np.diff(log.indptr))
    relevance = simulation.truth.relevance[log.document]
    centred = [
        x - (np.bincount(query, n * x) / np.maximum(1, np.bincount(query, n)))[query]
        for x in (relevance, log.position)
    ]
    (gg, gk), (_, kk) = (np.sum([[n * x * y for y in centred] for x in centred], axis=2)).tolist()
    return gk / np.sqrt(gg * kk)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("protocol", [Swap(), Shuffle(), Shuffle(share=0.1)], ids=repr)
def test_correlation_by_the_curve_is_the_true_one(judged, protocol, seed):
    labels = judged.labels + np.random.default_rng(seed).normal(size=len(judged))
    made = simulate(judged, protocol, ranker=labels, n_sessions=20_000, seed=seed, n_threads=2)
    found = audit(made.log).relevance
    truth = true_correlation(made)
    assert abs(found.correlation - truth) < 4 * found.std_error
    assert found.std_error < 0.06
    assert (truth < -0.2) == (protocol != Shuffle())


def test_documents_that_do_not_differ_give_no_proxy(judged):
    """All documents equally relevant: epsilon = 1 makes every gamma 1."""
    log = simulate(judged, Swap(clicks=DLA(epsilon=1.0)), n_sessions=10_000, seed=1).log
    found = by_curve(position_counts(log), audit(log).evidence)
    assert not found.is_known
    assert found.method.code == "audit.proxy-no-difference"


def test_the_doubt_of_the_curve_is_part_of_the_error(judged):
    log = simulate(judged, Swap(), n_sessions=10_000, seed=1, n_threads=2).log
    curve = audit(log).evidence
    found = by_curve(position_counts(log), curve)
    sure = by_curve(position_counts(log), PositionBias(curve.examination))
    doubtful = PositionBias(curve.examination, covariance=100 * curve.covariance)
    unsure = by_curve(position_counts(log), doubtful)
    assert found.correlation == sure.correlation == unsure.correlation
    part, larger = (x.std_error**2 - sure.std_error**2 for x in (found, unsure))
    assert part > 0
    assert larger == pytest.approx(100 * part, rel=1e-6)


def test_correlation_by_prediction_has_the_sign_of_the_ranker():
    """Lists of about ten: a ranker that reverses the order still shows the relevant documents."""
    short = make_judged(n_queries=250, n_features=12, seed=3, mean_docs=10)
    noise = np.random.default_rng(0).normal(size=len(short))
    for sign in (1, -1):
        scores = sign * short.labels + noise
        log = simulate(short, DLA(), ranker=scores, n_sessions=20_000, seed=1, n_threads=2).log
        found = audit(log).relevance
        assert found.method.code == "audit.proxy-features"
        assert sign * found.correlation < -5 * found.std_error


def test_features_without_meaning_are_no_proxy(judged):
    log = simulate(judged, DLA(), n_sessions=20_000, seed=1, n_threads=2).log
    noise = np.random.default_rng(0).normal(size=(log.n_documents, 5))
    found = audit(replace(log, features=noise, feature_names=())).relevance
    assert not found.is_known
    assert codes(found.method) == ["audit.proxy-too-few", "audit.proxy-no-prediction"]
    warned = fields(audit(replace(log, features=noise, feature_names=())).warnings)
    assert warned["audit.features-useless"] == {"estimator": "RegressionEM"}


def test_prediction_is_a_ridge_regression_within_positions(judged):
    """Cross-fitted weights against scikit-learn on rows centred at each position."""
    from sklearn.linear_model import Ridge

    from untilt.auditing import checks as audit_relevance

    log = simulate(judged, DLA(), n_sessions=5_000, seed=1, n_threads=2).log
    cells = position_counts(log)
    document = np.repeat(cells.document, np.diff(cells.indptr))
    train = np.repeat(cells.query, np.diff(cells.indptr)) % 2 == 0
    standard = audit_relevance._Standard.of(log)
    found = audit_relevance._ridge(standard, cells, document, train)
    x = (log.features - log.features.mean(axis=0)) / log.features.std(axis=0)
    x, y, n = x[document[train]].astype(float), cells.rate[train], cells.impressions[train]
    for k in np.unique(cells.position[train]):
        at = cells.position[train] == k
        x[at] -= np.average(x[at], axis=0, weights=n[at])
        y[at] -= np.average(y[at], weights=n[at])
    model = Ridge(alpha=0.01 * n.sum(), fit_intercept=False).fit(x, y, sample_weight=n)
    np.testing.assert_allclose(found, model.coef_, rtol=1e-4, atol=1e-7)


def test_missing_infinite_and_constant_features_predict_nothing(judged):
    log = simulate(judged, DLA(), n_sessions=5_000, seed=1, n_threads=2).log
    odd = np.full((log.n_documents, 3), 7.0)
    odd[::3, 1], odd[::5, 2] = np.nan, np.inf
    more = replace(log, features=np.hstack([log.features, odd]), feature_names=())
    cells = position_counts(log)
    plain, found = by_prediction(log, cells), by_prediction(more, cells)
    assert found.correlation == pytest.approx(plain.correlation, rel=1e-6)


def slow_correlation(log: ClickLog, theta) -> float:
    """The formula of `by_curve`, session by session and document by document."""
    shown, clicked = {}, {}
    for i in range(log.n_lists):
        for row in range(log.indptr[i], log.indptr[i + 1]):
            key = (int(log.query[i]), int(log.document[row]))
            shown.setdefault(key, []).extend([int(log.position[row])] * int(log.sessions[i]))
            clicked[key] = clicked.get(key, 0) + log.sessions[i] * log.label[row]
    A = B = C = 0.0
    for query in {q for q, _ in shown}:
        keys = [key for key in shown if key[0] == query]
        places = np.concatenate([shown[key] for key in keys])
        seen = {key: sum(theta[k - 1] for k in shown[key]) for key in keys}
        gamma = {key: clicked[key] / seen[key] for key in keys}
        mean = sum(len(shown[key]) * gamma[key] for key in keys) / len(places)
        C += np.sum((places - places.mean()) ** 2)
        for key in keys:
            n, c = len(shown[key]), clicked[key]
            squares = sum(theta[k - 1] ** 2 for k in shown[key])
            noise = max(c - squares * (c * c - c) / seen[key] ** 2, 0) / seen[key] ** 2
            A += n * (np.mean(shown[key]) - places.mean()) * (gamma[key] - mean)
            B += n * (gamma[key] - mean) ** 2 - n * noise * (1 - n / len(places))
    return A / np.sqrt(B * C)


def test_correlation_equals_the_slow_one(judged):
    few = judged.take(np.arange(40))
    scores = few.labels + np.random.default_rng(0).normal(size=len(few))
    log = simulate(few, Swap(depth=4), ranker=scores, n_sessions=4_000, seed=1, n_threads=2).log
    curve = PositionBias(np.array([1, 0.8, 0.7, 0.5]))
    found = by_curve(position_counts(log), curve)
    assert found.correlation == pytest.approx(slow_correlation(log, curve.examination), rel=1e-9)


# ---- words, records, rules


def test_counted_lists_and_repeated_sessions_give_the_same_audit(judged):
    log = simulate(judged, "harvest", n_sessions=2_000, seed=1, n_threads=2).log
    counted, apart = audit(log).to_dict(), audit(repeated(log)).to_dict()
    assert counted.keys() == apart.keys()
    _assert_alike(counted, apart)


def _assert_alike(first, second):
    if isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            _assert_alike(first[name], second[name])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for a, b in zip(first, second, strict=True):
            _assert_alike(a, b)
    elif isinstance(first, float):
        assert first == pytest.approx(second, rel=1e-9, abs=1e-12, nan_ok=True)
    elif not (isinstance(first, str) and "converged" in first):
        assert first == second


def test_inputs_are_untouched():
    log = small_log()
    before = {name: np.array(getattr(log, name)) for name in ("label", "position", "features")}
    audit(log)
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(log, name), values)


def test_the_text_holds_what_was_found(audits):
    text = " ".join(repr(audits["pivot"]).split())
    for part in (
        "What the log looks like",
        "Clicks by position",
        "Can the positions be compared? Yes",
        "An experiment changed lists: swapped in",
        "Use PivotSwap",
        "untilt.PivotSwap(pivot=2).fit(log).bias_",
    ):
        assert part in text
    assert max(map(len, repr(audits["pivot"]).splitlines())) <= 100


def test_a_record_is_plain_data(audits):
    import json

    for found in audits.values():
        again = json.loads(json.dumps(found.to_dict()))
        assert again["size"]["sessions"] == 15_000
        assert len(again["graph"]["edges"]) == len(found.graph.edges)
        assert again["advice"]["estimator"] == found.advice.estimator
        assert repr(codec.from_plain(Audit, again, where="audit")) == repr(found)


def test_every_session_has_a_click_is_a_warning(judged):
    log = simulate(judged, DLA(), n_sessions=3_000, seed=1, n_threads=2).log
    clicked = np.add.reduceat(log.label, log.indptr[:-1]) > 0
    assert "audit.always-clicked" in codes(audit(log.take(clicked)).warnings)


def test_a_dwell_time_is_audited_by_whether_there_was_any(judged):
    log = simulate(judged, "dwell", n_sessions=3_000, seed=1, n_threads=2).log
    found = audit(log)
    clicks = audit(log.with_label((log.label > 0).astype(float)))
    assert found.warnings[0].code == "audit.label-no-click"
    np.testing.assert_array_equal(found.graph.clicks, clicks.graph.clicks)
    assert found.evidence is None
    assert codes(found.next_steps)[-1] == "audit.clicks-first"


@pytest.mark.parametrize("wrong", [None, [1, 2], "clicks.parquet"])
def test_only_a_click_log_can_be_audited(wrong):
    with pytest.raises(OptionError, match="audit needs a ClickLog"):
        audit(wrong)


def test_an_empty_log_and_a_wrong_level_are_refused():
    with pytest.raises(OptionError, match="no impression"):
        audit(small_log().take(np.array([], dtype=np.int64)))
    with pytest.raises(OptionError, match="level"):
        audit(small_log(), level=95)


def test_real_pages(data_dir):
    """The Yandex pages show documents at several ranks: the graph is whole, with thin places."""
    import importlib.util
    from pathlib import Path

    script = Path(__file__).resolve().parents[2] / "examples" / "yandex_pages.py"
    spec = importlib.util.spec_from_file_location("yandex_pages", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    log, _ = module.read_pages(data_dir / "yandex-sample" / "train.txt.gz")
    found = audit(log)
    assert found.is_identified
    assert found.advice.estimator == "AllPairs"
    assert found.size.features == 0
    # A web search engine does put what is relevant on top: -0.30 +- 0.09.
    assert found.relevance.correlation < -2 * found.relevance.std_error

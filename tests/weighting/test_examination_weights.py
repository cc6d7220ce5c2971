"""Weights from click models: exact by enumeration of all clicks, and the same for every ranker."""

import itertools
from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt.data.slates import Slates
from untilt.errors import OptionError
from untilt.objectives.pair_slates import sum_pairs
from untilt.objectives.pairs import PairObjective
from untilt.rankers.learning_data import pair_slates, training_lists

Q, D = 6, 5  # queries, and documents of each
# Parameters as `TRUTHS` says; every list below has its patterns weighed by plain code.
GAMMA = {3: [0.7, 0.2, 0.5], 4: [0.3, 0.8, 0.1, 0.45]}
THETA = {
    (k, last): 1 / (1 + 0.3 * (k - 1) + 0.4 * last) for k in range(1, 5) for last in range(k)
}  # of UBM


def a_log(n_sessions=300, seed=0, *, depth=4, features=3):
    """Lists in random order with clicks that stop some readers."""
    rng = np.random.default_rng(seed)
    gamma = rng.uniform(0.1, 0.8, size=(Q, D))
    lists = []
    for _ in range(n_sessions):
        q, order, clicks = int(rng.integers(Q)), rng.permutation(D)[:depth], []
        reads = True
        for d in order:
            clicks.append(float(reads and rng.random() < gamma[q, d]))
            reads = reads and rng.random() > 0.15 + 0.4 * clicks[-1]
        lists.append((q, q * D + order, clicks))
    return ut.ClickLog(
        query_id=np.arange(Q), doc_id=np.tile(np.arange(D), Q),
        doc_query=np.repeat(np.arange(Q), D),
        indptr=np.arange(0, depth * n_sessions + 1, depth), query=[q for q, _, _ in lists],
        document=np.concatenate([d for _, d, _ in lists]),
        position=np.tile(np.arange(1, depth + 1), n_sessions),
        label=np.concatenate([c for _, _, c in lists]), count=rng.integers(1, 4, n_sessions),
        features=gamma.reshape(-1, 1) + rng.normal(scale=0.3, size=(Q * D, features)),
    )  # fmt: skip


# Exact enumeration. A truth is (P(pattern of clicks), P(examined | clicks above) of a pattern).


def cascade(gamma, go_on):
    """Readers from the top down, who go on after a click with probability go_on."""
    n = len(gamma)
    joint = {}  # (clicks, how many rows were looked at) -> probability
    for stops in range(1, n + 1):
        for clicks in itertools.product([0, 1], repeat=stops):
            p = np.prod([g if c else 1 - g for g, c in zip(gamma, clicks, strict=False)])
            p *= np.prod([go_on if c else 1.0 for c in clicks[:-1]])
            if stops < n:
                p *= (1 - go_on) if clicks[-1] else 0.0
            joint[clicks + (0,) * (n - stops), stops] = p
    pattern = {}
    for (clicks, _), p in joint.items():
        pattern[clicks] = pattern.get(clicks, 0.0) + p

    def examined(clicks, row):
        above = {key: p for key, p in joint.items() if key[0][:row] == clicks[:row]}
        total = sum(above.values())
        return sum(p for (_, stops), p in above.items() if stops > row) / total if total else 0.0

    return pattern, examined


def browsing(gamma):
    """UBM: every row by itself, given the last click above it."""
    pattern, n = {}, len(gamma)
    for clicks in itertools.product([0, 1], repeat=n):
        p = 1.0
        for row in range(n):
            p_click = examined_in_browsing(clicks, row) * gamma[row]
            p *= p_click if clicks[row] else 1 - p_click
        pattern[clicks] = p
    return pattern, examined_in_browsing


def examined_in_browsing(clicks, row):
    return THETA[row + 1, max([k + 1 for k in range(row) if clicks[k]], default=0)]


TRUTHS = {
    "cascade": lambda gamma: cascade(gamma, 0.0),
    "dependent click": lambda gamma: cascade(gamma, 0.6),
    "ubm": browsing,
}
LISTS = [(name, n) for name in TRUTHS for n in (3, 4)]
SEVERAL_CLICKS = [each for each in LISTS if each[0] != "cascade"]
# The cascade given its session is refused: see below.
WEIGHINGS = [(*each, "list") for each in LISTS] + [(*each, "session") for each in SEVERAL_CLICKS]


def model_of(name, n):
    """The model of untilt with the parameters of the truth."""
    log = all_patterns(n)
    gamma = np.array(GAMMA[n])
    if name == "ubm":
        model = ut.UBM().fit(log)
        model.examination_ = np.array([[THETA.get((k, l), np.nan) for l in range(n)]
                                       for k in range(1, n + 1)])  # fmt: skip
        model.relevance_ = gamma
        return model
    model = ut.CM().fit(log) if name == "cascade" else ut.DCM().fit(log)
    model.attraction_ = gamma
    if name != "cascade":
        model.continuation_ = np.full(n, 0.6)
    return model


def all_patterns(n):
    """One list with each of its patterns of clicks, in the order of itertools."""
    patterns = list(itertools.product([0, 1], repeat=n))
    return ut.ClickLog(
        query_id=[0], doc_id=np.arange(n), doc_query=np.zeros(n), query=np.zeros(len(patterns)),
        indptr=np.arange(len(patterns) + 1) * n, document=np.tile(np.arange(n), len(patterns)),
        position=np.tile(np.arange(1, n + 1), len(patterns)),
        label=np.array(patterns, dtype=float).ravel(),
    )  # fmt: skip


def patterns_of(name, n):
    """(clicks, probabilities) of all patterns, and e by pattern and row."""
    pattern, examined = TRUTHS[name](GAMMA[n])
    clicks = np.array(list(itertools.product([0, 1], repeat=n)))
    p = np.array([pattern.get(tuple(c), 0.0) for c in clicks])
    assert p.sum() == pytest.approx(1)
    e = np.array([[examined(tuple(c), row) for row in range(n)] for c in clicks])
    return clicks, p, e


def weighed(weighting, n):
    found = weighting.click_weights(all_patterns(n))
    return found.click.reshape(-1, n), None if found.share is None else found.share.reshape(-1, n)


def expected_pairs(clicks, p, weight, share=None, *, against_all=True):
    """E of the weight of "i above j" by the pair kernel: every pattern is a list of its p."""
    n = clicks.shape[1]
    lists = Slates(
        indptr=np.arange(len(p) + 1) * n, query=np.zeros(len(p), dtype=np.int64), count=p,
        document=np.tile(np.arange(n), len(p)), position_index=np.tile(np.arange(n), len(p)),
        n_documents=n,
    )  # fmt: skip
    slates = sum_pairs(
        lists, lists.query, gain=(clicks * weight).ravel(), weight=p, against_all=against_all,
        dense=True, share=None if share is None else share.ravel(),
    )  # fmt: skip
    found = np.zeros((n, n))
    for i in range(n):
        for j in range(i):
            found[i, j] = slates.above[i * (i - 1) // 2 + j]
            found[j, i] = slates.below[i * (i - 1) // 2 + j]
    return found


@pytest.mark.parametrize(("name", "n"), LISTS)
def test_the_model_knows_the_examination_of_the_truth(name, n):
    _, p, e = patterns_of(name, n)
    model, log = model_of(name, n), all_patterns(n)
    mine = model.conditional_examination(log).reshape(-1, n)
    assert mine[p > 0] == pytest.approx(e[p > 0])
    assert model.examination_probability(log).reshape(-1, n)[0] == pytest.approx(p @ e)


@pytest.mark.parametrize(("name", "n", "given"), WEIGHINGS)
def test_the_inverse_form_is_unbiased(name, n, given):
    """E[weight of i above j] = gamma_i, whatever else the list shows and wherever."""
    clicks, p, _ = patterns_of(name, n)
    weight, share = weighed(ut.ExaminationWeights(model_of(name, n), given, "inverse"), n)
    assert share is None
    expected = np.array(GAMMA[n])[:, None] * (1 - np.eye(n))
    assert expected_pairs(clicks, p, weight) == pytest.approx(expected)


@pytest.mark.parametrize(("name", "n", "given"), WEIGHINGS)
def test_the_ratio_form_orders_every_pair_by_relevance(name, n, given):
    """E[weight of i above j] = gamma_i s and of j above i gamma_j s, s = min(E_i, E_j)."""
    clicks, p, e = patterns_of(name, n)
    weight, share = weighed(ut.ExaminationWeights(model_of(name, n), given), n)
    E = p @ e
    s = np.minimum(E[:, None], E[None, :]) * (1 - np.eye(n))
    assert expected_pairs(clicks, p, weight, share) == pytest.approx(
        np.array(GAMMA[n])[:, None] * s
    )


@pytest.mark.parametrize(("name", "n"), LISTS)
def test_no_weight_of_the_ratio_form_is_above_1_given_the_list(name, n):
    weight, share = weighed(ut.ExaminationWeights(model_of(name, n)), n)
    assert np.all(weight * share <= 1 + 1e-12)


@pytest.mark.parametrize(("name", "n"), SEVERAL_CLICKS)
def test_a_ratio_of_the_same_session_is_not_exact(name, n):
    """min(e_i, e_j)/e_i with both given their clicks above: e_j knows of the click on i."""
    clicks, p, e = patterns_of(name, n)
    pairs = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        pairs[i, j] = p @ (clicks[:, i] * np.minimum(e[:, i], e[:, j]) / e[:, i])
    preference = pairs / np.array(GAMMA[n])[:, None]  # would be symmetric
    assert np.abs(preference - preference.T).max() > 0.03


@pytest.mark.parametrize(("name", "n"), SEVERAL_CLICKS)
def test_clicked_x_unclicked_pairs_are_not_exact(name, n):
    clicks, p, e = patterns_of(name, n)
    E = p @ e
    found = np.zeros((n, n))
    for i, j in itertools.permutations(range(n), 2):
        found[i, j] = p @ (clicks[:, i] * (1 - clicks[:, j]) / E[i])
    away = found - found.T - np.subtract.outer(GAMMA[n], GAMMA[n])
    assert np.abs(away).max() > 0.01


@pytest.mark.parametrize(("name", "n"), SEVERAL_CLICKS)
def test_given_the_list_the_variance_is_smaller(name, n):
    """E[(c/e)^2] = gamma/E_i given the list, the least of all unbiased weights."""
    clicks, p, _ = patterns_of(name, n)
    model = model_of(name, n)
    by_list, by_session = (
        p @ (clicks * weighed(ut.ExaminationWeights(model, given, "inverse"), n)[0]) ** 2
        for given in ("list", "session")
    )
    E = model.examination_probability(all_patterns(n))[:n]
    assert by_list == pytest.approx(GAMMA[n] / E)
    assert np.all(by_session >= by_list - 1e-12)
    assert np.any(by_session > 1.001 * by_list)


def test_below_a_click_of_the_cascade_nothing_can_stand_for_what_is_not_seen():
    """There e is 0 or 1, so weights 1/e are raw clicks: E = gamma P(no click above)."""
    clicks, p, e = patterns_of("cascade", 4)
    raw = p @ np.divide(clicks, e, out=np.zeros(e.shape), where=e > 0)
    assert raw == pytest.approx(GAMMA[4] * np.cumprod([1.0, 0.7, 0.2, 0.9]))
    with pytest.raises(OptionError, match=r"under CM nobody looks at .*Use given='list'"):
        weighed(ut.ExaminationWeights(model_of("cascade", 4), "session", clip=0.1), 4)


def test_clip_is_a_floor_of_examination():
    model = model_of("dependent click", 4)
    for given in ("list", "session"):
        free, _ = weighed(ut.ExaminationWeights(model, given, "inverse"), 4)
        clipped, _ = weighed(ut.ExaminationWeights(model, given, "inverse", clip=0.7), 4)
        assert clipped == pytest.approx(np.minimum(free, 1 / 0.7))
        assert np.any(clipped < free)


# What rankers make of it.

MODELS = {"UBM": ut.UBM, "DBN": ut.DBN, "CM": ut.CM}
FORMS = list(itertools.product(("list", "session"), ("ratio", "inverse")))


def options_of(name):
    return [each for each in FORMS if name != "CM" or each[0] == "list"]


CASES = [(name, *each) for name in MODELS for each in options_of(name)]


@pytest.mark.parametrize(("name", "given", "form"), CASES)
def test_collapsed_pairs_equal_the_sum_over_sessions(name, given, form):
    """Session by session in plain loops: count times v_i min(x_i, x_j), per average query."""
    log = a_log()
    model = MODELS[name]().fit(log)
    clip = 0.05
    weighting = ut.ExaminationWeights(model, given, form, clip)
    lists = training_lists(log, weighting)
    slates = pair_slates(lists, weighting, metric="dcg", gain="linear")
    scores = np.random.default_rng(1).normal(size=Q * D)
    found = PairObjective(slates, metric="none").evaluate(scores, want_loss=True)
    E = model.examination_probability(log)
    e = np.maximum(E if given == "list" else model.conditional_examination(log), clip)
    loss, gradient = 0.0, np.zeros(Q * D)
    for u in range(log.n_lists):
        rows = range(log.indptr[u], log.indptr[u + 1])
        for i, j in itertools.permutations(rows, 2):
            w = log.sessions[u] * log.label[i] / e[i] * (min(E[i], E[j]) if form == "ratio" else 1)
            a, b = log.document[i], log.document[j]
            loss += w * np.log1p(np.exp(scores[b] - scores[a]))
            gradient[a] -= w / (1 + np.exp(scores[a] - scores[b]))
            gradient[b] += w / (1 + np.exp(scores[a] - scores[b]))
    per_query = Q / log.n_sessions
    assert found.loss == pytest.approx(loss * per_query)
    assert found.gradient == pytest.approx(gradient * per_query)


def test_sessions_of_a_list_collapse():
    """As many slates as different lists, whatever was clicked in them."""
    log = a_log(3000, depth=2)
    weighting = ut.ExaminationWeights(given="session")
    lists = training_lists(log, weighting)
    slates = pair_slates(lists, weighting, metric="none", gain="linear")
    assert slates.n_slates == Q * D * (D - 1)
    assert lists.n_slates > 3 * slates.n_slates


RANKERS = {
    "linear": ut.LinearRanker,
    "svm": lambda weighting: ut.RankSVM(weighting, tolerance=1e-6),
    "trees": lambda weighting: ut.LambdaMART(
        weighting, n_trees=5, min_data_in_leaf=1, n_threads=1, bagging_fraction=1.0
    ),
}


@pytest.mark.parametrize("given", ["list", "session"])
@pytest.mark.parametrize("ranker", RANKERS)
def test_counts_equal_repeated_sessions(ranker, given):
    log = a_log()
    order = np.random.default_rng(0).permutation(log.n_sessions)
    one_by_one = log.take(np.repeat(np.arange(log.n_lists), log.sessions)[order])
    one_by_one = one_by_one._with(count=np.ones(log.n_sessions, dtype=np.int64))
    make = lambda: RANKERS[ranker](ut.ExaminationWeights(given=given))  # noqa: E731
    first, second = (make().fit(each).predict(log.features) for each in (log, one_by_one))
    assert np.ptp(first) > 0
    assert second == pytest.approx(first, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("ranker", RANKERS)
def test_a_position_based_model_gives_the_balanced_table(ranker):
    log = a_log()
    pbm = ut.PBM().fit(log)
    table = RANKERS[ranker](ut.Balanced(pbm.examination_)).fit(log)
    for given in ("list", "session"):
        mine = RANKERS[ranker](ut.ExaminationWeights(pbm, given)).fit(log)
        assert mine.predict(log.features) == pytest.approx(table.predict(log.features), rel=1e-5)


def test_a_position_based_model_and_the_inverse_form_are_ips_against_all():
    log = a_log()
    pbm = ut.PBM().fit(log)
    table = ut.LinearRanker(ut.IPS(pbm.examination_, against="all", clip=0.3)).fit(log)
    mine = ut.LinearRanker(ut.ExaminationWeights(pbm, form="inverse", clip=0.3)).fit(log)
    assert mine.predict(log.features) == pytest.approx(table.predict(log.features), rel=1e-5)


def test_a_curve_given_for_validation_takes_the_place_of_the_model():
    log = a_log()
    pbm, curve = ut.PBM().fit(log), ut.PowerLaw(0.5)
    tables = ut.Balanced(pbm.examination_), ut.ExaminationWeights(pbm)
    table, mine = (ut.RankSVM(w, C="search", valid_bias=curve).fit(log).search_ for w in tables)
    assert [each.average_rank for each in mine] == pytest.approx([x.average_rank for x in table])


def test_a_model_that_is_not_fitted_learns_from_the_training_log():
    log = a_log()
    fitted = ut.UBM(prior_strength=2.0).fit(log)
    mine = ut.ExaminationWeights(ut.UBM(prior_strength=2.0)).click_weights(log)
    assert np.array_equal(mine.click, ut.ExaminationWeights(fitted).click_weights(log).click)
    by_name = ut.ExaminationWeights("ubm").click_weights(log)
    default = ut.ExaminationWeights().click_weights(log)
    assert np.array_equal(by_name.click, default.click)
    assert not np.array_equal(by_name.click, mine.click)


def test_losses_with_one_weight_for_each_click():
    log = a_log()
    weighting = ut.ExaminationWeights(form="inverse", clip=0.1)
    label = log.label * weighting.click_weights(log).click
    by_hand = log.with_label(label)
    ones = ut.IPS(np.ones(4), against="all")
    for ranker in (
        lambda w: ut.LinearRanker(w, loss="dcg-bound"),
        lambda w: ut.RankSVM(w, metric="dcg", C=0.01),
        lambda w: ut.RankSVM(w, C=0.01),
        lambda w: ut.LambdaMART(w, metric="dcg", n_trees=3, min_data_in_leaf=1, n_threads=1),
    ):
        mine, expected = ranker(weighting).fit(log), ranker(ones).fit(by_hand)
        close = expected.predict(log.features)
        if not isinstance(mine, ut.RankSVM):  # whose C counts clicks, so that its unit differs
            assert mine.predict(log.features) == pytest.approx(close, rel=1e-4, abs=1e-6)
        assert np.corrcoef(mine.predict(log.features), close)[0, 1] > 0.9


@pytest.mark.parametrize("loss", ["pairwise", "listwise"])
def test_networks(loss):
    pytest.importorskip("jax")
    log = a_log()
    form = "ratio" if loss == "pairwise" else "inverse"
    made = ut.NeuralRanker(
        ut.ExaminationWeights(form=form, clip=0.1), loss=loss, widths=(8,), epochs=20,
        early_stopping=None, learning_rate=0.03,
    ).fit(log)  # fmt: skip
    linear = ut.LinearRanker(ut.ExaminationWeights(form=form, clip=0.1)).fit(log)
    by_network, by_line = made.predict(log.features), linear.predict(log.features)
    assert np.corrcoef(by_network, by_line)[0, 1] > 0.7


def test_search_trees_and_own_pipeline():
    log = a_log()
    weighting = ut.ExaminationWeights(ut.UBM().fit(log))
    assert len(ut.RankSVM(weighting, C="search").fit(log).search_) > 2
    small: dict[str, Any] = {"min_data_in_leaf": 1, "n_leaves": 3, "n_threads": 1}
    assert ut.LambdaMART(weighting, n_trees="auto", **small).fit(log).n_trees_ >= 1
    gradient, _ = ut.objective(log, weighting)(np.zeros(Q * D))
    raw, _ = ut.objective(log, ut.Naive())(np.zeros(Q * D))
    assert not np.allclose(gradient, raw)
    no_curve = ut.ExaminationWeights("dbn")
    with pytest.raises(OptionError, match="held-out clicks are judged by a curve"):
        ut.LambdaMART(no_curve, n_trees="auto", **small).fit(log)
    given = ut.LambdaMART(no_curve, bias=ut.PowerLaw(1.0), n_trees="auto", **small)
    assert given.fit(log).n_trees_ >= 1


def test_a_saved_ranker_names_its_model(tmp_path):
    log = a_log()
    ranker = ut.LinearRanker(ut.ExaminationWeights(ut.UBM().fit(log), clip=0.1)).fit(log)
    ranker.save(tmp_path / "ranker.untilt")
    again = ut.load(tmp_path / "ranker.untilt")
    assert np.array_equal(again.predict(log.features), ranker.predict(log.features))
    assert again.weighting == ut.ExaminationWeights("ubm", clip=0.1)


def test_labels_need_no_model():
    log = a_log()
    judged = ut.JudgedLists(
        log.features, np.tile([0.0, 1, 2, 1, 0], Q), np.arange(Q + 1) * D, np.arange(Q)
    )
    plain, mine = (ut.LinearRanker(w).fit(judged) for w in (None, ut.ExaminationWeights()))
    assert np.array_equal(plain.predict(log.features), mine.predict(log.features))


def seen_twice():
    """Second clicks, which the cascade rules out, below a document with alpha = 1."""
    return all_patterns(3).take([6, 6, 6])


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda _: ut.ExaminationWeights(given="clicks"), "given must be one of .* Got 'clicks'"),
        (lambda _: ut.ExaminationWeights(form="ips"), "form must be one of .* Got 'ips'"),
        (lambda _: ut.ExaminationWeights(clip=2), "clip must lie between 0 and 1"),
        (lambda _: ut.ExaminationWeights("umb"), "model must be one of .* Did you mean 'ubm'"),
        (lambda _: ut.ExaminationWeights(np.ones(3)), "model must be a click model such as"),  # type: ignore[arg-type]
        (lambda log: ut.ExaminationWeights("rctr").click_weights(log), "Use a model with exam"),
        (lambda _: ut.ExaminationWeights(ut.CM(prior_strength=0)).click_weights(seen_twice()),
         "3 of 6 clicks stand where nobody looks under CM.*clip=0.05"),
        (lambda log: ut.LambdaMART(ut.ExaminationWeights(), metric="map").fit(log),
         "metric='map' gives every click the same weight"),
        (lambda log: ut.RankSVM(ut.ExaminationWeights(), against="unclicked").fit(log),
         "Leave against out"),
        (lambda log: ut.LinearRanker(ut.ExaminationWeights(), loss="dcg-bound").fit(log),
         "form='inverse'"),
        (lambda _: ut.is_consistent(ut.ExaminationWeights(), [1, 0.5]), "has no table"),
    ],
)  # fmt: skip
def test_mistakes(attempt, message):
    with pytest.raises(OptionError, match=message):
        attempt(a_log())


def test_clicks_that_the_model_rules_out_have_the_weight_of_the_clip():
    found = ut.ExaminationWeights(ut.CM(prior_strength=0), clip=0.05, form="inverse")
    assert found.click_weights(seen_twice()).click[:3].tolist() == [1.0, 20.0, 20.0]

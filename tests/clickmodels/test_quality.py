"""Perplexity, likelihood and their intervals, by hand and by properties."""

from typing import Any

import numpy as np
import pytest

from untilt import GCTR, RCTR, UBM, JudgedLists, compare_click_models
from untilt.clickmodels.compare import advise, perplexity_chart
from untilt.errors import OptionError
from untilt.facts import codes

FEW: dict[str, Any] = {"n_draws": 40}


def test_perplexity_by_hand(logs):
    make_log, _ = logs
    # Rates 3/4 at position 1 and 1/4 at position 2, then measured on other sessions.
    train = make_log([(0, [0, 1], [1, 0]), (0, [0, 1], [0, 1])], count=[3, 1])
    test = make_log([(0, [0, 1], [1, 0]), (0, [0, 1], [1, 1])], count=[1, 1])
    found = compare_click_models(train, test, models=["rctr"], by="session", **FEW)["rctr"]
    at_1 = 2 ** (-np.log2(3 / 4))
    at_2 = 2 ** (-(np.log2(3 / 4) + np.log2(1 / 4)) / 2)
    assert found.perplexity_at.value == pytest.approx([at_1, at_2])
    assert found.perplexity.value == pytest.approx((at_1 + at_2) / 2)
    assert found.conditional_perplexity.value == found.perplexity.value
    likelihood = (2 * np.log(3 / 4) + np.log(3 / 4) + np.log(1 / 4)) / 2
    assert found.log_likelihood.value == pytest.approx(likelihood)


def test_a_coin_has_perplexity_two(logs):
    make_log, _ = logs
    log = make_log([(0, [0, 1], [1, 0]), (0, [0, 1], [0, 1])])
    found = compare_click_models(log, log, models=["gctr"], **FEW)["gctr"]
    assert found.perplexity.value == pytest.approx(2)


def test_what_a_model_rules_out_is_counted_and_kept_finite(logs):
    make_log, _ = logs
    log = make_log([(0, [0, 1], [1, 1]), (0, [0, 1], [0, 1])], count=[1, 3])
    found = compare_click_models(log, log, models=["cm"], floor=1e-4, **FEW)["cm"]
    assert found.ruled_out == 1 / 8  # the second click of one session out of four
    assert found.conditional_perplexity_at.value[1] > 2 ** (-np.log2(1e-4) / 4)
    assert np.isfinite(found.log_likelihood.value)


def test_the_likelihood_of_the_table_is_that_of_the_model(log):
    train, test = log.split(0.7, by="session", seed=0)
    entry = compare_click_models(train, test, models=["ubm"], **FEW)["ubm"]
    direct = UBM().fit(train).log_likelihood(test) / test.n_sessions
    assert entry.log_likelihood.value == pytest.approx(direct)


def test_gains_are_paired(log):
    train, test = log.split(0.7, by="session", seed=0)
    table = compare_click_models(train, test, models=["pbm", "ubm", "rctr"], **FEW)
    assert table["pbm"].gain is None
    gain = table["rctr"].gain
    expected = table["rctr"].log_likelihood.value - table["pbm"].log_likelihood.value
    assert gain.value == pytest.approx(expected)
    width = gain.interval.high - gain.interval.low
    alone = table["rctr"].log_likelihood.interval
    assert width < alone.high - alone.low


def test_intervals_by_session_are_those_of_a_mean(logs):
    _, random_log = logs
    train, test = random_log(0), random_log(1, n_lists=800)
    table = compare_click_models(train, test, models=["rctr"], by="session", n_draws=600)
    interval = table["rctr"].log_likelihood.interval
    model = RCTR().fit(train)
    p = model.click_probability(test)
    rows = np.log(np.where(test.label > 0, p, 1 - p)).reshape(800, 4).sum(axis=1)
    each = np.repeat(rows, test.sessions)
    error = each.std(ddof=1) / np.sqrt(len(each))
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_counts_are_repeats_here_too(log):
    train, test = log.split(0.5, by="session", seed=1)
    repeated = test.take(np.repeat(np.arange(test.n_lists), test.sessions))
    repeated = repeated._with(count=np.ones(repeated.n_lists, dtype=np.int64))
    options: dict[str, Any] = {"models": ["dbn"], "by": "query", **FEW}
    one = compare_click_models(train, test, **options)["dbn"]
    two = compare_click_models(train, repeated, **options)["dbn"]
    assert one.perplexity.value == pytest.approx(two.perplexity.value)
    assert one.perplexity.interval.low == pytest.approx(two.perplexity.interval.low)


def test_relevance_against_labels(log):
    model = UBM().fit(log)
    # Labels that follow the model's relevance of each query exactly, and their reverse.
    labels = np.argsort(np.argsort(model.relevance_.reshape(4, 6), axis=1), axis=1).ravel()
    options: dict[str, Any] = {"models": ["ubm", "gctr"], **FEW}
    for sign, expected in ((1, 1), (-1, -1)):
        judged = JudgedLists(
            features=np.zeros((24, 1)),
            labels=labels if sign > 0 else 5 - labels,
            indptr=np.arange(0, 25, 6),
            query_id=np.arange(4),
            doc_id=np.arange(24),
        )
        table = compare_click_models(log, log, judged=judged, **options)
        assert table["ubm"].relevance_correlation.value == pytest.approx(expected)
        assert table["gctr"].relevance_correlation is None  # all documents alike
        assert "relevance" in repr(table).splitlines()[1]


def test_advice_names_the_best_and_what_it_means(log):
    train, test = log.split(0.7, by="session", seed=0)
    table = compare_click_models(train, test, **FEW)
    advice = advise(table)
    assert advice.best == table.best.name
    assert advice.enough  # the log is position-based
    assert codes(advice.sentences)[1] == "clickmodels.curve-is-right"
    without = compare_click_models(train, test, models=["ubm"], **FEW)
    assert advise(without) is None


def test_the_table_is_sorted_and_looked_up_by_name(log):
    table = compare_click_models(log, log, models=[GCTR(), "ubm"], **FEW)
    assert [row[0] for row in table.view()[0].tables[0].rows] == ["ubm", "gctr"]
    assert [entry.name for entry in table] == ["gctr", "ubm"]
    named = compare_click_models(
        log, log, models={"free": UBM(prior_strength=0.0), "firm": UBM(prior_strength=50)}, **FEW
    )
    assert named["free"].model.prior_strength == 0
    assert len(named) == 2


def test_deeper_pages_are_cut(log):
    table = compare_click_models(log.top(2), log, models=["pbm"], **FEW)
    assert len(table["pbm"].perplexity_at.value) == 2


def test_errors_say_what_to_do(log):
    for options, message in (
        ({"models": ["umb"]}, "Did you mean 'ubm'"),
        ({"models": [3]}, "names or click models"),
        ({"models": ["ubm", UBM()]}, "twice"),
        ({"by": "day"}, "by must be one of"),
        ({"n_draws": 2}, "n_draws must be at least 20"),
        ({"floor": 0}, "floor must lie"),
        ({"level": 1}, "level must lie"),
    ):
        with pytest.raises(OptionError, match=message):
            compare_click_models(log, log, **{"models": ["gctr"], **FEW, **options})
    with pytest.raises(OptionError, match="Did you mean 'gctr'"):
        compare_click_models(log, log, models=["gctr"], **FEW)["gct"]


def test_differences_by_position_are_those_of_the_figures(log):
    train, test = log.split(0.7, by="session", seed=0)
    table = compare_click_models(train, test, models=["pbm", "rctr"], **FEW)
    ours, theirs = (table[name].conditional_perplexity_at.value for name in ("rctr", "pbm"))
    assert table["rctr"].conditional_difference_at.value == pytest.approx(ours - theirs)
    assert table["pbm"].conditional_difference_at is None


def test_a_chart_of_levels_and_differences(log):
    table = compare_click_models(log, log, models=["pbm", "rctr", "ubm", "cm"], **FEW)
    upper, lower = perplexity_chart(table).to_dict()["vconcat"]
    names = [{row["name"] for row in part["data"]["values"]} for part in (upper, lower)]
    assert names == [{"pbm", "rctr", "ubm"}] * 2  # CM ruled out second clicks
    zero = [row["value"] for row in lower["data"]["values"] if row["name"] == "pbm"]
    assert zero == [0] * 4
    first = next(row for row in upper["data"]["values"] if row["name"] == "pbm")
    assert first["value"] == pytest.approx(table["pbm"].conditional_perplexity_at.value[0] - 1)
    alone = compare_click_models(log, log, models=["pbm"], **FEW)
    assert "vconcat" not in perplexity_chart(alone).to_dict()
    with pytest.raises(OptionError, match="no perplexity to draw"):
        perplexity_chart(compare_click_models(log, log, models=["cm"], **FEW))


@pytest.mark.parametrize(
    ("attribute", "value", "code"),
    [
        ("quick_up_to", 3, "clickmodels.too-slow"),
        ("requires", ("no_such_package",), "clickmodels.not-installed"),
    ],
)
def test_models_that_cannot_be_fitted_here_are_left_out(log, monkeypatch, attribute, value, code):
    monkeypatch.setattr(f"untilt.clickmodels.ncm.NCM.{attribute}", value)
    table = compare_click_models(log, log, **FEW)
    assert codes(table.left_out.values()) == [code]
    assert [fact.fields["model"] for fact in table.ruled_out] == ["cm"]


def test_an_order_worse_than_the_shown_one_is_named(logs):
    make_log, _ = logs
    rng = np.random.default_rng(0)
    # Two sessions a query, shown in the order of their labels: what clicks add is noise.
    lists = [(q, 5 * q + np.arange(5), rng.random(5) < 0.3) for q in range(60) for _ in range(2)]
    log = make_log(lists)
    judged = JudgedLists(
        features=np.zeros((300, 1)),
        labels=np.tile(np.arange(4, -1, -1), 60),
        indptr=np.arange(0, 301, 5),
        query_id=np.arange(60),
        doc_id=np.arange(300),
    )
    options: dict[str, Any] = {"models": ["dctr", "pbm"], **FEW}
    told = compare_click_models(log, log, judged=judged, **options)
    gain = told["dctr"].order_gain
    assert gain.interval.high < 0
    assert gain.value == pytest.approx(told["dctr"].relevance_correlation.value - 1, abs=0.1)
    (fact,) = told.order_notes
    assert (fact.code, fact.fields["n_models"]) == ("clickmodels.worse-than-shown", 2)
    assert "dctr" in fact.fields["models"]
    assert str(fact) in " ".join(repr(told).split())
    (few,) = compare_click_models(log, log, **options).order_notes
    assert (few.code, few.fields["sessions"]) == ("clickmodels.few-sessions", 2.0)
    many = log._with(count=np.full(log.n_lists, 10))
    assert compare_click_models(many, many, **options).order_notes == ()

"""Likelihoods against brute force: every value of every hidden variable of four documents."""

import itertools

import numpy as np
import pytest

import untilt as ut
from untilt.errors import OptionError

DOCUMENTS = [4, 1, 0, 3]


def independent(theta_of, gamma):
    """(clicks, examined) -> probability, over all of examination and relevance: c = e r."""
    table = {}
    for e in itertools.product([0, 1], repeat=4):
        for r in itertools.product([0, 1], repeat=4):
            clicks = tuple(np.array(e) * np.array(r))
            last, p = 0, 1.0
            for k in range(1, 5):
                theta, g = theta_of(k, last), gamma[k - 1]
                p *= (theta if e[k - 1] else 1 - theta) * (g if r[k - 1] else 1 - g)
                last = k if clicks[k - 1] else last
            table[clicks, e] = table.get((clicks, e), 0.0) + p
    return table


def reader(alpha, sigma, on):
    """(clicks, examined) -> probability of a reader from the top down: attracted, satisfied,
    going on; all combinations.

    on(row, clicked, satisfied) is the probability of going on.
    """
    table = {}
    for hidden in itertools.product(itertools.product([0, 1], repeat=3), repeat=4):
        p, reads, clicks, examined = 1.0, True, [], []
        for row, (attracted, satisfied, goes_on) in enumerate(hidden):
            clicked = reads and attracted
            go = on(row, clicked, clicked and satisfied)
            p *= alpha[row] if attracted else 1 - alpha[row]
            p *= sigma[row] if satisfied else 1 - sigma[row]
            p *= go if goes_on else 1 - go
            clicks.append(int(clicked))
            examined.append(int(reads))
            reads = bool(reads and goes_on)
        key = tuple(clicks), tuple(examined)
        table[key] = table.get(key, 0.0) + p
    return table


def enumerated(model):
    """P(pattern of clicks) by enumeration."""
    table = {}
    for (clicks, _), p in hidden(model).items():
        table[clicks] = table.get(clicks, 0.0) + p
    return table


def hidden(model):  # noqa: PLR0911  one return for each model
    """P(clicks, examined) by enumeration, from the model's learned parameters alone."""
    name, half = model.name, [0.5] * 4
    if name == "gctr":
        return independent(lambda k, last: model.rate_, np.ones(4))
    if name == "rctr":
        return independent(lambda k, last: model.rate_[k - 1], np.ones(4))
    if name == "dctr":
        return independent(lambda k, last: 1.0, model.relevance_[DOCUMENTS])
    if name == "pbm":
        theta = model.examination_
        return independent(lambda k, last: theta[k - 1], model.relevance_[DOCUMENTS])
    if name == "ubm":
        theta = model.examination_
        return independent(lambda k, last: theta[k - 1, last], model.relevance_[DOCUMENTS])
    alpha = model.attraction_[DOCUMENTS]
    if name == "cm":
        return reader(alpha, half, lambda row, clicked, _: 0.0 if clicked else 1.0)
    if name == "dcm":
        lam = model.continuation_
        return reader(alpha, half, lambda row, clicked, _: lam[row] if clicked else 1.0)
    if name == "ccm":
        t1, t2, t3 = model.continuation_
        return reader(
            alpha, alpha, lambda row, clicked, happy: (t3 if happy else t2) if clicked else t1
        )
    assert name in ("dbn", "sdbn")
    gamma = model.perseverance_
    return reader(
        alpha, model.satisfaction_[DOCUMENTS], lambda row, _, happy: 0.0 if happy else gamma
    )


def test_the_likelihood_is_the_sum_over_everything_hidden(model_class, log, all_patterns):
    model = model_class().fit(log)
    truth = enumerated(model)
    for i in range(16):
        one = all_patterns.take([i])
        expected = truth.get(tuple(one.label.astype(int)), 0.0)
        assert np.exp(model.log_likelihood(one)) == pytest.approx(expected, rel=1e-9, abs=1e-14)


def test_patterns_share_all_probability(model_class, log, all_patterns):
    model = model_class().fit(log)
    total = sum(np.exp(model.log_likelihood(all_patterns.take([i]))) for i in range(16))
    assert total == pytest.approx(1)


def test_marginals_are_sums_over_patterns(model_class, log, all_patterns):
    model = model_class().fit(log)
    truth = enumerated(model)
    expected = sum(p * np.array(clicks) for clicks, p in truth.items())
    assert model.click_probability(all_patterns.take([5])) == pytest.approx(expected)


def test_conditionals_are_ratios_of_sums(model_class, log, all_patterns):
    model = model_class().fit(log)
    truth = enumerated(model)
    one = all_patterns.take([10])  # clicks 1, 0, 1, 0
    found = model.conditional_probability(one)
    clicks = tuple(one.label.astype(int))
    for row in range(4):
        above = {c: p for c, p in truth.items() if c[:row] == clicks[:row]}
        if sum(above.values()) > 0:
            share = sum(p for c, p in above.items() if c[row]) / sum(above.values())
            assert found[row] == pytest.approx(share)


@pytest.fixture(params=[ut.PBM, ut.UBM, ut.CM, ut.DCM, ut.SDBN, ut.DBN, ut.CCM])
def with_examination(request, log):
    return request.param().fit(log)


def test_examination_is_a_sum_over_everything_hidden(with_examination, all_patterns):
    table = hidden(with_examination)
    expected = sum(p * np.array(examined) for (_, examined), p in table.items())
    found = with_examination.examination_probability(all_patterns.take([5]))
    assert found == pytest.approx(expected)


def test_examination_given_clicks_is_a_ratio_of_sums(with_examination, all_patterns):
    table = hidden(with_examination)
    for i in range(16):
        one = all_patterns.take([i])
        pattern, found = (
            tuple(one.label.astype(int)),
            with_examination.conditional_examination(one),
        )
        for row in range(4):
            above = {key: p for key, p in table.items() if key[0][:row] == pattern[:row]}
            if sum(above.values()) > 0:
                seen = sum(p for (_, examined), p in above.items() if examined[row])
                assert found[row] == pytest.approx(seen / sum(above.values()))


@pytest.mark.parametrize("model", [ut.GCTR, ut.RCTR, ut.DCTR])
def test_a_rate_has_no_examination(model, log):
    fitted = model().fit(log)
    for asked in (fitted.examination_probability, fitted.conditional_examination):
        with pytest.raises(OptionError, match="Use a model with examination"):
            asked(log)


@pytest.mark.parametrize("model", [ut.DCM, ut.SDBN, ut.DBN, ut.CCM])
def test_long_lists_of_attractive_documents(model):
    """No click in 400 rows that are all but sure to get one: products far below 1e-16."""
    n = 400
    label = np.zeros((30, n))
    label[np.arange(29), np.arange(29)] = 1
    log = ut.ClickLog(
        query_id=[0], doc_id=np.arange(n), doc_query=np.zeros(n), indptr=np.arange(31) * n,
        query=np.zeros(30), document=np.tile(np.arange(n), 30),
        position=np.tile(np.arange(1, n + 1), 30), label=label.ravel(),
    )  # fmt: skip
    fitted = model(prior_strength=0).fit(log)
    assert np.all(np.isfinite(fitted.attraction_))
    assert np.isfinite(fitted.em_.log_likelihood)

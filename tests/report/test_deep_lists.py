"""Deep lists: what has no evidence is cut or said not to be known, and axes fit what is left."""

import numpy as np
import pytest

import untilt as ut
from untilt.data.counts import ClickRates
from untilt.facts import codes
from untilt.report.decision import Decision
from untilt.report.page import page, sections_of
from untilt.report.step_results import HeldOut, NewPositions, PairBias, UsedBias

DEPTH = 200


def deep_log(seed=0, n_queries=40, n_sessions=1500):
    """Pages of 20, and one in fifty of 200; nearly nobody clicks below 20."""
    rng = np.random.default_rng(seed)
    lengths = np.where(rng.random(n_sessions) < 0.02, DEPTH, 20)
    query = rng.integers(n_queries, size=n_sessions)
    relevance = np.sort(rng.beta(1, 3, (n_queries, DEPTH)), axis=1)[:, ::-1]
    documents, labels = [], []
    for q, length in zip(query, lengths, strict=True):
        score = relevance[q] + 0.1 * rng.normal(size=DEPTH)
        order = np.argsort(-score)[:length]
        examined = rng.random(length) < np.arange(1, length + 1) ** -1.5
        documents.append(q * DEPTH + order)
        labels.append(examined & (rng.random(length) < relevance[q, order]))
    features = np.c_[relevance.ravel() + 0.1 * rng.normal(size=n_queries * DEPTH)]
    return ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(n_queries * DEPTH),
        doc_query=np.repeat(np.arange(n_queries), DEPTH),
        indptr=np.r_[0, np.cumsum(lengths)],
        query=query,
        document=np.concatenate(documents),
        position=np.concatenate([np.arange(1, n + 1) for n in lengths]),
        label=np.concatenate(labels).astype(float),
        features=features.astype(np.float32),
        feature_names=("f",),
    )


@pytest.fixture(scope="module")
def log():
    return deep_log()


@pytest.fixture(scope="module")
def bias():
    """Known to position 20; below a floor that nobody measured."""
    theta = np.arange(1, DEPTH + 1) ** -1.5
    theta[20:] = 1e-6
    low, high = theta / 1.2, theta * 1.2
    low[20:], high[20:] = 0.0, 0.1
    return ut.PositionBias(theta, std_error=theta / 10, low=low, high=high, method="EM")


@pytest.fixture(scope="module")
def data(log, bias):
    systems = {"logged order": ut.shown, "new": log.features[:, 0].astype(float)}
    position = np.arange(1, DEPTH + 1)
    old = position.astype(np.float64)
    moved = NewPositions(position, old + 0.5, old - 0.5, old + 1.5)
    held_out = HeldOut.of(
        ut.estimate(log, systems, bias, clip=0.01),
        "new",
        new_positions={"new": moved},
        pair_bias=PairBias(old**-0.5, np.ones(DEPTH), 3),
    )
    return Decision(
        "deep", audit=ut.audit(log, depth=DEPTH), bias=UsedBias(bias, "given"), held_out=held_out
    )


def rates(clicks, impressions=1000):
    clicks = np.asarray(clicks, dtype=float)
    rate = clicks / impressions
    shown = np.full(len(clicks), impressions)
    return ClickRates(
        np.arange(1, len(clicks) + 1), shown, clicks, rate, rate / 9, rate, rate, 0.95
    )


@pytest.mark.parametrize(
    ("clicks", "depth"),
    [
        ([100] * 10, 10),  # a page of ten
        ([100] + [0] * 9, 10),  # whatever its clicks
        ([100] * 30 + [3] * 170, 30),  # clicks end at position 30
        ([100] + [0] * 199, 20),  # at least 20 positions
        ([100] * 200, 200),  # deep and clicked everywhere
    ],
)
def test_positions_are_drawn_as_far_down_as_there_are_clicks(clicks, depth):
    assert rates(clicks).drawn_depth == depth


def test_what_is_left_out_is_counted():
    fact = rates([100] * 30 + [3] * 170).not_drawn
    found = {name: fact.fields[name] for name in ("first", "last", "share", "clicks")}
    assert found == {"first": 31, "last": 200, "share": 0.85, "clicks": 510.0}
    assert rates([100] * 30).not_drawn is None


def test_click_rates_print_and_draw_what_has_clicks():
    found = rates([100] * 30 + [3] * 170)
    assert len(repr(found).splitlines()) == 2 + 30 + 1
    assert "positions 31..200 hold 85.0% of the impressions and 510 clicks" in repr(found)
    assert max(row["x"] for row in found.plot().to_dict()["data"]["values"]) == 30


def test_a_curve_says_where_it_is_not_known(bias):
    assert bias.known_depth == 20
    assert bias.uncertainty[[1, 20]].tolist() == pytest.approx([1.2, 0.1 / 1e-6])
    assert bias.text(21) == ("not known", "below 0.1000")
    assert "positions 21..200 not known" in repr(bias)
    assert max(row["x"] for row in bias.plot().to_dict()["data"]["values"]) == 20


def test_an_unknown_position_between_known_ones_leaves_a_gap():
    theta, wide = np.array([1.0, 0.5, 0.4]), np.array([1.0, 20.0, 1.5])
    bias = ut.PositionBias(theta, std_error=theta / 9, low=theta / wide, high=theta * wide)
    assert [row["value"] for row in bias.plot().to_dict()["data"]["values"]] == [1.0, None, 0.4]
    assert bias.table().rows[1] == ("2", "not known", "below 10.0000")


def test_a_curve_without_errors_is_known_everywhere():
    curve = ut.PowerLaw(1.0).to_bias(200)
    assert curve.known_depth == 200
    assert curve.text(2) == ("0.5000", "")


def positions_of(figure):
    return [row["x"] for row in figure.spec["data"]["values"]]


def test_no_chart_of_the_page_is_wider_than_its_evidence(data):
    depth = data.audit.click_rates.drawn_depth
    assert depth < 30
    figures = {f.name: f for section in sections_of(data) for f in section.figures}
    for name in ("click-rate", "examination", "moved", "pair-bias"):
        assert max(positions_of(figures[name])) == depth, name
        assert f"positions {depth + 1}..200 hold" in " ".join(figures[name].caption)
        assert len(figures[name].table.rows) == depth
    arcs = figures["graph"].spec["layer"][0]["data"]["values"]
    assert max(point["x"] for point in arcs) <= depth


def test_no_ratio_is_told_where_nothing_is_known(data):
    (section,) = (each for each in sections_of(data) if each.name == "positions")
    (text,) = section.paragraphs
    times = [
        float(word.replace(",", "")) for word in text.split() if word[0].isdigit() and "." in word
    ]
    assert times
    assert max(times) < 100  # 20^1.5 = 89
    assert "1,000,000" not in page(data)


def test_the_audit_of_a_deep_log_is_short(log):
    found = ut.audit(log, depth=DEPTH)
    told = repr(found)
    assert f"positions {found.click_rates.drawn_depth + 1}..200 hold" in told
    assert len(told.splitlines()) < 100
    assert all(len(each) < 400 for each in (*found.warnings, *found.notes))


def test_a_few_deep_clicks_do_not_ask_for_a_model_of_relevance(log):
    """Under 1% of the clicks lie below the positions that repeated documents compare."""
    found = ut.audit(log, depth=DEPTH)
    clicks = found.click_rates.clicks
    reach = found.advice.options["depth"]
    assert found.advice.estimator == "AllPairs"
    assert clicks[reach:].sum() <= 0.01 * clicks.sum()
    assert "audit.below" in codes(found.advice.why)

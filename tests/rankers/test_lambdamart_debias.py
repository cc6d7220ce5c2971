"""With a known truth: correcting for position bias gives a better ranker, by human labels."""

from typing import Any

import numpy as np
import pytest

from untilt import (
    IPS,
    PRS,
    AffineIPS,
    Balanced,
    ClickLog,
    KnownBias,
    LambdaMART,
    PairwiseDebiasing,
    make_judged,
    parse_metric,
)

THETA = 1 / np.arange(1.0, 11)
TRUST = KnownBias(THETA, eps_plus=np.linspace(0.98, 0.9, 10), eps_minus=0.5 / np.arange(1.0, 11))
SIZES: dict[str, Any] = {
    "n_trees": 60, "n_leaves": 8, "learning_rate": 0.1, "min_data_in_leaf": 10, "n_threads": 1,
}  # fmt: skip
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def train():
    return make_judged(150, 12, seed=0, mean_docs=12)


@pytest.fixture(scope="module")
def test():
    return make_judged(150, 12, seed=100, mean_docs=12)


def clicks_on(judged, seed, *, bias=KnownBias(THETA), quality=-0.5, sessions=100):  # noqa: B008
    """A production ranker (a rather bad one) shows each query's same ten documents every time."""
    rng = np.random.default_rng(seed)
    shown = 2 * rng.normal(size=len(judged)) + quality * judged.labels
    owner = np.repeat(np.arange(judged.n_queries), np.diff(judged.indptr))
    order = np.split(np.lexsort((-shown, owner)), judged.indptr[1:-1])
    lists = [rows[:10] for rows in order for _ in range(sessions)]
    length = np.array([len(rows) for rows in lists])
    document = np.concatenate(lists)
    place = np.concatenate([np.arange(n) for n in length])
    g = (0.1 + 0.9 * (2**judged.labels - 1) / 15)[document]
    alpha, beta = bias.affine()
    return ClickLog(
        query_id=judged.query_id, doc_id=np.arange(len(judged)), doc_query=owner,
        indptr=np.append(0, np.cumsum(length)), query=owner[[rows[0] for rows in lists]],
        document=document, position=place + 1, features=judged.features,
        label=1.0 * (rng.random(len(document)) < alpha[place] * g + beta[place]),
    )  # fmt: skip


def ndcg(ranker, judged):
    scores = ranker.predict(judged.features)
    return parse_metric("ndcg@10").per_list(scores, judged.labels, judged.indptr).mean()


@pytest.fixture(scope="module")
def logs(train):
    return [clicks_on(train, seed) for seed in SEEDS]


@pytest.fixture(scope="module")
def reached(logs, test):
    """Mean NDCG@10 on new queries, by what LambdaMART is given; each is trained once."""
    cache = {}

    def get(name, **options):
        if name not in cache:
            fitted = (LambdaMART(**SIZES, **options).fit(log) for log in logs)
            cache[name] = np.array([ndcg(ranker, test) for ranker in fitted])
        return cache[name]

    return get


@pytest.fixture(scope="module")
def raw(reached):
    return reached("raw clicks")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("PRS", {"weighting": PRS(THETA)}),
        ("Balanced", {"weighting": Balanced(THETA)}),
        ("IPS", {"weighting": IPS(THETA)}),
        ("joint", {"weighting": PairwiseDebiasing()}),
        ("likelihood", {"objective": "pbm-likelihood", "bias": THETA}),
        ("counts", {"objective": "ips-label", "bias": THETA}),
        ("posterior", {"objective": "posterior-label", "bias": THETA, "folds": 3}),
    ],
)
def test_every_correction_beats_raw_clicks(reached, raw, name, options):
    """Raw clicks reach about 0.68; labels about 0.79."""
    gain = reached(name, **options) - raw
    assert gain.min() > 0.01
    assert gain.mean() > 0.04


def test_half_of_the_gap_to_labels_is_closed(reached, raw, train, test):
    skyline = ndcg(LambdaMART(**SIZES).fit(train), test)
    for name, weighting in (("PRS", PRS(THETA)), ("Balanced", Balanced(THETA))):
        share = (reached(name, weighting=weighting) - raw).mean() / (skyline - raw.mean())
        assert share > 0.5


def test_without_its_clip_prs_turns_the_shown_order_round(train, test):
    """Its table favours what was shown low: after a good production ranker the worst to do."""
    log = clicks_on(train, 0, quality=4.0)
    clipped, unclipped, raw = (
        ndcg(LambdaMART(weighting, **SIZES).fit(log), test)
        for weighting in (PRS(THETA), PRS(THETA, clip=np.inf), None)
    )
    assert unclipped < raw - 0.05
    assert unclipped < clipped - 0.05


def test_a_curve_the_wrong_way_round_is_worse_than_raw_clicks(reached, raw):
    upside_down = reached("upside down", weighting=PRS(THETA[::-1]))
    assert (upside_down - raw).mean() < -0.02


def test_trust_bias_needs_the_affine_correction(train, test):
    """Clicks on irrelevant documents at the top: theta alone does not take them out."""
    logs = [clicks_on(train, seed, bias=TRUST) for seed in SEEDS[:2]]
    for with_trust, without in (
        ({"weighting": Balanced(TRUST)}, {"weighting": Balanced(THETA)}),
        ({"weighting": AffineIPS(TRUST)}, {"weighting": IPS(THETA, against="all")}),
        ({"objective": "pbm-likelihood", "bias": TRUST},
         {"objective": "pbm-likelihood", "bias": THETA}),
    ):  # fmt: skip
        values = [
            [ndcg(LambdaMART(**SIZES, **options).fit(log), test) for log in logs]
            for options in (with_trust, without)
        ]
        assert np.mean(values[0]) > np.mean(values[1]) + 0.02

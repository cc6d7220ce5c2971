"""A metric is a value: it prints, parses, compares and hashes."""

import pickle

import numpy as np
import pytest

from untilt.errors import OptionError
from untilt.metrics import (
    ARP,
    DCG,
    MAP,
    MRR,
    NDCG,
    Metric,
    Precision,
    Recall,
    parse_metric,
    parse_metrics,
)

NAMES = [
    ("ndcg@10", NDCG(10)),
    ("ndcg", NDCG()),
    ("ndcg@10:gain=linear", NDCG(10, gain="linear")),
    ("dcg@5", DCG(5)),
    ("dcg:gain=linear", DCG(gain="linear")),
    ("arp", ARP()),
    ("map", MAP()),
    ("map@100", MAP(100)),
    ("map:relevant_from=2", MAP(relevant_from=2)),
    ("precision@5", Precision(5)),
    ("recall@20:relevant_from=0.1", Recall(20, relevant_from=0.1)),
    ("mrr@3:relevant_from=0.30000000000000004", MRR(3, relevant_from=0.1 + 0.2)),
]


@pytest.mark.parametrize(("name", "metric"), NAMES)
def test_a_metric_prints_and_parses(name: str, metric: Metric) -> None:
    assert str(metric) == name
    assert parse_metric(name) == metric
    assert hash(parse_metric(name)) == hash(metric)
    assert parse_metric(metric) is metric


@pytest.mark.parametrize(
    ("spelling", "metric"),
    [
        ("nDCG@10", NDCG(10)),
        ("  NDCG @ 10 ", NDCG(10)),
        ("P@5", Precision(5)),
        ("prec@5", Precision(5)),
        ("R@5", Recall(5)),
        ("AP", MAP()),
        ("RR@10", MRR(10)),
        ("ndcg@3:gain=exponential", NDCG(3)),
        ("P@5 : Relevant_From = 2", Precision(5, relevant_from=2.0)),
    ],
)
def test_other_spellings(spelling: str, metric: Metric) -> None:
    assert parse_metric(spelling) == metric


def test_equality_is_by_value() -> None:
    assert NDCG(10) == NDCG(np.int64(10))  # type: ignore[arg-type]
    assert type(NDCG(np.int64(10)).k) is int  # type: ignore[arg-type]
    assert NDCG(10) != NDCG(5)
    assert NDCG(10) != DCG(10)
    assert NDCG(10) != NDCG(10, gain="linear")
    assert MAP(relevant_from=1) == MAP()
    assert len({NDCG(10), NDCG(10), DCG(10), parse_metric("ndcg@10")}) == 2
    assert pickle.loads(pickle.dumps(NDCG(10))) == NDCG(10)


def test_a_metric_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        NDCG(10).k = 5  # type: ignore[misc]


def test_repr_is_the_call() -> None:
    assert repr(NDCG(10)) == "NDCG(k=10, gain='exponential')"
    assert eval(repr(MAP(3, relevant_from=2))) == MAP(3, relevant_from=2)


def test_only_arp_is_better_when_lower() -> None:
    lower = [metric.name for _, metric in NAMES if not metric.higher_is_better]
    assert lower == ["arp"]


def test_several_metrics_each_once() -> None:
    assert parse_metrics("map") == (MAP(),)
    assert parse_metrics(["ndcg@10", NDCG(10), "MAP"]) == (NDCG(10), MAP())
    with pytest.raises(OptionError, match="no metric was asked for"):
        parse_metrics([])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ndgc@10", r"metric must be one of 'ndcg', 'dcg', 'arp', .* Did you mean 'ndcg'"),
        ("precison@3", r"Did you mean 'precision'\?"),
        ("xyz", r"Got 'xyz' instead"),
        ("ndcg@0", "ndcg@k needs a whole number k of at least 1. Got 0"),
        ("ndcg@-3", "ndcg@k needs a whole number k of at least 1. Got '-3'"),
        ("ndcg@ten", "ndcg@k needs a whole number k of at least 1. Got 'ten'"),
        ("ndcg@", "ndcg@k needs a whole number k"),
        ("arp@10", "arp has no cut: it looks at the whole list. Write arp"),
        ("precision", "precision needs a cut, as in 'precision@10'"),
        ("ndcg@10:gian=linear", r"ndcg has no option 'gian'. Did you mean 'gain'\?"),
        ("ndcg@10:gain", "ndcg has no option 'gain'.*Its options, written name=value: gain"),
        ("ndcg@10:", "ndcg has no option ''"),
        ("ndcg:k=10", "ndcg has no option 'k'"),
        ("arp:gain=linear", "arp has no option 'gain'. Its options, written name=value: none"),
        (
            "ndcg@10:gain=liner",
            r"gain must be one of .* Got 'liner' instead. Did you mean 'linear'",
        ),
        ("map:relevant_from=high", "'relevant_from' of map must be a number"),
        ("map:relevant_from=0", "relevant_from must be a number above 0"),
        ("map:relevant_from=nan", "relevant_from must be a number above 0"),
        ("", "a metric is a name such as 'ndcg@10'. Got ''"),
        ("@10", "a metric is a name"),
        (None, "a metric is a name such as 'ndcg@10'. Got None"),
    ],
)
def test_wrong_names_say_what_to_write(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_metric(name)


@pytest.mark.parametrize("k", [0, -1, 2.5, True, "10"])
def test_a_bad_cut_is_refused(k: object) -> None:
    for kind in (NDCG, DCG, MAP, MRR, Precision, Recall):
        with pytest.raises(OptionError, match=f"{kind.name}@k needs a whole number k"):
            kind(k)  # type: ignore[arg-type]


def test_precision_and_recall_need_a_cut() -> None:
    with pytest.raises(OptionError, match="precision@k needs"):
        Precision()
    with pytest.raises(OptionError, match="recall@k needs"):
        Recall()

"""Equality with independent libraries on MQ2008, all five parts, random scores."""

from pathlib import Path
from typing import NamedTuple

import ir_measures
import numpy as np
import pytest
from ir_measures import AP, RR, P, R, nDCG
from sklearn.datasets import load_svmlight_file
from sklearn.metrics import dcg_score, ndcg_score

from untilt.metrics import Metric, parse_metric


class Lists(NamedTuple):
    labels: np.ndarray
    indptr: np.ndarray

    def each(self, *columns: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        starts = self.indptr[1:-1]
        return list(zip(*(np.split(column, starts) for column in columns), strict=True))


@pytest.fixture(scope="module")
def mq2008(data_dir: Path) -> Lists:
    parts = [
        load_svmlight_file(str(data_dir / "mq2008" / f"S{part}.txt.gz"), query_id=True)
        for part in range(1, 6)
    ]
    labels = np.concatenate([part[1] for part in parts])
    query = np.concatenate([part[2] for part in parts])
    starts = np.r_[0, np.flatnonzero(np.diff(query)) + 1, len(query)]
    assert (len(labels), len(starts) - 1) == (15_211, 784)
    return Lists(labels, starts)


def distinct_scores(lists: Lists, rng: np.random.Generator) -> np.ndarray:
    # Whole numbers: trec_eval holds scores as 32-bit floats, where close ones would become ties.
    return rng.permutation(len(lists.labels)).astype(float)


@pytest.mark.parametrize(
    ("name", "measure"),
    [
        ("ndcg@10:gain=linear", nDCG @ 10),
        ("ndcg@1:gain=linear", nDCG @ 1),
        ("ndcg:gain=linear", nDCG),
        ("ndcg@10", nDCG(gains={0: 0, 1: 1, 2: 3}) @ 10),
        ("ndcg", nDCG(gains={0: 0, 1: 1, 2: 3})),
        ("map", AP),
        ("map@10", AP @ 10),
        ("map:relevant_from=2", AP(rel=2)),
        ("mrr", RR),
        ("mrr:relevant_from=2", RR(rel=2)),
        ("precision@5", P @ 5),
        ("precision@100", P @ 100),
        ("precision@10:relevant_from=2", P(rel=2) @ 10),
        ("recall@5", R @ 5),
        ("recall@10:relevant_from=2", R(rel=2) @ 10),
    ],
)
def test_equal_to_ir_measures(
    mq2008: Lists, rng: np.random.Generator, name: str, measure: ir_measures.Measure
) -> None:
    scores = distinct_scores(mq2008, rng)
    qrels, run = {}, {}
    for query, (labels, values) in enumerate(mq2008.each(mq2008.labels, scores)):
        documents = [f"d{i}" for i in range(len(labels))]
        qrels[f"q{query}"] = dict(zip(documents, labels.astype(int).tolist(), strict=True))
        run[f"q{query}"] = dict(zip(documents, values.tolist(), strict=True))
    found = {metric.query_id: metric.value for metric in measure.iter_calc(qrels, run)}
    expected = [found[query] for query in qrels]
    ours = parse_metric(name).per_list(scores, mq2008.labels, mq2008.indptr)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)
    assert ours.std() > 0.01


@pytest.mark.parametrize("levels", [None, 2, 5], ids=["no ties", "2 levels", "5 levels"])
@pytest.mark.parametrize("name", ["ndcg@10", "ndcg@3", "ndcg", "ndcg@10:gain=linear", "dcg@5"])
def test_equal_to_scikit_learn_also_with_ties(
    mq2008: Lists, rng: np.random.Generator, name: str, levels: int | None
) -> None:
    scores = distinct_scores(mq2008, rng)
    if levels is not None:
        scores = rng.integers(0, levels, len(scores)).astype(float)
    metric: Metric = parse_metric(name)
    theirs = ndcg_score if metric.name == "ndcg" else dcg_score
    gains = mq2008.labels if "linear" in name else 2**mq2008.labels - 1
    expected = [
        theirs(gain[None, :], score[None, :], k=metric.cut)
        for gain, score in mq2008.each(gains, scores)
    ]
    ours = metric.per_list(scores, mq2008.labels, mq2008.indptr, ties="average")
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-9)
    assert ours.std() > 0.01

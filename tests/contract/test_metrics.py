"""What every metric promises."""

import numpy as np
import pytest

from untilt import catalog, parse_metric

LABELS = np.array([0.0, 2.0, 1.0, 0.0, 1.0, 0.0])
INDPTR = np.array([0, 3, 6])


@pytest.fixture(params=catalog.methods("metric"), ids=lambda record: record.name)
def metric(request):
    """One of each kind; those that mean nothing without a cut have one."""
    record = request.param
    return record.make(2) if "cut" in record.needs else record.make()


def test_it_prints_and_parses(metric):
    assert parse_metric(str(metric)) == metric
    assert parse_metric(str(metric).upper()) == metric
    assert hash(parse_metric(str(metric))) == hash(metric)


def test_the_order_by_label_is_best_and_its_reverse_worst(metric):
    best, worst = (metric.mean(sign * LABELS, LABELS, INDPTR).value for sign in (1, -1))
    assert best > worst if metric.higher_is_better else best < worst


def test_the_order_of_lists_and_of_their_documents_does_not_matter(metric):
    scores = np.array([0.3, 0.1, 0.2, 0.6, 0.5, 0.4])
    values = metric.per_list(scores, LABELS, INDPTR)
    swapped = np.r_[3:6, 0:3]
    assert metric.per_list(scores[swapped], LABELS[swapped], INDPTR) == pytest.approx(values[::-1])
    turned = np.array([2, 1, 0, 5, 4, 3])
    assert metric.per_list(scores[turned], LABELS[turned], INDPTR) == pytest.approx(values)


def test_counts_are_repeated_lists(metric):
    scores = np.array([0.3, 0.1, 0.2, 0.6, 0.5, 0.4])
    thrice = np.r_[0:3, 3:6, 3:6, 3:6]
    repeated = metric.mean(scores[thrice], LABELS[thrice], np.arange(0, 13, 3)).value
    counted = metric.mean(scores, LABELS, INDPTR, weights=np.array([1.0, 3.0])).value
    assert counted == pytest.approx(repeated)


def test_inputs_are_not_written_to(metric):
    scores, labels = np.arange(6.0), LABELS.copy()
    metric.per_list(scores, labels, INDPTR)
    assert scores.tolist() == [0, 1, 2, 3, 4, 5]
    assert labels.tolist() == LABELS.tolist()


def test_a_relevant_document_at_the_top_alone_is_perfect(metric):
    value = metric.per_list([3, 2, 1], [1, 0, 0], [0, 3])[0]
    perfect = {"precision": 1 / 2}.get(metric.name, 1.0)  # one of two positions
    assert value == pytest.approx(perfect)

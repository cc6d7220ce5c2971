"""A fitted click model as the protocol of a simulation."""

from typing import Any

import numpy as np
import pytest

from untilt import PBM, UBM, catalog, make_judged, simulate
from untilt.errors import NotFittedError, OptionError

MODELS = [record.load() for record in catalog.methods("click model")]
JUDGED = make_judged(n_queries=25, n_features=5, seed=0)


@pytest.fixture(scope="module")
def first():
    return simulate(JUDGED, protocol="swap", n_sessions=20_000, seed=1)


SMALL: dict[str, dict[str, Any]] = {"ncm": {"width": 8, "vector_length": 3, "epochs": 10}}
# One of each kind in `make test`: a rate, a curve, a chain, a cascade, a network.
SLOW = pytest.mark.slow
USUAL = ("DCTR", "PBM", "DBN", "DCM", "NCM")


@pytest.mark.parametrize(
    "model_class",
    [
        pytest.param(each, id=each.__name__, marks=() if each.__name__ in USUAL else SLOW)
        for each in MODELS
    ],
)
def test_every_model_can_be_one(model_class, first):
    model = model_class(**SMALL.get(model_class.name, {})).fit(first.log)
    second = simulate(JUDGED, protocol=model, n_sessions=20_000, ranker=np.arange(len(JUDGED)))
    assert second.log.n_sessions == 20_000
    assert second.log.n_lists < 20_000
    p = second.truth.click_probabilities(second.log)
    count = second.log.row_count
    clicks = np.dot(second.log.label, count)
    error = np.sqrt(np.dot(p * (1 - p), count))
    # Clicks of a session hang together a little, hence six instead of four.
    assert abs(clicks - np.dot(p, count)) < 6 * error


def test_the_truth_of_pbm_is_its_curve(first):
    model = PBM().fit(first.log)
    second = simulate(JUDGED, protocol=model, n_sessions=5000, seed=3)
    assert second.truth.examination == pytest.approx(model.examination_)
    again = PBM().fit(second.log)
    assert np.isfinite(again.log_likelihood(second.log))


def test_sessions_apart_and_only_shown_documents(first):
    model = UBM().fit(first.log)
    options: dict[str, Any] = {"protocol": model, "n_sessions": 300, "seed": 4}
    apart = simulate(JUDGED, collapse=False, **options)
    assert apart.log.n_lists == 300
    assert apart.log.time.tolist() == list(range(300))
    shown = simulate(JUDGED, keep_unshown=False, **options)
    whole = simulate(JUDGED, **options)
    assert shown.log.n_documents < whole.log.n_documents
    assert shown.truth.click_probabilities(shown.log) == pytest.approx(
        whole.truth.click_probabilities(whole.log)
    )


def test_the_same_seed_gives_the_same_log(first):
    model = UBM().fit(first.log)
    one, two, other = (
        simulate(JUDGED, protocol=model, n_sessions=300, collapse=False, seed=seed).log.label
        for seed in (1, 1, 2)
    )
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_errors_say_what_to_do(first):
    with pytest.raises(NotFittedError, match="Fit it first"):
        simulate(JUDGED, protocol=PBM(), n_sessions=10)
    model = PBM().fit(first.log)
    with pytest.raises(OptionError, match="Ask for n_sessions"):
        simulate(JUDGED, protocol=model, n_clicks=10)
    strangers = make_judged(n_queries=25, n_features=5, seed=0)
    strangers = type(strangers)(
        features=strangers.features,
        labels=strangers.labels,
        indptr=strangers.indptr,
        query_id=strangers.query_id + 1000,
        doc_id=strangers.doc_id,
    )
    with pytest.raises(OptionError, match="knows none of the"):
        simulate(strangers, protocol=model, n_sessions=10)
    made = simulate(JUDGED, protocol=model, n_sessions=10)
    with pytest.raises(OptionError, match="click_probabilities"):
        made.truth.click_probability(0, 1)

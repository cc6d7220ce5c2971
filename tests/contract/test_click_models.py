"""What every click model promises, whatever it assumes about people."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from untilt import catalog, load
from untilt.data.clicklog import ClickLog
from untilt.errors import (
    DepthError,
    FileFormatError,
    IdentifiabilityError,
    NotFittedError,
    OptionError,
)
from untilt.rankers.base import load as load_ranker

MODELS = [record.load() for record in catalog.methods("click model")]
pytestmark = pytest.mark.parametrize("model_class", MODELS, ids=lambda model: model.__name__)
SMALL: dict[str, dict[str, Any]] = {
    "ncm": {"width": 8, "vector_length": 3, "epochs": 20, "batch_size": 128}
}
EM_MODELS = ("pbm", "ubm", "dcm", "sdbn", "dbn", "ccm")


def make(seed, *, n_lists=300, n_queries=5, n_candidates=7, depth=5, first_query=0):
    rng = np.random.default_rng(seed)
    n_documents = n_queries * n_candidates
    appeal = np.random.default_rng(99).uniform(0.1, 0.8, n_documents)
    query = rng.integers(n_queries, size=n_lists)
    shown = [q * n_candidates + rng.permutation(n_candidates)[:depth] for q in query]
    document = np.concatenate(shown)
    position = np.tile(np.arange(1, depth + 1), n_lists)
    return ClickLog(
        query_id=np.arange(first_query, first_query + n_queries),
        doc_id=np.arange(n_documents),
        doc_query=np.repeat(np.arange(n_queries), n_candidates),
        indptr=np.arange(0, n_lists * depth + 1, depth),
        query=query,
        document=document,
        position=position,
        label=rng.random(len(document)) < appeal[document] / position**0.6,
        count=rng.integers(1, 4, n_lists),
    )


@pytest.fixture
def log():
    return make(0)


def new(model_class, **options):
    """One to be fitted; a network is small."""
    return model_class(**SMALL.get(model_class.name, {}), **options)


def answers(model, log):
    return np.concatenate(
        [model.click_probability(log), model.conditional_probability(log), model.relevance_]
    )


def test_the_constructor_only_stores(model_class):
    model = model_class()
    assert vars(model) == model.get_params()
    assert type(clone(model)) is model_class


def test_counts_are_repeats(model_class, log):
    repeated = log.take(np.repeat(np.arange(log.n_lists), log.sessions))
    repeated = repeated._with(count=np.ones(repeated.n_lists, dtype=np.int64))
    counted, single = new(model_class).fit(log), new(model_class).fit(repeated)
    assert answers(counted, log) == pytest.approx(answers(single, log), abs=1e-7)
    if model_class.name != "cm":  # minus infinity on both sides
        assert counted.log_likelihood(log) == pytest.approx(counted.log_likelihood(repeated))


def test_the_order_of_lists_and_sessions_does_not_matter(model_class, log, rng):
    shuffled = log.take(rng.permutation(log.n_lists)).collapse()
    first, second = new(model_class).fit(log), new(model_class).fit(shuffled)
    assert answers(first, log) == pytest.approx(answers(second, log), abs=1e-7)


def test_documents_are_known_by_their_ids(model_class, log, rng):
    order = rng.permutation(log.n_documents)
    place = np.argsort(order)
    moved = replace(
        log,
        doc_id=log.doc_id[order],
        doc_query=log.doc_query[order],
        document=place[log.document],
    )
    model = new(model_class).fit(log)
    assert model.click_probability(moved) == pytest.approx(model.click_probability(log))


def test_nothing_is_written_to(model_class, log):
    before = {name: np.copy(getattr(log, name)) for name in ("label", "position", "count")}
    model = new(model_class).fit(log)
    model.sample(log, seed=0)
    for name, value in before.items():
        assert np.array_equal(getattr(log, name), value)


def test_fitting_twice_gives_the_same(model_class, log):
    model = new(model_class)
    first = answers(model.fit(log), log)
    assert np.array_equal(first, answers(model.fit(log), log))


def test_probabilities_are_probabilities(model_class, log):
    found = answers(new(model_class).fit(log), log)
    assert np.all((found >= 0) & (found <= 1))


def test_em_never_lowers_the_likelihood(model_class, log):
    if model_class.name not in EM_MODELS:
        assert not hasattr(new(model_class).fit(log), "em_")
        return
    by_em = {"method": "likelihood"} if "method" in new(model_class).get_params() else {}
    em = new(model_class, **by_em).fit(log).em_
    assert em.converged
    assert np.all(np.diff(em.history) >= 0)
    # The history is what it says: without a prior its end is the log-likelihood.
    model = new(model_class, prior_strength=0.0, **by_em).fit(log)
    assert model.em_.history[-1] == pytest.approx(model.log_likelihood(log), rel=1e-6)


def test_it_beats_a_rate_for_everything(model_class, log):
    overall = MODELS[0]().fit(log).log_likelihood(log)
    found = new(model_class).fit(log).log_likelihood(log)
    assert found == overall if model_class.name == "gctr" else found > overall or np.isinf(found)


def test_unknown_documents_have_the_prior_mean(model_class, log):
    model = new(model_class).fit(log)
    others = make(0, first_query=1000)  # no query in common
    if model_class.name in ("gctr", "rctr"):
        assert model.click_probability(others) == pytest.approx(model.click_probability(log))
        return
    top = others.position == 1
    found = model.click_probability(others)[top]
    assert np.ptp(found) < 1e-12
    at_top = {"pbm": "examination_", "ubm": "examination_"}.get(model_class.name)
    scale = 1.0 if at_top is None else np.ravel(getattr(model, at_top))[0]
    mean = getattr(model, "attraction_mean_", model.prior_mean_)
    assert found[0] == pytest.approx(scale * mean)
    assert 0 < model.prior_mean_ < 1


def test_smoothing_draws_rare_documents_to_the_mean(model_class, log):
    if "prior_strength" not in new(model_class).get_params():
        return
    free = new(model_class, prior_strength=0.0).fit(log)
    firm = new(model_class, prior_strength=1e6).fit(log)
    assert np.ptp(firm.relevance_) < 0.01 * np.ptp(free.relevance_)


def test_samples_follow_the_probabilities(model_class, log):
    model = new(model_class).fit(log)
    lists = log.take(np.arange(3))._with(count=np.full(3, 4000))
    drawn = model.sample(lists, seed=1)
    assert drawn.n_sessions == 12_000
    rate = drawn.label.reshape(3, 4000, log.depth).mean(axis=1).ravel()
    p = model.click_probability(lists)
    assert np.all(np.abs(rate - p) <= 4.5 * np.sqrt(p * (1 - p) / 4000) + 1e-9)


def test_samples_repeat_with_their_seed(model_class, log):
    model = new(model_class).fit(log)
    first, second = model.sample(log, seed=5), model.sample(log, seed=5)
    assert np.array_equal(first.label, second.label)
    assert not np.array_equal(first.label, model.sample(log, seed=6).label)


def test_gaps_between_positions(model_class, log):
    odd = replace(log, position=2 * log.position - 1)
    model = new(model_class).fit(odd)
    assert np.all(np.isfinite(model.click_probability(odd)))
    filled = replace(odd, position=log.position)
    assert np.all(np.isfinite(model.click_probability(filled)))  # positions 2 and 4 are new


def test_errors_say_what_to_do(model_class, log):
    name = model_class.__name__
    with pytest.raises(NotFittedError, match=f"this {name} .* Call fit"):
        new(model_class).click_probability(log)
    model = new(model_class).fit(log.top(3))
    with pytest.raises(DepthError, match=r"positions 1\.\.3\. Cut the log with log\.top\(3\)"):
        model.click_probability(log)
    graded = log.with_label(log.label * 3)
    with pytest.raises(OptionError, match="0 or 1"):
        new(model_class).fit(graded)
    with pytest.raises(OptionError, match="0 or 1"):
        model.conditional_probability(graded.top(3))
    with pytest.raises(IdentifiabilityError, match="has no clicks"):
        new(model_class).fit(log.with_label(np.zeros(len(log.label))))
    if "prior_strength" in model.get_params():
        with pytest.raises(OptionError, match=r"prior_strength must be at least 0\. Got -1"):
            new(model_class, prior_strength=-1).fit(log)


def test_versions_of_a_document_are_one_document(model_class, log, with_versions):
    changing = with_versions(log)
    options = {"documents": "ids"} if model_class.name == "ncm" else {}
    want, made = new(model_class, **options).fit(log), new(model_class, **options).fit(changing)
    assert len(made.documents_) == log.n_documents
    assert answers(made, changing) == pytest.approx(answers(want, log), abs=1e-9)
    assert np.array_equal(made.seen_, want.seen_)


def test_versions_have_a_relevance_in_common_also_by_features(model_class, log, with_versions):
    if model_class.name != "ncm":
        return  # no other model looks at features
    changing = with_versions(log)
    model = new(model_class).fit(changing)
    assert model.relevance_.shape == (log.n_documents,)
    assert np.all(np.isfinite(answers(model, changing)))


@pytest.mark.parametrize("ids", ["numbers", "text", "objects"])
def test_saved_and_loaded_it_answers_the_same(model_class, log, tmp_path, ids):
    if ids != "numbers":
        kind = object if ids == "objects" else str
        log = replace(
            log,
            query_id=np.array([f"q {i}" for i in log.query_id], dtype=kind),
            doc_id=np.array([f"d{i}" for i in log.doc_id], dtype=kind),
        )
    model = new(model_class).fit(log)
    path = tmp_path / "model.untilt"
    model.save(path)
    for again in (load(path), model_class.load(path)):
        assert type(again) is model_class
        assert again.get_params() == model.get_params()
        assert np.array_equal(answers(again, log), answers(model, log))
        assert np.array_equal(again.seen_, model.seen_)
        assert np.array_equal(again.sample(log, seed=3).label, model.sample(log, seed=3).label)
        assert set(vars(again)) == set(vars(model))
        if hasattr(model, "bias_"):
            assert np.array_equal(again.bias_.high, model.bias_.high)
            assert again.bias_.status == model.bias_.status
        if hasattr(model, "em_"):
            assert again.em_.status == model.em_.status


def test_a_damaged_file_and_another_model_are_refused(model_class, log, tmp_path):
    path = tmp_path / "model.untilt"
    with pytest.raises(NotFittedError, match="Call fit"):
        new(model_class).save(path)
    new(model_class).fit(log).save(path)
    other = next(each for each in MODELS if each is not model_class)
    with pytest.raises(FileFormatError, match=f"holds a {model_class.__name__}, and no"):
        other.load(path)
    with pytest.raises(FileFormatError, match="which is no ranker"):
        load_ranker(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="checksum"):
        load(path)


def test_a_log_that_cannot_tell_the_curve_says_so_after_loading_too(model_class, log, tmp_path):
    if not hasattr(model_class, "bias_"):
        return
    one_list = log.take(np.flatnonzero(log.query == log.query[0])[:1])
    one_list = replace(one_list, count=np.array([4]))
    new(model_class).fit(one_list).save(tmp_path / "model.untilt")
    with pytest.raises(IdentifiabilityError, match="position"):
        load(tmp_path / "model.untilt").bias_  # noqa: B018

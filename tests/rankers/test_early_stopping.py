"""Queries set aside to stop by, for every network; checkpoints that resume to the same ranker."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt import (
    PRS,
    DualLearning,
    FeedbackTowers,
    NeuralRanker,
    PairwiseDebiasing,
    PairwiseTrustRanker,
    TowerRanker,
    make_judged,
    parse_metric,
)
from untilt.data.seen import overlap_of
from untilt.errors import FileFormatError, OptionError
from untilt.networks import training
from untilt.networks.training import save_checkpoint, train
from untilt.rankers.learning_data import training_lists
from untilt.rankers.networks.network_ranker import inputs_of, set_aside, stopping_for
from untilt.rankers.networks.neural import NetworkTasks
from untilt.rankers.validation import held_out_clicks, held_out_likelihood

THETA = 1 / np.arange(1.0, 6)
SMALL: dict[str, Any] = {"widths": (4,), "activation": "tanh", "batch_size": 64, "epochs": 4}
MAKERS: dict[str, Any] = {
    "pairwise": lambda **more: NeuralRanker(PRS(THETA), **{**SMALL, **more}),
    "joint": lambda **more: NeuralRanker(PairwiseDebiasing(p=1), **{**SMALL, **more}),
    "dual": lambda **more: DualLearning(**{**SMALL, "schedule": "constant", **more}),
    "trust": lambda **more: PairwiseTrustRanker(**{**SMALL, **more}),
    "trust, drawn": lambda **more: PairwiseTrustRanker(
        "ipw", posteriors="sampled", **{**SMALL, **more}
    ),
    "trust, full": lambda **more: PairwiseTrustRanker(
        em="full-batch", relevance="linear", max_steps=5, **{**SMALL, **more}
    ),
    "trust, pairs": lambda **more: PairwiseTrustRanker(preference="pairs", **{**SMALL, **more}),
    "trust, naive": lambda **more: PairwiseTrustRanker("naive", **{**SMALL, **more}),
    "tower": lambda **more: TowerRanker("sum", **{**SMALL, **more}),
    "pal": lambda **more: TowerRanker("product", **{**SMALL, **more}),
    "columns": lambda **more: FeedbackTowers({"click": "product"}, **{**SMALL, **more}),
}


@pytest.fixture(scope="module")
def log(pbm_log):
    """Sixty queries: twelve are set aside."""
    return pbm_log(n_queries=60, sessions=6, seed=5).log


@pytest.fixture(scope="module", params=MAKERS)
def make(request):
    return MAKERS[request.param]


@pytest.fixture(scope="module", params=["pairwise", "trust", "tower"])
def make_some(request):
    """One of each loop: the common one, EM beside it, and one that judges by its own loss."""
    return MAKERS[request.param]


# ---- what is set aside


def test_every_network_sets_queries_aside_keeps_the_best_epoch_and_resumes(log, make, tmp_path):
    """Cut short after two epochs, and gone on: the same scores, losses and judgements."""
    whole = make().fit(log)
    fact = whole.summary_["held_out"]
    assert (fact.code, fact.fields["n_queries"]) == ("network.held-out", 12)
    assert whole.summary_["queries"] == 48
    assert overlap_of(log, whole).trained == 60
    path = tmp_path / "training.npz"
    make(checkpoint=path, epochs=2).fit(log)
    assert list(tmp_path.iterdir())
    resumed = make(checkpoint=path).fit(log)
    assert np.array_equal(resumed.predict(log.features), whole.predict(log.features))
    for name in ("losses_", "watched_", "bias_", "history_"):
        if hasattr(whole, name):
            assert repr(getattr(resumed, name)) == repr(getattr(whole, name)), name
    finished = make(checkpoint=path).fit(log)
    assert np.array_equal(finished.predict(log.features), whole.predict(log.features))
    with pytest.raises(FileFormatError, match="belongs to another training"):
        make(checkpoint=path, l2=0.5).fit(log)
    train, rest = log.split(0.8, seed=0)
    with pytest.raises(FileFormatError, match="belongs to another training"):
        make(checkpoint=path).fit(train, valid=rest.with_label(1 - rest.label))


def test_the_queries_that_are_set_aside_are_those_of_a_split(log, make_some):
    """The same ranker as with `valid=` given; and the split depends on the seed alone."""
    train, rest = log.split(0.8, seed=0)
    given = make_some().fit(train, valid=rest)
    assert given.summary_["held_out"].code == "network.held-out-given"
    alone = make_some().fit(log.take(np.random.default_rng(1).permutation(log.n_lists)))
    assert np.array_equal(alone.predict(log.features), given.predict(log.features))


def test_switched_off_nothing_is_set_aside_and_nothing_is_judged(log, make_some):
    ranker = make_some(early_stopping=None).fit(log)
    assert ranker.summary_["held_out"].code == "network.no-early-stopping"
    assert ranker.summary_["queries"] == 60
    assert getattr(ranker, "watched_", ()) == ()


def test_few_queries_are_all_trained_on(pbm_log, make_some):
    few = pbm_log(n_queries=49, sessions=6).log
    ranker = make_some(epochs=1).fit(few)
    fact = ranker.summary_["held_out"]
    assert fact.code == "network.too-few-to-hold-out"
    assert (fact.fields["n_queries"], fact.fields["fewest"], fact.severity) == (49, 50, "warning")
    off = make_some(epochs=1, early_stopping=None).fit(few)
    assert np.array_equal(ranker.predict(few.features), off.predict(few.features))


def test_a_part_without_clicks_is_not_set_aside(log):
    owner = np.repeat(log.query, np.diff(log.indptr))
    first = np.where(owner == log.query[0], log.label, 0.0)
    ranker = NeuralRanker(**SMALL)
    assert set_aside(ranker, log.with_label(first), None).held_out is None


def test_switched_off_it_is_plain_training_on_all_lists(log):
    """The loop of `train` on the task's own batches, without penalty, by hand."""
    ranker = NeuralRanker(PRS(THETA), early_stopping=None, l2=0.0, **SMALL).fit(log)
    lists = training_lists(log)
    inputs = inputs_of(lists, "none")
    task = NetworkTasks(ranker, lists, ranker.weighting, inputs).of_loss()
    constants = {"features": inputs.features, "l2": np.asarray(0, np.float32), **task.constants}
    trained = train(
        task.loss, task.start, task.batches, optimiser=ranker._optimiser(), epochs=4,
        constants=constants,
    )  # fmt: skip
    assert trained.losses == tuple(ranker.losses_)
    for one, other in zip(trained.params["weights"], ranker.network_.weights, strict=True):
        assert np.array_equal(one, other)


# ---- what judges


def test_clicks_judge_by_their_likelihood_under_the_curve(log):
    train_part, rest = log.split(0.8, seed=0)
    ranker = NeuralRanker(PRS(THETA), **SMALL).fit(log)
    judge = held_out_likelihood(rest, THETA)
    for epoch in (1, 3):
        short = NeuralRanker(PRS(THETA), early_stopping=None, **{**SMALL, "epochs": epoch})
        scores = short.fit(train_part).predict(judge.features)
        assert ranker.watched_[epoch - 1] == pytest.approx(judge.value(scores), abs=1e-5)


def test_a_learned_curve_is_judged_by_the_whole_likelihood(log):
    """A steeper curve has no advantage: the true one is better than its powers 0.5 and 2."""
    ranker = DualLearning(**SMALL)
    lists = training_lists(log)
    inputs = inputs_of(lists, "none")
    layers = inputs.start(ranker)
    values = {}
    for power in (0.5, 1.0, 2.0):
        values[power] = value_under(THETA**power, ranker, log, inputs, layers)
    assert max(values, key=values.get) == 1.0
    clicks = held_out_likelihood(log, THETA)
    scores = ranker_scores(layers, clicks.features, inputs)
    assert values[1.0] == pytest.approx(clicks.null + clicks.value(scores), abs=1e-5)
    # Fewer positions than the held-out log has: the last one counts for those below.
    cut = value_under(THETA[:3], ranker, log, inputs, layers)
    padded = clicks.with_curve(np.array([1, 1 / 2, 1 / 3, 1 / 3, 1 / 3]))
    assert cut == pytest.approx(padded.null + padded.value(scores), abs=1e-5)


def value_under(curve, ranker, log, inputs, layers):
    stopping = stopping_for(ranker, log, inputs, curve=lambda _: curve)
    assert stopping is not None
    return stopping.value(layers)


def ranker_scores(layers, features, inputs):
    x = (features - inputs.mean) / inputs.scale
    hidden = np.tanh(x @ layers["weights"][0] + layers["biases"][0])
    return (hidden @ layers["weights"][1] + layers["biases"][1])[:, 0]


def test_feedback_of_other_numbers_is_judged_by_its_credit(log):
    dwell = log.with_label(log.label * np.random.default_rng(0).integers(1, 20, len(log.label)))
    ranker = NeuralRanker(PRS(THETA), **SMALL)
    inputs = inputs_of(training_lists(dwell), "none")
    layers = inputs.start(ranker)
    clicks = held_out_clicks(dwell, THETA)
    scores = ranker_scores(layers, clicks.features, inputs)
    expected = clicks.per_query(scores).sum() / clicks.credit.sum()
    given = stopping_for(ranker, dwell, inputs, bias=THETA)
    learned = stopping_for(ranker, dwell, inputs, curve=lambda _: 3 * THETA)
    assert given.value(layers) == pytest.approx(expected, rel=1e-5)
    assert learned.value(layers) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("combine", ["sum", "product"])
def test_towers_are_judged_by_the_likelihood_of_their_own_model(log, combine):
    train_part, rest = log.split(0.8, seed=0)
    ranker = TowerRanker(combine, **SMALL).fit(log)
    short = TowerRanker(combine, early_stopping=None, **{**SMALL, "epochs": 2}).fit(train_part)
    f, b = short.predict(log.features), short.tower_
    total, n = 0.0, 0
    for query_list in range(rest.n_lists):
        for row in range(rest.indptr[query_list], rest.indptr[query_list + 1]):
            x = f[np.flatnonzero(log.doc_id == rest.doc_id[rest.document[row]])[0]]
            tower = b[rest.position[row] - 1]
            p = 1 / (1 + np.exp(-(x + tower)))
            if combine == "product":
                p = 1 / (1 + np.exp(-x)) / (1 + np.exp(-tower))
            y = rest.label[row]
            total -= y * np.log(p) + (1 - y) * np.log(1 - p)
            n += 1
    assert ranker.watched_[1] == pytest.approx(total / n, rel=1e-4)


def test_judged_lists_set_queries_aside_too():
    judged = make_judged(60, 4, seed=1, mean_docs=8)
    train_part, rest = judged.split(0.8, seed=0)
    for ranker in (NeuralRanker(**SMALL), TowerRanker("none", **SMALL), DualLearning(**SMALL)):
        ranker.fit(judged)
        assert ranker.summary_["held_out"].fields["n_queries"] == 12
        best = parse_metric("ndcg@10").per_list(
            ranker.predict(rest.features), rest.labels, rest.indptr
        )
        assert max(ranker.watched_) == pytest.approx(best.mean(), abs=1e-5)
    assert train_part.n_queries == 48


def test_the_best_epoch_is_kept_and_patience_ends_training(log):
    options = {**SMALL, "epochs": 60, "learning_rate": 0.1, "widths": (30,)}
    ranker = PairwiseTrustRanker(early_stopping=3, **options).fit(log)
    best = int(np.argmax(ranker.watched_))
    assert len(ranker.watched_) == len(ranker.history_) == best + 1 + 3 < 60
    assert ranker.summary_["training"].code == "network.stopped"
    train_part, _ = log.split(0.8, seed=0)
    short = PairwiseTrustRanker(early_stopping=None, **{**options, "epochs": best + 1})
    short.fit(train_part)
    assert np.array_equal(ranker.predict(log.features), short.predict(log.features))
    assert np.array_equal(ranker.bias_.examination, short.bias_.examination)


# ---- when a training is killed


@pytest.mark.parametrize("name", ["trust", "tower"])
def test_killed_in_any_epoch_it_resumes(log, tmp_path, monkeypatch, name):
    """Killed while the file is written: the one of the epoch before is whole."""
    make, path = MAKERS[name], tmp_path / "c.npz"
    whole = make().fit(log)
    saves, real = itertools.count(1), save_checkpoint

    def killed(where, checkpoint):
        real(where, checkpoint)
        if next(saves) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "save_checkpoint", killed)
    with pytest.raises(KeyboardInterrupt):
        make(checkpoint=path).fit(log)
    monkeypatch.undo()
    resumed = make(checkpoint=path).fit(log)
    assert np.array_equal(resumed.predict(log.features), whole.predict(log.features))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(FileFormatError, match="no checkpoint that can be read"):
        make(checkpoint=path).fit(log)


def test_wrong_options_and_held_out_data_of_another_kind(log, make_some):
    with pytest.raises(OptionError, match="early_stopping must be a whole number"):
        make_some(early_stopping=0).fit(log)
    with pytest.raises(OptionError, match="valid must be a ClickLog or JudgedLists"):
        make_some().fit(log, valid=0.2)
    with pytest.raises(OptionError, match=r"the held-out log has no (features|sessions)"):
        make_some().fit(log, valid=replace(log, features=None, feature_names=()))

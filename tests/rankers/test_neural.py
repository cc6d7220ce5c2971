"""NeuralRanker: losses against other code, counts, resuming, and scores without JAX."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from untilt.bias.given import KnownBias
from untilt.data.judged import JudgedLists
from untilt.errors import FileFormatError, OptionError, ShapeError
from untilt.networks import together
from untilt.networks.mlp import apply_layers, jax_modules, rounded, start_layers
from untilt.networks.training import compiled_value
from untilt.objectives.losses import PbmLikelihood, SidedPointwise
from untilt.objectives.pairs import PairObjective
from untilt.rankers.base import load
from untilt.rankers.learning_data import (
    click_counts,
    pair_slates,
    row_slates,
    sided_listwise,
    training_lists,
)
from untilt.rankers.networks.network_ranker import inputs_of, network_scores
from untilt.rankers.networks.neural import NetworkTasks, NeuralRanker, content_hash
from untilt.weighting import IPS, PRS, AffineIPS, Balanced, BayesIPS, Naive, PairwiseDebiasing

THETA = 1 / np.arange(1.0, 6)
TRUST = KnownBias(THETA, eps_plus=np.full(5, 0.9), eps_minus=np.linspace(0.4, 0.1, 5))
SMALL: dict[str, Any] = {"widths": (6,), "activation": "tanh", "batch_size": 8, "epochs": 3}
WEIGHTINGS = {
    "naive": Naive(),
    "prs": PRS(THETA),
    "ips against all": IPS(THETA, against="all"),
    "balanced": Balanced(THETA),
    "affine": AffineIPS(TRUST),
    "bayes": BayesIPS(TRUST),
}


def mean_loss_of(ranker, data, weighting):
    """(loss over one epoch of batches at the start, scores of the start, lists)."""
    lists = training_lists(data)
    inputs = inputs_of(lists, ranker.transform)
    task = NetworkTasks(ranker, lists, weighting, inputs).of_loss()
    constants = {"features": inputs.features, "l2": np.float32(ranker._penalty), **task.constants}
    value = compiled_value(task.loss)
    losses = [float(value(task.start, batch, constants)) for batch in task.batches.epoch(0)]
    scores = network_scores(task.start, inputs.features, ranker.activation)
    return losses, scores, lists


def whole_batch(ranker):
    """All lists in one batch and no penalty, so that its loss is the mean over all the data."""
    return ranker.set_params(batch_size=10_000, l2=0.0)


# ---- losses against other code


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_pairwise_is_the_compiled_pair_objective(made, name):
    weighting = WEIGHTINGS[name]
    ranker = whole_batch(NeuralRanker(weighting, sigma=1.5, **SMALL))
    (loss,), scores, lists = mean_loss_of(ranker, made.log, weighting)
    slates = pair_slates(lists, weighting, metric="none", gain="linear")
    objective = PairObjective(slates, metric="none", sigma=1.5)
    table, offset = weighting.table(5), weighting.offset(5)
    fixed = objective.with_table(table, offset)
    at, at_zero = (
        fixed.evaluate(s, want_loss=True).loss for s in (scores, np.zeros(lists.n_documents))
    )
    assert loss == pytest.approx(at / (at_zero / np.log(2)), rel=1e-5)


@pytest.mark.parametrize("gain", ["plain", "linear", "exponential"])
def test_pairwise_on_grades_is_the_compiled_pair_objective(rng, gain):
    """Lists of several lengths, which keep their labels: the pairs are made on the device."""
    lengths = np.array([3, 9, 2, 6, 5])
    n = int(lengths.sum())
    judged = JudgedLists(
        rng.normal(size=(n, 4)),
        rng.integers(0, 4, n),
        np.append(0, np.cumsum(lengths)),
        np.arange(5),
    )
    ranker = whole_batch(NeuralRanker(gain=gain, **SMALL))
    losses, scores, lists = mean_loss_of(ranker, judged, Naive())
    slates = pair_slates(lists, Naive(), metric="none", gain=gain)
    assert np.all(slates.start < 0)
    objective = PairObjective(slates, metric="none")
    at, at_zero = (objective.evaluate(s, want_loss=True).loss for s in (scores, 0 * scores))
    # One batch per padded length, each scaled as if it were all five lists.
    assert sum(losses) == pytest.approx(at / (at_zero / np.log(2)), rel=1e-5)


def test_pairwise_by_sessions(made):
    """A loop over single sessions and their clicked x unclicked pairs, weighted by the table."""
    log, weighting = made.log, PRS(THETA)
    ranker = whole_batch(NeuralRanker(weighting, **SMALL))
    (loss,), scores, _ = mean_loss_of(ranker, log, weighting)
    score_of = dict(zip(np.unique(log.document), scores, strict=True))
    W, total, weight = weighting.table(5), 0.0, 0.0
    for start in log.indptr[:-1]:
        for i in range(start, start + 5):
            for j in range(start, start + 5):
                if log.label[i] > log.label[j]:
                    w = W[log.position[i] - 1, log.position[j] - 1]
                    x = score_of[log.document[i]] - score_of[log.document[j]]
                    total, weight = total + w * np.log(1 + np.exp(-x)), weight + w
    assert loss == pytest.approx(total / weight, rel=1e-5)


def test_listwise_by_sessions(made):
    log, weighting = made.log, IPS(THETA)
    ranker = whole_batch(NeuralRanker(weighting, loss="listwise", **SMALL))
    (loss,), scores, _ = mean_loss_of(ranker, log, weighting)
    score_of = dict(zip(np.unique(log.document), scores, strict=True))
    total, weight = 0.0, 0.0
    for start in log.indptr[:-1]:
        rows = np.arange(start, start + 5)
        s = np.array([score_of[d] for d in log.document[rows]])
        w = log.label[rows] / THETA[log.position[rows] - 1]
        total -= np.sum(w * np.log(np.exp(s) / np.exp(s).sum()))
        weight += w.sum()
    assert loss == pytest.approx(total / weight, rel=1e-5)


@pytest.mark.parametrize("bias", [None, THETA, TRUST], ids=["naive", "position", "trust"])
def test_pointwise_is_the_position_based_likelihood(made, bias):
    ranker = whole_batch(NeuralRanker(loss="pointwise", bias=bias, **SMALL))
    (loss,), scores, lists = mean_loss_of(ranker, made.log, Naive())
    alpha, beta = np.ones(5), np.zeros(5)
    if bias is not None:
        alpha, beta = (bias if bias is TRUST else KnownBias(bias)).affine()
    likelihood = PbmLikelihood(click_counts(lists), alpha, beta)
    impressions = made.log.n_impressions
    assert loss == pytest.approx(likelihood.loss(scores) / impressions, rel=1e-5)


def test_listwise_with_weights_of_no_clicks_is_the_compiled_one(made):
    weighting = PRS(THETA, clip=0.3, clip_of="clicked")
    ranker = whole_batch(NeuralRanker(weighting, loss="listwise", **SMALL))
    (loss,), scores, lists = mean_loss_of(ranker, made.log, weighting)
    sided = sided_listwise(lists, weighting, "sessions")
    assert loss == pytest.approx(sided.evaluate(scores)[0] / sided.total, rel=1e-5)


@pytest.mark.parametrize("weighting", [IPS(THETA), PRS(THETA, clip=0.3, clip_of="clicked")])
def test_pointwise_with_weights_is_the_compiled_one(made, weighting):
    ranker = whole_batch(NeuralRanker(weighting, loss="pointwise", **SMALL))
    (loss,), scores, lists = mean_loss_of(ranker, made.log, weighting)
    sums = SidedPointwise.of(click_counts(lists), *weighting.sides(5))
    expected = sums.won @ np.log1p(np.exp(-scores)) + sums.lost @ np.log1p(np.exp(scores))
    assert loss == pytest.approx(expected / sums.won.sum(), rel=1e-5)


@pytest.mark.parametrize("loss", ["pairwise", "listwise", "pointwise"])
def test_batches_add_up_to_the_whole(made, loss):
    ranker = NeuralRanker(loss=loss, l2=0.0, **SMALL)
    parts, _, _ = mean_loss_of(ranker, made.log, Naive())
    (whole,), _, _ = mean_loss_of(whole_batch(ranker), made.log, Naive())
    assert len(parts) > 2
    # Every batch is scaled as a full one; the last may hold fewer lists.
    lists = training_lists(made.log)
    cells = click_counts(lists).n_cells
    slates = {
        "pairwise": len(pair_slates(lists, Naive(), metric="none", gain="linear").start),
        "listwise": len(
            row_slates(lists, np.ones(5), gain="linear", query_weight="sessions").indptr
        )
        - 1,
        "pointwise": cells,
    }[loss]
    per_batch = {"pointwise": 8 * 5}.get(loss, 8)
    assert sum(parts) * per_batch / slates == pytest.approx(whole, rel=0.03)


@pytest.mark.parametrize("gain", ["collapsed", "own labels", "noise"])
def test_a_device_cuts_the_batches_of_pairs(made, gain):
    once = np.unique(made.log.query, return_index=True)[1]  # a list of each query: nothing to sum
    log = made.log if gain == "collapsed" else made.log.take(once)
    lists = training_lists(log)
    ranker = NeuralRanker(**SMALL, dropout=0.2 * (gain == "noise"))
    inputs = inputs_of(lists, "none")
    task = NetworkTasks(ranker, lists, PRS(THETA), inputs).of_loss()
    batches = ranker._training(task.loss, task.start, task.batches, inputs).batches
    resident, drawn = batches.resident, batches.picks(1)
    assert resident is not None
    value, losses = compiled_value(task.loss), []
    columns = jax_modules().jax.device_put(resident.columns)
    constants = {"features": inputs_of(lists, "none").features, "l2": np.float32(0)}
    for step, batch in enumerate(batches.epoch(1)):
        length = resident.lengths[drawn.kind[step]]
        cut = resident.cut(columns, drawn.picks[step], length)
        per_step = {name: column[step] for name, column in drawn.per_step.items()}
        own = {**cut, **per_step, **batches.shared}
        assert set(batch) <= set(own)
        for name, values in batch.items():
            assert np.array_equal(values, np.asarray(own[name])), name
        losses.append(float(value(task.start, own, constants)))
        assert losses[-1] == float(value(task.start, batch, constants))
    assert len(losses) == batches.steps_per_epoch > 1


def test_half_precision_learns_nearly_the_same(made):
    options: dict[str, Any] = {**SMALL, "epochs": 20, "learning_rate": 0.02}
    one, two = (
        NeuralRanker(**options, precision=precision).fit(made.log)
        for precision in ("float32", "bfloat16")
    )
    first, second = (each.predict(made.log.features) for each in (one, two))
    assert np.corrcoef(first, second)[0, 1] > 0.99
    # Of what is computed, not of the result: an older compiler keeps more bits than it is asked to.
    layers = start_layers(0, (3, 2, 1))
    for precision, is_half in (("float32", False), ("bfloat16", True)):
        with rounded(precision):
            text = str(
                jax_modules().jax.make_jaxpr(lambda x: apply_layers(layers, x, "elu"))(
                    np.ones((4, 3), np.float32)
                )
            )
        assert ("bf16" in text) == is_half
    assert all(each.dtype == np.float32 for each in two.network_.weights)


def test_grades_are_learned_from_in_every_loss(rng):
    features = rng.normal(size=(300, 3))
    labels = np.clip(np.round(features[:, 0] + 1.5), 0, 3)
    judged = JudgedLists(features, labels, np.arange(0, 301, 10), np.arange(30))
    for loss in ("pairwise", "listwise", "pointwise"):
        options: dict[str, Any] = {**SMALL, "epochs": 30, "learning_rate": 0.02}
        ranker = NeuralRanker(loss=loss, **options).fit(judged)
        assert np.corrcoef(ranker.predict(features), labels)[0, 1] > 0.8
        assert ranker.summary_["trained_on"] == "judged lists"
        assert max(ranker.feature_importances_.items(), key=lambda item: item[1])[0] == "f1"


# ---- what counts stand for


@pytest.mark.parametrize("loss", ["pairwise", "listwise", "pointwise"])
def test_counts_are_repeated_sessions_in_every_batch(made, loss, rng):
    count = rng.integers(1, 5, made.log.n_lists)
    counted = made.log.take(np.arange(made.log.n_lists), count=count)
    repeated = made.log.take(rng.permutation(np.repeat(np.arange(made.log.n_lists), count)))
    ranker = NeuralRanker(loss=loss, **SMALL)
    one, two = (mean_loss_of(ranker, log, Naive())[0] for log in (counted, repeated))
    assert one == pytest.approx(two, rel=1e-6)
    assert np.allclose(
        ranker.fit(counted).predict(counted.features),
        NeuralRanker(loss=loss, **SMALL).fit(repeated).predict(counted.features),
        rtol=1e-5,
        atol=1e-6,
    )


def test_the_order_of_contents_is_their_own(rng):
    indptr = np.array([0, 3, 5, 5, 8])
    values = rng.normal(size=8)
    values[5:] = values[:3]
    found = content_hash(indptr, values, np.ones(8))
    assert found[0] == found[3] != found[1]
    swapped = values.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert content_hash(indptr, swapped, np.ones(8))[0] != found[0]


# ---- training


def test_a_joint_weighting_is_refreshed_after_every_epoch(made):
    ranker = NeuralRanker(PairwiseDebiasing(p=1), **SMALL).fit(made.log)
    assert len(ranker.bias_history_) == 3
    assert ranker.bias_.examination[0] == 1
    assert ranker.bias_.status.parts[0].code == "bias.epochs"
    assert ranker.bias_.status.parts[0].fields["epochs"] == 3
    plain = NeuralRanker(**SMALL).fit(made.log)
    # The first table is all ones, so the first epoch is that of raw clicks.
    assert ranker.losses_[0] == pytest.approx(plain.losses_[0], rel=1e-6)
    assert ranker.losses_[1] != pytest.approx(plain.losses_[1], rel=1e-6)
    scores = NeuralRanker(**{**SMALL, "epochs": 1}).fit(made.log).predict(made.log.features)
    lists = training_lists(made.log)
    slates = pair_slates(lists, PairwiseDebiasing(), metric="none", gain="linear")
    S = PairObjective(slates, metric="none").losses_by_position(
        scores[np.unique(made.log.document)]
    )
    expected = PairwiseDebiasing(p=1).update(S, None)
    assert ranker.bias_history_[0].plus == pytest.approx(expected.plus, rel=1e-4)
    assert ranker.bias_history_[0].minus == pytest.approx(expected.minus, rel=1e-4)


@pytest.mark.parametrize("weighting", [PRS(THETA), PairwiseDebiasing(p=1)])
def test_training_that_was_cut_short_resumes_to_the_same_ranker(made, tmp_path, weighting):
    path = tmp_path / "training.npz"
    whole = NeuralRanker(weighting, **SMALL).fit(made.log)
    NeuralRanker(weighting, checkpoint=path, **{**SMALL, "epochs": 2}).fit(made.log)
    resumed = NeuralRanker(weighting, checkpoint=path, **SMALL).fit(made.log)
    assert np.array_equal(resumed.predict(made.log.features), whole.predict(made.log.features))
    assert np.array_equal(resumed.losses_, whole.losses_)
    if whole.bias_ is not None:
        assert np.array_equal(resumed.bias_.examination, whole.bias_.examination)
    other = made.log.with_label(1 - made.log.label)
    with pytest.raises(FileFormatError, match="belongs to another training"):
        NeuralRanker(weighting, checkpoint=path, **SMALL).fit(other)
    with pytest.raises(FileFormatError, match="belongs to another training"):
        NeuralRanker(weighting, checkpoint=path, l2=0.1, **SMALL).fit(made.log)


def test_held_out_data_says_when_to_stop(pbm_log):
    log = pbm_log(n_queries=20, sessions=10).log
    train, valid = log.split(0.7, seed=1)
    options: dict[str, Any] = {**SMALL, "epochs": 60, "learning_rate": 0.05, "widths": (30,)}
    ranker = NeuralRanker(PRS(THETA), early_stopping=5, **options).fit(train, valid=valid)
    assert ranker.summary_["status"].code == "network.stopped"
    assert len(ranker.watched_) == ranker.summary_["epochs"] < 60
    best = int(np.argmax(ranker.watched_))
    assert best + 5 == len(ranker.watched_) - 1
    again = NeuralRanker(PRS(THETA), **{**options, "epochs": best + 1}).fit(train)
    assert np.array_equal(ranker.predict(log.features), again.predict(log.features))
    judged = JudgedLists(log.features, np.ones(len(log.features)), np.array([0, 80, 160]), [0, 1])
    watched = NeuralRanker(PRS(THETA), **SMALL).fit(train, valid=judged)
    assert len(watched.watched_) == 3
    alone = NeuralRanker(early_stopping=3, **SMALL).fit(log)
    assert alone.summary_["held_out"].code == "network.too-few-to-hold-out"
    fewer = replace(valid, features=valid.features[:, :2], feature_names=())
    with pytest.raises(ShapeError, match="held-out data must have the 4 features"):
        NeuralRanker(**SMALL).fit(train, valid=fewer)


@pytest.mark.parametrize(
    "loss",
    [
        "pairwise",
        *(pytest.param(loss, marks=pytest.mark.slow) for loss in ("listwise", "pointwise")),
    ],
)
def test_networks_fitted_together_are_those_fitted_alone(pbm_log, monkeypatch, loss):
    """Two seeds, each with its own start, shuffle and queries set aside, and two penalties."""
    programs, whole = [], together._in_one_program

    def counted(given):
        programs.append(len(given))
        return whole(given)

    monkeypatch.setattr(together, "_in_one_program", counted)
    log = pbm_log(n_queries=60, sessions=8).log
    options: dict[str, Any] = {**SMALL, "epochs": 25, "learning_rate": 0.03, "early_stopping": 4}
    made: list[dict[str, Any]] = [{"seed": seed, "l2": l2} for seed in (0, 1) for l2 in (0.0, 0.03)]
    rankers = [NeuralRanker(loss=loss, **options, **each) for each in made]
    assert NeuralRanker.fit_together(rankers, log) == [None] * 4
    assert programs == [4]
    for each, ranker in zip(made, rankers, strict=True):
        alone = NeuralRanker(loss=loss, **options, **each).fit(log)
        mine, own = dict(ranker.summary_), dict(alone.summary_)
        assert mine.pop("held_out_value") == pytest.approx(own.pop("held_out_value"), rel=1e-4)
        assert mine == own  # epochs, steps and the best epoch among it
        assert ranker.watched_ == pytest.approx(alone.watched_, rel=1e-4)
        for w, w_alone in zip(ranker.network_.weights, alone.network_.weights, strict=True):
            assert np.allclose(w, w_alone, rtol=1e-4, atol=1e-5)
        assert np.allclose(
            ranker.predict(log.features), alone.predict(log.features), rtol=1e-4, atol=1e-5
        )
        assert ranker.trained_on_ == alone.trained_on_
        assert ranker.validated_on_ is None
    assert len({ranker.summary_["epochs"] for ranker in rankers}) > 1
    assert len({tuple(ranker.predict(log.features)) for ranker in rankers}) == 4


def test_fitted_together_each_has_its_own_error(made):
    rankers = [
        NeuralRanker(**SMALL),
        NeuralRanker(**{**SMALL, "epochs": 0}),
        NeuralRanker(**SMALL, optimiser="sgd", learning_rate=1e30),
        NeuralRanker(PairwiseDebiasing(p=1), **SMALL, dropout=0.2),
        NeuralRanker(**SMALL, dropout=0.2),
        NeuralRanker(**SMALL, dropout=0.2, seed=3),
    ]
    errors = NeuralRanker.fit_together(rankers, made.log)
    assert [type(error) for error in errors] == [
        type(None), OptionError, OptionError, type(None), type(None), type(None),
    ]  # fmt: skip
    assert "epochs must be" in str(errors[1])
    assert "the loss became" in str(errors[2])
    for ranker, error in zip(rankers, errors, strict=True):
        if error is None:
            alone = NeuralRanker(**ranker.get_params(deep=False)).fit(made.log)
            one, two = (each.predict(made.log.features) for each in (ranker, alone))
            assert np.allclose(one, two, rtol=1e-4, atol=1e-5)


def test_dropout_l2_and_seeds_change_what_is_learned(made):
    def scores(**changes):
        return NeuralRanker(**{**SMALL, **changes}).fit(made.log).predict(made.log.features)

    plain = scores()
    assert np.array_equal(scores(dropout=0.4), scores(dropout=0.4))
    for changes in ({"dropout": 0.4}, {"l2": 0.5}, {"seed": 1}, {"transform": "log1p"}):
        assert not np.allclose(scores(**changes), plain)
    heavy = NeuralRanker(**{**SMALL, "epochs": 40}, l2=100.0, learning_rate=0.05).fit(made.log)
    assert all(np.abs(w).max() < 0.05 for w in heavy.network_.weights)


def test_missing_values_count_as_the_mean(made):
    features = made.log.features.copy()
    features[::7, 1] = np.nan
    log = replace(made.log, features=features)
    ranker = NeuralRanker(**SMALL).fit(log)
    shown = features[np.unique(log.document)]
    filled = np.where(np.isnan(features), np.nanmean(shown.astype(float), axis=0), features)
    assert ranker.predict(features) == pytest.approx(ranker.predict(filled), abs=1e-6)
    features[3, 2] = np.inf
    with pytest.raises(ShapeError, match=r"needs finite features\. Got inf for feature 'f3'"):
        ranker.predict(features)


# ---- saved


WITHOUT_JAX = """
import sys
sys.modules["jax"] = sys.modules["jaxlib"] = sys.modules["optax"] = None
import numpy as np
import untilt
ranker = untilt.load(sys.argv[1])
np.save(sys.argv[3], ranker.predict(np.load(sys.argv[2])))
"""


def test_a_saved_network_scores_without_jax(made, tmp_path):
    ranker = NeuralRanker(PRS(THETA), checkpoint=tmp_path / "c.npz", **SMALL).fit(made.log)
    ranker.save(tmp_path / "ranker.untilt")
    np.save(tmp_path / "features.npy", made.log.features)
    files = [str(tmp_path / name) for name in ("ranker.untilt", "features.npy", "scores.npy")]
    subprocess.run([sys.executable, "-c", WITHOUT_JAX, *files], check=True)
    scores = np.load(tmp_path / "scores.npy")
    assert np.array_equal(scores, ranker.predict(made.log.features))
    lists = training_lists(made.log)
    layers = {"weights": ranker.network_.weights, "biases": ranker.network_.biases}
    by_jax = network_scores(layers, inputs_of(lists, "none").features, "tanh")  # type: ignore[arg-type]
    assert scores[np.unique(made.log.document)] == pytest.approx(by_jax, abs=1e-5)
    assert load(tmp_path / "ranker.untilt").network_.widths == (4, 6, 1)


# ---- errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "pairs"}, "loss must be one of"),
        ({"loss": "pointwise", "weighting": PRS(THETA)}, "belongs to a pair of positions"),
        ({"loss": "listwise", "weighting": PRS(THETA)}, "weighs each click by its own position"),
        ({"loss": "listwise", "weighting": AffineIPS(TRUST)}, "can be negative"),
        ({"loss": "listwise", "weighting": PairwiseDebiasing()}, "by its own position"),
        ({"bias": THETA}, "alone corrects nothing"),
        ({"activation": "swish"}, "activation must be one of"),
        ({"transform": "log"}, r"transform must be one of .* Did you mean 'log1p'"),
        ({"widths": (8, 0)}, "every width must be a whole number of at least 1"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"precision": "half"}, "precision must be one of"),
        ({"dropout": 1.0}, "dropout must lie from 0 to below 1"),
        ({"l2": -1}, "l2 must be a number at least 0"),
        ({"optimiser": "newton"}, "optimiser must be one of"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
    ],
)
def test_options_that_make_no_sense_are_told(made, options, message):
    with pytest.raises(OptionError, match=message):
        NeuralRanker(**{**SMALL, **options}).fit(made.log)


def test_labels_and_features_that_say_nothing_are_told(made):
    with pytest.raises(OptionError, match=r"models clicks, but the log's label is not 0/1"):
        NeuralRanker(loss="pointwise", **SMALL).fit(made.log.with_label(3 * made.log.label))
    flat = replace(made.log, features=np.ones_like(made.log.features))
    with pytest.raises(OptionError, match="all 4 features are constant"):
        NeuralRanker(**SMALL).fit(flat)

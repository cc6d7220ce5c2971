"""Training of the neural click model: the same reader in JAX, on collapsed sessions."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import logit

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.random import child_generator
from untilt.clickmodels.base import Smoothing, smoothed_rates, sums_by_document
from untilt.clickmodels.recurrent import Pages, Reader, conditional
from untilt.data.clicklog import ClickLog
from untilt.networks.batches import PaddedLists
from untilt.networks.jax_layers import Optimiser, jax_modules
from untilt.networks.training import Loss, Stopping, Trained, train

# With fewer sessions held out chance would decide when to stop: the priors alone guard then.
FEWEST_HELD_OUT = 100


@dataclass(frozen=True)
class ReaderOptions:
    """How the network of `NCM` is made and trained; see there."""

    width: int
    vector_length: int
    prior_strength: float
    l2: float
    epochs: int
    max_steps: int
    batch_size: int
    learning_rate: float
    validation: float
    patience: int
    seed: int


def fit_reader(
    log: ClickLog, features: FeatureArray, *, by_id: bool, options: ReaderOptions
) -> Trained:
    """Trained parameters; `features` (documents, d) are normalised, d may be 0.

    Lists are put into an order of their own first: how the log was sorted or counted plays no part.
    """
    log, held_out = _split(in_own_order(log), options)
    sessions = float(log.n_sessions)
    return train(
        _loss(),
        start_params(log, features, by_id=by_id, options=options),
        _batches(log, options),
        optimiser=Optimiser("adam", options.learning_rate, "cosine", clip_norm=1.0),
        epochs=options.epochs,
        constants={
            "features": features.astype(np.float32),
            "per_batch": _number(max(1.0, log.n_lists / options.batch_size) / sessions),
            "prior": _number(0.5 * options.prior_strength / sessions),
            "l2": _number(0.5 * options.l2 / sessions),
            "by_id": _number(by_id),
        },
        max_steps=options.max_steps,
        stopping=_stopping(held_out, features, by_id=by_id, options=options),
        what="neural click model",
    )


def _number(value: float) -> AnyArray:
    return np.array(value, np.float32)


def _batches(log: ClickLog, options: ReaderOptions) -> PaddedLists:
    return PaddedLists(
        log.indptr,
        {
            "document": log.document,
            "place": (log.position - 1).astype(np.int32),
            "click": log.label.astype(np.float32),
        },
        options.batch_size,
        lengths=(int(ragged.lengths(log.indptr).max()),),
        list_columns={"count": log.sessions.astype(np.float32)},
        seed=options.seed,
    )


def _split(log: ClickLog, options: ReaderOptions) -> tuple[ClickLog, ClickLog | None]:
    """Sessions to learn from, and those that tell when to stop; none of a small log."""
    if options.validation * log.n_sessions < FEWEST_HELD_OUT:
        return log, None
    draw = child_generator(options.seed, 3)
    held_out = draw.binomial(log.sessions, options.validation)
    kept = log.sessions - held_out
    return (
        log.take(np.flatnonzero(kept), count=kept[kept > 0]),
        log.take(np.flatnonzero(held_out), count=held_out[held_out > 0]),
    )


def _stopping(
    held_out: ClickLog | None, features: FeatureArray, *, by_id: bool, options: ReaderOptions
) -> Stopping | None:
    """By the log-likelihood of the sessions held out."""
    if held_out is None:
        return None
    log = held_out

    def value(params: Mapping[str, Any]) -> float:
        found = {name: np.asarray(array, np.float64) for name, array in params.items()}
        vectors = document_vectors(found, features, by_id=by_id)
        pages = Pages(log.indptr, log.position, log.document, vectors)
        p = conditional(Reader.of(found), pages, log.label)
        return float(np.dot(np.log(np.where(log.label > 0, p, 1 - p)), log.row_count))

    return Stopping(value, options.patience)


def document_vectors(
    params: Mapping[str, AnyArray], features: FeatureArray, *, by_id: bool
) -> FloatArray:
    """(documents, m) F x + e."""
    vectors: FloatArray = features.astype(np.float64) @ params["by_feature"]
    return vectors + params["vectors"] if by_id else vectors


def in_own_order(log: ClickLog) -> ClickLog:
    """Equal sessions as one list, lists sorted by a hash of what they hold."""
    log = log._with(ranker=None, ranker_names=(), time=None, extra_labels={}).collapse()
    word = (log.document.astype(np.uint64) << np.uint64(21)) + (
        log.position.astype(np.uint64) << np.uint64(1)
    )
    key = ragged.sums_by_list(
        log.indptr, _mixed(word + (log.label > 0).astype(np.uint64)).view(np.int64)
    )
    return log.take(np.argsort(key, kind="stable"))


def _mixed(word: IntArray) -> IntArray:
    """A number that looks random: multiply and shift, modulo 2^64."""
    z = word * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return z ^ (z >> np.uint64(32))


def start_params(
    log: ClickLog, features: FeatureArray, *, by_id: bool, options: ReaderOptions
) -> dict[str, AnyArray]:
    """Where training starts: click rates by position and document, and random gates.

    The first number of a document's vector is its smoothed log-odds against the mean, so that the
    first predictions are those of a logistic model of position and document.
    """
    m, h, depth = options.vector_length, options.width, log.depth
    rng = child_generator(options.seed, 0)

    def normal(*shape: int) -> FloatArray:
        return rng.normal(0, 1 / np.sqrt(shape[0]), shape)

    vectors = np.zeros((log.n_documents if by_id else 1, m))
    if by_id:
        vectors[:, 0] = _log_odds_by_document(log, options.prior_strength)
    by_feature = normal(max(features.shape[1], 1), m)[: features.shape[1]]
    params = {
        "vectors": vectors,
        "by_feature": by_feature,
        "start": np.zeros(h),
        "gates_document": normal(m, 3 * h),
        "gates_position": np.zeros((depth, 3 * h)),
        "gates_click": rng.normal(0, 1, 3 * h),
        "gates_state": normal(h, 3 * h),
        "out_state": np.zeros(h),
        "out_document": np.eye(m)[0],
        "out_position": _log_odds_by_position(log),
    }
    return {name: array.astype(np.float32) for name, array in params.items()}


@cache
def _loss() -> Loss:
    """-log-likelihood per session of the batch, plus the prior of the document vectors."""

    def loss(params: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        jax, jnp = jax_modules().jax, jax_modules().numpy
        document, h = batch["document"], params["start"].shape[0]
        v = batch["features"][document] @ params["by_feature"]
        v = v + batch["by_id"] * params["vectors"][document % params["vectors"].shape[0]]
        gates = v @ params["gates_document"] + params["gates_position"][batch["place"]]
        out = v @ params["out_document"] + params["out_position"][batch["place"]]
        click = batch["click"]
        above = jnp.pad(click[:, :-1], ((0, 0), (1, 0)))

        def step(state: Any, row: Any) -> tuple[Any, Any]:
            a, c = row
            a = a + c[:, None] * params["gates_click"]
            U = state @ params["gates_state"]
            both = jax.nn.sigmoid(a[:, : 2 * h] + U[:, : 2 * h])
            n = jnp.tanh(a[:, 2 * h :] + both[:, :h] * U[:, 2 * h :])
            state = (1 - both[:, h:]) * n + both[:, h:] * state
            return state, state @ params["out_state"]

        start = jnp.broadcast_to(params["start"], (len(document), h))
        _, from_state = jax.lax.scan(step, start, (gates.swapaxes(0, 1), above.T))
        x = from_state.T + out
        # log P(c) = c x - log(1 + e^x)
        each = batch["mask"] * (click * x - jax.nn.softplus(x))
        likelihood = batch["per_batch"] * jnp.sum(batch["count"][:, None] * each)
        squares = sum(jnp.sum(params[name] ** 2) for name in ("gates_document", "gates_state"))
        prior = batch["prior"] * jnp.sum(params["vectors"] ** 2) + batch["l2"] * squares
        return prior - likelihood

    return loss


def _log_odds_by_document(log: ClickLog, strength: float) -> FloatArray:
    shown = sums_by_document(log, log.row_count)
    clicks = sums_by_document(log, log.label * log.row_count)
    # Half an impression where there is no prior: rates of 0 and 1 have no log-odds.
    rate, mean = smoothed_rates(clicks, shown, max(strength, 0.5))
    return np.where(shown > 0, logit(rate) - logit(mean), 0.0)


def _log_odds_by_position(log: ClickLog) -> FloatArray:
    clicks = sum_by(log.position - 1, log.label * log.row_count)
    shown = sum_by(log.position - 1, log.row_count)
    prior = Smoothing(1.0, float(clicks.sum() / shown.sum()))
    return logit(prior.rate(clicks, shown))

r"""A recurrent network that reads a list from the top: in NumPy to predict, in JAX to train.

Row k of a list has the document vector v_k, its position and the click c_{k-1} above it. With s_0
learned and sigma the logistic function, a gated unit reads on:

    a_k        = W' v_k + P[position] + C c_{k-1}        in three parts a^r, a^u, a^n
    r, u       = sigma(a^r + U_r' s_{k-1}), sigma(a^u + U_u' s_{k-1})
    n          = tanh(a^n + r U_n' s_{k-1})
    s_k        = (1 - u) n + u s_{k-1}
    P(c_k = 1 | clicks above) = sigma(w . s_k + d . v_k + b[position])
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import expit

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, frozen
from untilt._core.random import Seed, generator
from untilt._core.restored import check_array
from untilt.catalog import storable
from untilt.networks.batches import padded_rows
from untilt.networks.jax_layers import jax_modules
from untilt.networks.training import Loss

_LISTS = 4096  # read at once
_STATES = 2**16  # of which one step is taken at once when click patterns are enumerated


@storable
@dataclass(frozen=True, eq=False)
class Reader:
    """The network's arrays: h units of state, document vectors of length m, positions 1..K.

    start : (h,) s_0; gates_document (m, 3h) W, gates_position (K, 3h) P, gates_click (3h,) C,
    gates_state (h, 3h) U; out_state (h,) w, out_document (m,) d, out_position (K,) b
    """

    start: FloatArray
    gates_document: FloatArray
    gates_position: FloatArray
    gates_click: FloatArray
    gates_state: FloatArray
    out_state: FloatArray
    out_document: FloatArray
    out_position: FloatArray

    @classmethod
    def of(cls, params: Mapping[str, AnyArray]) -> "Reader":
        """From trained parameters, in double precision."""
        return cls(**{name: frozen(params[name], np.float64) for name in cls.__dataclass_fields__})

    def check(self, depth: int) -> int:
        """Of a file: raise unless all arrays fit `depth` positions; returns m."""
        h, m = len(self.start), len(self.out_document)
        shapes: dict[str, tuple[int, ...]] = {
            "start": (h,), "gates_document": (m, 3 * h), "gates_position": (depth, 3 * h),
            "gates_click": (3 * h,), "gates_state": (h, 3 * h), "out_state": (h,),
            "out_document": (m,), "out_position": (depth,),
        }  # fmt: skip
        for name, shape in shapes.items():
            check_array(name, getattr(self, name), shape, finite=True)
        return m

    def at(self, vector: FloatArray, position: IntArray) -> tuple[FloatArray, FloatArray]:
        """What each row brings to the gates (..., 3h) and to the output (...)."""
        gates = vector @ self.gates_document + self.gates_position[position - 1]
        return gates, vector @ self.out_document + self.out_position[position - 1]

    def step(self, state: FloatArray, gates: FloatArray, click: FloatArray) -> FloatArray:
        """s_k (..., h) from s_{k-1}, with the click above (..., 1) added to the gates."""
        h = len(self.start)
        a = gates + click * self.gates_click
        U = state @ self.gates_state
        both = expit(a[..., : 2 * h] + U[..., : 2 * h])
        r, u = both[..., :h], both[..., h:]
        n = np.tanh(a[..., 2 * h :] + r * U[..., 2 * h :])
        return (1 - u) * n + u * state

    def chance(self, state: FloatArray, out: FloatArray) -> FloatArray:
        """P(c_k = 1 | clicks above)."""
        return expit(state @ self.out_state + out)

    def first(self, vector: FloatArray) -> FloatArray:
        """(n,) P(click) of these documents alone at position 1."""
        chance = np.empty(len(vector))
        for begin in range(0, len(vector), _STATES):
            gates, out = self.at(vector[begin : begin + _STATES], np.ones(1, dtype=np.int64))
            start = np.broadcast_to(self.start, (len(out), len(self.start)))
            state = self.step(start, gates, np.zeros((len(out), 1)))
            chance[begin : begin + _STATES] = self.chance(state, out)
        return chance


@dataclass(frozen=True, eq=False)
class Pages:
    """Lists as the reader sees them.

    indptr : (lists + 1,); position, document : (rows,); vectors : (documents, m)
    """

    indptr: IntArray
    position: IntArray
    document: IntArray
    vectors: FloatArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def blocks(self, lists: IntArray, size: int) -> Iterator["_Block"]:
        """Padded blocks of these lists, lists of one length together."""
        length = ragged.lengths(self.indptr)[lists]
        for n_rows in np.unique(length[length > 0]):
            mine = lists[length == n_rows]
            for begin in range(0, len(mine), size):
                yield self._block(mine[begin : begin + size], int(n_rows))

    def _block(self, lists: IntArray, n_rows: int) -> "_Block":
        rows, _ = padded_rows(self.indptr, lists, n_rows)
        return _Block(rows, self.vectors[self.document[rows]], self.position[rows])


@dataclass(frozen=True, eq=False)
class _Block:
    """Lists of one length: row numbers (lists, length), vectors (lists, length, m), positions."""

    rows: IntArray
    vector: FloatArray
    position: IntArray


def conditional(reader: Reader, pages: Pages, click: FloatArray) -> FloatArray:
    """(rows,) P(click | the clicks above)."""
    p = np.empty(len(pages.position))
    for block in pages.blocks(np.arange(len(pages)), _LISTS):
        gates, out = reader.at(block.vector, block.position)
        state = np.tile(reader.start, (len(block.rows), 1))
        above = np.zeros((len(block.rows), 1))
        for k in range(block.rows.shape[1]):
            state = reader.step(state, gates[:, k], above)
            p[block.rows[:, k]] = reader.chance(state, out[:, k])
            above = click[block.rows[:, k], None]
    return p


def draw(reader: Reader, pages: Pages, uniform: FloatArray) -> AnyArray:
    """(rows,) clicks, one uniform number for each row."""
    clicks = np.zeros(len(pages.position), dtype=np.uint8)
    for block in pages.blocks(np.arange(len(pages)), _LISTS):
        gates, out = reader.at(block.vector, block.position)
        state = np.tile(reader.start, (len(block.rows), 1))
        above = np.zeros((len(block.rows), 1))
        for k in range(block.rows.shape[1]):
            state = reader.step(state, gates[:, k], above)
            clicked = uniform[block.rows[:, k]] < reader.chance(state, out[:, k])
            clicks[block.rows[:, k]] = clicked
            above = clicked[:, None].astype(np.float64)
    return clicks


def marginal(
    reader: Reader, pages: Pages, *, exact_rows: int, n_samples: int, seed: Seed
) -> FloatArray:
    """(rows,) P(click), the clicks above not known.

    Lists of up to `exact_rows` rows: all patterns of clicks above, 2^(k-1) for row k. Longer ones:
    the mean of P(click | clicks above) over `n_samples` sampled readings.
    """
    p = np.empty(len(pages.position))
    length = ragged.lengths(pages.indptr)
    short = np.flatnonzero(length <= exact_rows)
    if len(short):
        size = max(1, _STATES >> max(0, int(length[short].max()) - 1))
        for block in pages.blocks(short, size):
            p[block.rows] = _enumerated(reader, block)
    rng = generator(seed)
    for block in pages.blocks(np.flatnonzero(length > exact_rows), max(1, _STATES // n_samples)):
        p[block.rows] = _sampled(reader, block, n_samples, rng)
    return p


def _enumerated(reader: Reader, block: _Block) -> FloatArray:
    """(lists, length): states and probabilities of every pattern of clicks so far."""
    gates, out = reader.at(block.vector, block.position)
    n, length = block.rows.shape
    state = np.broadcast_to(reader.start, (n, 1, len(reader.start)))
    reached, above = np.ones((n, 1)), np.zeros((1, 1, 1))
    p = np.empty((n, length))
    for k in range(length):
        state = reader.step(state, gates[:, None, k], above)
        clicked = reached * reader.chance(state, out[:, None, k])
        p[:, k] = clicked.sum(axis=1)
        # The patterns without this click first, then those with it.
        reached = np.concatenate([reached - clicked, clicked], axis=1)
        state = np.concatenate([state, state], axis=1)
        above = np.repeat([0.0, 1.0], clicked.shape[1])[None, :, None]
    return p


def _sampled(reader: Reader, block: _Block, n_samples: int, rng: np.random.Generator) -> FloatArray:
    gates, out = reader.at(block.vector, block.position)
    n, length = block.rows.shape
    state = np.broadcast_to(reader.start, (n, n_samples, len(reader.start)))
    above = np.zeros((n, n_samples, 1))
    p = np.empty((n, length))
    for k in range(length):
        state = reader.step(state, gates[:, None, k], above)
        chance = reader.chance(state, out[:, None, k])
        p[:, k] = chance.mean(axis=1)
        above = (rng.random(chance.shape) < chance)[..., None].astype(np.float64)
    return p


@cache
def reader_loss() -> Loss:
    """The same reader in JAX: -log-likelihood per session of the batch, plus the priors.

    A batch holds document, position_index, click, count and mask; constants are features, vector
    (which of the vectors is a document's own), per_batch (batches per session), prior and l2 (half
    precisions per session) and by_id (0 or 1).
    """

    def loss(params: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        jax, jnp = jax_modules().jax, jax_modules().numpy
        document, h = batch["document"], params["start"].shape[0]
        v = batch["features"][document] @ params["by_feature"]
        v = v + batch["by_id"] * params["vectors"][batch["vector"][document]]
        gates = v @ params["gates_document"] + params["gates_position"][batch["position_index"]]
        out = v @ params["out_document"] + params["out_position"][batch["position_index"]]
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

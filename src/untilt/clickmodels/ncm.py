"""The neural click model: a recurrent network over the positions of a list, and its training."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit

from untilt._core import ragged
from untilt._core.arrays import (
    AnyArray,
    FeatureArray,
    FloatArray,
    IntArray,
    frozen,
    handed_over,
    sum_by,
)
from untilt._core.grouping import group_equal_lists, mixed
from untilt._core.random import Seed, child_generator, generator
from untilt._core.restored import check_array, check_whole
from untilt.catalog import method, storable
from untilt.clickmodels import click_model
from untilt.clickmodels.smoothing import Smoothing, smoothing_of
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice, check_least
from untilt.networks.batches import PaddedLists, padded_rows
from untilt.networks.mlp import Optimiser, jax_modules, normalisation, normalised
from untilt.networks.training import Loss, StoppingRule, Trained, train

_LISTS = 4096  # read at once
_STATES = 2**16  # of which one step is taken at once when click patterns are enumerated


@storable
@dataclass(frozen=True, eq=False)
class Reader:
    """The network's arrays: h units of state, document vectors of length m, positions 1..K.

    Row k of a list has the document vector v_k, its position and the click c_{k-1} above it. With
    s_0 learned and sigma the logistic function, a gated unit reads on:

        a_k        = W' v_k + P[position] + C c_{k-1}        in three parts a^r, a^u, a^n
        r, u       = sigma(a^r + U_r' s_{k-1}), sigma(a^u + U_u' s_{k-1})
        n          = tanh(a^n + r U_n' s_{k-1})
        s_k        = (1 - u) n + u s_{k-1}
        P(c_k = 1 | clicks above) = sigma(w . s_k + d . v_k + b[position])

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


def _read(
    reader: Reader, pages: Pages, click_of: Callable[[IntArray, FloatArray], AnyArray]
) -> FloatArray:
    """(rows,) P(click | the clicks above); `click_of` says which rows have one, by their P."""
    p = np.empty(len(pages.position))
    for block in pages.blocks(np.arange(len(pages)), _LISTS):
        gates, out = reader.at(block.vector, block.position)
        state = np.tile(reader.start, (len(block.rows), 1))
        above = np.zeros((len(block.rows), 1))
        for k in range(block.rows.shape[1]):
            state = reader.step(state, gates[:, k], above)
            rows = block.rows[:, k]
            p[rows] = reader.chance(state, out[:, k])
            above = click_of(rows, p[rows])[:, None].astype(np.float64)
    return p


def conditional(reader: Reader, pages: Pages, click: FloatArray) -> FloatArray:
    """(rows,) P(click | the clicks above)."""
    return _read(reader, pages, lambda rows, _: click[rows])


def draw(reader: Reader, pages: Pages, uniform: FloatArray) -> AnyArray:
    """(rows,) clicks, one uniform number for each row."""
    p = _read(reader, pages, lambda rows, p: uniform[rows] < p)
    return (uniform < p).astype(np.uint8)


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


MOST_EXACT, MOST_SAMPLES = 20, 2**20  # a million patterns of clicks, or as many draws
DOCUMENTS = ("both", "features", "ids")
# With fewer sessions held out chance would decide when to stop: the priors alone guard then.
FEWEST_HELD_OUT = 100
_KEPT = ("mean", "scale", "own", "by_feature")  # learned, and not for others to read


@dataclass(frozen=True, eq=False)
class DescribedLists(click_model.Lists):
    """Lists with the vectors of their documents.

    document : (rows,) index into vectors (documents of the asked log, m)
    """

    document: IntArray
    vectors: FloatArray

    @property
    def pages(self) -> Pages:
        """As the reader sees them."""
        return Pages(self.indptr, self.position, self.document, self.vectors)


@method(
    "click model", "ncm", title="Neural click model", order=20, needs=("jax",),
    reference="borisov2016neural",
    note="a recurrent network reads the list from the top",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class NCM(click_model.ClickModel):
    r"""The neural click model: P(c_k = 1 | clicks above) from a recurrent state.

    After [borisov2016neural]_. A gated recurrent unit reads the list from the top; at each row it
    takes the document's vector, the position and the click just above, and its state says how
    likely a click is (`untilt.clickmodels.ncm` has the formula). Nothing is assumed about
    examination: what the clicks above mean is learned, and there is no curve over positions in it.

    A document's vector is v = F x + e: learned from its features x, plus its own vector with a
    normal prior of precision `prior_strength`, which draws rare documents to what their features
    say (to 0 without features). A document that was not in the log has e = 0. Where the features of
    a document change, its versions share e.

    P(c_k = 1) without knowing the clicks is exact for lists of up to `exact_rows` rows (all
    2^(k-1) patterns of clicks above row k; two seconds for a thousand distinct lists of ten),
    and a mean over `n_samples` sampled readings for longer ones.

    Fitted by mini-batches of distinct lists with their counts as weights, put into a fixed
    order first: counts equal repeats, and the order of the log plays no part. Training needs
    JAX (the extra `neural`); prediction is NumPy.

    Learned: `reader_` (the network), `relevance_` (P(click) of a document alone at position 1, the
    mean over its versions),
    `losses_` (by epoch), `status_`.

    Parameters
    ----------
    documents : what describes a document: "features", "ids", or "both" (whatever there is)
    width : units of the state; vector_length : of a document's vector
    prior_strength : precision of the prior on e; 0 turns it off
    l2 : precision of a normal prior on the weights of the gates
    epochs, max_steps, batch_size, learning_rate : of the training, whichever ends first; the rate
        falls to 0 on a cosine
    validation, patience : share of the sessions that are held out, if they are 100 or more;
        training ends when their likelihood has not risen for `patience` epochs; the best is kept
    exact_rows, n_samples : see above
    seed : of the training and the sampled readings
    """

    family: ClassVar[str] = "network"
    requires: ClassVar[tuple[str, ...]] = ("jax", "optax")
    quick_up_to: ClassVar[float] = 30_000  # about a minute for the marginals alone

    documents: str = "both"
    width: int = 32
    vector_length: int = 8
    prior_strength: float = 1.0
    l2: float = 1.0
    epochs: int = 60
    max_steps: int = 3000
    batch_size: int = 256
    learning_rate: float = 0.01
    validation: float = 0.1
    patience: int = 5
    exact_rows: int = 10
    n_samples: int = 256
    seed: int = 0
    reader_: Reader = field(init=False)
    losses_: tuple[float, ...] = field(init=False)
    status_: str = field(init=False)

    def _learn(self, log: ClickLog) -> None:
        self._check_options(log)
        given = self._given_features(log)
        self._mean, self._scale = normalisation(given)
        trained = self._train(log, normalised(given, self._mean, self._scale))
        params = {name: np.asarray(array, np.float64) for name, array in trained.params.items()}
        self.reader_ = Reader.of(params)
        self.losses_, self.status_ = trained.losses, trained.status
        own = params["vectors"] if self._by_id else np.zeros((log.n_items, self.vector_length))
        self._own, self._by_feature = handed_over(own), handed_over(params["by_feature"])
        item = _items(log)
        relevance = sum_by(item, self.reader_.first(self._vectors(log, item)))
        self.relevance_ = handed_over(relevance / np.bincount(item))
        self.prior_mean_ = float(self.reader_.first(np.zeros((1, self.vector_length)))[0])

    def _state(self) -> dict[str, Any]:
        """How features are normalised, and the vectors of documents too."""
        return {**super()._state(), **{f"{name}_": getattr(self, f"_{name}") for name in _KEPT}}

    def _restore(self, state: dict[str, Any]) -> None:
        for name in _KEPT:
            setattr(self, f"_{name}", handed_over(state.pop(f"{name}_")))
        super()._restore(state)

    def _check_restored(self) -> None:
        super()._check_restored()
        n, m = len(self._mean), self.reader_.check(self.depth_)
        check_array("mean", self._mean, (n,), finite=True)
        check_array("scale", self._scale, (n,), finite=True)
        check_array("by_feature", self._by_feature, (n, m), finite=True)
        check_array("own", self._own, (len(self.documents_), m), finite=True)
        check_choice("documents", self.documents, DOCUMENTS)
        # These two decide how much memory a prediction takes.
        check_whole("exact_rows", self.exact_rows, low=0, high=MOST_EXACT)
        check_whole("n_samples", self.n_samples, low=1, high=MOST_SAMPLES)
        child_generator(self.seed, 5)

    def _lists(self, log: ClickLog) -> DescribedLists:
        lists = super()._lists(log)
        index = np.full(log.n_documents, -1)
        index[log.document] = lists.index
        return DescribedLists(
            **vars(lists), document=log.document, vectors=self._vectors(log, index)
        )

    def _marginal(self, lists: click_model.Lists) -> FloatArray:
        assert isinstance(lists, DescribedLists)
        slates = group_equal_lists(lists.indptr, [lists.document, lists.position], [])
        length = np.diff(lists.indptr)[slates.first]
        rows = ragged.rows_of_lists(lists.indptr, slates.first)
        indptr = np.concatenate([[0], np.cumsum(length)])
        p = marginal(
            self.reader_,
            Pages(indptr, lists.position[rows], lists.document[rows], lists.vectors),
            exact_rows=self.exact_rows,
            n_samples=self.n_samples,
            seed=child_generator(self.seed, 5),
        )
        return p[ragged.rows_of_lists(indptr, slates.group_of_list)]

    def _conditional(self, lists: click_model.Lists) -> FloatArray:
        assert isinstance(lists, DescribedLists)
        return conditional(self.reader_, lists.pages, lists.click)

    def _draw(self, lists: click_model.Lists, uniform: FloatArray) -> AnyArray:
        assert isinstance(lists, DescribedLists)
        return draw(self.reader_, lists.pages, uniform[:, 0])

    def _vectors(self, log: ClickLog, index: IntArray) -> FloatArray:
        """(documents of the log, m); index -1 for a document without its own vector."""
        own = np.append(self._own, np.zeros((1, self._own.shape[1])), axis=0)[index]
        given = self._given_features(log)
        if given.shape[1] != len(self._mean):
            raise OptionError(
                f"this NCM was fitted on {len(self._mean)} features. The log has {log.n_features}: "
                "bring the same ones, or fit NCM(⟦documents='ids'⟧)."
            )
        x = normalised(given, self._mean, self._scale, dtype=np.float64)
        return own + x @ self._by_feature

    @property
    def _uses_features(self) -> bool:
        return self.documents != "ids"

    def _given_features(self, log: ClickLog) -> FeatureArray:
        if self.documents == "ids" or log.features is None:
            return np.zeros((log.n_documents, 0), dtype=np.float32)
        return log.features

    @property
    def _by_id(self) -> bool:
        return self.documents != "features"

    def _vector_index(self, log: ClickLog) -> IntArray:
        """(documents,) which vector is a document's own; without ids there is one, not used."""
        return _items(log) if self._by_id else np.zeros(log.n_documents, dtype=np.int32)

    def _train(self, log: ClickLog, features: FeatureArray) -> Trained:
        """Trained parameters; `features` (documents, d) are normalised, d may be 0.

        Lists are put into a fixed order first: how the log was sorted or counted plays no
        part.
        """
        log, held_out = self._split(in_own_order(log))
        sessions = float(log.n_sessions)
        constants = {
            "per_batch": max(1.0, log.n_lists / self.batch_size) / sessions,
            "prior": 0.5 * self.prior_strength / sessions,
            "l2": 0.5 * self.l2 / sessions,
            "by_id": self._by_id,
        }
        return train(
            reader_loss(),
            self._start(log, features),
            self._batches(log),
            optimiser=Optimiser("adam", self.learning_rate, "cosine", clip_norm=1.0),
            epochs=self.epochs,
            constants={
                "features": features.astype(np.float32),
                "vector": self._vector_index(log),
                **{name: np.array(value, np.float32) for name, value in constants.items()},
            },
            max_steps=self.max_steps,
            stopping=None if held_out is None else self._stopping(held_out, features),
            what="neural click model",
        )

    def _split(self, log: ClickLog) -> tuple[ClickLog, ClickLog | None]:
        """Sessions to learn from, and those that say when to stop; none of a small log."""
        if self.validation * log.n_sessions < FEWEST_HELD_OUT:
            return log, None
        draw = child_generator(self.seed, 3)
        held_out = draw.binomial(log.sessions, self.validation)
        kept = log.sessions - held_out
        return (
            log.take(np.flatnonzero(kept), count=kept[kept > 0]),
            log.take(np.flatnonzero(held_out), count=held_out[held_out > 0]),
        )

    def _stopping(self, held_out: ClickLog, features: FeatureArray) -> StoppingRule:
        """By the log-likelihood of the sessions held out."""
        log, x, own = held_out, features.astype(np.float64), self._vector_index(held_out)

        def value(params: Mapping[str, AnyArray]) -> float:
            double = {name: np.asarray(array, np.float64) for name, array in params.items()}
            vectors: FloatArray = x @ double["by_feature"]
            if self._by_id:
                vectors = vectors + double["vectors"][own]
            pages = Pages(log.indptr, log.position, log.document, vectors)
            p = conditional(Reader.of(double), pages, log.label)
            return float(np.dot(np.log(np.where(log.label > 0, p, 1 - p)), log.row_count))

        return StoppingRule(value, self.patience)

    def _batches(self, log: ClickLog) -> PaddedLists:
        return PaddedLists(
            log.indptr,
            {
                "document": log.document,
                "position_index": (log.position - 1).astype(np.int32),
                "click": log.label.astype(np.float32),
            },
            self.batch_size,
            lengths=(int(ragged.lengths(log.indptr).max()),),
            list_columns={"count": log.sessions.astype(np.float32)},
            seed=self.seed,
        )

    def _start(self, log: ClickLog, features: FeatureArray) -> dict[str, AnyArray]:
        """Where training starts: click rates by position and document, and random gates.

        The first number of a document's vector is its smoothed log-odds against the mean: the first
        predictions are those of a logistic model of position and document.
        """
        m, h, depth = self.vector_length, self.width, log.depth
        rng = child_generator(self.seed, 0)

        def normal(*shape: int) -> FloatArray:
            return rng.normal(0, 1 / np.sqrt(shape[0]), shape)

        vectors = np.zeros((log.n_items if self._by_id else 1, m))
        if self._by_id:
            vectors[:, 0] = _log_odds_by_document(log.without_versions(), self.prior_strength)
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

    def _check_options(self, log: ClickLog) -> None:
        check_choice("documents", self.documents, DOCUMENTS)
        if self.documents == "features" and log.features is None:
            raise OptionError(
                "NCM(⟦documents='features'⟧) needs features, and this log has none. Read them with "
                "⟦read_log(..., documents=...)|--documents TABLE⟧, or describe documents by 'ids'."
            )
        for name in ("width", "vector_length", "batch_size", "n_samples"):
            check_least(name, getattr(self, name), 1)
        if not 0 <= self.exact_rows <= MOST_EXACT:
            raise OptionError(
                f"exact_rows must be from 0 to {MOST_EXACT} (a million patterns). "
                f"Got {self.exact_rows}."
            )
        if self.n_samples > MOST_SAMPLES:
            raise OptionError(
                f"n_samples must be at most {MOST_SAMPLES:,}. Got {self.n_samples} instead."
            )
        if not 0 <= self.validation < 1:
            raise OptionError(f"validation must be from 0 to under 1. Got {self.validation}.")
        if not 0 <= self.l2 < np.inf:
            raise OptionError(f"l2 must be at least 0. Got {self.l2} instead.")


def _items(log: ClickLog) -> IntArray:
    return np.arange(log.n_documents, dtype=np.int32) if log.item is None else log.item


def in_own_order(log: ClickLog) -> ClickLog:
    """Equal sessions as one list, lists sorted by a hash of what they hold."""
    log = log._with(ranker=None, ranker_names=(), time=None, extra_labels={}).collapse()
    word = (log.document.astype(np.uint64) << np.uint64(21)) + (
        log.position.astype(np.uint64) << np.uint64(1)
    )
    key = ragged.sums_by_list(
        log.indptr, mixed(word + (log.label > 0).astype(np.uint64)).view(np.int64)
    )
    return log.take(np.argsort(key, kind="stable"))


def _log_odds_by_document(log: ClickLog, strength: float) -> FloatArray:
    shown = click_model.sums_by_document(log, log.row_count)
    clicks = click_model.sums_by_document(log, log.label * log.row_count)
    # Half an impression where there is no prior: rates of 0 and 1 have no log-odds.
    prior = smoothing_of(clicks, shown, max(strength, 0.5))
    return np.where(shown > 0, logit(prior.rate(clicks, shown)) - logit(prior.mean), 0.0)


def _log_odds_by_position(log: ClickLog) -> FloatArray:
    clicks = sum_by(log.position - 1, log.label * log.row_count)
    shown = sum_by(log.position - 1, log.row_count)
    prior = Smoothing(1.0, float(clicks.sum() / shown.sum()))
    return logit(prior.rate(clicks, shown))

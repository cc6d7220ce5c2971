"""A small simulator of its own: people, pages and clicks in plain NumPy, with the truth at hand.

Nothing here comes from the package that is tested. A `World` holds queries, documents, what they
are worth and the order in which production shows them. `Pages` are sessions: what was shown where,
what was clicked, and which rows reached the log. `Log` is what a team would hand over: a table,
together with the truth behind it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

Array = np.ndarray[Any, Any]
Kind = Literal["usual", "equal", "unknown"]
THETA = 1.0 / np.arange(1, 201) ** 0.8  # how often each position is looked at
EMPTY = -1
RIVAL = 0.4  # correlation of a ranker's score with worth, that of production unless said otherwise


@dataclass(frozen=True)
class World:
    """Queries (Q) with documents (D): worth, relevance gamma, features, production's score.

    relevance : (Q, D) probability of a click by somebody who looks
    score : (Q, D) by which production orders
    features : (Q, D, F) the first half tell worth with noise, the others nothing
    """

    rng: np.random.Generator
    worth: Array
    relevance: Array
    score: Array
    features: Array
    kind: Kind

    @property
    def n_queries(self) -> int:
        return len(self.relevance)

    @property
    def n_documents(self) -> int:
        return self.relevance.shape[1]

    def another_score(self, quality: float) -> Array:
        """(Q, D) scores of a ranker whose correlation with worth is `quality`; 0 if "unknown"."""
        noise = self.rng.normal(size=self.worth.shape)
        quality = 0.0 if self.kind == "unknown" else quality
        return quality * self.worth + np.sqrt(1 - quality**2) * noise


def make_world(
    seed: int,
    *,
    kind: Kind = "usual",
    n_queries: int = 240,
    n_documents: int = 10,
    quality: float = RIVAL,
    n_features: int = 6,
) -> World:
    """Relevance from 0.03 to 0.8.

    "equal" makes it 0.3 for all documents, with features and production as before; "unknown" makes
    features and every ranker ignorant of it. In both no ranker that learns can be better.
    """
    rng = np.random.default_rng(seed)
    worth = rng.normal(size=(n_queries, n_documents))
    relevance = 0.03 + 0.77 / (1 + np.exp(1.5 - 1.5 * worth))
    if kind == "equal":
        relevance = np.full_like(relevance, 0.3)
    told = n_features // 2
    noise = rng.normal(size=(n_queries, n_documents, n_features))
    if kind != "unknown":
        noise[..., :told] = worth[..., None] + 0.7 * noise[..., :told]
    made = World(rng, worth, relevance, worth, noise, kind)
    return replace(made, score=made.another_score(quality))


@dataclass(frozen=True)
class Pages:
    """Sessions (S) of at most K places each; the places of a page go from the top down.

    document : (S, K) which of the query's documents, EMPTY where the page has none
    position : (S, K) where it truly stood, from 1
    click : (S, K) labels
    logged : (S, K) whether the row reached the log
    counts : (S,) whether the session belongs to the order that a new one would replace
    """

    world: World
    query: Array
    document: Array
    position: Array
    click: Array
    logged: Array
    counts: Array
    ranker: Array | None = None
    more: Mapping[str, Array] = field(default_factory=dict)  # further columns, (S,) or (S, K)
    gamma: Array | None = None  # (S, K) relevance at the time, where it changes

    @property
    def there(self) -> Array:
        return self.document != EMPTY

    @property
    def relevance(self) -> Array:
        """(S, K) gamma of what was shown, 0 in empty places."""
        lasting = self.world.relevance[self.query[:, None], self.document]
        return np.where(self.there, lasting if self.gamma is None else self.gamma, 0.0)

    def with_clicks(self, probability: Array) -> "Pages":
        """Clicks drawn independently."""
        drawn = self.world.rng.random(probability.shape) < probability
        return replace(self, click=(drawn & self.there).astype(float))

    def value(self, score: Array | None, *, depth: int = 10) -> float:
        """The truth: DCG@depth of gamma over the pages that count, by `score`, None as shown.

        The documents of each page, best score first, fill the places that the page had. Equal
        scores are taken apart by chance, many times.
        """
        if score is not None and any(len(np.unique(row)) < len(row) for row in score):
            chance = np.random.default_rng(0).random((20, *score.shape))
            return float(np.mean([self.value(score + 1e-9 * each, depth=depth) for each in chance]))
        gain, place = self.relevance[self.counts], self.position[self.counts]
        if score is not None:
            own = score[self.query[:, None], self.document][self.counts]
            key = np.where(self.there[self.counts], -own, np.inf)
            gain = np.take_along_axis(gain, np.argsort(key, axis=1, kind="stable"), axis=1)
        discount = np.where(place <= depth, 1 / np.log2(1 + place), 0.0)
        return float((gain * discount).sum(axis=1).mean())

    def frame(self) -> pd.DataFrame:
        """One row per logged impression."""
        session, place = np.nonzero(self.logged & self.there)
        query, document = self.query[session], self.document[session, place]
        columns = {
            "query_id": query,
            "session_id": session,
            "doc_id": 1000 * query + document,
            "position": self.position[session, place],
            "click": self.click[session, place],
        }
        if self.ranker is not None:
            columns["ranker"] = self.ranker[session]
        for name, values in self.more.items():
            columns[name] = values[session] if values.ndim == 1 else values[session, place]
        features = self.world.features[query, document]
        columns |= {f"f{i}": features[:, i] for i in range(features.shape[1])}
        return pd.DataFrame(columns)


def traffic(world: World, n_sessions: int, weight: Array | None = None) -> Array:
    """(S,) which query each session asked; all alike where no weights are given."""
    share = None if weight is None else weight / weight.sum()
    return np.sort(world.rng.choice(world.n_queries, size=n_sessions, p=share))


def zipf(world: World, power: float = 1.0) -> Array:
    return 1.0 / np.arange(1, world.n_queries + 1) ** power


def show(
    world: World,
    query: Array,
    *,
    score: Array | None = None,
    length: Array | int = 10,
    places: Array | None = None,
) -> Pages:
    """Pages by production's score, or by (Q, D) or (S, D) scores; `places` are their positions."""
    score = world.score if score is None else score
    own = score if len(score) == len(query) and len(query) != world.n_queries else score[query]
    longest = int(np.max(length))
    document = np.argsort(-own, axis=1, kind="stable")[:, :longest]
    beyond = np.arange(longest) >= np.broadcast_to(length, len(query))[:, None]
    document = np.where(beyond, EMPTY, document)
    places = np.arange(1, longest + 1) if places is None else places
    shape = document.shape
    return Pages(
        world,
        query,
        document,
        np.broadcast_to(places, shape).copy(),
        np.zeros(shape),
        np.ones(shape, dtype=bool),
        np.ones(len(query), dtype=bool),
    )


def read(pages: Pages, theta: Array = THETA) -> Pages:
    """Clicks of readers who look at a place with probability theta and click what is relevant."""
    return pages.with_clicks(theta[pages.position - 1] * pages.relevance)


def stack(*parts: Pages) -> Pages:
    """Sessions of several kinds in one log."""
    first, width = parts[0], max(part.document.shape[1] for part in parts)

    def wide(values: Array, empty: Any) -> Array:
        missing = width - values.shape[1]
        return np.pad(values, ((0, 0), (0, missing)), constant_values=empty)

    return Pages(
        first.world,
        np.concatenate([p.query for p in parts]),
        np.concatenate([wide(p.document, EMPTY) for p in parts]),
        np.concatenate([wide(p.position, 1) for p in parts]),
        np.concatenate([wide(p.click, 0.0) for p in parts]),
        np.concatenate([wide(p.logged, False) for p in parts]),
        np.concatenate([p.counts for p in parts]),
        None if first.ranker is None else np.concatenate([p.ranker for p in parts]),
        {
            name: np.concatenate([p.more[name] for p in parts])
            for name, values in first.more.items()
            if values.ndim == 1
        },
    )


def named(pages: Pages, ranker: str, *, counts: bool = True) -> Pages:
    """The same sessions with the name of who ordered them."""
    n = len(pages.query)
    return replace(pages, ranker=np.full(n, ranker), counts=np.full(n, counts))


@dataclass(frozen=True)
class Log:
    """What is handed over, and the truth behind it.

    Parameters
    ----------
    frame : one row per impression, as a team would log it
    pages : what truly happened; every sensible session of the log and no other
    theta : (K,) how often each position is looked at; None where no such curve exists
    same : (Q, D) scores that give the very order that was logged; None where there are none
    options : of reading
    orders : name -> (Q, D) scores of further orders to try
    key : (query_id, doc_id) of the table -> (query, document) of the world
    """

    frame: pd.DataFrame
    pages: Pages
    theta: Array | None = None
    same: Array | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    orders: Mapping[str, Array] = field(default_factory=dict)
    key: Callable[[Any, Any], tuple[int, int]] = lambda query, doc: (int(query), int(doc) % 1000)

    @property
    def features(self) -> list[str]:
        """Columns that are features by their name."""
        return [name for name in self.frame.columns if name.startswith("f") and name[1:].isdigit()]

    def candidates(self) -> dict[str, Array]:
        """(Q, D) scores of the orders that are tried."""
        world = self.pages.world
        rng = np.random.default_rng(99)
        chance = np.asarray(rng.random(world.worth.shape))
        rival = RIVAL * world.worth + np.sqrt(1 - RIVAL**2) * np.asarray(
            rng.normal(size=chance.shape)
        )
        orders: dict[str, Array] = {} if self.same is None else {"same": self.same}
        orders |= {"relevance": world.worth, "reverse": -world.worth, "chance": chance}
        orders["rival"] = rival  # about as good as production usually is, and a different order
        return {**orders, **self.orders}


def log_of(pages: Pages, *, theta: Array | None = THETA, same: bool = True, **more: Any) -> Log:
    """The log of pages as they are."""
    order = {"same": pages.world.score} if same else {}
    return Log(**{"frame": pages.frame(), "pages": pages, "theta": theta, **order, **more})

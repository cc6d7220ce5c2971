"""Logs of a policy that draws its lists: propensities by enumeration, clicks of any model."""

from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pandas as pd

from untilt._core.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class DrawnWorld:
    """Queries whose sessions are of two kinds, which nothing logs: the policy knows the kind.

    Parameters
    ----------
    orders : (orders, slots) all lists of `slots` of the documents
    policy : (kinds, queries, orders) with which a session of the kind sees each
    clicks : (kinds, queries, documents, slots) chance of a click: no position-based model
    """

    orders: IntArray
    policy: FloatArray
    clicks: FloatArray

    @classmethod
    def made(
        cls,
        rng: np.random.Generator,
        *,
        queries: int,
        documents: int,
        slots: int,
        sharp: float = 1.0,
    ) -> "DrawnWorld":
        """Plackett-Luce by scores that lean to what the kind of session clicks."""
        orders = np.array(list(permutations(range(documents), slots)))
        taste = rng.normal(size=(2, queries, documents))
        base = 0.25 / (1 + np.arange(slots)) * rng.uniform(0.5, 1.5, (queries, documents, slots))
        clicks = np.clip(base * np.exp(0.7 * taste)[..., None], 0, 0.9)
        weight = np.exp(sharp * taste)
        policy = np.ones((2, queries, len(orders)))
        for kind, query, i in np.ndindex(policy.shape):
            left = weight[kind, query].sum()
            for document in orders[i]:
                policy[kind, query, i] *= weight[kind, query, document] / left
                left -= weight[kind, query, document]
        return cls(orders, policy, clicks)

    @property
    def chances(self) -> FloatArray:
        """(kinds, queries, documents, slots) with which a document stands in a slot."""
        slots = self.clicks.shape[3]
        found = np.zeros(self.clicks.shape)
        for order, p in zip(self.orders, np.moveaxis(self.policy, -1, 0), strict=True):
            found[:, :, order, np.arange(slots)] += p[..., None]
        return found

    def value(self, scores: FloatArray) -> float:
        """Clicks per session of the ranker with these (queries, documents) scores."""
        slots = self.clicks.shape[3]
        order = np.argsort(-scores, axis=1)[:, :slots]
        each = self.clicks[:, np.arange(len(scores))[:, None], order, np.arange(slots)]
        return float(each.sum(axis=2).mean())

    def log(self, rng: np.random.Generator, sessions: int, *, wrong: float = 1.0) -> pd.DataFrame:
        """Rows of so many sessions of each query; `wrong` is the power of p that is logged."""
        kinds, queries, _, slots = self.clicks.shape
        kind = rng.integers(0, kinds, queries * sessions)
        query = np.repeat(np.arange(queries), sessions)
        draw = rng.random(len(query))[:, None] > np.cumsum(self.policy[kind, query], axis=1)
        shown = self.orders[np.minimum(draw.sum(axis=1), len(self.orders) - 1)]
        at = (kind[:, None], query[:, None], shown, np.arange(slots))
        return pd.DataFrame({
            "query_id": np.repeat(query, slots),
            "session_id": np.repeat(np.arange(len(query)), slots),
            "doc_id": shown.ravel(),
            "position": np.tile(np.arange(slots) + 1, len(query)),
            "click": (rng.random(shown.shape) < self.clicks[at]).astype(int).ravel(),
            "propensity": (self.chances[at] ** wrong).ravel(),
        })  # fmt: skip

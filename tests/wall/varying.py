"""Why positions vary: worlds whose readers are position-based, as rows of one table.

A simulator in plain NumPy, apart from the package and from the other logs of the wall. Truths are
known for every order. Only the reason why a document stands at several positions differs between
worlds: chance, rankers, versions, or what a session wants and the log does not say.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

Array = np.ndarray[Any, Any]
Wants = Literal["", "stock", "taste", "trend", "segment", "weekly"]
Named = Literal["", "ranker", "segment", "week"]


@dataclass(frozen=True)
class World:
    """What moves documents, and what the log says of it.

    Parameters
    ----------
    wants, strength : what makes a document more or less wanted in a session, by how much
    follow : how far production follows it: 1 fully, 0 not at all, -1 against it
    noise : standard deviation of each session's own noise in production's score
    rankers, named : how many share the traffic, and what the log calls them
    versions : of production, one after the other; `named` "week" names them
    on : share of the queries in which rankers differ
    power : of the curve k^-power; `other_power` in the queries in which rankers agree
    advert, level : share of the sessions in which an advert pushes all results down by one, and how
        often these click in comparison
    page : places of the first page; a second one is seen only after no click. 0: one page
    shuffled, swapped : shares of the sessions that an experiment changed, of 1 with k
    assigned : what the team says of who drew the rankers
    sound : whether clicks on documents that moved differ by examination alone
    """

    wants: Wants = ""
    strength: float = 0.0
    follow: float = 1.0
    noise: float = 0.0
    rankers: int = 1
    named: Named = ""
    versions: int = 1
    on: float = 1.0
    power: float = 0.8
    other_power: float = 0.8
    advert: float = 0.0
    level: float = 1.0
    page: int = 0
    shuffled: float = 0.0
    swapped: float = 0.0
    timed: bool = True
    assigned: Literal["unknown", "random", "other"] = "unknown"
    quality: float = 0.8
    sound: bool = True
    queries: int = 200
    sessions: int = 6000
    zipf: float = 0.0


def _two(name: str, world: World, **weaker: Any) -> dict[str, World]:
    """A world at two strengths."""
    return {name: world, f"{name}_weaker": replace(world, **weaker)}


_NAMED = World(rankers=2, named="ranker")
_INTENT = replace(_NAMED, on=0.5, power=1.3, other_power=0.4, sound=False)
_MIRROR = replace(_INTENT, power=0.4, other_power=1.3, quality=0.6)
_ADVERT = World(advert=0.5, level=0.7, sound=False)
_STOCK, _TASTE = World("stock", 0.5, sound=False), World("taste", 0.5, sound=False)
_SEGMENT = World("segment", 1.0, sound=False)
_TREND = World("trend", 0.5, sound=False)
_WEEKLY = World("weekly", 0.5, versions=8, sound=False)

WORLDS: dict[str, World] = {
    **_two("noise", World(noise=0.6), noise=0.2),
    **_two("rankers", _NAMED, rankers=3),
    **_two("uneven", replace(_NAMED, zipf=1.0, queries=250, sessions=12_000), zipf=0.7),
    **_two("unnamed_rankers", World(rankers=3), rankers=2),
    **_two("versions", World(versions=8), named="week"),
    **_two("named_with_noise", replace(_NAMED, noise=0.1), noise=0.05),
    **_two("shuffles", World(shuffled=0.1), shuffled=0.2),
    **_two("swaps", World(swapped=0.2), swapped=0.1),
    **_two("stock", _STOCK, strength=0.25),
    **_two("taste", _TASTE, strength=0.25),
    **_two("trend", _TREND, strength=0.25),
    **_two("segment", _SEGMENT, strength=0.5),
    **_two("segment_named", replace(_SEGMENT, named="segment", assigned="other"), strength=0.5),
    **_two("weekly", _WEEKLY, strength=0.25),
    **_two("weekly_named", replace(_WEEKLY, named="week"), strength=0.25),
    **_two("rankers_and_taste", replace(_TASTE, rankers=2, named="ranker"), strength=0.25),
    **_two("against", replace(_STOCK, follow=-1.0), strength=0.25),
    **_two("advert", _ADVERT, level=0.9),
    **_two("second_page", replace(_NAMED, page=5), page=7),
    **_two("intent", _INTENT, power=1.0, other_power=0.6),
    **_two("mirror", _MIRROR, power=0.6, other_power=1.0),
    **_two("stock_and_shuffles", replace(_STOCK, shuffled=0.2), strength=0.25),
    **_two("taste_and_swaps", replace(_TASTE, swapped=0.2), strength=0.25),
}
UNTIMED = replace(_NAMED, timed=False)


@dataclass(frozen=True)
class Made:
    """A log, and the truth behind it.

    gamma : (sessions, documents) how relevant each document was in a session
    shown, slot, seen : (sessions, places) the document of each place, its position, and whether the
        session came so far
    usual : (sessions,) those that no experiment changed
    signal : (queries, documents, 4) features
    theta : (positions,) of the curve that most queries have
    """

    frame: pd.DataFrame
    query: Array
    gamma: Array
    shown: Array
    slot: Array
    seen: Array
    usual: Array
    worth: Array
    signal: Array
    theta: Array

    def gain(self, score: Array, among: Array | None = None, step: Any = None) -> float:
        """DCG@10 of gamma that (queries, documents) scores truly add to the order shown.

        Of production's sessions, with documents on the places that their list had; `among` leaves
        only these queries. With the `step` of a run: that step, to the order of the best ranker.
        """
        kept = self.usual if among is None else self.usual & np.isin(self.query, among)
        here = np.take_along_axis(score[self.query], self.shown, axis=1)
        count = np.bincount(self.query[kept], minlength=len(score)).astype(float)
        if step is not None and 0 < step.w < 1:
            old = np.broadcast_to(-np.log(np.arange(1.0, here.shape[1] + 1)), here.shape)
            rows = self.seen & kept[:, None]
            parts = (each / _spread(each, rows) for each in (old, here))
            here = sum(w * each for w, each in zip((1 - step.w, step.w), parts, strict=True))
        if step is not None and step.rankers:
            first = self.frame.drop_duplicates("session_id")
            kept = kept & np.isin(
                np.arange(len(kept)), first.session_id[first.ranker == step.rankers[0].name]
            )
        gamma, place, shown = self.gamma[kept], self.slot[kept], self.shown[kept]
        weight = self.seen[kept] * (place <= 10) / np.log2(1 + place)
        best = np.argsort(np.where(self.seen[kept], -here[kept], np.inf), axis=1)
        orders = np.take_along_axis(shown, best, axis=1), shown
        new, old = (np.take_along_axis(gamma, order, axis=1) * weight for order in orders)
        query = self.query[kept]
        own = np.bincount(query, minlength=len(score))
        return float(np.average((new - old).sum(axis=1), weights=count[query] / own[query]))

    def moved(self) -> Array:
        """Queries with a clicked document that stood at several positions."""
        by = self.frame.groupby(["query_id", "doc_id"])
        told = (by["position"].nunique() > 1) & (by["click"].sum() > 0)
        return np.unique(told.index.get_level_values(0)[told])


def _spread(values: Array, rows: Array) -> float:
    """Root mean square of values around the mean of their list, over these rows."""
    mean = np.sum(values * rows, axis=1) / np.maximum(rows.sum(axis=1), 1)
    return float(np.sqrt(np.mean((values - mean[:, None])[rows] ** 2)))


def make(world: World, seed: int, documents: int = 10) -> Made:
    """One log of a world."""
    rng = np.random.default_rng(seed)
    Q, S, D = world.queries, world.sessions, documents
    worth = rng.normal(size=(Q, D))
    traffic = np.arange(1, Q + 1.0) ** -world.zipf
    query = rng.choice(Q, size=S, p=traffic / traffic.sum())
    time = np.arange(S) / S
    part = rng.random(Q) < world.on  # queries in which rankers differ
    group = rng.integers(3, size=S)
    wanted = _wanted(world, rng, query, time, group, D)
    version = np.minimum((time * world.versions).astype(int), world.versions - 1)
    ranker = rng.integers(world.rankers, size=S)
    kinds = world.rankers * world.versions
    noise = rng.normal(size=(kinds, Q, D))
    noise[:, ~part] = noise[:1, ~part]
    q = world.quality
    base = q * worth[query] + np.sqrt(1 - q**2) * noise[ranker * world.versions + version, query]
    score = base + world.follow * wanted + world.noise * rng.normal(size=(S, D))
    shown = np.argsort(-score, axis=1)
    arm = np.array(["base"] * S, dtype=object)
    _experiment(world, rng, shown, arm)
    advert = rng.random(S) < world.advert
    slot = np.arange(1, D + 1.0) + advert[:, None]
    gamma = 0.03 + 0.57 / (1 + np.exp(1.5 - 1.5 * (worth[query] + wanted)))
    power = np.where(part, world.power, world.other_power)[query]
    theta = slot ** -power[:, None] * np.where(advert, world.level, 1.0)[:, None]
    click = rng.random((S, D)) < theta * np.take_along_axis(gamma, shown, axis=1)
    first = click[:, : world.page].sum(axis=1, keepdims=True)  # no page: no click on it
    seen = (first == 0) | (np.arange(D) < world.page)
    signal = worth[..., None] * [1, 1, 0, 0] + rng.normal(size=(Q, D, 4)) * [0.7, 0.7, 1, 1]
    columns = {
        "query_id": np.repeat(query, D), "session_id": np.repeat(np.arange(S), D),
        "doc_id": shown.ravel(), "position": slot.astype(int).ravel(),
        "click": click.astype(int).ravel(),
        **{f"f{i}": signal[query[:, None], shown, i].ravel() for i in range(4)},
    }  # fmt: skip
    if world.timed:
        columns["timestamp"] = np.repeat(np.arange(S), D)
    name = {"ranker": ranker, "segment": group, "week": version}.get(world.named)
    if name is not None or world.shuffled or world.swapped:
        usual = np.array(["production"] * S) if name is None else np.char.add("r", name.astype(str))
        columns["ranker"] = np.repeat(np.where(arm == "base", usual.astype(object), arm), D)
        if world.swapped:
            columns["ranker"] = np.repeat(arm, D)
    frame = pd.DataFrame(columns)[seen.ravel()]
    return Made(
        frame, query, gamma, shown, slot, seen, arm == "base", worth, signal,
        np.arange(1, int(slot.max()) + 1.0) ** -world.power,
    )  # fmt: skip


def _wanted(world: World, rng: Any, query: Array, time: Array, group: Array, D: int) -> Array:
    """(sessions, documents) what a session adds to worth."""
    S, Q, size = len(query), world.queries, world.strength
    if world.wants == "stock":
        return np.where(rng.random((S, D)) < 0.3, -2 * size, 0.0)
    if world.wants == "taste":
        return size * rng.normal(size=(S, D))
    if world.wants == "trend":
        phase = rng.random((Q, D))[query]
        return 1.5 * size * np.sin(2 * np.pi * (24 * time[:, None] + phase))
    if world.wants == "segment":
        return size * rng.normal(size=(3, Q, D))[group, query]
    if world.wants == "weekly":
        week = np.minimum((time * world.versions).astype(int), world.versions - 1)
        return 1.5 * size * rng.normal(size=(world.versions, Q, D))[week, query]
    return np.zeros((S, D))


def _experiment(world: World, rng: Any, shown: Array, arm: Array) -> None:
    """Shuffle some lists, or swap position 1 with another, and name these sessions."""
    S, D = shown.shape
    drawn = rng.random(S)
    for s in np.flatnonzero(drawn < world.shuffled):
        shown[s], arm[s] = rng.permutation(shown[s]), "shuffle"
    chosen = np.flatnonzero((drawn >= world.shuffled) & (drawn < world.shuffled + world.swapped))
    k = rng.integers(1, D, size=len(chosen))
    for s, other in zip(chosen, k, strict=True):
        shown[s, [0, other]] = shown[s, [other, 0]]
        arm[s] = f"swap:1-{other + 1}"


def candidates(made: Made, seed: int) -> dict[str, Array]:
    """(queries, documents) scores of orders that nobody learned, from good to bad."""
    rng = np.random.default_rng([seed, 1])
    return {
        f"noise_{sd}": made.worth + sd * rng.normal(size=made.worth.shape)
        for sd in (0.3, 0.6, 0.9, 1.2, 1.6)
    }

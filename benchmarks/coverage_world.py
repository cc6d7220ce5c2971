"""Logs with a known truth for bench_coverage.py: queries, lists, people and clicks in plain NumPy.

Nothing here comes from the package but `ClickLog` and `JudgedLists`, which hold what was drawn.
Queries are drawn anew for every log, since intervals are meant for queries like these.

    P(click at k) = theta_k gamma,                          theta_k = (1/k)^0.8
    P(click at k) = theta_k (eps+_k gamma + eps-_k (1 - gamma))   in logs with trust bias

A `Scenario` says how much traffic there is and how it is spread; a study says what was shown.
"""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from untilt import ClickLog, JudgedLists

Array = np.ndarray[Any, Any]
LONGEST = 10
PLACE = np.arange(1, LONGEST + 1)
ETA = 0.8
THETA = PLACE**-ETA
DISCOUNT = 1 / np.log2(1 + PLACE)
# Trust bias: near the top even a bad document is clicked if it is looked at.
EPS_PLUS = 0.98 - 0.01 * (PLACE - 1)
EPS_MINUS = 0.4 / PLACE
# Two devices, and the share of sessions on a phone.
DEVICES = {"phone": 1.1, "desktop": 0.6}
PHONES = 0.5
N_RANKERS = 4
N_FEATURES = 6
QUALITY, NEW_QUALITY = 0.4, 0.6  # correlation of a score with worth: production, the new ranker


@dataclass(frozen=True)
class Scenario:
    """How much traffic there is, and how it is spread.

    zipf : power of the traffic of queries by their rank, 0 for even traffic
    shortest : lists are of `shortest` to 10 documents, alike in all sessions of a query
    clicks : factor on the probability of every click
    people : sessions of one person, who has a depth and an inclination to click of their own;
        0 where all people are alike
    """

    name: str
    title: str
    n_queries: int = 200
    n_sessions: int = 20_000
    zipf: float = 0.0
    shortest: int = LONGEST
    clicks: float = 1.0
    people: int = 0


SCENARIOS = {
    each.name: each
    for each in (
        Scenario("even", "even traffic"),
        Scenario("zipf", "Zipf 1.3", n_queries=500, zipf=1.3),
        Scenario("few", "20 queries", n_queries=20, n_sessions=5_000),
        Scenario("rare", "1% clicks", clicks=0.115),
        Scenario("lengths", "lists of 3 to 10", shortest=3),
        Scenario("people", "repeated users", people=10),
    )
}
STUDIES = (
    "rankers", "shuffle", "adjacent", "pivot", "context", "trust", "fixed", "trust fixed",
    "islands", "logged",
)  # fmt: skip
TOP = 5  # of "islands": documents change places above or below position 5, never across it


def relevance_of(worth: Array) -> Array:
    """gamma, from 0.05 to 0.55: an inclination of 1.7 keeps a click's probability below 1."""
    return 0.05 + 0.5 / (1 + np.exp(1.0 - 1.5 * worth))


@dataclass(frozen=True)
class Queries:
    """Queries (Q) with ten documents each, of which the first `length` exist.

    worth : (Q, 10); score : (rankers, Q, 10) by which production orders; new : (Q, 10) the score
    of a ranker to try; features : (Q, 10, F) half of them tell worth exactly, in pieces
    """

    length: Array
    worth: Array
    score: Array
    new: Array
    features: Array

    @property
    def relevance(self) -> Array:
        return relevance_of(self.worth)

    @property
    def exists(self) -> Array:
        return np.arange(LONGEST) < self.length[:, None]


def draw_queries(rng: np.random.Generator, n: int, shortest: int) -> Queries:
    half = N_FEATURES // 2
    features = rng.normal(size=(n, LONGEST, N_FEATURES))
    worth = features[..., :half].sum(axis=2) / np.sqrt(half)

    def score(quality: float, *shape: int) -> Array:
        noise = rng.normal(size=(*shape, n, LONGEST))
        return quality * worth + np.sqrt(1 - quality**2) * noise

    length = rng.integers(shortest, LONGEST + 1, size=n)
    return Queries(length, worth, score(QUALITY, N_RANKERS), score(NEW_QUALITY), features)


def order_by(score: Array, exists: Array) -> Array:
    """(..., 10) documents, best score first; those that do not exist last."""
    return np.argsort(np.where(exists, -score, np.inf), axis=-1, kind="stable")


def island_scores(queries: Queries) -> Array:
    """(rankers, Q, 10) that all put the first ranker's five best documents on top."""
    place = np.argsort(order_by(queries.score[0], queries.exists), axis=-1)
    return queries.score + 1000.0 * (place < TOP)


@dataclass(frozen=True)
class Made:
    """One log, what it was drawn from, and what was computed from it so far."""

    study: str
    scenario: Scenario
    seed: int
    log: ClickLog
    queries: Queries
    kept: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, make: Any) -> Any:
        """make(), or what it gave before: several rows of the table share a fit."""
        if key not in self.kept:
            try:
                self.kept[key] = make()
            except Exception as error:
                self.kept[key] = error
        if isinstance(self.kept[key], Exception):
            raise self.kept[key]
        return self.kept[key]

    @cached_property
    def new_scores(self) -> Array:
        """(documents,) scores of the ranker to try."""
        return self.queries.new.ravel()


def make(study: str, scenario: Scenario, seed: int) -> Made:
    """The log of one replication."""
    rng = np.random.default_rng([STUDIES.index(study), list(SCENARIOS).index(scenario.name), seed])
    queries = draw_queries(rng, scenario.n_queries, scenario.shortest)
    n, query = scenario.n_sessions, _traffic(rng, scenario)
    order, ranker, names = _shown(rng, study, queries, query)
    phone = rng.random(n) < PHONES
    p = scenario.clicks * _click_probability(study, queries, query, order, phone)
    context = {"device": np.where(phone, *DEVICES)} if study == "context" else {}
    if scenario.people:
        who, habit = _people(rng, n, scenario.people)
        p = p * habit
        context = context or {"user": who}
    click = rng.random(p.shape) < p
    there = np.arange(LONGEST) < queries.length[query][:, None]
    production = order_by(queries.score[0], queries.exists)[query]
    chance = (order == production) / 2 + 1 / (2 * queries.length[query][:, None])
    needs_features = study.endswith("fixed")
    log = ClickLog(
        query_id=np.arange(scenario.n_queries),
        doc_id=np.arange(scenario.n_queries * LONGEST),
        doc_query=np.repeat(np.arange(scenario.n_queries), LONGEST),
        indptr=np.concatenate([[0], np.cumsum(there.sum(axis=1))]),
        query=query,
        document=(query[:, None] * LONGEST + order)[there],
        position=np.broadcast_to(PLACE, order.shape)[there],
        label=click[there].astype(float),
        features=queries.features.reshape(-1, N_FEATURES) if needs_features else None,
        ranker=ranker,
        ranker_names=names,
        extra_labels={"propensity": chance[there]} if study == "logged" else {},
        context=context,
    )
    return Made(study, scenario, seed, log.collapse(), queries)


def _traffic(rng: np.random.Generator, scenario: Scenario) -> Array:
    """(sessions,) which query; every query has the same number where traffic is even."""
    n = scenario.n_sessions
    if scenario.zipf == 0:
        return np.repeat(np.arange(scenario.n_queries), n // scenario.n_queries)
    share = np.arange(1, scenario.n_queries + 1) ** -scenario.zipf
    return np.sort(rng.choice(scenario.n_queries, size=n, p=share / share.sum()))


def _shown(
    rng: np.random.Generator, study: str, queries: Queries, query: Array
) -> tuple[Array, Array | None, tuple[str, ...]]:
    """(sessions, 10) documents from the top down, who made each list, and their names."""
    n, exists, length = len(query), queries.exists, queries.length[query]
    production = order_by(queries.score[0], exists)[query]
    if study in ("fixed", "trust fixed"):
        return production, None, ()
    if study in ("rankers", "context", "trust"):
        who = rng.integers(N_RANKERS, size=n)
        return order_by(queries.score, exists)[who, query], None, ()
    if study == "islands":
        who = rng.integers(N_RANKERS, size=n)
        return order_by(island_scores(queries), exists)[who, query], None, ()
    changed = rng.random(n) < 0.5
    if study in ("shuffle", "logged"):
        chance = order_by(rng.random((n, LONGEST)), exists[query])
        order = np.where(changed[:, None], chance, production)
        if study == "logged":
            return order, None, ()
        return order, changed.astype(int), ("base", "shuffle")
    # Swaps: the lower place is drawn among those that the list has.
    lower = 2 + (rng.random(n) * (length - 1)).astype(int)
    upper = np.ones_like(lower) if study == "pivot" else lower - 1
    row = np.flatnonzero(changed)
    order = production.copy()
    order[row, upper[row] - 1] = production[row, lower[row] - 1]
    order[row, lower[row] - 1] = production[row, upper[row] - 1]
    swaps = [(1 if study == "pivot" else k - 1, k) for k in range(2, LONGEST + 1)]
    names = ("base", *(f"swap:{a}-{b}" for a, b in swaps))
    return order, np.where(changed, lower - 1, 0), names


def _click_probability(
    study: str, queries: Queries, query: Array, order: Array, phone: Array
) -> Array:
    """(sessions, 10), of people who are all alike."""
    gamma = queries.relevance[query[:, None], order]
    theta = np.broadcast_to(THETA, gamma.shape)
    if study == "context":
        steep, flat = (PLACE**-eta for eta in DEVICES.values())
        theta = np.where(phone[:, None], steep, flat)
    if study.startswith("trust"):
        return theta * (EPS_PLUS * gamma + EPS_MINUS * (1 - gamma))
    return theta * gamma


def _people(rng: np.random.Generator, n_sessions: int, each: int) -> tuple[Array, Array]:
    """(sessions,) whose each is, and (sessions, 10) their factor on clicks.

    It is a person's inclination (0.3 to 1.7) times their depth.

    Some people look at position 10 sixteen times as often as others. Both have mean 1 and are
    independent, so that clicks on a document at a position are as likely as without them; within a
    session and between the sessions of a person they are dependent.
    """
    n_people = -(-n_sessions // each)
    who = rng.permutation(np.repeat(np.arange(n_people), each))[:n_sessions]
    inclination = rng.uniform(0.3, 1.7, size=n_people)
    depth = rng.uniform(-1, 1, size=n_people)
    reach = 0.9 * (PLACE - 1) / (LONGEST - 1)
    return who, inclination[who, None] * (1 + depth[who, None] * reach)


# ---- the truth for queries like these, from many of them


@lru_cache
def truth(study: str, scenario: Scenario) -> dict[str, float | Array]:
    """Values of the shown order and the new one, and click rates by position.

    gain_*, clicks_*, per_relevant_* : DCG@10 of relevance, of clicks, and per relevant document
    there_* : DCG@10 of the clicks where the order, or the policy of "logged", shows documents
    click_rate : (10,) of shown documents; correlation : of position and relevance within queries
    """
    rng = np.random.default_rng(12345)
    sums: dict[str, Any] = {}
    for _ in range(10):
        for name, part in _values(draw_queries(rng, 20_000, scenario.shortest), study).items():
            sums[name] = sums.get(name, 0.0) + part / 10
    relevant, scale = sums.pop("relevant"), scenario.clicks
    found = {name: value * scale for name, value in sums.items() if name != "shown_at"}
    found["click_rate"] = found["click_rate"] / sums["shown_at"]
    found["correlation"] = sums["together"] / np.sqrt(sums["of_place"] * sums["of_worth"])
    for system in ("shown", "new"):
        found[f"per_relevant_{system}"] = sums[f"gain_{system}"] / relevant
        if study.startswith("trust"):  # the true curve is absolute there: relevance itself
            found[f"gain_{system}"] = sums[f"gain_{system}"]
    return found


def _values(queries: Queries, study: str) -> dict[str, Any]:
    """Means over queries; the shown order is that of each of production's rankers alike."""
    exists = queries.exists
    scores = island_scores(queries) if study == "islands" else queries.score
    several = ("rankers", "context", "trust", "islands")
    shown = order_by(scores if study in several else scores[:1], exists)
    gamma = np.where(exists, queries.relevance, 0.0)
    placed = np.take_along_axis(np.broadcast_to(gamma, shown.shape), shown, axis=-1)
    here = np.take_along_axis(np.broadcast_to(exists, shown.shape), shown, axis=-1)
    clicked = THETA * placed
    if study.startswith("trust"):
        clicked = THETA * (EPS_PLUS * placed + EPS_MINUS * (1 - placed)) * here
    # Position against relevance within the query: sums of products, from their means.
    place = np.where(here, PLACE - (1 + queries.length[:, None]) / 2, 0.0)
    mean = gamma.sum(axis=-1, keepdims=True) / queries.length[:, None]
    worth = np.where(here, placed - mean, 0.0)
    new = order_by(queries.new, exists)
    seen = THETA * DISCOUNT * (queries.length[:, None] >= PLACE)
    rank = np.argsort(new, axis=-1)  # of each document in the new order
    moved = np.take_along_axis(np.broadcast_to(DISCOUNT[rank], shown.shape), shown, axis=-1)
    return {
        "gain_shown": np.mean((placed * DISCOUNT).sum(axis=-1)),
        "gain_new": np.mean((np.take_along_axis(gamma, new, axis=-1) * DISCOUNT).sum(axis=-1)),
        "there_shown": np.mean((seen * (placed + mean) / 2).sum(axis=-1)),
        "there_new": np.mean((seen * np.take_along_axis(gamma, new, axis=-1)).sum(axis=-1)),
        "clicks_shown": np.mean((clicked * DISCOUNT).sum(axis=-1)),
        "clicks_new": np.mean((clicked * moved).sum(axis=-1)),
        "relevant": np.mean(gamma.sum(axis=-1)),
        "click_rate": clicked.mean(axis=(0, 1)),
        "shown_at": here.mean(axis=(0, 1)),
        "together": np.mean((place * worth).sum(axis=-1)),
        "of_place": np.mean((place**2).sum(axis=-1)),
        "of_worth": np.mean((worth**2).sum(axis=-1)),
    }


# ---- judged lists


def make_judged(scenario: Scenario, seed: int) -> tuple[JudgedLists, Queries, Array]:
    """Lists with labels 0 or 1, their queries, and the (queries,) traffic as weights."""
    rng = np.random.default_rng([99, list(SCENARIOS).index(scenario.name), seed])
    queries = draw_queries(rng, scenario.n_queries, scenario.shortest)
    exists = queries.exists
    labels = (rng.random(exists.shape) < queries.relevance)[exists].astype(float)
    judged = JudgedLists(
        features=queries.features[exists],
        labels=labels,
        indptr=np.concatenate([[0], np.cumsum(queries.length)]),
        query_id=np.arange(scenario.n_queries),
    )
    weights = np.arange(1, scenario.n_queries + 1) ** -scenario.zipf
    return judged, queries, weights

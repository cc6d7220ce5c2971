"""The closed loop behind real HTTP: serve, explore, collect, estimate, train, reload.

Simulated readers of a known truth search and click at a server of ours. Everything they do follows
from a seed and the number of their session.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.serving.killing import Client, Running

import untilt as ut
from untilt.auditing.audit import Audit

DEPTH = 6
THETA = 1 / np.arange(1, DEPTH + 1) ** 0.8
GUESS = "power-law:1"  # what is believed of the curve before there is evidence: not the truth
SESSIONS_A_CALL = 25  # feedback is sent together


@dataclass
class World:
    """Queries whose documents have features, labels and a relevance that readers click by."""

    judged: ut.JudgedLists
    queries: int
    seed: int = 0
    shown: dict[str, dict] = field(default_factory=dict)

    def rows(self, query: int) -> slice:
        return slice(int(self.judged.indptr[query]), int(self.judged.indptr[query + 1]))

    def relevance(self, query: int) -> np.ndarray:
        """gamma: from 0.05 for label 0 to 0.95 for label 4."""
        return 0.05 + 0.9 * self.judged.labels[self.rows(query)] / 4

    def session(self, number: int, client: Client, prefix: str) -> list[dict]:
        """One reader: a search, and events for what was clicked."""
        rng = np.random.default_rng([self.seed, number])
        query = int(rng.integers(self.queries))
        rows = self.rows(query)
        n = rows.stop - rows.start
        status, shown = client.post(
            "/rank",
            {"session": f"{prefix}-{number}", "query": f"q{query}", "size": DEPTH,
             "documents": list(range(n)), "features": self.judged.features[rows].tolist()},
        )  # fmt: skip
        assert status == 200, shown
        gamma = self.relevance(query)[shown["documents"]]
        self.shown[shown["list"]] = {**shown, "query": query}
        clicked = rng.uniform(size=len(gamma)) < THETA[: len(gamma)] * gamma
        return [
            {"event": f"{prefix}-{number}-{k}", "list": shown["list"], "document": document}
            for k, document in enumerate(shown["documents"])
            if clicked[k]
        ]

    def visit(self, port: int, sessions: int, prefix: str) -> None:
        """So many readers, two at a time."""

        def part(numbers: range) -> None:
            with Client(port) as client:
                for start in range(0, len(numbers), SESSIONS_A_CALL):
                    some = numbers[start : start + SESSIONS_A_CALL]
                    events = [e for number in some for e in self.session(number, client, prefix)]
                    if events:
                        status, told = client.post("/feedback", {"events": events})
                        assert (status, told) == (200, {"accepted": len(events)})

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(part, (range(0, sessions, 2), range(1, sessions, 2))))

    def lost(self) -> float:
        """Clicks that exploration lost in expectation by the truth, of all lists shown."""
        lost = 0.0
        for shown in self.shown.values():
            gamma = self.relevance(shown["query"])[shown["documents"]]
            usual = gamma.copy()
            if shown["ranker"].startswith("swap:"):
                a, b = (int(k) - 1 for k in shown["ranker"].removeprefix("swap:").split("-"))
                usual[[a, b]] = usual[[b, a]]
            lost += float(THETA[: len(gamma)] @ (usual - gamma))
        return lost


@dataclass(frozen=True)
class Loop:
    """What each step of the loop found."""

    before: Audit
    after: Audit
    bias: ut.PositionBias
    lost_per_session: float
    promised: float
    explored: int
    old_value: float
    new_value: float
    difference: object
    models: tuple[str, str]


def closed_loop(folder: Path, *, sessions: int, queries: int, seed: int = 0) -> Loop:
    """From a log that cannot tell its bias to a better ranker, through a server alone."""
    from untilt.serving.collect import collect

    train = ut.make_judged(n_queries=queries, n_features=12, mean_docs=10, seed=seed)
    test = ut.make_judged(n_queries=300, n_features=12, mean_docs=10, seed=seed + 1)
    world = World(train, queries, seed)
    names = list(train.feature_names)
    # In production: a ranker that goes by one feature and a little noise.
    one = np.round(2 + 2 * np.tanh(train.features[:, 0] - np.median(train.features[:, 0])))
    weak = ut.JudgedLists(train.features, one, train.indptr, train.query_id, feature_names=names)
    ranker = folder / "ranker.untilt"
    ut.LinearRanker().fit(weak).save(ranker)

    # One ranker, one order: nothing says what the fall of the clicks is due to.
    server = Running(ranker, "--log", folder / "log-0")
    world.visit(server.port, sessions // 4, "before")
    assert server.stop() == 0, server.said
    collect(folder / "log-0", folder / "clicks-0")
    first = ut.read_log(folder / "clicks-0", features=names)
    before = ut.audit(first)

    world.shown.clear()
    promised = 0.03  # clicks a session
    options = ["--explore", f"swap-adjacent:0.5:{DEPTH}", "--most-lost", str(promised), "--curve",
               GUESS, "--calibrate", str(folder / "clicks-0"), "--salt", "loop"]  # fmt: skip
    server = Running(ranker, "--log", folder / "log-1", *options)
    world.visit(server.port, sessions, "after")
    collect(folder / "log-1", folder / "clicks-1")
    log = ut.read_log(folder / "clicks-1", features=names)
    bias = ut.AdjacentSwap().fit(log).bias_
    new = ut.LinearRanker(weighting=ut.PRS(bias)).fit(log)
    old = ut.load(ranker)

    # The server goes on while its ranker is replaced.
    with Client(server.port) as client:
        models = [json.loads(client.get("/model")[1])["current"]["model"]]
        new.save(ranker)
        status, told = client.post("/reload", {})
        assert (status, told["changed"]) == (200, True), told
        models.append(json.loads(client.get("/model")[1])["current"]["model"])
    assert server.stop() == 0, server.said
    old_value, new_value = (ut.evaluate(test, each, "ndcg@10") for each in (old, new))
    explored = sum(each["ranker"].startswith("swap") for each in world.shown.values())
    return Loop(
        before, ut.audit(log), bias, world.lost() / sessions, promised, explored,
        old_value["ndcg@10"].value, new_value["ndcg@10"].value,
        new_value.minus(old_value)["ndcg@10"], (models[0], models[1]),
    )  # fmt: skip

"""Intervals cover where lists have gaps, rankers differ and some sessions are shuffled.

Queries come from a population whose values are known exactly: relevance, the lists of two
production rankers, an advertisement at a random position in half of the sessions.
"""

from typing import Any

import numpy as np
import pytest

import untilt as ut
from untilt.data.clicklog import ClickLog

POPULATION, QUERIES, SESSIONS, DOCUMENTS, PLACES = 2000, 120, 30, 8, 5
THETA = 1 / np.arange(1, PLACES + 2)
LAM = 1 / np.log2(1 + np.arange(1, PLACES + 2))
RNG = np.random.default_rng(0)
GAMMA = RNG.beta(1, 2, (POPULATION, DOCUMENTS))
NEW = GAMMA + 0.3 * RNG.normal(size=GAMMA.shape)
PRODUCTION = [GAMMA + noise * RNG.normal(size=GAMMA.shape) for noise in (0.4, 1.0)]
# Each list of 5 has slots 1..5, or an advertisement at one of 1..5 that pushes the rest down.
SLOTS = [np.arange(PLACES), *(np.delete(np.arange(PLACES + 1), k) for k in range(PLACES))]
SLOT_SHARE = np.array([0.5, *[0.1] * PLACES])


def shown_lists(q: int) -> list[np.ndarray]:
    """The lists of the two production rankers."""
    return [np.argsort(-scores[q])[:PLACES] for scores in PRODUCTION]


def true_values() -> dict[str, float]:
    """Mean over queries, rankers and slots of sum lambda gamma, as shown and in the new order."""
    discount = sum(share * LAM[slots] for share, slots in zip(SLOT_SHARE, SLOTS, strict=True))
    shown, new = 0.0, 0.0
    for q in range(POPULATION):
        for documents in shown_lists(q):
            again = documents[np.argsort(-NEW[q, documents])]
            shown += discount @ GAMMA[q, documents] / 2 / POPULATION
            new += discount @ GAMMA[q, again] / 2 / POPULATION
    return {"shown": shown, "new": new, "difference": new - shown}


def drawn_log(seed: int) -> tuple[ClickLog, np.ndarray]:
    """Sessions of some queries, one in five shuffled, and the new ranker's scores."""
    rng = np.random.default_rng((3, seed))
    chosen = rng.permutation(POPULATION)[:QUERIES]
    rows, rankers = [], []
    for i, q in enumerate(chosen):
        lists = shown_lists(q)
        for _ in range(SESSIONS):
            made_by, shuffled = rng.integers(2), rng.random() < 0.2
            documents = lists[made_by]
            if shuffled:
                documents = rng.permutation(documents)
            slots = SLOTS[rng.choice(len(SLOTS), p=SLOT_SHARE)]
            clicks = rng.random(PLACES) < THETA[slots] * GAMMA[q, documents]
            rows.append((np.full(PLACES, i), documents, slots, clicks))
            rankers.append(2 if shuffled else made_by)
    query, document, slot, click = (np.stack(each) for each in zip(*rows, strict=True))
    log = ClickLog(
        query_id=chosen, doc_id=np.tile(np.arange(DOCUMENTS), QUERIES),
        doc_query=np.repeat(np.arange(QUERIES), DOCUMENTS),
        indptr=np.arange(0, query.size + 1, PLACES), query=query[:, 0],
        document=(query * DOCUMENTS + document).ravel(), position=slot.ravel() + 1,
        label=click.ravel().astype(float), ranker=np.array(rankers),
        ranker_names=("production-1", "production-2", "shuffle"),
    )  # fmt: skip
    return log, NEW[chosen].ravel()


def coverage(evaluator: str, repeats: int, **options: Any) -> dict[str, tuple[float, float]]:
    """Share of intervals that hold the truth, and the mean error in standard errors of it."""
    truth = true_values()
    hits, errors = dict.fromkeys(truth, 0), {name: [] for name in truth}
    for seed in range(repeats):
        log, scores = drawn_log(seed)
        found = ut.estimate(
            log, {"shown": ut.shown, "new": scores}, THETA, evaluator=evaluator, **options
        )
        each: dict[str, Any] = {
            **{e.system: e for e in found},
            "difference": found.compare("shown")["new"],
        }
        for name, value in each.items():
            hits[name] += truth[name] in value.interval
            errors[name].append(value.value - truth[name])
    return {
        name: (
            hits[name] / repeats,
            float(np.mean(errors[name]) / (np.std(errors[name]) / np.sqrt(repeats))),
        )
        for name in truth
    }


@pytest.mark.slow
@pytest.mark.parametrize("evaluator", ["ips", "affine", "policy-aware", "doubly-robust"])
def test_intervals_cover_with_gaps_rankers_and_shuffles(evaluator):
    for name, (share, z) in coverage(evaluator, 200).items():
        assert share >= 0.90, name
        assert abs(z) < 4, name


if __name__ == "__main__":
    import sys

    for each in ("ips", "affine", "policy-aware", "doubly-robust"):
        sys.stdout.write(f"{each}: {coverage(each, 200)}\n")

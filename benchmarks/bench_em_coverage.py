"""How often the intervals of RegressionEM and TrustEM hold the truth, and how far off they are.

The figures of docs/position-bias.md. Sums over the logs done so far are
kept in the result file, so that a run can be broken off and taken up again. Trees grow at a
learning rate of 0.3 in place of 0.1, to save time.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _harness import RESULTS, save, table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.recovery.explained import make_explained

from untilt.bias.em.regression_em import RegressionEM
from untilt.bias.em.trust_em import TrustAnchor, TrustEM
from untilt.bias.given import KnownBias
from untilt.simulation.protocols import DLA, Harvest, Shuffle, Swap, Trust
from untilt.simulation.simulate import Simulation, simulate
from untilt.simulation.synthetic import make_judged

NAME = "em_coverage"
LOGS_BETWEEN_SAVES = 10
LEARNING_RATE = 0.3
COUNTS: dict[str, Any] = {"harvest": Harvest(), "shuffle": Shuffle(), "swap": Swap()}
TRUST = {"harvest": Harvest(clicks=Trust()), "shuffle": Shuffle(clicks=Trust())}
Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # estimate, truth, held by the interval


@dataclass(frozen=True)
class Case:
    """One estimator on one kind of log."""

    name: str
    trust: bool
    features: bool
    protocol: Any
    n_queries: int = 200
    traffic: str = "uniform"
    explained: bool = False


def cases() -> Iterator[Case]:
    for explained in (True, False):
        data = "features explain relevance" if explained else "features show it through noise"
        yield Case(f"RegressionEM, {data}, 500", False, True, DLA(), 500, explained=explained)
        yield Case(f"TrustEM, {data}, 500", True, True, Trust(), 500, explained=explained)
    for name, protocol in TRUST.items():
        yield Case(f"TrustEM, counts, {name}", True, False, protocol)
    for traffic in ("uniform", "zipf"):
        for name, protocol in COUNTS.items():
            yield Case(
                f"RegressionEM, counts, {name}, {traffic}", False, False, protocol, traffic=traffic
            )


def simulated(case: Case, seed: int) -> Simulation:
    """With features the data are drawn anew too: they are what relevance is learned from."""
    if case.explained:
        judged = make_explained(case.n_queries, seed=seed)
    else:
        judged = make_judged(case.n_queries, n_features=30, seed=seed if case.features else 0)
    return simulate(
        judged,
        case.protocol,
        sessions_per_query=None if case.traffic == "zipf" else 100,
        n_sessions=100 * case.n_queries if case.traffic == "zipf" else None,
        query_weights=case.traffic,
        seed=1000 + seed,
    )


def examined(case: Case, sim: Simulation, seed: int) -> Found:
    """theta at positions 2..K."""
    how = "features" if case.features else "counts"
    estimator = RegressionEM(relevance=how, learning_rate=LEARNING_RATE, n_threads=1, seed=seed)
    bias = estimator.fit(sim.log).bias_
    truth = sim.truth.examination / sim.truth.examination[0]
    assert bias.low is not None
    assert bias.high is not None
    held = (bias.low <= truth) & (truth <= bias.high)
    return bias.examination[1:], truth[1:], held[1:]


def trusted(case: Case, sim: Simulation, seed: int) -> Found:
    """alpha and beta at positions 2..K, on the true scale of relevance."""
    known = sim.truth
    alpha, beta = KnownBias(
        known.examination, eps_plus=known.eps_plus, eps_minus=known.eps_minus
    ).affine()
    estimator = TrustEM(
        anchor=TrustAnchor(relevant=alpha[0] + beta[0], irrelevant=beta[0]),
        relevance="features" if case.features else "counts",
        learning_rate=LEARNING_RATE,
        n_threads=1,
        seed=seed,
    )
    curves = estimator.fit(sim.log).curves_
    found, around = np.concatenate([curves.alpha[1:], curves.beta[1:]]), curves.intervals()
    low = np.concatenate([around.alpha_low[1:], around.beta_low[1:]])
    high = np.concatenate([around.alpha_high[1:], around.beta_high[1:]])
    truth = np.concatenate([alpha[1:], beta[1:]])
    return found, truth, (low <= truth) & (truth <= high)


def measure(case: Case, before: dict[str, Any], n_logs: int) -> dict[str, Any]:
    """`n_logs` more logs: sums of held, error and its square by position."""
    first = before.get("logs", 0)
    sums = np.array(before.get("sums", [[0.0]] * 3))
    for seed in range(first, first + n_logs):
        found, truth, held = (trusted if case.trust else examined)(
            case, simulated(case, seed), seed
        )
        off = found / truth - 1
        sums = sums + np.array([held, off, off**2])
    return {"logs": first + n_logs, "sums": sums.tolist(), **summary(sums, first + n_logs)}


def summary(sums: np.ndarray, n: int) -> dict[str, Any]:
    """Coverage, mean error and spread of a log, by position."""
    held, mean, square = sums / n
    return {
        "covered": held.round(4).tolist(),
        "mean_error": mean.round(4).tolist(),
        "spread": np.sqrt(np.maximum(square - mean**2, 0) * n / (n - 1)).round(4).tolist(),
    }


def main() -> None:
    """Measure the cases that are wanted and not done yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=200, help="simulated logs per case")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args()
    path = RESULTS / f"{NAME}.json"
    done = json.loads(path.read_text())["results"] if path.exists() else {}
    for case in cases():
        while options.only in case.name and done.get(case.name, {}).get("logs", 0) < options.logs:
            before = done.get(case.name, {})
            done[case.name] = measure(case, before, LOGS_BETWEEN_SAVES)
            save(NAME, done, seed=1000, packages=["lightgbm"])
    table(
        ["case", "logs", "lowest", "highest", "mean", "error from", "to"],
        [
            [name, row["logs"], min(row["covered"]), max(row["covered"]),
             float(np.mean(row["covered"])), min(row["mean_error"]), max(row["mean_error"])]
            for name, row in done.items()
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()

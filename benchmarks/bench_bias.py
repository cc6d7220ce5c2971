"""Each estimator of position bias on collapsed logs, and the same formula on single impressions.

    python benchmarks/bench_bias.py [--sessions 1000000 10000000] [--impressions-up-to 1000000]

The straightforward version has a row per impression, groups it with pandas, joins the documents
with themselves and takes ratios; it gives the curve of `AdjacentChain`, `Pivot` or `ShuffledTop`,
but no errors. Its rows are made before the clock starts. Simulation is not part of any time.
"""

import argparse
from statistics import median

import numpy as np
import pandas as pd
from _harness import save, seconds_of, table

import untilt as ut
from untilt.bias.estimator import BiasEstimator
from untilt.data.clicklog import ClickLog
from untilt.simulation.protocols import Harvest, Protocol, Shuffle, Swap

SEED = 0
CASES: list[tuple[str, Protocol, list[BiasEstimator]]] = [
    ("harvest", Harvest(), [ut.AllPairs(), ut.AdjacentChain(), ut.Pivot()]),
    ("pivot swaps", Swap(), [ut.PivotSwap(), ut.PivotSwap(within="length")]),
    ("adjacent swaps", Swap(adjacent=True), [ut.AdjacentSwap()]),
    ("top 3 shuffled", Shuffle(top=3), [ut.ShuffledTop()]),
]


def impressions(log: ClickLog) -> pd.DataFrame:
    """A row per impression."""
    rows = np.repeat(np.arange(len(log.document)), log.row_count)
    return pd.DataFrame(
        {
            "document": log.document[rows],
            "position": log.position[rows],
            "click": log.label[rows],
        }
    )


def by_impression(rows: pd.DataFrame, pairs: list[tuple[int, int]]) -> np.ndarray:
    """log C[l, k] / C[k, l] of each pair of positions, Mantel and Haenszel's weights."""
    cells = rows.groupby(["document", "position"], sort=False)["click"].agg(["sum", "size"])
    cells = cells.reset_index()
    joined = cells.merge(cells, on="document")
    n, m = joined["size_x"], joined["size_y"]
    joined["C"] = joined["sum_x"] * m / (n + m)
    C = joined.groupby(["position_x", "position_y"])["C"].sum()
    return np.array([np.log(C[lower, upper] / C[upper, lower]) for upper, lower in pairs])


def rates_by_impression(rows: pd.DataFrame) -> np.ndarray:
    """log click rate by position, relative to the first."""
    rate = rows.groupby("position")["click"].mean()
    return np.log(rate.to_numpy() / rate[1])


def straightforward(estimator: BiasEstimator, rows: pd.DataFrame, depth: int) -> np.ndarray | None:
    """log theta_k / theta_1 from single impressions, where the estimator has such a form."""
    chain = [(k, k + 1) for k in range(1, depth)]
    if isinstance(estimator, ut.AdjacentChain | ut.AdjacentSwap):
        return np.concatenate([[0], np.cumsum(by_impression(rows, chain))])
    if isinstance(estimator, ut.Pivot):
        return np.concatenate([[0], by_impression(rows, [(1, k) for _, k in chain])])
    if isinstance(estimator, ut.PivotSwap) and estimator.within == "document":
        return np.concatenate([[0], by_impression(rows, [(1, k) for _, k in chain])])
    if isinstance(estimator, ut.ShuffledTop):
        return rates_by_impression(rows[rows["position"] <= 3])
    return None


def measured(sizes: list[int], up_to: int, queries: int) -> list[dict[str, object]]:
    """One record per log and estimator."""
    judged, found = ut.make_judged(n_queries=queries, seed=SEED), []
    for size in sizes:
        for name, protocol, estimators in CASES:
            log = ut.simulate(judged, protocol, n_sessions=size, seed=SEED).log
            rows = impressions(log) if size <= up_to else None
            for estimator in estimators:
                record = one(estimator, log, rows)
                found.append({"log": name, "sessions": size, "lists": log.n_lists, **record})
                print(found[-1], flush=True)
    return found


def one(estimator: BiasEstimator, log: ClickLog, rows: pd.DataFrame | None) -> dict[str, object]:
    """Seconds of the estimator and of the plain version, and how far their curves are apart."""
    seconds = median(seconds_of(lambda: estimator.fit(log), repeats=3))
    record: dict[str, object] = {"estimator": str(estimator), "seconds": seconds}
    bias = estimator.bias_
    plain = None if rows is None else straightforward(estimator, rows, bias.depth)
    if plain is not None:
        record["per_impression"] = seconds_of(
            lambda: straightforward(estimator, rows, bias.depth), repeats=1, warm_up=0
        )[0]
        record["apart"] = float(np.abs(np.log(bias.examination) - plain).max())
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--impressions-up-to", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    given = parser.parse_args()
    found = measured(given.sessions, given.impressions_up_to, given.queries)
    columns = ("log", "estimator", "sessions", "lists", "seconds", "per_impression", "apart")
    table(columns, [[record.get(column, "") for column in columns] for record in found])
    print(save("bias", found, seed=SEED, packages=["pandas"]))


if __name__ == "__main__":
    main()

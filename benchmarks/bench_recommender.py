"""Table 2 of Ren et al. (2021) in miniature: clicks and dwell times, every row of the table.

NDCG@10 on fully judged test queries, mean and spread over seeds (folds for MQ2008), and the share
of the gap (method - pairs as they are) / (labels - pairs as they are) beside the document's own.
Same network, epochs and clicks for all rows. The L2 penalty of each row is chosen once, by labels,
on made data of another seed (--tune), and kept in results/recommender-l2.json. Every (data, labels,
seed) cell is kept in results/recommender-cells.jsonl row by row, so that a stopped run goes on
where it was; the summary is written to results/recommender.json.

    python benchmarks/bench_recommender.py [--tune] [--data made mq2008 mslr]
        [--labels categorical continuous] [--seeds 3] [--epochs 50] [--only-report]
"""

import argparse
import json
import os
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
from _harness import RESULTS, save, table

import untilt as ut
from untilt._core.files import replacing
from untilt.rankers.networks.towers import BASELINES
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

CELLS = RESULTS / "recommender-cells.jsonl"
PENALTIES = RESULTS / "recommender-l2.json"
L2_GRID = (0.0, 2e-4, 2e-3, 6e-3, 2e-2)
TUNING_SEED = 90
DATA = Path(os.environ.get("UNTILT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
SESSIONS = {"made": 100, "mq2008": 500, "mslr": 1000}  # per query
SKYLINE, FLOOR = "labels, pairs", "as they are, pairs"
# NDCG@10 of the document's Table 2: Yahoo set 1, MSLR-Web30K.
DOCUMENT = {
    "categorical": {
        "labels, pairs": (0.7630, 0.4313),
        "labels, points": (0.7628, 0.4244),
        "opt": (0.7589, 0.4132),
        "bayes-ipw": (0.7589, 0.4125),
        "ipw": (0.7557, 0.4119),
        "dual learning": (0.7494, 0.4102),
        "regression EM": (0.7577, 0.3977),
        "pairwise debiasing": (0.7365, 0.3912),
        "as they are, pairs": (0.7320, 0.3874),
        "as they are, points": (0.7285, 0.3790),
    },
    "continuous": {
        "labels, pairs": (0.7630, 0.4313),
        "labels, points": (0.7628, 0.4244),
        "opt": (0.7568, 0.4189),
        "V1": (0.7351, 0.3711),
        "V2": (0.7429, 0.3892),
        "V3": (0.7452, 0.3916),
        "V4": (0.7423, 0.3729),
        "as they are, pairs": (0.7329, 0.3888),
        "as they are, points": (0.7384, 0.3901),
    },
}


def judged_parts(data: str, seed: int):
    """(training, test) judged lists; MQ2008's fold is the seed."""
    if data == "made":
        return make_judged(n_queries=1000, seed=10 + seed), make_judged(
            n_queries=1000, seed=10_000 + seed
        )
    if data == "mslr":
        folder = DATA / "mslr-sample"
        return ut.read_letor(folder / "train.txt.gz"), ut.read_letor(folder / "test.txt.gz")
    parts = [DATA / "mq2008" / f"S{1 + (seed + offset) % 5}.txt.gz" for offset in range(5)]
    return ut.read_letor(parts[:3]), ut.read_letor(parts[4])


class RegressionEMRanker:
    """Examination by regression EM with a network, then the network of the clicks' likelihood."""

    def __init__(self, **options) -> None:
        self.options = options

    def fit(self, log):
        network = {name: self.options[name] for name in ("widths", "transform")}
        em = ut.RegressionEM(relevance="network", network=network, seed=self.options["seed"])
        bias = em.fit(log).bias_
        self.ranker = ut.NeuralRanker(loss="pointwise", bias=bias, **self.options).fit(log)
        return self

    def predict(self, features):
        return self.ranker.predict(features)


def methods(labels: str, options: dict) -> dict:
    """Every row of the table by name; each makes a fresh ranker with the penalty that it is given.

    A batch is of 32 slates, or of as many rows as about 26 slates of ten show.
    """
    slates = {**options, "batch_size": 32}

    def trust(loss: str, **more):
        return lambda l2: ut.PairwiseTrustRanker(loss, labels=labels, l2=l2, **slates, **more)

    def tower(combine: str):
        return lambda l2: ut.TowerRanker(combine, l2=l2, **options)

    rows = {
        SKYLINE: lambda l2: ut.PairwiseTrustRanker("opt", l2=l2, **slates),
        "labels, points": tower("none"),
        FLOOR: trust("naive"),
        "as they are, points": tower("none"),
        "opt": trust("opt"),
        "bayes-ipw": trust("bayes-ipw"),
        "ipw": trust("ipw"),
        "opt, top held at 0.95": trust("opt", first_examination=0.95),
    }
    if labels == "continuous":
        return rows | {
            "V1": tower("sum"),
            **{
                name: lambda l2, kinds=kinds: ut.FeedbackTowers(kinds, l2=l2, **options)
                for name, kinds in BASELINES.items()
            },
        }
    return rows | {
        "dual learning": lambda l2: ut.DualLearning(l2=l2, **slates),
        "regression EM": lambda l2: RegressionEMRanker(l2=l2, **slates),
        "pairwise debiasing": lambda l2: ut.NeuralRanker(ut.PairwiseDebiasing(), l2=l2, **slates),
        "shallow tower": tower("sum"),
        "PAL": tower("product"),
    }


def options_for(data: str, seed: int, epochs: int) -> dict:
    # MSLR's raw counts have tails of many orders of magnitude.
    transform = "log1p" if data == "mslr" else "none"
    # All rows train on all queries for all epochs.
    shared = {"widths": (64, 32), "epochs": epochs, "early_stopping": None}
    return {**shared, "transform": transform, "seed": seed}


def training_log(data: str, labels: str, train, seed: int):
    """Clicks of `dla`, or click plus dwell time of `dwell`, beside the columns it is made of."""
    protocol = "dla" if labels == "categorical" else "dwell"
    sim = simulate(train, protocol=protocol, sessions_per_query=SESSIONS[data], seed=seed)
    if labels == "categorical":
        return sim, sim.log
    return sim, ut.synthesise(sim.log, {"click": 1.0, "dwell": 1.0})


def run_cell(cell: dict, known: dict, epochs: int):
    """Yields the lines of one cell, row by row; what is known with its penalty is not run again."""
    penalties = {name: penalty(cell["labels"], name) for name in methods(cell["labels"], {})}
    wanted = {name: l2 for name, l2 in penalties.items() if known.get(name, {}).get("l2") != l2}
    if not wanted:
        return
    train, test = judged_parts(cell["data"], cell["seed"])
    sim, log = training_log(cell["data"], cell["labels"], train, cell["seed"])
    makers = methods(cell["labels"], options_for(cell["data"], cell["seed"], epochs))
    line = {**cell, "epochs": epochs}
    if "production" not in known:
        value = ndcg(sim.truth.rankers[0], test)
        yield line | {"row": "production", "ndcg": value, "seconds": 0.0, "l2": None}
    for name, l2 in wanted.items():
        start = time.perf_counter()
        data = train if name.startswith("labels") else log
        value = ndcg(makers[name](l2).fit(data), test)
        seconds = time.perf_counter() - start
        yield line | {"row": name, "ndcg": value, "seconds": seconds, "l2": l2}


def tune(labels: str, epochs: int) -> None:
    """NDCG@10 of every row and penalty of the grid, on made data that no cell uses."""
    train, test = (make_judged(n_queries=500, seed=seed) for seed in (TUNING_SEED, TUNING_SEED + 1))
    _, log = training_log("made", labels, train, TUNING_SEED)
    for name, make in methods(labels, options_for("made", TUNING_SEED, epochs)).items():
        known = tried().get(labels, {}).get(name, {})
        if name.startswith("opt,"):  # a variant has the penalty of what it varies
            continue
        data = train if name.startswith("labels") else log
        for l2 in [l2 for l2 in L2_GRID if str(l2) not in known]:
            value = ndcg(make(l2).fit(data), test)
            print(labels, name, l2, round(value, 4), flush=True)
            keep(labels, name, l2, value)


def tried() -> dict[str, dict[str, dict[str, float]]]:
    """Labels -> row -> penalty -> NDCG@10."""
    return json.loads(PENALTIES.read_text()) if PENALTIES.exists() else {}


def keep(labels: str, row: str, l2: float, value: float) -> None:
    found = tried()
    found.setdefault(labels, {}).setdefault(row, {})[str(l2)] = value
    with replacing(PENALTIES) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n")


def penalty(labels: str, row: str) -> float:
    """The best of the grid."""
    by_l2 = tried()[labels]["opt" if row.startswith("opt,") else row]
    return float(max(by_l2, key=by_l2.get))


def ndcg(ranker, test) -> float:
    """NDCG@10 by labels."""
    return float(ut.evaluate(test, ranker.predict(test.features), ["ndcg@10"])["ndcg@10"].value)


def done_rows() -> dict[tuple, dict[str, dict]]:
    """Cell -> row -> its line; a later line takes the place of an earlier one."""
    lines = CELLS.read_text().splitlines() if CELLS.exists() else []
    done: dict[tuple, dict[str, dict]] = defaultdict(dict)
    for line in map(json.loads, lines):
        done[line["data"], line["labels"], line["seed"]][line["row"]] = line
    return done


def document_share(labels: str, row: str) -> tuple[float, float] | None:
    """The document's share of the gap on Yahoo and on Web30K."""
    figures = DOCUMENT[labels]
    if row not in figures:
        return None
    low, high = np.array(figures[FLOOR]), np.array(figures[SKYLINE])
    return tuple(float(s) for s in (np.array(figures[row]) - low) / (high - low))


def summary() -> list[dict]:
    """Mean and spread of NDCG@10; the share as a ratio of mean differences over complete cells."""
    groups: dict[tuple, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    seconds: dict[tuple, list[float]] = defaultdict(list)
    for (data, labels, seed), rows in done_rows().items():
        for name, line in rows.items():
            groups[data, labels][name][seed] = line["ndcg"]
            seconds[data, labels, name].append(line["seconds"])
    out = []
    for (data, labels), by_row in groups.items():
        for name, values in by_row.items():
            seeds = sorted(set(values) & set(by_row[FLOOR]) & set(by_row[SKYLINE]))
            if not seeds:
                continue
            v, low, high = (
                np.array([by_row[row][s] for s in seeds]) for row in (name, FLOOR, SKYLINE)
            )
            gain = v - low
            spread = [float(x.std(ddof=1)) if len(seeds) > 1 else None for x in (v, gain)]
            told = document_share(labels, name)
            out.append(
                {"data": data, "labels": labels, "row": name, "runs": len(seeds)}
                | {"ndcg": float(v.mean()), "ndcg_sd": spread[0]}
                | {"gain": float(gain.mean()), "gain_sd": spread[1]}
                | {"share": float(gain.mean() / (high - low).mean())}
                | {"document_yahoo": told and told[0], "document_web30k": told and told[1]}
                | {"seconds": float(np.mean(seconds[data, labels, name]))}
            )
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=["made", "mq2008", "mslr"])
    parser.add_argument("--labels", nargs="*", default=["categorical", "continuous"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--tune", action="store_true", help="choose the penalties, then end")
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    if options.tune:
        for labels in options.labels:
            tune(labels, options.epochs)
        return
    done = done_rows()
    wanted = [
        {"data": data, "labels": labels, "seed": seed}
        for seed in range(options.seeds)
        for data in options.data
        for labels in options.labels
    ]
    for cell in [] if options.only_report else wanted:
        for line in run_cell(cell, done[tuple(cell.values())], options.epochs):
            with CELLS.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)
    rows = summary()
    columns = ("data", "labels", "row", "runs", "ndcg", "ndcg_sd", "gain", "gain_sd", "share")
    columns += ("document_yahoo", "document_web30k")
    table(columns, [[row[column] for column in columns] for row in rows])
    result = {"widths": [64, 32], "epochs": options.epochs, "rows": rows}
    print(save("recommender", result, seed=None, packages=("jax", "optax")))


if __name__ == "__main__":
    main()

"""How much of the gap between raw clicks and human labels each method closes.

Share of the gap = (method - clicks)/(labels - clicks), NDCG@10 on fully judged test queries; same
trees, same clicks. Gain = method - clicks, paired by seed (MQ2008: by fold), with standard error.
`labels` is trained on all documents; `labels-shown` on the shown ones only. Every (data, protocol,
sessions, seed) cell is kept in results/quality-cells.jsonl, so a stopped run goes on where it was;
the summary is written to results/quality.json.

    python benchmarks/bench_quality.py [--data made mq2008] [--protocol dla prs]
        [--sessions 10 100 1000] [--seeds 3] [--queries N]
        [--trees 200] [--only-report] [--markdown] [--check-peers]
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
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged

CELLS = RESULTS / "quality-cells.jsonl"
KEYS = ("data", "protocol", "sessions", "seed")
# `prs` shows whole lists of about 24, `dla` ten places: both then show about 20,000 documents.
QUERIES = {"dla": 2000, "prs": 1000}
DATA = Path(os.environ.get("UNTILT_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
# The peers take a row per impression. Above this many they go a shorter way that gives the same
# pairs (see the two functions); `--check-peers` measures both.
PEER_ROWS = 600_000


def judged_parts(data: str, seed: int, n_queries: int):
    """(training, test) judged lists; MQ2008's fold is the seed."""
    if data == "made":
        return (
            make_judged(n_queries=n_queries, seed=10 + seed),
            make_judged(n_queries=1000, seed=10_000 + seed),
        )
    parts = [DATA / "mq2008" / f"S{1 + (seed + offset) % 5}.txt.gz" for offset in range(5)]
    return ut.read_letor(parts[:3]), ut.read_letor(parts[4])


def true_curve(protocol: str, severity: float = 1.0):
    return ut.EyeTracking(severity) if protocol == "dla" else ut.PowerLaw(severity)


def shown_labels(sim) -> ut.JudgedLists:
    """The judged lists cut to the documents that the log shows; both have one order."""
    shown = np.zeros(sim.log.n_documents, dtype=bool)
    shown[sim.log.document] = True
    judged = sim.truth.judged
    kept = np.concatenate([[0], np.cumsum(shown)])[judged.indptr]
    return ut.JudgedLists(judged.features[shown], judged.labels[shown], kept, judged.query_id)


def methods(protocol: str, options: dict) -> dict:
    """Every method by name; each makes a fresh ranker."""
    right = true_curve(protocol)
    weak, strong = true_curve(protocol, 0.5), true_curve(protocol, 1.5)

    def mart(*args, **kwargs):
        return lambda: ut.LambdaMART(*args, **kwargs, **options)

    made = {
        "clicks": mart(),
        "ips": mart(ut.IPS(right)),
        "ips-all": mart(ut.IPS(right, against="all")),
        "pns": mart(ut.PNS(right)),
        "prs": mart(ut.PRS(right)),
        "prs-unclipped": mart(ut.PRS(right, clip=np.inf)),
        "pairwise-debiasing-0": mart(ut.PairwiseDebiasing(p=0)),
        "pairwise-debiasing-1": mart(ut.PairwiseDebiasing(p=1)),
        "balanced": mart(ut.Balanced(right)),
        "pbm-likelihood": mart(objective="pbm-likelihood", bias=right),
        "ips-label": mart(objective="ips-label", bias=right),
        "posterior-label": mart(objective="posterior-label", bias=right),
        "auto": mart("auto", bias=right),
    }
    for name, wrong in (("0.5", weak), ("1.5", strong)):
        made[f"ips, bias x {name}"] = mart(ut.IPS(wrong))
        made[f"prs, bias x {name}"] = mart(ut.PRS(wrong))
        made[f"balanced, bias x {name}"] = mart(ut.Balanced(wrong))
        made[f"pbm-likelihood, bias x {name}"] = mart(objective="pbm-likelihood", bias=wrong)
    return made


def peer_rows(log, lists):
    """Features, labels, group sizes and positions: one row per impression of the named lists."""
    plain = log.take(lists, count=np.ones(len(lists), dtype=np.int64))
    group = np.diff(plain.indptr)
    return plain.features[plain.document], plain.label.astype(int), group, plain.position - 1


def every_session(log):
    return np.repeat(np.arange(log.n_lists), log.sessions)


def clicked_lists(log):
    return np.flatnonzero(np.add.reduceat(log.label > 0, log.indptr[:-1]))


def lightgbm_position(log, options: dict, *, merged: bool | None = None):
    """LightGBM's lambdarank with `position`."""
    import lightgbm

    merged = log.n_impressions > PEER_ROWS if merged is None else merged
    params = {"objective": "lambdarank", "learning_rate": 0.05, "num_leaves": 31}
    params |= {"feature_fraction": 0.9, "bagging_fraction": 0.9, "bagging_freq": 1}
    params |= {"verbosity": -1, "num_threads": options["n_threads"], "seed": options["seed"]}
    if merged:
        data, params = _merged_for_lightgbm(log, params)
    else:
        features, labels, group, position = peer_rows(log, every_session(log))
        data = lightgbm.Dataset(features, labels, group=group, position=position)
    return lightgbm.train(params, data, num_boost_round=options["n_trees"]).predict


def _merged_for_lightgbm(log, params: dict):
    """Equal sessions merged, their number as the weight of their rows, and none without a click.

    Its lambdas and its bias are sums over rows times weight, so this changes neither. What does see
    rows is made to see nearly the same as with a row per impression: bins come from the documents
    (each has as many impressions as any other here), and the smallest leaf shrinks with the number
    of rows. The tenth of rows that each tree leaves out is one of merged rows, a stronger draw.
    """
    import lightgbm

    lists = clicked_lists(log)
    features, labels, group, position = peer_rows(log, lists)
    documents = np.repeat(np.unique(log.document), 3)  # a bin wants three rows
    params |= {"min_data_in_leaf": max(1, round(20 * len(labels) / log.n_impressions))}
    bins = lightgbm.Dataset(log.features[documents], params=params)
    data = lightgbm.Dataset(
        features, labels, group=group, position=position, reference=bins,
        weight=np.repeat(log.sessions[lists].astype(float), group), params=params,
    )  # fmt: skip
    return data, params


def xgboost_unbiased(log, options: dict, *, clicked: bool | None = None):
    """XGBoost's rank:ndcg with lambdarank_unbiased.

    Its bias ignores weights, so equal sessions cannot be merged; those without a click give no pair
    and can be left out.
    """
    import xgboost

    clicked = log.n_impressions > PEER_ROWS if clicked is None else clicked
    lists = every_session(log)
    if clicked:
        lists = lists[np.isin(lists, clicked_lists(log))]
    features, labels, group, _ = peer_rows(log, lists)
    data = xgboost.DMatrix(features, labels, nthread=options["n_threads"])
    data.set_group(group)
    params = {"objective": "rank:ndcg", "lambdarank_unbiased": True, "eta": 0.05}
    params |= {"tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide"}
    params |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 10}
    params |= {"subsample": 0.9, "colsample_bytree": 0.9, "seed": options["seed"]}
    params |= {"nthread": options["n_threads"], "verbosity": 0}
    booster = xgboost.train(params, data, num_boost_round=options["n_trees"])
    return lambda rows: booster.predict(xgboost.DMatrix(rows))


PEERS = {"lightgbm": lightgbm_position, "xgboost": xgboost_unbiased}


def check_peers(seeds: int) -> None:
    """NDCG@10 of the peers with a row per impression and in the shorter way, on the same clicks."""
    rows = []
    for seed in range(seeds):
        train, test = judged_parts("made", seed, QUERIES["dla"])
        log = simulate(train, protocol="dla", sessions_per_query=100, seed=seed).log
        options = {"n_trees": 200, "n_threads": 1, "seed": seed}
        for name, peer in PEERS.items():
            way = "merged" if name == "lightgbm" else "clicked"
            found = [
                ut.evaluate(test, peer(log, options, **{way: short})(test.features), "ndcg@10")
                for short in (False, True)
            ]
            rows.append([name, seed, *(float(each["ndcg@10"].value) for each in found)])
    table(("peer", "seed", "row per impression", "shorter way"), rows)


def run_cell(cell: dict, known: dict, *, n_queries: int, n_trees: int) -> dict:
    """NDCG@10 of every method in one cell; what is known already is not run again."""
    train, test = judged_parts(cell["data"], cell["seed"], n_queries)
    sim = simulate(
        train, protocol=cell["protocol"], sessions_per_query=cell["sessions"], seed=cell["seed"]
    )
    options = {"n_trees": n_trees, "n_threads": 1, "seed": cell["seed"]}
    ndcg, seconds = dict(known.get("ndcg", {})), dict(known.get("seconds", {}))

    def judge(name: str, predict, start: float) -> None:
        ndcg[name] = float(ut.evaluate(test, predict(test.features), ["ndcg@10"])["ndcg@10"].value)
        seconds[name] = time.perf_counter() - start

    def fit(name: str, ranker, data) -> None:
        if name not in ndcg:
            start = time.perf_counter()
            judge(name, ranker.fit(data).predict, start)

    judge("production", sim.truth.rankers[0].predict, time.perf_counter())
    fit("labels", ut.LambdaMART(**options), train)
    fit("labels-shown", ut.LambdaMART(**options), shown_labels(sim))
    for name, make in methods(cell["protocol"], options).items():
        fit(name, make(), sim.log)
    for name, peer in PEERS.items():
        if name not in ndcg:
            start = time.perf_counter()
            judge(name, peer(sim.log, options), start)
    about = {"trees": n_trees, "queries": n_queries, "impressions": sim.log.n_impressions}
    return {**cell, **about, "ndcg": ndcg, "seconds": seconds}


def done_cells() -> dict[tuple, dict]:
    """Every cell by its key; a later line of the file takes the place of an earlier one."""
    lines = CELLS.read_text().splitlines() if CELLS.exists() else []
    return {tuple(cell[key] for key in KEYS): cell for cell in map(json.loads, lines)}


def wanted_cells(options: argparse.Namespace) -> list[dict]:
    return [
        {"data": data, "protocol": protocol, "sessions": sessions, "seed": seed}
        for data in options.data
        for seed in range(5 if data == "mq2008" else options.seeds)
        for protocol in options.protocol
        for sessions in options.sessions
    ]


def summary(cells: list[dict]) -> list[dict]:
    """Mean and spread over seeds of NDCG@10 and of the share of the gap."""
    groups: dict[tuple, dict[str, list]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        key = (cell["data"], cell["protocol"], cell["sessions"])
        low, high = cell["ndcg"]["clicks"], cell["ndcg"]["labels"]
        for name, value in cell["ndcg"].items():
            groups[key][name].append((value, value - low, high - low, cell["seconds"][name]))
    rows = []
    for (data, protocol, sessions), by_name in groups.items():
        for name, values in by_name.items():
            ndcg, gain, gap, seconds = np.array(values).T
            spread, gain_error, share_spread = (
                float(each.std(ddof=1)) if len(ndcg) > 1 else None
                for each in (ndcg, gain / np.sqrt(len(gain)), gain / gap)
            )
            rows.append(
                {"data": data, "protocol": protocol, "sessions": sessions, "method": name}
                | {"runs": len(ndcg), "ndcg": float(ndcg.mean()), "ndcg_sd": spread}
                # A ratio of means: where the gap is small, single shares swing by whole units.
                | {"share": float(gain.sum() / gap.sum()), "share_sd": share_spread}
                | {"gain": float(gain.mean()), "gain_error": gain_error}
                | {"seconds": float(seconds.mean())}
            )
    return rows


def markdown(rows: list[dict]) -> str:
    """The tables of docs/weightings.md: share of the gap by method and cell."""
    found = {(r["data"], r["protocol"], r["sessions"], r["method"]): r for r in rows}
    cells = sorted({(r["protocol"], r["sessions"]) for r in rows})
    names = dict.fromkeys(r["method"] for r in rows)
    lines = []
    for data in dict.fromkeys(r["data"] for r in rows):
        lines += [f"| {data} | " + " | ".join(f"`{p}` {s:,}" for p, s in cells) + " |"]
        lines += ["|---|" + "---:|" * len(cells)]
        for name in names:
            shares = [_share(found.get((data, *cell, name))) for cell in cells]
            lines += [f"| {name} | " + " | ".join(shares) + " |"]
        lines += [""]
    return "\n".join(lines)


def _share(row: dict | None) -> str:
    if row is None:
        return "-"
    return f"{row['share']:.2f}" + (" (1 run)" if row["runs"] == 1 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="*", default=["made", "mq2008"])
    parser.add_argument("--protocol", nargs="*", default=["dla", "prs"])
    parser.add_argument("--sessions", nargs="*", type=int, default=[10, 100, 1000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--queries", type=int, help="for every protocol alike")
    parser.add_argument("--trees", type=int, default=200)
    parser.add_argument("--only-report", action="store_true")
    parser.add_argument("--markdown", action="store_true", help="of what is known, and stop")
    parser.add_argument("--check-peers", action="store_true")
    options = parser.parse_args()
    if options.check_peers:
        check_peers(options.seeds)
        return
    if options.markdown:
        print(markdown(summary(list(done_cells().values()))))
        return
    done = done_cells()
    for cell in [] if options.only_report else wanted_cells(options):
        known = done.get(tuple(cell[key] for key in KEYS), {})
        if {*methods(cell["protocol"], {}), *PEERS} <= set(known.get("ndcg", {})):
            continue
        n_queries = options.queries or QUERIES[cell["protocol"]]
        result = run_cell(cell, known, n_queries=n_queries, n_trees=options.trees)
        with CELLS.open("a") as file:
            file.write(json.dumps(result) + "\n")
        print(cell, {name: round(value, 4) for name, value in result["ndcg"].items()}, flush=True)
    rows = summary(list(done_cells().values()))
    columns = ("data", "protocol", "sessions", "method", "runs", "ndcg", "share", "share_sd")
    columns += ("gain", "gain_error")
    table(columns, [[row[column] for column in columns] for row in rows])
    packages = ("lightgbm", "xgboost-cpu")
    print(save("quality", {"trees": options.trees, "rows": rows}, seed=None, packages=packages))


if __name__ == "__main__":
    main()

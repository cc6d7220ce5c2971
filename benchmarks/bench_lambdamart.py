"""LambdaMART against LightGBM `lambdarank` with `position` and XGBoost `lambdarank_unbiased`.

Same trees (100, 31 leaves, rate 0.05), preparation included, each run in a process of its own:
(a) 165,660 sessions of 10 over 20,000 queries; (b) 10 million sessions over the same queries, the
peers on a sample of them, with seconds and memory extrapolated in columns of their own; (c) 6,000
labelled queries of 120 documents; (d) 300,000 sessions that each saw 10 of 20 documents in an order
of their own, so that no two lists are alike: 30 features, 50 trees, read from Parquet. For (d) the
seconds are also told apart: reading, the kernel of gradients, and the rest (bins, trees).

    python benchmarks/bench_lambdamart.py [--case a b c d] [--threads 1 2] [--small]
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _harness import RESULTS, run_python, save, table

TREES, DEPTH, FEATURES = 100, 10, 50
PARAMS = {"learning_rate": 0.05, "num_leaves": 31, "min_data_in_leaf": 20, "verbosity": -1}
WHO = {
    "a": ("prs", "pairwise-debiasing", "lightgbm", "xgboost"),
    "b": ("prs", "pairwise-debiasing", "lightgbm", "xgboost"),
    "c": ("labels", "lightgbm-labels", "xgboost-labels"),
    "d": ("prs", "pairwise-debiasing", "lightgbm-no-position", "lightgbm", "xgboost"),
}
OURS = ("prs", "pairwise-debiasing", "labels")
CASES = tuple(WHO)
# Case (d): lists that nobody shares.
OWN_SESSIONS, OWN_DOCUMENTS, OWN_FEATURES, OWN_TREES, OF_A_QUERY = 300_000, 20, 30, 50, 50
COLUMNS = ("case", "threads", "who", "seconds", "cpu_seconds", "peak_gib", "sessions")
COLUMNS += ("reading_cpu", "kernel_cpu", "trees_cpu", "times_faster_cpu")
COLUMNS += ("extrapolated_seconds", "extrapolated_gib")
SESSIONS = {"a": 165_660, "b": 10_000_000}
# Rows of 10 million sessions would take a peer an hour, and more memory than most machines have.
PEER_SESSIONS = {"a": 165_660, "b": 662_640}


def now() -> np.ndarray:
    """(wall seconds, processor seconds): the second holds on a busy machine too."""
    return np.array([time.perf_counter(), time.process_time()])


def sessions(n_sessions: int, n_queries: int, seed: int, among: range | None = None):
    """Plain arrays: features of each query's ten documents, and clicks of each session."""
    world, rng = np.random.default_rng(2026), np.random.default_rng(seed)
    features = world.normal(size=(n_queries * DEPTH, FEATURES)).astype(np.float32)
    utility = features[:, 0] + features[:, 1] * features[:, 2] + (features[:, 3] > 0.5)
    relevance = 1 / (1 + np.exp(-(utility - 1)))
    among = among or range(n_queries)
    query = np.sort(rng.integers(among.start, among.stop, size=n_sessions))
    chance = relevance.reshape(n_queries, DEPTH) / np.arange(1, DEPTH + 1)
    clicks = rng.random((n_sessions, DEPTH), dtype=np.float32) < chance[query]
    return features, query, clicks


def as_log(features, query, clicks):
    import untilt as ut

    n, documents = len(query), len(features)
    document = (query[:, None] * DEPTH + np.arange(DEPTH)).ravel()
    return ut.ClickLog(
        query_id=np.arange(documents // DEPTH),
        doc_id=np.arange(documents),
        doc_query=np.arange(documents) // DEPTH,
        indptr=np.arange(0, n * DEPTH + 1, DEPTH),
        query=query,
        document=document,
        position=np.tile(np.arange(1, DEPTH + 1, dtype=np.int32), n),
        label=clicks.ravel().astype(float),
        features=features,
    )


def collapsed_log(n_sessions: int, n_queries: int):
    """The log that a reader hands over, and the seconds that collapsing took.

    Made part by part, a range of queries each, as a table partitioned by query is read: sessions of
    different queries never merge, so the whole is collapsed where its parts are.
    """
    import untilt as ut

    n_parts = 40
    edges = np.linspace(0, n_queries, n_parts + 1).astype(int)
    columns = {name: [] for name in ("length", "query", "document", "position", "label", "count")}
    seconds = np.zeros(2)
    for number in range(n_parts):
        among = range(edges[number], edges[number + 1])
        size = n_sessions * len(among) // n_queries
        part = as_log(*sessions(size, n_queries, seed=number, among=among))
        start = now()
        part = part.collapse()
        columns["length"].append(np.diff(part.indptr))
        for name in ("query", "document", "position", "label", "count"):
            columns[name].append(getattr(part, name))
        seconds += now() - start
    start = now()
    joined = {name: np.concatenate(columns.pop(name)) for name in list(columns)}
    lengths = joined.pop("length")
    whole = ut.ClickLog(
        query_id=part.query_id,
        doc_id=part.doc_id,
        doc_query=part.doc_query,
        features=part.features,
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        **joined,
    )
    return whole, seconds + now() - start


def train_untilt(case: str, who: str, threads: int, n_queries: int, scale: float) -> np.ndarray:
    import untilt as ut

    n_sessions, preparation = int(SESSIONS[case] * scale), np.zeros(2)
    if case == "a":
        log = as_log(*sessions(n_sessions, n_queries, seed=0))
    else:
        log, preparation = collapsed_log(n_sessions, n_queries)
    weighting = ut.PRS(ut.PowerLaw(1.0)) if who == "prs" else ut.PairwiseDebiasing()
    # Compilation is once per installation (cached on disk), so it is not counted.
    ut.LambdaMART(weighting, n_trees=2, n_threads=threads).fit(log.take(np.arange(50)))
    ranker = ut.LambdaMART(weighting, n_trees=TREES, n_threads=threads)
    start = now()
    ranker.fit(log)
    return preparation + now() - start


def train_peer(case: str, who: str, threads: int, n_queries: int, scale: float) -> np.ndarray:
    """One row per impression: the peers know no counts."""
    features, query, clicks = sessions(int(PEER_SESSIONS[case] * scale), n_queries, seed=0)
    start = now()
    rows = (query[:, None] * DEPTH + np.arange(DEPTH)).ravel()
    position = np.tile(np.arange(DEPTH), len(query))
    labels, group = clicks.ravel().astype(np.int32), np.full(len(query), DEPTH)
    if who == "lightgbm":
        _lightgbm(features[rows], labels, group, threads, position)
    else:
        _xgboost(features[rows], labels, group, threads, unbiased=True)
    return now() - start


def train_labels(who: str, threads: int, n_queries: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    length = 120
    features = rng.normal(size=(n_queries * length, FEATURES)).astype(np.float32)
    utility = features[:, 0] + features[:, 1] * features[:, 2] + rng.normal(size=len(features))
    labels = np.digitize(utility, [1, 2, 3, 4]).astype(np.int32)
    group = np.full(n_queries, length)
    if who == "labels":
        return _untilt_labels(features, labels, n_queries, length, threads)
    start = now()
    if who == "lightgbm-labels":
        _lightgbm(features, labels, group, threads, None)
    else:
        _xgboost(features, labels, group, threads, unbiased=False)
    return now() - start


def _untilt_labels(features, labels, n_queries: int, length: int, threads: int) -> np.ndarray:
    import untilt as ut

    def judged(queries: int):
        rows = queries * length
        indptr = np.arange(0, rows + 1, length)
        return ut.JudgedLists(features[:rows], labels[:rows], indptr, np.arange(queries))

    options = {"n_threads": threads, "bagging_fraction": 1.0, "feature_fraction": 1.0}
    # LightGBM's default looks at pairs with a document among the first 30; so does this run.
    ut.LambdaMART(n_trees=2, truncation=30, **options).fit(judged(20))
    data = judged(n_queries)
    start = now()
    ut.LambdaMART(n_trees=TREES, truncation=30, **options).fit(data)
    return now() - start


def own_lists(folder: Path, scale: float) -> None:
    """Case (d) on disk: sessions in the order of their queries, each its own ranking."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n, rng = int(OWN_SESSIONS * scale), np.random.default_rng(0)
    n_queries = n // OF_A_QUERY
    features = rng.normal(size=(n_queries * OWN_DOCUMENTS, OWN_FEATURES)).astype(np.float32)
    utility = features[:, 0] + features[:, 1] * features[:, 2] + (features[:, 3] > 0.5)
    relevance = (1 / (1 + np.exp(-(utility - 1)))).reshape(n_queries, OWN_DOCUMENTS)
    query = np.sort(rng.integers(n_queries, size=n))
    order = np.argsort(-(relevance[query] + rng.random((n, OWN_DOCUMENTS))), axis=1)[:, :DEPTH]
    chance = np.take_along_axis(relevance[query], order, axis=1) / np.arange(1, DEPTH + 1)
    document = np.arange(len(features))
    log = {
        "query_id": np.repeat(query, DEPTH),
        "session_id": np.repeat(np.arange(n), DEPTH),
        "doc_id": (query[:, None] * OWN_DOCUMENTS + order).ravel(),
        "position": np.tile(np.arange(1, DEPTH + 1, dtype=np.int32), n),
        "click": (rng.random(order.shape) < chance).ravel().astype(np.int8),
    }
    documents = {"query_id": document // OWN_DOCUMENTS, "doc_id": document}
    documents |= {f"f{j}": column for j, column in enumerate(features.T)}
    pq.write_table(pa.table(log), folder / "log.parquet")
    pq.write_table(pa.table(documents), folder / "documents.parquet")


def train_own(who: str, threads: int, folder: Path) -> dict:
    """Case (d) by one of ours: seconds of all, and processor seconds by what they were spent on."""
    import untilt as ut
    from untilt.objectives.pairs import PairObjective

    weighting = ut.PRS(ut.PowerLaw(1.0)) if who == "prs" else ut.PairwiseDebiasing()
    kernel = [0.0]

    def timed(function):
        def call(*given, **options):
            start = time.process_time()
            result = function(*given, **options)
            kernel[0] += time.process_time() - start
            return result

        return call

    def read():
        return ut.read_log(folder / "log.parquet", documents=folder / "documents.parquet")

    ut.LambdaMART(weighting, n_trees=2, n_threads=threads).fit(read().take(np.arange(200)))
    PairObjective.evaluate = timed(PairObjective.evaluate)
    PairObjective.losses_by_position = timed(PairObjective.losses_by_position)
    start = now()
    log = read()
    reading = now() - start
    assert log.n_lists == log.n_sessions
    ut.LambdaMART(weighting, n_trees=OWN_TREES, n_threads=threads).fit(log)
    seconds, cpu = now() - start
    parts = {"reading_cpu": reading[1], "kernel_cpu": kernel[0]}
    return {"seconds": seconds, "cpu_seconds": cpu, **parts, "trees_cpu": cpu - sum(parts.values())}


def train_own_peer(who: str, threads: int, folder: Path) -> dict:
    """Case (d) by a peer: one row per impression, features joined by the document's number."""
    import lightgbm  # noqa: F401  imports are nobody's speed
    import pyarrow.parquet as pq
    import xgboost  # noqa: F401

    start = now()
    log = pq.read_table(folder / "log.parquet")
    documents = pq.read_table(folder / "documents.parquet").to_pandas()
    features = documents.iloc[:, 2:].to_numpy(np.float32)[log["doc_id"].to_numpy()]
    labels, position = log["click"].to_numpy().astype(np.int32), log["position"].to_numpy()
    group = np.full(len(labels) // DEPTH, DEPTH)
    reading = (now() - start)[1]
    if who == "xgboost":
        _xgboost(features, labels, group, threads, unbiased=True, trees=OWN_TREES)
    else:
        where = position - 1 if who == "lightgbm" else None
        _lightgbm(features, labels, group, threads, where, trees=OWN_TREES)
    seconds, cpu = now() - start
    return {"seconds": seconds, "cpu_seconds": cpu, "reading_cpu": reading}


def _lightgbm(features, labels, group, threads: int, position, *, trees: int = TREES) -> None:
    import lightgbm

    params = {**PARAMS, "objective": "lambdarank", "num_threads": threads}
    data = lightgbm.Dataset(features, labels, group=group, position=position)
    lightgbm.train(params, data, num_boost_round=trees)


def _xgboost(features, labels, group, threads: int, *, unbiased: bool, trees: int = TREES) -> None:
    import xgboost

    data = xgboost.DMatrix(features, labels, nthread=threads)
    data.set_group(group)
    params = {"objective": "rank:ndcg", "lambdarank_unbiased": unbiased, "eta": 0.05}
    params |= {"tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide"}
    params |= {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": DEPTH}
    xgboost.train({**params, "nthread": threads, "verbosity": 0}, data, num_boost_round=trees)


def one_run(case: str, who: str, threads: int, scale: float) -> None:
    """In the child process: train once and print the seconds."""
    n_queries = max(50, int((6_000 if case == "c" else 20_000) * scale))
    if case == "d":
        with tempfile.TemporaryDirectory(prefix="untilt-bench-own-") as folder:
            own_lists(Path(folder), scale)
            train = train_own if who in OURS else train_own_peer
            print(json.dumps(train(who, threads, Path(folder))))
        return
    if case == "c":
        seconds = train_labels(who, threads, n_queries)
    elif who in OURS:
        seconds = train_untilt(case, who, threads, n_queries, scale)
    else:
        seconds = train_peer(case, who, threads, n_queries, scale)
    print(json.dumps({"seconds": seconds[0], "cpu_seconds": seconds[1]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--small", action="store_true", help="a hundredth of the size, to try it")
    parser.add_argument("--child", nargs=4, metavar=("CASE", "WHO", "THREADS", "SCALE"))
    options = parser.parse_args()
    if options.child:
        case, who, threads, scale = options.child
        one_run(case, who, int(threads), float(scale))
        return
    scale = 0.01 if options.small else 1.0
    rows = []
    for case in options.case:
        for threads in options.threads:
            for who in WHO[case]:
                rows.append(measure(case, who, threads, scale))
                print(f"{case} {threads} {who}: {rows[-1]['seconds']:.1f} s", file=sys.stderr)
    report(rows, write=not options.small)


def measure(case: str, who: str, threads: int, scale: float) -> dict:
    script = str(Path(__file__).resolve())
    limit = str(threads)
    run = run_python(script, "--child", case, who, limit, str(scale), OMP_NUM_THREADS=limit)
    times = json.loads(run.output.splitlines()[-1])
    peak = run.peak_bytes / 2**30
    row = {"case": case, "who": who, "threads": threads, **times, "peak_gib": peak}
    if case == "b" and who in ("lightgbm", "xgboost"):
        row["sessions"] = int(PEER_SESSIONS["b"] * scale)
    return row


def extrapolate(row: dict, rows: list[dict]) -> dict:
    """Case (b)'s peers, from (a)'s size and their own to 10 million sessions, along a line.

    The line goes through the two measured sizes; what does not grow with sessions (the start of the
    process, the documents) is thus not multiplied.
    """
    same = ("who", "threads")
    small = [each for each in rows if each["case"] == "a" and all(each[k] == row[k] for k in same)]
    if "sessions" not in row or not small:
        return row
    steps = (SESSIONS["b"] - PEER_SESSIONS["b"]) / (PEER_SESSIONS["b"] - PEER_SESSIONS["a"])
    return row | {
        f"extrapolated_{unit}": row[name] + steps * (row[name] - small[0][name])
        for unit, name in (("seconds", "seconds"), ("gib", "peak_gib"))
    }


def beside_lightgbm(row: dict, rows: list[dict]) -> dict:
    """Case (d)'s rows with the processor seconds of LightGBM's `lambdarank` over their own."""
    for each in rows:
        lambdarank = (each["case"], each["who"]) == ("d", "lightgbm-no-position")
        if lambdarank and (row["case"], row["threads"]) == ("d", each["threads"]):
            return row | {"times_faster_cpu": each["cpu_seconds"] / row["cpu_seconds"]}
    return row


def report(rows: list[dict], *, write: bool) -> None:
    runs = [*(kept_runs({row["case"] for row in rows}) if write else []), *rows]
    runs = [beside_lightgbm(extrapolate(row, runs), runs) for row in runs]
    table(COLUMNS, [[row.get(name, "") for name in COLUMNS] for row in runs])
    if write:
        packages = ("lightgbm", "xgboost-cpu")
        print(save("lambdamart", {"trees": TREES, "runs": runs}, seed=0, packages=packages))


def kept_runs(measured: set[str]) -> list[dict]:
    """Runs of the cases that were not measured this time: a case is always measured as a whole."""
    path = RESULTS / "lambdamart.json"
    before = json.loads(path.read_text())["results"]["runs"] if path.exists() else []
    return [run for run in before if run["case"] not in measured]


if __name__ == "__main__":
    main()

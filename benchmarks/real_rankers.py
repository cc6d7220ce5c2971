"""Rankers from ordinary hotel searches, judged by clicks in random order: part of bench_real.py.

A search in random order shows a hotel at a position that says nothing of it. With theta the curve
of these searches (a power law fitted to their clicks) and r the rank that a ranker gives,

    value = sum_i c_i / theta_k(i) [r_i <= 10] / log2(1 + r_i)  /  sum_i c_i / theta_k(i),

the mean discount of a click. Learners get the ordinary searches alone. Their curve is that of the
searches in random order of the *other* half (an experiment), so that no click is used twice, or
RegressionEM's on the ordinary searches (no experiment). Errors: bootstrap by search, with the
training seeds averaged within a search.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

import untilt as ut

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "expedia.py"
SEEDS, TREES, RESAMPLES = 5, 100, 2000
AGAINST = "LambdaMART, raw clicks"
LGB = {
    "learning_rate": 0.05, "num_leaves": 31, "num_threads": 1, "verbosity": -1,
    "feature_fraction": 0.9, "bagging_fraction": 0.9, "bagging_freq": 1, "objective": "lambdarank",
}  # fmt: skip
XGB = {
    "tree_method": "hist", "max_leaves": 31, "max_depth": 0, "grow_policy": "lossguide",
    "eta": 0.05, "subsample": 0.9, "colsample_bytree": 0.9, "nthread": 1, "verbosity": 0,
    "objective": "rank:ndcg",
}  # fmt: skip
Scores = Callable[[Any], Any]


def power_of(log: ut.ClickLog) -> float:
    """eta of theta_k = k^-eta, fitted to clicks by position of lists in random order."""
    rates = log.ctr_by_position()
    k, n, c = (
        np.asarray(each, float) for each in (rates.position, rates.impressions, rates.clicks)
    )

    def loss(eta: float) -> float:
        mean = n * k**-eta
        return -float(c @ np.log(mean) - c.sum() * np.log(mean.sum()))

    return float(minimize_scalar(loss, bounds=(0, 3), method="bounded").x)


def rows_of(log: ut.ClickLog) -> tuple[Any, Any, Any, Any]:
    """Features, clicks, group sizes and positions, each list from the top down."""
    order = np.concatenate(
        [
            a + np.argsort(log.position[a:b])
            for a, b in zip(log.indptr, log.indptr[1:], strict=False)
        ]
    )
    features = log.features[log.document[order]]
    return features, log.label[order], np.diff(log.indptr), log.position[order] - 1


def peers(log: ut.ClickLog, seed: int) -> dict[str, Callable[[], Scores]]:
    """LightGBM and XGBoost with and without their own correction; nothing where not installed."""
    features, clicks, group, position = rows_of(log)

    def lightgbm(where: Any) -> Scores:
        import lightgbm as lgb

        data = lgb.Dataset(features, clicks, group=group, position=where)
        return lgb.train({**LGB, "seed": seed}, data, num_boost_round=TREES).predict

    def xgboost(unbiased: bool) -> Scores:
        import xgboost as xgb

        data = xgb.DMatrix(features, clicks)
        data.set_group(group)
        more = {"lambdarank_pair_method": "topk", "lambdarank_num_pair_per_sample": 10}
        given = {**XGB, **more, "lambdarank_unbiased": unbiased, "seed": seed}
        trees = xgb.train(given, data, num_boost_round=TREES)
        return lambda rows: trees.predict(xgb.DMatrix(rows))

    return {
        "LightGBM lambdarank": lambda: lightgbm(None),
        "LightGBM lambdarank, position": lambda: lightgbm(position),
        "XGBoost rank:ndcg": lambda: xgboost(False),
        "XGBoost rank:ndcg, unbiased": lambda: xgboost(True),
    }


def ours(log: ut.ClickLog, curves: dict[str, Any], seed: int) -> dict[str, Callable[[], Scores]]:
    """The package's rankers with each curve."""

    def fit(ranker: Any) -> Scores:
        return ranker.fit(log).predict

    made: dict[str, Callable[[], Scores]] = {
        AGAINST: lambda: fit(ut.LambdaMART(ut.Naive(), n_trees=TREES, n_threads=1, seed=seed)),
        "LinearRanker, raw clicks": lambda: fit(ut.LinearRanker(ut.Naive())),
    }
    for name, bias in curves.items():
        made |= {
            f"LambdaMART, Balanced ({name})": lambda bias=bias: fit(
                ut.LambdaMART(ut.Balanced(bias), n_trees=TREES, n_threads=1, seed=seed)
            ),
            f"LambdaMART, auto ({name})": lambda bias=bias: fit(
                ut.LambdaMART("auto", bias=bias, n_threads=1, seed=seed)
            ),
            f"LinearRanker, Balanced ({name})": lambda bias=bias: fit(
                ut.LinearRanker(ut.Balanced(bias))
            ),
        }
    return made


def parts_of(log: ut.ClickLog, scores: Any, eta: float) -> np.ndarray:
    """(searches, 4): numerator and denominator of the value, then of clicks without weights."""
    found = np.zeros((log.n_lists, 4))
    for i, (a, b) in enumerate(zip(log.indptr, log.indptr[1:], strict=False)):
        weight = log.label[a:b] * log.position[a:b] ** eta
        rank = 1 + np.argsort(np.argsort(-scores[log.document[a:b]], kind="stable"))
        gain = np.where(rank <= 10, 1 / np.log2(1 + rank), 0)
        plain = log.label[a:b]
        found[i] = weight @ gain, weight.sum(), plain @ gain, plain.sum()
    return found


def rankers(data: Path, seed: int) -> dict[str, Any]:
    """Values with intervals, and differences to raw clicks."""
    example = runpy.run_path(str(EXAMPLE))
    log = example["read_searches"](data / "expedia-sample" / "searches.csv.gz", hotels_only=True)
    usual, chance = (example["shown_in"](log, name) for name in ("usual order", "random order"))
    rng = np.random.default_rng(seed)
    half = rng.permutation(chance.n_lists) % 2
    eta, observed = power_of(chance), ut.RegressionEM(relevance="features", n_threads=1)
    modelled = observed.fit(usual).bias_.smooth()
    halves = [chance.take(half == part) for part in (0, 1)]
    sums: dict[str, list[np.ndarray]] = {}
    skipped: dict[str, str] = {}
    for s in range(SEEDS):
        found: dict[str, Any] = {"any order": [rng.random(chance.n_documents)] * 2}
        learners = peers(usual, s) | ours(usual, {"no experiment": modelled}, s)
        for name, learn in learners.items():
            try:
                found[name] = [np.asarray(learn()(chance.features))] * 2
            except ImportError as error:
                skipped[name] = f"not installed: {error.name}"
        for part in (0, 1):  # learnt with the curve of one half, judged by the other
            curve = ut.PowerLaw(power_of(halves[part]))
            plain = ("LambdaMART, raw clicks", "LinearRanker, raw clicks")
            for name, learn in ours(usual, {"experiment": curve}, s).items():
                if name not in plain:
                    scores = np.asarray(learn()(chance.features))
                    found.setdefault(name, [None, None])[1 - part] = scores
        for name, scores in found.items():
            both = [parts_of(chance, each, eta) for each in scores]
            picked = np.where(half[:, None] == 0, both[0], both[1])
            sums.setdefault(name, []).append(picked)
        print(f"seed {s} done", flush=True)
    return {"power": eta, "usual": usual.n_sessions, "random": chance.n_sessions,
            "clicks": int(chance.label.sum()), "seeds": SEEDS, "skipped": skipped,
            "rows": _values(sums, seed)}  # fmt: skip


def _values(sums: dict[str, list[np.ndarray]], seed: int) -> list[dict[str, Any]]:
    n = len(next(iter(sums.values()))[0])
    weight = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    means = {name: np.mean(each, axis=0) for name, each in sums.items()}
    total = {name: weight @ mean for name, mean in means.items()}
    rows = []
    for name, each in sums.items():
        value = _ratio(means[name].sum(axis=0)[None], total[name], 0)
        plain = [_ratio(means[k].sum(axis=0)[None], total[k], 2) for k in (name, AGAINST)]
        raw = _ratio(means[AGAINST].sum(axis=0)[None], total[AGAINST], 0)
        spread = np.std([one[:, 0].sum() / one[:, 1].sum() for one in each])
        rows.append(
            {"ranker": name, "value": _ends(*value),
             "minus raw": _ends(value[0] - raw[0], value[1] - raw[1]),
             "minus raw, clicks unweighted": _ends(
                 plain[0][0] - plain[1][0], plain[0][1] - plain[1][1]
             ),
             "spread of seeds": float(spread)}
        )  # fmt: skip
    return sorted(rows, key=lambda row: -row["value"]["value"])


def _ratio(mean: np.ndarray, drawn: np.ndarray, at: int) -> tuple[float, np.ndarray]:
    return float(mean[0, at] / mean[0, at + 1]), drawn[:, at] / drawn[:, at + 1]


def _ends(value: float, draws: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": float(value), "low": float(low), "high": float(high)}

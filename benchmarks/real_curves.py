"""Curves from ordinary lists beside evidence that is independent of them: part of bench_real.py.

Expedia: searches in random order, where the click rate by position is the curve. CLARA 2: clicks
with grades held fixed,

    c_qgk ~ Poisson(mu_qg theta_k n_qgk)    for query q, grade g, position k, theta_1 = 1,

which leaves out what the old ranker knew beyond the grade, so it is too steep where there was such
knowledge. THUIR: the share of items that were on the screen, measured. Errors: bootstrap by query,
of THUIR by session.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import untilt as ut
from untilt.bias.em.rank_prior import joint_curve

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "expedia_curves.py"
RESAMPLES = 300
AT = (2, 3, 5, 10)
Interval = dict[str, float]
Row = dict[str, Any]


def interval(values: np.ndarray, draws: np.ndarray) -> list[Interval]:
    """Values with the 95% interval of their draws."""
    low, high = np.nanquantile(draws, [0.025, 0.975], axis=0)
    return [
        {"value": float(v), "low": float(a), "high": float(b)}
        for v, a, b in zip(values, low, high, strict=True)
    ]


def grades_fixed(frame: pd.DataFrame, seed: int) -> list[Interval]:
    """theta with grades held fixed."""
    depth = int(frame.position.max())
    frame = frame[frame.grade.notna()]
    query = pd.factorize(frame.query_id)[0]
    stratum = pd.factorize(pd.MultiIndex.from_arrays([frame.query_id, frame.grade]))[0]
    cell = np.bincount(stratum * depth + frame.position - 1, minlength=depth * (stratum.max() + 1))
    clicks = np.bincount(stratum * depth + frame.position - 1, frame.click, len(cell))
    n, c = cell.reshape(-1, depth).astype(float), clicks.reshape(-1, depth)
    owner = np.zeros(len(n), dtype=int)
    owner[stratum] = query

    def fit(weight: np.ndarray) -> np.ndarray:
        shown, clicked, theta = (
            n * weight[owner][:, None],
            c * weight[owner][:, None],
            np.ones(depth),
        )
        for _ in range(200):
            expected = shown @ theta
            mu = np.divide(clicked.sum(1), expected, out=np.zeros(len(n)), where=expected > 0)
            theta = clicked.sum(0) / np.maximum(mu @ shown, 1e-12)
        return theta / theta[0]

    rng, size = np.random.default_rng(seed), query.max() + 1
    draws = [fit(rng.multinomial(size, np.full(size, 1 / size))) for _ in range(RESAMPLES)]
    return interval(fit(np.ones(size)), np.array(draws))


def on_screen(frame: pd.DataFrame, seed: int) -> dict[str, list[Interval]]:
    """Share of items seen, time on the screen and clicks by position, relative to the first."""
    wide = {
        name: values.unstack().to_numpy(dtype=float)
        for name, values in {
            "seen": frame.assign(v=frame.viewport_ms > 0),
            "time on the screen": frame.assign(v=frame.viewport_ms),
            "click rate": frame.assign(v=frame.click),
        }.items()
        for values in [values.set_index(["session_id", "position"]).v]
    }
    n, rng = len(wide["seen"]), np.random.default_rng(seed)
    weight = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)
    found = {}
    for name, table in wide.items():
        draws = weight @ np.nan_to_num(table)
        mean = np.nanmean(table, axis=0)
        found[name] = interval(mean / mean[0], draws / draws[:, :1])
    return found


def estimators(*, features: bool) -> dict[str, Callable[[ut.ClickLog], ut.PositionBias]]:
    """What an ordinary log allows."""
    made: dict[str, Any] = {
        "AllPairs": ut.AllPairs, "AdjacentChain": ut.AdjacentChain, "Pivot": ut.Pivot,
        "RegressionEM, counts": lambda: ut.RegressionEM(relevance="counts"),
        "TrustEM, counts": lambda: ut.TrustEM(relevance="counts"), "PBM": ut.PBM, "UBM": ut.UBM,
    }  # fmt: skip
    if features:
        made["RegressionEM, trees"] = lambda: ut.RegressionEM(relevance="features", n_threads=1)
        made["TrustEM, trees"] = lambda: ut.TrustEM(relevance="features", n_threads=1)
    found = {name: lambda log, make=make: make().fit(log).bias_ for name, make in made.items()}
    power = "power law 1, assumed by a run that knows nothing"
    return found | {"with judgments (joint)": joint_curve, power: _power}


def _power(log: ut.ClickLog) -> ut.PositionBias:
    return ut.PowerLaw(1.0).to_bias(log.depth)


def row(
    name: str,
    fit: Callable[[ut.ClickLog], ut.PositionBias],
    log: ut.ClickLog,
    truth: list[Interval],
) -> Row:
    """One estimator: its curve, where it leaves the reference's interval, and what it says."""
    try:
        bias = fit(log)
    except ut.UntiltError as error:
        return {"curve": name, **dict.fromkeys(map(str, AT), ""), "outside at": "",
                "what it says": str(error).partition(". ")[0]}  # fmt: skip
    theta, shown = bias.drawn_curve(), {}
    for k in AT:
        ends = (None, None) if theta.low is None else (theta.low[k - 1], theta.high[k - 1])
        value, low, high = map(_end, (theta.value[k - 1], *ends))
        shown[str(k)] = {"value": value, "low": low, "high": high}
    outside = [
        str(k + 1)
        for k in range(1, min(len(truth), len(theta.value)))
        if theta.value[k] < truth[k]["low"] or theta.value[k] > truth[k]["high"]
    ]
    said = [str(part) for part in bias.status.parts if part.severity != "note"]
    return {"curve": name, **shown, "outside at": ", ".join(outside) or "none",
            "what it says": "; ".join(said) or "no warning"}  # fmt: skip


def _end(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(value)


def reference(name: str, truth: list[Interval]) -> Row:
    """The row of the evidence itself."""
    return {
        "curve": name,
        **{str(k): truth[k - 1] for k in AT},
        "outside at": "",
        "what it says": "",
    }


def rates(log: ut.ClickLog) -> Row:
    """Click rates, as if lists were no better at the top."""
    rate = log.ctr_by_position().rate
    at = {str(k): {"value": float(rate[k - 1] / rate[0]), "low": None, "high": None} for k in AT}
    return {"curve": "click rate", **at, "outside at": "", "what it says": ""}


def curves(frames: dict[str, pd.DataFrame], data: Path, seed: int) -> dict[str, Any]:
    """All three logs, with the audit's recommendation for each."""
    told: dict[str, Any] = {}
    frame = frames["clara2"]
    log = ut.read_log(frame[["query_id", "session_id", "doc_id", "position", "click"]])
    told["clara2"] = _log(log, "grades held fixed", grades_fixed(frame, seed), features=False)
    example = runpy.run_path(str(EXAMPLE))
    hotels = example["read_hotels"](data / "expedia-sample" / "searches.csv.gz")
    chance = example["by_position"](hotels, example["RANDOM"]).drawn_curve()
    truth = [
        {"value": float(v), "low": float(a), "high": float(b)}
        for v, a, b in zip(chance.value, chance.low, chance.high, strict=True)
    ]
    usual = hotels.take(hotels.ranker == hotels.ranker_names.index(example["USUAL"]))
    told["expedia"] = _log(usual, "random order", truth, features=True)
    feed = ut.datasets.read_thuir_news(data / "thuir-news" / "impressions.parquet")
    seen = on_screen(pd.read_parquet(data / "thuir-news" / "impressions.parquet"), seed)
    told["thuir"] = _log(feed, "seen on the screen", seen["seen"], features=False)
    told["thuir"]["rows"][1:1] = [reference("time on the screen", seen["time on the screen"])]
    return told


def _log(log: ut.ClickLog, name: str, truth: list[Interval], *, features: bool) -> dict[str, Any]:
    audit = ut.audit(log)
    rows = [row(each, fit, log, truth) for each, fit in estimators(features=features).items()]
    return {"sessions": log.n_sessions, "clicks": float((log.row_count * log.label).sum()),
            "audit": str(audit.next_step.fact),
            "rows": [reference(name, truth), rates(log), *rows]}  # fmt: skip

"""The click rate of one policy from the other's log of Open Bandit: part of bench_real.py.

A row is a slot: item a at slot k was shown with the logged probability p. The other policy's
probability pi(a | k) is 1 / items for random lists; Thompson sampling changes it all day, and its
mean is how often its own log shows a at k. With w = pi / p,

    IPS = sum w c / n,    SNIPS = sum w c / sum w.

Its own click rate is in its own log. Errors: bootstrap by row in both logs, by campaign.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

RESAMPLES = 2000


def _draws(rows: pd.DataFrame, rng: np.random.Generator) -> np.ndarray:
    n = len(rows)
    return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES)


def _interval(value: float, draws: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"value": float(value), "low": float(low), "high": float(high)}


def _weights(logged: pd.DataFrame, own: pd.DataFrame, draw: np.ndarray | None) -> np.ndarray:
    """w of the rows of `logged`, by how often `own` (its rows drawn so often) shows items."""
    items = own.doc_id.nunique()
    if (own.ranker == "shuffle").all():
        return 1 / (items * logged.propensity.to_numpy())
    times = np.ones(len(own)) if draw is None else draw
    keys = pd.MultiIndex.from_frame(own[["doc_id", "position"]])
    shown = pd.Series(times, index=keys).groupby(level=[0, 1]).sum()
    share = shown / shown.groupby(level=1).transform("sum")
    wanted = pd.MultiIndex.from_frame(logged[["doc_id", "position"]])
    return share.reindex(wanted).fillna(0).to_numpy() / logged.propensity.to_numpy()


def bandit(path: Path, seed: int) -> list[dict[str, Any]]:
    """A row per campaign and policy; the test says whether the difference may be chance."""
    frame, rng, told = pd.read_parquet(path), np.random.default_rng(seed), []
    for campaign, part in frame.groupby("query_id"):
        for name, other in (("bts", "shuffle"), ("shuffle", "bts")):
            own, logged = part[part.ranker == name], part[part.ranker == other]
            c, w = logged.click.to_numpy(), _weights(logged, own, None)
            mine, theirs = _draws(own, rng), _draws(logged, rng)
            rates = mine @ own.click.to_numpy() / len(own)
            fixed = name == "shuffle"
            ws = [w if fixed else _weights(logged, own, draw) for draw in mine]
            ips = np.array([d @ (v * c) / len(c) for d, v in zip(theirs, ws, strict=True)])
            snips = np.array([d @ (v * c) / (d @ v) for d, v in zip(theirs, ws, strict=True)])
            truth, value = own.click.mean(), w @ c / w.sum()
            gap = _interval(value - truth, snips - rates)
            told.append(
                {"campaign": campaign, "policy": name, "from": other,
                 "own clicks": _interval(truth, rates), "IPS": _interval(w @ c / len(c), ips),
                 "SNIPS": _interval(value, snips), "SNIPS minus own": gap,
                 "effective rows": float(w.sum() ** 2 / (w**2).sum()),
                 "covered": bool(gap["low"] <= 0 <= gap["high"])}
            )  # fmt: skip
    return told

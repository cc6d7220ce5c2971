"""Bounds and sensitivity on logs whose truth is known: the figures of docs/sensitivity.md.

Clicks are drawn here, in plain NumPy. Bounds: documents change places within groups of positions
alone, so that no chain joins the groups; do bounds hold the curve, the values and the difference of
two orders? Sensitivity: a share of the clicks at the top comes from trust, or the curve is wrong by
a factor; is the difference at that amount the true one, and is its sign wrong just where less than
the true amount is said to turn it?
"""

import argparse
from typing import Any

import numpy as np
from _harness import save, table

import untilt as ut

NAME = "sensitivity"
K = 8
POSITION = np.arange(1, K + 1)
THETA = POSITION**-0.7
DISCOUNT = 1 / np.log2(1 + POSITION)
GROUPS = {
    "two parts, 1..4 and 5..8": ([0, 1, 2, 3], [4, 5, 6, 7]),
    "top joined, the rest fixed": ([0, 1, 2],),
    "odd and even positions": ([0, 2, 4, 6], [1, 3, 5, 7]),
    "one fixed order": (),
}
SLOPES = {"never rises": None, "slopes 0.3 to 2": (0.3, 2.0)}
AMOUNTS = {"trust": (0.0, 0.2, 0.4), "curve": (1.0, 1.5, 2.5)}
N_QUERIES, N_ORDERS, N_SESSIONS = 80, 6, 25


class Log:
    """One simulated log, the scores of a new order, and the truth of both orders."""

    def __init__(
        self,
        seed: int,
        groups: tuple[list[int], ...],
        trust: float = 0.0,
        quality: tuple[float, float] = (0.5, 0.5),
        moving: float = 0.0,
        theta: Any = THETA,
    ) -> None:
        rng = np.random.default_rng(seed)
        worth = rng.normal(size=(N_QUERIES, K))
        gamma = 0.05 + 0.6 / (1 + np.exp(1 - 1.5 * worth))
        quality_shown, quality_new = quality
        known = quality_shown * worth + np.sqrt(1 - quality_shown**2) * rng.normal(size=worth.shape)
        self.score = quality_new * worth + np.sqrt(1 - quality_new**2) * rng.normal(
            size=worth.shape
        )
        query = np.repeat(np.arange(N_QUERIES), N_ORDERS)
        noise = moving * rng.normal(size=(len(query), K))
        order = np.argsort(-(known[query] + noise), axis=1)
        for group in groups:
            order[:, group] = rng.permuted(order[:, group], axis=1)
        query, order = (np.repeat(each, N_SESSIONS, axis=0) for each in (query, order))
        shown = gamma[query[:, None], order]
        kept = 1 - trust / POSITION
        mean = np.sum(theta * kept * shown) / np.sum(theta * kept * np.ones_like(shown))
        chance = theta * (kept * shown + (1 - kept) * mean)
        self.log = ut.ClickLog(
            query_id=np.arange(N_QUERIES),
            doc_id=np.arange(N_QUERIES * K),
            doc_query=np.repeat(np.arange(N_QUERIES), K),
            indptr=np.arange(0, len(query) * K + 1, K),
            query=query,
            document=(query[:, None] * K + order).ravel(),
            position=np.tile(POSITION, len(query)),
            label=(rng.random(chance.shape) < chance).astype(float).ravel(),
        ).collapse()
        by_score = np.argsort(-self.score[query[:, None], order], axis=1)
        new = np.take_along_axis(shown, by_score, axis=1)
        self.values = {
            "shown": float((shown @ DISCOUNT).mean()),
            "new": float((new @ DISCOUNT).mean()),
        }

    @property
    def difference(self) -> float:
        return self.values["new"] - self.values["shown"]

    def estimate(self, bias: Any) -> Any:
        systems: dict[str, Any] = {"shown": ut.shown, "new": self.score.ravel()}
        return ut.estimate(self.log, systems, bias)


def bounds(
    groups: tuple[list[int], ...], slopes: Any, n_logs: int, *, flat: bool = False
) -> dict[str, float]:
    """Shares of logs in which bounds hold, and what is decided; beside a curve that is guessed."""
    seen: dict[str, list[float]] = {}
    # As often looked at as the position above: the truth lies on the bound itself.
    theta = np.where(flat & (POSITION > 4), THETA[3] / THETA[4], 1.0) * THETA
    for seed in range(n_logs):
        made = Log(seed, groups, theta=theta)
        bias = ut.AllPairs(unjoined="bounds", slopes=slopes).fit(made.log).bias_
        found, guessed = made.estimate(bias), made.estimate(ut.PowerLaw(1.0))
        unjoined = bias.bounds.bounded
        inside = (bias.low <= theta) & (bias.high >= theta)
        difference, truth = found.compare("shown")["new"], made.difference
        guess = guessed.compare("shown")["new"]
        for name, value in {
            "curve": inside[unjoined].all(),
            "values": np.mean([made.values[e.system] in e.interval for e in found]),
            "difference": truth in difference.interval,
            "right": difference.decided and difference.value * truth > 0,
            "wrong": difference.decided and difference.value * truth < 0,
            "guess_difference": truth in guess.interval,
            "width": difference.interval.high - difference.interval.low,
        }.items():
            seen.setdefault(name, []).append(float(value))
    return {name: float(np.mean(values)) for name, values in seen.items()} | {"logs": n_logs}


def turning(cause: str, amount: float, n_logs: int) -> dict[str, float]:
    """Errors and signs of the difference, as measured and at the true amount of a departure.

    trust : a share of the clicks at the top, lists in random order, curve by AllPairs
    curve : the curve given is steeper than the truth, by this factor at the lowest position
    """
    rows = []
    for seed in range(n_logs):
        quality = np.random.default_rng(10_000 + seed).uniform(0.0, 0.8)
        if cause == "trust":
            made = Log(seed, (list(range(K)),), amount, (0.45, quality))
            bias = ut.AllPairs().fit(made.log).bias_
            option = {"trust": max(amount, 1e-6)}
        else:
            made = Log(seed, (), 0.0, (0.45, quality), moving=0.6)
            bias = ut.KnownBias(THETA * amount ** -(np.log(POSITION) / np.log(K)))
            option = {"factor": max(amount, 1 + 1e-6)}
        found = made.estimate(bias).sensitivity("new", "shown", **option)
        told, truth = found[cause], made.difference
        flips_at = told.flips_at
        below = flips_at is not None and (
            flips_at < amount if cause == "trust" else 1 < flips_at < amount
        )
        wrong = found.value * truth < 0
        far = abs(found.value - truth), abs(told.at_most - truth)
        rows.append((*far, wrong, told.at_most * truth < 0, below, below == wrong))
    means = np.mean(np.array(rows, dtype=float), axis=0)
    names = (
        "error",
        "error_at_truth",
        "sign_wrong",
        "sign_wrong_at_truth",
        "said_to_turn",
        "agree",
    )
    return dict(zip(names, means.tolist(), strict=True)) | {"logs": n_logs}


def main() -> None:
    """Both tables, and the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100, help="simulated logs of each kind")
    n_logs = parser.parse_args().logs
    of_bounds = {
        f"{log}; {known}": bounds(groups, slopes, n_logs)
        for log, groups in GROUPS.items()
        for known, slopes in SLOPES.items()
    }
    both = GROUPS["two parts, 1..4 and 5..8"]
    on_bound = "two parts, 5 looked at as often as 4; never rises"
    of_bounds[on_bound] = bounds(both, None, n_logs, flat=True)
    of_turning = {
        f"{cause} {amount:g}": turning(cause, amount, n_logs)
        for cause, amounts in AMOUNTS.items()
        for amount in amounts
    }
    save(NAME, {"bounds": of_bounds, "turning": of_turning}, seed=0)
    for results in (of_bounds, of_turning):
        names = list(next(iter(results.values())))
        table(
            ["log", *names],
            [[log, *(f"{cell[name]:.3f}" for name in names)] for log, cell in results.items()],
        )


if __name__ == "__main__":
    main()

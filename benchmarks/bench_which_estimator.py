"""How far off each estimator is on each kind of log, and whether swap plans keep their promise.

The figures of docs/position-bias.md and docs/how-many-sessions.md. "Off by" is exp(mean
|log(estimate / truth)|) - 1 over positions 2..K: how far a ratio to position 1 typically is from
the true one.
A refusal counts as such: an estimator that says what it lacks is not wrong.
"""

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from _harness import save, table

from untilt import catalog
from untilt.auditing.plan import Plan, plan_swaps
from untilt.data.judged import JudgedLists
from untilt.errors import UntiltError
from untilt.simulation.behaviour import Display
from untilt.simulation.protocols import DLA, Cascade, Harvest, Shuffle, Swap, Trust
from untilt.simulation.simulate import Simulation, simulate
from untilt.simulation.synthetic import make_judged

ESTIMATORS = {record.target: record.load() for record in catalog.methods("bias")}
SHOWN = ("ShuffledTop", "PivotSwap", "AdjacentSwap", "AllPairs", "RegressionEM")
LOGS: dict[str, Any] = {
    "one ranker, learned from the features": DLA(),
    "one ranker that knows more": DLA(),
    "three rankers": Harvest(),
    "pivot swaps in a fifth": Swap(share=0.2),
    "adjacent swaps in a fifth": Swap(share=0.2, adjacent=True),
    "shuffle in a fifth": Shuffle(share=0.2),
    "pivot swaps, readers trust the top": Swap(share=0.2, clicks=Trust()),
    "pivot swaps, readers stop (cascade)": Swap(share=0.2, clicks=Cascade()),
}
PLANS: dict[str, dict[str, Any]] = {
    "pivot 1": {},
    "pivot 1, half of the traffic": {"share": 0.5},
    "pivot 3": {"pivot": 3},
    "adjacent": {"pairs": "adjacent"},
    "pivot 1, lists of a length": {"within": "length"},
}


@dataclass(frozen=True)
class Planned(Swap):
    """The experiment that a plan describes."""

    plan: Plan | None = None

    def display(self, page: Any) -> Display:
        assert self.plan is not None
        base = Display.of_swaps([(swap.upper, swap.lower) for swap in self.plan.swaps], 0.5)
        chance = np.array([swap.probability for swap in self.plan.swaps])
        probability = np.concatenate([[1 - chance.sum()], chance])
        return Display(base.names, probability, base.order, base.swap, base.shuffle)


def informed(judged: JudgedLists, seed: int, noise: float) -> Any:
    """Scores of a ranker that sees the labels through noise: more than any feature tells."""
    return judged.labels + noise * np.random.default_rng(seed).normal(size=len(judged))


def made(name: str, judged: JudgedLists, sessions: int, seed: int) -> Simulation:
    ranker: Any = informed(judged, 1, 1.0)
    if "learned" in name:
        ranker = None
    elif "three" in name:
        ranker = {f"ranker {i}": informed(judged, i, 1.5) for i in range(3)}
    return simulate(judged, LOGS[name], n_sessions=sessions, seed=seed, ranker=ranker, n_threads=1)


def off_by(estimate: Any, truth: Any) -> float:
    ratio = np.log(estimate[1:] / (truth[1 : len(estimate)] / truth[0]))
    return float(np.expm1(np.mean(np.abs(ratio))))


def wrong_tools(judged: JudgedLists, sessions: int, seeds: int) -> list[dict[str, Any]]:
    rows = []
    for name in LOGS:
        found: dict[str, list[float]] = {"click rate": [], **{each: [] for each in SHOWN}}
        for seed in range(seeds):
            simulation = made(name, judged, sessions, seed)
            truth, rate = simulation.truth.examination, simulation.log.ctr_by_position().rate
            found["click rate"].append(off_by(rate / rate[0], truth))
            for each in SHOWN:
                options = {"n_threads": 1} if each == "RegressionEM" else {}
                try:
                    bias = ESTIMATORS[each](**options).fit(simulation.log).bias_
                except UntiltError:
                    continue
                found[each].append(off_by(bias.examination, truth))
        means = {each: float(np.mean(errors)) if errors else None for each, errors in found.items()}
        rows.append({"log": name, **means})
    return rows


def plans_kept(judged: JudgedLists, seeds: int) -> list[dict[str, Any]]:
    ranker = informed(judged, 1, 2.0)
    today = simulate(judged, DLA(), ranker=ranker, n_sessions=50_000, seed=9, n_threads=1)
    truth = today.truth.examination
    rows = []
    for name, options in PLANS.items():
        common: dict[str, Any] = {"sessions_per_day": 50_000, "width": 0.3, "depth": 6, **options}
        plan = plan_swaps(today.log, examination=truth, **common)
        without = plan_swaps(today.log, **common)
        widths, covered = [], []
        for seed in range(seeds):
            experiment = simulate(
                judged,
                Planned(plan=plan),
                ranker=ranker,
                n_sessions=plan.sessions,
                seed=100 + seed,
                n_threads=1,
            )
            bias = _estimator(options).fit(experiment.log).bias_
            widths.append((bias.high - bias.low) / bias.examination)
            true = truth[:6] / truth[0]
            covered.append(np.mean((bias.low <= true) & (true <= bias.high), where=true < 1))
        rows.append(
            {
                "plan": name,
                "sessions": plan.sessions,
                "swapped": plan.swapped_sessions,
                "clicks lost": plan.clicks_lost,
                "lost share": plan.lost_share,
                "sessions without a guess": without.sessions,
                "clicks lost at most": without.clicks_lost,
                "planned width": plan.expected_width.tolist(),
                "measured width": np.mean(widths, axis=0).tolist(),
                "covered": float(np.mean(covered)),
            }
        )
    return rows


def _estimator(options: dict[str, Any]) -> Any:
    within = options.get("within", "document")
    if options.get("pairs") == "adjacent":
        return ESTIMATORS["AdjacentSwap"](within=within)
    return ESTIMATORS["PivotSwap"](options.get("pivot", 1), within=within)


def _cell(value: Any) -> str:
    if value is None:
        return "refuses"
    return value if isinstance(value, str) else f"{value:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--experiments", type=int, default=20)
    arguments = parser.parse_args()
    tools = wrong_tools(
        make_judged(500, 20, seed=11), sessions=arguments.sessions, seeds=arguments.seeds
    )
    table(list(tools[0]), [[_cell(value) for value in row.values()] for row in tools])
    plans = plans_kept(make_judged(300, 8, seed=5), seeds=arguments.experiments)
    for row in plans:
        print(row)
    save("which_estimator", {"tools": tools, "plans": plans}, seed=0, packages=["lightgbm"])


if __name__ == "__main__":
    main()

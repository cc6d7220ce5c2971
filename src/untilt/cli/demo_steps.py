"""The steps of the demo, each a small function that says what it does and hands on what it made."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt.cli.console import Output
from untilt.cli.rates import rates_record, rates_table
from untilt.evaluation.judged import Evaluation, evaluate
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.rankers.lambdamart import LambdaMART
from untilt.report.charts import Curve, interval_chart, position_chart, save_chart, stacked
from untilt.simulation.simulate import Simulation, simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting import IPS, PRS, PairwiseDebiasing, Weighting

METRIC = "ndcg@10"
UNBIASED = "clicks, PRS"


@dataclass(frozen=True)
class Size:
    """How much the demo does."""

    queries: int
    features: int
    sessions: int
    trees: int


FULL = Size(queries=1000, features=30, sessions=100_000, trees=50)
QUICK = Size(queries=300, features=15, sessions=20_000, trees=25)


def run(out: Output, size: Size, folder: Path, *, seed: int) -> None:
    """All steps, in order."""
    started = time.monotonic()
    train, test = make_data(out, size, seed)
    simulation = make_clicks(out, train, size, seed)
    look_at_clicks(out, simulation)
    found = judge_shown_order(out, simulation, test, seed)
    found |= train_rankers(out, simulation, test, size, seed)
    compare(out, found)
    draw(out, simulation, found, folder)
    seconds = time.monotonic() - started
    out.record(seconds=seconds)
    out.say(f"\nDone in {seconds:.0f} s.")


def make_data(out: Output, size: Size, seed: int) -> tuple[JudgedLists, JudgedLists]:
    """Judged lists, seven tenths to learn from."""
    with progress("making data"):
        judged = make_judged(size.queries, size.features, seed=seed)
        train, test = judged.split(0.7, seed=seed)
    out.heading("1. Data, made here")
    out.say(
        f"{judged.n_queries:,} queries with {len(judged):,} documents, each with {size.features} "
        f"features and a label from 0 to 4. {test.n_queries:,} queries are set aside for the test."
    )
    out.record(queries=judged.n_queries, documents=len(judged), test_queries=test.n_queries)
    return train, test


def make_clicks(out: Output, train: JudgedLists, size: Size, seed: int) -> Simulation:
    """Sessions of simulated readers on the lists of a weak ranker."""
    with progress("simulating clicks"):
        simulation = simulate(train, "dla", n_sessions=size.sessions, seed=seed)
    log = simulation.log
    out.heading("2. Clicks")
    out.say(
        f"A weak ranker, trained on the labels of {len(simulation.truth.training_queries)} "
        f"queries, shows its top {log.depth} in {log.n_sessions:,} sessions. Readers look at a "
        f"position with a probability that falls from {simulation.truth.examination[0]:.2f} to "
        f"{simulation.truth.examination[-1]:.2f}, and click on what looks relevant."
    )
    out.record(sessions=log.n_sessions, distinct_lists=log.n_lists)
    return simulation


def look_at_clicks(out: Output, simulation: Simulation) -> None:
    """Click rate by position, beside the relevance of what is shown there."""
    rates = simulation.log.ctr_by_position()
    relevance = _relevance_by_position(simulation)
    out.heading("3. What the clicks look like")
    out.table(*rates_table(rates))
    out.say(
        f"The first position gets {rates.rate[0] / rates.rate[-1]:.0f} times the clicks of the "
        f"last, but what it shows is only {relevance[0] / relevance[-1]:.1f} times as relevant. "
        f"The rest is position bias."
    )
    out.record(click_rates=rates_record(rates), relevance_by_position=relevance)


def judge_shown_order(
    out: Output, simulation: Simulation, test: JudgedLists, seed: int
) -> dict[str, Evaluation]:
    """The quality of the lists that were shown, by the labels of queries set aside."""
    anything = child_generator(seed, 1).random(len(test))
    found = {
        "random order": evaluate(test, anything, METRIC),
        "shown order": evaluate(test, simulation.truth.rankers[0], METRIC),
    }
    out.heading("4. How good is the shown order?")
    by_chance, shown = (evaluation[METRIC].value for evaluation in found.values())
    out.say(
        f"By the labels of the test queries its {METRIC} is {shown:.3f} "
        f"(1 is perfect, a random order has {by_chance:.3f})."
    )
    return found


def train_rankers(
    out: Output, simulation: Simulation, test: JudgedLists, size: Size, seed: int
) -> dict[str, Evaluation]:
    """The same learner on raw clicks, on clicks with the bias taken out, and on labels."""
    out.heading("5. Five rankers: the same trees, other lessons")
    out.say(
        "LambdaMART learns from raw clicks; from clicks with the bias taken out in three ways, by "
        "inverse propensities (IPS) and propensity ratios (PRS), both given the true curve of step "
        "2, and by pairwise debiasing, which is given none; and from labels, which real logs do "
        "not have."
    )
    log, truth = simulation.log, simulation.truth
    lessons: dict[str, tuple[Weighting | None, ClickLog | JudgedLists]] = {
        "raw clicks": (None, log),
        "clicks, IPS": (IPS(truth.bias), log),
        UNBIASED: (PRS(truth.bias), log),
        "clicks, pairwise debiasing": (PairwiseDebiasing(), log),
        "labels": (None, truth.judged),
    }
    found = {}
    for name, (weighting, data) in lessons.items():
        with progress(f"training on {name}"):
            ranker = LambdaMART(weighting, n_trees=size.trees, seed=seed).fit(data)
        found[name] = evaluate(test, ranker, METRIC)
        out.detail(f"{name}: {found[name][METRIC]!r}")
    return found


def compare(out: Output, found: dict[str, Evaluation]) -> None:
    """All orders side by side, and how much of the gap between clicks and labels was closed."""
    estimates = {name: evaluation[METRIC] for name, evaluation in found.items()}
    out.table(
        ("", METRIC, "95% interval"),
        [
            (name, f"{e.value:.3f}", f"[{e.interval.low:.3f}, {e.interval.high:.3f}]")
            for name, e in estimates.items()
        ],
    )
    clicks, unbiased, labels = (
        estimates[name].value for name in ("raw clicks", UNBIASED, "labels")
    )
    out.record(quality={name: e.to_dict()[METRIC] for name, e in found.items()})
    if labels > clicks:
        share = (unbiased - clicks) / (labels - clicks)
        out.say(f"PRS closes {share:.0%} of the gap between raw clicks and labels.")
        out.record(share_of_gap=share)


def draw(out: Output, simulation: Simulation, found: dict[str, Evaluation], folder: Path) -> None:
    """Two pictures, and one page with both that opens without a network."""
    estimates = {name: evaluation[METRIC] for name, evaluation in found.items()}
    clicks = position_chart(
        {
            "clicks per impression": Curve.of_rates(simulation.log.ctr_by_position()),
            "how often readers look there": Curve(
                np.arange(1, simulation.truth.depth + 1), simulation.truth.examination
            ),
            "relevance of what is shown": Curve(
                np.arange(1, simulation.truth.depth + 1), _relevance_by_position(simulation)
            ),
        },
        title="Clicks fall faster than relevance",
        subtitle="band: 95% interval, clustered by query",
        value_title="probability",
    )
    quality = interval_chart(
        {name: (e.value, e.interval.low, e.interval.high) for name, e in estimates.items()},
        title="Ranking quality on test queries",
        subtitle="bar: 95% interval over queries",
        value_title=METRIC,
    )
    with progress("drawing"):
        files = [
            save_chart(clicks, folder / "clicks.png"),
            save_chart(quality, folder / "quality.png"),
            save_chart(stacked(clicks, quality), folder / "demo.html"),
        ]
    out.heading("6. Pictures")
    out.points([str(file) for file in files])
    out.record(files=files)


def _relevance_by_position(simulation: Simulation) -> FloatArray:
    """(K,) mean true relevance of what sessions show at each position."""
    log = simulation.log
    weight, place = log.row_count, log.position - 1
    relevance = simulation.truth.relevance[log.document]
    return np.bincount(place, weight * relevance) / np.bincount(place, weight)

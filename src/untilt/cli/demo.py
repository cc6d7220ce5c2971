"""The steps of the demo, each a small function that says what it does and hands on what it made."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.codec import to_plain
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt.cli.console import Output, rates_record
from untilt.data.judged import JudgedLists
from untilt.evaluation.judged import Evaluation, evaluate, systems_by_labels
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.simulation.protocols import Harvest
from untilt.simulation.simulate import Simulation, simulate
from untilt.simulation.synthetic import make_judged
from untilt.workflow.candidates import RAW
from untilt.workflow.folder import RunFolder
from untilt.workflow.run import RunResult
from untilt.workflow.run import run as run_job

METRIC = "ndcg@10"


@dataclass(frozen=True)
class DemoSize:
    """How much the demo does."""

    queries: int
    features: int
    sessions: int
    trees: int


FULL = DemoSize(queries=1500, features=30, sessions=150_000, trees=60)
QUICK = DemoSize(queries=500, features=12, sessions=40_000, trees=25)


def run(out: Output, size: DemoSize, folder: Path, *, seed: int, force: bool = False) -> None:
    """All steps, in order."""
    started = time.monotonic()
    RunFolder(folder).check(force=force)
    train, test = make_data(out, size, seed)
    simulation = make_clicks(out, train, size, seed)
    look_at_clicks(out, simulation)
    result = decide(out, simulation, size, folder, seed, force=force)
    compare_curves(out, simulation, result)
    compare_with_labels(out, simulation, result, test, size, seed)
    seconds = time.monotonic() - started
    out.record(seconds=seconds, report=result.report)
    out.say()
    out.path(f"Done in {seconds:.0f} s. The report of step 4", result.report)


def make_data(out: Output, size: DemoSize, seed: int) -> tuple[JudgedLists, JudgedLists]:
    """Judged lists, seven tenths to learn from."""
    with progress("making data"):
        judged = make_judged(size.queries, size.features, seed=seed)
        train, test = judged.split(0.7, seed=seed)
    out.heading("1. Simulated data")
    out.say(
        f"{judged.n_queries:,} queries with {len(judged):,} documents, each with {size.features} "
        f"features and a label from 0 to 4. {test.n_queries:,} queries are set aside for the end."
    )
    out.record(queries=judged.n_queries, documents=len(judged), test_queries=test.n_queries)
    return train, test


def make_clicks(out: Output, train: JudgedLists, size: DemoSize, seed: int) -> Simulation:
    """Sessions of simulated readers on the lists of three weak rankers."""
    with progress("simulating clicks"):
        simulation = simulate(train, Harvest(), n_sessions=size.sessions, seed=seed)
    log = simulation.log
    out.heading("2. Clicks")
    out.say(
        f"{len(log.ranker_names)} weak rankers share the traffic and show their top {log.depth} in "
        f"{log.n_sessions:,} sessions. Readers look at a position with a probability that falls "
        f"from {simulation.truth.examination[0]:.2f} to {simulation.truth.examination[-1]:.2f}, "
        "and click on what looks relevant. From here on only the log is known, as in real life."
    )
    out.record(sessions=log.n_sessions, distinct_lists=log.n_lists)
    return simulation


def look_at_clicks(out: Output, simulation: Simulation) -> None:
    """Click rate by position, beside the relevance of what is shown there."""
    rates = simulation.log.ctr_by_position()
    relevance = _relevance_by_position(simulation)
    out.heading("3. What the clicks look like")
    out.show(rates.view())
    out.say(
        f"The first position gets {rates.rate[0] / rates.rate[-1]:.0f} times the clicks of the "
        f"last, but what it shows is only {relevance[0] / relevance[-1]:.1f} times as relevant. "
        f"The rest is position bias."
    )
    out.record(click_rates=rates_record(rates), relevance_by_position=relevance)


def decide(
    out: Output, simulation: Simulation, size: DemoSize, folder: Path, seed: int, *, force: bool
) -> RunResult:
    """What `untilt run` does with a log: nothing of the truth is used."""
    out.heading("4. From the log to a decision, as `untilt run LOG` does it")
    result = run_job(
        simulation.log, folder, trees=size.trees, seed=seed, title="untilt demo",
        command="untilt demo", tell=out.step, force=force,
    )  # fmt: skip
    answer = result.decision.answer
    assert answer is not None
    out.show(each for each in result.view() if each.name in ("answer", "rankers"))
    out.record(
        answer=to_plain(answer.difference, said=out.said),
        verdict=answer.verdict,
        chosen=answer.new.system,
        ships=result.decision.ships,
        bias_kind=result.bias_kind,
        warnings=to_plain(result.warnings, said=out.said),
        files=sorted(str(path) for path in result.folder.iterdir() if path.is_file()),
    )
    return result


def compare_curves(out: Output, simulation: Simulation, result: RunResult) -> None:
    """The estimated examination beside the one that made the clicks."""
    bias, truth = result.bias, simulation.truth.examination
    true = truth[: bias.depth] / truth[0]
    out.heading(f"5. Was it right? Examination by {bias.method}, against the truth")
    table = bias.table()
    rows = [(*row, f"{value:.4f}") for row, value in zip(table.rows, true, strict=False)]
    out.table((*table.header, "true"), rows, table.text_columns)
    out.record(examination={"estimated": bias.examination, "true": true})


def compare_with_labels(
    out: Output,
    simulation: Simulation,
    result: RunResult,
    test: JudgedLists,
    size: DemoSize,
    seed: int,
) -> None:
    """All orders by the labels of queries set aside, and how much of the gap was closed."""
    quality = _quality(simulation, result, test, size, seed)
    estimates = {name: each[METRIC] for name, each in quality.items()}
    judged = result.decision.held_out
    chosen = RAW if judged is None else judged.chosen
    (section,) = systems_by_labels(
        {name + " *" * (name == chosen): each for name, each in quality.items()}, METRIC
    )
    title = f"6. Was it better? {METRIC} by labels of queries set aside; real logs have none"
    out.show([replace(section, title=title, cautions=())])
    out.record(quality={name: each.to_dict()[METRIC] for name, each in quality.items()})
    clicks, new, labels = (estimates[name].value for name in (RAW, chosen, "labels"))
    if labels > clicks:
        share = (new - clicks) / (labels - clicks)
        out.say(f"{chosen} closes {share:.0%} of the gap between raw clicks and labels.")
        out.record(share_of_gap=share)


def _quality(
    simulation: Simulation, result: RunResult, test: JudgedLists, size: DemoSize, seed: int
) -> dict[str, Evaluation]:
    with progress("training on labels, to compare with"):
        skyline = LambdaMART(n_trees=size.trees, seed=seed).fit(simulation.truth.judged)
    orders: dict[str, Any] = {
        "random order": child_generator(seed, 1).random(len(test)),
        "a logged order": simulation.truth.rankers[0],
        **result.candidates,
        "labels": skyline,
    }
    return {name: evaluate(test, order, METRIC) for name, order in orders.items()}


def _relevance_by_position(simulation: Simulation) -> FloatArray:
    """(K,) mean true relevance of what sessions show at each position."""
    log = simulation.log
    weight, index = log.row_count, log.position - 1
    relevance = simulation.truth.relevance[log.document]
    return np.bincount(index, weight * relevance) / np.bincount(index, weight)

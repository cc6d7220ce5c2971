"""What a run leaves: every file, and figures that belong together and are true."""

import json
import pickle
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.contract.test_portable import leaves

import untilt as ut
from untilt.report.decision import Decision
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_read import query_parts


def test_every_file_is_there(finished):
    found = {path.name for path in finished.folder.iterdir()}
    assert found == {
        *("report.html", "figures.json", "audit.json", "bias.json", "ranker.untilt", "run.toml"),
        *("candidate.untilt", "ranker.md", "provenance.json", "tables", "work"),
    }
    assert "<html" in finished.report.read_text(encoding="utf8")
    assert Decision.load(finished.folder / "figures.json") == finished.decision
    assert json.loads((finished.folder / "audit.json").read_text())["size"]["sessions"] == 8000
    # Nothing half-written, and the lock let go of.
    assert not [p for p in finished.folder.rglob(".*") if p.is_file()]


def test_rows_are_rankers_with_their_value_and_difference(finished):
    part = finished.decision.held_out
    chosen = next(each for each in part.estimates if each.system == part.chosen)
    rows = {row[0]: row[1:] for row in finished.rows()}
    assert len(rows) == len(part.estimates)
    value, difference, interval = rows[f"{part.chosen} *"]
    found = part.comparison[part.chosen]
    assert (value, difference) == (f"{chosen.value:.4f}", f"{found.value:+.4f}")
    assert interval == f"[{found.interval.low:+.4f}, {found.interval.high:+.4f}]"
    assert list(rows.values()).count((value, difference, interval)) == 1


def test_the_card_beside_the_ranker_is_that_of_the_figures(finished):
    card = (finished.folder / "ranker.md").read_text(encoding="utf8")
    assert card == ut.model_card(Decision.load(finished.folder / "figures.json"))
    assert finished.decision.candidate.method in card


def test_the_parts_share_no_query_and_are_all(made):
    log = ut.read_log(made.log, documents=made.documents)
    parts = query_parts(log, RunOptions())
    together = np.concatenate(list(parts.values()))
    assert sorted(together) == sorted(np.unique(log.query))
    assert len(parts["test"]) == round(0.2 * len(together))


def test_a_candidate_remembers_what_it_was_trained_on_and_chosen_by(finished, made):
    from untilt.data.seen import overlap_of

    log = ut.read_log(made.log, documents=made.documents)
    parts = query_parts(log, RunOptions())
    known = {
        name: overlap_of(log.take(np.isin(log.query, queries)), judged_ranker(finished))
        for name, queries in parts.items()
    }
    n_queries = {name: len(queries) for name, queries in parts.items()}
    assert {name: each.n_queries for name, each in known.items()} == n_queries
    assert [known[name].trained for name in ("train", "valid", "test")] == [
        n_queries["train"],
        0,
        0,
    ]
    assert [known[name].validated for name in ("train", "valid", "test")] == [
        0,
        n_queries["valid"],
        0,
    ]


def judged_ranker(found):
    """The chosen ranker as it was judged."""
    return found.candidates[found.decision.training.chosen]


def test_a_run_and_its_figures_can_be_pickled(finished):
    again = pickle.loads(pickle.dumps(finished))
    assert again.folder == finished.folder
    assert again.decision == finished.decision
    before, after = dict(leaves(finished.decision)), dict(leaves(again.decision))
    arrays = [path for path, each in before.items() if isinstance(each, np.ndarray)]
    assert len(arrays) > 10
    for path in arrays:
        assert before[path].flags.writeable == after[path].flags.writeable, path


def test_the_bias_is_measured_and_near_the_truth(finished, made):
    bias, true = finished.bias, made.truth.examination / made.truth.examination[0]
    assert finished.bias_kind == "randomised"
    assert ut.PositionBias.load(finished.folder / "bias.json").method == bias.method
    z = (bias.examination[1:] - true[1:]) / bias.std_error[1:]
    assert np.abs(z).max() < 4


def test_figures_can_be_had_again_with_the_library(finished, made):
    """The difference on the report is that of `estimate` on the held-out queries."""
    from untilt.data.transform import restrict_queries

    log = ut.read_log(made.log, documents=made.documents)
    test = restrict_queries(log, query_parts(log, RunOptions())["test"])
    part = finished.decision.held_out
    found = ut.estimate(
        test,
        {"shown": ut.shown, "new": judged_ranker(finished)},
        finished.bias,
        evaluator="policy-aware",
        clip=part.clip,
        baseline=finished.decision.best_logged,
    )
    difference, told = found.compare("shown")["new"], part.comparison[part.chosen]
    assert told.value == pytest.approx(difference.value)
    assert told.interval.low == pytest.approx(difference.interval.low)
    assert part[part.chosen].value == pytest.approx(found["new"].value)
    rates = log.ctr_by_position()
    assert finished.decision.audit.click_rates.rate == pytest.approx(rates.rate)


def test_tables_hold_what_the_report_holds(finished):
    rankers = pq.read_table(finished.folder / "tables" / "rankers.parquet").to_pylist()
    assert [row["ranker"] for row in rankers] == [
        *("logged order", "raw clicks", "balanced", "linear")
    ]
    assert sum(row["chosen"] for row in rankers) == 1
    moved = pq.read_table(finished.folder / "tables" / "moved.parquet").to_pydict()
    assert len(moved["value"]) == sum(
        len(each.value) for each in finished.decision.held_out.new_positions.values()
    )


def test_new_positions_are_a_reordering(finished):
    """Lists are full here, so that the average new position over old positions is (K + 1) / 2."""
    for curve in finished.decision.held_out.new_positions.values():
        depth = len(curve.position)
        assert np.mean(curve.value) == pytest.approx((depth + 1) / 2, rel=0.02)


def test_a_finished_run_is_not_done_again(finished, made, small_options):
    again = ut.run(made.log, finished.folder, documents=made.documents, **small_options)
    steps = [step.name for step in finished.decision.provenance.steps if not step.of]
    assert again.resumed == (*steps, "report")
    assert again.decision == finished.decision


def test_the_written_options_are_those_of_the_run(finished, made):
    from untilt.workflow.config import read_config
    from untilt.workflow.options import options_of

    written = read_config(finished.folder / "run.toml")
    assert written.pop("log") == str(made.log)
    options = options_of(written)
    assert (options.trees, options.threads) == (8, 1)
    assert options.method == ("clicks", "balanced", "linear")


def test_a_log_in_memory_gives_the_same(finished, made, small_options, tmp_path):
    log = ut.read_log(made.log, documents=made.documents)
    memory = ut.run(log, tmp_path / "run", title=finished.decision.title, **small_options)
    assert memory.decision.held_out.estimates == finished.decision.held_out.estimates
    assert memory.bias.to_json() == finished.bias.to_json()


@pytest.mark.slow
def test_the_interval_of_the_difference_covers_the_truth(tmp_path):
    """Twelve logs; a 95% interval misses more than 3 of 12 with probability 0.002."""
    missed = 0
    for seed in range(12):
        judged = ut.make_judged(n_queries=400, n_features=8, seed=seed)
        sim = ut.simulate(judged, "harvest", n_sessions=40_000, seed=seed)
        options: dict[str, Any] = {"trees": 40, "threads": 1, "method": ["balanced"], "seed": seed}
        found = ut.run(sim.log, tmp_path / f"{seed}", **options)
        ranker = found.candidates["balanced"]
        interval = found.decision.held_out.comparison["balanced"].interval
        true = true_difference(sim, ranker, query_parts(sim.log, RunOptions(seed=seed))["test"])
        missed += true not in interval
    assert missed <= 3


def true_difference(sim, ranker, queries):
    """By the relevance that made the clicks, on the scale of position 1."""
    log = sim.log
    relevance = sim.truth.relevance * sim.truth.examination[0]
    scores, sessions = ranker.predict(log.features), np.bincount(log.query, log.sessions)
    part = log.take(np.isin(log.query, queries))
    shown = np.sum(part.row_count * relevance[part.document] / np.log2(1 + part.position))
    new = 0.0
    for query in queries:
        documents = np.unique(log.document[np.repeat(log.query, np.diff(log.indptr)) == query])
        best = documents[np.argsort(-scores[documents], kind="stable")][:10]
        new += sessions[query] * np.sum(relevance[best] / np.log2(2 + np.arange(len(best))))
    return (new - shown) / sessions[queries].sum()


def test_null_tests_are_part_of_every_run(finished):
    part = finished.decision.held_out
    tests = part.null_tests
    assert tests.difference == pytest.approx(part.comparison[part.chosen].value)
    assert tests.same_order == 0.0
    assert tests.same_order_queries == tests.n_queries == part.estimates[0].n_queries
    assert abs(tests.permuted) < 1e-9
    assert tests.failures(part.comparison[part.chosen]) == ()
    assert finished.decision.answer.reasons == ()
    plain = json.loads((finished.folder / "figures.json").read_text())
    assert plain["held_out"]["null_tests"]["same_order"] == 0.0

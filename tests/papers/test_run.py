"""Running: cells, resuming, and that the same cell gives the same numbers."""

import errno
import json
import linecache
import os
import signal
import subprocess
import sys
import time
import tomllib
import types
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import untilt as ut
from untilt import PairwiseDebiasing, PositionBias, catalog
from untilt._core import codec
from untilt.errors import FileFormatError, OptionError, WriteError
from untilt.papers import methods
from untilt.papers.cells import Cell, Result, ResultsFile, digest, plan, points_of, run
from untilt.papers.datasets import JudgedSource
from untilt.papers.methods import curve_of, known, measure, row_at, weighting_of
from untilt.papers.page import page_name
from untilt.papers.schema import ExperimentSize, load, parse
from untilt.papers.setting import CellSetting, at_value

TEXT = """
name = "tiny"
title = "t"
document = "000"
reference = "wang2020prs"
source = "Figure 9"
question = "?"
form = "lines"
[full]
queries = 15
test_queries = 10
sessions_per_query = 20
seeds = 2
features = 6
[quick]
queries = 12
test_queries = 8
sessions_per_query = 10
seeds = 1
features = 6
points = 1
[[panel]]
name = "p"
metrics = ["ndcg@10"]
[panel.sweep]
parameter = "protocol.theta"
values = [0, 1, 2]
title = "theta"
[[row]]
name = "clicks"
title = "Clicks"
ranker = "linear"
[[row]]
name = "labels"
title = "Labels"
ranker = "linear"
train_on = "labels"
fixed = true
"""
TINY = parse(tomllib.loads(TEXT), where="tiny.toml")


def values(results):
    return {(c.row, c.x, c.seed): r.values["ndcg@10"] for c, r in results.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run(plan(TINY, JudgedSource(), tmp_path_factory.mktemp("whole")))


def test_every_combination_is_one_cell(undisturbed):
    expected = {("clicks", x, seed) for x in (0.0, 1.0, 2.0) for seed in (0, 1)}
    expected |= {("labels", None, seed) for seed in (0, 1)}  # it does not depend on theta
    assert set(values(undisturbed)) == expected


def test_the_same_cell_gives_the_same_numbers(undisturbed, tmp_path):
    again = run(plan(TINY, JudgedSource(), tmp_path), n_threads=2)
    assert values(again) == values(undisturbed)


def test_no_bias_makes_theta_one_and_zero_differ(undisturbed):
    by_cell = values(undisturbed)
    assert by_cell["clicks", 0.0, 0] != by_cell["clicks", 2.0, 0]
    assert by_cell["labels", None, 0] != by_cell["labels", None, 1]


def test_the_full_size_shares_cells_with_the_default_one(tmp_path):
    both = parse({**tomllib.loads(TEXT), "size": {**asdict(TINY.full), "seeds": 1}}, where="t")
    default, full = (
        plan(both, JudgedSource(), tmp_path),
        plan(both, JudgedSource(), tmp_path, scale="full"),
    )
    assert (len(default.cells), len(full.cells)) == (4, 8)
    run(default)
    assert len(full.finished()) == 4
    assert (page_name(default), page_name(full)) == ("000.md", "000-full.md")
    # Where a file has one size only, the full run is the default one.
    alone = plan(TINY, JudgedSource(), tmp_path, scale="full")
    assert (page_name(alone), alone.size) == ("000.md", TINY.size)


def test_a_stopped_run_goes_on_where_it_was(undisturbed, tmp_path):
    what, seen = plan(TINY, JudgedSource(), tmp_path), []

    def stop_after_three(result):
        seen.append(result.cell)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(what, on_result=stop_after_three)
    assert list(what.finished()) == seen
    after = []
    whole = run(what, on_result=lambda result: after.append(result.cell))
    assert not set(after) & set(seen)
    assert values(whole) == values(undisturbed)
    assert run(what, on_result=lambda _: pytest.fail("all was finished")) == whole


def test_a_line_that_a_kill_cut_is_run_again(undisturbed, tmp_path):
    what = plan(TINY, JudgedSource(), tmp_path)
    run(what)
    text = what.results.path.read_text()
    what.results.path.write_text(text[: len(text) - 40])
    assert len(what.finished()) == len(undisturbed) - 1
    assert values(run(what)) == values(undisturbed)
    broken, last = what.results.path.read_text().splitlines()[-2:]
    assert not broken.endswith("}")  # the rest of the cut line stays, closed off
    assert json.loads(last)["values"]


def test_killed_outright_and_started_again(undisturbed, tmp_path):
    (tmp_path / "tiny.toml").write_text(TEXT)
    code = (
        "from untilt.papers.schema import load\n"
        "from untilt.papers.cells import plan, run\n"
        "from untilt.papers.datasets import JudgedSource\n"
        "import time\n"
        "run(plan(load('tiny.toml'), JudgedSource(), 'out'), on_result=lambda r: time.sleep(0.3))\n"
    )
    running = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=os.environ.copy())
    path = tmp_path / "out" / "results" / "tiny-made.jsonl"
    limit = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size) and time.monotonic() < limit:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.wait()
    what = plan(TINY, JudgedSource(), tmp_path / "out")
    assert 0 < len(what.finished()) < len(undisturbed)
    assert values(run(what)) == values(undisturbed)


def test_a_foreign_line_is_an_error(tmp_path):
    what = plan(TINY, JudgedSource(), tmp_path)
    what.results.path.parent.mkdir()
    what.results.path.write_text('{"something": "else"}\n')
    with pytest.raises(FileFormatError, match=r"line 1 of .* is no finished cell"):
        what.finished()


def some_results(n):
    cells = [Cell("made", "p", "r", float(x), 0, 1, "abc") for x in range(n)]
    return [Result(cell, {"m": 1.5, "list": [1.0, 2.0]}, 0.1) for cell in cells]


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace("1.5", "1.6"),  # a result that somebody liked better
        lambda line: line[: len(line) // 2],
        lambda line: "",
        lambda line: "[" * 100_000,
        lambda line: line.replace("1.5", "9" * 400),
        lambda line: line.replace('"m"', '"\ufffd"'),
        lambda line: "[]",
        lambda line: "null",
        lambda line: "7" + line[1:],
    ],
)
def test_a_damaged_line_counts_as_not_there(tmp_path, damage):
    file, results = ResultsFile(tmp_path / "cells.jsonl"), some_results(3)
    for result in results:
        file.append(result)
    first, second, third = file.path.read_text().splitlines()
    file.path.write_text("\n".join([first, damage(second), third]) + "\n")
    assert list(file.read().values()) == [results[0], results[2]]
    assert file.damaged() == bool(damage(second))
    file.append(results[1])
    assert set(file.read()) == {each.cell for each in results}


def test_lines_without_a_checksum_are_read(tmp_path):
    """Those of untilt 0.2."""
    file, (result,) = ResultsFile(tmp_path / "cells.jsonl"), some_results(1)
    file.path.write_text(json.dumps(asdict(result)) + "\n")
    assert list(file.read().values()) == [result]


@pytest.mark.parametrize("values", [{"m": {}}, {"m": "x"}, {"m": [None]}, [1], {"m": 10**400}])
def test_odd_values_under_a_right_checksum_are_no_result(tmp_path, values):
    file, (result, other) = ResultsFile(tmp_path / "cells.jsonl"), some_results(2)
    file.append(result)
    record = {**asdict(other), "values": values}
    line = json.dumps({**record, "sha256": codec.checksum(record)})
    file.path.write_text(file.path.read_text() + line + "\n")
    assert list(file.read()) == [result.cell]


APPEND = """
import sys
from pathlib import Path
from untilt.papers.cells import Cell, Result, ResultsFile
file = ResultsFile(Path(sys.argv[1]))
for x in range(40):
    cell = Cell("made", "p", sys.argv[2], float(x), 0, 1, "a")
    file.append(Result(cell, {"m": [1.0] * 500}, 1.0))
"""


def test_two_processes_may_append(tmp_path):
    path = tmp_path / "cells.jsonl"
    running = [subprocess.Popen([sys.executable, "-c", APPEND, str(path), n]) for n in "ab"]
    assert [each.wait() for each in running] == [0, 0]
    assert len(ResultsFile(path).read()) == 80
    assert ResultsFile(path).damaged() == 0


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    file, (first, second) = ResultsFile(tmp_path / "cells.jsonl"), some_results(2)
    file.append(first)
    before, write = file.path.read_bytes(), os.write

    def full(handle, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device", str(file.path))
        return write(handle, data[:20])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteError, match=r"cells\.jsonl"):
        file.append(second)
    assert file.path.read_bytes() == before


def test_a_changed_method_is_another_cell(tmp_path):
    """Results of an older file are kept but not taken for the new one's."""
    run(plan(TINY, JudgedSource(), tmp_path))
    for change, left in (
        (('title = "Clicks"', 'title = "Raw clicks"'), 8),  # words change nothing
        (("queries = 15", "queries = 16"), 0),
        (('title = "Labels"\nranker = "linear"', 'title = "Labels"\nranker = "rank-svm"'), 6),
        (("seeds = 2", "seeds = 3"), 8),
    ):
        changed = parse(tomllib.loads(TEXT.replace(*change)), where="tiny.toml")
        assert len(plan(changed, JudgedSource(), tmp_path).finished()) == left


def test_quick_has_a_file_and_points_of_its_own(tmp_path):
    what = plan(TINY, JudgedSource(), tmp_path, scale="quick")
    assert what.results.path.name == "tiny-made-quick.jsonl"
    assert [(c.row, c.x) for c in what.cells] == [("labels", None), ("clicks", 0.0)]


def test_points_are_spread_over_the_axis():
    sweep = TINY.panels[0].sweep
    assert points_of(TINY.panels[0], ExperimentSize(points=2)) == (
        sweep.values[0],
        sweep.values[-1],
    )
    assert points_of(TINY.panels[0], ExperimentSize(points=9)) == sweep.values


def test_sizes_are_checked(tmp_path):
    with pytest.raises(OptionError, match="seeds must be at least 1"):
        plan(TINY, JudgedSource(), tmp_path, changes={"seeds": 0})
    with pytest.raises(OptionError, match=r"has no 'seed'. Did you mean 'seeds'\?"):
        plan(TINY, JudgedSource(), tmp_path, changes={"seed": 0})


def test_appending_is_whole_lines(tmp_path):
    file = ResultsFile(tmp_path / "deep" / "cells.jsonl")
    cells = [Cell("made", "p", "r", x, 0, 1, "abc") for x in (None, 0.5, "slight")]
    for cell in cells:
        file.append(Result(cell, {"m": 1.5, "list": [1.0, 2.0]}, 0.1))
    assert list(file.read()) == cells
    assert file.read()[cells[1]].values == {"m": 1.5, "list": [1.0, 2.0]}


# ---- settings


def setting(panel=None, **sizes):
    usual = {"queries": 30, "test_queries": 12, "sessions_per_query": 20, "features": 6}
    size = ExperimentSize(**{**usual, **sizes})
    train, test = JudgedSource().parts(seed=0, fold=1, size=size, most_queries=None)
    return CellSetting(train, test, panel or TINY.panels[0], size, seed=0)


def test_the_production_ranker_learns_from_as_many_queries_as_the_size_says():
    default, other = setting(), setting(production_queries=15)
    assert len(default.production.training_queries) == 5  # 1% of 30, and never fewer than five
    assert len(other.production.training_queries) == 15
    assert other.sim.truth.judged.n_queries == 30 - 15  # they are not among those to learn from
    again = other.repeats[0].truth.rankers[0]
    np.testing.assert_array_equal(again.weights, other.production.weights)


def test_sessions_without_a_click_are_drawn_again():
    """Of each query the first three sessions with a click of a longer log, drawn one by one."""
    made = setting(sessions_per_query=3, clicked=True)
    amount = {"sessions_per_query": 192, "collapse": False}
    longer = made._simulate(made.protocol, made.seed, **amount).log
    clicked, taken = sum_by_list(longer) > 0, []
    for query in range(longer.n_queries):
        taken += np.flatnonzero(clicked & (longer.query == query))[:3].tolist()
    log = made.log
    assert np.bincount(log.query, log.count)[np.unique(log.query)].tolist() == [3.0] * 25
    assert _contents(log) == _contents(longer.take(np.sort(taken)).collapse())


def _contents(log):
    parts = [np.split(each, log.indptr[1:-1]) for each in (log.document, log.label)]
    return sorted((tuple(d), tuple(y), int(n)) for d, y, n in zip(*parts, log.count, strict=True))


def sum_by_list(log):
    return np.add.reduceat(log.label, log.indptr[:-1])


def test_the_value_of_the_axis_reaches_the_protocol_or_the_size():
    panel, size = at_value(TINY.panels[0], ExperimentSize(), 0.25)
    assert (panel.parameters, size) == ({"theta": 0.25}, ExperimentSize())
    clicks = parse(tomllib.loads(TEXT.replace("protocol.theta", "size.clicks")), where="t").panels[
        0
    ]
    assert at_value(clicks, ExperimentSize(), 300.0)[1].clicks == 300
    assert at_value(TINY.panels[0], ExperimentSize(), None) == (TINY.panels[0], ExperimentSize())


def test_the_value_of_the_axis_reaches_the_row():
    def swept(parameter, x):
        text = TEXT.replace("protocol.theta", parameter)
        experiment = parse(tomllib.loads(text), where="t")
        return row_at(experiment.panels[0], experiment.rows[0], x)

    assert swept("weighting.clip", 0.1).weighting_options == {"clip": 0.1}
    assert swept("bias.eta", 2.0).bias_options == {"eta": 2.0}
    assert swept("option.tau", 0.5).options == {"tau": 0.5}
    assert swept("bias", "slight").bias == "slight"


def test_a_share_of_the_queries():
    assert setting(share=0.5).train.n_queries == 15


def test_the_interventions_show_the_same_lists_to_others():
    made = setting()
    assert made.shuffled.log.n_sessions == made.log.n_sessions
    assert "shuffle" in made.shuffled.log.ranker_names
    assert any(name.startswith("swap:") for name in made.swapped.log.ranker_names)
    trained = made.sim.truth.training_queries
    assert made.shuffled.truth.training_queries.tolist() == trained.tolist()


def test_the_experiment_with_swaps_may_have_a_size_of_its_own():
    made = setting(swap_sessions=700)
    assert made.swapped.log.n_sessions == 700
    assert made.log.n_sessions == setting().log.n_sessions


def test_three_rankers_share_the_harvested_traffic():
    log = setting().harvested.log
    assert len(log.ranker_names) == 3
    assert log.n_sessions == 20 * log.n_queries


def test_a_panel_may_have_several_times_the_clicks():
    panel = replace(TINY.panels[0], times=3, sweep=None)
    assert at_value(panel, ExperimentSize(clicks=100), None)[1] == ExperimentSize(clicks=300)
    assert at_value(panel, ExperimentSize(sessions_per_query=5), None)[1] == ExperimentSize(
        sessions_per_query=15
    )
    assert at_value(panel, ExperimentSize(), None)[1] == ExperimentSize()


def test_a_quadratic_by_least_squares_leaves_out_what_is_far_from_it():
    """Rates on a parabola, one of them moved away: the parabola comes back."""
    made = setting()
    made.log  # noqa: B018  draws it
    k = np.arange(1, 22)
    parabola = 1 - 0.06 * (k - 1) + 0.0015 * (k - 1) ** 2
    wobble = 0.002 * np.where(k % 2, 1, -1)
    moved = np.where(k == 7, 0.3, parabola + wobble)
    made.once("rates of swaps", lambda: PositionBias(moved, method="by hand", estimated=True))
    fitted = curve_of(made, "swap-fit", {})
    assert isinstance(fitted, PositionBias)
    fact = fitted.status.part("bias.quadratic-fitted")
    assert fact is not None
    assert fact.fields["outliers"] == (7,)
    assert np.asarray(fitted.at(k[:10])) == pytest.approx(parabola[:10], abs=0.004)


def test_what_readers_were_shown_is_worse_in_random_order():
    made = setting(panel=replace(TINY.panels[0], measure="shown-value"))
    row = replace(TINY.rows[0], options={"lists": "log"})
    value = measure(made, row)["dcg@10 shown"]
    log, gain = made.log, made.sim.truth.relevance
    lists = np.repeat(np.arange(len(log.indptr) - 1), np.diff(log.indptr))
    by_hand = sum(
        log.sessions[lists[i]] * gain[log.document[i]] / np.log2(1 + log.position[i])
        for i in range(len(log.position))
        if log.position[i] <= 10
    )
    assert value == pytest.approx(by_hand / log.n_sessions)
    shuffled = measure(made, replace(row, options={"lists": "shuffled"}))["dcg@10 shown"]
    assert isinstance(shuffled, float)
    assert isinstance(value, float)
    assert shuffled < value


def test_repeats_differ_in_clicks_alone():
    made = setting(repeats=2)
    first, second = (repeat.log for repeat in made.repeats)
    assert first.n_sessions == second.n_sessions
    assert first.query_id.tolist() == second.query_id.tolist()
    clicks = [np.dot(log.label, log.row_count) for log in (first, second)]
    assert clicks[0] != clicks[1]


def test_only_relevant_documents_without_click_are_taken_out():
    text = TEXT.replace('name = "p"', 'name = "p"\nprotocol = "prs"\nparameters = {noise = 0.0}')
    panel = parse(tomllib.loads(text.replace("protocol.theta", "protocol.eta")), where="t").panels[
        0
    ]
    made = setting(panel)
    cut, log = made.irrelevant_only(), made.log
    relevant = made.sim.truth.relevance > 0
    # Without noise only relevant documents are clicked, so the cut log shows each session's
    # clicks and its irrelevant documents.
    assert np.array_equal(cut.label > 0, relevant[cut.document])
    assert np.dot(cut.label, cut.row_count) == np.dot(log.label, log.row_count)
    kept = (log.label > 0) | ~relevant[log.document]
    assert cut.position.tolist() == log.position[kept].tolist()


def test_binary_labels_are_the_two_highest_grades():
    made = setting()
    top = made.max_label
    assert top == 4
    assert np.array_equal(made.binary(made.train).labels > 0, made.train.labels >= top - 1)


def test_unknown_names_get_the_nearest():
    made = setting()
    row = TINY.rows[0]
    with pytest.raises(OptionError, match="needs a bias"):
        weighting_of(made, type(row)(name="r", title="r", weighting="ips"))
    with pytest.raises(
        OptionError, match=r"no weighting 'isp' for experiments. Did you mean 'ips'"
    ):
        known({"ips": 1, "prs": 2}, "isp", "weighting")


def test_a_weighting_is_that_of_its_document_unless_the_row_says_otherwise():
    made, row = setting(), partial(type(TINY.rows[0]), name="r", title="r")
    joint = row(weighting="pairwise-debiasing", weighting_options={"p": 1.0})
    assert weighting_of(made, joint) == PairwiseDebiasing(p=1.0, losses="sum")
    ours = row(weighting="pairwise-debiasing", weighting_options={"losses": "mean"})
    assert weighting_of(made, ours) == PairwiseDebiasing()


def test_nothing_is_written_beside_the_results(tmp_path):
    run(plan(TINY, JudgedSource(), tmp_path, scale="quick"))
    assert sorted(str(p.relative_to(tmp_path)) for p in Path(tmp_path).rglob("*.*")) == [
        "results/tiny-made-quick.jsonl"
    ]


# ---- methods of one's own


def declared(value):
    """A weighting of one value, as a notebook declares it."""
    source = f"""
from dataclasses import dataclass
import numpy as np
import untilt as ut

@ut.method("weighting", "run-toy", title="Toy", note="a constant")
@dataclass(frozen=True)
class Toy(ut.weightings.Weighting):
    value: float = {value}

    def table(self, depth):
        return np.full((depth, depth), self.value)
"""
    linecache.cache[f"toy-{value}"] = (len(source), None, source.splitlines(True), f"toy-{value}")
    module = types.ModuleType("toy_module")
    module.__file__ = f"toy-{value}"
    sys.modules["toy_module"] = module
    exec(compile(source, f"toy-{value}", "exec"), vars(module))


@pytest.fixture
def toy():
    declared(1.0)
    yield
    sys.modules.pop("toy_module")
    catalog._added.clear()
    catalog._catalog.cache_clear()


def test_a_method_of_ones_own_is_run_again_when_its_source_changes(toy):
    row = replace(TINY.rows[0], weighting="run-toy")
    before = digest(TINY.panels[0], row, TINY.size, None)
    declared(1.0)
    assert digest(TINY.panels[0], row, TINY.size, None) == before
    declared(2.0)
    assert digest(TINY.panels[0], row, TINY.size, None) != before


def test_a_raised_version_makes_other_cells(monkeypatch):
    before = digest(TINY.panels[0], TINY.rows[0], TINY.size, None)
    monkeypatch.setitem(methods.VERSIONS, "judged", 2)
    assert digest(TINY.panels[0], TINY.rows[0], TINY.size, None) != before


def test_an_experiment_is_extended_by_rows_and_claims(toy, tmp_path):
    row = {"name": "toy", "title": "Toy", "ranker": "linear", "weighting": "run-toy",
           "options": {"l2": 0.3}, "tune": {"weighting.value": [0.5, 1.0]}}  # fmt: skip
    claim = {"text": "t", "source": "s", "kind": "above", "rows": ["toy", "linear-no-clip"]}
    given = {"extends": "000-production", "row": [row], "claim": [claim]}
    extended, base = parse(given, where="mine"), load("000-production")
    assert extended.rows[:-1] == base.rows
    assert [panel.rows[-1] for panel in extended.panels] == ["toy", "toy"]
    assert extended.claims[-1].rows == ("toy", "linear-no-clip")
    with pytest.raises(OptionError, match="extends takes"):
        parse({**given, "title": "other"}, where="mine")
    with pytest.raises(OptionError, match="Did you mean '000-production'"):
        parse({**given, "extends": "000-producton"}, where="mine")


def test_an_experiment_is_run_from_python(tmp_path):
    made = ut.reproduce(tomllib.loads(TEXT), out=tmp_path, seeds=1)
    assert made.plan.finished().keys() == set(made.plan.cells)
    assert {point.row for point in made.summary.points.values()} == {"clicks", "labels"}
    assert "ndcg@10 by theta" in str(made)
    assert [path.name for path in made.files] == ["tiny-made.svg", "000.md"]
    again = ut.reproduce(tomllib.loads(TEXT), out=tmp_path, seeds=1)
    assert again.summary.points == made.summary.points


def test_the_published_regression_em_finds_examination_where_features_say_all():
    """Relevance is in the features: posteriors and trees then settle near the true curve."""
    made = setting(queries=150, sessions_per_query=60)
    drawn = np.asarray(curve_of(made, "regression-em-draws", {}).at(np.arange(1, 6)))
    truth = made.sim.truth.examination[:5]
    assert drawn[0] == 1
    assert np.all(np.diff(drawn) < 0.05)
    np.testing.assert_allclose(drawn, truth / truth[0], atol=0.15)

"""Means, shares of the gap, claims, tables, charts and the page, from results written by hand."""

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from untilt._core.statistics import student_quantile
from untilt.errors import OptionError
from untilt.papers.cells import Cell, Result, plan
from untilt.papers.chart import chart_of, compared, tables_of
from untilt.papers.claims import FAILS, HOLDS, OPEN, Summary, verdicts
from untilt.papers.datasets import JudgedSource
from untilt.papers.page import markdown, publish
from untilt.papers.schema import load, names, parse
from untilt.views import Table

HEAD = """
name = "hand"
title = "By hand"
document = "003"
reference = "hu2019unbiased"
source = "Table 9"
question = "?"
form = "{form}"
[full]
[quick]
"""
TABLE = (
    HEAD.format(form="table")
    + """
[[panel]]
name = "p"
metrics = ["ndcg@10", "map"]
[[row]]
name = "low"
title = "Clicks"
[[row]]
name = "mid"
title = "Method"
[[row]]
name = "high"
title = "Labels"
[[reported]]
row = "low"
source = "Yahoo"
values = { "ndcg@10" = 0.5 }
[[reported]]
row = "mid"
source = "Yahoo"
values = { "ndcg@10" = 0.7 }
[[reported]]
row = "high"
source = "Yahoo"
values = { "ndcg@10" = 0.9 }
"""
)
LINES = (
    HEAD.format(form="lines")
    + """
[[panel]]
name = "p"
metrics = ["ndcg@10"]
[panel.sweep]
parameter = "protocol.theta"
values = [0, 1, 2]
title = "theta"
[[row]]
name = "a"
title = "A"
[[row]]
name = "b"
title = "B"
[[row]]
name = "f"
title = "Fixed"
fixed = true
"""
)


def experiment(text, claims=""):
    return parse(tomllib.loads(text + claims), where="hand.toml")


def results(values):
    """(row, x, seed) -> value, or values by metric."""
    found = {}
    for (row, x, seed), value in values.items():
        cell = Cell("made", "p", row, x, seed, 1, "of")
        by_metric = value if isinstance(value, dict) else {"ndcg@10": value}
        found[cell] = Result(cell, by_metric, 1.0)
    return found


@pytest.fixture
def by_hand():
    runs = {"low": [0.4, 0.5, 0.6], "mid": [0.5, 0.6, 0.7], "high": [0.6, 0.8, 1.0]}
    values = {(row, None, seed): v for row, column in runs.items() for seed, v in enumerate(column)}
    return Summary(experiment(TABLE), results(values))


def test_mean_and_interval_over_runs(by_hand):
    point = by_hand.point("p", "low", "ndcg@10")
    assert point.value == pytest.approx(0.5)
    # s = 0.1, n = 3, and Student's t at 97.5% with two degrees of freedom is 4.3027
    assert point.interval.high - 0.5 == pytest.approx(4.302653 * 0.1 / np.sqrt(3), rel=1e-6)


def test_the_table_has_the_document_beside_it(by_hand):
    (table,) = tables_of(by_hand)
    assert table.header == ("method", "ndcg@10", "ndcg@10 in 003")
    assert table.rows[1][0] == "Method"
    assert table.rows[1][1].startswith("0.6000 ±")
    assert table.rows[1][2] == "0.7000"


def test_data_sets_stand_beside_each_other_and_the_document(by_hand):
    (table,) = compared([by_hand, by_hand])
    assert table.header == ("p, ndcg@10", "003 (Yahoo)", "make_judged", "make_judged")
    assert table.rows[1] == ("Method", "0.7000", *[tables_of(by_hand)[0].rows[1][1]] * 2)


def test_seeds_of_a_fold_are_one_run():
    """Two seeds of each of three folds: three numbers, their means."""
    values = {(1, 0): 0.4, (1, 1): 0.6, (2, 0): 0.5, (2, 1): 0.7, (3, 0): 0.9, (3, 1): 0.9}
    cells = {
        Cell("mq2008", "p", "low", None, seed, fold, ""): v for (fold, seed), v in values.items()
    }
    summary = Summary(
        experiment(TABLE), {c: Result(c, {"ndcg@10": v}, 1.0) for c, v in cells.items()}
    )
    point = summary.point("p", "low", "ndcg@10")
    assert dict(point.runs) == pytest.approx({1: 0.5, 2: 0.6, 3: 0.9})
    assert summary.n_runs == 3


def test_markdown_shows_the_cells():
    table = Table(("method", "a|b"), (("x", "1.0"), ("longer", "22.0")), "t")
    assert markdown(table) == [
        "|method|a\\|b|",
        "|---|---:|",
        "|x|1.0|",
        "|longer|22.0|",
    ]


# ---- claims

CLAIM = """
[[claim]]
text = "t"
source = "s"
kind = "{kind}"
rows = {rows}
"""


def sweep_results(noise=0.001):
    """A falls from 0.9 by 0.1 a step, B from 0.8 by 0.2; F stays at 0.7. Runs differ a little."""
    values = {}
    for seed in range(4):
        shift = noise * seed
        for step, x in enumerate((0.0, 1.0, 2.0)):
            values["a", x, seed] = 0.9 - 0.1 * step + shift
            values["b", x, seed] = 0.8 - 0.2 * step + 2 * shift
        values["f", None, seed] = 0.7 + shift
    return results(values)


def decided(kind, rows, more="", noise=0.001):
    text = CLAIM.format(kind=kind, rows=json.dumps(rows)) + more
    (verdict,) = verdicts(Summary(experiment(LINES, text), sweep_results(noise)))
    return verdict


@pytest.mark.parametrize(
    ("kind", "rows", "more", "value", "verdict"),
    [
        ("above", ["a", "b"], "", (0.1 + 0.2 + 0.3) / 3, HOLDS),
        ("above", ["b", "a"], "", -(0.1 + 0.2 + 0.3) / 3, FAILS),
        ("below", ["b", "a"], "", (0.1 + 0.2 + 0.3) / 3, HOLDS),
        ("above", ["a", "f"], "at = [0]", 0.2, HOLDS),  # a fixed row has its value everywhere
        ("falls", ["a"], "", 0.2, HOLDS),
        ("rises", ["a"], "", -0.2, FAILS),
        ("falls", ["b"], "at = [0, 1]", 0.2, HOLDS),
        ("rises", ["b"], "at = [2, 0]", 0.4, HOLDS),  # in the order of `at`
        ("gains-more", ["a", "b"], "", 0.2, HOLDS),
        ("similar", ["a", "b"], "at = [0]\nmargin = 0.15", 0.1, HOLDS),
        ("similar", ["a", "b"], "at = [0]\nmargin = 0.05", 0.1, FAILS),
        ("similar", ["a", "b"], "at = [0]\nmargin = 0.1", 0.1, OPEN),
        ("similar", ["a"], "at = [1]\nvalue = 0.75\nmargin = 0.1", 0.05, HOLDS),
        ("similar", ["a"], "at = [1]\nmargin = 0.1", 0.8, FAILS),  # without a value: 0
        ("closer", ["b", "a"], 'target = "f"', (0.2 + 0.1 + 0.0 - 0.1 - 0.1 - 0.3) / 3, FAILS),
    ],
)
def test_claims_by_hand(kind, rows, more, value, verdict):
    found = decided(kind, rows, more)
    assert found.value == pytest.approx(value, abs=0.004)
    assert found.verdict == verdict
    assert found.n_runs == 4


def test_better_than_all_is_decided_by_the_nearest():
    found = decided("above", ["a", "b", "f"], "at = [0]")
    assert (found.verdict, found.sides, found.against) == (HOLDS, (2, 0, 2), "B")
    assert "against B" in found.sentence


def test_better_than_all_needs_a_clear_lead_over_each():
    """The least lead is clear, and a larger one is not: its row varies too much, and is shown."""
    values: dict[tuple[str, float | None, int], float] = {}
    for seed, shift in enumerate((-0.3, 0.3, -0.3, 0.3)):
        noise = 0.001 * seed
        values["a", 0.0, seed], values["b", 0.0, seed] = 0.9, 0.8 + noise
        values["f", None, seed] = 0.7 + shift
    claim = CLAIM.format(kind="above", rows='["a", "b", "f"]')
    (found,) = verdicts(Summary(experiment(LINES, claim), results(values)))
    assert (found.against, found.sides, found.verdict) == ("Fixed", (1, 0, 2), OPEN)


def test_several_others_and_many_x_are_one_test_for_each_other():
    """Mean leads over x: 0.2 over B, and 0.2, 0.1 and 0 over F."""
    found = decided("above", ["a", "b", "f"])
    assert (found.sides, found.at) == ((2, 0, 2), None)
    assert (found.against, found.value) == ("Fixed", pytest.approx(0.1, abs=0.004))


def test_a_noisy_difference_stays_open():
    assert decided("above", ["a", "b"], "at = [0]", noise=0.1).verdict == OPEN


def test_every_x_has_a_test_of_its_own():
    """A is above F at 0 and 1 and equal at 2: the mean over x hides that."""
    found = decided("above", ["a", "f"], "every = true")
    assert decided("above", ["a", "f"]).verdict == HOLDS
    assert (found.verdict, found.sides) == (OPEN, (2, 0, 3))
    assert (found.at, found.value) == (2, pytest.approx(0.0, abs=1e-9))


@pytest.mark.parametrize(
    ("rows", "sides", "verdict"),
    [
        (["a", "b"], (3, 0, 3), HOLDS),
        (["b", "a"], (0, 3, 3), FAILS),
        (["a", "b", "f"], (5, 0, 6), OPEN),
        (["f", "b"], (2, 1, 3), FAILS),
    ],
)
def test_a_claim_about_every_point_needs_every_point(rows, sides, verdict):
    found = decided("above", rows, "every = true")
    assert (found.sides, found.verdict) == (sides, verdict)
    assert f"{sides[0]} of {sides[2]} tests" in found.sentence


def test_a_conjunction_needs_no_correction_and_one_against_it_does():
    """p of two tests: 0.03 each for; then one of them against. At 5% alone, and by Holm 0.06."""
    t3 = student_quantile(1 - 0.03, 3)
    shape = np.array([-1.5, -0.5, 0.5, 1.5])
    lead = t3 * shape.std(ddof=1) / 2  # t = lead / (s / sqrt(4)) gives p = 0.03

    def found(of_f):
        values = {}
        for seed, shift in enumerate(shape):
            values["a", 0.0, seed] = 0.0
            values["b", 0.0, seed] = -(lead + shift)
            values["f", None, seed] = -(of_f * lead + shift)
        claim = CLAIM.format(kind="above", rows='["a", "b", "f"]')
        return verdicts(Summary(experiment(LINES, claim), results(values)))[0]

    assert (found(1).verdict, found(1).sides) == (HOLDS, (2, 0, 2))
    against = found(-1)
    assert (against.verdict, against.sides, against.against) == (OPEN, (1, 0, 2), "Fixed")
    assert against.interval.low < 0 < against.interval.high  # at the level of Holm's step
    assert found(-3).verdict == FAILS


def test_every_step_has_a_test_of_its_own():
    """A falls by 0.1 at every step; B gains nothing on it, by 0.1 a step."""
    found = decided("falls", ["a"], "every = true", noise=0.0)
    assert (found.verdict, found.sides, found.value) == (HOLDS, (2, 0, 2), pytest.approx(0.1))
    found = decided("gains-more", ["b", "a"], "every = true")
    assert (found.verdict, found.sides) == (FAILS, (0, 2, 2))
    assert " at 0 to 1, interval -0.1" in found.sentence


def test_steps_are_those_that_the_claim_names():
    found = decided("falls", ["a"], "every = true\nat = [0, 2]", noise=0.0)
    assert (found.sides, found.value) == ((1, 0, 1), pytest.approx(0.2))


def test_every_is_refused_where_one_x_says_nothing():
    with pytest.raises(OptionError, match="'every' asks each x alone"):
        decided("similar", ["a", "b"], "every = true")


def test_one_gap_is_larger_than_another():
    found = decided("larger-gap", ["a", "b", "f", "b"], "at = [1]")
    # at 1: a - b = 0.8 - 0.6, f - b = 0.7 - 0.6
    assert found.value == pytest.approx(0.1, abs=0.004)
    assert (found.verdict, found.against) == (HOLDS, "")


def test_one_run_decides_nothing():
    one = {cell: r for cell, r in sweep_results().items() if cell.seed == 0}
    text = CLAIM.format(kind="falls", rows='["a"]')
    (verdict,) = verdicts(Summary(experiment(LINES, text), one))
    assert (verdict.verdict, verdict.interval) == (OPEN, None)
    assert "in one run" in verdict.sentence


def test_a_verdict_gives_its_figures():
    found = decided("below", ["b", "a"], "at = [2]")
    low, high = found.interval.low, found.interval.high
    assert found.sentence == f"+{found.value:.4f}, interval +{low:.4f} to +{high:.4f} over 4 runs"


def test_what_is_undecided_says_how_many_runs_would_decide_it():
    """A - B at 0 is 0.1 - 0.1 seed: mean -0.05, spread 0.1 sqrt(5/3), t(n - 1) s < 0.05 sqrt(n)."""
    found = decided("above", ["a", "b"], "at = [0]", noise=0.1)
    spread = 0.1 * np.sqrt(5 / 3)
    enough = [n for n in range(2, 200) if student_quantile(0.95, n - 1) * spread < 0.05 * n**0.5]
    assert found.runs_needed == enough[0] == 29
    assert "about 29 runs with this spread would decide it" in found.sentence


def test_no_number_of_runs_decides_what_does_not_differ():
    found = decided("above", ["a", "f"], "at = [2]", noise=0.0)
    assert found.verdict == OPEN
    assert found.runs_needed is None
    assert "more than 1,000 runs" in found.sentence


def test_panels_of_one_run_are_one_number():
    """Two panels with the same four runs: four numbers, not eight."""
    text = LINES.replace("[[row]]", '[[panel]]\nname = "q"\n[[row]]', 1)
    both = sweep_results()
    for cell, result in sweep_results().items():
        if cell.x is None or cell.x == 0.0:
            other = replace(cell, panel="q", x=None)
            both[other] = replace(result, cell=other)
    claim = CLAIM.format(kind="above", rows='["a", "b"]')
    (verdict,) = verdicts(Summary(experiment(text, claim), both))
    assert verdict.n_runs == 4
    assert verdict.value == pytest.approx(((0.1 + 0.2 + 0.3) / 3 + 0.1) / 2, abs=0.004)


def test_two_metrics_of_one_row_are_compared():
    text = LINES.replace('["ndcg@10"]', '["t+", "t-"]').replace("[panel.sweep]", "[unused]")
    text = text.split("[unused]")[0] + text[text.index("[[row]]") :]
    curves = {("a", None, s): {"t+": [1.0, 0.5 + s / 100], "t-": [1.0, 0.9]} for s in range(3)}
    claim = CLAIM.format(kind="gains-more", rows='["a:t-", "a:t+"]')
    (verdict,) = verdicts(Summary(experiment(text, claim), results(curves)))
    assert verdict.value == pytest.approx(-0.1 - (-0.49))
    assert verdict.verdict == HOLDS


# ---- charts and pages


@pytest.mark.parametrize("form", ["table", "lines", "bars"])
def test_charts_hold_every_mean(form):
    text = (TABLE if form == "table" else LINES).replace('form = "lines"', f'form = "{form}"')
    if form == "table":
        values = {(row, None, s): v for row, v in (("low", 0.1), ("mid", 0.2), ("high", 0.3))
                  for s in range(2)}  # fmt: skip
        found = results(values)
    else:
        found = sweep_results()
    summary = Summary(experiment(text), found)
    spec = chart_of(summary, data="make_judged").to_dict()
    drawn = json.dumps(spec)
    for point in summary.points.values():
        assert str(point.value) in drawn


def test_the_page_says_what_the_tables_say(by_hand, tmp_path):
    text = TABLE + CLAIM.format(kind="above", rows='["mid", "low"]')
    text += CLAIM.format(kind="above", rows='["low", "mid"]')
    text += '[[untested]]\ntext = "People liked it."\nsource = "Table 4"\nreason = "No people."\n'
    hand = experiment(text.replace('document = "003"', 'document = "mine"'))
    what = plan(hand, JudgedSource(), tmp_path)
    cells = {cell: cell for cell in what.cells}
    for cell, result in _as_planned(by_hand, cells).items():
        what.results.append(Result(cell, result, 1.0))
    files = publish(what, tmp_path)
    assert [f.name for f in files] == ["hand-made.svg", "mine.md"]
    written = (tmp_path / "mine.md").read_text()
    (table,) = compared([Summary(hand, what.finished())])
    for line in markdown(table):
        assert line in written
    assert "(hand-made.svg)" in written
    assert "|t|s|**holds** +0.1" in written
    assert "|t|s|**does not hold** -0.1" in written
    assert "- People liked it. (Table 4): No people." in written


def test_results_of_earlier_code_are_told_and_not_shown(tmp_path):
    what = plan(experiment(TABLE), JudgedSource(), tmp_path)
    first, *others = what.cells
    what.results.append(Result(replace(first, of="earlier"), {"ndcg@10": 0.25, "map": 0.25}, 1.0))
    for cell in others:
        what.results.append(Result(cell, {"ndcg@10": 0.5, "map": 0.5}, 1.0))
    (_, path) = publish(what, tmp_path)
    total = len(what.cells)
    assert f"{total - 1} of {total} cells finished, 1 stale" in path.read_text()
    assert "0.25" not in path.read_text()


def _as_planned(summary, cells):
    values = {}
    for cell in cells:
        point = summary.point("p", cell.row, "ndcg@10")
        shift = {"low": 0.0, "mid": 0.001, "high": 0.002}[cell.row] * cell.seed
        values[cell] = {"ndcg@10": point.value + shift}
    return values


@pytest.mark.parametrize("name", names())
def test_every_experiment_has_a_claim_or_figures_of_its_document(name):
    known = load(name)
    assert known.claims or known.reported


@pytest.mark.parametrize(
    ("data", "figure", "source"),
    [("mslr-web30k", 0.4132, "MSLR-WEB30K"), ("mq2008", 0.7589, "Yahoo set 1")],
)
def test_the_document_s_figures_are_those_of_the_same_data_where_it_has_them(data, figure, source):
    """001 Table 2 has two columns of data; on any other data the first stands beside."""
    experiment = load("001-table-2")
    panel, row = experiment.panels[0], experiment.row("loss-opt")
    cell = Cell(data, panel.name, row.name, None, 0, 1, "")
    summary = Summary(experiment, {cell: Result(cell, {"ndcg@10": 0.5}, 1.0)})
    assert summary.reported(panel, row, "ndcg@10") == figure
    assert f"ndcg@10 in 001 ({source})" in tables_of(summary)[0].header

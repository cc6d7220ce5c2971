"""Grids: cells for positions. Estimators find the truth of readers that are known, whatever way
they read; weights, rankers and estimates over cells are those over positions."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import untilt as ut
from untilt.bias.given import best_cells_first, numbered_for
from untilt.errors import BadRowsError, OptionError, ShapeError
from untilt.evaluation.slots import as_rank_metric

GRID = ut.Grid(3, 4)
READERS = ("rows", "columns", "f-shape")


@pytest.fixture(scope="module")
def judged():
    return ut.make_judged(200, 8, seed=0)


@pytest.fixture(scope="module")
def made(judged):
    def log(reader, shown, n_sessions=30_000):
        return ut.simulate_grid(
            judged, GRID, reader, shown=shown, n_sessions=n_sessions, seed=3, n_threads=1
        )

    return log


def off(bias, truth):
    """How many standard errors each cell is off, on the log scale."""
    theta = truth / truth[0]
    return np.log(bias.examination / theta)[1:] / (bias.std_error / bias.examination)[1:]


# ---- the layout


def test_cells_are_numbered_row_by_row():
    assert GRID.row.tolist() == [1] * 4 + [2] * 4 + [3] * 4
    assert GRID.column.tolist() == [1, 2, 3, 4] * 3
    assert [GRID.cell(1, 1), GRID.cell(2, 1), GRID.cell(3, 4)] == [1, 5, 12]
    assert GRID.name(7) == "row 2, column 3"
    turned = GRID.ordered(np.array([12, *range(1, 12)]))
    assert turned.name(1) == "row 3, column 4"
    assert turned.cell(3, 4) == 1
    one, two = ut.Grid(2, 2).neighbours()
    assert sorted(zip(one.tolist(), two.tolist(), strict=True)) == [(1, 2), (1, 3), (2, 4), (3, 4)]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (40, 26), (2.5, 3), ("3", 4), (True, 3)])
def test_a_grid_has_cells_and_not_too_many(shape):
    with pytest.raises(OptionError, match="at least one row and one column"):
        ut.Grid(*shape)


def test_readers_are_what_they_are_called():
    rows, columns, f = (
        ut.grid_examination(GRID, reader).reshape(GRID.rows, GRID.columns)  # type: ignore[arg-type]
        for reader in READERS
    )
    assert np.all(np.diff(rows.ravel()) < 0)
    assert np.all(np.diff(columns.T.ravel()) < 0)
    assert np.all(np.diff(f, axis=0) < 0)
    assert np.all(np.diff(f, axis=1) < 0)
    assert f[0, -1] / f[0, 0] > f[2, -1] / f[2, 0]  # less far along each further row
    with pytest.raises(OptionError, match="reader must be one of"):
        ut.grid_examination(GRID, "diagonal")  # type: ignore[arg-type]


# ---- the truth is found


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("shown", "estimator"),
    [
        ("harvest", ut.AllPairs()),
        ("harvest", ut.AllPairs(unjoined="bounds")),
        ("swap", ut.PivotSwap()),
        ("shuffle", ut.ShuffledTop()),
    ],
    ids=["harvesting", "harvesting with bounds", "swaps", "shuffles"],
)
def test_estimators_find_the_truth_within_their_errors(made, reader, shown, estimator):
    simulation = made(reader, shown)
    bias = estimator.fit(simulation.log).bias_
    assert bias.layout == GRID
    z = off(bias, simulation.truth.examination)
    assert np.max(np.abs(z)) < 4
    assert np.sqrt(np.mean(z**2)) < 2


def test_regression_em_over_cells(made):
    """EM leans on its model of relevance: it finds the order of the cells and most of the fall."""
    simulation = made("f-shape", "harvest")
    bias = ut.RegressionEM(seed=0).fit(simulation.log).bias_
    truth = simulation.truth.examination / simulation.truth.examination[0]
    assert bias.layout == GRID
    assert np.corrcoef(np.log(bias.examination), np.log(truth))[0, 1] > 0.98
    assert np.max(np.abs(np.log(bias.examination / truth))) < 0.35


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_intervals_hold_the_truth_as_often_as_they_say(judged, reader):
    held = {"plain": [], "smooth": []}
    errors = {"plain": [], "smooth": []}
    for seed in range(40):
        made = ut.simulate_grid(judged, GRID, reader, n_sessions=2500, seed=seed, n_threads=1)
        bias = ut.AllPairs().fit(made.log).bias_
        truth = made.truth.examination / made.truth.examination[0]
        for name, each in (("plain", bias), ("smooth", bias.smooth())):
            held[name].append((each.low <= truth) & (truth <= each.high))
            errors[name].append(np.log(each.examination / truth)[1:])
    covered = {name: np.mean(np.array(each)[:, 1:]) for name, each in held.items()}
    spread = {name: np.sqrt(np.mean(np.square(each))) for name, each in errors.items()}
    assert 0.91 < covered["plain"] < 0.99, covered
    assert 0.91 < covered["smooth"] < 0.99, covered
    assert spread["smooth"] < spread["plain"], spread


# ---- the smooth prior


def noisy(error, seed=0):
    rng = np.random.default_rng(seed)
    truth = ut.grid_examination(GRID, "rows")
    theta = truth * np.exp(error * rng.normal(size=GRID.size))
    theta[0] = 1.0
    spread = np.where(np.arange(GRID.size) > 0, error * theta, 0.0)
    return truth, ut.PositionBias(theta, covariance=np.diag(spread**2), layout=GRID)


def test_smoothing_draws_cells_to_their_neighbours_as_far_as_errors_allow():
    gains = []
    for seed in range(20):
        truth, bias = noisy(0.3, seed)
        smoothed = bias.smooth()
        assert smoothed.layout == GRID
        assert np.mean(smoothed.uncertainty) < np.mean(bias.uncertainty)
        gains.append(
            np.sum(np.log(bias.examination / truth) ** 2)
            - np.sum(np.log(smoothed.examination / truth) ** 2)
        )
    assert np.mean(gains) > 0
    _, sharp = noisy(1e-4)
    assert sharp.smooth().examination == pytest.approx(sharp.examination, rel=1e-3)


def test_smoothing_is_the_posterior_by_hand():
    """Two cells: z ~ N(0, s2), estimate ~ N(z, v): the posterior mean is z^ s2 / (s2 + v)."""
    grid, error = ut.Grid(1, 2), 0.4
    bias = ut.PositionBias([1.0, np.exp(-1.0)], covariance=np.diag([0, (error * np.exp(-1)) ** 2]),
                           layout=grid)  # fmt: skip
    found = np.log(bias.smooth().examination[1])
    v = error**2
    s2 = max(1.0 - v, 0)  # the likeliest variance of one z^ = -1 is z^2 - v
    assert found == pytest.approx(-s2 / (s2 + v), rel=1e-3)


def test_a_matrix_that_is_no_covariance_leaves_the_curve_as_it_is():
    """Its direction of negative variance has none: (1, -1) here, of the last two cells."""
    grid, theta = ut.Grid(1, 3), np.array([1.0, 0.5, 0.25])
    V = np.array([[0, 0, 0], [0, 1, 2], [0, 2, 1]])
    bias = ut.PositionBias(theta, covariance=V * np.outer(theta, theta) * 1e-2, layout=grid)
    found = np.log(bias.smooth().examination)
    assert found[1] - found[2] == pytest.approx(np.log(2), abs=1e-3)


def test_a_curve_has_no_more_values_than_its_grid_has_cells():
    ut.PositionBias(np.ones(5), layout=ut.Grid(2, 3))
    with pytest.raises(ShapeError, match="7 values for the 6 cells"):
        ut.PositionBias(np.ones(7), layout=ut.Grid(2, 3))
    with pytest.raises(OptionError, match="layout must be a Grid"):
        ut.PositionBias(np.ones(6), layout="2x3")  # type: ignore[arg-type]


def test_a_curve_without_errors_or_grid_is_not_smoothed_over_one():
    with pytest.raises(OptionError, match="no standard errors"):
        ut.PositionBias(ut.grid_examination(GRID), layout=GRID).smooth()


# ---- reading and writing


def table(log: ut.ClickLog) -> pd.DataFrame:
    owner = np.repeat(np.arange(log.n_lists), np.diff(log.indptr))
    grid: Any = log.layout
    return pd.DataFrame(
        {
            "query_id": log.query[owner],
            "session_id": owner,
            "doc_id": log.doc_id[log.document],
            "row": grid.row[log.position - 1],
            "column": grid.column[log.position - 1],
            "click": log.label.astype(int),
            "count": log.count[owner],
        }
    )


@pytest.fixture(scope="module")
def log(made):
    return made("f-shape", "harvest", n_sessions=3000).log


def same(one: ut.ClickLog, two: ut.ClickLog) -> bool:
    return one.layout == two.layout and all(
        np.array_equal(getattr(one, name), getattr(two, name))
        for name in ("query", "indptr", "position", "label", "count")
    )


def test_rows_and_columns_are_read_as_cells(log):
    rows = table(log)
    read = ut.read_log(rows)
    assert read.layout == GRID
    assert read.n_sessions == log.n_sessions
    assert np.dot(read.label, read.row_count) == np.dot(log.label, log.row_count)
    one, two = (np.bincount(each.position, each.row_count, 13) for each in (read, log))
    assert np.array_equal(one, two)
    other = rows.rename(columns={"row": "y", "column": "x"})
    assert same(ut.read_log(other, columns={"row": "y", "column": "x"}), read)
    zero = rows.assign(row=rows.row - 1, column=rows.column - 1)
    assert same(ut.read_log(zero, positions_from=0), read)
    # A position goes first where there is one, unless the cells are asked for.
    both = rows.assign(position=read.layout.columns * (rows.row - 1) + rows.column)
    assert ut.read_log(both).layout is None
    assert same(ut.read_log(both, columns={"row": "row", "column": "column"}), read)


def test_a_larger_grid_and_cells_outside_of_it(log):
    rows = table(log)
    larger = ut.read_log(rows, grid=(5, 6))
    assert larger.layout == ut.Grid(5, 6)
    assert larger.depth == 2 * 6 + 4
    with pytest.raises(BadRowsError, match=r"outside of 2 x 4\n.*: row, column = 3, \d\n"):
        ut.read_log(rows, grid=(2, 4))
    with pytest.raises(OptionError, match="no columns row and column"):
        ut.read_log(rows.assign(position=1).drop(columns=["row", "column"]), grid=(3, 4))
    with pytest.raises(OptionError, match="names only 'row'"):
        ut.read_log(rows, columns={"row": "row"})
    with pytest.raises(OptionError, match=r"grid must be \(rows, columns\)"):
        ut.read_log(rows, grid=(3,))  # type: ignore[arg-type]


def test_a_grid_is_written_and_read_again(log, tmp_path):
    ut.write_log(log, tmp_path / "log.parquet", documents=tmp_path / "documents.parquet")
    again = ut.read_log(tmp_path / "log.parquet", documents=tmp_path / "documents.parquet")
    ut.write_log(again, tmp_path / "two.parquet", documents=tmp_path / "documents.parquet")
    assert same(
        again, ut.read_log(tmp_path / "two.parquet", documents=tmp_path / "documents.parquet")
    )
    assert again.layout == GRID
    turned = best_cells_first(ut.PositionBias(ut.grid_examination(GRID, "columns"), layout=GRID))
    ut.write_log(numbered_for(again, turned), tmp_path / "turned.parquet", drop_unshown=True)
    back = ut.read_log(tmp_path / "turned.parquet", features="*")
    assert np.array_equal(np.bincount(back.position, back.row_count),
                          np.bincount(again.position, again.row_count))  # fmt: skip


def test_collapsing_is_exact_over_cells(judged):
    apart = ut.simulate_grid(judged, GRID, n_sessions=800, seed=0, collapse=False, n_threads=1).log
    one, two = (ut.AllPairs().fit(each).bias_ for each in (apart, apart.collapse()))
    assert one.examination == pytest.approx(two.examination, rel=1e-12)
    assert apart.collapse().layout == GRID


# ---- weights and evaluation


def test_a_ranker_over_cells_is_the_ranker_over_their_numbers(made):
    simulation = made("columns", "harvest")
    theta = simulation.truth.examination
    grid = ut.LambdaMART(weighting=ut.PRS(ut.PositionBias(theta, layout=GRID)), n_trees=5,
                         n_threads=1).fit(simulation.log)  # fmt: skip
    plain = ut.LambdaMART(weighting=ut.PRS(ut.PositionBias(theta)), n_trees=5, n_threads=1).fit(
        replace(simulation.log, layout=None)
    )
    features = simulation.log.features
    assert grid.predict(features) == pytest.approx(plain.predict(features), rel=1e-9)


def test_the_best_document_goes_to_the_cell_that_is_looked_at_most(made):
    simulation = made("columns", "harvest")
    log, theta = simulation.log, simulation.truth.examination
    bias = ut.PositionBias(theta, layout=GRID)
    turned = best_cells_first(bias)
    assert np.all(np.diff(turned.examination) <= 0)
    assert turned.layout.name(2) == "row 2, column 1"
    numbered = numbered_for(log, turned)
    assert np.array_equal(
        np.bincount(numbered.position, numbered.row_count, 13)[1:],
        np.bincount(log.position, log.row_count, 13)[1:][turned.layout.number - 1],
    )
    assert same(numbered_for(numbered, bias), log)
    with pytest.raises(OptionError, match=r"grid of 3 x 4 cells.*of a list"):
        numbered_for(replace(log, layout=None), bias)


@pytest.mark.parametrize("reader", READERS)
def test_an_estimate_of_expected_clicks_finds_the_truth(made, reader):
    """The value of an order is sum theta(cell) gamma: by metric="examination" from clicks on
    another order, by the truth from the gammas."""
    simulation = made(reader, "harvest", n_sessions=20_000)
    log, truth = simulation.log, simulation.truth
    theta = truth.examination
    gamma = np.asarray(truth.relevance)
    scores = gamma + 1e-6 * np.arange(len(gamma))
    estimated = ut.AllPairs().fit(log).bias_
    found = ut.estimate(
        log, {"best": scores, "shown": ut.shown}, estimated, metric="examination", unshown=False
    )
    total = shown = 0.0
    for i in range(log.n_lists):
        rows = slice(log.indptr[i], log.indptr[i + 1])
        document, cell = log.document[rows], log.position[rows] - 1
        slots = -np.sort(-theta[cell])
        best = gamma[document][np.argsort(-scores[document])]
        total += log.count[i] * float(best @ slots)
        shown += log.count[i] * float(gamma[document] @ theta[cell])
    best, now = found["best"], found["shown"]
    # theta is known relative to the first cell; in theta(slot) times clicks / theta that cancels.
    for estimate, value in ((best, total), (now, shown)):
        assert abs(estimate.value - value / log.n_sessions) < 4 * estimate.std_error
    assert best.value > now.value


def test_a_grid_bias_is_saved_drawn_and_printed(made, tmp_path):
    simulation = made("f-shape", "harvest")
    bias = ut.AllPairs().fit(simulation.log).bias_
    bias.save(tmp_path / "bias.json")
    again = ut.PositionBias.load(tmp_path / "bias.json")
    assert again.layout == GRID
    assert "row 3, column 4" in repr(again)
    drawn = bias.plot().to_dict()
    rows = (
        next(iter(drawn["datasets"].values())) if "datasets" in drawn else drawn["data"]["values"]
    )
    assert len(rows) == GRID.size


def test_the_metric_examination_waits_for_its_curve(log):
    bias = ut.PositionBias(ut.grid_examination(GRID, "rows"), layout=GRID)
    scores = np.arange(log.n_documents, dtype=float)
    named = ut.estimate(log, {"new": scores}, bias, metric="examination", unshown=False)
    made_before = as_rank_metric("examination")
    again = ut.estimate(log, {"new": scores}, bias, metric=made_before, unshown=False)
    assert again["new"].value == named["new"].value
    with pytest.raises(OptionError, match="needs the position bias"):
        made_before.weights(3)

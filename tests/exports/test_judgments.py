"""Judgments hold the true relevance, and are written as other tools read them."""

import json

import numpy as np
import pytest
from tests.rankers.conftest import pbm_log

import untilt as ut
from untilt.bias.em.rank_prior import LogitModel, points_of, posterior
from untilt.errors import OptionError
from untilt.exports.judgments import documents_of
from untilt.objectives.hierarchical import click_cells


def judged(*, sessions, seed, level=0.95, **more):
    made = pbm_log(n_documents=10, shown=6, orderings=4, sessions=sessions, seed=seed, **more)
    bias = ut.PositionBias(made.theta, relative=False)
    found = ut.click_judgments(made.log, bias, level=level)
    return found, made.relevance[found.doc_id], made


@pytest.fixture(scope="module")
def many():
    return judged(sessions=100, seed=1, n_queries=30)


def test_intervals_hold_the_truth(many):
    found, truth, _ = many
    held = np.mean((found.low <= truth) & (truth <= found.high))
    error = np.sqrt(0.05 * 0.95 / len(truth))
    assert abs(held - 0.95) < 4 * error
    assert abs(np.mean(found.relevance - truth)) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("sessions", [5, 20, 100])
def test_intervals_hold_the_truth_over_logs(sessions):
    """The figures of docs/export.md: .959, .952 and .957."""
    held = []
    for seed in range(8):
        found, truth, _ = judged(sessions=sessions, seed=100 + seed, n_queries=60)
        held.append(np.mean((found.low <= truth) & (truth <= found.high)))
    assert 0.93 < np.mean(held) < 0.98


def test_they_order_documents_better_than_click_rates(many):
    found, truth, _ = many
    rate = found.clicks / found.impressions
    assert np.corrcoef(found.relevance, truth)[0, 1] > np.corrcoef(rate, truth)[0, 1] + 0.1


def test_counts_stand_for_sessions(many):
    found, _, made = many
    bias = ut.PositionBias(made.theta, relative=False)
    collapsed = ut.click_judgments(made.log.collapse(), bias)
    pairs = dict(zip(collapsed.doc_id.tolist(), collapsed.relevance.tolist(), strict=True))
    ours = [pairs[each] for each in found.doc_id.tolist()]
    np.testing.assert_allclose(ours, found.relevance, atol=1e-6)
    assert found.impressions.sum() == len(made.log.position)
    assert found.clicks.sum() == made.log.label.sum()


def test_a_document_is_integrated_as_a_fine_grid_does():
    """A slow twin: one query of two documents, by sums over a fine grid of eta and u."""
    n, c = np.array([3.0, 2000.0, 40.0]), np.array([2.0, 700.0, 0.0])
    alpha, beta = np.array([0.9, 0.4]), np.array([0.0, 0.05])
    place, document = np.array([0, 1, 1]), np.array([0, 1, 0])
    z = np.array([0.7, -0.7])
    documents = documents_of(click_cells(np.zeros(2, int), document, place, n, c, alpha, beta), z)
    model = LogitModel(base=-0.5, v=1.3, s2=0.4, b=0.9)
    eta, u = np.linspace(-14, 14, 20_001), np.linspace(-4, 4, 401)
    log_p = np.zeros((2, len(eta)))
    for row, d, k in zip(range(3), document, place, strict=True):
        p = alpha[k] / (1 + np.exp(-eta)) + beta[k]
        log_p[d] += c[row] * np.log(p) + (n[row] - c[row]) * np.log1p(-p)
    evidence = 0.0
    for each in u:
        inside = [
            np.sum(
                np.exp(row - row.max())
                * np.exp(-0.5 * (eta - model.base - model.b * own - each) ** 2 / model.v)
            )
            * ((eta[1] - eta[0]) / np.sqrt(2 * np.pi * model.v))
            for row, own in zip(log_p, z, strict=True)
        ]
        evidence += inside[0] * inside[1] * np.exp(-0.5 * each**2 / model.s2)
    evidence *= (u[1] - u[0]) / np.sqrt(2 * np.pi * model.s2)
    expected = np.log(evidence) + log_p.max(axis=1).sum()
    found = posterior(documents, points_of(documents, alpha, beta), alpha, beta, model)
    assert found.log_evidence.sum() == pytest.approx(expected, abs=2e-3)


def test_the_table_of_likelihoods_is_the_binomial():
    cells = click_cells(
        np.zeros(2, int), np.array([1, 0, 1]), np.array([0, 0, 1]), np.array([5.0, 4.0, 3.0]),
        np.array([2.0, 0.0, 3.0]), np.array([1.0, 0.5]), np.array([0.0, 0.1]),
    )  # fmt: skip
    eta = np.array([[-1.0, 0.5], [0.0, 2.0]])
    g = 1 / (1 + np.exp(-eta))
    first = 4 * np.log1p(-g[0])
    p = 0.5 * g[1] + 0.1
    second = 2 * np.log(g[1]) + 3 * np.log1p(-g[1]) + 3 * np.log(p)
    table = documents_of(cells, np.zeros(2)).table(eta, cells.alpha, cells.beta)
    np.testing.assert_allclose(table, [first, second])


def test_more_clicks_narrow_the_interval_and_level_widens_it(many):
    found, _, made = many
    wide = ut.click_judgments(made.log, ut.PositionBias(made.theta, relative=False), level=0.99)
    assert np.all(wide.high - wide.low > found.high - found.low)
    width = found.high - found.low
    often = found.impressions > np.median(found.impressions)
    assert width[often].mean() < width[~often].mean()


def test_relative_curves_and_no_curve_say_so(many):
    _, _, made = many
    small = made.log.take(np.arange(0, made.log.n_lists, 20))
    relative = ut.click_judgments(small, ut.PositionBias(made.theta))
    by_rank = "export.judgments-by-rank"
    assert [note.code for note in relative.notes][1:] == [by_rank, "export.judgments-relative"]
    without = ut.click_judgments(small, None, prior="query")
    assert [note.code for note in without.notes][1:] == ["export.judgments-no-bias"]


def test_files(many, tmp_path):
    found, _, _ = many
    body = json.loads(found.write(tmp_path / "shop.json").read_text())
    assert (body["name"], body["type"]) == ("shop", "IMPORT_JUDGMENT")
    ratings = {
        (each["query"], rating["docId"]): rating["rating"]
        for each in body["judgmentRatings"]
        for rating in each["ratings"]
    }
    assert len(ratings) == len(found)
    first = ratings[str(found.query_id[0]), str(found.doc_id[0])]
    assert isinstance(first, str)  # the workbench takes no numbers
    assert float(first) == pytest.approx(found.relevance[0], abs=1e-4)
    lines = found.write(tmp_path / "q.qrels").read_text().splitlines()
    query, zero, document, grade = lines[0].split()
    assert (query, zero, document) == (str(found.query_id[0]), "0", str(found.doc_id[0]))
    assert int(grade) == round(100 * found.relevance[0])
    header, row, *_ = found.write(tmp_path / "j.csv").read_text().splitlines()
    assert header == "query_id,doc_id,relevance,low,high,impressions,clicks"
    low, middle, high = (float(row.split(",")[n]) for n in (3, 2, 4))
    assert low < middle < high


def test_endings_and_ids_that_do_not_fit(many, tmp_path):
    found, _, made = many
    with pytest.raises(OptionError, match=r"ends in \.json \(opensearch\)"):
        found.write(tmp_path / "j.parquet")
    with pytest.raises(OptionError, match=r"as qrels go to a file that ends in \.qrels or \.txt"):
        found.write(tmp_path / "j.json", "qrels")
    with pytest.raises(OptionError, match="to must be one of 'opensearch', 'qrels', 'csv'"):
        found.write(tmp_path / "j.json", "trec")
    arrays = {name: getattr(made.log, name) for name in made.log.__dataclass_fields__}
    spaced = ut.ClickLog(**arrays | {"query_id": [f"red shoes {n}" for n in range(30)]})
    few = spaced.take(np.arange(0, spaced.n_lists, 50))
    with pytest.raises(OptionError, match="there is an id 'red shoes"):
        ut.click_judgments(few, None).write(tmp_path / "j.qrels")
    with pytest.raises(OptionError, match="level must lie between 0 and 1"):
        ut.click_judgments(few, None, level=1.0)
    assert not list(tmp_path.iterdir())

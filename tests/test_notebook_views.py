"""Results show themselves in a notebook: the same view as in a terminal, with charts."""

import numpy as np
import pytest

import untilt as ut
from untilt.charts import theme
from untilt.charts.convert import ChartsNotDrawnError


@pytest.fixture(scope="module")
def log() -> ut.ClickLog:
    judged = ut.make_judged(60, 4, seed=0)
    return ut.simulate(judged, "harvest", n_sessions=3000, depth=5, seed=0).log


def test_a_log_shows_its_size_and_click_rates(log):
    html = log._repr_html_()
    assert f"{log.n_sessions:,}" in html
    assert f"{log.ctr_by_position().rate[0]:.4f}" in html


def test_audits_curves_and_estimates_show_their_views(log):
    curve = ut.AllPairs().fit(log).bias_
    found = ut.estimate(log, {"shown": ut.shown, "other": np.zeros(log.n_documents)}, curve)
    for result in (ut.audit(log), curve, found):
        html = result._repr_html_()
        assert html.startswith("<h4>")
        for section in result.view():
            assert section.title.partition("{")[0][:20].replace("'", "&#x27;") in html


def test_a_chart_is_drawn_where_it_can_be_and_left_out_elsewhere(log, monkeypatch):
    audited = ut.audit(log)
    figures = [figure for section in audited.view() for figure in section.figures]
    assert audited._repr_html_().count("<svg") == len(figures) > 0

    def cannot(_calls):
        raise ChartsNotDrawnError("an address limit")

    monkeypatch.setattr(theme, "converted", cannot)
    assert "<svg" not in audited._repr_html_()


def test_a_run_shows_the_answer_and_its_chart(log, tmp_path):
    done = ut.run(log, tmp_path, method=["balanced"], trees=5, folds=1, threads=1)
    html = done._repr_html_()
    assert "The answer" in html
    assert "<svg" in html

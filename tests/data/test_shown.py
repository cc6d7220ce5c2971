"""Logs of clicks alone, wholly or in part: seen, and refused where an answer is asked for."""

import numpy as np
import pytest

import untilt as ut
from untilt._core import ragged
from untilt.data.shown import check_shown, examine_impressions
from untilt.errors import IdentifiabilityError
from untilt.facts import codes

THETA = 1 / np.arange(1, 50)


@pytest.fixture(scope="module")
def whole():
    """Sessions of several rankers, one list each, with features."""
    judged = ut.make_judged(n_queries=60, n_features=4, mean_docs=12, seed=0)
    log = ut.simulate(judged, "harvest", n_sessions=4000, seed=0).log
    each = np.repeat(np.arange(log.n_lists), log.count)
    return log.take(each, count=np.ones(len(each), dtype=np.int64))


def with_rows(log, keep):
    """The log without some rows, and without sessions that have none left."""
    indptr = ragged.keep_rows(log.indptr, keep)
    cut = log._with(indptr=indptr, **log._rows(np.flatnonzero(keep)))
    return cut.take(np.flatnonzero(ragged.lengths(indptr) > 0))


def bare(log, share, rng):
    """In a share of the sessions only the clicked rows were logged."""
    chosen = rng.random(log.n_lists) < share
    return with_rows(log, ~chosen[ragged.list_of_row(log.indptr)] | (log.label > 0))


def cut(log):
    """Nothing below the last click; sessions without one are whole."""
    owner = ragged.list_of_row(log.indptr)
    last = np.zeros(log.n_lists, dtype=np.int64)
    np.maximum.at(last, owner, np.where(log.label > 0, log.position, 0))
    return with_rows(log, (last[owner] == 0) | (log.position <= last[owner]))


def refusal(log):
    found = examine_impressions(log).refusal
    return None if found is None else found.code


def test_clicks_alone(whole, rng):
    log = bare(whole, 1.0, rng)
    assert refusal(log) == "audit.clicks-only"
    assert examine_impressions(log).bare_share == 1
    assert refusal(log.collapse()) == "audit.clicks-only"


ASKED = {
    "bias": lambda log, _: ut.AllPairs().fit(log),
    "modelled bias": lambda log, _: ut.RegressionEM().fit(log),
    "click model": lambda log, _: ut.PBM().fit(log),
    "estimate": lambda log, _: ut.estimate(log, {"shown": ut.shown}, THETA[: log.depth]),
    "ranker": lambda log, _: ut.LinearRanker().fit(log),
    "trees": lambda log, _: ut.LambdaMART(n_trees=1).fit(log),
    "run": lambda log, folder: ut.run(log, folder / "run"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_everything_that_would_give_an_answer_refuses(asked, whole, rng, tmp_path):
    log = bare(whole, 1.0, rng)
    with pytest.raises(IdentifiabilityError, match="Log every result that was shown"):
        ASKED[asked](log, tmp_path)


def test_an_audit_says_it_and_advises_nothing(whole, rng):
    found = ut.audit(bare(whole, 1.0, rng))
    assert found.warnings[0].code == "audit.clicks-only"
    assert found.warnings[0].severity == "serious"
    assert codes(found.verdict.fields["parts"]) == ["audit.nothing-shown"]
    assert found.evidence is None
    assert found.advice.estimator == ""


@pytest.mark.parametrize("share", [0.98, 0.5])
def test_a_log_with_many_sessions_of_clicks_alone_is_refused(share, whole, rng):
    log = bare(whole, share, rng)
    assert refusal(log) == "audit.mostly-clicks-only"
    assert examine_impressions(log).bare_share == pytest.approx(share, abs=0.03)
    with pytest.raises(IdentifiabilityError):
        ut.AllPairs().fit(log)


def test_a_log_with_some_sessions_of_clicks_alone_is_doubted(whole, rng):
    log = bare(whole, 0.1, rng)
    assert refusal(log) is None
    assert codes(examine_impressions(log).doubts) == ["audit.partly-clicks-only"]
    assert "audit.partly-clicks-only" in codes(ut.audit(log).warnings)


def test_sessions_that_end_with_their_last_click(whole):
    assert refusal(cut(whole)) == "audit.cut-at-last-click"
    assert examine_impressions(whole).cut_share < 0.2


def test_a_sample_of_the_rows_without_a_click(whole, rng):
    sampled = with_rows(whole, (whole.label > 0) | (rng.random(len(whole.label)) < 0.3))
    assert refusal(sampled) is None
    assert codes(examine_impressions(sampled).doubts) == ["audit.rows-missing"]
    assert examine_impressions(sampled).missing_share == pytest.approx(0.7, abs=0.1)


def test_dwell_times_of_clicked_documents_alone(whole, rng):
    log = bare(whole, 1.0, rng)
    dwell = log.with_label(rng.uniform(1, 60, size=len(log.label)))
    assert refusal(dwell) == "audit.clicks-only"
    assert ut.audit(dwell).advice.estimator == ""


# What is right.


def test_an_ordinary_log_is_not_doubted(whole):
    assert refusal(whole) is None
    assert examine_impressions(whole).doubts == ()
    check_shown(whole)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_top_of_an_ordinary_log_is_not_doubted(k, whole):
    assert refusal(whole.top(k)) is None
    assert examine_impressions(whole.top(k)).doubts == ()


def test_sessions_with_a_click_alone_are_not_refused(whole):
    """Rates are too high then, and the audit says so, but unclicked documents are there."""
    clicked = ragged.sums_by_list(whole.indptr, whole.label) > 0
    assert refusal(whole.take(clicked)) is None


def test_lists_of_one_document_are_fine(make_log, rng):
    """A widget with one document, clicked in two of three sessions, beside lists of five."""
    made = [(q, [0], [0] if rng.random() < 0.67 else [], 1) for q in range(40) for _ in range(20)]
    made += [(q, [0, 1, 2, 3, 4], [0], 1) for q in range(40)]
    found = examine_impressions(make_log(made))
    assert (found.refusal, found.doubts, found.bare_share) == (None, (), 0)


def test_gaps_that_have_nothing_to_do_with_clicks_are_fine(whole, rng):
    """An advertisement at position 3 in all lists, and 10% of the rows lost."""
    log = with_rows(whole, (whole.position != 3) & (rng.random(len(whole.label)) < 0.9))
    assert (refusal(log), examine_impressions(log).doubts) == (None, ())


def test_people_who_click_everything_are_few(whole, rng):
    """Bots that click all that is shown: 3% of the sessions."""
    bots = rng.random(whole.n_lists) < 0.03
    label = np.where(bots[ragged.list_of_row(whole.indptr)], 1.0, whole.label)
    assert refusal(whole.with_label(label)) is None


def test_a_lowest_position_that_is_clicked_most_is_fine(make_log):
    """The end of the page catches the eye: every click is there."""
    made = [(q, [1, 2, 3], [3], 2) for q in range(30)] + [(q, [3, 2, 1], [], 3) for q in range(30)]
    assert refusal(make_log(made)) is None


def test_few_sessions_say_nothing_about_shares(make_log):
    assert refusal(make_log([(0, [1, 2], [1, 2], 4), (0, [2, 1], [2], 4)])) is None

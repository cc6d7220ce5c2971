"""A curve that was measured in some queries, and differences that lie in others."""

import numpy as np
import pytest
from tests.wall.varying import WORLDS, make

import untilt as ut
from untilt.facts import codes


def estimated(name, seed=3, **by):
    made = make(WORLDS[name], seed)
    log = ut.read_log(made.frame, features=[], threads=1)
    document, query = np.asarray(log.doc_id).astype(int), np.asarray(log.query_id).astype(int)
    scores = made.worth[query[log.doc_query], document]
    curve = ut.AllPairs().fit(log).bias_
    return made, ut.estimate(log, {"shown": ut.shown, "new": scores}, curve, **by)


@pytest.mark.parametrize("evaluator", ["policy-aware", "ips"])
def test_the_share_is_named_where_lists_of_half_of_the_queries_never_vary(evaluator):
    made, found = estimated("intent", evaluator=evaluator)
    warning = next(w for w in found["new"].warnings if w.code == "estimate.untested-queries")
    # By hand: documents of queries that moved nothing, credit by relevance as the curve sees it.
    moved = made.moved()
    assert 0.4 < 1 - len(moved) / 200 < 0.6
    assert 0.4 < warning.fields["share"] < 0.95
    assert "estimate.untested-queries" not in codes(found["shown"].warnings)


def test_nothing_is_said_where_all_queries_vary():
    _, found = estimated("rankers")
    assert "estimate.untested-queries" not in codes(found["new"].warnings)

"""A run keeps candidates that nobody was shown, and says what the answer owes to them."""

import json

import numpy as np
import pytest

import untilt as ut
from untilt.facts import codes
from untilt.report.decision import Decision
from untilt.workflow.folder import RunFolder


def never_shown(log):
    rest = np.setdiff1d(np.arange(log.n_documents), log.document)
    return sorted(zip(log.query_id[log.doc_query[rest]], log.doc_id[rest], strict=True))


def test_the_copy_of_a_run_holds_them(made, finished):
    own = RunFolder(finished.folder)
    given = ut.read_log(made.log, documents=made.documents)
    kept = ut.read_log(own.log, documents=own.documents)
    assert never_shown(given)
    assert never_shown(kept) == never_shown(given)


@pytest.mark.parametrize("kind", ["finished", "crossed"])
def test_figures_say_what_the_answer_owes_to_them(kind, request):
    result = request.getfixturevalue(kind)
    decision = result.decision
    found = decision.answer.difference.unshown
    assert 0 < found.share <= found.queries <= 1
    assert found.nothing.value < found.as_shown.value
    assert found.nothing.interval.low < found.nothing.value < found.nothing.interval.high
    for each in decision.held_out.estimates:
        assert each.unshown is not None
    logged = decision.answer.shown.unshown
    assert logged.share == 0
    assert logged.nothing.value == pytest.approx(decision.answer.shown.value)
    plain = json.loads((result.folder / "figures.json").read_text())
    assert plain["answer"]["difference"]["unshown"]["share"] == found.share
    assert Decision.load(result.folder / "figures.json").answer == decision.answer
    assert "audit.coverage" in codes(decision.audit.notes)

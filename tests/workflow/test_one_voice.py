"""A run recommends one thing, on every page that it writes."""

import pytest
from tests.one_voice import left_over, other_orders, recommended_by


@pytest.mark.parametrize("run", ["finished", "crossed"])
def test_a_run_recommends_one_thing(run, request):
    result = request.getfixturevalue(run)
    report = result.report.read_text(encoding="utf-8")
    assert other_orders(result.decision, report) == {}
    assert left_over(report, []), "the recommendation itself is found"
    recommended = recommended_by(result.decision)
    for page in (report, (result.folder / "ranker.md").read_text(encoding="utf-8")):
        assert str(recommended[0]) in page

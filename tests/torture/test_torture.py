"""A short part of `make torture`; for `untilt run` see tests/workflow/test_kill_resume.py."""

import sys

import pytest
from tests.torture.places import closed_places, two_at_once
from tests.torture.runner import Reference, TortureError, _check_equal, _check_not_mixed, torture
from tests.torture.scenarios import foreign, make_inputs, meaning, put_foreign

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torture")
    make_inputs(folder)
    return folder


@pytest.mark.parametrize("name", [pytest.param("simulate", marks=pytest.mark.slow), "save"])
def test_killed_and_started_again(name, inputs, tmp_path):
    tally = torture(2, seed=16, inputs=inputs, folder=tmp_path, only=(name,), most_kills=2)[name]
    assert tally.problems == []
    assert tally.kills >= 1


def test_a_full_and_a_read_only_disk_get_a_sentence(inputs, tmp_path):
    places = closed_places(inputs, tmp_path, only=("save",))
    assert [place.problem for place in places] == [None, None]


@pytest.mark.slow
def test_two_at_once_leave_the_result_of_one(inputs, tmp_path):
    assert [place.problem for place in two_at_once(inputs, tmp_path, only=("save",))] == [None]


def test_the_runner_sees_what_goes_wrong(tmp_path):
    """Files of others that change, old files beside new ones, and what is left behind."""
    others = put_foreign(tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"other notes")
    assert foreign(tmp_path) != others
    (tmp_path / "a").write_text("new a")
    (tmp_path / "b").write_text("old b")
    new = {name: meaning(tmp_path / name) for name in ("a", "b")}
    old = {"a": "other", "b": new["b"]}
    known = Reference(old, {**new, "b": "other"}, tmp_path, 1.0)
    with pytest.raises(TortureError, match="side by side"):
        _check_not_mixed(tmp_path, known, together=True)
    with pytest.raises(TortureError, match="neither old nor new"):
        _check_not_mixed(tmp_path, Reference({"a": "x"}, {"b": "y"}, tmp_path, 1.0), together=True)
    with pytest.raises(TortureError, match="left behind"):
        _check_equal(new, {"a": new["a"]})
    with pytest.raises(TortureError, match="other than undisturbed"):
        _check_equal(new, {**new, "a": "other"})

"""A run keeps to its own folder and its own names."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import untilt as ut
from untilt.errors import OptionError
from untilt.report.page import page
from untilt.workflow.folder import CLAIM, RunFolder

pytestmark = pytest.mark.usefixtures("no_pages")

FOREIGN = (".backup-20261115.tar.gz", ".my-settings", ".notes-my_notes.md", "data.csv")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def put_foreign_files(folder: Path) -> None:
    for place in (folder, folder / "work", folder / "work" / "steps", folder / "tables"):
        place.mkdir(parents=True, exist_ok=True)
        for name in FOREIGN:
            (place / name).write_text("somebody's")


@pytest.mark.parametrize("name", ["bias.json", "notes.md", ".my-settings", "work/notes.md"])
def test_a_folder_of_somebody_else_is_refused(made, tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("somebody's")
    with pytest.raises(OptionError, match=r"no run has been there.*force=True"):
        ut.run(made.log, tmp_path)
    assert contents(tmp_path) == {name: b"somebody's"}
    with pytest.raises(OptionError, match="is a file"):
        ut.run(made.log, tmp_path / name)


def test_files_of_others_stay_whatever_they_are_called(made, finished, small_options, tmp_path):
    """With force, by the run after it, and by one that finds a folder of its own."""
    put_foreign_files(tmp_path)
    (tmp_path / "report.html").write_text("may go")
    before = {k: v for k, v in contents(tmp_path).items() if k != "report.html"}
    options = {"documents": made.documents, **small_options}
    ut.run(made.log, tmp_path, force=True, **options)
    after = contents(tmp_path)
    assert before.items() <= after.items()
    assert after["report.html"] != b"may go"
    assert ut.run(made.log, tmp_path, **options).resumed  # now it is ours
    assert before.items() <= contents(tmp_path).items()


def test_a_run_killed_at_its_start_can_go_on(tmp_path):
    RunFolder(tmp_path / "absent").check()
    (tmp_path / "work").mkdir()
    RunFolder(tmp_path).check()
    RunFolder(tmp_path).mark_as_run_folder()
    (tmp_path / "bias.json").write_text("{}")
    RunFolder(tmp_path).check()


def test_a_folder_of_an_earlier_version_is_known_by_its_steps(finished, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(finished.folder, old)
    (old / "work" / CLAIM).unlink()
    RunFolder(old).check()
    for step in (old / "work" / "steps").iterdir():
        step.write_text("{}")
    with pytest.raises(OptionError, match="no run has been there"):
        RunFolder(old).check()


@pytest.mark.parametrize("place", ["work/log.parquet", "tables/rankers.parquet", "bias.json"])
@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_a_run_does_not_write_onto_its_log(made, finished, tmp_path, place, link):
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    log = folder / place
    log.unlink(missing_ok=True)
    if link is None:
        shutil.copy(made.log, log)
    else:
        link(made.log, log)
    with pytest.raises(OptionError, match="the results would go to"):
        ut.run(log, folder)
    with pytest.raises(OptionError, match="the results would go to"):
        ut.run([str(log)], folder, force=True)
    assert log.read_bytes() == Path(made.log).read_bytes()


def test_neither_documents_nor_the_bias_are_written_onto(made, finished, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    with pytest.raises(OptionError, match=r"documents\.parquet is read from there"):
        ut.run(made.log, folder, documents=folder / "work" / "documents.parquet")
    with pytest.raises(OptionError, match=r"bias\.json is what is read"):
        ut.run(made.log, folder, bias=str(folder / "bias.json"))


def test_results_do_not_go_into_a_folder_that_is_read(made, tmp_path):
    shutil.copy(made.log, tmp_path)
    with pytest.raises(OptionError, match="is a folder that is read"):
        ut.run(tmp_path, tmp_path / "results")
    assert not (tmp_path / "results").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs names of any bytes")
def test_names_that_are_no_text(tmp_path, monkeypatch):
    """A log and a folder whose names are not UTF-8: simulated, read, run and reported."""
    monkeypatch.setattr("untilt.report.page.page", page)  # this one is looked at
    odd = tmp_path / os.fsdecode(b"\xff\xfe")
    made = ut.simulate_to_parquet(ut.make_judged(40, 4, seed=0), odd, "dla", n_sessions=400)
    log = ut.read_log(made.log, documents=made.documents)
    ut.write_log(log, odd / "again.parquet", documents=odd / "theirs.parquet")
    assert ut.read_log(odd / "again.parquet").n_sessions == log.n_sessions
    found = ut.run(
        made.log, odd / "out", documents=made.documents, method=["balanced"], trees=2, threads=1
    )
    assert "<html" in found.report.read_text(encoding="utf-8")
    assert ut.run(
        made.log, odd / "out", documents=made.documents, method=["balanced"], trees=2, threads=1
    ).resumed

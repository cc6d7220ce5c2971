"""The content of the input decides whether it is the same, and nothing else."""

import os
import shutil

import duckdb
import pyarrow as pa
import pyarrow.csv
import pytest

import untilt as ut
from untilt.data.read import read_log as reading
from untilt.errors import FileFormatError
from untilt.workflow import stage_read
from untilt.workflow.stage_read import RunInputs


def fingerprint(source):
    return RunInputs().fingerprint(source)


def edit(path, old, new):
    """Other content of the same size, at the same time as far as the file system says."""
    stat, content = path.stat(), path.read_bytes()
    assert len(old) == len(new)
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("query_id,session_id,doc_id,position,click\n1,1,1,1,1\n")
    return path


def test_other_content_of_the_same_size_and_time(log):
    before = fingerprint(log)
    edit(log, b"1,1,1,1,1", b"1,1,1,1,0")
    assert fingerprint(log) != before


def test_a_touched_or_copied_file_is_the_same(log, tmp_path):
    before = fingerprint(log)
    os.utime(log, ns=(1, 1))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "log.csv").write_bytes(log.read_bytes())
    assert fingerprint(log) == fingerprint(str(tmp_path / "there" / "log.csv")) == before


def test_every_file_of_a_folder_counts(tmp_path):
    for day in ("day=1", "day=2"):
        (tmp_path / day).mkdir()
        (tmp_path / day / "a.csv").write_text("a\n1\n")
    before = fingerprint(tmp_path)
    assert before == fingerprint([tmp_path / "day=1" / "a.csv", tmp_path / "day=2" / "a.csv"])
    assert before == fingerprint(str(tmp_path / "**" / "*.csv"))
    edit(tmp_path / "day=2" / "a.csv", b"1", b"2")
    assert fingerprint(tmp_path) != before
    edit(tmp_path / "day=2" / "a.csv", b"2", b"1")
    (tmp_path / "day=2").rename(tmp_path / "day=3")
    assert fingerprint(tmp_path) != before


def test_a_database_counts_with_its_table_and_its_last_changes(tmp_path):
    path = tmp_path / "log.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE a AS SELECT 1; CREATE TABLE b AS SELECT 1")
    before = fingerprint((path, "a"))
    assert before != fingerprint((path, "b"))
    (tmp_path / "log.duckdb.wal").write_bytes(b"changes")
    assert fingerprint((path, "a")) != before


def test_what_is_no_file_has_none(log):
    assert fingerprint(pa.csv.read_csv(log)) is None


def test_names_that_are_no_text(log, tmp_path):
    odd = os.path.join(os.fsencode(tmp_path), b"l\xff.csv")
    os.rename(log, odd)
    assert fingerprint(os.fsdecode(odd))


def test_a_log_that_changes_while_it_is_read_is_refused(log, monkeypatch):
    read = reading._read

    def changing(*given):
        result = read(*given)
        with log.open("a") as file:
            file.write("2,2,2,1,1\n")
        return result

    monkeypatch.setattr(reading, "_read", changing)
    with pytest.raises(FileFormatError, match="changed while it was read"):
        ut.read_log(log)


def test_a_log_that_changes_after_its_fingerprint_is_refused(made, tmp_path, monkeypatch):
    path, read = tmp_path / "log.parquet", stage_read._read
    path.write_bytes(made.log.read_bytes())

    def replaced_before(*given):
        path.unlink()
        path.write_bytes(made.log.read_bytes())
        return read(*given)

    monkeypatch.setattr(stage_read, "_read", replaced_before)
    with pytest.raises(FileFormatError, match="changed while it was read"):
        ut.run(path, tmp_path / "run", documents=made.documents, trees=2)


def test_a_run_notices_other_content_of_the_same_size_and_time(
    made, finished, tmp_path, small_options, monkeypatch
):
    folder = shutil.copytree(finished.folder, tmp_path / "run")
    path = tmp_path / made.log.name
    shutil.copy2(made.log, path)
    monkeypatch.setattr(stage_read, "_read", lambda *_: pytest.fail("read again"))
    assert "read" in ut.run(path, folder, documents=made.documents, **small_options).resumed
    edit(path, b"DuckDB version", b"duckDB version")
    with pytest.raises(pytest.fail.Exception, match="read again"):
        ut.run(path, folder, documents=made.documents, **small_options)

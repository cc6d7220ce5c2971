"""Results never go onto what is read."""

import os
from pathlib import Path

import pytest

from untilt._core.places import refuse_inputs, refuse_taken
from untilt.errors import OptionError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log, a link and a hard link to it, and a folder of logs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "day=1").mkdir(parents=True)
    (tmp_path / "logs" / "day=1" / "a.parquet").write_text("a")
    (tmp_path / "log.csv").write_text("log")
    (tmp_path / "link.csv").symlink_to("log.csv")
    os.link("log.csv", "hard.csv")
    (tmp_path / "again").symlink_to("logs")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("log.csv", "log.csv"),
        ("./logs/../log.csv", "log.csv"),
        ("link.csv", "log.csv"),
        ("log.csv", "link.csv"),
        ("hard.csv", "log.csv"),
        ("log.csv", ["other.csv", Path("log.csv")]),
        ("log.csv", "*.csv"),
        ("log.csv", ("log.csv", "table")),
        ("logs/day=1/a.parquet", "logs/**/*.parquet"),
        ("again/day=1/a.parquet", "logs"),
        ("logs/new.parquet", "logs"),
        ("logs/new/", "logs"),
        ("again/new.parquet", "logs"),
        ("logs/", "logs/day=1/a.parquet"),
        ("again/", "logs/day=1/a.parquet"),
        ("link.csv/", "log.csv"),
    ],
)
def test_what_is_read_is_not_written(folder: Path, written: str, read: object) -> None:
    with pytest.raises(OptionError, match="the results would go to"):
        refuse_inputs([written], [read])
    with pytest.raises(OptionError):
        refuse_inputs([f"{folder}/{written}"], [read])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("new.csv", "log.csv"),
        ("results/", "log.csv"),
        ("logs.csv", "logs"),
        ("./", "../absent.csv"),
        ("log.csv", None),
        ("log.csv", 3),
        ("log.csv", "a\0b"),
        ("log.csv", ""),
    ],
)
def test_other_places_are_free(folder: Path, written: str, read: object) -> None:
    refuse_inputs([written], [read])


def test_two_results_have_two_places(folder: Path) -> None:
    refuse_inputs(["a.json", "b.json"], [])
    with pytest.raises(OptionError, match="two results"):
        refuse_inputs(["a.json", "./a.json"], [])


def test_files_that_lie_there_are_kept_unless_they_may_go(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"holds log\.csv.*force=True"):
        refuse_taken(folder, ["log.csv", "new.csv"], force=False)
    refuse_taken(folder, ["log.csv", "new.csv"], force=True)
    refuse_taken(folder, ["new.csv"], force=False)
    refuse_taken(folder / "absent", ["log.csv"], force=False)

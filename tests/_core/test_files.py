"""Files are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from untilt._core.files import replacing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_new_file_takes_the_place_of_the_old(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_text("old")
    with replacing(path) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith(".csv.gz")  # writers choose their format by the ending
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["log.csv.gz"]


@pytest.mark.parametrize("interruption", [OSError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("existed", [True, False])
def test_an_interruption_leaves_the_old_file_or_none(
    tmp_path: Path, interruption: type[BaseException], existed: bool
) -> None:
    path = tmp_path / "ranker.untilt"
    if existed:
        path.write_text("old")

    def write_half() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of the n")
            raise interruption

    with pytest.raises(interruption):
        write_half()
    assert names(tmp_path) == (["ranker.untilt"] if existed else [])
    assert not existed or path.read_text() == "old"


def test_the_folder_is_made(tmp_path: Path) -> None:
    with replacing(str(tmp_path / "a" / "b" / "c.json")) as temporary:
        temporary.write_text("{}")
    assert (tmp_path / "a" / "b" / "c.json").read_text() == "{}"


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX")
def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    with replacing(tmp_path / "ours") as temporary:
        temporary.write_text("")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)

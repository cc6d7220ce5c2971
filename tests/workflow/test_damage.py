"""Whatever happens to a file of a run, the same call ends with the results of an undisturbed run.

The time is fixed (SOURCE_DATE_EPOCH), so that every file of a result can be compared by its bytes.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import untilt as ut
from untilt._core import codec
from untilt.errors import OptionError
from untilt.facts import Fact

SMALL = {"trees": 3, "threads": 1, "method": ["balanced"], "metric": "dcg@5"}
EPOCH = "1700000000"


@pytest.fixture(scope="module")
def fixed_time():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        yield


@pytest.fixture(scope="module")
def undisturbed(made, fixed_time, tmp_path_factory):
    """The folder of a run, and that of a run of the same log with other options."""
    place = tmp_path_factory.mktemp("undisturbed")
    run(made, place / "run")
    run(made, place / "other", seed=1)
    return place / "run"


def run(made, folder, **changed):
    """Run; the facts that were told."""
    told: list[str] = []
    options = {**SMALL, **changed}
    ut.run(made.log, folder, documents=made.documents, tell=told.append, **options)
    return [each for each in told if isinstance(each, Fact)]


def files_of(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def results_of(folder: Path) -> dict[str, bytes]:
    """What a run is for: all files but those that it needs to go on."""
    files = [each for each in files_of(folder) if each.parts[0] != "work"]
    return {str(each): (folder / each).read_bytes() for each in files}


# ---- what can happen to a file


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def one_bit_flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def of_another_step(path: Path) -> None:
    others = sorted(each for each in path.parent.iterdir() if each.is_file() and each != path)
    shutil.copyfile(others[0], path)


def of_another_run(path: Path) -> None:
    """The file of the same name, where the other run has one."""
    root = next(each for each in path.parents if (each / "work").is_dir())
    other = root / ".other" / path.relative_to(root)
    if other.is_file():
        shutil.copyfile(other, path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def removed(path: Path) -> None:
    path.unlink()


def unreadable(path: Path) -> None:
    path.chmod(0)


def a_link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def text(content: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_text(content)

    return damage


def resealed(change: Callable[[dict], object]) -> Callable[[Path], None]:
    """A sealed JSON file with another value under a right checksum; other files are emptied."""

    def damage(path: Path) -> None:
        try:
            record = json.loads(path.read_bytes())
            change(record)
            del record["sha256"]
        except (ValueError, KeyError, TypeError):
            emptied(path)
            return
        path.write_text(json.dumps({**record, "sha256": codec.checksum(record)}))

    return damage


def shortened(plain: Any) -> None:
    """The first list of numbers that is found loses its last one."""
    for each in plain.values() if isinstance(plain, dict) else plain:
        if isinstance(each, list) and each and isinstance(each[0], float):
            each.pop()
            return
        if isinstance(each, dict | list):
            shortened(each)


DEEP = 100_000
DAMAGES: dict[str, Callable[[Path], None]] = {
    "emptied": emptied,
    "cut in half": cut_in_half,
    "one bit flipped": one_bit_flipped,
    "of another step": of_another_step,
    "of another run": of_another_run,
    "a folder": a_folder,
    "removed": removed,
    "unreadable": unreadable,
    "a link to itself": a_link_to_itself,
    "{}": text("{}"),
    "[]": text("[]"),
    "null": text("null"),
    "nested lists": text("[" * DEEP + "]" * DEEP),
    "nested objects": text('{"a":' * DEEP + "1" + "}" * DEEP),
    "400 digits": text('{"version": 3, "kind": ' + "9" * 400 + "}"),
    "another version": resealed(lambda record: record.update(version=1)),
    "no result": resealed(lambda record: record.update(result=None)),
    "unequal lengths": resealed(lambda record: shortened(record.get("result", record))),
    "huge numbers": resealed(lambda record: record.update(seconds=10**400, size=10**400)),
}


@pytest.fixture
def copy(undisturbed, tmp_path):
    """The folder of a finished run, to be damaged; `.other` in it is that of another run."""
    folder = shutil.copytree(undisturbed, tmp_path / "run")
    (folder / ".other").symlink_to(undisturbed.parent / "other")
    return folder


def check_again(made, folder: Path, undisturbed: Path) -> list[Fact]:
    told = run(made, folder)
    (folder / ".other").unlink(missing_ok=True)
    assert results_of(folder) == results_of(undisturbed)
    assert not run(made, folder)  # and all is whole again
    return told


def damaged(folder: Path, name: Path, damage: str) -> None:
    if damage == "unreadable" and os.geteuid() == 0:
        damage = "emptied"
    DAMAGES[damage](folder / name)


def test_nothing_is_told_of_an_undisturbed_run(made, copy, undisturbed):
    assert check_again(made, copy, undisturbed) == []


@pytest.mark.parametrize(
    "offset", [0, 9, *(pytest.param(offset, marks=pytest.mark.slow) for offset in (5, 14))]
)
def test_every_file_damaged_at_once(made, copy, undisturbed, offset):
    for number, name in enumerate(files_of(undisturbed)):
        damaged(copy, name, list(DAMAGES)[(number + offset) % len(DAMAGES)])
    assert check_again(made, copy, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_damaged_alone(made, copy, undisturbed, damage):
    for name in files_of(undisturbed):
        damaged(copy, name, damage)
        run(made, copy)
        for folder in (copy, undisturbed):
            assert (folder / name).is_file()
        assert results_of(copy) == results_of(undisturbed), name


STEPS = ("read", "audit", "split", "bias", "plan", "rankers", "evaluate", "report")


@pytest.mark.slow
@pytest.mark.parametrize("last", range(1, len(STEPS)))
def test_every_file_of_a_run_that_was_stopped(made, copy, undisturbed, last):
    for step in STEPS[last:]:
        (copy / "work" / "steps" / f"{step}.json").unlink()
    for number, name in enumerate(files_of(copy)):
        damaged(copy, name, list(DAMAGES)[(number + last) % len(DAMAGES)])
    check_again(made, copy, undisturbed)


@pytest.mark.parametrize("name", ["bias.json", "work/log.parquet", "work/documents.parquet"])
def test_an_edit_is_told_and_undone(made, copy, undisturbed, name):
    """One edited file changed the outcome, and nothing said so."""
    one_bit_flipped(copy / name)
    told = check_again(made, copy, undisturbed)
    assert ("run.file-damaged", name) in [(e.code, e.fields.get("file")) for e in told]


def test_a_folder_with_something_in_it_stays(made, copy, undisturbed):
    a_folder(copy / "bias.json")
    (copy / "bias.json" / "mine.txt").write_text("mine")
    with pytest.raises(OptionError, match=r"bias\.json is a folder"):
        run(made, copy)
    assert (copy / "bias.json" / "mine.txt").read_text() == "mine"


def test_a_lock_that_leads_elsewhere_is_not_followed(made, copy, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (copy / "work" / "lock").unlink()
    (copy / "work" / "lock").symlink_to(mine)
    run(made, copy)
    assert mine.read_text() == "mine"

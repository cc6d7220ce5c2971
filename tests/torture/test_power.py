"""Power cuts and failing calls: what was promised is there, whenever it happens.

Each promise is also tried on a disk whose sync does nothing, where it must be seen to break: a test
that would not miss `fsync` says nothing about power cuts.
"""

import asyncio
import errno
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.serving.asking import saved_ranker
from tests.serving.test_collect import DAY, MONDAY, clicked, shown
from tests.torture.power import Forgetful, failing
from tests.wall.judging import without_pages

import untilt as ut
from untilt._core import codec
from untilt._core.files import append_line, clear_unfinished, replacing, replacing_all
from untilt._core.store import Entry, Store
from untilt.errors import WriteError
from untilt.serving.collect import collect
from untilt.serving.journal import Journal, SegmentRead, payloads, segments
from untilt.serving.wire import pack
from untilt.workflow.folder import KIND, VERSION, RunFolder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="names of open files")
OLD, NEW = {"a": b"old a" * 9, "b": b"old b"}, {"a": b"new a", "b": b"new b" * 5}


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def one_file(root, done):
    """`replacing`: the old file or the new one, and the new one once it returned."""
    (root / "a").write_bytes(OLD["a"])

    def work():
        with replacing(root / "a") as temporary:
            temporary.write_bytes(NEW["a"])
        done.append("a")

    def look(left):
        found = (left / "a").read_bytes()
        assert found in ((NEW["a"],) if done else (OLD["a"], NEW["a"]))

    return work, look


def files_together(root, done):
    """`replacing_all`: after the next writer cleaned up, the old files or the new ones."""
    for name, data in OLD.items():
        (root / name).write_bytes(data)

    def work():
        with replacing_all(root, NEW) as folder:
            for name, data in NEW.items():
                (folder / name).write_bytes(data)
        done.append("all")

    def look(left):
        clear_unfinished(left)
        assert contents(left) in ((NEW,) if done else (OLD, NEW))

    return work, look


def lines(root, done):
    """`append_line`: every line that was added, and at most a part of the next."""
    path = root / "results.jsonl"
    path.write_bytes(b"first\n")
    with path.open() as file:
        os.fsync(file.fileno())

    def work():
        for line in ("second", "third"):
            append_line(path, line)
            done.append(line)

    def look(left):
        whole = (left / path.name).read_text().split("\n")[:-1]
        assert whole[: 1 + len(done)] == ["first", *done]
        assert whole == ["first", "second", "third"][: len(whole)]

    return work, look


def saved(root, done):
    """`save` of a ranker and of a curve: each loads, and is the new one once it returned."""
    saved_ranker(root / "r.untilt")
    ut.PowerLaw(1.0).to_bias(10).save(root / "bias.json")
    curves = {steepness: ut.PowerLaw(steepness).to_bias(10) for steepness in (0.5, 1.0)}

    def work():
        saved_ranker(root / "r.untilt", weights=(0.0, 1.0))
        done.append("ranker")
        curves[0.5].save(root / "bias.json")
        done.append("curve")

    def look(left):
        first, second = ut.load(left / "r.untilt").predict(np.eye(2, dtype=np.float32))
        assert "ranker" not in done or second > first
        theta = ut.PositionBias.load(left / "bias.json").at(2)
        assert theta in [curves[s].at(2) for s in ((0.5,) if "curve" in done else (0.5, 1.0))]

    return work, look


def run_folder(root, done):
    """`untilt run`: the files of a finished step are whole; all results, once it returned."""
    log = small_log(root.parent / "inputs")

    def work():
        small_run(log, root)
        done.append(whole(root))

    def look(left):
        place = RunFolder(left)
        for path in place.steps.glob("[!.]*.json"):
            plain = codec.read_file(path, again="")
            entry = codec.unsealed(plain, Entry, kind=KIND, version=VERSION, where="", again="",
                                   strict=True)  # fmt: skip
            store = Store(place.steps, KIND, VERSION, root=left)
            assert store.damaged(entry, [left / each.place for each in entry.files]) is None
        found = whole(left)
        # Pages are not made here, so theirs is empty.
        assert [name for name, data in found.items() if not data and "report" not in name] == []
        assert not done or found == done[0]

    return work, look


def small_log(folder):
    judged = ut.make_judged(n_queries=60, n_features=4, seed=5)
    return ut.simulate_to_parquet(judged, folder, "harvest", n_sessions=3000, seed=5, n_threads=1)


def small_run(log, folder):
    with without_pages():
        return ut.run(
            log.log, folder, documents=log.documents, trees=2, threads=1, method=["linear"], folds=1
        )


def whole(folder):
    """The bytes of all files that count."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock" and ".untilt-" not in str(path)
    }


def found_in(folder):
    return [each for path in segments(folder) for each in payloads(path, SegmentRead(path))]


def journal(root, done):
    """Every acknowledged record, over several segments, and no other."""
    records = [f"record {i}".encode() * 5 for i in range(8)]

    async def write():
        writer = Journal(root, segment_bytes=150)
        for each in records:
            await writer.append(each)
            done.append(each)
        await writer.close()

    def look(left):
        found = [each for path in segments(left) if path.stat().st_size for each in found_at(path)]
        assert set(done) <= set(found) <= set(records)

    def found_at(path):
        return payloads(path, SegmentRead(path))

    return lambda: asyncio.run(write()), look


def collected(root, done):
    """A removed segment's lists are in the final file of their day; every list is somewhere."""
    log, out = root / "log", root / "out"
    names = [f"{i}" for i in range(4)]

    async def write():
        for i, name in enumerate(names):
            writer = Journal(log)
            time = MONDAY + i % 2 * DAY
            await writer.append(
                pack(shown(name, "a", time=time)), pack(clicked(name, name, "a", time=time))
            )
            await writer.close()

    asyncio.run(write())
    out.mkdir()
    ids = {shown(name, "a", time=MONDAY + i % 2 * DAY).list_id for i, name in enumerate(names)}

    def work():
        from datetime import UTC, datetime

        later = datetime(2024, 12, 1, tzinfo=UTC)
        assert collect(log, out, close_after=1, remove_closed=True, now=later).removed == 4
        done.append("collected")

    def look(left):
        found = set()
        for path in (left / "out").glob("clicks-*.parquet"):
            found |= set(pq.read_table(path).column("session_id").to_pylist())
        if (left / "log").is_dir():
            found |= {
                name for name in ids for each in found_in(left / "log") if name.encode() in each
            }
        assert found == ids

    return work, look


PROMISES = (one_file, files_together, lines, saved, run_folder, journal, collected)


def cut(promise, folder, *, lies=False):
    """(moments at which the power is cut, moments at which the promise was broken)."""
    root, done, broken = folder / "disk", [], []
    root.mkdir(parents=True)
    work, look = promise(root, done)

    def seen(left):
        try:
            look(left)
        except (AssertionError, OSError, ValueError) as error:
            broken.append(error)

    disk = Forgetful(root, folder / "left", seen, lies=lies)
    with disk.watching():
        work()
    assert done
    return disk.steps, broken


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_a_power_cut_takes_nothing_that_was_promised(tmp_path, promise):
    steps, broken = cut(promise, tmp_path)
    assert broken == []
    assert steps > 4


@pytest.mark.parametrize("promise", PROMISES, ids=lambda each: each.__name__)
def test_without_syncs_every_promise_is_seen_to_break(tmp_path, promise):
    assert cut(promise, tmp_path, lies=True)[1]


@pytest.mark.slow
def test_a_run_goes_on_after_a_power_cut(tmp_path):
    root, kept, looks = tmp_path / "disk", [], []
    root.mkdir()
    log = small_log(tmp_path / "inputs")

    def look(left):
        looks.append(left)
        if len(looks) % 150 == 0:
            kept.append(tmp_path / f"kept-{len(looks)}")
            shutil.copytree(left, kept[-1])

    with Forgetful(root, tmp_path / "left", look).watching():
        plain = replace(small_run(log, root).decision, provenance=None)
    assert len(kept) > 1
    for folder in kept:
        assert replace(small_run(log, folder).decision, provenance=None) == plain
        assert (folder / "bias.json").read_bytes() == (root / "bias.json").read_bytes()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
@pytest.mark.parametrize("promise", [one_file, files_together, lines], ids=lambda e: e.__name__)
def test_a_call_that_fails_leaves_the_old_or_the_new_and_a_sentence(tmp_path, promise, error):
    number, calls = 0, []
    while len(calls) == number:
        number += 1
        root, done = tmp_path / f"{number}", []
        root.mkdir()
        work, look = promise(root, done)
        with failing(root, number, error) as seen, suppress(WriteError):
            work()
        calls = seen[:number]
        look(root)
        # A name that could not be taken away is taken away by the next writer.
        clear_unfinished(root)
        assert not [each for each in os.listdir(root) if each.startswith(".untilt-")]
    assert number > 4


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_a_call_of_the_journal_that_fails_refuses_its_records_alone(tmp_path, error):
    records = [f"record {i}".encode() * 5 for i in range(8)]

    async def write(root):
        writer, told = Journal(root, segment_bytes=150), {}
        for each in records:
            try:
                await writer.append(each)
                told[each] = True
            except WriteError:
                told[each] = False
        await writer.close()
        return told

    number, calls = 0, []
    while len(calls) == number:
        number += 1
        root = tmp_path / f"{number}"
        root.mkdir()
        with failing(root, number, error) as seen:
            told = asyncio.run(write(root))
        calls = seen[:number]
        found = found_in(root)
        assert found == [each for each in records if told[each]]
        assert sum(told.values()) >= len(records) - 1
    assert number > 20

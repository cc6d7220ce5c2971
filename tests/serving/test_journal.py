"""What was acknowledged is read back; what is torn is cut; what is full says so."""

import asyncio
import errno
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.errors import FileFormatError, WriteError
from untilt.serving.journal import (
    Journal,
    JournalFullError,
    SegmentRead,
    frame,
    is_closed,
    payloads,
    segments,
)


def read_all(folder):
    found, reads = [], []
    for path in segments(folder):
        reads.append(SegmentRead(path))
        found += payloads(path, reads[-1])
    return found, reads


def append_all(folder, groups, **options):
    async def work():
        journal = Journal(folder, **options)
        await asyncio.gather(*(journal.append(*group) for group in groups))
        await journal.close()
        return journal

    return asyncio.run(work())


def test_everything_acknowledged_is_read_in_order(tmp_path):
    groups = [[f"{i}".encode(), b"x" * i] for i in range(100)]
    journal = append_all(tmp_path, groups)
    found, reads = read_all(tmp_path)
    assert found == [each for group in groups for each in group]
    assert (reads[0].cut, reads[0].damaged) == (0, 0)
    assert journal.records == 200
    # All were waiting when the disk began: some groups, not a sync for each.
    assert journal.syncs < 10


@given(cut=st.integers(0, 400), garbage=st.binary(max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_torn_tail_is_cut_and_whole_records_stay(tmp_path_factory, cut, garbage):
    folder = tmp_path_factory.mktemp("torn")
    records = [os.urandom(i) for i in range(0, 40, 3)]
    append_all(folder, [[each] for each in records])
    path = segments(folder)[0]
    data = path.read_bytes()
    kept = data[: max(0, len(data) - cut)]
    path.write_bytes(kept + garbage)
    if not kept.startswith(b"untilt journal 1\n"):
        return
    found, reads = read_all(folder)
    whole, size = 0, len(b"untilt journal 1\n")
    while whole < len(records) and size + len(frame(records[whole])) <= len(kept):
        size += len(frame(records[whole]))
        whole += 1
    assert found[:whole] == records[:whole]
    assert len(found) == whole or found[whole] == records[whole]  # garbage that completes a frame
    if len(found) == whole:
        assert reads[0].cut == len(kept) + len(garbage) - size


def test_a_hole_in_the_middle_costs_the_records_in_it_alone(tmp_path):
    append_all(tmp_path, [[b"first"], [b"second"], [b"third"]])
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes().replace(b"second", b"SECOND"))
    found, reads = read_all(tmp_path)
    assert found == [b"first", b"third"]
    assert reads[0].damaged == len(frame(b"second"))
    assert reads[0].cut == 0


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.journal").write_bytes(b"something else entirely")
    with pytest.raises(FileFormatError, match="no segment"):
        read_all(tmp_path)


def test_segments_rotate_and_each_has_what_was_declared(tmp_path):
    async def work():
        journal = Journal(tmp_path, segment_bytes=200)
        journal.declare("names", b"NAMES")
        for i in range(20):
            await journal.append(f"record {i:02d}".encode() * 4)
        assert not is_closed(segments(tmp_path)[-1])
        await journal.close()

    asyncio.run(work())
    assert len(segments(tmp_path)) > 3
    for path in segments(tmp_path):
        assert is_closed(path)
        assert next(payloads(path, SegmentRead(path))) == b"NAMES"
    found, _ = read_all(tmp_path)
    assert [each for each in found if each != b"NAMES"] == [
        f"record {i:02d}".encode() * 4 for i in range(20)
    ]


def test_what_waits_is_bounded(tmp_path):
    async def work():
        journal = Journal(tmp_path, most_pending=1000)
        waiting = [asyncio.create_task(journal.append(b"x" * 400)) for _ in range(5)]
        done = await asyncio.gather(*waiting, return_exceptions=True)
        await journal.close()
        return done

    done = asyncio.run(work())
    assert [type(each) for each in done] == [type(None)] * 2 + [JournalFullError] * 3
    assert len(read_all(tmp_path)[0]) == 2


def test_a_full_disk_is_told_and_leaves_no_half_record(tmp_path, monkeypatch):
    real, full = os.write, [False]

    def write(handle, data):
        if not full[0]:
            return real(handle, data)
        if len(data) > 5:
            return real(handle, data[:5])  # a part still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("untilt.serving.journal.os.write", write)

    async def work():
        journal = Journal(tmp_path)
        await journal.append(b"before")
        full[0] = True
        journal.declare("names", b"NAMES")  # later records rely on it
        with pytest.raises(WriteError, match="No space"):
            await journal.append(b"lost")
        full[0] = False
        await journal.append(b"after")
        await journal.close()

    asyncio.run(work())
    found, reads = read_all(tmp_path)
    assert found == [b"before", b"NAMES", b"after"]
    assert (reads[0].cut, reads[0].damaged) == (0, 0)

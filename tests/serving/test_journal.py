"""What was acknowledged is read back; what is torn is cut; what is full says so."""

import asyncio
import errno
import os
import struct
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from untilt.errors import FileFormatError, WriteError
from untilt.serving.journal import (
    Journal,
    JournalFullError,
    SegmentRead,
    framed,
    payloads,
    removed,
    segments,
)

HEAD = len(b"untilt journal 2\n") + 16


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
    if len(kept) < HEAD:
        return
    found, reads = read_all(folder)
    whole, size = 0, HEAD
    while whole < len(records) and size + 16 + len(records[whole]) <= len(kept):
        size += 16 + len(records[whole])
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
    assert reads[0].damaged == 16 + len(b"second")
    assert reads[0].cut == 0


def test_other_files_are_refused(tmp_path):
    (tmp_path / "x.journal").write_bytes(b"something else entirely")
    with pytest.raises(FileFormatError, match="no segment"):
        read_all(tmp_path)


def test_nothing_inside_a_payload_is_read_as_a_record(tmp_path):
    """A client sends whole frames of every kind, and the disk loses the end or any byte."""
    inner = framed([b"forged"] * 3, os.urandom(16), 0)
    old = b"utlf" + struct.pack("<II", 6, zlib.crc32(b"forged", zlib.crc32(struct.pack("<I", 6))))
    append_all(tmp_path, [[b"first"], [inner[33:] + (old + b"forged") * 9], [b"last"]])
    (path,) = segments(tmp_path)
    data = path.read_bytes()
    for cut in range(HEAD, len(data)):
        path.write_bytes(data[:cut])
        found, reads = read_all(tmp_path)
        assert b"forged" not in found
        assert reads[0].damaged == 0
        path.write_bytes(data[:cut] + b"\xff" + data[cut + 1 :])
        assert b"forged" not in read_all(tmp_path)[0]


def test_a_frame_of_another_place_or_segment_is_none(tmp_path):
    append_all(tmp_path, [[b"first"], [b"again"]])
    append_all(tmp_path, [[b"other"], [b"thing"]])
    one, two = segments(tmp_path)
    data, frame = one.read_bytes(), 16 + 5
    one.write_bytes(data + data[HEAD : HEAD + frame] + two.read_bytes()[-frame:])
    found, reads = read_all(tmp_path)
    assert sorted(found) == [b"again", b"first", b"other", b"thing"]
    assert sorted(read.cut for read in reads) == [0, 2 * frame]


def test_flipped_bits_cost_one_record_at_most(tmp_path):
    records = [bytes([i]) * 30 for i in range(20)]
    append_all(tmp_path, [[each] for each in records])
    (path,) = segments(tmp_path)
    data = path.read_bytes()
    for at in range(HEAD * 8, len(data) * 8, 7):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        found, _ = read_all(tmp_path)
        assert len(found) >= len(records) - 1
        assert all(each in records for each in found)


def test_journal_1_is_still_read_and_its_torn_tail_is_not(tmp_path):
    def old(payload):
        length = struct.pack("<I", len(payload))
        check = zlib.crc32(payload, zlib.crc32(length))
        return b"utlf" + length + struct.pack("<I", check) + payload

    path = tmp_path / "x.journal"
    begin = b"untilt journal 1\n"
    path.write_bytes(begin + old(b"one") + old(b"two").replace(b"two", b"TWO") + old(b"three"))
    found, (read,) = read_all(tmp_path)
    assert (found, read.damaged, read.cut) == ([b"one", b"three"], len(old(b"two")), 0)
    whole = begin + old(b"one") + old(old(b"forged") * 3)
    path.write_bytes(whole[:-5])
    found, (read,) = read_all(tmp_path)
    assert (found, read.cut) == ([b"one"], len(whole) - 5 - len(begin + old(b"one")))


def test_work_is_bounded_by_the_size_of_a_segment(tmp_path):
    """Marks, each with a length of 60 MB: the checks of journal 1 would be sums of 60 MB each."""
    for begin, mark in (
        (b"untilt journal 1\n", b"utlf"),
        (b"untilt journal 2\n" + b"s" * 16, b"ssss"),
    ):
        path = tmp_path / "x.journal"
        path.write_bytes(begin + (mark + struct.pack("<II", 3_000_000, 7) * 2) * 400_000)
        start = time.process_time()
        found, (read,) = read_all(tmp_path)
        assert found == []
        assert read.cut > 7_000_000
        assert time.process_time() - start < 5


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_links_devices_and_large_files_are_no_segments(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe.journal")
    (tmp_path / "link.journal").symlink_to("/dev/zero")
    (tmp_path / "large.journal").write_bytes(b"untilt journal 2\n" + bytes(100))
    monkeypatch.setattr("untilt.serving.journal.MOST_SEGMENT", 99)
    for path in segments(tmp_path):
        with pytest.raises(FileFormatError):
            list(payloads(path, SegmentRead(path)))


def test_segments_rotate_and_each_has_what_was_declared(tmp_path):
    async def work():
        journal = Journal(tmp_path, segment_bytes=200)
        journal.declare("names", b"NAMES")
        for i in range(20):
            await journal.append(f"record {i:02d}".encode() * 4)
        last = segments(tmp_path)[-1]
        assert not removed(SegmentRead(last, size=last.stat().st_size))
        await journal.close()

    asyncio.run(work())
    assert len(segments(tmp_path)) > 3
    for path in segments(tmp_path):
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

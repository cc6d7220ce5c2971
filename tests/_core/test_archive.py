"""Archives and arrays from anybody: bounded before they are unpacked."""

import io
import os
import struct
import zipfile
import zlib

import numpy as np
import pytest

from untilt._core import archive as archive_module
from untilt._core.archive import MOST_PARTS, Archive, from_npy_bytes, npy_bytes, packed, read_whole
from untilt.errors import FileFormatError, OptionError

PARTS = {"a.json": b"{}", "arrays/b.npy": npy_bytes(np.arange(5.0))}


def zipped(parts, kind=zipfile.ZIP_DEFLATED, comment=b""):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, data in parts:
            archive.writestr(name, data)
        archive.comment = comment
    return buffer.getvalue()


def test_what_is_packed_is_read_once():
    archive = Archive(packed(PARTS, comment=b"the end"), comment=b"the end")
    assert archive.unread == tuple(PARTS)
    assert {name: archive.read(name) for name in PARTS} == PARTS
    assert archive.unread == ()
    with pytest.raises(FileFormatError, match="asked for twice"):
        archive.read("a.json")
    with pytest.raises(FileFormatError, match="missing"):
        archive.read("no")


def test_equal_parts_are_equal_bytes():
    assert packed(PARTS) == packed(dict(PARTS))


def test_a_bomb_is_refused_before_it_is_unpacked():
    bomb = zipped([("a", bytes(100 << 20))])
    assert len(bomb) < 120_000
    with pytest.raises(FileFormatError, match="would unpack to 100 MiB"):
        Archive(bomb)


def test_long_zeros_of_ones_own_are_packed_so_that_they_are_read(monkeypatch):
    monkeypatch.setattr(archive_module, "_ALWAYS_ALLOWED", 1 << 20)
    data = packed({"a": bytes(2 << 20)})
    assert len(data) > 2 << 20  # stored as they are: packed they would look like the bomb
    assert len(Archive(data).read("a")) == 2 << 20


def test_what_is_too_large_is_not_packed(monkeypatch):
    monkeypatch.setattr(archive_module, "MOST_BYTES", 1000)
    with pytest.raises(OptionError, match="too large to be saved"):
        packed({"a": bytes(1001)})
    with pytest.raises(OptionError, match="too large to be saved"):
        packed({str(i): b"" for i in range(MOST_PARTS + 1)})


def test_a_size_that_lies_is_no_way_around():
    """The central directory says 10 bytes, and 10 MB are packed."""
    data = bytearray(zipped([("a", bytes(10 << 20))]))
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = struct.pack("<L", 10)
    with pytest.raises((FileFormatError, zipfile.BadZipFile)):
        Archive(bytes(data)).read("a")


def nested(data):
    return zipped([("a", zipped([("a", data)]))])


def encrypted():
    data = bytearray(zipped([("a", b"1")]))
    data[data.rindex(b"PK\1\2") + 8] |= 1
    return bytes(data)


def with_end(**changed):
    """An archive whose record at the end says something else."""
    data = zipped([("a", b"1")])
    fields = dict(zip(("mark", "disk", "first", "here", "parts", "size", "start", "comment"),
                      struct.unpack("<4s4H2LH", data[-22:]), strict=True))  # fmt: skip
    return data[:-22] + struct.pack("<4s4H2LH", *(fields | changed).values())


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "make",
    [
        lambda: b"", lambda: b"PK", lambda: bytes(100), lambda: zipped(PARTS.items())[:-1],
        lambda: zipped(PARTS.items()) + b"x", lambda: b"x" + zipped(PARTS.items()),
        lambda: zipped(PARTS.items(), comment=b"another"),
        lambda: zipped(PARTS.items(), zipfile.ZIP_BZIP2),
        lambda: zipped(PARTS.items(), zipfile.ZIP_LZMA),
        lambda: zipped([("a", b"1"), ("a", b"2")]),
        lambda: zipped([(str(i), b"") for i in range(MOST_PARTS + 1)]),
        encrypted, lambda: with_end(parts=60_000, here=60_000), lambda: with_end(disk=1),
        lambda: with_end(start=0), lambda: with_end(size=2**31), lambda: with_end(comment=5),
        lambda: with_end(parts=2),
    ],
)  # fmt: skip
def test_odd_archives_are_refused(make):
    with pytest.raises(FileFormatError):
        Archive(make())


def test_changed_content_is_noticed():
    data = bytearray(zipped([("a", os.urandom(1000))]))
    data[200] ^= 1
    with pytest.raises((zipfile.BadZipFile, zlib.error, FileFormatError)):
        Archive(bytes(data)).read("a")


@pytest.mark.parametrize("dtype", ["f8", "f4", "i4", "u1", "u8", "?", ">f8"])
def test_arrays_survive(dtype):
    for array in (np.arange(6).reshape(2, 3), np.zeros((0, 4)), np.asfortranarray(np.eye(3)), 7):
        given = np.asarray(array).astype(dtype)
        found = from_npy_bytes(npy_bytes(given))
        assert (found.dtype, found.shape) == (given.dtype, given.shape)
        assert np.array_equal(found, given)
        assert found.flags.writeable


def npy(header, body=b""):
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x93NUMPY", b"nothing", npy_bytes(np.arange(5.0))[:-1], npy_bytes(np.ones(3)) + b"x",
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,)}"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -1)}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': 'x'}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 60 + ", 0)}"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}", bytes(16)),
        npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        npy("{'descr': '<f8'}", bytes(8)), npy("__import__('os')"), npy("(" * 110),
        npy("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        b"\x93NUMPY\x03\x00" + npy_bytes(np.ones(3))[8:],
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(50),
    ],
)  # fmt: skip
def test_odd_arrays_are_refused(data):
    with pytest.raises(FileFormatError):
        from_npy_bytes(data)


def test_only_regular_files_of_some_size_are_read(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_whole(tmp_path / "file") == b"12345"
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_whole(tmp_path)
    monkeypatch.setattr(archive_module, "MOST_BYTES", 4)
    with pytest.raises(FileFormatError, match="are not read"):
        read_whole(tmp_path / "file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_refused_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="a pipe or a device"):
        read_whole(tmp_path / "pipe")

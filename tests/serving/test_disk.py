"""A real server on a disk that is full: it answers, and goes on logging once there is room."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.serving.asking import saved_ranker
from tests.serving.killing import Client, Running

from untilt.serving.collect import collect


@contextmanager
def small_disk(kind, folder):
    """A mounted disk of a few MiB; skipped where this process may not mount one."""
    place, image = folder / "disk", folder / "image"
    place.mkdir()
    if kind == "tmpfs":
        words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    else:
        with image.open("wb") as file:
            file.truncate(8 << 20)
        if not shutil.which("mkfs.ext4"):
            pytest.skip("no mkfs.ext4 here")
        subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
        words = ["mount", "-o", "loop", str(image), str(place)]
    if (
        not shutil.which("mount")
        or subprocess.run(words, capture_output=True, check=False).returncode
    ):
        pytest.skip("this process may not mount disks")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(file):
    """Write until nothing goes in."""
    for size in (65_536, 512, 1):
        with suppress(OSError), file.open("ab", buffering=0) as film:
            while film.write(b"0" * size) == size:
                pass


def lists(port, start, number):
    with Client(port) as client:
        for i in range(start, start + number):
            body = {"session": f"s{i}", "query": "q", "documents": [f"d{j}" for j in range(12)],
                    "features": [[j, 0] for j in range(12)]}  # fmt: skip
            status, shown = client.post("/rank", body)
            assert (status, len(shown["documents"])) == (200, 12)
            yield shown["list"]


def test_every_test_that_the_promises_name_exists():
    root = Path(__file__).parents[2]
    named = set(re.findall(r"`(test_\w+)`", (root / "docs" / "durability.md").read_text()))
    tests = "".join(path.read_text() for path in (root / "tests").rglob("test_*.py"))
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in tests] == []


@pytest.mark.parametrize(
    ("kind", "workers"),
    [("tmpfs", 1), ("ext4", 1), pytest.param("tmpfs", 2, marks=pytest.mark.slow)],
)
def test_a_full_disk_stops_no_search_and_no_server(tmp_path, kind, workers):
    ranker = saved_ranker(tmp_path / "r.untilt")
    with small_disk(kind, tmp_path) as disk:
        server = Running(
            ranker, "--log", disk / "log", "--explore", "swap-adjacent:0.3", "--workers", workers
        )
        try:
            before = list(lists(server.port, 0, 20))
            fill(disk / "film.mp4")
            full = list(lists(server.port, 20, 300))
            with Client(server.port) as client:
                status, text = client.get("/metrics")
                assert status == 200
                event = {"event": "e", "list": before[0], "document": "d1"}
                fed, _ = client.post("/feedback", {"events": [event] * 1000})
            os.unlink(disk / "film.mp4")
            after = list(lists(server.port, 1000, 20))
            assert server.process.poll() is None
        finally:
            code = server.stop()
        assert None not in before + after
        assert None in full
        assert (code, fed) == (0, 503), server.said
        assert workers > 1 or f"untilt_unlogged_lists_total {full.count(None)}\n" in text.decode()
        done = collect(disk / "log", tmp_path / "clicks")
        assert done.lists == len(before) + len(after) + len(full) - full.count(None)
        assert (done.cut, done.damaged, done.bad, done.refused) == (0, 0, 0, {})

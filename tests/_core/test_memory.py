"""What this process may use, and refusing what cannot fit."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from untilt._core import memory
from untilt.errors import MemoryLimitError, OptionError, UntiltError


def test_sizes_are_read_as_people_write_them():
    sizes = {"4GB": 4 * 10**9, "4GiB": 4 * 2**30, "1.5 mb": 1_500_000, "40960": 40960, "2G": 2e9}
    assert {text: memory.parse_size(text, "x") for text in sizes} == sizes
    assert memory.parse_size(123, "x") == 123


@pytest.mark.parametrize("text", ["plenty", "", "-4GB", "4 bananas", "0", True, "nan"])
def test_other_sizes_are_refused(text):
    with pytest.raises(OptionError, match="must be bytes or text such as '4GB'"):
        memory.parse_size(text, "memory_limit")


def test_what_cannot_fit_is_refused_with_figures_and_a_remedy():
    with pytest.raises(MemoryLimitError) as refused:
        memory.allow(2.0**60, "this table", "Take fewer rows.")
    assert isinstance(refused.value, UntiltError)
    assert isinstance(refused.value, MemoryError)
    assert str(refused.value).startswith("this table needs about 1073741824.0 GiB of memory")
    assert str(refused.value).endswith("Take fewer rows.")
    memory.allow(2.0**20, "this table", "")


def test_the_variable_limits_the_whole_process(monkeypatch):
    monkeypatch.setenv(memory.VARIABLE, "1GB")
    assert memory.limit() == 10**9
    free = memory.room()
    assert free is not None
    assert free < 10**9  # the interpreter and its libraries count
    with pytest.raises(MemoryLimitError, match="its limit is 954 MiB"):
        memory.allow(10**9, "this table", "")
    monkeypatch.setenv(memory.VARIABLE, "little")
    with pytest.raises(OptionError, match="UNTILT_MEMORY_LIMIT must be"):
        memory.limit()


def _group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_is_that_of_the_innermost_group_that_has_one(
    version, tmp_path, monkeypatch
):
    inner, outer = tmp_path / "pod" / "box", tmp_path / "pod"
    stat = "cache 5\ntotal_inactive_file 100\n" if version == 1 else "anon 5\ninactive_file 100\n"
    if version == 1:
        own = "4:memory:/pod/box\n3:cpu:/\n"
        most, used = "memory__limit_in_bytes", "memory__usage_in_bytes"
    else:
        own, most, used = "0::/pod/box\n", "memory__max", "memory__current"
    _group(inner, **{most: "max\n" if version == 2 else f"{2**62}\n", used: "10\n"})
    _group(outer, **{most: "5000\n", used: "700\n"}, memory__stat=stat)
    text = memory._text

    def read(path):
        path = str(path)
        root = "/sys/fs/cgroup" + ("/memory" if version == 1 else "")
        return own if path == "/proc/self/cgroup" else text(path.replace(root, str(tmp_path)))

    monkeypatch.setattr(memory, "_text", read)
    assert (5000, 600) in list(memory._limits_of_groups())
    assert memory.room() == 4400


@pytest.mark.skipif(sys.platform != "linux", reason="limits of the process by /proc")
@pytest.mark.parametrize("kind", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_the_limit_of_the_process_counts(kind):
    code = (
        f"import resource as r; r.setrlimit(r.{kind}, (2 << 30, 2 << 30))\n"
        "from untilt._core import memory\n"
        "print(memory.limit(), memory.room())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    most, free = map(int, done.stdout.split())
    assert most == 2 << 30
    assert 1 << 30 < free < 2 << 30


def test_running_out_becomes_our_error():
    with (
        pytest.raises(MemoryLimitError, match=r"this step needs more memory .* Use less\."),
        memory.refusing("this step", "Use less."),
    ):
        np.empty(1 << 60, dtype=np.int8)


@pytest.mark.parametrize("text", ["std::bad_alloc", "Out of memory: cannot allocate"])
def test_running_out_in_a_library_is_known_by_its_words(text):
    assert memory.ran_out(RuntimeError(text))
    assert not memory.ran_out(RuntimeError("a bad idea"))
    assert not memory.ran_out(ValueError(text))


def test_other_errors_go_through():
    with pytest.raises(ZeroDivisionError), memory.refusing("this step", "Use less."):
        1 / 0  # noqa: B018


def test_duckdb_is_given_a_share_of_what_is_left(monkeypatch):
    from untilt.data.read import database

    monkeypatch.setattr(memory, "room", lambda: 1 << 30)
    with database.open_database(memory_limit=None, temp_directory=None, threads=1) as found:
        (text,) = found.row("SELECT current_setting('memory_limit')")
    assert text == "512.0 MiB"


def test_a_library_that_another_thread_is_importing_is_no_error_of_its_own(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", ModuleType("lightgbm"))
    monkeypatch.delitem(sys.modules, "lightgbm.basic", raising=False)
    monkeypatch.setitem(sys.modules, "duckdb", ModuleType("duckdb"))
    assert not memory.ran_out(ValueError("what really happened"))

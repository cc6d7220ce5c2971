"""Files are written whole or not at all, and nothing of anybody else is touched."""

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

import untilt as ut
from untilt._core import files
from untilt._core.files import clear_unfinished, replacing, replacing_all, scratch_folder
from untilt.errors import OptionError, WriteError

posix = pytest.mark.skipif(os.name != "posix", reason="locks and permissions are POSIX")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def leftover(folder: Path, ending: str = "") -> Path:
    """A file as a killed writer on this machine leaves it."""
    path = folder / files._new_name("unfinished", ending)
    path.write_text("half of the n")
    return path


def killed(code: str, folder: Path) -> None:
    """Run code in a process that ends by SIGKILL."""
    lines = textwrap.dedent(code) + "\nos.kill(os.getpid(), 9)\n"
    head = "import os, sys\nfrom pathlib import Path\nfrom untilt._core import files\n"
    done = subprocess.run(
        [sys.executable, "-c", head + lines, str(folder)], check=False, timeout=60
    )
    assert done.returncode == -signal.SIGKILL


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


def test_a_long_name_leaves_room_for_the_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("a." + "b" * 240)
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert names(tmp_path) == [path.name]


def test_bytes_are_on_the_disk_before_the_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = []
    fsync, replace = os.fsync, os.replace

    def told_fsync(handle: int) -> None:
        order.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def told_replace(*paths: Path) -> None:
        order.append("rename")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", told_fsync)
    monkeypatch.setattr(os, "replace", told_replace)
    with replacing(tmp_path / "c.json") as temporary:
        temporary.write_text("{}")
    assert order == ["file", "rename", "folder"]


# Permissions, links and what is no file.


@posix
def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    with replacing(tmp_path / "ours") as temporary:
        temporary.write_text("")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@posix
def test_the_umask_of_the_process_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Setting it, even for a moment, changes the files of other threads."""
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("umask was set"))
    with replacing(tmp_path / "ours") as temporary:
        temporary.write_text("")


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_private_file_stays_private(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "log.csv"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as temporary:
        assert not stat.S_IMODE(temporary.stat().st_mode) & ~mode
        temporary.write_text("new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_link_is_replaced_and_what_it_points_to_is_not(tmp_path: Path) -> None:
    target, link = tmp_path / "kept.csv", tmp_path / "log.csv"
    target.write_text("somebody's")
    link.symlink_to(target)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert (target.read_text(), link.read_text(), link.is_symlink()) == ("somebody's", "new", False)


@posix
def test_a_pipe_or_a_device_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for path in (tmp_path / "pipe", tmp_path / "null", Path("/dev/null"), tmp_path):
        with pytest.raises(OptionError, match=r"is a (device|folder)"), replacing(path):
            pytest.fail("nothing may be written there")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert names(tmp_path) == ["null", "pipe"]


# What killed writers leave.


@posix
def test_what_a_killed_writer_left_goes_with_the_next_file_there(tmp_path: Path) -> None:
    killed(
        """
        block = files.replacing(Path(sys.argv[1]) / "log.csv.gz")
        block.__enter__().write_text("half of the n")
        """,
        tmp_path,
    )
    assert len(names(tmp_path)) == 1
    with replacing(tmp_path / "other.json") as temporary:
        temporary.write_text("{}")
    assert names(tmp_path) == ["other.json"]


FOREIGN = (
    ".backup-20261115.tar.gz",
    ".my-settings",
    ".notes-my_notes.md",
    ".log-a1b2c3d4.parquet",
    ".untilt-unfinished-notes.txt",
    ".untilt-settings",
    f".untilt-unfinished-{'0' * 8}-{'f' * 8}-{'a' * 12}.csv",  # of another machine
)


@posix
def test_nothing_without_our_mark_or_of_another_machine_goes(tmp_path: Path) -> None:
    for name in FOREIGN:
        (tmp_path / name).write_text("somebody's")
    leftover(tmp_path, ".csv")
    clear_unfinished(tmp_path)
    assert names(tmp_path) == sorted(FOREIGN)


@posix
def test_nothing_behind_a_link_with_our_mark_goes(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "log.csv").write_text("somebody's")
    link = tmp_path / files._new_name("unfinished")
    link.symlink_to(tmp_path / "kept")
    clear_unfinished(tmp_path)
    assert names(tmp_path / "kept") == ["log.csv"]


@posix
def test_files_of_living_writers_stay(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.csv") as first, replacing_all(tmp_path, ["c.csv"]) as second:
        (second / "c.csv").write_text("c")
        with replacing(tmp_path / "b.csv") as third:
            third.write_text("b")
        assert first.exists()
        first.write_text("a")
    assert names(tmp_path) == ["a.csv", "b.csv", "c.csv"]


def test_many_threads_write_into_one_folder(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for _ in range(20):
                with replacing(tmp_path / f"{number % 3}.csv") as temporary:
                    temporary.write_text(str(number % 3))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert names(tmp_path) == ["0.csv", "1.csv", "2.csv"]


@posix
def test_a_scratch_folder_goes_with_its_block_or_with_the_next_one(tmp_path: Path) -> None:
    killed("block = files.scratch_folder(sys.argv[1])\n(block.__enter__() / 'x').mkdir()", tmp_path)
    assert len(names(tmp_path)) == 1
    with scratch_folder(tmp_path) as folder:
        (folder / "spill").write_text("many rows")
        assert names(tmp_path) == [folder.name]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert names(tmp_path) == []


# Files that belong together.

SET = ("clicks.parquet", "truth.json", "bias.json")


def write_set(folder: Path, text: str) -> None:
    with replacing_all(folder, SET) as staging:
        for name in SET:
            (staging / name).write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in SET if (folder / name).exists()}


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    write_set(tmp_path, "old")
    (tmp_path / "notes.md").write_text("somebody's")
    write_set(tmp_path, "new")
    assert contents(tmp_path) == dict.fromkeys(SET, "new")
    assert names(tmp_path) == sorted([*SET, "notes.md"])


@posix
@pytest.mark.parametrize("calls", range(1, 9))
def test_a_kill_at_any_moment_of_the_moves_leaves_no_mixture(tmp_path: Path, calls: int) -> None:
    """Three unlinks, three moves and the renaming before them: killed at each."""
    write_set(tmp_path, "old")
    (tmp_path / "notes.md").write_text("somebody's")
    killed(
        f"""
        left = [{calls}]
        def counted(function):
            def call(*given, **named):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), 9)
                return function(*given, **named)
            return call
        os.replace, os.rename = counted(os.replace), counted(os.rename)
        Path.unlink = counted(Path.unlink)
        with files.replacing_all(sys.argv[1], {SET!r}) as staging:
            for name in {SET!r}:
                (staging / name).write_text("new")
        """,
        tmp_path,
    )
    assert len(set(contents(tmp_path).values())) <= 1
    clear_unfinished(tmp_path)
    assert contents(tmp_path) in (dict.fromkeys(SET, "old"), dict.fromkeys(SET, "new"))
    assert names(tmp_path) == sorted([*SET, "notes.md"])


def test_an_error_leaves_the_old_set(tmp_path: Path) -> None:
    write_set(tmp_path, "old")

    def fail() -> None:
        with replacing_all(tmp_path, SET) as staging:
            (staging / SET[0]).write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert contents(tmp_path) == dict.fromkeys(SET, "old")
    assert names(tmp_path) == sorted(SET)


# Where nothing can be written.


@posix
def test_a_limit_on_file_sizes_is_told_in_a_sentence(tmp_path: Path) -> None:
    code = """
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            with files.replacing(Path(sys.argv[1]) / "log.csv") as temporary:
                temporary.write_bytes(b"0" * 2000)
        except ValueError as error:
            assert type(error).__name__ == "WriteError" and "ulimit -f" in str(error), error
        else:
            sys.exit(1)
    """
    killed(code, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", ["file/log.csv", "a" * 300 + ".csv"])
def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("no folder")
    with (
        pytest.raises(WriteError, match="could not be written") as raised,
        replacing(tmp_path / place),
    ):
        pytest.fail("nothing may be written there")
    assert str(tmp_path / place) in str(raised.value)
    assert isinstance(raised.value, OSError)
    assert raised.value.errno


@pytest.mark.parametrize("second", [True, False])
def test_a_full_disk_is_told_whichever_path_the_error_names(tmp_path: Path, second: bool) -> None:
    """Copying names what is read first; libraries name nothing, and have words of their own."""

    def write() -> None:
        with replacing(tmp_path / "log.csv") as temporary:
            if second:
                raise OSError(errno.ENOSPC, "full", "input.csv", None, str(temporary))
            raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")

    with pytest.raises(
        WriteError, match=r"log\.csv could not be written: No space left.* Make room"
    ):
        write()
    assert names(tmp_path) == []


def test_an_error_of_reading_is_not_told_as_one_of_writing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), replacing(tmp_path / "log.csv"):
        (tmp_path / "absent" / "input.csv").read_text()


def test_a_name_that_no_file_can_have():
    with pytest.raises(OptionError, match="zero byte"), replacing("a\0b"):
        pass
    for load in (ut.load, ut.PositionBias.load):
        with pytest.raises(OptionError, match="zero byte"):
            load("a\0b")

"""Progress is silent by itself, and on a terminal shows only what lasts."""

import io
import time
from contextlib import contextmanager

from rich.console import Console

from untilt._core import progress as module
from untilt._core.progress import part, progress, showing_progress, track


def terminal() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=80), file


def test_nobody_listens_by_default(capfd):
    with progress("counting", total=2) as advance:
        advance()
        advance(1)
    assert list(track("ab", "letters")) == ["a", "b"]
    assert capfd.readouterr() == ("", "")


def test_a_task_that_lasts_is_shown_with_its_name_and_share():
    console, file = terminal()
    with showing_progress(console=console, after=0.0), progress("counting", total=4) as advance:
        advance(3)
        time.sleep(0.5)
    assert "counting" in file.getvalue()
    assert "75%" in file.getvalue()


def test_a_call_that_never_advances_is_shown_too():
    console, file = terminal()
    with showing_progress(console=console, after=0.05), progress("one long query"):
        time.sleep(0.5)
    assert "one long query" in file.getvalue()


def test_a_short_task_leaves_no_trace():
    console, file = terminal()
    with showing_progress(console=console, after=30.0), progress("quick", total=1) as advance:
        advance()
    assert file.getvalue() == ""


def test_a_pipe_gets_nothing():
    file = io.StringIO()
    console = Console(file=file, force_terminal=False)
    with showing_progress(console=console, after=0.0), progress("counting", total=1):
        time.sleep(0.1)
    assert file.getvalue() == ""


def test_bars_come_down_when_the_work_fails():
    console, file = terminal()
    try:
        with showing_progress(console=console, after=0.0), progress("failing", total=1):
            time.sleep(0.3)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    shown = file.getvalue()
    assert "failing" in shown
    # The cursor is hidden while bars are up and must be given back.
    assert shown.rfind("\x1b[?25h") > shown.rfind("\x1b[?25l") >= 0


def test_tasks_nest_and_the_display_serves_one_after_the_other():
    console, file = terminal()
    with showing_progress(console=console, after=0.0):
        for name in ("first", "second"):
            with progress(name, total=1), progress(f"inside {name}", total=1):
                time.sleep(0.3)
    for name in ("first", "inside first", "second", "inside second"):
        assert name in file.getvalue()


class Counts:
    """A listener that adds up what each task was advanced by."""

    def __init__(self):
        self.done = {}

    @contextmanager
    def task(self, what, total):
        self.done[what] = 0.0

        def advance(step=1):
            self.done[what] += step

        yield advance


def test_a_task_counts_what_is_inside_in_parts():
    counts = Counts()
    token = module._listener.set(counts)
    try:
        with progress("all", total=30, inside=True):
            with part(10):
                with progress("few", total=4) as advance:
                    advance(4)
                assert counts.done["all"] == 4
            assert counts.done["all"] == 10, "what is missing comes at the end"
            with part(20):
                with progress("many", total=50) as advance:
                    advance(50)
                with progress("nobody knows") as advance:
                    advance(7)
                assert counts.done["all"] == 0.95 * 30, "full only when it ends"
    finally:
        module._listener.reset(token)
    assert counts.done["many"] == 50


def test_work_of_unknown_length_has_no_share():
    console, file = terminal()
    with showing_progress(console=console, after=0.0), progress("searching"):
        time.sleep(0.3)
    assert "searching" in file.getvalue()
    assert "%" not in file.getvalue()

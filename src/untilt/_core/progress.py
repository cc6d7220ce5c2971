"""Progress of long work, told to whoever listens.

Work anywhere in the library says what it does and how far it is; it never prints. Nobody listens
unless a command (or a user) asks for it with `showing_progress`, so the library is silent by
itself, and no function needs a `verbose` argument.

>>> with progress("counting", total=3) as advance:
...     for _ in range(3):
...         advance()
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

T = TypeVar("T")
Advance = Callable[..., None]


class Listener(Protocol):
    """Whoever is told about progress."""

    def task(self, what: str, total: float | None) -> AbstractContextManager[Advance]:
        """A task from its beginning to its end; the value advances it."""
        ...


_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


def progress(what: str, *, total: float | None = None) -> AbstractContextManager[Advance]:
    """Announce a task. `advance(n)` inside the block says that n more of `total` are done.

    Without a total the work is of unknown length. Advance per chunk of work, not per row.
    """
    listener = _listener.get()
    return nullcontext(_ignore) if listener is None else listener.task(what, total)


def track(items: Iterable[T], what: str, *, total: float | None = None) -> Iterator[T]:
    """The items one by one, each counted as done when the next is asked for."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress(what, total=total) as advance:
        for item in items:
            yield item
            advance()


@contextmanager
def showing_progress(*, console: "Console | None" = None, after: float = 2.0) -> Iterator[None]:
    """Show tasks that last longer than `after` seconds as bars on stderr, if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield
        return
    bars = _Bars(console, after)
    token = _listener.set(bars)
    try:
        yield
    finally:
        _listener.reset(token)
        bars.close()


def _ignore(step: float = 1) -> None:
    """Nobody listens."""


class _Bars:
    """Rich bars that appear once a task has lasted `after` seconds and vanish when it ends.

    A timer makes a bar visible, so that one long call into compiled code is shown too.
    """

    def __init__(self, console: "Console", after: float) -> None:
        self._bars = _new_bars(console)
        self._after = after
        self._lock = threading.Lock()
        self._shown: set[TaskID] = set()

    @contextmanager
    def task(self, what: str, total: float | None) -> Iterator[Advance]:
        bar = self._bars.add_task(what, total=total, visible=False)
        timer = threading.Timer(self._after, self._show, [bar])
        timer.daemon = True
        timer.start()
        try:
            yield lambda step=1: self._bars.advance(bar, step)
        finally:
            timer.cancel()
            self._end(bar)

    def close(self) -> None:
        """Take the display down, whatever is still open."""
        with self._lock:
            self._bars.stop()

    def _show(self, bar: "TaskID") -> None:
        with self._lock:
            if bar in self._bars.task_ids:
                self._shown.add(bar)
                self._bars.update(bar, visible=True)
                self._bars.start()

    def _end(self, bar: "TaskID") -> None:
        with self._lock:
            self._bars.remove_task(bar)
            self._shown.discard(bar)
            if not self._shown:
                # Off the screen between tasks, so that results can be printed there.
                self._bars.stop()


def _new_bars(console: "Console") -> "Progress":
    from rich import progress as rich_progress

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        redirect_stdout=False,  # stdout may hold the one JSON object of --json
    )

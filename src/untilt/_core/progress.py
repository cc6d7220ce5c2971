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
from contextlib import AbstractContextManager, contextmanager
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


class _Part:
    """A part of a longer task, which is moved by the tasks inside it.

    How much is counted inside is a guess: what is more moves nothing, what is missing comes at the
    end, and until then the part is never full.
    """

    def __init__(self, advance: Advance, size: float) -> None:
        self._advance, self._left, self._lock = advance, size, threading.Lock()
        self._until_end = 0.05 * size

    def advance(self, step: float = 1) -> None:
        """More is done, one for one."""
        with self._lock:
            step = max(0.0, min(step, self._left - self._until_end))
            self._left -= step
        self._advance(step)

    def end(self) -> None:
        """All of it is done."""
        self._advance(self._left)


_part: ContextVar[_Part | None] = ContextVar("progress_part", default=None)


@contextmanager
def part(size: float) -> Iterator[None]:
    """So much of the task around it that counts what is inside; without one nothing changes."""
    around = _part.get()
    if around is None:
        yield
        return
    own = _Part(around.advance, size)
    token = _part.set(own)
    try:
        yield
    finally:
        _part.reset(token)
        own.end()


@contextmanager
def progress(what: str, *, total: float | None = None, inside: bool = False) -> Iterator[Advance]:
    """Announce a task. `advance(n)` inside the block says that n more of `total` are done.

    Without a total the work is of unknown length. Advance per chunk of work, not per row. With
    `inside` the task counts what tasks inside the block count, in parts where there are any.
    """
    listener, around = _listener.get(), _part.get()
    if listener is None:
        yield _ignore
        return
    with listener.task(what, total) as own:

        def advance(step: float = 1) -> None:
            own(step)
            if around is not None and total is not None:
                around.advance(step)

        token = _part.set(_Part(own, total)) if inside and total is not None else None
        try:
            yield advance
        finally:
            if token is not None:
                _part.reset(token)


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
    from rich.text import Text

    class _Share(rich_progress.TaskProgressColumn):
        """No share of work whose length is unknown, which would stay at 0%."""

        def render(self, task: rich_progress.Task) -> Text:
            return super().render(task) if task.total else Text()

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        _Share(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        redirect_stdout=False,  # stdout may hold the one JSON object of --json
    )

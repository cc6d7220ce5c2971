"""Threads of compiled code: how many work deserves, how they wait, what a fork leaves of them.

**By work.** A thread more is worth its waking only where it gets some milliseconds of work each
time. Under that, on a machine whose cores are busy, every loop waits until the system gives the
other thread a turn. So LightGBM gets one thread for each `TREE_VALUES` values, a kernel one for
each `KERNEL_NUMBERS` numbers, and never more than there are cores for this process (`cores`). Sums
are taken in blocks and LightGBM is told to be deterministic, so results do not depend on it.

**One thread of BLAS** for the products of linear rankers (`one_blas_thread`).

**Side by side.** Small trainings that do not depend on each other run in threads of Python, each of
them alone with its trees and kernels (`side_by_side`).

**No spinning.** GNU OpenMP, under LightGBM and numba on Linux, lets idle threads turn in a loop for
milliseconds after each piece of work, which takes the cores from everybody, also from itself: 100
trees on 5,000 rows took 26 s in place of 0.6 s on a busy machine. It reads the setting once, when
it is loaded, so it is loaded here with GOMP_SPINCOUNT=0, and the variable is taken back: children
of this process do not see it. Where the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or another
package has loaded the library before, it stays as it is.

**Forks.** A forked child has only the thread that called `fork`, but its libraries still count on
the threads of the parent. GNU OpenMP then waits for them for ever, and numba ends such a child with
SIGTERM. So:

- Before a fork the idle threads of GNU OpenMP are ended (`omp_pause_resource_all`, since GCC 9).
  Parent and child start new ones when they need them. An older library is told to use one thread
  in the child, and `thread_count` says 1 there.
- Numba refuses its OpenMP layer in a child whatever the state of the threads, so the child runs a
  kernel's other version, compiled without threads.

Numba's `workqueue` layer survives a fork too, but the layer is one for the whole process, and this
one aborts the process when two threads run kernels that release the GIL. A library must not choose
that for its user's own kernels. A layer chosen by the user (NUMBA_THREADING_LAYER) is respected;
TBB and workqueue go on with all threads in a child.
"""

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache, update_wrapper
from types import FunctionType
from typing import Any, TypeVar

import numba as nb

T = TypeVar("T")
R = TypeVar("R")

# For each thread, below twice of it one thread: a tree then takes some 5 ms per thread, and the 100
# to 200 times that LightGBM calls its threads for one tree cost 1.5 ms.
TREE_VALUES = 1_000_000  # rows x features
KERNEL_NUMBERS = 50_000  # in the largest array of a call: 0.5 to 5 ms

_PAUSE_SOFT = 1  # omp_pause_soft: threads end, settings stay
_HOW_TO_WAIT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass
class _State:
    """What the forks before this process left."""

    ended: bool = True  # by the fork that is under way: no thread of GNU OpenMP is counted on
    kernels_alone: bool = False
    one_thread: bool = False


class _Worker(threading.local):
    """Whether this thread of Python is one of several that work side by side."""

    alone = False


_state, _worker = _State(), _Worker()


@cache
def cores() -> int:
    """Cores that this process may use: of the machine, its affinity, its container.

    OMP_NUM_THREADS is the user's word and goes before.
    """
    from joblib import cpu_count  # type: ignore[import-untyped]

    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else int(cpu_count())


def thread_count(n_threads: int | None, *, values: int | None = None) -> int | None:
    """The number of threads to ask LightGBM for.

    A number of the user is kept. Else, where the number of `values` (rows x features) is given, as
    many as the work deserves. 1 where a fork left no more, and beside other workers.
    """
    if _state.one_thread or _worker.alone:
        return 1
    if values is None or (n_threads is not None and n_threads > 0):
        return n_threads
    return max(1, min(cores(), values // TREE_VALUES))


@contextmanager
def kernel_threads(most: int | None) -> Iterator[None]:
    """Compiled kernels inside the block use at most this many threads (None: as before).

    Give the number of parts of the work, too, where that may be small: on a machine whose cores are
    all busy, a LETOR file of five lines took 33 ms with two threads and 0.4 ms with one.
    """
    before = nb.get_num_threads()
    if most is not None:
        nb.set_num_threads(max(1, min(most, before)))
    try:
        yield
    finally:
        nb.set_num_threads(before)


class _OneBlasThread(ContextDecorator):
    """BLAS, under numpy, works on one thread until the last one inside has left.

    A product of a table and a vector is over before a second thread has woken up, its threads spin
    as well, and they sum in an order that depends on their number: 70,000 rows with 50 features
    gave `RankSVM` other last digits on two threads, in 3.5 times the CPU time.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        from threadpoolctl import threadpool_limits

        with self._lock:
            if self._inside == 0:
                self._limits = threadpool_limits(1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


one_blas_thread = _OneBlasThread()


class _Room:
    """How many more threads may work for a call of `side_by_side` and for those inside it."""

    def __init__(self, more: int) -> None:
        self._lock, self._more = threading.Lock(), more

    def take(self, most: int) -> int:
        with self._lock:
            taken = max(0, min(most, self._more))
            self._more -= taken
        return taken

    def change(self, more: int) -> None:
        with self._lock:
            self._more += more


_room: ContextVar[_Room | None] = ContextVar("room", default=None)


def side_by_side(
    function: Callable[[T], R], items: Iterable[T], *, n_threads: int | None = None
) -> list[R]:
    """What the function gives for each item, in their order; several at once, one thread for each.

    For small trainings: LightGBM and the kernels release the GIL, and one thread each needs no
    waiting. The number of items that run at once is at most `n_threads` or the cores. A call inside
    a call has the threads that are idle when it begins, so that what is left of a long item is
    shared as soon as the short ones are done. The first error is raised when all that have begun
    have ended.
    """
    todo = list(items)
    wanted = n_threads if n_threads is not None and n_threads > 0 else cores()
    room = _room.get() or _Room(wanted - 1)
    more = 0 if _state.one_thread else room.take(len(todo) - 1)
    if not more:
        return [function(item) for item in todo]
    places = deque(range(len(todo)))
    found: dict[int, R] = {}
    failed: dict[int, BaseException] = {}

    def work() -> None:
        before, _worker.alone = _worker.alone, True
        try:
            while places and not failed:
                try:
                    place = places.popleft()
                except IndexError:  # another thread was faster
                    break
                try:
                    found[place] = function(todo[place])
                except BaseException as error:
                    failed[place] = error
        finally:
            _worker.alone = before

    def help_out() -> None:
        try:
            work()
        finally:
            room.change(1)

    token = _room.set(room)
    # A context of its own: whoever listens to progress hears the helpers, too.
    helpers = [
        threading.Thread(target=copy_context().run, args=(help_out,), name=f"untilt_{number}")
        for number in range(more)
    ]
    try:
        for each in helpers:
            each.start()
        work()
    finally:
        places.clear()
        room.change(1)  # this thread is idle, too, until the others are done
        for each in helpers:
            each.join()
        room.change(-1)
        _room.reset(token)
    for place in sorted(failed):
        raise failed[place]
    return [found[place] for place in range(len(todo))]


class ParallelKernel:
    """A kernel in two versions, each compiled by its first call and cached on disk.

    One shares its loop among threads. The other has one thread and releases the GIL: for little
    work, for workers side by side, and for a forked child whose parent has used numba's OpenMP
    layer. Called from Python only: a kernel inside another kernel would start threads in threads.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        update_wrapper(self, function)
        self.together = nb.njit(parallel=True, cache=True, **options)(function)
        alone = {"nogil": True, **options}
        self.alone = nb.njit(cache=True, **alone)(_renamed(function, "_alone"))

    def __call__(self, *arguments: Any) -> Any:
        """Run the version that this process can run and the work deserves."""
        if _state.kernels_alone or _worker.alone:
            return self.alone(*arguments)
        deserved = _numbers(arguments) // KERNEL_NUMBERS
        if deserved < 2 or nb.get_num_threads() < 2:
            return self.alone(*arguments)
        with kernel_threads(min(deserved, cores())):
            return self.together(*arguments)


def _numbers(arguments: Iterable[Any]) -> int:
    """In the largest array among these, also where several are held by a tuple."""
    sizes = (_numbers(e) if isinstance(e, tuple) else getattr(e, "size", 0) for e in arguments)
    return max(sizes, default=0)


def parallel_kernel(**options: Any) -> Callable[[Callable[..., Any]], ParallelKernel]:
    """Compile a function whose loop over `nb.prange` all threads share; options are numba's."""
    return lambda function: ParallelKernel(function, options)


def _renamed(function: Callable[..., Any], ending: str) -> FunctionType:
    """The same function by another name: numba's cache on disk tells functions apart by name."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__ + ending,
        function.__defaults__,
        function.__closure__,
    )
    copy.__qualname__ = function.__qualname__ + ending
    return copy


def _before_fork() -> None:
    ended = [_end_threads(path) for path in _gnu_openmp()]
    _state.ended = all(ended)


def _after_fork_in_child() -> None:
    if not _state.ended:
        _state.one_thread = True
        for path in _gnu_openmp():
            ctypes.CDLL(path).omp_set_num_threads(1)
    _state.kernels_alone |= _state.one_thread or _layer_refuses_a_child()


def _gnu_openmp() -> list[str]:
    """Paths of the GNU OpenMP libraries in this process; a wheel may bring its own."""
    from threadpoolctl import threadpool_info

    return [each["filepath"] for each in threadpool_info() if each["prefix"] == "libgomp"]


def _end_threads(path: str) -> bool:
    """End the idle threads that work for this one; False where the library cannot."""
    pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
    return pause is not None and pause(_PAUSE_SOFT) == 0


def _layer_refuses_a_child() -> bool:
    """Has numba started its OpenMP layer on GNU's library? Other systems have another OpenMP."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(nb.threading_layer() == "omp")
    except ValueError:  # no kernel has run yet
        return False


def _load_without_spinning() -> None:
    """Load GNU OpenMP with threads that sleep while they wait; see the top of this file."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _HOW_TO_WAIT):
        return
    os.environ["GOMP_SPINCOUNT"] = "0"
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:  # LightGBM and numba will say so where they need it
        pass
    finally:
        del os.environ["GOMP_SPINCOUNT"]


_load_without_spinning()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)

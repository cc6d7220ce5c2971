"""Threads of compiled code: how many work deserves, how they wait, what a fork leaves of them.

**By work.** A thread more is worth its waking only where it gets some milliseconds of work each
time. Under that, on a machine whose cores are busy, every loop waits until the system gives the
other thread a turn. So LightGBM gets one thread for each `TREE_VALUES` values, a kernel one for
each `KERNEL_NUMBERS` numbers, and never more than there are cores for this process (`cores`). Sums
are taken in blocks and LightGBM is told to be deterministic, so results do not depend on it.

**One thread of BLAS** while anything learns (`one_blas_thread`).

**Side by side.** Small trainings that do not depend on each other run in threads of Python, each of
them alone with its trees and kernels (`side_by_side`).

**No spinning.** GNU OpenMP, under LightGBM on Linux, lets idle threads turn in a loop for
milliseconds after each piece of work, which takes the cores from everybody, also from itself: 100
trees on 5,000 rows took 26 s in place of 0.6 s on a busy machine. It reads the setting once, when
it is loaded, so it is loaded here with GOMP_SPINCOUNT=0, and the variable is taken back: children
of this process do not see it. Where the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, or another
package has loaded the library before, it stays as it is.

**Forks.** A forked child has only the thread that called `fork`, but GNU OpenMP, under LightGBM,
still counts on the threads of the parent and waits for them for ever. So before a fork its idle
threads are ended (`omp_pause_resource_all`, since GCC 9), and parent and child start new ones when
they need them. An older library is told to use one thread in the child, and `thread_count` says 1
there.

**Kernels** share their loops among threads of Python (`ParallelKernel`), not through numba's own
`prange`. That compiles a second version of each kernel, whose sums may differ in the last bit
(numba 0.60 to 0.62), refuses to run in a forked child under OpenMP, and under `workqueue` aborts
the process when two threads run kernels at once.
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
from functools import cache, lru_cache, update_wrapper
from itertools import pairwise
from typing import Any, TypeVar

import numba as nb

T = TypeVar("T")
R = TypeVar("R")
Share = tuple[int, int]  # the parts of a loop that a call is to do: the first, and the one after

# For each thread, below twice of it one thread: a tree then takes some 5 ms per thread, and the 100
# to 200 times that LightGBM calls its threads for one tree cost 1.5 ms.
TREE_VALUES = 1_000_000  # rows x features
KERNEL_NUMBERS = 50_000  # in the largest array of a call: 0.5 to 5 ms
PIECES = 4  # of a kernel's loop for each thread: who is done with the short ones takes more

_PAUSE_SOFT = 1  # omp_pause_soft: threads end, settings stay
_HOW_TO_WAIT = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


@dataclass
class _State:
    """What the forks before this process left."""

    ended: bool = True  # by the fork that is under way: no thread of GNU OpenMP is counted on
    one_thread: bool = False


class _Worker(threading.local):
    """Whether this thread of Python is one of several that work side by side."""

    alone = False


_state, _worker = _State(), _Worker()
_most_for_kernels: ContextVar[int | None] = ContextVar("most_for_kernels", default=None)


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

    Where the number of `values` (rows x features) is given, as many as the work deserves: no more
    than the user's number, nor than cores. 1 where a fork left no more, and beside other workers.
    """
    if _state.one_thread or _worker.alone:
        return 1
    if values is None:
        return n_threads
    most = n_threads if n_threads is not None and n_threads > 0 else cores()
    return max(1, min(most, cores(), values // TREE_VALUES))


@contextmanager
def kernel_threads(most: int | None) -> Iterator[None]:
    """Compiled kernels inside the block use at most this many threads (None: as before)."""
    before = _most_for_kernels.get()
    token = _most_for_kernels.set(before if most is None else max(1, min(most, before or most)))
    try:
        yield
    finally:
        _most_for_kernels.reset(token)


class _OneBlasThread(ContextDecorator):
    """BLAS, under numpy, works on one thread until the last one inside has left.

    A product of a table and a vector is over before a second thread has woken up, its threads spin
    as well, and they sum in an order that depends on their number: 70,000 rows with 50 features
    gave `RankSVM` other last digits on two threads, in 3.5 times the CPU time. A last digit of a
    variance gave the stacked learner 90 trees in place of 130, and NDCG@10 .790 in place of .794.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limits = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limits.restore_original_limits()


one_blas_thread = _OneBlasThread()


@lru_cache(maxsize=1)
def _libraries_at(_n_modules: int) -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _libraries() -> Any:
    """What sets the threads of the libraries in this process.

    Finding them reads the map of all of its memory, 6 to 25 ms: more than a small fit takes. So
    they are found anew where a module was imported since; a library comes with a module.
    """
    return _libraries_at(len(sys.modules))


class _Call:
    """A call of `side_by_side` under way, and what came of its items.

    The calls inside a call share its threads and its lock, that of `changed`.
    """

    def __init__(self, function: Callable[[Any], Any], todo: list[Any], n_threads: int) -> None:
        self.function, self.todo, self.n_threads = function, todo, n_threads
        self.outer = outer = _inside.get()
        self.places = deque(range(len(todo)))
        self.found: dict[int, Any] = {}
        self.failed: dict[int, BaseException] = {}
        self.running = 0
        self.first: _Call = self if outer is None else outer.first
        self.context = copy_context()  # whoever listens to progress hears all threads
        self.context.run(_inside.set, self)
        # Of the outermost call alone:
        self.changed = threading.Condition()
        self.under_way: list[_Call] = []
        self.spare = n_threads - 1  # threads that may still be started

    def results(self) -> list[Any]:
        """In the order of the items; starts the threads that are left, and works with them."""
        first = self.first
        with first.changed:
            first.under_way.append(self)
            more = min(first.spare, self.n_threads - 1, len(self.todo) - 1)
            first.spare -= more
            first.changed.notify_all()
        helpers = [threading.Thread(target=self._work, name=f"untilt_{n}") for n in range(more)]
        try:
            for each in helpers:
                each.start()
            self._work()
        finally:
            with first.changed:
                self.places.clear()
            for each in helpers:
                each.join()
            with first.changed:
                first.under_way.remove(self)
                first.spare += more
        for place in sorted(self.failed):
            raise self.failed[place]
        return [self.found[place] for place in range(len(self.todo))]

    def _work(self) -> None:
        """Until all items have ended: those of calls inside this one first, then its own.

        What is inside was begun earlier, and somebody waits for it.
        """
        changed = self.first.changed
        before, _worker.alone = _worker.alone, True
        try:
            while True:
                with changed:
                    while (found := self._next()) is None and self.running:
                        changed.wait()
                if found is None:
                    break
                found[0]._run(found[1])
        finally:
            _worker.alone = before

    def _next(self) -> "tuple[_Call, int] | None":
        """An item that can be begun now, which counts as begun."""
        inside = (each for each in self.first.under_way if each is not self and self in each._outer)
        for call in (*inside, self):
            if call.places and call.running < call.n_threads and not call.failed:
                call.running += 1
                return call, call.places.popleft()
        return None

    @property
    def _outer(self) -> "Iterator[_Call]":
        outer = self.outer
        while outer is not None:
            yield outer
            outer = outer.outer

    def _run(self, place: int) -> None:
        try:
            found = self.context.copy().run(self.function, self.todo[place])
        except BaseException as error:
            with self.first.changed:
                self.failed[place] = error
        else:
            self.found[place] = found
        with self.first.changed:
            self.running -= 1
            self.first.changed.notify_all()


_inside: ContextVar[_Call | None] = ContextVar("inside", default=None)


def side_by_side(
    function: Callable[[T], R], items: Iterable[T], *, n_threads: int | None = None
) -> list[R]:
    """What the function gives for each item, in their order; several at once, one thread for each.

    For small trainings: LightGBM and the kernels release the GIL, and one thread each needs no
    waiting. The number of items that run at once is at most `n_threads` or the cores. A call inside
    a call has the same threads: one that is idle begins items of any call inside its own, so that
    what is left of a long item is shared as soon as the short ones are done. The first error is
    raised when all that have begun have ended.
    """
    todo = list(items)
    wanted = n_threads if n_threads is not None and n_threads > 0 else cores()
    if _state.one_thread or min(len(todo), wanted) < 2:
        return [function(item) for item in todo]
    return _Call(function, todo, wanted).results()


class ParallelKernel:
    """A compiled loop over parts that do not touch each other, shared among threads of Python.

    The kernel's first argument says which parts are its own: the numbers from `mine[0]` up to, not
    including, `mine[1]`. It writes into arrays that it is given, releases the GIL, and is the same
    machine code on any number of threads, so that its results are the same to the last bit. What it
    returns comes back as a list, one for each share.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        update_wrapper(self, function)
        self.compiled = nb.njit(nogil=True, cache=True, **options)(function)

    def __call__(self, n: int, *arguments: Any) -> list[Any]:
        """Run the loop over all `n` parts, on as many threads as the work deserves."""
        deserved = min(n, cores(), _numbers(arguments) // KERNEL_NUMBERS)
        deserved = min(deserved, _most_for_kernels.get() or deserved)
        if deserved < 2:
            return [self.compiled((0, n), *arguments)]
        pieces = min(n, PIECES * deserved)
        bounds = [n * piece // pieces for piece in range(pieces + 1)]
        return side_by_side(
            lambda mine: self.compiled(mine, *arguments), pairwise(bounds), n_threads=deserved
        )


def _numbers(arguments: Iterable[Any]) -> int:
    """In the largest array among these, also where several are held by a tuple."""
    sizes = (_numbers(e) if isinstance(e, tuple) else getattr(e, "size", 0) for e in arguments)
    return max(sizes, default=0)


def parallel_kernel(**options: Any) -> Callable[[Callable[..., Any]], ParallelKernel]:
    """Compile a function that loops over its share of the parts; options are numba's."""
    return lambda function: ParallelKernel(function, options)


def _before_fork() -> None:
    ended = [_end_threads(path) for path in _gnu_openmp()]
    _state.ended = all(ended)


def _after_fork_in_child() -> None:
    _inside.set(None)  # the threads of that call are the parent's
    if not _state.ended:
        _state.one_thread = True
        for path in _gnu_openmp():
            ctypes.CDLL(path).omp_set_num_threads(1)


def _gnu_openmp() -> list[str]:
    """Paths of the GNU OpenMP libraries in this process; a wheel may bring its own."""
    found = _libraries().info()
    return [each["filepath"] for each in found if each["prefix"] == "libgomp"]


def _end_threads(path: str) -> bool:
    """End the idle threads that work for this one; False where the library cannot."""
    pause = getattr(ctypes.CDLL(path), "omp_pause_resource_all", None)
    return pause is not None and pause(_PAUSE_SOFT) == 0


def _load_without_spinning() -> None:
    """Load GNU OpenMP with threads that sleep while they wait; see the top of this file."""
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _HOW_TO_WAIT):
        return
    os.environ["GOMP_SPINCOUNT"] = "0"
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:  # LightGBM will say so where it needs it
        pass
    finally:
        del os.environ["GOMP_SPINCOUNT"]


_load_without_spinning()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)

"""Threads of compiled code: how many there are, and what a fork leaves of them.

A forked child has only the thread that called `fork`, but its libraries still count on the threads
of the parent. GNU OpenMP, under LightGBM and under numba's default threading layer on Linux, then
waits for them for ever, and numba ends such a child with SIGTERM. So:

- Before a fork the idle threads of GNU OpenMP are ended (`omp_pause_resource_all`, since GCC 9).
  Parent and child start new ones when they need them. An older library is told to use one thread
  in the child, and `thread_count` says 1 there.
- Numba refuses its OpenMP layer in a child whatever the state of the threads, so the child runs a
  kernel's other version, compiled without threads. Sums are taken in blocks, hence equal results.

Numba's `workqueue` layer survives a fork too, but the layer is one for the whole process, and this
one aborts the process when two threads run kernels that release the GIL. A library must not choose
that for its user's own kernels. A layer chosen by the user (NUMBA_THREADING_LAYER) is respected;
TBB and workqueue go on with all threads in a child.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import update_wrapper
from types import FunctionType
from typing import Any

import numba as nb

_PAUSE_SOFT = 1  # omp_pause_soft: threads end, settings stay


@dataclass
class _State:
    """What the forks before this process left."""

    ended: bool = True  # by the fork that is under way: no thread of GNU OpenMP is counted on
    kernels_alone: bool = False
    one_thread: bool = False


_state = _State()


def thread_count(n_threads: int | None) -> int | None:
    """The number of threads to ask a library for: as given, or 1 where a fork left no more."""
    return 1 if _state.one_thread else n_threads


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


class ParallelKernel:
    """A kernel in two versions, each compiled by its first call and cached on disk.

    The second is for a forked child whose parent has used numba's OpenMP layer. Called from Python
    only: a kernel inside another kernel would start threads in threads.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        update_wrapper(self, function)
        self.together = nb.njit(parallel=True, cache=True, **options)(function)
        self.alone = nb.njit(cache=True, **options)(_renamed(function, "_alone"))

    def __call__(self, *arguments: Any) -> Any:
        """Run the version that this process can run."""
        return (self.alone if _state.kernels_alone else self.together)(*arguments)


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)

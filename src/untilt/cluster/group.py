"""The workers of a training, and sums over them that do not depend on how many they are.

A sum of floating-point numbers depends on its order, and so on which worker holds what. Two ways
out are used here: numbers are summed as whole ones (`Group.sum`), or rounded to a common grid that
is coarse enough for a double to hold any sum of them exactly (`on_grid`).
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, FloatArray, IntArray
from untilt._core.optional import explained_import
from untilt.errors import OptionError, UntiltError

_DOUBLE_BITS = 53


@dataclass(frozen=True)
class Group:
    """This worker among all; every method must be called by all workers in the same order."""

    rank: int
    size: int

    @classmethod
    def here(cls) -> "Group":
        """The group that this process has joined; a group of its own where it has joined none."""
        from xgboost import collective

        return cls(collective.get_rank(), collective.get_world_size())

    def sum(self, numbers: npt.ArrayLike) -> IntArray:
        """The sum of whole numbers over all workers, exactly."""
        return self._reduced(np.asarray(numbers, dtype=np.int64), "SUM")

    def max(self, numbers: npt.ArrayLike) -> FloatArray:
        """The greatest over all workers."""
        return self._reduced(np.asarray(numbers, dtype=np.float64), "MAX")

    def gather(self, numbers: AnyArray) -> IntArray:
        """The whole numbers of all workers, one worker after the other."""
        sizes = np.zeros(self.size, dtype=np.int64)
        sizes[self.rank] = len(numbers)
        ends = np.cumsum(self.sum(sizes))
        whole = np.zeros(int(ends[-1]), dtype=np.int64)
        whole[int(ends[self.rank]) - len(numbers) : int(ends[self.rank])] = numbers
        return self.sum(whole)

    def refuse(self, error: UntiltError | None) -> None:
        """Raise where any worker has an error: the others would wait for it for ever."""
        failed = self.sum(np.eye(1, self.size, self.rank, dtype=np.int64)[0] * (error is not None))
        if error is not None:
            raise error
        if failed.any():
            raise OptionError(
                f"worker {int(np.argmax(failed))} of {self.size} refused its part of the log; its "
                "own message says why."
            )

    def _reduced(self, numbers: AnyArray, op: str) -> AnyArray:
        if self.size == 1 or numbers.size == 0:
            return numbers
        from xgboost import collective

        # XGBoost gives back a flat array, whatever came in.
        return collective.allreduce(numbers, collective.Op[op]).reshape(numbers.shape)


def exponent(largest: float) -> int:
    """The least e with |x| < 2^e for all x up to this."""
    return math.frexp(largest)[1] if largest > 0 else 0


def on_grid(values: FloatArray, largest: float, n_terms: int) -> FloatArray:
    """Values rounded so that any sum of `n_terms` of them is exact in double precision.

    The grid is 2^(e - b) where 2^e is above the largest of all workers' values and b = 52 - log2 n:
    for ten million terms 3e-9 of the largest.
    """
    bits = _DOUBLE_BITS - 1 - max(1, math.ceil(math.log2(max(2, n_terms))))
    step = math.ldexp(1.0, exponent(largest) - bits)
    return np.rint(values / step) * step


@contextmanager
def joined(workers: Mapping[str, Any] | None) -> Iterator[Group]:
    """The group behind the arguments of a tracker; this process alone where there are none."""
    with explained_import("training with workers"):
        from xgboost import collective

    if workers is None:
        yield Group.here()
        return
    with collective.CommunicatorContext(**workers):
        yield Group.here()


@contextmanager
def tracker(
    n_workers: int, host: str = "127.0.0.1", *, port: int = 0, timeout: int = 300
) -> Iterator[dict[str, Any]]:
    """Bring workers together: the arguments that each of them gives `train_part`.

    Run it in one process, which may be one of the workers. It listens at `host`, which all workers
    must reach; nobody else should, because whoever reaches it may join.

    Parameters
    ----------
    n_workers : all of them must come
    port : a free one where 0
    timeout : seconds to wait for them

    Examples
    --------
    >>> with tracker(n_workers=2) as workers:       # doctest: +SKIP
    ...     start(train, workers)                   # each calls train_part(ranker, log, workers)
    """
    with explained_import("training with workers"):
        from xgboost.tracker import RabitTracker

    found = RabitTracker(
        n_workers=n_workers, host_ip=host, port=port, sortby="task", timeout=timeout
    )
    found.start()
    try:
        yield dict(found.worker_args())
    except BaseException:
        with suppress(Exception):  # it would hide why the workers stopped
            found.free()
        raise
    found.free()

"""How much memory this process may use, and refusing what cannot fit before it is made.

A refusal is a `MemoryLimitError`: an `UntiltError` with figures and a remedy. Limits are those of
the machine, of a container (cgroup 1 and 2), of the process (`ulimit -v`, `ulimit -d`), and
UNTILT_MEMORY_LIMIT, which is for the whole process. What cannot be found out is no limit.
"""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from untilt.errors import MemoryLimitError, OptionError
from untilt.facts import phrase

VARIABLE = "UNTILT_MEMORY_LIMIT"

# Below this nothing is asked: looking up the limits takes 0.5 ms, and so little is always there.
_SMALL = 16 << 20

_RAN_OUT = re.compile(
    "bad_?alloc|out of memory|cannot allocate memory|resource_exhausted|start new thread", re.I
)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def allow(size: float, what: str, fix: str) -> None:
    """Raise unless `size` more bytes fit, such as ("an array of scores", "Use fewer systems.").

    Asked before the memory is taken: an allocation that fits at first may be ended by the system
    later, without a word, when its pages are written to.
    """
    if not fits(size):
        raise MemoryLimitError(
            phrase(
                "{what} needs about {size} of memory, and this process can have {room} more{of}. "
                "{fix}",
                what=what,
                size=gib(size),
                room=gib(room() or 0),
                of=_of_limit(),
                fix=fix,
            )
        )


def fits(size: float) -> bool:
    """Whether `size` more bytes can be had, as far as anything says."""
    if size < _SMALL:
        return True
    free = room()
    return free is None or size <= free


@contextmanager
def refusing(what: str, fix: str) -> Iterator[None]:
    """Turn running out of memory inside the block, in whichever library, into our error."""
    try:
        yield
    except MemoryLimitError:
        raise
    except Exception as error:
        if not ran_out(error):
            raise
        raise MemoryLimitError(
            phrase(
                "{what} needs more memory than this process can have{of}. {fix}",
                what=what,
                of=_of_limit(),
                fix=fix,
            )
        ) from error


def ran_out(error: BaseException) -> bool:
    """Whether an error, of Python, the system or a library, says that memory ran out."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    # Another thread may be importing them: then they have no such errors yet.
    duckdb_error = getattr(sys.modules.get("duckdb"), "OutOfMemoryException", ())
    lightgbm_error = getattr(sys.modules.get("lightgbm.basic"), "LightGBMError", ())
    if isinstance(error, duckdb_error):
        return True
    # A library that cannot be loaded or that gets no thread says so in an error of its own.
    is_library = isinstance(error, (RuntimeError, ImportError, lightgbm_error))
    return is_library and bool(_RAN_OUT.search(str(error)))


def limit() -> int | None:
    """Bytes that this process may hold in all; None where nothing says so."""
    return min((most for most, _ in _limits()), default=None)


def room() -> int | None:
    """Bytes that this process may take in addition to what it holds; None where unknown."""
    free = [most - used for most, used in _limits()]
    available = _meminfo("MemAvailable")
    free += [] if available is None else [available]
    return max(0, min(free)) if free else None


def gib(size: float) -> str:
    """A size for people: 3.2 GiB, 410 MiB."""
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def parse_size(text: str | int, what: str) -> int:
    """Bytes of 4294967296, '4GB' (10**9), '4GiB' (2**30), '500 MB', '4G'."""
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?)b?\s*", str(text), re.IGNORECASE)
    if isinstance(text, bool) or not found or not float(found[1]):
        raise OptionError(f"{what} must be bytes or text such as '4GB'. Got {text!r} instead.")
    return int(float(found[1]) * (1024 if found[3] else 1000) ** _UNITS[found[2].lower()])


def _of_limit() -> str:
    most = limit()
    return "" if most is None else f" (its limit is {gib(most)})"


def _limits() -> Iterator[tuple[int, int]]:
    """Every limit, with what is in use of it."""
    if text := os.environ.get(VARIABLE):
        yield parse_size(text, VARIABLE), _held("VmRSS")
    yield from _limits_of_process()
    yield from _limits_of_groups()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), _held("VmRSS")


def _limits_of_process() -> Iterator[tuple[int, int]]:
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, held in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            yield most, _held(held)


def _limits_of_groups() -> Iterator[tuple[int, int]]:
    """Limits of the groups (cgroups) that the process is in: its own and those around it.

    Inside a container the path is often that of the machine, so the root is looked at as well.
    Pages that only cache files count as in use there; the system gives them back when asked.
    """
    for line in _text("/proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        if kinds and "memory" not in kinds.split(","):
            continue
        root = Path("/sys/fs/cgroup/memory" if kinds else "/sys/fs/cgroup")
        most, used = ("memory.max", "memory.current")
        if kinds:
            most, used = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        own = root / path.lstrip("/")
        for folder in (own, *own.parents):
            if not folder.is_relative_to(root):
                break
            if (found := _text(folder / most).strip()).isdigit():
                held = _text(folder / used).strip()
                in_use = int(held) - _cached(folder) if held.isdigit() else _held("VmRSS")
                yield int(found), max(0, in_use)


def _cached(folder: Path) -> int:
    found = re.search(r"^(?:total_)?inactive_file (\d+)$", _text(folder / "memory.stat"), re.M)
    return int(found[1]) if found else 0


def _held(name: str) -> int:
    """A line of /proc/self/status in bytes; where there is none, the most that was ever held."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _text("/proc/self/status"), re.M)
    if found:
        return int(found[1]) * 1024
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def _meminfo(name: str) -> int | None:
    found = re.search(rf"^{name}:\s+(\d+) kB$", _text("/proc/meminfo"), re.M)
    return int(found[1]) * 1024 if found else None


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""

"""Sessions per second of the simulation with one and two threads, and the memory of a large log.

`sampled`: sessions as rows, in chunks, nothing kept. `collapsed`: `simulate` as a whole, with its
production ranker and the distinct lists merged. `parquet`: `simulate_to_parquet`, rows on disk.
One and two threads take turns, so that whatever else the machine does falls on both.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import run_python, save, table

from untilt.data.judged import JudgedLists
from untilt.simulation.production import prepare
from untilt.simulation.sampler import draw_sessions
from untilt.simulation.simulate import simulate, simulate_to_parquet, threads
from untilt.simulation.synthetic import make_judged

PROTOCOLS = ("dla", "prs", "cascade", "dwell", "swap", "shuffle")
CHUNK = 200_000
LARGE = """
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
log = simulate(make_judged({queries}, 5, seed={seed}), n_sessions={sessions}, n_threads=2).log
print(log.n_lists)
"""


Work = Callable[[int, int], object]  # (sessions, threads)


def sampled(judged: JudgedLists, protocol: str, seed: int) -> Work:
    options = {"ranker": None, "depth": None, "query_weights": None, "max_label": None}
    setting = prepare(judged, protocol, seed=seed, in_turn=False, **options)

    def work(n: int, n_threads: int) -> None:
        with threads(n_threads):
            for begin in range(0, n, CHUNK):
                draw_sessions(setting.plan, np.arange(begin, min(begin + CHUNK, n)))

    return work


def collapsed(judged: JudgedLists, protocol: str, seed: int) -> Work:
    return lambda n, n_threads: simulate(
        judged, protocol, n_sessions=n, seed=seed, n_threads=n_threads
    )


def to_parquet(judged: JudgedLists, protocol: str, seed: int) -> Work:
    def work(n: int, n_threads: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            simulate_to_parquet(
                judged, folder, protocol, n_sessions=n, seed=seed, n_threads=n_threads
            )

    return work


def timed(name: str, protocol: str, work: Work, n: int, repeats: int) -> dict[str, Any]:
    """All times, and the speed of the fastest repeat: other work can only slow it down."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    processor: dict[int, list[float]] = {1: [], 2: []}
    for n_threads in seconds:
        work(min(n, 1000), n_threads)  # compiles
    for _ in range(repeats):
        for n_threads, taken in seconds.items():
            start, before = time.perf_counter(), time.process_time()
            work(n, n_threads)
            taken.append(time.perf_counter() - start)
            processor[n_threads].append(time.process_time() - before)
    return {
        "work": name,
        "protocol": protocol,
        "sessions": n,
        "seconds": {f"threads_{k}": taken for k, taken in seconds.items()},
        "processor_seconds": {f"threads_{k}": taken for k, taken in processor.items()},
        # Of use where others work on the same machine: the clock then says little.
        "sessions_per_processor_second": n / min(processor[1]),
        "sessions_per_second": {f"threads_{k}": n / min(taken) for k, taken in seconds.items()},
    }


def large(n_queries: int, n_sessions: int, seed: int) -> dict[str, Any]:
    """Peak memory and time of a whole process that makes judged lists and a collapsed log."""
    code = LARGE.format(queries=n_queries, seed=seed, sessions=n_sessions)
    run, idle = run_python("-c", code), run_python("-c", "import untilt.simulation.simulate")
    return {
        "sessions": n_sessions,
        "distinct_lists": int(run.output),
        "seconds": run.seconds,
        "peak_bytes": run.peak_bytes,
        "imports_peak_bytes": idle.peak_bytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--large", type=int, default=10_000_000, help="sessions of the memory test")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    judged = make_judged(chosen.queries, 5, seed=chosen.seed)
    cases = [("sampled", sampled, p) for p in PROTOCOLS]
    cases += [("collapsed", collapsed, p) for p in ("dla", "prs")]
    cases += [("parquet", to_parquet, "dla")]
    results = [
        timed(name, p, made(judged, p, chosen.seed), chosen.sessions, chosen.repeats)
        for name, made, p in cases
    ]
    print("sessions per second")
    table(
        ("work", "protocol", "1 thread", "2 threads", "1 thread, per processor second"),
        [
            (
                r["work"],
                r["protocol"],
                *r["sessions_per_second"].values(),
                r["sessions_per_processor_second"],
            )
            for r in results
        ],
    )
    memory = large(chosen.queries, chosen.large, chosen.seed)
    print(
        f"{memory['sessions']:,} sessions collapsed to {memory['distinct_lists']:,} lists in "
        f"{memory['seconds']:.1f} s, peak {memory['peak_bytes'] / 2**20:.0f} MiB "
        f"({memory['imports_peak_bytes'] / 2**20:.0f} MiB for the imports alone)"
    )
    found = {"queries": chosen.queries, "speed": results, "large": memory}
    found["load_average"] = os.getloadavg()  # above the number of cores: others were at work too
    print("written to", save("simulate", found, seed=chosen.seed, packages=("pyarrow",)))


if __name__ == "__main__":
    main()

"""`read_letor` against scikit-learn's `load_svmlight_file` on the same files in the same run.

The large file is made here: as wide as MSLR-WEB30K, with its mix of counts, zeros and six decimals.
`read_letor` gives a dense float32 table, scikit-learn a sparse float64 one; both read query ids.
The two take turns, so that whatever else the machine does falls on both.
"""

import argparse
import gzip
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numba
import numpy as np
from _harness import run_python, save, table
from sklearn.datasets import load_svmlight_file

from untilt.data.judged import JudgedLists
from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor

ROOT = Path(__file__).resolve().parent.parent
READ = "from untilt.data.letor.read_letor import read_letor; read_letor({!r})"
LOAD = "from sklearn.datasets import load_svmlight_file; load_svmlight_file({!r}, query_id=True)"
NOTHING = "import untilt.data.letor.read_letor, sklearn.datasets"


def made(n_rows: int, n_features: int, seed: int) -> JudgedLists:
    """Lists of 100 documents; features are counts, mostly zeros, and decimals by turns."""
    rng = np.random.default_rng(seed)
    features = np.empty((n_rows, n_features), dtype=np.float32)
    for column in range(n_features):
        features[:, column] = (
            rng.geometric(0.02, n_rows),
            rng.integers(1, 9, n_rows) * (rng.random(n_rows) < 0.2),
            np.round(rng.normal(0, 10, n_rows), 6),
        )[column % 3]
    indptr = np.arange(0, n_rows + 1, 100)
    labels = rng.integers(0, 5, n_rows)
    return JudgedLists(features, labels, indptr, np.arange(1, len(indptr)))


def compared(name: str, path: Path, repeats: int) -> dict[str, object]:
    """Median seconds of each reader, taking turns, and the peak memory of a process that reads."""
    readers = {"untilt": lambda: read_letor(path), "one_thread": lambda: read_alone(path)}
    readers["sklearn"] = lambda: load_svmlight_file(str(path), query_id=True)
    seconds: dict[str, list[float]] = {reader: [] for reader in readers}
    for _ in range(repeats):
        for reader, work in readers.items():
            start = time.perf_counter()
            work()
            seconds[reader].append(time.perf_counter() - start)
    middle = {reader: median(taken) for reader, taken in seconds.items()}
    idle = run_python("-c", NOTHING).peak_bytes
    return {
        "file": name,
        "bytes": path.stat().st_size,
        "seconds": seconds,
        "median_seconds": middle,
        "ratio": middle["sklearn"] / middle["untilt"],
        "ratio_one_thread": middle["sklearn"] / middle["one_thread"],
        "imports_peak_bytes": idle,
        "untilt_peak_bytes": run_python("-c", READ.format(str(path))).peak_bytes,
        "sklearn_peak_bytes": run_python("-c", LOAD.format(str(path))).peak_bytes,
    }


def read_alone(path: Path) -> JudgedLists:
    """`read_letor` with one thread."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        return read_letor(path)
    finally:
        numba.set_num_threads(before)


def unpacked(folder: Path, packed: Path) -> Path:
    plain = folder / packed.stem
    with gzip.open(packed) as source, plain.open("wb") as target:
        shutil.copyfileobj(source, target)
    return plain


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--features", type=int, default=136)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    data = Path(os.environ.get("UNTILT_DATA", ROOT.parent / "shared" / "data"))
    sample = data / "mslr-sample" / "train.txt.gz"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judged = made(given.rows, given.features, given.seed)
        large = folder / "large.txt"
        write_letor(judged, large)  # also compiles, so that the times below are of work alone
        start = time.perf_counter()
        write_letor(judged, large)
        write_seconds = time.perf_counter() - start
        write_letor(judged, folder / "large.txt.gz")
        files = {"made, plain": large, "made, gzip": folder / "large.txt.gz"}
        if sample.exists():
            files |= {"MSLR sample, plain": unpacked(folder, sample), "MSLR sample, gzip": sample}
        read_letor(large)
        results = [compared(name, path, given.repeats) for name, path in files.items()]
    report(given, results, write_seconds)


def report(given: argparse.Namespace, results: list[dict], write_seconds: float) -> None:
    summary = {
        "rows": given.rows,
        "features": given.features,
        "threads": numba.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "write_plain_seconds": write_seconds,
        "files": results,
    }
    print(f"{given.rows:,} rows x {given.features}, {summary['threads']} threads, ", end="")
    print(f"load {summary['load_average']:.1f}; written in {write_seconds:.1f} s")
    table(
        [
            "file",
            "MB",
            "untilt s",
            "1 thread s",
            "sklearn s",
            "ratio",
            "1 thread",
            "GB",
            "sklearn GB",
        ],
        [
            (
                *(result["file"], result["bytes"] / 1e6, *result["median_seconds"].values()),
                *(result["ratio"], result["ratio_one_thread"]),
                *(result["untilt_peak_bytes"] / 1e9, result["sklearn_peak_bytes"] / 1e9),
            )
            for result in results
        ],
    )
    print(save("letor", summary, seed=given.seed, packages=["scikit-learn"]))


if __name__ == "__main__":
    main()

"""`untilt run` on a million sessions with 50 features: seconds and peak memory, step by step.

A harvest log (three production rankers) of a million sessions over 20,000 queries, ten documents a
page, is written to Parquet first; that is not timed. Then `untilt run` in a process of its own, on
two threads, with default options. A second call on the finished folder shows what a look costs.

    python benchmarks/bench_run.py [--share 0.05] [--trees 300] [--threads 2] [--folder DIR]
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from _harness import run_python, save, table

import untilt as ut

SESSIONS, QUERIES, FEATURES, SEED = 1_000_000, 20_000, 50, 2026
LIMIT_SECONDS, LIMIT_GIB = 300.0, 4.0
CALL = "from untilt.cli.main import main; main()"


def made_log(folder: Path, share: float):
    """The log on disk; made once for a folder and share."""
    judged = ut.make_judged(int(QUERIES * share), FEATURES, seed=SEED)
    return ut.simulate_to_parquet(
        judged, folder, "harvest", n_sessions=int(SESSIONS * share), seed=SEED
    )


def timed_run(log: Path, documents: Path, out: Path, arguments: list[str]) -> dict:
    """One call of the program: seconds, peak and what it says of its steps."""
    done = run_python(
        *("-c", CALL, "run", str(log), "--documents", str(documents), "--out", str(out), "--json"),
        *arguments,
        OMP_WAIT_POLICY="passive",
    )
    steps = json.loads((out / "provenance.json").read_text())["provenance"]["steps"]
    answer = json.loads(done.output)["answer"]
    return {
        "seconds": done.seconds,
        "peak_gib": done.peak_bytes / 2**30,
        "steps": {step["name"]: step["seconds"] for step in steps},
        "difference": {"value": answer["difference"]["value"], **answer["difference"]["interval"]},
        "chosen": answer["new"]["system"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the sessions and queries")
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary one by default")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="untilt-bench-run-"))
    files = made_log(folder / "log", given.share)
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    arguments = ["--trees", str(given.trees), "--threads", str(given.threads)]
    first = timed_run(files.log, files.documents, out, arguments)
    again = timed_run(files.log, files.documents, out, arguments)
    table(("step", "seconds"), [*first["steps"].items()])
    table(
        ("", "seconds", "peak GiB"),
        [
            ("run", first["seconds"], first["peak_gib"]),
            ("again", again["seconds"], again["peak_gib"]),
        ],
    )
    whole = given.share == 1.0
    if whole:
        within = first["seconds"] <= LIMIT_SECONDS and first["peak_gib"] <= LIMIT_GIB
        print(f"within {LIMIT_SECONDS:.0f} s and {LIMIT_GIB:g} GiB: {'yes' if within else 'NO'}")
    results = {
        "sessions": files.n_sessions,
        "queries": int(QUERIES * given.share),
        "features": FEATURES,
        "trees": given.trees,
        "threads": given.threads,
        "first": first,
        "again": again,
    }
    if whole:
        print(save("run", results, seed=SEED, packages=("lightgbm", "duckdb")))
    if given.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Click models: seconds and memory on 1 and 10 million sessions, quality on real result pages.

    python benchmarks/bench_clickmodels.py [--sessions 1000000 10000000] [--no-pages]

Speed: sessions of `simulate(protocol="swap")`, collapsed; each model is fitted once in a process of
its own size after a warm-up on a small log (compilation). `aggregate` is everything around EM:
collapsing to counts, starting values, errors of the bias. CPU seconds (of all threads) tell
what a busy machine hides. `peak` is the process's highest
memory so far, the log included; models run from the lightest to the heaviest.

Pages: the Yandex sample, the first 75% of each query's pages against the rest, where it is there.
"""

import argparse
import json
import os
import resource
import runpy
import sys
import time
from pathlib import Path

from _harness import run_python, save, table

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("dctr", "cm", "pbm", "ubm", "dcm", "sdbn", "dbn", "ccm")
SESSIONS_PER_QUERY = 500
SEED = 0


class Watch:
    """Stands in for `run_em` and counts its seconds and steps."""

    def __init__(self, run_em):
        self.run_em, self.seconds, self.cpu, self.steps = run_em, 0.0, 0.0, 0

    def __call__(self, *arguments, **options):
        start, cpu = time.perf_counter(), time.process_time()
        result = self.run_em(*arguments, **options)
        self.seconds += time.perf_counter() - start
        self.cpu += time.process_time() - cpu
        self.steps += result.n_steps
        return result


def measure(n_sessions: int) -> None:
    """Print one JSON object: what `main` reads from the process it starts."""
    from untilt import catalog
    from untilt._core.ascent import run_em
    from untilt.clickmodels import chain, examination
    from untilt.simulation.simulate import simulate
    from untilt.simulation.synthetic import make_judged

    judged = make_judged(max(100, n_sessions // SESSIONS_PER_QUERY), 5, seed=SEED)
    start = time.perf_counter()
    log = simulate(judged, "swap", n_sessions=n_sessions, seed=SEED).log
    made = time.perf_counter() - start
    small = simulate(make_judged(100, 5, seed=SEED), "swap", n_sessions=2000, seed=SEED).log
    facts = {
        "sessions": log.n_sessions,
        "lists": log.n_lists,
        "rows": len(log.position),
        "queries": log.n_queries,
        "shown_documents": len(set(log.document.tolist())),
        "simulate_seconds": made,
        "load_average": os.getloadavg()[0],
        "peak_mb_of_the_log": peak(),
    }
    found = {}
    by_name = {record.name: record.load() for record in catalog.methods("click model")}
    usual = examination.WORTH_THREADS, chain.WORTH_THREADS
    for least in ((0, 0), usual):  # once with threads, once without: both compiled
        examination.WORTH_THREADS, chain.WORTH_THREADS = least
        for name in MODELS:
            by_name[name]().fit(small)
    for name in MODELS:
        watch = examination.run_em = chain.run_em = Watch(run_em)
        start, cpu = time.perf_counter(), time.process_time()
        model = by_name[name]().fit(log)
        total, cpu = time.perf_counter() - start, time.process_time() - cpu
        found[name] = {
            "seconds": total,
            "cpu_seconds": cpu,
            "aggregate_seconds": total - watch.seconds,
            "em_seconds": watch.seconds,
            "em_cpu_seconds": watch.cpu,
            "steps": watch.steps,
            "seconds_per_step": watch.seconds / watch.steps if watch.steps else None,
            "status": getattr(getattr(model, "em_", None), "status", "counted"),
            "peak_mb": peak(),
        }
    print(json.dumps({**facts, "models": found}))


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pages(path: Path) -> dict:
    """The table of all models on held-out pages, intervals by query and by session."""
    from untilt.clickmodels.compare import advise, compare_click_models

    read = runpy.run_path(str(ROOT / "examples" / "yandex_pages.py"))["read_pages"]
    train, test = read(path, in_order=True)[0].split(0.75, by="time")
    result = {"train_sessions": train.n_sessions, "test_sessions": test.n_sessions}
    for by in ("query", "session"):
        found = compare_click_models(train, test, by=by, seed=SEED)
        print(found)
        result[by] = {
            entry.name: {
                figure: [value.value, value.interval.low, value.interval.high]
                for figure in ("log_likelihood", "perplexity", "conditional_perplexity", "gain")
                if (value := getattr(entry, figure)) is not None
            }
            | {"ruled_out": entry.ruled_out}
            for entry in found
        }
    print(advise(found))
    return {**result, "advice": list(advise(found).sentences)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, nargs="*", default=[1_000_000, 10_000_000])
    parser.add_argument("--no-pages", action="store_true")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    results: dict = {"speed": []}
    for n in options.sessions:
        run = run_python(__file__, "--measure", str(n))
        facts = json.loads(run.output.splitlines()[-1])
        results["speed"].append(facts)
        print(
            f"\n{n:,} sessions, {facts['lists']:,} lists, log {facts['peak_mb_of_the_log']:.0f} MB"
        )
        keys = ("seconds", "cpu_seconds", "em_seconds", "em_cpu_seconds", "steps", "peak_mb")
        table(
            ("model", *keys),
            [
                (name, *(each[key] if each[key] is not None else "" for key in keys))
                for name, each in facts["models"].items()
            ],
        )
    data = Path(os.environ.get("UNTILT_DATA", ROOT.parent / "shared" / "data"))
    path = data / "yandex-sample" / "train.txt.gz"
    if path.exists() and not options.no_pages:
        results["pages"] = pages(path)
    elif not options.no_pages:
        print(f"no result pages: {path} is not there", file=sys.stderr)
    print(save("clickmodels", results, seed=SEED, packages=("scipy",)))


if __name__ == "__main__":
    main()

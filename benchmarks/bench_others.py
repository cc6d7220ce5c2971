"""Click models beside CLAX, and the value of a new order beside OBP, on the same made logs.

    pip install clax-models obp
    python benchmarks/bench_others.py

Click models: readers who follow the position-based model; 80% of the sessions to learn from, 10%
where CLAX decides when to stop, 10% to judge by. CLAX as its README shows it (AdamW at 0.003, at
most 50 epochs, its own early stopping), 512 sessions a batch, on the CPU. Each fit has a process of
its own: JAX compiles in it, the kernels of untilt come from their cache on the disk. The
log-likelihood of held-out sessions is summed here, by each package's conditional probabilities.

Values: five documents a query, shown in random order, so that the probabilities that OBP needs are
known: 1/5 for a document at a position. How many clicks a session would have under a new order, by
OBP's three slate estimators and by untilt, which is not told the probabilities and estimates
examination from the same log. The truth comes from the simulator.
"""

import argparse
import json
import os
import time
from functools import partial
from importlib.util import find_spec

import numpy as np
from _harness import run_python, save, table

SEEDS = 3
SESSIONS, QUERIES, DEPTH = 100_000, 1_000, 10
BATCH = 512
MODELS = {
    "pbm": ("PBM", "PositionBasedModel"),
    "ubm": ("UBM", "UserBrowsingModel"),
}
ORDER_SEEDS, ORDER_SESSIONS, SLOTS = 40, 5_000, 5


# ---- click models


def world(seed: int):
    """(log to learn from, log to stop by, log to judge by, the truth)."""
    import untilt as ut

    judged = ut.make_judged(QUERIES, 5, mean_docs=15, seed=seed)
    made = ut.simulate(judged, "harvest", n_sessions=SESSIONS, seed=seed, collapse=False)
    train, rest = made.log.split(0.8, by="session", seed=seed)
    return train, *rest.split(0.5, by="session", seed=seed), made.truth


def log_likelihood(log, probability) -> float:
    """Mean over sessions of the log-probability of all clicks and no-clicks of one."""
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    assert log.n_lists == log.n_sessions
    return float(np.where(log.label > 0, np.log(p), np.log1p(-p)).sum() / log.n_sessions)


def by_untilt(name: str, seed: int) -> dict:
    import untilt as ut

    train, _, test, truth = world(seed)
    start, cpu = time.perf_counter(), time.process_time()
    model = getattr(ut, MODELS[name][0])().fit(train)
    taken = time.perf_counter() - start, time.process_time() - cpu
    return {
        **dict(zip(("seconds", "cpu_seconds"), taken, strict=True)),
        "log_likelihood": log_likelihood(test, model.conditional_probability(test)),
        "log_likelihood_of_the_truth": log_likelihood(test, truth.click_probabilities(test)),
    }


class Loader:
    """Padded sessions in batches, as CLAX takes them; in a new order each epoch if shuffled."""

    def __init__(self, log, *, shuffle: np.random.Generator | None = None):
        lengths = np.diff(log.indptr)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        columns = np.arange(len(rows)) - np.repeat(log.indptr[:-1], lengths)
        shape = (len(lengths), DEPTH)
        self.arrays = {
            "positions": np.tile(np.arange(1, DEPTH + 1), (shape[0], 1)),
            "query_doc_ids": np.zeros(shape, dtype=np.int32),
            "clicks": np.zeros(shape, dtype=np.int32),
            "mask": np.zeros(shape, dtype=bool),
        }
        self.arrays["query_doc_ids"][rows, columns] = log.document
        self.arrays["clicks"][rows, columns] = log.label
        self.arrays["mask"][rows, columns] = True
        self.n, self.shuffle = len(lengths), shuffle

    def __len__(self) -> int:
        return (self.n + BATCH - 1) // BATCH

    def __iter__(self):
        order = np.arange(self.n) if self.shuffle is None else self.shuffle.permutation(self.n)
        for i in range(0, self.n, BATCH):
            yield {name: array[order[i : i + BATCH]] for name, array in self.arrays.items()}


def by_clax(name: str, seed: int) -> dict:
    import clax
    from flax import nnx
    from optax import adamw

    train, valid, test, _ = world(seed)
    start, cpu = time.perf_counter(), time.process_time()
    model = getattr(clax, MODELS[name][1])(
        query_doc_pairs=train.n_documents + 1, positions=DEPTH + 1, rngs=nnx.Rngs(seed)
    )
    shuffled = Loader(train, shuffle=np.random.default_rng(seed))
    history = clax.Trainer(adamw(0.003), epochs=50).train(model, shuffled, Loader(valid))
    taken = time.perf_counter() - start, time.process_time() - cpu
    parts = [np.exp(model.predict_conditional_clicks(each))[each["mask"]] for each in Loader(test)]
    return {
        **dict(zip(("seconds", "cpu_seconds"), taken, strict=True)),
        "epochs": len(history),
        "log_likelihood": log_likelihood(test, np.concatenate(parts).astype(float)),
    }


def click_models() -> list[dict]:
    rows = []
    for name in MODELS:
        for who in ("untilt", "clax"):
            runs = [
                json.loads(
                    run_python(__file__, "--one", who, name, str(seed)).output.splitlines()[-1]
                )
                for seed in range(SEEDS)
            ]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            rows.append({"model": name, "who": who, **mean, "runs": runs})
    keys = ("seconds", "cpu_seconds", "log_likelihood")
    table(
        ("model", "who", *keys), [(r["model"], r["who"], *(r[key] for key in keys)) for r in rows]
    )
    return rows


# ---- the value of a new order


def values() -> dict:
    import untilt as ut
    from untilt.simulation.protocols import Shuffle

    judged, shown = ut.make_judged(200, 6, mean_docs=12, seed=0), Shuffle(depth=SLOTS)
    learning = ut.simulate(judged, shown, n_sessions=5_000, seed=1_000).log
    ranker = ut.LinearRanker(ut.IPS(ut.ShuffledTop().fit(learning).bias_)).fit(learning)
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    truths = []
    for seed in range(ORDER_SEEDS):
        made = ut.simulate(judged, shown, n_sessions=ORDER_SESSIONS, seed=seed, collapse=False)
        log = made.log.take(np.flatnonzero(np.diff(made.log.indptr) == SLOTS))
        place = places(log, ranker.predict(log.features)[log.document])
        clicks = made.truth.click_probability(log.document, place + 1)
        truths.append(float(clicks.sum() / log.n_sessions))
        for name, value in {"untilt": untilt_value(log, ranker), **obp_values(log, place)}.items():
            start = time.perf_counter()
            errors.setdefault(name, []).append(float(value()) - truths[-1])
            seconds.setdefault(name, []).append(time.perf_counter() - start)
    rows = {
        name: {
            "mean_error": float(np.mean(each)),
            "root_mean_square_error": float(np.sqrt(np.mean(np.square(each)))),
            "median_seconds": float(np.median(seconds[name])),
        }
        for name, each in errors.items()
    }
    table(("who", *rows["untilt"]), [(name, *row.values()) for name, row in rows.items()])
    return {"logs": ORDER_SEEDS, "sessions": ORDER_SESSIONS, "mean_truth": float(np.mean(truths)),
            "rows": rows}  # fmt: skip


def untilt_value(log, ranker):
    import untilt as ut

    def value() -> float:
        bias = ut.ShuffledTop().fit(log).bias_
        return ut.estimate(log, ranker, bias, metric="examination", unshown=False)["system"].value

    return value


def obp_values(log, place: np.ndarray) -> dict:
    """OBP's three assumptions: a click depends on its slot, on those above, on the whole list."""
    from obp.ope import SlateIndependentIPS, SlateRewardInteractionIPS, SlateStandardIPS

    stays = (place + 1 == log.position).reshape(-1, SLOTS)
    weights = {  # numerator, denominator of each row: whether the new order shows it so, and how
        # likely the random one does: one of 5, 5 * 4, 5 * 4 * 3, ... and one of 5!
        ("independent", SlateIndependentIPS, "_item_position"): (stays, SLOTS),
        ("cascade", SlateRewardInteractionIPS, "_cascade"): (
            np.cumprod(stays, axis=1), np.cumprod(np.arange(SLOTS, 0, -1)),
        ),
        ("standard", SlateStandardIPS, ""): (
            np.repeat(stays.all(axis=1, keepdims=True), SLOTS, axis=1),
            np.prod(np.arange(SLOTS, 0, -1)),
        ),
    }  # fmt: skip
    rows = {
        "slate_id": np.repeat(np.arange(log.n_lists), SLOTS),
        "reward": log.label.astype(float),
        "position": log.position.astype(np.int64) - 1,
    }
    return {
        f"OBP, {name}": partial(
            estimator(SLOTS).estimate_policy_value,
            **rows,
            **{f"pscore{ending}": np.broadcast_to(1 / ways, stays.shape).ravel()},
            **{f"evaluation_policy_pscore{ending}": new.astype(float).ravel()},
        )
        for (name, estimator, ending), (new, ways) in weights.items()
    }


def places(log, scores: np.ndarray) -> np.ndarray:
    """The 0-based place of each row of a log in the order of the scores, within its list."""
    assert np.array_equal(log.position, np.tile(np.arange(1, SLOTS + 1), log.n_lists))
    lists = np.repeat(np.arange(log.n_lists), SLOTS)
    order = np.lexsort((-scores, lists))
    place = np.empty(len(scores), dtype=np.int64)
    place[order] = np.tile(np.arange(SLOTS), log.n_lists)
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        who, name, seed = options.one
        print(json.dumps({"untilt": by_untilt, "clax": by_clax}[who](name, int(seed))))
        return
    missing = [each for each in ("clax", "obp") if find_spec(each) is None]
    if missing:  # `make bench` runs on with what is installed
        print(f"not measured: {', '.join(missing)} not installed (pip install clax-models obp)")
        return
    results = {
        "sessions": SESSIONS, "queries": QUERIES, "load_average": os.getloadavg()[0],
        "click_models": click_models(), "values": values(),
    }  # fmt: skip
    print(save("others", results, seed=0, packages=("jax", "clax-models", "obp")))


if __name__ == "__main__":
    main()

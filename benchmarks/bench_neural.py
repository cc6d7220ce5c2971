"""Steps per second of the ranking network, on whatever device JAX finds.

    python benchmarks/bench_neural.py             # list sizes 10 and 100, batches of 256 and 4096
    python benchmarks/bench_neural.py --small     # does it run?
    python benchmarks/bench_neural.py --torch     # the same model in plain PyTorch, on the CPU
    python benchmarks/bench_neural.py --together 8                # so many networks in one program
    python benchmarks/bench_neural.py --compare a.json b.json     # loss curves of two devices

The model is [512, 256, 128] with ELU, 136 features, pairwise logistic loss, Adam, single precision.
Nothing of untilt is used but `untilt.networks`: a machine with NumPy, JAX and optax will do.

What is timed: `training.train` over whole epochs, from the call to its end, compiled before. The
device cuts its batches itself, and one call makes many steps. "--precision bfloat16" is the option
of the rankers; "--precision exact" is for comparing the curves of two devices.

"--together" times `together.train_together` against the same trainings one by one, in turns in the
same process; of networks that differ in l2 and share their batches, and of such with seeds of their
own. The ratio is the time of one by one over that of together.
"""

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from untilt.networks import together
from untilt.networks.batches import Batch, PaddedLists
from untilt.networks.mlp import Optimiser, jax_modules, start_layers
from untilt.networks.ranking_losses import pairwise_loss
from untilt.networks.together import train_together
from untilt.networks.training import NetworkTraining, train

WIDTHS, FEATURES, SEED, RATE = (512, 256, 128), 136, 0, 1e-3
SIZES = {"list": (10, 100), "batch": (256, 4096)}
SMALL = {"list": (5,), "batch": (8,)}
CURVE = {"list": 10, "batch": 256, "steps": 10, "epochs": 20}
# "exact": for curves of two devices; by default a GPU rounds inputs of products to 10 bits.
MULTIPLY = {"float32": "default", "exact": "highest", "bfloat16": "bfloat16"}
TOGETHER = {"widths": ((32, 16), (128, 64), WIDTHS), "list": 10, "batch": (64,), "steps": 32}
DOCUMENTS = 50_000
MOST_ROWS = {"cpu": 1_000_000, "gpu": 30_000_000}  # of an epoch


class Lists:
    """Lists of one length with clicks made here: relevance from features, theta_k = 1/k."""

    def __init__(self, steps: int, length: int, batch_size: int, n_features: int) -> None:
        draw = np.random.default_rng(SEED)
        n_lists = steps * batch_size
        n = n_lists * length
        self.features = draw.standard_normal((DOCUMENTS, n_features), dtype=np.float32)
        direction = draw.standard_normal(n_features) / np.sqrt(n_features)
        relevance = 1 / (1 + np.exp(-2 * (self.features @ direction)))
        place = np.tile(np.arange(length, dtype=np.int32), n_lists)
        row = draw.integers(DOCUMENTS, size=n).astype(np.int32)
        click = (draw.random(n) < relevance[row] / (1 + place)).astype(np.float32)
        self.batches = PaddedLists(
            indptr=np.arange(n_lists + 1) * length,
            row_columns={"row": row, "position_index": place, "gain": click},
            list_columns={"weight": np.ones(n_lists, np.float32)},
            batch_size=batch_size,
            lengths=(length,),
            seed=SEED,
        )
        self.constants = {
            "features": self.features,
            "l2": np.asarray(0.0, np.float32),
            "table": np.ones((length, length), np.float32),
            "scale": np.asarray(1 / (batch_size * length), np.float32),
        }


class JaxModel:
    """The model of untilt, trained by its own loop."""

    def __init__(self, widths: tuple[int, ...], lists: Lists) -> None:
        self.widths, self.lists = widths, lists

    def losses(self, epochs: int) -> list[float]:
        """Mean losses of so many epochs from the start."""
        trained = train(
            pairwise_loss("elu"),
            start_layers(SEED, self.widths),
            self.lists.batches,
            optimiser=Optimiser("adam", RATE),
            epochs=epochs,
            constants=self.lists.constants,
        )
        return list(trained.losses)


class TorchModel:
    """The same in plain PyTorch, from the same start."""

    def __init__(self, widths: tuple[int, ...], lists: Lists) -> None:
        import torch

        self.torch = torch
        start = start_layers(SEED, widths)
        layers: list[Any] = []
        for w, b in zip(start["weights"], start["biases"], strict=True):
            linear = torch.nn.Linear(*w.shape)
            linear.weight.data, linear.bias.data = torch.tensor(w.T.copy()), torch.tensor(b)
            layers += [linear, torch.nn.ELU()]
        self.network = torch.nn.Sequential(*layers[:-1])
        self.lists, self.features = lists, torch.tensor(lists.features)
        self.table = torch.tensor(lists.constants["table"])
        self.scale = float(lists.constants["scale"])
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)

    def losses(self, epochs: int) -> list[float]:
        """The same by a plain loop over the same batches."""
        means = []
        for epoch in range(epochs):
            values = [self._step(batch) for batch in self.lists.batches.epoch(epoch)]
            means.append(float(self.torch.stack(values).mean()))
        return means

    def _step(self, batch: Batch) -> Any:
        batch = {name: self.torch.as_tensor(value) for name, value in batch.items()}
        self.optimiser.zero_grad()
        s = self.network(self.features[batch["row"]])[..., 0]
        phi = self.torch.nn.functional.softplus(-(s[:, :, None] - s[:, None, :]))
        place = batch["position_index"]
        lead = (batch["gain"][:, :, None] - batch["gain"][:, None, :]).clamp(min=0)
        pairs = batch["weight"][:, None, None] * lead
        weight = pairs * self.table[place[:, :, None], place[:, None, :]]
        loss = self.scale * (weight * phi).sum()
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def timed(make: Callable[[Lists], Any], lists: Lists, least: float) -> float:
    """Steps per second of whole trainings, after one that compiles."""
    per_epoch = lists.batches.steps_per_epoch
    make(lists).losses(1)
    epochs = 1
    while True:
        model, start = make(lists), time.perf_counter()
        model.losses(epochs)
        taken = time.perf_counter() - start
        if taken >= least or epochs >= 4096:
            return epochs * per_epoch / taken
        epochs *= max(2, min(16, math.ceil(1.2 * least / max(taken, 1e-3))))


def measure(
    make: Callable[[Lists], Any], *, small: bool, least: float, n_features: int, steps: int, on: str
) -> dict[str, Any]:
    sizes, curve = (
        (SMALL, {**CURVE, "list": 5, "batch": 8, "epochs": 3}) if small else (SIZES, CURVE)
    )
    results = []
    for length in sizes["list"]:
        for batch_size in sizes["batch"]:
            # As many batches as an epoch of a usual log has, fewer where they are large.
            batches = max(2, min(steps, MOST_ROWS[on] // (length * batch_size)))
            per_second = timed(make, Lists(batches, length, batch_size, n_features), least)
            results.append({
                "list_size": length,
                "batch_size": batch_size,
                "steps_per_epoch": batches,
                "steps_per_second": per_second,
                "lists_per_second": per_second * batch_size,
            })  # fmt: skip
            print(json.dumps(results[-1]), flush=True)
    lists = Lists(curve["steps"], curve["list"], curve["batch"], n_features)
    return {"results": results, "loss_curve": make(lists).losses(curve["epochs"])}


def jax_record(small: bool, least: float, steps: int, precision: str) -> dict[str, Any]:
    jax, _, optax = jax_modules()
    n_features, widths = (6, (8, 4)) if small else (FEATURES, WIDTHS)
    device = jax.devices()[0]
    with jax.default_matmul_precision(MULTIPLY[precision]):
        measured = measure(
            lambda lists: JaxModel((n_features, *widths, 1), lists),
            small=small, least=least, n_features=n_features, steps=steps,
            on="cpu" if device.platform == "cpu" else "gpu",
        )  # fmt: skip
    versions = {"jax": jax.__version__, "optax": optax.__version__}
    return {"device": f"{device.platform}: {device.device_kind}", "versions": versions, **measured}


def several(
    lists: Lists, widths: tuple[int, ...], n: int, kind: str, epochs: int
) -> list[NetworkTraining]:
    """Networks that differ in l2 alone, or in l2 and seed."""
    seeds = range(n) if kind == "seeds" else [SEED] * n
    return [
        NetworkTraining(
            pairwise_loss("elu"),
            start_layers(seed, widths),
            replace(lists.batches, seed=seed),
            Optimiser("adam", RATE),
            epochs,
            {**lists.constants, "l2": np.asarray(1e-4 * number, np.float32)},
        )
        for number, seed in enumerate(seeds)
    ]


def together_record(small: bool, n: int, rounds: int) -> dict[str, Any]:
    """Seconds of several trainings one by one and together, the best of some rounds."""
    jax, _, optax = jax_modules()
    together.CPU_WEIGHTS = math.inf  # also where it does not pay, which is how that is known
    sizes = {**TOGETHER, "widths": ((8, 4),), "batch": (8,), "steps": 4} if small else TOGETHER
    n_features, results = 6 if small else FEATURES, []
    for widths in sizes["widths"]:
        for batch_size in sizes["batch"]:
            lists = Lists(sizes["steps"], sizes["list"], batch_size, n_features)
            for kind in ("l2", "seeds"):
                make = partial(several, lists, (n_features, *widths, 1), n, kind)
                results.append({
                    "widths": widths, "batch_size": batch_size, "networks": n, "differ_in": kind,
                    **in_turns(make, rounds),
                })  # fmt: skip
                print(json.dumps(results[-1]), flush=True)
    device = jax.devices()[0]
    versions = {"jax": jax.__version__, "optax": optax.__version__}
    return {
        "device": f"{device.platform}: {device.device_kind}",
        "versions": versions,
        "together": {"list_size": sizes["list"], "steps_per_epoch": sizes["steps"],
                     "results": results},
    }  # fmt: skip


def in_turns(make: Callable[[int], list[NetworkTraining]], rounds: int) -> dict[str, float]:
    """Seconds of two epochs; "first" are those of one epoch and of compiling, before."""

    def alone(epochs: int) -> list[Any]:
        return [training.alone() for training in make(epochs)]

    def at_once(epochs: int) -> list[Any]:
        return train_together(make(epochs))

    seconds: dict[str, list[float]] = {"one_by_one": [], "together": []}
    first = {}
    for name, run in (("one_by_one", alone), ("together", at_once)):
        start = time.perf_counter()
        run(1)
        first[f"first_{name}"] = time.perf_counter() - start
    for _ in range(rounds):
        for name, run in (("one_by_one", alone), ("together", at_once)):
            start = time.perf_counter()
            assert not any(isinstance(each, Exception) for each in run(2))
            seconds[name].append(time.perf_counter() - start)
    best = {name: min(each) for name, each in seconds.items()}
    return {**best, **first, "ratio": best["one_by_one"] / best["together"]}


def torch_record(small: bool, least: float, steps: int, _: str) -> dict[str, Any] | None:
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed here: pip install torch, for this benchmark alone.")
        return None
    n_features, widths = (6, (8, 4)) if small else (FEATURES, WIDTHS)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    measured = measure(
        lambda lists: TorchModel((n_features, *widths, 1), lists),
        small=small, least=least, n_features=n_features, steps=steps, on="cpu",
    )  # fmt: skip
    return {"device": "cpu (PyTorch)", "versions": {"torch": torch.__version__}, **measured}


def compare(first: str, second: str) -> None:
    """Largest relative difference of two loss curves."""
    curves = []
    for path in (first, second):
        with open(path, encoding="utf8") as file:
            curves.append(np.array(json.load(file)["loss_curve"]))
    difference = np.abs(curves[0] - curves[1]) / np.abs(curves[0])
    print(f"largest relative difference of {len(difference)} losses: {difference.max():.2e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="tiny sizes: does it run?")
    parser.add_argument("--torch", action="store_true", help="PyTorch instead, on the CPU")
    parser.add_argument("--together", type=int, help="so many networks together and one by one")
    parser.add_argument("--rounds", type=int, default=3, help="of --together; the best counts")
    parser.add_argument("--seconds", type=float, default=3.0, help="least time of a measurement")
    parser.add_argument("--out", help="write the record to this JSON file")
    parser.add_argument("--compare", nargs=2, metavar="FILE", help="compare two records' curves")
    parser.add_argument("--precision", choices=tuple(MULTIPLY), default="float32")
    parser.add_argument("--steps", type=int, default=512, help="most batches of an epoch")
    given = parser.parse_args()
    if given.compare:
        compare(*given.compare)
        return
    least = 0.05 if given.small else given.seconds
    if given.together:
        record: dict[str, Any] | None = together_record(given.small, given.together, given.rounds)
    else:
        made = torch_record if given.torch else jax_record
        record = made(given.small, least, given.steps, given.precision)
    if record is None:
        return
    record = {
        "benchmark": "neural",
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
        "model": {
            "widths": WIDTHS,
            "features": FEATURES,
            "activation": "elu",
            "small": given.small,
        },
        "seed": SEED,
        **record,
    }
    text = json.dumps(record, indent=2)
    print(text)
    if given.out:
        with open(given.out, "w", encoding="utf8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()

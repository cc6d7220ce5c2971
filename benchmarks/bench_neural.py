"""Steps per second of the ranking network, on whatever device JAX finds.

    python benchmarks/bench_neural.py             # list sizes 10 and 100, batches of 256 and 4096
    python benchmarks/bench_neural.py --small     # does it run?
    python benchmarks/bench_neural.py --torch     # the same model in plain PyTorch, on the CPU
    python benchmarks/bench_neural.py --compare a.json b.json     # loss curves of two devices

The model is [512, 256, 128] with ELU, 136 features, pairwise logistic loss, Adam, single precision.
Nothing of untilt is used but `untilt.networks`: a machine with NumPy, JAX and optax will do.

What is timed. "steps_per_second" is the training loop as it is: a batch is put together on the host
while the device works on the one before. "host_seconds" is a batch put together by itself,
"device_seconds" a step with its batch already on the device, "transfer_seconds" the batch on its
way there. "device_share" is device_seconds times steps_per_second: how much of the time the device
is at work.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from untilt.networks.batches import Batch, PaddedLists
from untilt.networks.jax_layers import Optimiser, jax_modules, start_layers
from untilt.networks.ranking_losses import pairwise_loss
from untilt.networks.training import compiled_step

WIDTHS, FEATURES, SEED, RATE = (512, 256, 128), 136, 0, 1e-3
SIZES = {"list": (10, 100), "batch": (256, 4096)}
SMALL = {"list": (5,), "batch": (8,)}
CURVE = {"list": 10, "batch": 256, "steps": 100}


class Lists:
    """Lists of one length with clicks made here: relevance from features, theta_k = 1/k."""

    def __init__(self, n_lists: int, length: int, batch_size: int, n_features: int) -> None:
        draw = np.random.default_rng(SEED)
        n = n_lists * length
        self.features = draw.standard_normal((n, n_features), dtype=np.float32)
        direction = draw.standard_normal(n_features) / np.sqrt(n_features)
        relevance = 1 / (1 + np.exp(-2 * (self.features @ direction)))
        place = np.tile(np.arange(length), n_lists)
        self.click = (draw.random(n) < relevance / (1 + place)).astype(np.float32)
        self.table = np.ones((length, length), np.float32)
        self.scale = np.asarray(1 / (batch_size * length), np.float32)
        self.batches = PaddedLists(
            indptr=np.arange(n_lists + 1) * length,
            row_columns={"row": np.arange(n), "place": place, "gain": self.click},
            list_columns={"weight": np.ones(n_lists, np.float32)},
            batch_size=batch_size,
            lengths=(length,),
            seed=SEED,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        for batch in self.batches.epoch(epoch):
            yield {**batch, "table": self.table, "scale": self.scale}

    def endless(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            yield from self.epoch(epoch)
            epoch += 1

    @property
    def constants(self) -> dict[str, Any]:
        return {"features": self.features, "l2": np.asarray(0.0, np.float32)}


class JaxModel:
    """The model of untilt and its step."""

    def __init__(self, widths: tuple[int, ...], lists: Lists) -> None:
        self.jax = jax_modules().jax
        optimiser = Optimiser("adam").without_rate
        self.compiled = compiled_step(pairwise_loss("elu"), optimiser)
        self.params = self.jax.device_put(start_layers(SEED, widths))
        self.state = optimiser.direction().init(self.params)
        self.constants = self.jax.device_put(lists.constants)
        self.rate = np.float32(RATE)

    def put(self, batch: Batch) -> Any:
        return self.jax.block_until_ready(self.jax.device_put(batch))

    def step(self, batch: Any) -> Any:
        self.params, self.state, loss = self.compiled(
            self.params, self.state, self.rate, batch, self.constants
        )
        return loss

    def wait(self, loss: Any) -> float:
        return float(self.jax.block_until_ready(loss))


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
        self.features = torch.tensor(lists.features)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=RATE)

    def put(self, batch: Batch) -> Any:
        return {name: self.torch.as_tensor(value) for name, value in batch.items()}

    def step(self, batch: Any) -> Any:
        batch = self.put(batch)
        self.optimiser.zero_grad()
        s = self.network(self.features[batch["row"]])[..., 0]
        phi = self.torch.nn.functional.softplus(-(s[:, :, None] - s[:, None, :]))
        place = batch["place"]
        lead = (batch["gain"][:, :, None] - batch["gain"][:, None, :]).clamp(min=0)
        pairs = batch["weight"][:, None, None] * lead
        weight = pairs * batch["table"][place[:, :, None], place[:, None, :]]
        loss = batch["scale"] * (weight * phi).sum()
        loss.backward()
        self.optimiser.step()
        return loss

    def wait(self, loss: Any) -> float:
        return float(loss.detach())


def seconds_each(work: Callable[[], Any], least: float) -> float:
    """Mean seconds, over as many calls as take `least` seconds."""
    work()
    start, calls = time.perf_counter(), 0
    while calls < 3 or time.perf_counter() - start < least:
        work()
        calls += 1
    return (time.perf_counter() - start) / calls


def timed(model: Any, lists: Lists, least: float) -> dict[str, float]:
    """Host, transfer and device by themselves, then the loop as it is."""
    stream = lists.endless()
    batch = next(stream)
    on_device = model.put(batch)
    device = seconds_each(lambda: model.wait(model.step(on_device)), least)
    host = seconds_each(lambda: next(stream), least)
    transfer = seconds_each(lambda: model.put(next(stream)), least) - host
    loss, steps, start = None, 0, time.perf_counter()
    while steps < 3 or time.perf_counter() - start < 2 * least:
        loss = model.step(next(stream))
        steps += 1
        # Let the device work ahead by no more than a few batches.
        if steps % 8 == 0:
            model.wait(loss)
    model.wait(loss)
    per_second = steps / (time.perf_counter() - start)
    return {
        "steps_per_second": per_second,
        "lists_per_second": per_second * lists.batches.batch_size,
        "host_seconds": host,
        "transfer_seconds": max(0.0, transfer),
        "device_seconds": device,
        "device_share": min(1.0, device * per_second),
    }


def loss_curve(make: Callable[[Lists], Any], size: dict[str, int], n_features: int) -> list[float]:
    """Losses of the first steps from a fixed start on fixed batches."""
    lists = Lists(size["batch"] * 10, size["list"], size["batch"], n_features)
    model, stream = make(lists), lists.endless()
    return [model.wait(model.step(next(stream))) for _ in range(size["steps"])]


def measure(
    make: Callable[[Lists], Any], *, small: bool, least: float, n_features: int
) -> dict[str, Any]:
    sizes, curve = SIZES, CURVE
    if small:
        sizes, curve = SMALL, {"list": 5, "batch": 8, "steps": 5}
    results = []
    for length in sizes["list"]:
        for batch_size in sizes["batch"]:
            lists = Lists(2 * batch_size, length, batch_size, n_features)
            result = timed(make(lists), lists, least)
            results.append({"list_size": length, "batch_size": batch_size, **result})
            print(json.dumps(results[-1]), flush=True)
    return {"results": results, "loss_curve": loss_curve(make, curve, n_features)}


def jax_record(small: bool, least: float) -> dict[str, Any]:
    jax, _, optax = jax_modules()
    n_features, widths = (6, (8, 4)) if small else (FEATURES, WIDTHS)
    device = jax.devices()[0]
    # Tensor cores would round products to 10 bits; curves of two devices are to be compared.
    with jax.default_matmul_precision("highest"):
        measured = measure(
            lambda lists: JaxModel((n_features, *widths, 1), lists),
            small=small, least=least, n_features=n_features,
        )  # fmt: skip
    versions = {"jax": jax.__version__, "optax": optax.__version__}
    return {"device": f"{device.platform}: {device.device_kind}", "versions": versions, **measured}


def torch_record(small: bool, least: float) -> dict[str, Any] | None:
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed here: pip install torch, for this benchmark alone.")
        return None
    n_features, widths = (6, (8, 4)) if small else (FEATURES, WIDTHS)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    measured = measure(
        lambda lists: TorchModel((n_features, *widths, 1), lists),
        small=small, least=least, n_features=n_features,
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
    parser.add_argument("--seconds", type=float, default=3.0, help="least time of a measurement")
    parser.add_argument("--out", help="write the record to this JSON file")
    parser.add_argument("--compare", nargs=2, metavar="FILE", help="compare two records' curves")
    given = parser.parse_args()
    if given.compare:
        compare(*given.compare)
        return
    least = 0.05 if given.small else given.seconds
    record = (torch_record if given.torch else jax_record)(given.small, least)
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

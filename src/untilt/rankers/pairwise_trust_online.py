"""The mini-batch form of the pairwise trust ranker: tables and three networks, epoch by epoch."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt._core.random import Seed, child_generator
from untilt.errors import OptionError
from untilt.networks.batches import PaddedLists, bucket_lengths
from untilt.networks.jax_layers import Layers, jax_modules, start_layers
from untilt.networks.optimisers import Optimiser
from untilt.objectives.pairwise_trust_em import TrustStart
from untilt.objectives.trust_slates import TrustSlates
from untilt.rankers.pair_trust import PairTrust, TrustEpoch
from untilt.rankers.pairwise_trust_steps import StepSettings, TrustTables, compiled_em_step


@dataclass(frozen=True)
class Schedule:
    """How long, and how fast: the tables' rate at step t is em_rate (1 + t)^-em_decay."""

    epochs: int
    batch_size: int
    em_rate: float
    em_decay: float


@dataclass(frozen=True, eq=False)
class OnlineFit:
    """Where mini-batch EM ended: the ranker's layers, the tables, and the way there."""

    layers: Layers
    trust: PairTrust
    history: tuple[TrustEpoch, ...]


def fit_online(
    slates: TrustSlates,
    features: FloatArray,
    widths: tuple[int, ...],
    settings: StepSettings,
    optimiser: Optimiser,
    schedule: Schedule,
    *,
    theta: FloatArray | None,
    start: TrustStart,
    seed: Seed,
) -> OnlineFit:
    """Run mini-batch EM. `features` are normalised rows; `theta` is a known curve or None."""
    jax = jax_modules().jax
    step = compiled_em_step(settings, optimiser)
    constants = jax.device_put({"features": features, "scale": np.float32(_per_slate(slates))})
    params = jax.device_put(_start_params(seed, (features.shape[1], *widths, 1), settings))
    state = optimiser.direction().init(params)
    tables = jax.device_put(start_tables(slates.depth, start, theta, known_eps=settings.known_eps))
    batches = slate_batches(slates, schedule.batch_size, seed)
    total = schedule.epochs * batches.steps_per_epoch
    key = jax.random.key(int(child_generator(seed, 3).integers(2**31)))
    history, t = [], 0
    with progress("pairwise trust by mini-batches", total=total) as advance:
        for epoch in range(schedule.epochs):
            told = []
            for batch in batches.epoch(epoch):
                em_rate = np.float32(schedule.em_rate * (1 + t) ** -schedule.em_decay)
                rate = np.float32(optimiser.rate(t, total))
                draw = jax.random.fold_in(key, t)
                params, state, tables, sums = step(
                    params, state, tables, rate, em_rate, draw, batch, constants
                )
                told.append(sums)
                t += 1
                advance()
            history.append(_epoch(told, float(slates.sessions.sum()), optimiser))
    found = jax.tree.map(np.asarray, jax.device_get((params["ranker"], tables)))
    status = f"{schedule.epochs} epochs of mini-batch EM, {t} steps"
    tables = found[1]
    trust = PairTrust(
        tables.theta, tables.theta_minus, tables.eps_plus, tables.eps_minus, status=status
    )
    return OnlineFit(found[0], trust, tuple(history))


def slate_batches(
    slates: TrustSlates, batch_size: int, seed: Seed, **more: FloatArray
) -> PaddedLists:
    """Batches of slates with their pair counts; `more` are further columns by pair, flat."""

    def pairs(chosen: Any, length: int) -> dict[str, FloatArray]:
        return slates.padded(chosen, length, **more)

    size = np.diff(slates.indptr)
    return PaddedLists(
        indptr=slates.indptr,
        row_columns={
            "row": slates.row.astype(np.int32),
            "place": slates.place.astype(np.int32),
            "positive": slates.positive.astype(np.float32),
        },
        list_columns={"sessions": slates.sessions.astype(np.float32)},
        batch_size=min(batch_size, slates.n_slates),
        lengths=bucket_lengths(size, most=3),
        seed=int(child_generator(seed, 2).integers(2**31)),
        more=pairs,
    )


def start_tables(
    depth: int, start: TrustStart, theta: FloatArray | None, *, known_eps: bool
) -> TrustTables:
    """The tables before the first step."""
    plus, minus = (1.0, 0.0) if known_eps else (start.eps_plus, start.eps_minus)
    curve = np.full(depth, start.theta) if theta is None else theta[:depth]
    return TrustTables(
        theta=curve.astype(np.float32),
        theta_minus=(0.9 * curve).astype(np.float32),
        eps_plus=np.full((depth, depth), plus, np.float32),
        eps_minus=np.full((depth, depth), minus, np.float32),
    )


def _per_slate(slates: TrustSlates) -> float:
    return float(slates.sessions.mean())


def _start_params(seed: Seed, widths: tuple[int, ...], settings: StepSettings) -> dict[str, Any]:
    parts: dict[str, Any] = {
        name: start_layers(child_generator(seed, 0, at), widths, activation=settings.activation)
        for at, name in enumerate(("gamma", "beta", "ranker"))
    }
    return {**parts, "tie": np.zeros((), np.float32)}


def _epoch(told: list[Any], sessions: float, optimiser: Optimiser) -> TrustEpoch:
    items, pairs, loss = np.sum(jax_modules().jax.device_get(told), axis=0) / sessions
    if not np.isfinite(items + pairs + loss):
        raise OptionError(
            f"the ranking loss became {loss}. Lower learning_rate (now "
            f"{optimiser.learning_rate:g}) or raise clip."
        )
    return TrustEpoch(float(items), float(pairs), float(loss))

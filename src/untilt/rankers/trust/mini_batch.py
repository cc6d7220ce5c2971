"""The mini-batch form: EM and the ranker's loss in one step (`untilt.rankers.trust.em_step`)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, IntArray
from untilt._core.random import Seed, child_generator
from untilt.facts import Fact
from untilt.networks import jax_layers
from untilt.networks.batches import PaddedLists, bucket_lengths
from untilt.networks.training import Moment, Stopping, Trained, train_by
from untilt.rankers.trust import trust_model
from untilt.rankers.trust.em_step import Batch, StepSettings, TrustTables, compiled_em_step
from untilt.rankers.trust.pair_em import TrustStart
from untilt.rankers.trust.preference import start_preference
from untilt.rankers.trust.slates import TrustSlates


@dataclass(frozen=True)
class Schedule:
    """How long, and how fast: the tables' rate at step t is em_rate (1 + t)^-em_decay."""

    epochs: int
    batch_size: int
    em_rate: float
    em_decay: float


@dataclass(frozen=True, eq=False)
class MiniBatchFit:
    """Where mini-batch EM ended: the ranker's layers, those of gamma, the tables, the way there."""

    layers: jax_layers.Layers
    gamma: dict[str, jax_layers.Params]
    trust: trust_model.PairTrust
    history: tuple[trust_model.TrustEpoch, ...]
    trained: Trained


class _History:
    """The sums of `_sums` over each epoch, per session; they go into a checkpoint."""

    def __init__(self, sessions: float) -> None:
        self.sessions = sessions
        self.epochs: list[FloatArray] = []
        self.steps: list[jax_layers.Array] = []

    def after_epoch(self, epoch: int, params: jax_layers.Params) -> None:  # noqa: ARG002
        """Sum up the steps since the last epoch."""
        sums = np.sum(jax_layers.jax_modules().jax.device_get(self.steps), axis=0)
        self.epochs.append(sums / self.sessions)
        self.steps = []

    def state(self) -> dict[str, AnyArray]:
        """(epochs, 3)."""
        return {"sums": np.array(self.epochs)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        """Set what `state` gave."""
        sums = np.asarray(state["sums"], dtype=float)
        self.epochs = list(sums.reshape(len(sums), 3))

    @property
    def as_epochs(self) -> tuple[trust_model.TrustEpoch, ...]:
        """As the ranker keeps them."""
        return tuple(trust_model.TrustEpoch(*map(float, sums)) for sums in self.epochs)


def fit_mini_batches(
    slates: TrustSlates,
    features: FeatureArray,
    widths: tuple[int, ...],
    settings: StepSettings,
    optimiser: jax_layers.Optimiser,
    schedule: Schedule,
    *,
    l2: float,
    theta: FloatArray | None,
    start: TrustStart,
    seed: Seed,
    stopping: Stopping | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    fingerprint: str = "",
) -> MiniBatchFit:
    """Run mini-batch EM. `features` are normalised rows; `theta` is a known curve or None.

    What is judged and kept are {"networks": {"gamma", "beta", "ranker", "tie"}, "tables"}.
    """
    jax = jax_layers.jax_modules().jax
    compiled = compiled_em_step(settings, optimiser)
    constants = jax.device_put(
        {
            "features": features,
            "scale": np.float32(slates.count.mean()),
            "l2": np.float32(l2),
        }
    )
    params = {
        "networks": _start_params(seed, features.shape[1], widths, settings),
        "tables": start_tables(slates.depth, start, theta, known_eps=settings.known_eps),
    }
    key = jax.random.key(int(child_generator(seed, 3).integers(2**31)))
    history = _History(float(slates.count.sum()))

    def step(
        params: jax_layers.Params, state: jax_layers.Params, at: Moment, batch: Batch
    ) -> tuple[jax_layers.Params, jax_layers.Params, jax_layers.Array]:
        em_rate = np.float32(schedule.em_rate * (1 + at.step) ** -schedule.em_decay)
        networks, state, tables, sums = compiled(
            params["networks"], state, params["tables"], at.rate, em_rate,
            jax.random.fold_in(key, at.step), batch, constants,
        )  # fmt: skip
        history.steps.append(sums)
        return {"networks": networks, "tables": tables}, state, sums.sum()

    trained = train_by(
        step,
        params,
        slate_batches(slates, schedule.batch_size, seed),
        optimiser=optimiser,
        epochs=schedule.epochs,
        learned=lambda params: params["networks"],
        stopping=stopping,
        companion=history,
        checkpoint=checkpoint,
        fingerprint=fingerprint,
        what="pairwise trust by mini-batches",
    )
    networks, tables = trained.params["networks"], trained.params["tables"]
    gamma = {"layers": networks["gamma"], "tie": networks["tie"]}
    ended = Fact("network.mini-batch-em", epochs=trained.epochs, steps=trained.steps)
    trust = trust_model.PairTrust(
        tables.theta, tables.theta_minus, tables.eps_plus, tables.eps_minus, status=ended
    )
    return MiniBatchFit(networks["ranker"], gamma, trust, history.as_epochs, trained)


def theta_now(params: jax_layers.Params) -> FloatArray:
    """(K,) examination at the parameters of `fit_mini_batches`."""
    return np.asarray(params["tables"].theta, dtype=float)


def ranker_layers(params: jax_layers.Params) -> jax_layers.Layers:
    """The ranker among them."""
    layers: jax_layers.Layers = params["networks"]["ranker"]
    return layers


def slate_batches(
    slates: TrustSlates, batch_size: int, seed: Seed, **more: FloatArray
) -> PaddedLists:
    """Batches of slates with their pair counts; `more` are further columns by pair, flat."""

    def pairs(chosen: IntArray, length: int) -> dict[str, FeatureArray]:
        return slates.padded(chosen, length, **more)

    size = np.diff(slates.indptr)
    return PaddedLists(
        indptr=slates.indptr,
        row_columns={
            "row": slates.document.astype(np.int32),
            "position_index": slates.position_index.astype(np.int32),
            "positive": slates.positive.astype(np.float32),
        },
        list_columns={"sessions": slates.count.astype(np.float32)},
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


def _start_params(
    seed: Seed, n_features: int, widths: tuple[int, ...], settings: StepSettings
) -> dict[str, jax_layers.Params]:
    act = settings.activation
    beta, ranker = (
        jax_layers.start_layers(
            child_generator(seed, 0, at), (n_features, *widths, 1), activation=act
        )
        for at in (1, 2)
    )
    gamma = start_preference(
        child_generator(seed, 0, 0), n_features, widths, form=settings.preference, activation=act
    )
    return {"gamma": gamma["layers"], "beta": beta, "ranker": ranker, "tie": gamma["tie"]}

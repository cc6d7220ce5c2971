"""What ranking networks share: features on one scale, a network kept as arrays, its options."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from untilt._core import memory
from untilt._core.arrays import AnyArray, FeatureArray, FloatArray, Missing
from untilt._core.feature_table import refuse_cell
from untilt._core.random import child_generator
from untilt._core.restored import check_array
from untilt.bias.given import BiasLike
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import FileFormatError, OptionError, check_choice
from untilt.facts import Fact, note, warning
from untilt.networks import mlp
from untilt.networks.batches import Batch, Picks, Resident, Sampler
from untilt.networks.ranking_losses import scores_function, slopes_function
from untilt.networks.together import train_together
from untilt.networks.training import Loss, NetworkTraining, StoppingRule, Trained, compiled_value
from untilt.rankers.base import Ranker, check_positive, check_rounds
from untilt.rankers.learning_data import TrainingLists, no_feature_varies
from untilt.rankers.validation import (
    as_in_training,
    held_out_clicks,
    held_out_likelihood,
    validation_for,
)

TOO_FEW_TO_HOLD_OUT = warning(
    "network.too-few-to-hold-out",
    "none: {n_queries:,} queries with clicks are too few to set some aside ({fewest} are needed), "
    "so that training went on to the last epoch",
)
HELD_OUT_GIVEN = note("network.held-out-given", "stopped by the held-out data that was given")()
HELD_OUT = note("network.held-out", "{n_queries:,} of the queries, set aside to stop training by")

_SCORED_ROWS = 8192  # at a time, so that one compilation serves any number of rows
_ROWS_FOR_SLOPES = 4096


class NetworkShape(TypedDict, total=False):
    """Options of a network itself, as one record: `shape=NetworkShape(widths=(64, 32))`."""

    widths: tuple[int, ...]
    activation: str
    transform: str


class NetworkSteps(TypedDict, total=False):
    """Options of how a network is trained, as one record: `steps=NetworkSteps(epochs=20)`.

    The last three are of those networks alone that take them.
    """

    epochs: int
    batch_size: int
    optimiser: str
    learning_rate: float
    schedule: str
    l2: float | None
    early_stopping: int | None
    checkpoint: str | os.PathLike[str] | None
    dropout: float
    clip_norm: float | None
    precision: str


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkRanker(Ranker):
    """Base of the rankers whose score is the output of a network.

    Parameters
    ----------
    widths, activation : hidden layers ([512, 256, 128] and ELU as in [ren2021pairwise]_)
    transform : "none", or "log1p" for features with heavy tails, before they are standardised
    epochs, batch_size : passes over the data, and slates (or rows) per step
    optimiser, learning_rate, schedule : see `untilt.networks.mlp.Optimiser`
    l2 : l2/2 |weights|^2 is added to the loss; None takes what suits the loss
    early_stopping : epochs without improvement on held-out data before training stops; the best
        epoch is kept. Held out are `fit(..., valid=...)`, or 20% of the training queries where it
        is not given and there are at least 50; `summary_["held_out"]` says which. None trains for
        all epochs on all queries
    checkpoint : file to write after every epoch and to go on from where it exists
    shape, steps : several of these as one record, `NetworkShape(widths=(64, 32))` and
        `NetworkSteps(epochs=20)`; they are kept under their own names

    Held-out labels judge by NDCG@10, held-out clicks by their likelihood under the position bias
    (`untilt.rankers.validation`), feedback of other numbers by propensity-weighted DCG@10.

    Fitted: `network_` (arrays; scores without JAX), `losses_` (mean loss by epoch), `watched_`
    (value on held-out data by epoch), `importances_`, `summary_`. Its "held_out_value" is that
    of the epoch that was kept, higher is better: trainings of one kind can be compared by it.
    """

    widths: tuple[int, ...] = (512, 256, 128)
    activation: str = "elu"
    transform: str = "none"
    epochs: int = 50
    batch_size: int = 256
    optimiser: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    l2: float | None = None
    # Ten held-out queries and more are noisy: on 200 queries the likelihood rose again after pauses
    # of up to 25 epochs, and a patience of 10 lost .03 to .07 NDCG@10.
    early_stopping: int | None = 30
    checkpoint: str | os.PathLike[str] | None = None
    seed: int = 0
    shape: InitVar[NetworkShape | None] = None
    steps: InitVar[NetworkSteps | None] = None
    _records: ClassVar[tuple[str, ...]] = ("shape", "steps")
    # A search need not lend its held-out clicks, which it judges by.
    holds_out: ClassVar[bool] = True
    # What batch_size counts: "lists", or "rows" (document, position).
    batch_of: ClassVar[str] = "lists"
    network_: mlp.Network = field(init=False)
    losses_: FloatArray = field(init=False)
    watched_: tuple[float, ...] = field(init=False)
    importances_: FloatArray = field(init=False)

    @property
    def feature_importances_(self) -> dict[str, float]:
        """Share of each feature in the squared slopes of the score, by standardised features."""
        self._check_fitted()
        return dict(zip(self.feature_names_, self.importances_.tolist(), strict=True))

    def _scores(self, features: FeatureArray) -> FloatArray:
        return self.network_.forward(features)[:, 0]

    def _check_restored(self) -> None:
        super()._check_restored()
        self._check_networks({"network_": self.network_})

    def _check_networks(self, networks: dict[str, mlp.Network]) -> None:
        """Of a file: each takes the features and gives one score."""
        n = len(self.feature_names_)
        check_array("importances_", self.importances_, (n,))
        for name, network in networks.items():
            check_network(name, network, n)

    def _check_network(self) -> None:
        check_choice("activation", self.activation, mlp.ACTIVATIONS)
        check_choice("transform", self.transform, mlp.TRANSFORMS)
        check_positive("l2", self._penalty, or_zero=True)
        if self.early_stopping is not None:
            check_rounds("early_stopping", self.early_stopping)
        for name in ("epochs", "batch_size"):
            check_rounds(name, getattr(self, name))
        for width in self.widths:
            check_rounds("every width", width)
        self._optimiser().check()

    @property
    def _penalty(self) -> float:
        """l2, or what is usual where it is not given."""
        return self._usual_penalty if self.l2 is None else self.l2

    @property
    def _usual_penalty(self) -> float:
        return 0.01

    def _optimiser(self) -> mlp.Optimiser:
        return mlp.Optimiser(self.optimiser, self.learning_rate, self.schedule)

    def _training(
        self,
        loss: Loss | None,
        start: mlp.Params,
        batches: Sampler,
        inputs: "NetworkInputs",
        **more: Any,
    ) -> NetworkTraining:
        """A training with this ranker's options; `more` are further fields of it."""
        constants = {"features": inputs.table, "l2": np.asarray(self._penalty, np.float32)}
        options = {"optimiser": self._optimiser(), "epochs": self.epochs,
                   "checkpoint": self.checkpoint, **more}  # fmt: skip
        options["constants"] = constants | options.get("constants", {})
        return NetworkTraining(loss, start, batches, **options)

    def _keep_history(self, trained: Trained) -> None:
        self.losses_, self.watched_ = np.array(trained.losses), trained.watched
        self.summary_ = {**length_of(trained), "status": trained.status}

    def _keep_network(self, layers: mlp.Layers, inputs: "NetworkInputs") -> None:
        self.network_ = inputs.network(self, layers)
        self.importances_ = importances(layers, inputs.features, self.activation)
        self.feature_names_, self.missing_ = inputs.names, inputs.missing


@dataclass(kw_only=True, eq=False, repr=False)
class DropoutNetworkRanker(NetworkRanker):
    """Base of the networks whose steps may leave out units and cut long gradients.

    Parameters
    ----------
    dropout : share of hidden units that a step leaves out
    clip_norm : a longer gradient is cut to this length
    precision : "bfloat16" trains with layers' inputs of 8 bits: faster on a GPU, not on a CPU.
        Parameters and loss are in single precision, and so is the network that is kept
    """

    dropout: float = 0.0
    clip_norm: float | None = None
    precision: str = "float32"

    def _check_network(self) -> None:
        super()._check_network()
        check_choice("precision", self.precision, mlp.PRECISIONS)
        if not 0 <= self.dropout < 1:
            raise OptionError(f"dropout must lie from 0 to below 1. Got {self.dropout} instead.")

    def _optimiser(self) -> mlp.Optimiser:
        return replace(super()._optimiser(), clip_norm=self.clip_norm)

    def _training(self, *given: Any, **more: Any) -> NetworkTraining:
        training = super()._training(*given, precision=self.precision, **more)
        noisy = Noisy(training.batches, self.seed) if self.dropout > 0 else training.batches
        return replace(training, batches=noisy)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A ranker's training, and what is done with its result."""

    training: NetworkTraining
    keep: Callable[[Trained], None]


MOST_TOGETHER = 16


def fit_together(rankers: Sequence[Any], data: Any) -> list[Exception | None]:
    """Fit rankers that have `_prepared` on the same data; the error of each, or None.

    As many are prepared at a time as memory has room for.
    """
    errors: list[Exception | None] = [None] * len(rankers)
    ready: dict[int, tuple[ClickLog | JudgedLists, Prepared]] = {}

    def train_ready() -> None:
        results = train_together([prepared.training for _, prepared in ready.values()])
        for (number, (lists, prepared)), result in zip(ready.items(), results, strict=True):
            if isinstance(result, Exception):
                errors[number] = result
            else:
                prepared.keep(result)
                rankers[number]._remember(lists)
        ready.clear()

    for number, ranker in enumerate(rankers):
        try:
            lists = ranker._checked(data)
            ready[number] = lists, ranker._prepared(lists)
        except Exception as error:
            errors[number] = error
            continue
        needed = 4.0 * len(ready) * ready[number][1].training.nbytes
        if len(ready) == MOST_TOGETHER or not memory.fits(needed):
            train_ready()
    train_ready()
    return errors


def check_network(name: str, network: mlp.Network, n: int) -> None:
    """Of a file: it takes n features and gives one score."""
    if network.widths[0] != n or network.widths[-1] != 1:
        raise FileFormatError(f"its {name!r} is no network of {n} features and one score.")
    for array in (*network.weights, *network.biases, network.mean, network.scale):
        check_array(name, array, (None,) * array.ndim, finite=True)


@dataclass(frozen=True, eq=False)
class NetworkInputs:
    """Normalised features of all training rows, and how they were normalised."""

    features: FeatureArray
    mean: FloatArray
    scale: FloatArray
    names: tuple[str, ...]
    missing: Missing = None

    @property
    def table(self) -> FeatureArray:
        """The features with rows of zeros below, for a training step.

        A step is compiled for the shape of its table. Rounded up by at most 1/8, tables of about
        the same size have one: the next training, on other queries, starts at once.
        """
        n = len(self.features)
        unit = max(64, (1 << max(0, n - 1).bit_length()) // 16)
        return np.pad(self.features, ((0, -n % unit), (0, 0)))

    def network(self, ranker: NetworkRanker, layers: mlp.Layers) -> mlp.Network:
        """Trained layers of a ranker in NumPy, for features as they are."""
        return mlp.to_network(
            layers, ranker.activation, mean=self.mean, scale=self.scale, transform=ranker.transform
        )

    def start(self, ranker: NetworkRanker) -> mlp.Layers:
        """Random layers for a ranker's widths."""
        widths = (len(self.mean), *ranker.widths, 1)
        seed = child_generator(ranker.seed, 0)
        return mlp.start_layers(seed, widths, activation=ranker.activation)


def inputs_of(lists: TrainingLists, transform: str) -> NetworkInputs:
    """The features as a network wants them; mean and spread are over distinct documents."""
    # A missing feature (NaN) counts as the mean.
    infinite, fix = np.isinf(lists.features), "Replace it by a number, or by NaN for the mean."
    refuse_cell(lists.features, lists.feature_names, infinite, fix, "a network")
    mean, scale = mlp.normalisation(lists.features, transform=transform)
    if not scale.any():
        raise no_feature_varies(lists)
    features = mlp.normalised(lists.features, mean, scale, transform)
    return NetworkInputs(features, mean, scale, lists.feature_names, lists.missing)


def length_of(*trained: Trained) -> dict[str, Any]:
    """Epochs and steps, and the value on held-out data where there is any; of several, the sums."""
    found: dict[str, Any] = {
        "epochs": sum(each.epochs for each in trained),
        "steps": sum(each.steps for each in trained),
    }
    values = [each.held_out_value for each in trained if each.held_out_value is not None]
    return found | ({"held_out_value": sum(values)} if values else {})


def trained_on(lists: TrainingLists) -> dict[str, Any]:
    """The summary of the lists for a ranker that takes no weighting."""
    return {name: value for name, value in lists.summary(None).items() if name != "weighting"}


def network_scores(layers: mlp.Layers, features: FeatureArray, activation: str) -> FloatArray:
    """Scores of normalised features by the device that trains."""
    score = compiled_value(scores_function(activation))
    parts = [score(layers, {"features": rows}, {}) for rows in _padded(features, _SCORED_ROWS)]
    scores = np.concatenate([np.asarray(part) for part in parts])
    return scores[: len(features)].astype(np.float64)


def importances(layers: mlp.Layers, features: FeatureArray, activation: str) -> FloatArray:
    """Mean square of d score / d feature over up to 4096 rows, as shares of 1.

    A feature that never varies has a slope but no effect; its column is 0.
    """
    rows = features[:: max(1, -(-len(features) // _ROWS_FOR_SLOPES))]
    slopes = np.asarray(
        compiled_value(slopes_function(activation))(layers, {"features": rows}, {}), dtype=float
    )
    square = np.where(np.any(features != 0, axis=0), np.mean(slopes**2, axis=0), 0.0)
    return square / max(float(square.sum()), 1e-300)


@dataclass(frozen=True, eq=False)
class Noisy:
    """Batches with a seed each, "noise", for dropout."""

    batches: Sampler
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        return self.batches.steps_per_epoch

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch, in order."""
        for batch, noise in zip(self.batches.epoch(epoch), self._noise(epoch), strict=True):
            yield {**batch, "noise": noise}

    @property
    def resident(self) -> Resident | None:
        """That of the batches."""
        return self.batches.resident

    def picks(self, epoch: int) -> Picks:
        """Those of the batches, with a seed each."""
        own = self.batches.picks(epoch)
        return replace(own, per_step={**own.per_step, "noise": self._noise(epoch)})

    @property
    def shared(self) -> Mapping[str, AnyArray]:
        """That of the batches."""
        return self.batches.shared

    def _noise(self, epoch: int) -> AnyArray:
        draw = child_generator(self.seed, 2, epoch)
        return draw.integers(2**31, size=self.steps_per_epoch).astype(np.uint32)


def fingerprint(
    ranker: NetworkRanker, *arrays: AnyArray, held_out: ClickLog | JudgedLists | None = None
) -> str:
    """What is trained on what, for a checkpoint; its path and the number of epochs may change."""
    if ranker.checkpoint is None:
        return ""
    if isinstance(held_out, ClickLog):
        arrays = (*arrays, held_out.document, held_out.position, held_out.label, held_out.sessions)
    elif held_out is not None:
        arrays = (*arrays, held_out.labels, held_out.indptr)
    digest = hashlib.blake2b(digest_size=16)
    options = {k: v for k, v in ranker.get_params().items() if k not in ("checkpoint", "epochs")}
    digest.update(f"{type(ranker).__name__} {sorted(options.items())!r}".encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _padded(features: FeatureArray, size: int) -> Iterator[FeatureArray]:
    """Blocks of the same number of rows; few rows are one block of a power of two."""
    size = min(size, 1 << max(0, len(features) - 1).bit_length())
    for begin in range(0, len(features), size):
        block = features[begin : begin + size]
        if len(block) < size:
            block = np.concatenate([block, np.zeros((size - len(block), features.shape[1]), "f4")])
        yield block


# When a network stops: by labels, or by how likely it makes clicks that it has not seen.
#
# Clicks weighted by 1 / theta are worth the more the steeper the curve. A network that learns the
# curve along with the ranking would be praised for steepness; the likelihood of the clicks does not
# do that.

HOLD_OUT = 0.2  # of the training queries
FEWEST_QUERIES = 50  # ten held out; what fewer say of an epoch is noise

Data = ClickLog | JudgedLists
# From the parameters to the examination at positions 1, 2, ..., relative to any of them.
Curve = Callable[[mlp.Params], FloatArray]


class Parts(NamedTuple):
    """What to learn from, what to stop by, and what is to be said about it."""

    train: Data
    held_out: Data | None
    fact: Fact

    @property
    def summary(self) -> dict[str, Fact]:
        """For `summary_` of a ranker."""
        return {"held_out": self.fact}


def set_aside(ranker: NetworkRanker, data: Data, valid: Data | None) -> Parts:
    """20% of the queries to stop by, unless held-out data is given, or too little is there."""
    if valid is not None:
        return Parts(data, valid, HELD_OUT_GIVEN)
    if ranker.early_stopping is None:
        return Parts(data, None, note("network.no-early-stopping", "none: early_stopping is off")())
    if data.n_queries >= FEWEST_QUERIES:
        train, rest = data.split(1 - HOLD_OUT, seed=ranker.seed)
        if _has_labels(train) and _has_labels(rest):
            return Parts(train, rest, HELD_OUT(n_queries=rest.n_queries))
    few = {"n_queries": data.n_queries, "fewest": FEWEST_QUERIES}
    return Parts(data, None, TOO_FEW_TO_HOLD_OUT(**few))


def _has_labels(data: Data) -> bool:
    label = data.label if isinstance(data, ClickLog) else data.labels
    return bool(np.any(label != 0))


def stopping_for(
    ranker: NetworkRanker,
    held_out: Data | None,
    inputs: NetworkInputs,
    *,
    bias: BiasLike | None = None,
    curve: Curve | None = None,
    layers: Callable[[mlp.Params], mlp.Layers] = lambda params: params,
) -> StoppingRule | None:
    """Judge each epoch by held-out data; None without any.

    Parameters
    ----------
    bias : under which clicks are judged; without one all positions are examined alike
    curve : in its place, for a network that learns its own: the curve of an epoch's parameters
    layers : the ranker's among the parameters
    """
    if held_out is None:
        return None
    judge = _judge_of(held_out, bias, curve)
    rows = as_in_training(judge.features, inputs.names, inputs.missing)
    features = mlp.normalised(rows, inputs.mean, inputs.scale, ranker.transform)

    def value(params: mlp.Params) -> float:
        scores = network_scores(layers(params), features, ranker.activation)
        return judge.value(scores, params)

    return StoppingRule(value, ranker.early_stopping)


class _EpochJudge(NamedTuple):
    """Held-out documents, and the value of their scores at the parameters of an epoch."""

    features: FeatureArray
    value: Callable[[FloatArray, mlp.Params], float]


def _judge_of(held_out: Data, bias: BiasLike | None, curve: Curve | None) -> _EpochJudge:
    if not isinstance(held_out, ClickLog):
        labels = validation_for(held_out, None, None)
        assert labels is not None
        return _EpochJudge(labels.features, lambda scores, _: labels.value(scores))
    return (
        _by_clicks(held_out, bias, curve)
        if held_out.is_binary
        else _by_credit(held_out, bias, curve)
    )


def _by_clicks(log: ClickLog, bias: BiasLike | None, curve: Curve | None) -> _EpochJudge:
    """Log-likelihood per session: its gain by the scores, or all of it where the curve moves."""
    clicks = held_out_likelihood(log, None if curve is not None else bias)
    if curve is None:
        return _EpochJudge(clicks.features, lambda scores, _: clicks.value(scores))

    def value(scores: FloatArray, params: mlp.Params) -> float:
        now = clicks.with_curve(_at_positions(curve(params), log.depth))
        return now.null + now.value(scores)

    return _EpochJudge(clicks.features, value)


def _by_credit(log: ClickLog, bias: BiasLike | None, curve: Curve | None) -> _EpochJudge:
    """DCG@10 per propensity-weighted label, for feedback that is no click.

    Per label, because a steeper curve makes every weight larger, and with it a plain sum.
    """
    given = held_out_clicks(log, None if curve is not None else bias)

    def value(scores: FloatArray, params: mlp.Params) -> float:
        now = given
        if curve is not None:
            now = held_out_clicks(log, _at_positions(curve(params), log.depth))
        return float(np.sum(now.per_query(scores)) / np.sum(now.credit))

    return _EpochJudge(given.features, value)


def _at_positions(theta: FloatArray, depth: int) -> FloatArray:
    """Relative to position 1; positions below those trained on count as the last one."""
    theta = np.asarray(theta, dtype=float)
    theta = np.pad(theta / theta[0], (0, max(0, depth - len(theta))), mode="edge")
    return np.maximum(theta[:depth], 1e-6)

"""A network as ranker: pairwise, listwise or pointwise, on collapsed slates in mini-batches."""

import os
from dataclasses import replace
from typing import Any, Self

import numpy as np

from untilt._core.suggest import check_choice
from untilt.bias.position_bias import PositionBias
from untilt.errors import OptionError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.networks.optimisers import Optimiser
from untilt.networks.training import train
from untilt.rankers.linear_model import check_positive, training_summary, weighting_for
from untilt.rankers.network_model import (
    Inputs,
    NetworkRanker,
    Noisy,
    fingerprint,
    inputs_of,
    stopping_for,
)
from untilt.rankers.neural_tasks import LOSSES, JointTable, Task, task_of
from untilt.rankers.training import TrainingLists, training_lists
from untilt.rankers.watch import watch_for
from untilt.weighting.base import Weighting


class NeuralRanker(NetworkRanker):
    r"""A fully connected network, trained by mini-batches with JAX; on a GPU where there is one.

        "pairwise"   sum w_ij log(1 + exp(-sigma (s_i - s_j))),  w_ij = W[k_i, k_j] (i over j)
        "listwise"   - sum a_i log softmax(s)_i,                 a_i = W[k_i] (clicks on i)
        "pointwise"  - sum c log p + (n - c) log(1 - p),         p = alpha_k sigmoid(s) + beta_k

    each over the sum of its weights, plus l2/2 |weights|^2. Pairs as in [burges2005ranknet]_ with
    the table of any weighting; softmax with inverse propensities as in [ai2018dla]_, for weightings
    that depend on the clicked position alone; "pointwise" is the position-based likelihood of the
    clicks, or plain cross-entropy where no `bias` is given (alpha = 1, beta = 0).

    Sessions of one slate are collapsed first: counts and repeated sessions give the same ranker.
    The same seed gives the same ranker on the same device. Features are standardised inside; a
    missing value (NaN) counts as the mean.

    Parameters
    ----------
    weighting : a table of pair weights such as `PRS(bias)`; None takes clicks as they are. A joint
        one (`PairwiseDebiasing`) is refreshed after every epoch
    bias : the position bias, for loss="pointwise" and for judging held-out clicks
    widths, activation : hidden layers ([512, 256, 128] and ELU as in [ren2021pairwise]_)
    transform : "none", or "log1p" for features with heavy tails, before they are standardised
    gain : how labels weigh: "plain", "linear", "exponential", or "auto"
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    sigma : steepness of the pair loss
    batch_size : slates per step ("pointwise": as many documents as they show on average)
    optimiser, learning_rate, schedule : see `untilt.networks.optimisers.Optimiser`
    early_stopping : epochs without improvement on `fit(..., valid=...)` before training stops
    checkpoint : file to write after every epoch and to go on from where it exists

    Fitted: see `NetworkRanker`; `bias_` and `bias_history_` (joint weightings).
    """

    bias_: PositionBias | None
    bias_history_: list[Any]

    def __init__(
        self,
        weighting: Weighting | None = None,
        *,
        loss: str = "pairwise",
        bias: Any = None,
        widths: tuple[int, ...] = (512, 256, 128),
        activation: str = "elu",
        transform: str = "none",
        gain: str = "auto",
        query_weight: str = "sessions",
        sigma: float = 1.0,
        epochs: int = 20,
        batch_size: int = 256,
        optimiser: str = "adam",
        learning_rate: float = 1e-3,
        schedule: str = "constant",
        l2: float = 0.0,
        dropout: float = 0.0,
        clip_norm: float | None = None,
        early_stopping: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        seed: int = 0,
    ) -> None:
        self.weighting = weighting
        self.loss = loss
        self.bias = bias
        self.widths = widths
        self.activation = activation
        self.transform = transform
        self.gain = gain
        self.query_weight = query_weight
        self.sigma = sigma
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.l2 = l2
        self.dropout = dropout
        self.clip_norm = clip_norm
        self.early_stopping = early_stopping
        self.checkpoint = checkpoint
        self.seed = seed

    def fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from clicks or labels; with `early_stopping`, `valid` decides when to stop."""
        self._check()
        lists = training_lists(data)
        weighting = weighting_for(self.weighting, lists)
        self._check_bias(lists)
        inputs = inputs_of(lists, self.transform)
        task = task_of(self, lists, weighting, inputs)
        self._train(task, inputs, valid)
        self.summary_ = {**training_summary(lists, self.weighting), **self.summary_}
        return self

    def _train(self, task: Task, inputs: Inputs, valid: ClickLog | JudgedLists | None) -> None:
        watch = watch_for(valid, self._watch_bias(), self.early_stopping)
        trained = train(
            task.loss,
            task.start,
            Noisy(task.batches, self.seed) if self.dropout > 0 else task.batches,
            optimiser=self._optimiser(),
            epochs=self.epochs,
            constants={
                "features": inputs.features,
                "l2": np.asarray(self.l2, np.float32),
                **task.constants,
            },
            stopping=stopping_for(watch, inputs, self.transform, self.activation),
            companion=task.joint,
            checkpoint=self.checkpoint,
            fingerprint="" if self.checkpoint is None else self._fingerprint(task, inputs),
            what="training a ranking network",
        )
        self._keep_network(trained.params, inputs)
        self.losses_, self.watched_ = np.array(trained.losses), trained.watched
        self._keep_bias(task.joint, trained.best_epoch)
        self.summary_ = {
            "loss": self.loss,
            "epochs": trained.epochs,
            "steps": trained.steps,
            "status": trained.status,
        }

    def _fingerprint(self, task: Task, inputs: Inputs) -> str:
        first = next(iter(task.batches.epoch(0)))
        return fingerprint(self, inputs.features, *(first[name] for name in sorted(first)))

    def _optimiser(self) -> Optimiser:
        return Optimiser(
            name=self.optimiser,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
        )

    def _keep_bias(self, joint: JointTable | None, epochs: int) -> None:
        self.bias_, self.bias_history_ = None, []
        if joint is not None:
            # The parameters of the best epoch go with the ratios estimated up to it.
            self.bias_history_ = joint.history[:epochs]
            learned = joint.weighting.bias_of(self.bias_history_[-1], self.bias_history_)
            self.bias_ = replace(learned, status=f"after {epochs} epochs")

    def _watch_bias(self) -> Any:
        if self.bias is not None:
            return self.bias
        return self.weighting.position_bias if isinstance(self.weighting, Weighting) else None

    def _check(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        self._check_network()
        self._optimiser().check()
        check_positive("sigma", self.sigma)
        if self.loss == "pointwise" and self.weighting is not None:
            raise OptionError(
                "loss='pointwise' takes the bias itself (bias=...), not a table of pair weights. "
                "Leave weighting out, or use loss='pairwise' or 'listwise'."
            )

    def _check_bias(self, lists: TrainingLists) -> None:
        unused = self.loss != "pointwise" and self.weighting is None and self.bias is not None
        if unused and not lists.judged:
            raise OptionError(
                "bias=... alone corrects nothing: raw clicks are learned from. Give "
                "weighting=ut.PRS(bias), or loss='pointwise'; weighting=ut.Naive() says that raw "
                "clicks are meant."
            )

"""The ranking SVM's optimisation problem: which pairs it sums over, and its solution for a C."""

import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt._core.progress import track
from untilt.bias.curve import PositionBias
from untilt.errors import OptionError
from untilt.facts import Fact
from untilt.objectives import linear_losses
from untilt.objectives.pair_slates import PairSlates
from untilt.objectives.pairs import PairObjective
from untilt.rankers import learning_data
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.linear.cutting_plane import Planes, Solution, minimise
from untilt.rankers.linear.model import ScaledFeatures, fit_in_turn, joint_status
from untilt.weighting.base import JointWeighting, Weighting

# Of the tolerance, for a step towards DCG: weights change 1/log2(1 + R) by little, so that at w = 0
# a thousandth of the objective may be all that there is to win.
_FINER = 0.01


@dataclass(frozen=True, eq=False)
class HingeRisk:
    """R = 1/n sum of w_ij max(0, 1 - (s_i - s_j)) over all pairs, as a function of the scores."""

    parts: tuple[linear_losses.SortedHinge | linear_losses.PairHinge, ...]
    n: float

    def __call__(self, scores: FloatArray) -> tuple[float, FloatArray]:
        """The risk at these scores, and the most violated constraint's slope by score."""
        values = [part.evaluate(scores) for part in self.parts]
        return sum(v for v, _ in values) / self.n, np.sum([g for _, g in values], axis=0) / self.n


@dataclass(frozen=True, eq=False)
class SvmFit:
    """The solution for one C; with a joint weighting also the bias it ended with.

    `summary` is what else there is to tell, or to tell otherwise than of one convex problem.
    """

    solution: Solution
    bias: PositionBias | None = None
    history: list[Any] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class SvmProblem:
    """Solved for one C after another; cutting planes are good for any C and are kept between."""

    X: ScaledFeatures
    lists: TrainingLists
    weighting: Weighting
    gain: str
    query_weight: str
    tolerance: float
    max_iter: int
    max_rounds: int
    metric: str = "arp"
    _before: FloatArray | None = None

    @cached_property
    def positives(self) -> float:
        """n: clicks (documents with a label above 0), on the scale of the lists' weights."""
        weight = self.lists.list_weights(self.query_weight)
        clicks = ragged.sums_by_list(self.lists.indptr, (self.lists.label > 0).astype(float))
        return float(weight @ clicks)

    def solve(self, C: float) -> SvmFit:
        """The optimum for this C, to the tolerance; a local one where the metric is DCG."""
        if self.metric == "dcg":
            return self._solve_dcg(C)
        if isinstance(self.weighting, JointWeighting):
            return self._solve_joint(C, self.weighting)
        solution = self._minimise(self.risk, C, self._planes, self._before)
        self._before = solution.weights
        return SvmFit(solution)

    def first_slope(self) -> FloatArray:
        """The slope of the risk at w = 0 (of the first table, where the weighting is joint)."""
        return self.X.pull(self.risk(np.zeros(self.lists.n_documents))[1])

    @cached_property
    def risk(self) -> HingeRisk:
        """The risk with the weighting's own table; what a joint one, and DCG, only start from."""
        if self.metric == "dcg":
            return self._risk(self._dcg_bound.tangent(np.zeros(self.lists.n_documents)))
        lists, weighting = self._pooled
        depth = max(1, lists.depth)
        table, offset = weighting.table(depth), weighting.offset(depth)
        row_weight = None
        if offset is None:
            row_weight = learning_data.row_weights(weighting, lists)
        if row_weight is None:
            return self._risk(linear_losses.PairHinge.of(self._slates, table, offset))
        if weighting.against == "all":
            rows = learning_data.row_slates(
                lists, row_weight, gain=self.gain, query_weight=self.query_weight
            )
            return self._risk(linear_losses.hinge_against_all(rows))
        packed = self._slates.start >= 0
        parts: list[linear_losses.SortedHinge | linear_losses.PairHinge] = []
        if packed.any():
            parts.append(
                linear_losses.PairHinge.of(self._slates.take(np.flatnonzero(packed)), table, None)
            )
        if not packed.all():
            labelled = self._slates.take(np.flatnonzero(~packed))
            parts.append(linear_losses.hinge_by_labels(labelled, row_weight))
        return self._risk(*parts)

    @cached_property
    def _pooled(self) -> tuple[TrainingLists, Weighting]:
        return learning_data.pooled(self.lists, self.weighting, self.gain)

    @cached_property
    def _dcg_bound(self) -> linear_losses.HingeDcgBound:
        lists, weighting = self._pooled
        depth = max(1, lists.depth)
        row_weight, offset = learning_data.row_weights(weighting, lists), weighting.offset(depth)
        if row_weight is None or offset is not None or self.weighting.joint:
            raise OptionError(
                "metric='dcg' weighs each click by its own position. The weights of "
                f"{type(self.weighting).__name__} depend on the other document too, or can be "
                "negative. Use ut.IPS(bias), or metric='arp'."
            )
        rows = learning_data.row_slates(
            lists, row_weight, gain=self.gain, query_weight=self.query_weight
        )
        return linear_losses.HingeDcgBound(rows)

    @cached_property
    def _planes(self) -> Planes:
        return Planes.none(self.X.n_features)

    @cached_property
    def _slates(self) -> PairSlates:
        return learning_data.pair_slates(
            *self._pooled,
            metric="none",
            gain=self.gain,
            query_weight=self.query_weight,
        )

    def _risk(self, *parts: linear_losses.SortedHinge | linear_losses.PairHinge) -> HingeRisk:
        if not self.positives > 0:
            raise learning_data.nothing_to_learn()
        risk = HingeRisk(parts, self.positives)
        # With all scores equal every pair costs 1, so the risk there is the pairs' weight.
        if not risk(np.zeros(self.lists.n_documents))[0] > 0:
            raise learning_data.nothing_to_learn()
        return risk

    def _minimise(
        self,
        risk: HingeRisk,
        C: float,
        planes: Planes | None,
        start: FloatArray | None,
        *,
        tolerance: float | None = None,
    ) -> Solution:
        return minimise(
            self.X,
            risk,
            C,
            tolerance=self.tolerance if tolerance is None else tolerance,
            max_iter=self.max_iter,
            planes=planes,
            start=start,
        )

    def _solve_dcg(self, C: float) -> SvmFit:
        """By convex-concave steps from w = 0; each begins where the one before ended."""
        bound, w, risk = self._dcg_bound, np.zeros(self.X.n_features), self.risk

        def objective(w: FloatArray) -> float:
            return 0.5 * float(w @ w) + C / self.positives * bound.loss(self.X.scores(w))

        steps, settled = [objective(w)], False
        for _ in track(range(self.max_rounds), "convex-concave steps"):
            solution = self._minimise(risk, C, None, w, tolerance=_FINER * self.tolerance)
            w = solution.weights
            steps.append(objective(w))
            settled = steps[-2] - steps[-1] <= self.tolerance * (steps[0] - steps[-1])
            if settled:
                break
            risk = self._risk(bound.tangent(self.X.scores(w)))
        code = "training.settled" if settled else "training.not-settled"
        summary = {
            "objective": steps[-1],
            "steps": steps,
            "converged": settled and solution.converged,
            "status": Fact(code, fits=len(steps) - 1),
        }
        return SvmFit(solution, summary=summary)

    def _solve_joint(self, C: float, joint: JointWeighting) -> SvmFit:
        plain = PairObjective(self._slates, metric="none", loss="hinge")

        def learn(table: FloatArray, before: Solution | None) -> Solution:
            risk = self._risk(linear_losses.PairHinge.of(self._slates, table, None))
            return self._minimise(risk, C, None, None if before is None else before.weights)

        def losses(solution: Solution) -> FloatArray:
            return plain.losses_by_position(self.X.scores(solution.weights))

        learned = learning_data.learned_table(joint, self.lists, self.query_weight)
        solution = fit_in_turn(learned, learn=learn, losses=losses, max_rounds=self.max_rounds)
        status = joint_status(learned)
        summary = {"joint": status, "joint_settled": learned.settled}
        return SvmFit(solution, learned.bias(status=status), learned.history, summary)


def set_against(weighting: Weighting, against: str | None) -> Weighting:
    """The same weighting, clicked documents compared with "unclicked" or "all" others."""
    if against is None or against == weighting.against:
        return weighting
    changed = copy.copy(weighting)
    object.__setattr__(changed, "against", against)
    return changed

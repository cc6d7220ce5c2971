"""The propensity-weighted ranking SVM."""

import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt._core.progress import progress, track
from untilt._core.random import Seed
from untilt.bias.curve import PositionBias
from untilt.catalog import method, storable
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, check_choice, check_share
from untilt.metrics.metric import ARP, DCG
from untilt.objectives import losses
from untilt.objectives.pair_slates import PairSlates, RowSlates
from untilt.objectives.pairs import PairObjective
from untilt.rankers import learning_data
from untilt.rankers.base import check_positive, check_rounds
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.linear import linear
from untilt.rankers.linear.cutting_plane import Planes, Solution, minimise
from untilt.rankers.pooled import pooled_lists
from untilt.rankers.validation import as_in_training
from untilt.weighting.base import JointWeighting, Weighting, theta_up_to

# The ranking SVM's optimisation problem: which pairs it sums over, and its solution for a C.

# Of the tolerance, for a step towards DCG: weights change 1/log2(1 + R) by little, so that at w = 0
# a thousandth of the objective may be all that there is to win.
_FINER = 0.01


@dataclass(frozen=True, eq=False)
class HingeRisk:
    """R = 1/n sum of w_ij max(0, 1 - (s_i - s_j)) over all pairs, as a function of the scores."""

    parts: tuple[losses.SortedHinge | losses.PairHinge, ...]
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

    ranker: "RankSVM"
    X: linear.ScaledFeatures
    lists: TrainingLists
    weighting: Weighting
    gain: str
    _before: FloatArray | None = None

    @cached_property
    def positives(self) -> float:
        """n: clicks (documents with a label above 0), on the scale of the lists' weights."""
        weight = self.lists.list_weights(self.ranker.query_weight)
        clicks = ragged.sums_by_list(self.lists.indptr, (self.lists.label > 0).astype(float))
        return float(weight @ clicks)

    def solve(self, C: float) -> SvmFit:
        """The optimum for this C, to the tolerance; a local one where the metric is DCG."""
        if self.ranker.metric == "dcg":
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
        if self.ranker.metric == "dcg":
            return self._risk(self._dcg_bound.tangent(np.zeros(self.lists.n_documents)))
        lists, weighting = self._pooled
        depth = max(1, lists.depth)
        table, offset = weighting.table(depth), weighting.offset(depth)
        row_weight = None
        if offset is None:
            row_weight = learning_data.row_weights(weighting, lists)
        if row_weight is None:
            return self._risk(losses.PairHinge.of(self._slates, table, offset))
        if weighting.against == "all":
            return self._risk(losses.hinge_against_all(self._rows(lists, row_weight)))
        packed = self._slates.start >= 0
        parts: list[losses.SortedHinge | losses.PairHinge] = []
        if packed.any():
            parts.append(
                losses.PairHinge.of(self._slates.take(np.flatnonzero(packed)), table, None)
            )
        if not packed.all():
            labelled = self._slates.take(np.flatnonzero(~packed))
            parts.append(losses.hinge_by_labels(labelled, row_weight))
        return self._risk(*parts)

    @cached_property
    def _pooled(self) -> tuple[TrainingLists, Weighting]:
        return pooled_lists(self.lists, self.weighting, self.gain)

    @cached_property
    def _dcg_bound(self) -> losses.HingeDcgBound:
        lists, weighting = self._pooled
        depth = max(1, lists.depth)
        row_weight, offset = learning_data.row_weights(weighting, lists), weighting.offset(depth)
        if row_weight is None or offset is not None or self.weighting.joint:
            raise learning_data.needs_rows("⟦metric='dcg'⟧", self.weighting, "⟦metric='arp'⟧")
        return losses.HingeDcgBound(self._rows(lists, row_weight))

    def _rows(self, lists: TrainingLists, row_weight: FloatArray) -> RowSlates:
        return learning_data.row_slates(
            lists, row_weight, gain=self.gain, query_weight=self.ranker.query_weight
        )

    @cached_property
    def _planes(self) -> Planes:
        return Planes.none(self.X.n_features)

    @cached_property
    def _slates(self) -> PairSlates:
        return learning_data.pair_slates(
            *self._pooled, metric="none", gain=self.gain, query_weight=self.ranker.query_weight
        )

    def _risk(self, *parts: losses.SortedHinge | losses.PairHinge) -> HingeRisk:
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
        finer: float = 1.0,
    ) -> Solution:
        tolerance, max_iter = finer * self.ranker.tolerance, self.ranker.max_iter
        return minimise(
            self.X, risk, C, tolerance=tolerance, max_iter=max_iter, planes=planes, start=start
        )

    def _solve_dcg(self, C: float) -> SvmFit:
        """By convex-concave steps from w = 0; each begins where the one before ended."""
        bound, w, risk = self._dcg_bound, np.zeros(self.X.n_features), self.risk

        def objective(w: FloatArray) -> float:
            return 0.5 * float(w @ w) + C / self.positives * bound.loss(self.X.scores(w))

        steps, settled = [objective(w)], False
        for _ in track(range(self.ranker.max_rounds), "convex-concave steps"):
            solution = self._minimise(risk, C, None, w, _FINER)
            w = solution.weights
            steps.append(objective(w))
            settled = steps[-2] - steps[-1] <= self.ranker.tolerance * (steps[0] - steps[-1])
            if settled:
                break
            risk = self._risk(bound.tangent(self.X.scores(w)))
        ended = linear.SETTLED if settled else linear.NOT_SETTLED
        summary = {
            "objective": steps[-1],
            "steps": steps,
            "converged": settled and solution.converged,
            "status": ended(fits=len(steps) - 1),
        }
        return SvmFit(solution, summary=summary)

    def _solve_joint(self, C: float, joint: JointWeighting) -> SvmFit:
        plain = PairObjective(self._slates, metric="none", loss="hinge")

        def learn(table: FloatArray, before: Solution | None) -> Solution:
            risk = self._risk(losses.PairHinge.of(self._slates, table, None))
            return self._minimise(risk, C, None, None if before is None else before.weights)

        def by_position(solution: Solution) -> FloatArray:
            return plain.losses_by_position(self.X.scores(solution.weights))

        learned = learning_data.learned_table(joint, self.lists, self.ranker.query_weight)
        solution = linear.fit_in_turn(
            learned, learn=learn, losses=by_position, max_rounds=self.ranker.max_rounds
        )
        status = linear.joint_status(learned)
        summary = {"joint": status, "joint_settled": learned.settled}
        return SvmFit(solution, learned.bias(status=status), learned.history, summary)


def set_against(weighting: Weighting, against: str | None) -> Weighting:
    """The same weighting, clicked documents compared with "unclicked" or "all" others."""
    if against is None or against == weighting.against:
        return weighting
    changed = copy.copy(weighting)
    object.__setattr__(changed, "against", against)
    return changed


# One value that is no better may be noise; two in a row and the best is behind. Less than a
# ten-thousandth of a rank is no gain worth the ever longer fits of a larger C.
_PATIENCE = 2
_LEAST_GAIN = 1e-4
_MOST_DOUBLINGS = 30


@storable
@dataclass(frozen=True)
class Trial:
    """One C of the search: the average rank of validation positives, and the fit's duality gap.

    `dcg` is their average 1/log2(1 + rank), where that is what the ranker maximises.
    """

    C: float
    average_rank: float
    gap: float
    dcg: float | None = None

    @property
    def loss(self) -> float:
        """What the search makes small."""
        return self.average_rank if self.dcg is None else -self.dcg


@method(
    "ranker", "svm", title="Ranking SVM", aliases=("rank-svm",), order=70,
    takes=("weighting", "seed"),
    choose=("train", "select", "run"), reference="joachims2017unbiased",
    note="a linear score by the propensity-weighted ranking SVM",
)  # fmt: skip
@method(
    "ranker", "svm-dcg", title="Ranking SVM for DCG", order=72, cost=3.0,
    takes=("weighting", "seed"), options={"metric": "dcg"},
    choose=("train", "select"), reference="agarwal2019framework",
    note="a linear score by a bound on DCG, each step a propensity-weighted ranking SVM",
)  # fmt: skip
@dataclass(eq=False, repr=False)
class RankSVM(linear.LinearModel):
    r"""A linear score by the propensity-weighted ranking SVM ([joachims2017unbiased]_).

    The ranking SVM of [joachims2002optimizing]_ with a weight for each pair:

    .. math:: \min_v \tfrac12 |v|^2 + \frac{C}{n} \sum_{\text{clicks } i} \sum_j W[k_i, k_j] \,
        \max(0, 1 - (s_i - s_j))

    n is the number of clicks (of documents with a label above 0, each as often as its list was
    shown), so C means the same for a log and for the log twice over. With `IPS(bias,
    against="all")` this is equation 5 of [mao_arxivlogs]_: the inner sum bounds the rank of a
    clicked document, minus 1.

    With ``metric="dcg"`` it is the SVM PropDCG of [agarwal2019framework]_,

    .. math:: \min_v \tfrac12 |v|^2 + \frac{C}{n} \sum_{\text{clicks } i} W[k_i] \,
        \bigl(1 - 1/\log_2(1 + R_i)\bigr), \quad R_i = 1 + \sum_{j \ne i} \max(0, 1 - (s_i - s_j))

    R_i bounds the rank of the click among all shown documents, so the sum bounds what the
    propensity-weighted DCG is short of its best. Not convex: solved by convex-concave steps from
    v = 0 (`untilt.objectives.losses`), each a ranking SVM as above with the weights
    W[k_i] / ((1 + R_i) log(1 + R_i)^2) of the step before. The objective falls at every step
    (`summary_["steps"]`) until it falls by less than `tolerance` of itself; what it ends at is a
    local optimum. "bound" and "gap" of `summary_` are those of the last step. It needs weights of
    at least 0 that depend on the clicked position alone (`Naive`, `IPS`, `BayesIPS`).

    Solved by one-slack cutting planes to a duality gap of `tolerance`, as a share of the objective;
    `summary_` reports it. Where the weights depend on the clicked position alone (`Naive`, `IPS`,
    `BayesIPS`) the most violated constraint is found by sorting, O(n log n) per list; slates with
    many different sessions keep collapsed pairs instead, and tables that depend on both positions
    (`PRS`, `PNS`, `Balanced`, `PairwiseDebiasing`, affine ones) visit all pairs of a list.

    Parameters
    ----------
    weighting : a table of pair weights such as `IPS(bias, against="all")`; None for raw clicks
    C : weight of the clicks against the penalty; "search" doubles it from a small value until the
        propensity-weighted average rank (or DCG) of the positives on validation data stops
        improving
    metric : "arp", the average rank of clicked documents, or "dcg"
    against : "unclicked" or "all" documents of the list; None leaves it to the weighting ("dcg"
        ranks among all)
    tolerance, max_iter : relative duality gap at which to stop, and most rounds of cutting planes
    scale : standardise the features inside; False takes them as they are
    gain : how labels weigh: "plain", "linear", "exponential", or "auto" (plain on judged lists,
        linear on logs)
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    validation_share, seed : the queries set aside by C="search" where `fit` is given no `valid`
    valid_bias : the curve that weighs the clicks of the validation data; None takes the weighting's
        own. [mao_arxivlogs]_ weighs them as the test will be weighed, whatever the training has
    max_rounds : fits of ranker and bias in turn (joint weightings), or convex-concave steps

    Fitted: see `LinearModel`; `C_`, `search_` (the values of C tried, with what they gave).
    """

    weighting: Weighting | None = None
    _: KW_ONLY
    C: float | str = 1.0
    metric: str = "arp"
    against: str | None = None
    tolerance: float = 1e-3
    max_iter: int = 2000
    scale: bool = True
    gain: str = "auto"
    query_weight: str = "sessions"
    validation_share: float = 0.2
    seed: Seed = 0
    max_rounds: int = 50
    valid_bias: Any = None

    def _fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from clicks or labels; `valid` decides on C where C="search"."""
        self._check()
        lists = _finite_lists(data, self.weighting)
        self.search_: tuple[Trial, ...] = ()
        if self.C == "search":
            self.search_ = self._search(data, valid)
            self.C_ = min(self.search_, key=lambda trial: (trial.loss, trial.C)).C
        else:
            self.C_ = float(self.C)
        problem = self._problem(lists)
        fit = problem.solve(self.C_)
        self._keep_weights(fit.solution.weights, problem.X.scaling, lists)
        self.bias_, self.bias_history_ = fit.bias, fit.history
        self.summary_ = {
            **lists.summary(problem.weighting), "against": problem.weighting.against, "C": self.C_,
            "objective": fit.solution.objective, "bound": fit.solution.bound,
            "gap": fit.solution.gap, "iterations": fit.solution.rounds,
            "planes": fit.solution.planes, "converged": fit.solution.converged,
            "status": fit.solution.status, **fit.summary,
        }  # fmt: skip
        return self

    def _search(
        self, data: ClickLog | JudgedLists, valid: ClickLog | JudgedLists | None
    ) -> tuple[Trial, ...]:
        if valid is None:  # queries set aside
            data, valid = data.split(1 - self.validation_share, seed=self.seed)
        problem = self._problem(_finite_lists(data, self.weighting))
        # Clicks of held-out sessions have weights of their own, or those of the given curve.
        lists = _finite_lists(valid, self.weighting if self.valid_bias is None else None)
        return doubling_search(problem, lists, validation_weight(problem, lists, self.valid_bias))

    def _problem(self, lists: TrainingLists) -> SvmProblem:
        features = lists.features
        scaling = linear.Scaling.of(features) if self.scale else linear.Scaling.none(features)
        gain = learning_data.metric_gain if self._for_dcg else learning_data.pair_gain
        weighting = learning_data.weighting_for(self.weighting, lists)
        weighting = set_against(weighting, "all" if self._for_dcg else self.against)
        X = linear.ScaledFeatures(features, scaling)
        return SvmProblem(self, X, lists, weighting, gain(self.gain, lists))

    @property
    def _for_dcg(self) -> bool:
        return self.metric == "dcg"

    def _check(self) -> None:
        check_choice("metric", self.metric, ("arp", "dcg"))
        if self.C != "search":
            if isinstance(self.C, str):
                raise OptionError(f"C must be a number above 0 or 'search'. Got {self.C!r}.")
            check_positive("C", self.C)
        if self.against is not None:
            check_choice("against", self.against, ("unclicked", "all"))
            if self._for_dcg and self.against != "all":
                raise OptionError(
                    "⟦metric='dcg'⟧ ranks among all shown documents, but against is "
                    f"{self.against!r}. Leave against out, or use ⟦metric='arp'⟧."
                )
        check_positive("tolerance", self.tolerance)
        check_rounds("max_iter", self.max_iter)
        check_rounds("max_rounds", self.max_rounds)
        check_share("validation_share", self.validation_share)


def _finite_lists(data: ClickLog | JudgedLists, weighting: object) -> TrainingLists:
    lists = learning_data.training_lists(data, weighting)
    linear.check_finite(lists.features, lists.feature_names)
    return lists


def doubling_search(
    problem: SvmProblem, valid: TrainingLists, weight: FloatArray
) -> tuple[Trial, ...]:
    """Double C until the average rank of positives has not improved twice in a row.

    The search of [mao_arxivlogs]_, section 5.2. Below the first C every pair lies within the
    margin, so all smaller values give the same order; values that still give that order do not
    count as no better. `weight` is W[k] of validation clicks.
    """
    judge = _TrialJudge(problem, valid, weight)
    C = smallest_useful(problem)
    trials: list[Trial] = []
    with progress("searching for C") as advance:
        while len(trials) < _MOST_DOUBLINGS and not _is_over(trials):
            fit = problem.solve(C)
            trials.append(judge.trial(C, fit.solution))
            C *= 2
            advance()
    return tuple(trials)


def _is_over(trials: list[Trial]) -> bool:
    losses = np.array([trial.loss for trial in trials])
    if np.all(losses == losses[:1]):
        return False
    better = losses[1:] < np.minimum.accumulate(losses)[:-1] - _LEAST_GAIN
    return len(better) >= _PATIENCE and not better[-_PATIENCE:].any()


def smallest_useful(problem: SvmProblem) -> float:
    """The largest power of 2 at which every pair is still within the margin.

    While all pairs are, the optimum is w = -C slope(0), so the order does not depend on C.
    """
    spread = float(np.ptp(problem.X.scores(problem.first_slope())))
    return float(2.0 ** np.floor(-np.log2(spread))) if spread > 0 else 1.0


class _TrialJudge:
    """sum_i r_i rank_i / sum_i r_i over validation positives, r_i = clicks times W[k]; DCG alike.

    The weights are the same for every C, or the averages would not compare.
    """

    def __init__(self, problem: SvmProblem, valid: TrainingLists, weight: FloatArray) -> None:
        names, missing = problem.lists.feature_names, problem.lists.missing
        self._features = as_in_training(valid.features, names, missing)
        self._scaling = problem.X.scaling
        self._metric = problem.ranker.metric
        self._slates = learning_data.row_slates(
            valid, weight, gain="plain" if valid.judged else "linear", query_weight="sessions"
        )
        if len(self._slates.document) == 0:
            raise OptionError(
                "C='search' found no click in a list of two or more documents of the validation "
                "data. Give fit(log, ⟦valid=...⟧) more of it, or a number for C."
            )

    def trial(self, C: float, solution: Solution) -> Trial:
        """What a solution is worth on these clicks."""
        slates = self._slates
        raw = self._scaling.to_raw(solution.weights)
        scores = linear.centred_scores(self._features, raw, self._scaling.mean)[slates.document]
        total = ragged.sums_by_list(slates.indptr, slates.weight)
        rank = ARP().mean(scores, slates.weight, slates.indptr, weights=total).value
        dcg = None
        if self._metric == "dcg":
            by_list = DCG(gain="linear").per_list(scores, slates.weight, slates.indptr)
            dcg = float(by_list.sum() / total.sum())
        return Trial(C, rank, solution.gap, dcg)


def validation_weight(problem: SvmProblem, valid: TrainingLists, given: Any = None) -> FloatArray:
    """W[k] of validation clicks: 1/theta_k of the `given` curve, else the weighting's own.

    Where the weighting has none for rows it is 1/theta_k of its curve, else 1. A joint weighting
    has no curve before a fit; the one it finds at C = 1 is taken.
    """
    depth = max(1, valid.depth)
    if valid.judged:
        return np.ones(depth)
    if given is not None:
        return 1 / theta_up_to(given, depth)
    weighting = problem.weighting
    own = None if weighting.joint else learning_data.row_weights(weighting, valid)
    if own is not None:
        return own
    bias = problem.solve(1.0).bias if weighting.joint else weighting.position_bias
    return np.ones(depth) if bias is None else 1 / theta_up_to(bias, depth)

"""The propensity-weighted ranking SVM."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray
from untilt._core.progress import progress
from untilt._core.random import Seed
from untilt.catalog import method, storable
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.metrics.formulas import ARP, DCG
from untilt.rankers import learning_data
from untilt.rankers.base import check_positive, check_rounds
from untilt.rankers.learning_data import TrainingLists
from untilt.rankers.linear import model
from untilt.rankers.linear.cutting_plane import Solution
from untilt.rankers.linear.svm_problem import SvmProblem, set_against
from untilt.weighting.base import Weighting, theta_up_to

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
class RankSVM(model.LinearModel):
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
    v = 0 (`untilt.objectives.linear_losses`), each a ranking SVM as above with the weights
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
            **lists.summary(problem.weighting),
            "against": problem.weighting.against,
            "C": self.C_,
            "objective": fit.solution.objective,
            "bound": fit.solution.bound,
            "gap": fit.solution.gap,
            "iterations": fit.solution.rounds,
            "planes": fit.solution.planes,
            "converged": fit.solution.converged,
            "status": fit.solution.status,
            **fit.summary,
        }
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
        scaling = model.Scaling.of(features) if self.scale else model.Scaling.none(features)
        gain = learning_data.metric_gain if self._for_dcg else learning_data.pair_gain
        return SvmProblem(
            X=model.ScaledFeatures(features, scaling),
            lists=lists,
            weighting=set_against(
                learning_data.weighting_for(self.weighting, lists),
                "all" if self._for_dcg else self.against,
            ),
            gain=gain(self.gain, lists),
            query_weight=self.query_weight,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
            max_rounds=self.max_rounds,
            metric=self.metric,
        )

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
                    "metric='dcg' ranks among all shown documents, but against is "
                    f"{self.against!r}. Leave against out, or use metric='arp'."
                )
        check_positive("tolerance", self.tolerance)
        check_rounds("max_iter", self.max_iter)
        check_rounds("max_rounds", self.max_rounds)
        if not 0 < self.validation_share < 1:
            raise OptionError(
                "validation_share must lie between 0 and 1. "
                f"Got {self.validation_share!r} instead; 0.2 is usual."
            )


def _finite_lists(data: ClickLog | JudgedLists, weighting: object) -> TrainingLists:
    lists = learning_data.training_lists(data, weighting)
    model.check_finite(lists.features, lists.feature_names)
    return lists


def doubling_search(
    problem: SvmProblem, valid: TrainingLists, weight: FloatArray
) -> tuple[Trial, ...]:
    """Double C until the average rank of positives has not improved twice in a row.

    The search of [mao_arxivlogs]_, section 5.2. Below the first C every pair lies within the
    margin, so all smaller values give the same order; values that still give that order do not
    count as no better. `weight` is W[k] of validation clicks.
    """
    judge = _Judge(problem, valid, weight)
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


class _Judge:
    """sum_i r_i rank_i / sum_i r_i over validation positives, r_i = clicks times W[k]; DCG alike.

    The weights are the same for every C, or the averages would not compare.
    """

    def __init__(self, problem: SvmProblem, valid: TrainingLists, weight: FloatArray) -> None:
        if valid.features.shape[1] != problem.X.n_features:
            raise ShapeError(
                f"the validation data must have the {problem.X.n_features} features of the "
                f"training data. Got {valid.features.shape[1]} instead."
            )
        self._scaling, self._features = problem.X.scaling, valid.features
        self._metric = problem.metric
        self._slates = learning_data.row_slates(
            valid,
            weight,
            gain="plain" if valid.judged else "linear",
            query_weight="sessions",
        )
        if len(self._slates.document) == 0:
            raise OptionError(
                "C='search' found no click in a list of two or more documents of the validation "
                "data. Give fit(log, valid=...) more of it, or a number for C."
            )

    def trial(self, C: float, solution: Solution) -> Trial:
        """What a solution is worth on these clicks."""
        slates = self._slates
        raw = self._scaling.to_raw(solution.weights)
        scores = model.centred_scores(self._features, raw, self._scaling.mean)[slates.document]
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

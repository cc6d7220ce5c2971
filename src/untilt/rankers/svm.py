"""The propensity-weighted ranking SVM."""

from typing import Any, Self

from untilt._core.random import Seed
from untilt._core.suggest import check_choice
from untilt.errors import OptionError
from untilt.logs.clicklog import ClickLog
from untilt.logs.judged import JudgedLists
from untilt.rankers.cutting_plane import Solution
from untilt.rankers.linear_model import (
    LinearModel,
    check_positive,
    check_rounds,
    pair_gain,
    training_summary,
    weighting_for,
)
from untilt.rankers.scaling import ScaledFeatures, Scaling, check_finite
from untilt.rankers.svm_problem import SvmProblem, set_against
from untilt.rankers.svm_search import Trial, doubling_search, search_parts
from untilt.rankers.training import TrainingLists, training_lists
from untilt.weighting.base import Weighting


class RankSVM(LinearModel):
    r"""A linear score by the propensity-weighted ranking SVM ([joachims2017unbiased]_).

    .. math:: \min_v \tfrac12 |v|^2 + \frac{C}{n} \sum_{\text{clicks } i} \sum_j W[k_i, k_j] \,
        \max(0, 1 - (s_i - s_j))

    n is the number of clicks (of documents with a label above 0, each as often as its list was
    shown), so C means the same for a log and for the log twice over. With `IPS(bias,
    against="all")` this is equation 5 of [mao_arxivlogs]_: the inner sum bounds the rank of a
    clicked document, minus 1.

    Solved by one-slack cutting planes to a duality gap of `tolerance`, as a share of the objective;
    `summary_` reports it. Where the weights depend on the clicked position alone (`Naive`, `IPS`,
    `BayesIPS`) the most violated constraint is found by sorting, O(n log n) per list; slates with
    many different sessions keep collapsed pairs instead, and tables that depend on both positions
    (`PRS`, `PNS`, `Balanced`, `PairwiseDebiasing`, affine ones) visit all pairs of a list.

    Parameters
    ----------
    weighting : a table of pair weights such as `IPS(bias, against="all")`; None for raw clicks
    C : weight of the clicks against the penalty; "search" doubles it from a small value until the
        propensity-weighted average rank of the positives on validation data stops improving
    against : "unclicked" or "all" documents of the list; None leaves it to the weighting
    tolerance, max_iter : relative duality gap at which to stop, and most rounds of cutting planes
    scale : standardise the features inside; False takes them as they are
    gain : how labels weigh: "plain", "linear", "exponential", or "auto" (plain on judged lists,
        linear on logs)
    query_weight : "sessions", "sqrt" or "equal": how a query's traffic counts
    validation_share, seed : the queries set aside by C="search" where `fit` is given no `valid`
    max_rounds : fits of ranker and bias in turn (joint weightings alone)

    Fitted: see `LinearModel`; `C_`, `search_` (the values of C tried, with what they gave).
    """

    def __init__(
        self,
        weighting: Weighting | None = None,
        *,
        C: float | str = 1.0,
        against: str | None = None,
        tolerance: float = 1e-3,
        max_iter: int = 2000,
        scale: bool = True,
        gain: str = "auto",
        query_weight: str = "sessions",
        validation_share: float = 0.2,
        seed: Seed = 0,
        max_rounds: int = 50,
    ) -> None:
        self.weighting = weighting
        self.C = C
        self.against = against
        self.tolerance = tolerance
        self.max_iter = max_iter
        self.scale = scale
        self.gain = gain
        self.query_weight = query_weight
        self.validation_share = validation_share
        self.seed = seed
        self.max_rounds = max_rounds

    def fit(
        self, data: ClickLog | JudgedLists, *, valid: ClickLog | JudgedLists | None = None
    ) -> Self:
        """Learn from clicks or labels; `valid` decides on C where C="search"."""
        self._check()
        lists = _finite_lists(data)
        self.search_: tuple[Trial, ...] = ()
        if self.C == "search":
            self.search_ = self._search(data, valid)
            self.C_ = min(self.search_, key=lambda trial: (trial.average_rank, trial.C)).C
        else:
            self.C_ = float(self.C)
        problem = self._problem(lists)
        fit = problem.solve(self.C_)
        self._keep_weights(fit.solution.weights, problem.X.scaling, lists.feature_names)
        self.bias_, self.bias_history_ = fit.bias, fit.history
        self.summary_ = {
            **training_summary(lists, problem.weighting),
            "against": problem.weighting.against,
            "C": self.C_,
            **_how_it_went(fit.solution),
            **fit.joint,
        }
        return self

    def _search(
        self, data: ClickLog | JudgedLists, valid: ClickLog | JudgedLists | None
    ) -> tuple[Trial, ...]:
        train, held_out = search_parts(data, valid, self.validation_share, self.seed)
        return doubling_search(self._problem(_finite_lists(train)), _finite_lists(held_out))

    def _problem(self, lists: TrainingLists) -> SvmProblem:
        features = lists.features
        scaling = Scaling.of(features) if self.scale else Scaling.none(features)
        return SvmProblem(
            X=ScaledFeatures(features, scaling),
            lists=lists,
            weighting=set_against(weighting_for(self.weighting, lists), self.against),
            gain=pair_gain(self.gain, lists),
            query_weight=self.query_weight,
            tolerance=self.tolerance,
            max_iter=self.max_iter,
            max_rounds=self.max_rounds,
        )

    def _check(self) -> None:
        if self.C != "search":
            if isinstance(self.C, str):
                raise OptionError(f"C must be a number above 0 or 'search'. Got {self.C!r}.")
            check_positive("C", self.C)
        if self.against is not None:
            check_choice("against", self.against, ("unclicked", "all"))
        check_positive("tolerance", self.tolerance)
        check_rounds("max_iter", self.max_iter)
        check_rounds("max_rounds", self.max_rounds)
        if not 0 < self.validation_share < 1:
            raise OptionError(
                "validation_share must lie between 0 and 1. "
                f"Got {self.validation_share!r} instead; 0.2 is usual."
            )


def _finite_lists(data: ClickLog | JudgedLists) -> TrainingLists:
    lists = training_lists(data)
    check_finite(lists.features, lists.feature_names)
    return lists


def _how_it_went(solution: Solution) -> dict[str, Any]:
    ended = "converged" if solution.converged else "stopped early"
    return {
        "objective": solution.objective,
        "bound": solution.bound,
        "gap": solution.gap,
        "iterations": solution.rounds,
        "planes": solution.planes,
        "converged": solution.converged,
        "status": f"{ended} (duality gap {solution.gap:.1e} after {solution.rounds} rounds)",
    }

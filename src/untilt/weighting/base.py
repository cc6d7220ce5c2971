"""What a weighting is, a table W[k, l], and whether a table orders documents by relevance."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.curve import NO_INTERVAL_LEARNED, PositionBias
from untilt.bias.given import BiasLike, as_examination, as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, ShapeError, check_choice
from untilt.facts import Fact, joined, note, warning

_PREFERS = (
    " consistent: of two equally relevant documents at positions {k} and {l} it prefers one by "
    "{share:.1%} and so {order}"
)
NOT_CONSISTENT = warning("training.not-consistent", "not" + _PREFERS)
NEARLY_CONSISTENT = warning("training.nearly-consistent", "nearly" + _PREFERS)

CONSISTENT = note(
    "training.consistent", "consistent: pairs are ordered by relevance at every pair of positions"
)()

Against = Literal["unclicked", "all"]


class Weighting(ABC):
    """W[k, l] multiplies the loss of a pair (clicked at position k, other at position l).

    `against` says what the clicked document is compared with: the unclicked documents of the
    session, or all others. `joint` weightings start from a table and are given S[k, l], the summed
    unweighted loss per pair of positions, each round.
    """

    against: Against = "unclicked"
    joint: ClassVar[bool] = False
    # The per-session factor 1/idealDCG(clicks) of NDCG lambdas is correlated with the clicks; a
    # weighting that is exact without it turns it off (see `is_consistent`).
    per_session_norm: ClassVar[bool] = True

    @abstractmethod
    def table(self, depth: int) -> FloatArray:
        """W, shape (depth, depth), rows = position of the clicked document."""

    def offset(self, depth: int) -> FloatArray | None:  # noqa: ARG002
        """Weight of *every* shown pair, clicked or not: only an affine correction has one.

        The weight of "i above j" is W[k, l] label_i + offset[k, l], summed over sessions.
        """
        return None

    def sides(self, depth: int) -> tuple[FloatArray, FloatArray] | None:  # noqa: ARG002
        """(up, down): what a click and a no-click at each position weigh by themselves.

        For losses by document or by list. None where a weight belongs to a pair of positions.
        """
        return None

    @property
    def position_bias(self) -> BiasLike | None:
        """The curve behind the table, where there is one."""
        bias: BiasLike | None = getattr(self, "bias", None)
        return bias


class ClickWeights(NamedTuple):
    """What the clicks of a log weigh, row by row.

    click : (rows,) v, the weight of a click in this row
    share : (rows,) x, the same for all sessions of a list: a pair weighs min(x_i, x_j) times as
        much; None where it does not depend on the other document
    """

    click: FloatArray
    share: FloatArray | None = None


class SessionWeighting(Weighting):
    """Weights of sessions, not of positions: "i above j" weighs v_i min(x_i, x_j) if i is clicked.

    j is every other document of the list. v_i may depend on the list and on all that happened in
    the session above i; min(x_i, x_j) on the list alone. So the sessions of a list leave one sum
    for each row, and training costs what it costs with a table.
    """

    against: Against = "all"
    per_session_norm: ClassVar[bool] = False

    def table(self, depth: int) -> FloatArray:
        """All ones: positions by themselves make no difference."""
        return np.ones((depth, depth))

    @abstractmethod
    def click_weights(self, log: ClickLog) -> ClickWeights:
        """The weights in a log of clicks."""


class JointWeighting(Weighting):
    """A weighting that is learned along with the ranker; its state is of its own kind."""

    joint: ClassVar[bool] = True

    @property
    def takes_means(self) -> bool:
        """Whether S[k, l] is to be divided by the sessions that showed positions k and l."""
        return False

    @abstractmethod
    def update(self, S: FloatArray, state: Any) -> Any:
        """The next state from the losses S[k, l] and the state before (None at the start)."""

    @abstractmethod
    def table_of(self, state: Any) -> FloatArray:
        """W for a state."""

    @abstractmethod
    def bias_of(self, state: Any, history: list[Any]) -> PositionBias:
        """What the learned state says about position bias."""


# Pair weights that change by less than 0.1% no longer change the ranking.
_SETTLED = 1e-3


class LearnedTable:
    """The table of a joint weighting while a ranker learns: S[k, l] goes in, the next table out.

    S is the summed unweighted loss per pair of positions at the ranker so far. Boosting gives it
    after every tree, a network after every epoch, a linear ranker after every whole fit.

    `together` is N[k, l], the sessions that showed positions k and l, for a weighting that takes
    means; None where there is no need of it. `table` is W[k, l] now, `history` the state of the
    weighting after each update.
    """

    table: FloatArray
    history: list[Any]

    def __init__(
        self, weighting: JointWeighting, depth: int, together: FloatArray | None = None
    ) -> None:
        self.weighting = weighting
        self._first = weighting.table(depth)
        # Where all lists are alike, dividing by one number would change nothing but rounding.
        alike = together is None or bool(np.all(together == together[0, 0]))
        self._together = None if alike or not weighting.takes_means else together
        self.restart()

    def restart(self) -> None:
        """Back to the first table, for a new training."""
        self.table = self._before = self._first
        self.history = []

    def update(self, S: FloatArray) -> FloatArray:
        """The next table."""
        if self._together is not None:
            N = self._together
            S = np.divide(S, N, out=np.zeros_like(S), where=N > 0)
        self.history.append(self.weighting.update(S, self.history[-1] if self.history else None))
        self._before, self.table = self.table, self.weighting.table_of(self.history[-1])
        return self.table

    @property
    def settled(self) -> bool:
        """Whether the last update changed no weight by more than 0.1%."""
        return bool(np.max(np.abs(np.log(self.table / self._before))) <= _SETTLED)

    def bias(self, rounds: int | None = None, *, status: Fact | None = None) -> PositionBias | None:
        """What the first `rounds` updates (all without) say of the bias; None before the first.

        `status` takes the place of the weighting's own. However clicks made the ratios, they are
        an estimate, and without an error of their own they have no interval.
        """
        history = self.history[:rounds]
        if not history:
            return None
        bias = self.weighting.bias_of(history[-1], history)
        status = bias.status if status is None else status
        if not bias.has_interval:
            status = joined(status, NO_INTERVAL_LEARNED)
        return replace(bias, estimated=True, status=status)


def theta_up_to(bias: BiasLike, depth: int) -> FloatArray:
    """theta_1..theta_depth of any kind of bias."""
    return np.asarray(as_examination(bias).at(np.arange(1, depth + 1)), dtype=float)


# Does a table order documents by relevance, whatever the positions they were shown at?

_DEFAULT_DEPTH = 10


@dataclass(frozen=True)
class Consistency:
    """The verdict on one table.

    `exact`: the expected preference has the sign of the relevance difference for every pair of
    positions. `symmetric`: W[k, l] theta_k is symmetric, so only the small pull of unexamined
    relevant documents is left. `worst_pull` is the largest relative preference that a table gives
    to one of two *equally* relevant documents, (forward - backward)/(forward + backward); positive
    means towards the shown order, negative that it reverses the shown order. `positions` is where.
    """

    exact: bool
    symmetric: bool
    worst_pull: float
    positions: tuple[int, int]

    def __bool__(self) -> bool:
        return self.exact

    @property
    def verdict(self) -> Fact:
        """What follows for a ranker."""
        if self.exact:
            return CONSISTENT
        told = NEARLY_CONSISTENT if self.symmetric else NOT_CONSISTENT
        k, l = self.positions  # noqa: E741  the formula's symbols
        pull = self.worst_pull
        order = "keeps the shown order" if pull > 0 else "reverses the shown order"
        return told(k=k, l=l, pull=pull, share=abs(pull), order=order)

    def __str__(self) -> str:
        return str(self.verdict)


def is_consistent(
    table: FloatArray | Weighting,
    theta: BiasLike,
    *,
    against: Against = "unclicked",
    relevance: float = 0.5,
    depth: int | None = None,
    tolerance: float = 1e-9,
) -> Consistency:
    r"""Judge any table of pair weights under the position-based model, with trust bias or not.

    With p_k = alpha_k g_k + beta_k, the click probability at position k, the expected weight on
    "document at k above document at l" is W[k,l] p_k (1 - p_l) for clicked x unclicked pairs and
    W[k,l] p_k (plus the offset of an affine correction) for clicked x all pairs. Without trust bias
    alpha = theta and beta = 0: with W[k,l] = s(k,l)/theta_k and s symmetric, the second is exact
    and the first leaves a pull of s g^2 (theta_k - theta_l) towards the shown order.

    >>> import untilt as ut
    >>> print(ut.is_consistent(ut.Balanced(ut.PowerLaw(1.0)), ut.PowerLaw(1.0)))
    consistent: pairs are ordered by relevance at every pair of positions

    Parameters
    ----------
    table : (K, K) array, or a weighting, which brings its own `against`
    theta : the true curve, as a weighting takes it
    relevance : of the two equally relevant documents that `worst_pull` is about
    depth : how many positions of a weighting to judge; as far as the curves reach, or 10
    """
    if not 0 < relevance <= 1:
        raise OptionError(f"relevance must lie above 0 and up to 1. Got {relevance} instead.")
    W, offset, against = _parts(table, theta, against, depth)
    alpha, beta = (curve[: len(W)] for curve in as_position_bias(theta, len(W)).affine())

    def forward(g: float, pairs: Against) -> FloatArray:
        p = alpha * g + beta
        unclicked = 1 - p[None, :] if pairs == "unclicked" else 1.0
        return W * p[:, None] * unclicked + offset

    # The preference rises with g_k and falls with g_l, so its sign is right everywhere if it is 0
    # wherever g_k = g_l. There it is a polynomial in g of degree 2 at most: three points tell.
    points = (0.0, 0.5, 1.0)
    pull = np.triu(_pull(forward(relevance, against)), 1)
    k, l = np.unravel_index(np.argmax(np.abs(pull)), pull.shape)  # noqa: E741
    return Consistency(
        exact=_balanced([forward(g, against) for g in points], tolerance),
        symmetric=_balanced([forward(g, "all") for g in points], tolerance),
        worst_pull=float(pull[k, l]),
        positions=(int(k) + 1, int(l) + 1),
    )


def _parts(
    table: FloatArray | Weighting, theta: BiasLike, against: Against, depth: int | None
) -> tuple[FloatArray, FloatArray, Against]:
    """(W, offset, against) of a weighting or of a user's table."""
    if isinstance(table, SessionWeighting):
        raise OptionError(
            f"{type(table).__name__} weighs sessions, and has no table of positions that could be "
            "judged by a curve."
        )
    if isinstance(table, Weighting):
        reach = depth or min(_reach(theta), _reach(table.position_bias))
        W, offset = table.table(reach), table.offset(reach)
        return W, np.zeros_like(W) if offset is None else offset, table.against
    W = np.asarray(table, dtype=float)
    if W.ndim != 2 or W.shape[0] != W.shape[1] or not len(W):
        raise ShapeError(f"a table of pair weights must be square. Got shape {W.shape} instead.")
    check_choice("against", against, get_args(Against))
    return W, np.zeros_like(W), against


def _reach(bias: BiasLike | None) -> int:
    """How deep a curve goes; given curves have no end, ten positions of them will do."""
    curve = None if bias is None else as_examination(bias)
    return curve.depth if isinstance(curve, PositionBias) else _DEFAULT_DEPTH


def _pull(forward: FloatArray) -> FloatArray:
    total = np.abs(forward) + np.abs(forward.T)
    return np.divide(forward - forward.T, total, out=np.zeros_like(total), where=total > 0)


def _balanced(forwards: list[FloatArray], tolerance: float) -> bool:
    """Whether both directions of every pair weigh the same in each of these matrices."""
    scale = np.max([np.abs(f) + np.abs(f.T) for f in forwards], axis=0)
    return all(bool(np.all(np.abs(f - f.T) <= tolerance * scale)) for f in forwards)

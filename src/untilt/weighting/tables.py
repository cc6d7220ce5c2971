"""The debiasing methods of the literature, and one of our own, as tables of pair weights."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.estimator import clone
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike, as_examination
from untilt.catalog import find, method, record_of, storable
from untilt.clickmodels.click_model import ClickModel
from untilt.clickmodels.examination import UBM
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice, check_least
from untilt.facts import note
from untilt.weighting import base

BOOSTING_ROUNDS = note("bias.boosting-rounds", "after {rounds} boosting rounds")
CLICKS_PROPORTIONAL = note(
    "bias.clicks-proportional", "clicks are proportional to relevance at each position"
)()
NO_CLICKS_PROPORTIONAL = note(
    "bias.no-clicks-proportional", "no-clicks are proportional to irrelevance at each position"
)()


@method(
    "weighting", "clicks", title="Raw clicks", order=10,
    choose=("train", "select", "run", "usual", "usual in select"),
    note="raw clicks, without correction", aliases=("naive",), default=True,
)  # fmt: skip
@dataclass(frozen=True)
class Naive(base.Weighting):
    """W[k, l] = 1: clicks as they are. What a ranker learns from is then the old order too."""

    def table(self, depth: int) -> FloatArray:
        """All ones."""
        return np.ones((depth, depth))

    def sides(self, depth: int) -> tuple[FloatArray, FloatArray]:
        """All ones."""
        return np.ones(depth), np.ones(depth)


@dataclass(frozen=True)
class _FromBias(base.Weighting):
    """Base of the tables that need a curve; arrays and given curves are taken as well."""

    bias: BiasLike

    def __post_init__(self) -> None:
        object.__setattr__(self, "bias", as_examination(self.bias))


@method(
    "weighting", "ips", title="Inverse propensity scoring", order=50, needs=("bias",),
    takes=("clip",), choose=("train", "select", "run", "usual in select"), drop=20,
    reference="joachims2017unbiased",
    note="clicks with inverse propensities",
)  # fmt: skip
@method(
    "weighting", "ips-all", title="IPS against all others", order=51, needs=("bias",),
    takes=("clip",), choose=("train", "select", "run"), options={"against": "all"},
    reference="joachims2017unbiased",
    note="clicks with inverse propensities, each compared with every other document",
)  # fmt: skip
@dataclass(frozen=True)
class IPS(_FromBias):
    r"""Inverse propensity scoring: W[k, l] = 1 / max(clip, theta_k).

    Unbiased for the relevant documents ([joachims2017unbiased]_; equations 5 and 6 of
    [wang2020prs]_). With ``against="unclicked"`` relevant but unexamined documents stand on the
    losing side of pairs; ``against="all"`` compares with every other shown document, which orders
    each pair by relevance in expectation. High variance where theta is small: clip.
    """

    clip: float = 0.0
    against: base.Against = "unclicked"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip)
        check_choice("against", self.against, get_args(base.Against))

    def table(self, depth: int) -> FloatArray:
        """1 / max(clip, theta_k) in each row."""
        theta = base.theta_up_to(self.bias, depth)
        return np.repeat(1 / np.maximum(self.clip, theta)[:, None], depth, axis=1)

    def sides(self, depth: int) -> tuple[FloatArray, FloatArray]:
        """1 / max(clip, theta) and 1."""
        return 1 / np.maximum(self.clip, base.theta_up_to(self.bias, depth)), np.ones(depth)


@method(
    "weighting", "pns", title="Propensity of the negative", order=52, needs=("bias",),
    choose=("train", "select", "run"), reference="wang2020prs",
    note="clicks as they are; unclicked documents count as far as they were examined",
)  # fmt: skip
@dataclass(frozen=True)
class PNS(_FromBias):
    """Propensity of the negative: W[k, l] = theta_l ([wang2020prs]_ section 4.1).

    Unclicked documents count as far as they were examined; clicks are not corrected.
    """

    def table(self, depth: int) -> FloatArray:
        """theta_l in each column."""
        theta = base.theta_up_to(self.bias, depth)
        return np.repeat(theta[None, :], depth, axis=0)

    def sides(self, depth: int) -> tuple[FloatArray, FloatArray]:
        """1 and theta."""
        return np.ones(depth), base.theta_up_to(self.bias, depth)


ClipOf = Literal["ratio", "clicked"]


@method(
    "weighting", "prs", title="Propensity ratio scoring", order=30, needs=("bias",),
    takes=("clip",), choose=("train", "select", "run", "usual in select"), drop=90,
    reference="wang2020prs",
    note="clicks with propensity ratios",
)  # fmt: skip
@dataclass(frozen=True)
class PRS(_FromBias):
    r"""Propensity ratio scoring: W[k, l] = min(clip, theta_l / theta_k).

    Equation 10 of [wang2020prs]_: in expectation over examination only relevant documents are
    compared with observed irrelevant ones. That is exact for weights o_l/theta_k, with o_l whether
    the unclicked document was examined; theta_l stands in for it, and a relevant, unexamined
    document then still loses with weight theta_l (1 - theta_l), where IPS has 1 - theta_l.
    With clip 1 the table is min(theta_k, theta_l)/theta_k, symmetric up to 1/theta_k; without a
    clip (``clip=inf``) it reverses the shown order: see `is_consistent`.

    ``clip_of="clicked"`` clips the propensity of the clicked document alone, as IPS does:
    W[k, l] = theta_l / max(clip, theta_k), clip from 0 to 1 (section 5.1 names it beside the clip
    of the ratio). It bounds the weights by 1/clip and leaves the table asymmetric; with clip 1 it
    is `PNS`.
    """

    clip: float = 1.0
    clip_of: ClipOf = "ratio"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("clip_of", self.clip_of, get_args(ClipOf))
        if self.clip_of == "clicked":
            check_clip(self.clip)
        elif not self.clip > 0:
            raise OptionError(f"clip must be above 0. Got {self.clip} instead; 1.0 is best.")

    def table(self, depth: int) -> FloatArray:
        """min(clip, theta_l / theta_k), or theta_l / max(clip, theta_k)."""
        theta = base.theta_up_to(self.bias, depth)
        if self.clip_of == "clicked":
            return theta[None, :] / np.maximum(self.clip, theta)[:, None]
        return np.minimum(self.clip, theta[None, :] / theta[:, None])

    def sides(self, depth: int) -> tuple[FloatArray, FloatArray] | None:
        """1 / max(clip, theta) and theta; None where the ratio is clipped: it belongs to a pair."""
        theta = base.theta_up_to(self.bias, depth)
        if self.clip_of == "clicked":
            return 1 / np.maximum(self.clip, theta), theta
        return (1 / theta, theta) if self.clip == np.inf else None


@method(
    "weighting", "bayes-ips", title="Bayes-IPS", order=53, needs=("bias", "trust"),
    takes=("clip",), choose=("train", "select", "run"), reference="agarwal2019trust",
    note="clicks with inverse propensities, times the chance that a click means relevance",
)  # fmt: skip
@dataclass(frozen=True)
class BayesIPS(_FromBias):
    r"""Bayes-IPS for trust bias: W[k, l] = (eps+_k / (eps+_k + eps-_k)) / max(clip, theta_k).

    The factor is P(relevant | clicked, examined) with even prior odds ([agarwal2019trust]_).
    Not unbiased under trust bias (the affine correction is); lower variance.
    """

    clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip)
        trust = _trust(self.bias)
        if trust is None:
            raise OptionError(
                "BayesIPS needs a bias with eps_plus and eps_minus: ⟦estimate it with "
                "TrustEM|`untilt bias LOG --method trust-em --out bias.json` makes one⟧⟦, or give "
                "KnownBias(examination, eps_plus=..., eps_minus=...)| ⟧."
            )
        _check_trust(trust, trust[0] + trust[1] > 0, "eps_plus or eps_minus must be above 0")

    def table(self, depth: int) -> FloatArray:
        """P(relevant | click) / theta_k in each row."""
        trust = _trust(self.bias)
        assert trust is not None
        plus, minus = (eps[:depth] for eps in trust)
        row = plus / (plus + minus) / np.maximum(self.clip, base.theta_up_to(self.bias, depth))
        return np.repeat(row[:, None], depth, axis=1)


@dataclass(frozen=True)
class AffineTable(_FromBias):
    """Base of the tables whose label is (c - beta_k)/alpha_k where there is trust bias."""

    against = "all"
    per_session_norm = False

    def __post_init__(self) -> None:
        super().__post_init__()
        trust = _trust(self.bias)
        if isinstance(self.bias, PositionBias) and trust is not None:
            alpha, _ = self.bias.affine()
            _check_trust(trust, alpha > 0, "eps_plus must be above eps_minus")

    def offset(self, depth: int) -> FloatArray | None:
        """-beta_k W[k, l] with trust bias, else None."""
        _, beta = self._affine(depth)
        return -beta[:, None] * self.table(depth) if beta.any() else None

    def _affine(self, depth: int) -> tuple[FloatArray, FloatArray]:
        theta = base.theta_up_to(self.bias, depth)
        if isinstance(self.bias, PositionBias) and self.bias.has_trust:
            alpha, beta = self.bias.affine()
            return alpha[:depth], beta[:depth]
        return theta, np.zeros(depth)


@method(
    "weighting", "balanced", title="Balanced pairs", order=20, needs=("bias",),
    choose=("train", "select", "run", "usual in select"), drop=95,
    note="clicks, pairs weighted by min(theta_k, theta_l) / theta_k",
)  # fmt: skip
@dataclass(frozen=True)
class Balanced(AffineTable):
    r"""Our own: W[k, l] = min(theta_k, theta_l) / theta_k over clicked x *all* pairs.

    Bounded by 1, so low variance; and exactly order-consistent: the expected weights of "i above
    j" and "j above i" are s gamma_i and s gamma_j with the same s = min(theta_k, theta_l). With a
    trust-bias curve the affine-corrected label (c - beta_k)/alpha_k takes the place of the click,
    which keeps that property ([vardasbi2020affine]_).
    """

    def table(self, depth: int) -> FloatArray:
        """min(alpha_k, alpha_l) / alpha_k; alpha is theta without trust bias."""
        alpha, _ = self._affine(depth)
        return np.minimum(alpha[:, None], alpha[None, :]) / alpha[:, None]


@method(
    "weighting", "affine-ips", title="Affine IPS", order=54, needs=("bias",), takes=("clip",),
    choose=("train", "select", "run"), reference="vardasbi2020affine",
    note="clicks with inverse propensities and the affine correction of trust bias",
)  # fmt: skip
@dataclass(frozen=True)
class AffineIPS(AffineTable):
    r"""IPS against all others with the affine correction: the label is (c - beta_k)/alpha_k.

    Unbiased for relevance under trust bias ([vardasbi2020affine]_), at IPS's variance. `clip`
    is a floor for alpha_k.
    """

    clip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_clip(self.clip)

    def table(self, depth: int) -> FloatArray:
        """1 / max(clip, alpha_k) in each row."""
        alpha, _ = self._affine(depth)
        return np.repeat(1 / np.maximum(self.clip, alpha)[:, None], depth, axis=1)


def check_clip(clip: float) -> None:
    """Raise unless a clip is a share."""
    if not 0 <= clip <= 1:
        raise OptionError(f"clip must lie between 0 and 1. Got {clip} instead; 0 is no clipping.")


def _trust(bias: BiasLike) -> tuple[FloatArray, FloatArray] | None:
    """(eps_plus, eps_minus) of a bias, None where it has no trust bias."""
    if not isinstance(bias, PositionBias) or bias.eps_plus is None or bias.eps_minus is None:
        return None
    return bias.eps_plus, bias.eps_minus


def _check_trust(trust: tuple[FloatArray, FloatArray], informative: BoolArray, rule: str) -> None:
    """Raise where clicks at some position say nothing about relevance."""
    if informative.all():
        return
    k = int(np.argmin(informative))
    plus, minus = (eps[k] for eps in trust)
    raise OptionError(
        f"{rule} at every position. Got eps_plus {plus:g} and eps_minus {minus:g} at position "
        f"{k + 1}, where a click says nothing about relevance. Cut the log above it, or use a bias "
        f"without eps_plus and eps_minus."
    )


# Pairwise debiasing: click and no-click bias learned along with the ranker.


Losses = Literal["mean", "sum"]


@storable
class Ratios(NamedTuple):
    """t+ (bias at click positions) and t- (bias at no-click positions), both 1 at position 1."""

    plus: FloatArray
    minus: FloatArray


@method(
    "weighting", "pairwise-debiasing", title="Pairwise debiasing", order=40,
    choose=("train", "select", "run"), reference="hu2019unbiased", drop=10, version=2,
    rests_on="relevance model",
    note="clicks; learns the bias of clicks and no-clicks along with the ranker, without a curve",
)  # fmt: skip
@dataclass(frozen=True)
class PairwiseDebiasing(base.JointWeighting):
    r"""W[k, l] = 1 / (t+_k t-_l), refreshed each round from S[k, l] ([hu2019unbiased]_).

    .. math::
        t^+_k = [ \sum_l S_{kl} / t^-_l \; / \; \sum_l S_{1l} / t^-_l ]^{1/(p+1)},
        t^-_l = [ \sum_k S_{kl} / t^+_k \; / \; \sum_k S_{k1} / t^+_k ]^{1/(p+1)}

    (equations 30 and 31; S is the summed unweighted loss of pairs clicked at k, unclicked at l).
    Needs no curve, but assumes that clicks are proportional to relevance and no-clicks to
    irrelevance at each position, which the position-based model does not satisfy exactly. Larger
    `p` holds the ratios closer to 1.

    Sums over sessions count a position that few lists reach as one that few click. With
    ``losses="mean"`` S[k, l] is divided by N[k, l], the sessions that showed both positions, so
    that the ratios do not depend on the lengths of the lists; ``losses="sum"`` is the published
    form. Both are the same where all lists show the same positions.

    Positions `bins` and deeper share one ratio (12 in the authors' program): far down, clicks are
    too few for a ratio each. ``bins=None`` gives every position its own.
    """

    p: float = 0.0
    # Ratios outside [floor, 1/floor] come from positions with next to no clicks; unchecked, one
    # such position takes over the whole gradient.
    floor: float = 1e-3
    losses: Losses = "mean"
    bins: int | None = 12

    def __post_init__(self) -> None:
        check_choice("losses", self.losses, get_args(Losses))
        if not self.p >= 0:
            raise OptionError(f"p must be at least 0. Got {self.p} instead.")
        if self.bins is not None:
            check_least("bins", self.bins, 2, "; None gives each position a ratio")
        if not 0 < self.floor <= 1:
            raise OptionError(f"floor must lie above 0 and up to 1. Got {self.floor} instead.")

    @property
    def takes_means(self) -> bool:
        """As `losses` says."""
        return self.losses == "mean"

    def table(self, depth: int) -> FloatArray:
        """The start: all ones."""
        return np.ones((depth, depth))

    def update(self, S: FloatArray, state: Ratios | None) -> Ratios:
        """Equations 30 and 31, both from the ratios of the round before."""
        depth = len(S)
        before = Ratios(np.ones(depth), np.ones(depth)) if state is None else state
        exponent = 1 / (self.p + 1)
        plus = self._ratio(S @ (1 / before.minus), exponent)
        minus = self._ratio((1 / before.plus) @ S, exponent)
        return Ratios(plus, minus)

    def _ratio(self, losses: FloatArray, exponent: float) -> FloatArray:
        if losses[0] <= 0:
            raise OptionError(
                "pairwise debiasing compares every position with position 1, but position 1 has "
                "no clicked-unclicked pair in this log. Use a weighting with a known bias instead."
            )
        if self.bins is not None and self.bins < len(losses):
            tail = losses[self.bins - 1 :]
            losses = losses.copy()
            losses[self.bins - 1 :] = tail.mean() if self.takes_means else tail.sum()
        return np.clip((losses / losses[0]) ** exponent, self.floor, 1 / self.floor)

    def table_of(self, state: Ratios) -> FloatArray:
        """1 / (t+_k t-_l)."""
        return 1 / (state.plus[:, None] * state.minus[None, :])

    def bias_of(self, state: Ratios, history: list[Ratios]) -> PositionBias:
        """t+ as an examination curve: under this method's assumption the two are proportional."""
        return PositionBias(
            state.plus,
            method=f"pairwise debiasing (p={self.p:g})",
            assumes=(CLICKS_PROPORTIONAL, NO_CLICKS_PROPORTIONAL),
            status=BOOSTING_ROUNDS(rounds=len(history)),
        )


# Weights from a click model: how likely a row was looked at in its list, or in its session.

GIVEN = ("list", "session")
FORMS = ("ratio", "inverse")
# Models keep their rates 1e-9 away from 0 and 1; a look of less probability than this is ruled out.
LEAST = 1e-6
MOST_UNSEEN = 0.01  # of the rows: given their sessions, as many may be ruled out


@method(
    "weighting", "click-model", title="Examination by a click model", order=56, takes=("clip",),
    choose=("train", "select"), reference="vardasbi2020cascade",
    note="clicks over the examination that a click model sees in their own list",
)  # fmt: skip
@dataclass(frozen=True)
class ExaminationWeights(base.SessionWeighting):
    r""" "i above j" weighs c_i / e_i, or c_i min(E_i, E_j) / e_i, over clicked x *all* pairs.

    A curve has one examination for each position. Where people stop after a good document, the same
    position is looked at often below poor documents and rarely below good ones; a click model
    knows. With E_i = P(i is looked at | its list) and H_i the clicks above i in the session,

    .. math::
        e_i = E_i \;\text{(given="list")} \quad\text{or}\quad
        e_i = P(i \text{ is looked at} \mid H_i) \;\text{(given="session")}

    Both are unbiased under the model: P(c_i = 1 | H_i) = P(looked at | H_i) gamma_i, so that
    E[c_i / e_i] = gamma_i, the attractiveness of the document ([vardasbi2020cascade]_). What
    happened at i or below must not be in e_i: a clicked row was certainly looked at. Of all weights
    that are functions of H_i and unbiased, the constant 1/E_i has the least variance, E[c/e^2] =
    gamma/E_i. It needs the attractiveness of the documents above, though, which "session" needs
    less (`UBM`: not at all).

    The unclicked document needs no weight of its own: against all others the expected weights of
    the two directions are gamma_i and gamma_j. form="ratio" multiplies both by min(E_i, E_j), which
    no click of the session changes, so that it stays exact (`Balanced`, list by list); with "list"
    no weight is above 1. A ratio of e_j to e_i of the same session would *not* be exact: e_j below
    a click on i has changed by that click.

    Sessions collapse: each list keeps one sum of weighted clicks for each row. The model looks at
    distinct (list, clicks) once, before training.

    Parameters
    ----------
    model : a click model with examination, by name or as an object (`UBM`, `DBN`, `CM`, ...). One
        that is not fitted is fitted to the log that the ranker is trained on. A saved ranker keeps
        the name of its model
    given : "list" or "session"; "session" is refused where the model says that nobody looks below
        a click (`CM`): clicks there never happen, so nothing can stand for them
    form : "ratio" or "inverse"
    clip : floor of e_i; 0 is no clipping

    >>> import untilt as ut
    >>> ut.ExaminationWeights(given="session", clip=0.1)
    ExaminationWeights(model='ubm', given='session', form='ratio', clip=0.1)
    """

    model: ClickModel | str = record_of(UBM).name
    given: str = "list"
    form: str = "ratio"
    clip: float = 0.0

    def __post_init__(self) -> None:
        check_choice("given", self.given, GIVEN)
        check_choice("form", self.form, FORMS)
        check_clip(self.clip)
        if isinstance(self.model, str):
            find("click model", self.model, what="model")
        elif not isinstance(self.model, ClickModel):
            raise OptionError(
                "model must be a click model such as ⟦ut.UBM()⟧, fitted or not, or "
                f"its name. Got {self.model!r} instead."
            )

    @property
    def position_bias(self) -> PositionBias | None:
        """The mean curve of a fitted model that has one: what held-out clicks are judged by."""
        return getattr(self.model, "bias_", None)

    def click_weights(self, log: ClickLog) -> base.ClickWeights:
        """1 / max(clip, e_i), and E_i where pairs take the smaller of two."""
        model = self._fitted(log)
        E = model.examination_probability(log)
        e = E if self.given == "list" else model.conditional_examination(log)
        self._check_possible(model, log, e)
        # A row below LEAST has no click, or there is a clip.
        return base.ClickWeights(
            1 / np.maximum(max(self.clip, LEAST), e), E if self.form == "ratio" else None
        )

    def _fitted(self, log: ClickLog) -> ClickModel:
        model = self.model
        if isinstance(model, str):
            model = find("click model", model).make()
        if not hasattr(model, "documents_"):
            model = clone(model).fit(log)
        assert isinstance(model, ClickModel)
        return model

    def _check_possible(self, model: ClickModel, log: ClickLog, e: FloatArray) -> None:
        """Raise where weights would have to stand for clicks that the model rules out."""
        name, never = type(model).__name__, e < LEAST
        unseen = float(log.row_count[never].sum()) / max(1.0, float(log.row_count.sum()))
        if self.given == "session" and unseen > MOST_UNSEEN:
            raise OptionError(
                f"under {name} nobody looks at {unseen:.0%} of the rows once the clicks above them "
                "are known, so no weight of other clicks can make up for them. Use given='list'."
            )
        lost = float(np.sum((log.label * log.row_count)[never]))
        if lost and not self.clip:
            raise OptionError(
                f"{lost:,.0f} of {np.sum(log.label * log.row_count):,.0f} clicks stand where "
                f"nobody looks under {name}: their weight would be infinite. Give a clip such as "
                "⟦clip=0.05⟧, or another model: ut.compare_click_models says which fits."
            )

"""What a protocol answers, and protocols of clicks: by position, down the list, and dwell times."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, cast

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.given import Examination, EyeTracking, GivenCurve, PowerLaw, as_examination
from untilt.catalog import RecordName, method
from untilt.errors import DepthError, OptionError, check_least
from untilt.simulation.behaviour import Behaviour, Display, DwellTimes, Page, Stopping

# What every protocol answers: how users behave, what sessions show, how deep lists are.

# A curve in place of a protocol's own: any bias, a given curve, or examination by position.
Curve = Examination | Sequence[float] | FloatArray


class Protocol(ABC):
    """How clicks are made from labels. Final subclasses are frozen dataclasses that only store.

    `name` is the word for it in `simulate(protocol=...)`, from its record.
    """

    name: ClassVar[str] = cast(str, RecordName())
    depth: int | None
    label_name: ClassVar[str] = "click"
    intervenes: ClassVar[bool] = False

    @abstractmethod
    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """What users do with documents of these labels at positions 1..depth. Checks options."""

    def display(self, page: Page) -> Display:
        """What sessions show. Without an intervention: the production ranker's order."""
        return Display.of_orders(page.rankers, np.ones(1))

    @property
    def list_depth(self) -> int | None:
        """Positions of a list, None for the whole list."""
        return self.depth

    @property
    def feedback(self) -> str:
        """The name of the label that the log gets."""
        return self.label_name


def curve(examination: Curve, depth: int) -> FloatArray:
    """theta_1..theta_depth of a given curve, checked to be probabilities."""
    theta = np.asarray(as_examination(examination).at(np.arange(1, depth + 1)), dtype=np.float64)
    check_probabilities("examination", theta)
    return theta


def graded_relevance(labels: FloatArray, max_label: float, epsilon: float) -> FloatArray:
    """gamma = eps + (1 - eps) (2^y - 1) / (2^ymax - 1) ([hu2019unbiased]_ section 5.1.1)."""
    check_share("epsilon", epsilon)
    check_labels(labels, max_label)
    return epsilon + (1 - epsilon) * (2.0**labels - 1) / (2.0**max_label - 1)


def check_labels(labels: FloatArray, max_label: float) -> None:
    """Raise unless labels lie in 0..max_label and max_label is above 0."""
    if not max_label > 0:
        raise OptionError(
            "all labels are 0, so no document is relevant enough for a click. Simulate from "
            "judged lists with relevant documents, or say which grade is the highest: max_label=4."
        )
    if labels.max(initial=0) > max_label:
        raise OptionError(
            f"max_label must not be below the highest label, {labels.max():g}. "
            f"Got {max_label:g} instead."
        )


def check_share(what: str, value: float) -> None:
    """Raise unless an option is a probability."""
    if not 0 <= value <= 1:
        raise OptionError(f"{what} must lie between 0 and 1. Got {value} instead.")


def check_probabilities(what: str, values: FloatArray) -> None:
    """Raise unless every entry is a probability."""
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        k = int(np.argmax(bad))
        raise OptionError(
            f"{what} must lie between 0 and 1. Got {values[k]:g} at position {k + 1} instead."
        )


@method(
    "protocol", "prs", title="Power-law examination", order=10, public=False,
    note="examination (1/k)^eta, click noise, one production ranker",
)  # fmt: skip
@dataclass(frozen=True)
class PRS(Protocol):
    r"""Binary relevance, a power law and click noise ([wang2020prs]_ section 5.2).

        theta_k = (1/k)^eta,  P(click) = theta_k (eps+ r + eps- (1 - r)),  eps+ = 1 - mu,  eps- = mu

    r = 1 for labels 3 and 4 of five grades and for labels 1 and 2 of three: the two highest.

    Parameters
    ----------
    eta : severity of the bias
    noise : mu, in [0, 0.5)
    relevant_from : the lowest label that is relevant; the second highest where not given
    depth : positions of a list; None shows the whole list
    examination : another curve in place of the power law: any bias, or an array
    """

    eta: float = 1.0
    noise: float = 0.1
    relevant_from: float | None = None
    depth: int | None = None
    examination: Curve | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        if not 0 <= self.noise < 0.5:
            raise OptionError(f"noise must lie in [0, 0.5). Got {self.noise} instead.")
        check_labels(labels, max_label)
        lowest = max(1.0, max_label - 1) if self.relevant_from is None else self.relevant_from
        return Behaviour(
            relevance=(labels >= lowest).astype(np.float64),
            examination=_curve(self.examination, PowerLaw(self.eta), self.eta, "eta", depth),
            eps_plus=np.full(depth, 1 - self.noise),
            eps_minus=np.full(depth, float(self.noise)),
        )


@method(
    "protocol", "dla", title="Eye-tracking examination", order=11, public=False, default=True,
    note="examination by eye tracking and graded relevance",
)  # fmt: skip
@dataclass(frozen=True)
class DLA(Protocol):
    r"""Graded relevance and the eye-tracking curve ([ai2018dla]_, [hu2019unbiased]_ 5.1.1).

        P(click) = rho_k^theta gamma,  gamma = eps + (1 - eps) (2^y - 1) / (2^ymax - 1)

    Parameters
    ----------
    theta : severity of the bias; 0 is none
    epsilon : chance that a document of label 0 looks relevant
    depth : positions of a list, None for the whole list; past position 10 rho stays as it is there
    examination : another curve in place of rho_k^theta: any bias, or an array
    """

    theta: float = 1.0
    epsilon: float = 0.1
    depth: int | None = 10
    examination: Curve | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        return Behaviour(
            relevance=graded_relevance(labels, max_label, self.epsilon),
            examination=_curve(
                self.examination, EyeTracking(self.theta), self.theta, "theta", depth
            ),
        )


@method(
    "protocol", "trust", title="Trust bias", order=13, public=False,
    note="readers click on what is not relevant more often near the top",
)  # fmt: skip
@dataclass(frozen=True)
class Trust(Protocol):
    r"""Users trust the top: click noise by position ([agarwal2019trust]_, [vardasbi2020affine]_).

        P(click) = theta_k (eps+_k gamma + eps-_k (1 - gamma))
        eps+_k = 1 - (min(k, 20) + 1) / 100,  eps-_k = 0.65 / min(k, 10)

    That people click the top more often than what they see there deserves was found by
    [joachims2007evaluating]_. theta_k = rho_k^theta is the eye-tracking curve of `DLA`; gamma is
    its graded relevance, with epsilon 0 because eps-_k is the noise already.

    Parameters
    ----------
    theta, epsilon, depth, examination : as in `DLA`
    eps_plus, eps_minus : values by position in place of the formulas, for all positions of a list
    """

    theta: float = 1.0
    epsilon: float = 0.0
    eps_plus: Sequence[float] | None = None
    eps_minus: Sequence[float] | None = None
    depth: int | None = 10
    examination: Curve | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        k = np.arange(1, depth + 1)
        plus = _by_position(self.eps_plus, 1 - (np.minimum(k, 20) + 1) / 100, "eps_plus")
        minus = _by_position(self.eps_minus, 0.65 / np.minimum(k, 10), "eps_minus")
        return Behaviour(
            relevance=graded_relevance(labels, max_label, self.epsilon),
            examination=_curve(
                self.examination, EyeTracking(self.theta), self.theta, "theta", depth
            ),
            eps_plus=plus,
            eps_minus=minus,
        )


def _curve(
    given: Curve | None, formula: GivenCurve, severity: float, what: str, depth: int
) -> FloatArray:
    check_least(what, severity, 0)
    return curve(formula if given is None else given, depth)


def _by_position(given: Sequence[float] | None, formula: FloatArray, what: str) -> FloatArray:
    if given is None:
        return formula
    values = np.asarray(given, dtype=np.float64)
    if len(values) < len(formula):
        raise DepthError(
            f"{what} must reach the lowest position of the lists, {len(formula)}. It has "
            f"{len(values)} values; give more, or cut the lists with depth={len(values)}."
        )
    check_probabilities(what, values)
    return values[: len(formula)]


@method(
    "protocol", "cascade", title="Cascade", order=12, public=False,
    note="readers go down the list and stop after a click",
)  # fmt: skip
@dataclass(frozen=True)
class Cascade(Protocol):
    r"""A reader from the top down ([hu2019unbiased]_ 5.2.2, after [chapelle2009dbn]_).

    At each position the reader clicks with probability gamma. After a click the reader is satisfied
    with probability phi = satisfaction * gamma and stops. Whoever is not satisfied, clicked or
    not, reads on with probability beta. So

        P(click at k) = gamma_k prod_{j < k} beta (1 - gamma_j phi_j)

    which depends on the documents above: no curve over positions alone is right here. Smaller beta
    is a stronger bias. gamma is the graded relevance of `DLA`.

    Parameters
    ----------
    beta : probability of reading on
    satisfaction : phi / gamma
    epsilon, depth : as in `DLA`
    """

    beta: float = 0.5
    satisfaction: float = 0.5
    epsilon: float = 0.1
    depth: int | None = 10

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        check_share("beta", self.beta)
        check_share("satisfaction", self.satisfaction)
        gamma = graded_relevance(labels, max_label, self.epsilon)
        return Behaviour(
            relevance=gamma,
            examination=np.ones(depth),
            stopping=Stopping(satisfaction=self.satisfaction * gamma, go_on=self.beta),
        )


@method(
    "protocol", "dwell", title="Dwell time", order=14, public=False,
    note="clicks with the time spent on the document",
)  # fmt: skip
@dataclass(frozen=True)
class Dwell(Protocol):
    r"""Dwell time d = c delta_k omega, where c is the click of `DLA` ([ren2021pairwise]_).

        delta_k ~ N(scale / sqrt(k + 2), spread / sqrt(k + 2))
        omega   ~ N(eps + (1 - eps) y, sqrt(y + eps) / (ymax + 2))

    The second argument of N is read as a standard deviation. Each factor is cut at 0: omega of a
    document of label 0 would be below 0 in 3% of its clicks, and time is not. The log's label is
    the dwell time; the click stays beside it as `extra_labels["click"]`.

    Parameters
    ----------
    scale, spread : of delta
    epsilon : of omega; dwell time of documents of label 0
    clicks : the click model, a position-based protocol (`DLA`, `PRS`, `Trust`) or `Cascade`
    depth : positions of a list; as the click model has it where not given
    """

    label_name: ClassVar[str] = "dwell"

    scale: float = 2.0
    spread: float = 0.4
    epsilon: float = 0.1
    clicks: Protocol = field(default_factory=DLA)
    depth: int | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """Tables of the formula above."""
        self._check()
        by_click = self.clicks.behaviour(labels, depth=depth, max_label=max_label)
        root = np.sqrt(np.arange(1, depth + 1) + 2)
        dwell = DwellTimes(
            delta_mean=self.scale / root,
            delta_spread=self.spread / root,
            omega_mean=self.epsilon + (1 - self.epsilon) * labels,
            omega_spread=np.sqrt(labels + self.epsilon) / (max_label + 2),
        )
        return replace(by_click, dwell=dwell)

    @property
    def list_depth(self) -> int | None:
        """Positions of a list: its own, else those of its click model."""
        return self.depth or self.clicks.list_depth

    def _check(self) -> None:
        check_share("epsilon", self.epsilon)
        for what, value in (("scale", self.scale), ("spread", self.spread)):
            check_least(what, value, 0)
        if (
            not isinstance(self.clicks, Protocol)
            or self.clicks.intervenes
            or self.clicks.label_name != "click"
        ):
            raise OptionError(
                "clicks must be a protocol of clicks such as DLA(), PRS(), Trust() or Cascade(). "
                f"Got {self.clicks!r} instead."
            )

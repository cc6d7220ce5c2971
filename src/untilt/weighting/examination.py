"""Weights from a click model: how likely a row was looked at in its list, or in its session."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.estimator import clone
from untilt.bias.curve import PositionBias
from untilt.catalog import find, method, record_of
from untilt.clickmodels.click_model import ClickModel
from untilt.clickmodels.examination import UBM
from untilt.data.clicklog import ClickLog
from untilt.errors import IdentifiabilityError, OptionError, check_choice
from untilt.weighting.base import ClickWeights, SessionWeighting

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
class ExaminationWeights(SessionWeighting):
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
        if not 0 <= self.clip <= 1:
            raise OptionError(
                f"clip must lie between 0 and 1. Got {self.clip} instead; 0 is no clipping."
            )
        if isinstance(self.model, str):
            find("click model", self.model, what="model")
        elif not isinstance(self.model, ClickModel):
            raise OptionError(
                "model must be a click model such as ut.UBM(), fitted or not, or its name. "
                f"Got {self.model!r} instead."
            )

    @property
    def position_bias(self) -> PositionBias | None:
        """The mean curve of a fitted model that has one: what held-out clicks are judged by."""
        try:
            return getattr(self.model, "bias_", None)
        except IdentifiabilityError:
            return None

    def click_weights(self, log: ClickLog) -> ClickWeights:
        """1 / max(clip, e_i), and E_i where pairs take the smaller of two."""
        model = self._fitted(log)
        E = model.examination_probability(log)
        e = E if self.given == "list" else model.conditional_examination(log)
        self._check_possible(model, log, e)
        # A row below LEAST has no click, or there is a clip.
        return ClickWeights(
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
                f"{lost:,.0f} of {np.sum(log.label * log.row_count):,.0f} clicks stand where nobody"
                f" looks under {name}: their weight would be infinite. Give a clip such as "
                "clip=0.05, or another model: ut.compare_click_models says which fits."
            )

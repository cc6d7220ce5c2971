"""Click rates as models: what every better model must beat."""

from dataclasses import dataclass, field

import numpy as np

from untilt._core.arrays import FloatArray, handed_over, sum_by
from untilt._core.restored import check_array, check_number
from untilt.catalog import method
from untilt.clickmodels import click_model
from untilt.clickmodels.smoothing import Smoothing, smoothing_of
from untilt.data.clicklog import ClickLog


@method(
    "click model", "gctr", title="Global click rate", order=10, reference="chuklin2015click",
    note="one click rate for everything",
)  # fmt: skip
class GCTR(click_model.IndependentModel):
    """One click rate for everything: P(c = 1) = rho ([chuklin2015click]_).

    Learned: `rate_`. `relevance_` is the same for all documents.
    """

    family = "rates"

    def _learn(self, log: ClickLog) -> None:
        count = log.row_count
        self.rate_ = float(np.dot(log.label, count) / count.sum())
        self.prior_mean_ = self.rate_
        self.relevance_ = handed_over(np.full(log.n_documents, self.rate_))

    def _check_restored(self) -> None:
        super()._check_restored()
        check_number("rate_", self.rate_, low=0, high=1)

    def _marginal(self, lists: click_model.Lists) -> FloatArray:
        return np.full(len(lists.position), self.rate_)


@method(
    "click model", "rctr", choose=("run",), title="Click rate by rank", order=11,
    reference="craswell2008",
    note="a click rate for each position",
)  # fmt: skip
class RCTR(click_model.IndependentModel):
    """A click rate for each position: P(c = 1) = rho_k ([craswell2008]_, [chuklin2015click]_).

    Learned: `rate_` (K,). A position without impressions has the overall rate. `relevance_` is the
    same for all documents.
    """

    family = "rates"

    def _learn(self, log: ClickLog) -> None:
        count = log.row_count
        clicks = sum_by(log.position - 1, log.label * count)
        shown = sum_by(log.position - 1, count)
        overall = float(clicks.sum() / shown.sum())
        self.rate_ = handed_over(Smoothing(0.0, overall).rate(clicks, shown))
        self.prior_mean_ = overall
        self.relevance_ = handed_over(np.full(log.n_documents, overall))

    def _check_restored(self) -> None:
        super()._check_restored()
        check_array("rate_", self.rate_, (self.depth_,), low=0, high=1)

    def _marginal(self, lists: click_model.Lists) -> FloatArray:
        return self.rate_[lists.position - 1]


@method(
    "click model", "dctr", choose=("run",), title="Click rate by document", order=12,
    reference="craswell2008",
    note="a click rate for each document of a query",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class DCTR(click_model.IndependentModel):
    """A click rate for each (query, document): P(c = 1) = rho_d ([craswell2008]_).

    rho_d = (clicks + m mu) / (impressions + m), with mu the mean rate over documents. Position bias
    is all in there: a document shown at the top looks more relevant than it is.

    Parameters
    ----------
    prior_strength : m, pseudo impressions; 0 turns smoothing off, "auto" learns m and mu from the
        log (`untilt.clickmodels.smoothing`)
    """

    family = "rates"
    prior_strength: float | str = "auto"
    prior_strength_: float = field(init=False)

    def _learn(self, log: ClickLog) -> None:
        clicks = click_model.sums_by_document(log, log.label * log.row_count)
        shown = click_model.sums_by_document(log, log.row_count)
        prior = smoothing_of(clicks, shown, self.prior_strength)
        self.prior_mean_, self.prior_strength_ = prior.mean, prior.strength
        self.relevance_ = handed_over(prior.rate(clicks, shown))

    def _marginal(self, lists: click_model.Lists) -> FloatArray:
        return lists.of_documents(self.relevance_, self.prior_mean_)

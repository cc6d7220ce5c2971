"""The base of all click models, the documents that they know, and click rates as models."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np

from untilt._core.arrays import AnyArray, BoolArray, FloatArray, IntArray, handed_over, sum_by
from untilt._core.estimator import BaseEstimator
from untilt._core.random import Seed, generator
from untilt._core.restored import check_array, check_number, check_whole
from untilt._core.saved import Saved
from untilt._core.threads import one_blas_thread
from untilt.bias.estimator import check_clicks
from untilt.catalog import RecordName, method, storable
from untilt.clickmodels.smoothing import Smoothing, check_strength, smoothing_of
from untilt.data.clicklog import ClickLog
from untilt.errors import DepthError, FileFormatError, NotFittedError, OptionError


@storable
@dataclass(frozen=True, eq=False, repr=False)
class Documents:
    """The documents that a model knows: matched by (query id, document id), never by their order.

    query_id : (queries,); doc_id, doc_query : (documents,), as in `ClickLog`
    """

    query_id: AnyArray
    doc_id: AnyArray
    doc_query: IntArray

    @classmethod
    def of(cls, log: ClickLog) -> "Documents":
        """Those of this log, shown or not."""
        return cls(log.query_id, log.doc_id, log.doc_query)

    def __len__(self) -> int:
        return len(self.doc_id)

    def __repr__(self) -> str:
        return f"Documents({len(self):,} of {len(self.query_id):,} queries)"

    def index_of(self, log: ClickLog) -> IntArray:
        """(documents of the log,) the index of each here, -1 for one that is not here."""
        if self._same_as(log):
            return np.arange(len(self))
        # A dictionary, because ids may be text here and whole numbers there.
        known = {pair: i for i, pair in enumerate(self.pairs())}
        index = (known.get(pair, -1) for pair in Documents.of(log).pairs())
        return np.fromiter(index, np.int64, log.n_documents)

    def pairs(self) -> Iterator[tuple[object, object]]:
        """(query id, document id) of each."""
        query = self.query_id[self.doc_query]
        return zip(query.tolist(), self.doc_id.tolist(), strict=True)

    def _same_as(self, log: ClickLog) -> bool:
        return (
            np.array_equal(self.doc_query, log.doc_query)
            and np.array_equal(self.query_id, log.query_id)
            and np.array_equal(self.doc_id, log.doc_id)
        )


@dataclass(frozen=True, eq=False)
class Lists:
    """Rows of a log as a fitted model sees them, from the top of each list down.

    indptr : (lists + 1,); position : (rows,) 1-based
    index : (rows,) the document's index in the model's tables, -1 for one it does not know
    click : (rows,) float 0 or 1
    """

    indptr: IntArray
    position: IntArray
    index: IntArray
    click: FloatArray

    def of_documents(self, values: FloatArray, unknown: float) -> FloatArray:
        """(rows,) a value per known document, and one value for all that are not known."""
        return np.append(values, unknown)[self.index]


class ClickModel(BaseEstimator, Saved):
    """Base of all click models. The constructor only stores; `fit` learns.

    Sessions count through sums over equal lists alone: a counted list and its repeated sessions
    give the same model. Documents are known by (query id, document id), so a fitted model can be
    asked about any log; a pair that it has not seen has the prior mean. Versions of a document are
    one document.

    Learned: `relevance_` (documents of the fitted log,), `seen_` (whether a document was shown to
    anybody), `prior_mean_` (relevance of a document that was not), `documents_`, `depth_`.
    """

    saved_as = "click model"
    name: ClassVar[str] = cast(str, RecordName())
    # What it assumes about people: "rates", "position", "chain", "browsing" or "network".
    family: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()  # packages of an extra, without which `fit` raises
    # Distinct lists beyond which a comparison leaves it out unless it is asked for by name.
    quick_up_to: ClassVar[float] = float("inf")
    # What a class learns that lies from 0 to 1: its shape, () for a single number.
    _shares: ClassVar[Mapping[str, tuple[str | int, ...]]] = {
        "relevance_": ("document",), "prior_mean_": (),
    }  # fmt: skip
    prior_strength: float | str
    documents_: Documents
    depth_: int
    relevance_: FloatArray
    seen_: BoolArray
    prior_mean_: float

    def fit(self, log: ClickLog) -> Self:
        """Learn from a log of clicks (0 or 1)."""
        check_clicks(log, type(self).__name__)
        check_strength(getattr(self, "prior_strength", 0.0))
        items = log.without_versions()
        by_version = self._uses_features and log.features is not None
        with one_blas_thread:
            self._learn(log if by_version else items)
        self.documents_ = Documents.of(items)
        self.depth_ = log.depth
        shown = np.zeros(items.n_documents, dtype=bool)
        shown[items.document] = True
        self.seen_ = handed_over(shown)
        return self

    def click_probability(self, log: ClickLog) -> FloatArray:
        """(rows,) P(click) of each row of these lists; their own clicks play no part."""
        return self._marginal(self._lists(log))

    def conditional_probability(self, log: ClickLog) -> FloatArray:
        """(rows,) P(click | the clicks above it in its list)."""
        _check_labels(log)
        return self._conditional(self._lists(log))

    def examination_probability(self, log: ClickLog) -> FloatArray:
        """(rows,) P(row is looked at) in these lists; their clicks play no part."""
        return self._examination(self._lists(log))

    def conditional_examination(self, log: ClickLog) -> FloatArray:
        """(rows,) P(row is looked at | the clicks above it in its list).

        Of a clicked row too: its own click plays no part, and those below it none.
        """
        _check_labels(log)
        return self._examination_given_clicks(self._lists(log))

    def log_likelihood(self, log: ClickLog) -> float:
        """Of all sessions, in nats. Minus infinity where the model rules out what happened."""
        p = self.conditional_probability(log)
        with np.errstate(divide="ignore"):
            each = np.log(np.where(log.label > 0, p, 1 - p))
        return float(np.dot(each, log.row_count))

    def sample(self, lists: ClickLog, *, seed: Seed = 0) -> ClickLog:
        """The same lists with clicks drawn from the model, one list for each session."""
        log = lists.take(np.repeat(np.arange(lists.n_lists), lists.sessions))
        log = log._with(count=np.ones(log.n_lists, dtype=np.int64), extra_labels={})
        uniform = generator(seed).random((len(log.position), 2))
        clicks = self._draw(self._lists(log), uniform)
        return log._with(label=clicks.astype(np.float64), label_name="click")

    @property
    def _uses_features(self) -> bool:
        """Whether documents are described by their features where there are any."""
        return False

    @abstractmethod
    def _learn(self, log: ClickLog) -> None:
        """Set all that is learned from a checked log."""

    @abstractmethod
    def _marginal(self, lists: Lists) -> FloatArray:
        """P(click) of each row."""

    @abstractmethod
    def _conditional(self, lists: Lists) -> FloatArray:
        """P(click | clicks above) of each row."""

    @abstractmethod
    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        """Clicks of each row from two uniform numbers for each."""

    def _examination(self, lists: Lists) -> FloatArray:  # noqa: ARG002
        """P(looked at) of each row."""
        raise self._no_examination()

    def _examination_given_clicks(self, lists: Lists) -> FloatArray:  # noqa: ARG002
        """P(looked at | clicks above) of each row."""
        raise self._no_examination()

    def _no_examination(self) -> OptionError:
        return OptionError(
            f"{type(self).__name__} does not say whether a row was looked at, only whether it is "
            "clicked. Use a model with examination, such as UBM or DBN."
        )

    def _check_fitted(self) -> None:
        if not hasattr(self, "documents_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} has not learned anything yet. Call fit(log) first.")

    def _restore(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, handed_over(value) if isinstance(value, np.ndarray) else value)

    def _check_restored(self) -> None:
        known = self.documents_
        check_array("doc_query", known.doc_query, (len(known.doc_id),), low=0)
        if np.ndim(known.query_id) != 1 or np.any(known.doc_query >= len(known.query_id)):
            raise FileFormatError("its documents are of queries that it does not know.")
        check_whole("depth_", self.depth_, low=1, high=2**31 - 1)
        check_array("seen_", self.seen_, (len(known),))
        sizes: dict[str | int, int] = {"document": len(known), "position": self.depth_}
        learned = [
            each for kind in type(self).__mro__ for each in vars(kind).get("_shares", {}).items()
        ]
        for name, axes in learned:
            value, shape = getattr(self, name), tuple(sizes.get(each, each) for each in axes)
            if shape:
                check_array(name, value, shape, low=0, high=1)
            else:
                check_number(name, value, low=0, high=1)

    def _lists(self, log: ClickLog) -> Lists:
        self._check_fitted()
        if not isinstance(log, ClickLog):
            raise OptionError(f"a click model needs a ClickLog. Got {type(log).__name__} instead.")
        if log.depth > self.depth_:
            raise DepthError(
                f"position {log.depth} is unknown to this {type(self).__name__}: it "
                f"was fitted on positions 1..{self.depth_}. Cut the log with "
                f"⟦log.top({self.depth_})|--depth {self.depth_}⟧."
            )
        return Lists(
            indptr=log.indptr,
            position=log.position,
            index=self.documents_.index_of(log)[log.document],
            click=log.label,
        )


class IndependentModel(ClickModel):
    """A model in which the clicks above a row tell nothing about it."""

    def _conditional(self, lists: Lists) -> FloatArray:
        return self._marginal(lists)

    def _draw(self, lists: Lists, uniform: FloatArray) -> AnyArray:
        return uniform[:, 0] < self._marginal(lists)


def sums_by_document(log: ClickLog, weight: FloatArray | IntArray) -> FloatArray:
    """(documents,) sum of a number per row."""
    return sum_by(log.document, weight, log.n_documents)


def _check_labels(log: ClickLog) -> None:
    if isinstance(log, ClickLog) and not log.is_binary:
        raise OptionError(
            f"click models need clicks, 0 or 1. The label {log.label_name!r} has other "
            "values⟦: log.with_label((log.label > 0).astype(float)) makes clicks of "
            "it|: choose another with --label NAME⟧."
        )


@method(
    "click model", "gctr", title="Global click rate", order=10, reference="chuklin2015click",
    note="one click rate for everything",
)  # fmt: skip
class GCTR(IndependentModel):
    """One click rate for everything: P(c = 1) = rho ([chuklin2015click]_).

    Learned: `rate_`. `relevance_` is the same for all documents.
    """

    family = "rates"
    _shares: ClassVar = {"rate_": ()}

    def _learn(self, log: ClickLog) -> None:
        count = log.row_count
        self.rate_ = float(np.dot(log.label, count) / count.sum())
        self.prior_mean_ = self.rate_
        self.relevance_ = handed_over(np.full(log.n_documents, self.rate_))

    def _marginal(self, lists: Lists) -> FloatArray:
        return np.full(len(lists.position), self.rate_)


@method(
    "click model", "rctr", choose=("run",), title="Click rate by rank", order=11,
    reference="craswell2008",
    note="a click rate for each position",
)  # fmt: skip
class RCTR(IndependentModel):
    """A click rate for each position: P(c = 1) = rho_k ([craswell2008]_, [chuklin2015click]_).

    Learned: `rate_` (K,). A position without impressions has the overall rate. `relevance_` is the
    same for all documents.
    """

    family = "rates"
    _shares: ClassVar = {"rate_": ("position",)}

    def _learn(self, log: ClickLog) -> None:
        count = log.row_count
        clicks = sum_by(log.position - 1, log.label * count)
        shown = sum_by(log.position - 1, count)
        overall = float(clicks.sum() / shown.sum())
        self.rate_ = handed_over(Smoothing(0.0, overall).rate(clicks, shown))
        self.prior_mean_ = overall
        self.relevance_ = handed_over(np.full(log.n_documents, overall))

    def _marginal(self, lists: Lists) -> FloatArray:
        return self.rate_[lists.position - 1]


@method(
    "click model", "dctr", choose=("run",), title="Click rate by document", order=12,
    reference="craswell2008",
    note="a click rate for each document of a query",
)  # fmt: skip
@dataclass(kw_only=True, eq=False, repr=False)
class DCTR(IndependentModel):
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
        clicks = sums_by_document(log, log.label * log.row_count)
        shown = sums_by_document(log, log.row_count)
        prior = smoothing_of(clicks, shown, self.prior_strength)
        self.prior_mean_, self.prior_strength_ = prior.mean, prior.strength
        self.relevance_ = handed_over(prior.rate(clicks, shown))

    def _marginal(self, lists: Lists) -> FloatArray:
        return lists.of_documents(self.relevance_, self.prior_mean_)

"""Sessions whose clicks a fitted click model draws."""

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.random import Seed, child_generator
from untilt.clickmodels.click_model import ClickModel
from untilt.data.clicklog import ClickLog
from untilt.errors import NotFittedError, OptionError
from untilt.simulation.behaviour import Behaviour
from untilt.simulation.protocols import Protocol


@dataclass(frozen=True)
class Fitted(Protocol):
    """Clicks drawn by a fitted click model; documents are matched by (query id, document id).

    Made by `simulate(judged, protocol=model)`, which draws the lists by the tables of this protocol
    and their clicks by `model.sample`.
    """

    name: ClassVar[str] = "fitted"

    model: ClickModel
    depth: int | None = None

    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:  # noqa: ARG002
        """Nobody clicks while lists are drawn: labels play no part, the model clicks afterwards."""
        return Behaviour(relevance=np.zeros(len(labels)), examination=np.ones(depth))


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedBehaviour(Behaviour):
    """What a fitted model does with lists; `documents` is a log of the documents alone.

    examination : (K,) P(click at k) over the attraction of what was shown there, both summed over
        the log's sessions. For PBM this is theta; for others its mean
    """

    model: ClickModel
    documents: ClickLog

    def click_probability(self, document: IntArray, position: IntArray) -> FloatArray:  # noqa: ARG002
        """Has no answer: see the message."""
        raise OptionError(
            "under a fitted click model a click may depend on the whole list. Ask "
            "truth.click_probabilities(log): it knows the lists."
        )

    def click_probabilities(
        self, indptr: IntArray, document: IntArray, position: IntArray
    ) -> FloatArray:
        """(rows,) P(click) of every row of these lists."""
        return self.model.click_probability(_lists(self.documents, indptr, document, position))

    def of_documents(self, documents: IntArray) -> "FittedBehaviour":
        """Of these documents alone, in this order."""
        mine = self.documents
        fewer = mine._with(doc_id=mine.doc_id[documents], doc_query=mine.doc_query[documents])
        return replace(self, relevance=self.relevance[documents], documents=fewer)


def as_fitted(protocol: object) -> Fitted | None:
    """The protocol of a fitted click model, as deep as its pages; None of anything else.

    A click model is known by what it can do: models of one's own are welcome.
    """
    if isinstance(protocol, type) or not all(
        callable(getattr(protocol, name, None)) for name in ("sample", "click_probability")
    ):
        return None
    model = cast(ClickModel, protocol)
    if not hasattr(model, "documents_"):
        raise NotFittedError(
            f"protocol={type(model).__name__}() has not learned how people click. Fit it first: "
            "simulate(judged, protocol=model.fit(log))."
        )
    return Fitted(model, depth=int(model.depth_))


def check_fitted_size(n_clicks: int | None) -> None:
    """Raise where sessions would have to be drawn until there are enough clicks."""
    if n_clicks is not None:
        raise OptionError(
            "n_clicks cannot be asked of a fitted click model: it draws all sessions at once. Ask "
            "for n_sessions or sessions_per_query."
        )


def with_clicks(lists: ClickLog, model: ClickModel, seed: Seed) -> tuple[ClickLog, FittedBehaviour]:
    """The lists with clicks drawn by the model, and what the model does on them."""
    index = model.documents_.index_of(lists)
    if not np.any(index >= 0):
        raise OptionError(
            f"this {type(model).__name__} knows none of the {lists.n_documents:,} judged "
            "documents. Documents are matched by query id and document id: fit it on a log of the "
            "same queries."
        )
    log = model.sample(lists, seed=child_generator(seed, 23))
    relevance = np.append(model.relevance_, model.prior_mean_)[index]
    behaviour = FittedBehaviour(
        relevance=relevance,
        examination=_mean_examination(lists, model, index),
        model=model,
        documents=lists.take(np.empty(0, dtype=np.int64)),
    )
    return log, behaviour


def _mean_examination(lists: ClickLog, model: ClickModel, index: IntArray) -> FloatArray:
    attraction = getattr(model, "attraction_", model.relevance_)
    mean = getattr(model, "attraction_mean_", model.prior_mean_)
    weight = np.append(attraction, mean)[index][lists.document]
    clicked = np.bincount(lists.position - 1, model.click_probability(lists), lists.depth)
    return clicked / np.bincount(lists.position - 1, weight, lists.depth)


def _lists(
    documents: ClickLog, indptr: IntArray, document: IntArray, position: IntArray
) -> ClickLog:
    n = len(indptr) - 1
    # An empty list has no document that knows its query, and no row to predict.
    first = document[np.minimum(indptr[:-1], max(len(document) - 1, 0))]
    return documents._with(
        indptr=indptr,
        query=documents.doc_query[first] if n else np.empty(0, dtype=np.int64),
        document=document,
        position=position,
        label=np.zeros(len(document)),
        count=np.ones(n, dtype=np.int64),
        ranker=None,
        time=None,
    )

"""Whether a ranker was trained on the queries it is judged by, and the part it has not seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from untilt._core.arrays import FeatureArray, Missing
from untilt._core.seen_queries import SeenQueries, id_hashes, seen_queries
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import OptionError

Data = TypeVar("Data", ClickLog, JudgedLists)

# Rankers are often fitted on one log and judged by another again and again: by the data, then by
# the names of the features and what takes the place of missing ones.
_known: WeakKeyDictionary[Any, dict[Any, SeenQueries]] = WeakKeyDictionary()


def seen_in(data: ClickLog | JudgedLists, model: Any = None) -> SeenQueries:
    """The queries of judged lists, or of a log's sessions, as a ranker remembers them.

    The hash of a document is that of its features as the `model` takes them: those that it was
    trained on, in its order, and missing ones filled as in training.
    """
    names = getattr(model, "feature_names_", data.feature_names)
    fill = getattr(model, "missing_", None)
    by_features = _known.setdefault(data, {})
    if (names, fill) not in by_features:
        by_features[names, fill] = _memory(data, _features_for(data, names, fill))
    return by_features[names, fill]


def _features_for(
    data: ClickLog | JudgedLists, names: tuple[str, ...], fill: Missing
) -> FeatureArray:
    if data.features is None:
        return np.zeros((data.n_documents, 0), dtype=np.float32)
    features = data.features
    if names != data.feature_names and set(names) <= set(data.feature_names):
        features = features[:, [data.feature_names.index(name) for name in names]]
    if isinstance(fill, float | int):
        features = np.where(np.isnan(features), np.float32(fill), features)
    return features


def _memory(data: ClickLog | JudgedLists, features: FeatureArray) -> SeenQueries:
    if isinstance(data, JudgedLists):
        owner = np.repeat(np.arange(data.n_queries), np.diff(data.indptr))
        return seen_queries(data.query_id, owner, features)
    has_session = np.zeros(data.n_queries, dtype=bool)
    has_session[data.query] = True
    index = np.cumsum(has_session) - 1
    kept = has_session[data.doc_query]
    return seen_queries(data.query_id[has_session], index[data.doc_query[kept]], features[kept])


@dataclass(frozen=True)
class Overlap:
    """How much of some data a ranker knows already.

    Parameters
    ----------
    trained, same_documents : queries that it was trained on; those that have the same documents
    validated : further queries that it was chosen or stopped early by
    n_queries : of the data; of those that can be told, where the ranker kept a sample
    """

    trained: int
    same_documents: int
    validated: int
    n_queries: int


def has_memory(model: Any) -> bool:
    """Whether a model says which queries it was trained on."""
    return isinstance(getattr(model, "trained_on_", None), SeenQueries)


def overlap_of(data: ClickLog | JudgedLists, model: Any) -> Overlap:
    """What a model with a memory knows of the data."""
    here = seen_in(data, model)
    return overlap_with(here, model.trained_on_, getattr(model, "validated_on_", None))


def overlap_with(
    here: SeenQueries, trained: SeenQueries, validated: SeenQueries | None = None
) -> Overlap:
    """The same for what was remembered of the training and of held-out data."""
    by_training = trained.lookup(here.query, here.document)
    told, also = by_training.told, np.zeros(len(by_training.seen), dtype=bool)
    if validated is not None:
        by_choice = validated.lookup(here.query, here.document)
        told = told & by_choice.told
        if by_choice.same_documents.any():
            also = by_choice.seen & ~by_training.seen
    return Overlap(
        trained=int(np.count_nonzero(by_training.seen & told)),
        same_documents=int(np.count_nonzero(by_training.same_documents & told)),
        validated=int(np.count_nonzero(also & told)),
        n_queries=int(np.count_nonzero(told)),
    )


def held_out_part(data: Data, models: Mapping[str, Any]) -> Data:
    """The part of the data with queries that none of the models has seen; others are no question.

    The documents of a log stay as they are, so that arrays with a score for each still fit.
    """
    rankers = {name: each for name, each in models.items() if hasattr(each, "predict")}
    for name, each in rankers.items():
        if not has_memory(each):
            raise OptionError(
                f"the held-out part cannot be found: {name!r} does not say which queries it was "
                "trained on, because an older untilt saved it or it is no ranker of untilt. Train "
                "it again with this untilt, or evaluate it on data that you held out yourself."
            )
    memories = [
        memory
        for each in rankers.values()
        for memory in (each.trained_on_, getattr(each, "validated_on_", None))
        if memory is not None
    ]
    return without_queries(data, *memories)


def without_queries(data: Data, *memories: SeenQueries) -> Data:
    """The part of the data with queries that stand in none of the memories for sure."""
    fresh = np.ones(len(data.query_id), dtype=bool)
    ids = id_hashes(data.query_id)
    for memory in memories:
        known = memory.lookup(ids, np.zeros(len(ids), dtype=np.uint32))
        fresh &= ~known.seen & known.told
    lists = fresh if isinstance(data, JudgedLists) else fresh[data.query]
    if not lists.any():
        raise OptionError(
            "nothing is held out: every query of this data was trained on, or chosen by. Split "
            "before training: log.split(0.8), or `untilt split` on the command line."
        )
    return data.take(lists)

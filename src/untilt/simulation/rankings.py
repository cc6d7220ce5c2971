"""Who shows the lists, and in which order."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import AnyArray, FloatArray, IntArray, identifiers
from untilt._core.random import Seed, child_generator
from untilt.errors import OptionError, ShapeError
from untilt.logs.judged import JudgedLists
from untilt.simulation.production import production_ranker, production_rankers
from untilt.simulation.protocols import Harvest, Protocol


@dataclass(frozen=True, eq=False)
class Rankings:
    """Scores of each ranker for all judged documents, and what they were trained on.

    names : (R,); scores : (R, n); rankers : what was given or trained
    training_queries : ids of the queries whose labels a ranker has seen
    """

    names: tuple[str, ...]
    scores: FloatArray
    rankers: tuple[Any, ...]
    training_queries: AnyArray


def rankings_for(judged: JudgedLists, protocol: Protocol, ranker: Any, seed: Seed) -> Rankings:
    """The rankers that were given, or the papers' production rankers where none were."""
    named = _named(judged, protocol, ranker, seed)
    if len(named) > 1 and not isinstance(protocol, Harvest):
        raise OptionError(
            f"protocol {protocol.name!r} shows the lists of one ranker. Got {len(named)}; several "
            "rankers share the traffic in protocol 'harvest'."
        )
    if len(named) < 2 and isinstance(protocol, Harvest):
        raise OptionError(
            "protocol 'harvest' needs at least two rankers that order the documents differently. "
            f"Got {len(named)}; give several: ranker={{'old': scores, 'new': other_scores}}."
        )
    rankers = tuple(named.values())
    seen = [id_ for r in rankers for id_ in np.asarray(getattr(r, "training_queries", ())).tolist()]
    return Rankings(
        names=tuple(named),
        scores=np.stack([_scores(judged, name, r) for name, r in named.items()]),
        rankers=rankers,
        training_queries=identifiers(list(dict.fromkeys(seen))),
    )


def shown_order(
    judged: JudgedLists, scores: FloatArray, depth: int | None, seed: Seed
) -> tuple[IntArray, IntArray]:
    """(start, shown): documents by falling score, cut at the depth; shown has a row per ranker.

    Equal scores stand in random order: the order of a file may follow the labels.
    """
    lengths = ragged.lengths(judged.indptr)
    start = ragged.indptr_of(lengths if depth is None else np.minimum(lengths, depth))
    kept = ragged.place_in_list(judged.indptr) < np.repeat(ragged.lengths(start), lengths)
    chance = child_generator(seed, 20).random(len(judged))
    orders = [ragged.order_within_lists(judged.indptr, -row, chance)[kept] for row in scores]
    return start, np.stack(orders).astype(np.int32)


def _named(judged: JudgedLists, protocol: Protocol, ranker: Any, seed: Seed) -> dict[str, Any]:
    if ranker is None and isinstance(protocol, Harvest):
        trained = production_rankers(
            judged, protocol.rankers, feature_share=protocol.feature_share, seed=seed
        )
        return {r.name: r for r in trained}
    if ranker is None:
        return {"base": production_ranker(judged, seed=seed)}
    if isinstance(ranker, Mapping):
        return {str(name): r for name, r in ranker.items()}
    if isinstance(ranker, list | tuple) and not _is_scores(ranker):
        names = [str(getattr(r, "name", f"ranker-{i}")) for i, r in enumerate(ranker, start=1)]
        if len(set(names)) < len(names):
            names = [f"ranker-{i}" for i in range(1, len(ranker) + 1)]
        return dict(zip(names, ranker, strict=True))
    return {"base": ranker}


def _is_scores(ranker: list[Any] | tuple[Any, ...]) -> bool:
    return len(ranker) > 0 and isinstance(ranker[0], int | float | np.number)


def _scores(judged: JudgedLists, name: str, ranker: Any) -> FloatArray:
    made = ranker.predict(judged.features) if hasattr(ranker, "predict") else ranker
    try:
        scores = np.asarray(made, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise OptionError(
            "ranker must be an array of scores, one per judged document, or something fitted with "
            f"a predict method. Got {type(ranker).__name__} instead."
        ) from error
    if scores.shape != (len(judged),):
        raise ShapeError(
            f"ranker {name!r} must give one score for each of the {len(judged):,} judged "
            f"documents. Got shape {scores.shape} instead."
        )
    if not np.all(np.isfinite(scores)):
        row = int(np.argmin(np.isfinite(scores)))
        raise OptionError(
            f"ranker {name!r} must give finite scores. Got {scores[row]} for document row {row}."
        )
    return scores

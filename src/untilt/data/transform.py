"""New logs from old ones: two parts of one, and one label out of several kinds of feedback."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from untilt._core.arrays import BoolArray, FeatureArray, FloatArray, IntArray, sum_by
from untilt._core.random import Seed, generator
from untilt.data.clicklog import ClickLog
from untilt.data.counts import ALWAYS_DRAWN, MOST_LEFT_OUT, evidence_depth
from untilt.errors import ColumnError, OptionError, check_choice, check_share, did_you_mean
from untilt.facts import Fact, note, phrase

LEFT_OUT = note(
    "log.positions-left-out",
    "Positions from {first} to {last} have {share:.1%} of the clicks and are left out "
    "⟦(depth={last} keeps them)|(--depth {last} keeps them)⟧.",
)


def to_evidence(log: ClickLog, depth: int | None = None) -> tuple[ClickLog, Fact | None]:
    """The log down to `depth`; where it is not given, to the last position with evidence.

    That is the last one with 30 clicks, at least 20, and so deep that 95% of the clicks are kept.
    """
    if depth is not None:
        return (log if depth >= log.depth else log.top(depth)), None
    if log.depth <= ALWAYS_DRAWN or log.layout is not None:
        return log, None
    clicked = np.repeat(log.count, np.diff(log.indptr)) * (log.label > 0)
    clicks = sum_by(log.position - 1, clicked, log.depth)
    share = np.cumsum(clicks) / max(1.0, clicks.sum())
    kept = max(evidence_depth(clicks), int(np.searchsorted(share, 1 - MOST_LEFT_OUT)) + 1)
    if kept >= log.depth:
        return log, None
    told = LEFT_OUT(first=kept + 1, last=log.depth, share=1 - share[kept - 1])
    return log.top(kept), told


def split(log: ClickLog, share: float, *, by: str, seed: Seed) -> tuple[ClickLog, ClickLog]:
    """See `ClickLog.split`."""
    check_share("share", share)
    check_choice("by", by, ("query", "session", "time"))
    if by == "time":
        return _by_time(log, share)
    parts = _by_query if by == "query" else _by_session
    return parts(log, share, seed)


def _by_query(log: ClickLog, share: float, seed: Seed) -> tuple[ClickLog, ClickLog]:
    order = generator(seed).permutation(log.n_queries)
    cut = round(share * log.n_queries)
    return restrict_queries(log, np.sort(order[:cut])), restrict_queries(log, np.sort(order[cut:]))


def restrict_queries(log: ClickLog, queries: IntArray) -> ClickLog:
    """Only these queries, with their documents (shown or not) and their lists."""
    new_query = np.full(log.n_queries, -1, dtype=np.int32)
    new_query[queries] = np.arange(len(queries), dtype=np.int32)
    documents = np.flatnonzero(new_query[log.doc_query] >= 0)
    new_document = np.full(log.n_documents, -1, dtype=np.int32)
    new_document[documents] = np.arange(len(documents), dtype=np.int32)
    part = log.take(np.flatnonzero(new_query[log.query] >= 0))
    return part._with(
        query_id=log.query_id[queries],
        doc_id=log.doc_id[documents],
        doc_query=new_query[log.doc_query[documents]],
        features=None if log.features is None else log.features[documents],
        item=_renumbered(None if log.item is None else log.item[documents]),
        query=new_query[part.query],
        document=new_document[part.document],
    )


def split_queries_by(log: ClickLog, group: IntArray) -> ClickLog:
    """Each query as one query for each group of its lists, so that groups are never compared.

    group : (lists,) numbers from 0 on. Documents that no list shows are left out
    """
    n_groups = int(group.max(initial=0)) + 1
    lists = log.query.astype(np.int64) * n_groups + group
    queries, query = np.unique(lists, return_inverse=True)
    rows = log.document.astype(np.int64) * n_groups + np.repeat(group, np.diff(log.indptr))
    documents, document = np.unique(rows, return_inverse=True)
    of_document = log.doc_query[documents // n_groups].astype(np.int64) * n_groups
    doc_query = np.searchsorted(queries, of_document + documents % n_groups)
    # Documents stand by query; versions of one stay side by side.
    order = np.argsort(doc_query, kind="stable")
    place = np.argsort(order)
    old = (documents // n_groups)[order]
    item = None if log.item is None else log.item[old] * n_groups + (documents % n_groups)[order]
    return log._with(
        query_id=np.arange(len(queries)),
        doc_id=log.doc_id[old],
        doc_query=doc_query[order].astype(np.int32),
        features=None if log.features is None else log.features[old],
        item=_renumbered(item),
        query=query.astype(np.int32),
        document=place[document].astype(np.int32),
    )


def _renumbered(item: IntArray | None) -> IntArray | None:
    """The same groups of versions, numbered 0, 0, 1, ...; None where none has a second version."""
    if item is None:
        return None
    new = np.diff(item, prepend=-1) != 0
    return None if new.all() else np.cumsum(new) - 1


def without_features(log: ClickLog, names: Collection[str]) -> ClickLog:
    """The log without these features; versions that differed in them alone become one."""
    if log.features is None or not names:
        return log
    kept = [j for j, name in enumerate(log.feature_names) if name not in names]
    if not kept:
        return log.without_versions()._with(features=None, feature_names=())
    features = np.ascontiguousarray(log.features[:, kept])
    part = log._with(features=features, feature_names=tuple(log.feature_names[j] for j in kept))
    return part if log.item is None else _merged_versions(part, features, log.item)


def _merged_versions(log: ClickLog, features: FeatureArray, item: IntArray) -> ClickLog:
    """One document for each item and set of features, in the order of their first versions."""
    keys = np.ascontiguousarray(features.astype(np.float32)).view(np.uint32)
    _, first, owner = np.unique(
        np.column_stack([item.astype(np.uint32), keys]),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    rank = np.argsort(np.argsort(first))
    first, items = np.sort(first), item[np.sort(first)]
    return log._with(
        doc_id=log.doc_id[first],
        doc_query=log.doc_query[first],
        features=features[first],
        document=rank[owner.ravel()][log.document],
        item=items if np.any(np.diff(items) == 0) else None,
    )


def _by_session(log: ClickLog, share: float, seed: Seed) -> tuple[ClickLog, ClickLog]:
    """Exactly round(share * sessions) sessions, drawn without replacement out of the counts."""
    drawn = drawn_units(log.count, share, generator(seed))
    rest = log.count - drawn
    left, right = np.flatnonzero(drawn), np.flatnonzero(rest)
    return log.take(left, count=drawn[left]), log.take(right, count=rest[right])


def drawn_units(counts: IntArray, share: float, rng: np.random.Generator) -> IntArray:
    """How many units of each count are drawn; every set of round(share * total) is as likely.

    Each unit is first kept with probability `share`; given how many were kept, all sets of that
    size are equally likely, so keeping or dropping a few more at random makes the number exact.
    NumPy's multivariate hypergeometric does the same below 10^9 units and refuses more.
    """
    drawn = rng.binomial(counts, share)
    missing = round(share * int(counts.sum())) - int(drawn.sum())
    pool, step = (counts - drawn, 1) if missing > 0 else (drawn, -1)
    picked = rng.choice(int(pool.sum()), size=abs(missing), replace=False, shuffle=False)
    owner = np.searchsorted(np.cumsum(pool), picked, side="right")
    return drawn + step * np.bincount(owner, minlength=len(counts))


def _by_time(log: ClickLog, share: float) -> tuple[ClickLog, ClickLog]:
    if log.time is None:
        raise OptionError(
            "this log has no time to split by. Read it with its timestamp column "
            "(⟦columns={'timestamp': ...}⟧) and without collapsing: collapsed "
            "sessions have no single time."
        )
    part = _part_of_time(log, [share])
    return log.take(part == 0), log.take(part == 1)


def _part_of_time(log: ClickLog, shares: Sequence[float]) -> IntArray:
    """(lists,) which part of the time each lies in; part i begins at `shares[i - 1]`."""
    assert log.time is not None
    order = np.argsort(log.time, kind="stable")
    before = np.cumsum(log.count[order])
    part = np.zeros(log.n_lists, dtype=np.int64)
    for share in shares:
        cut = int(np.searchsorted(before, round(share * log.n_sessions), side="right"))
        part[order[cut:]] += 1
    return part


def in_parts_of_time(log: ClickLog, shares: Sequence[float]) -> tuple[ClickLog, list[Any]]:
    """The log with equal sessions of each part of the time merged, and when later parts begin.

    The parts are those of `ClickLog.split(share, by="time")` at these shares of the sessions; the
    time of a list becomes the number of its part, and lists stand by it.
    """
    part = _part_of_time(log, shares)
    assert log.time is not None
    begins = [log.time[part == i].min() for i in range(1, len(shares) + 1) if np.any(part == i)]
    merged = log._merged(part)
    assert merged.time is not None
    return merged.take(np.argsort(merged.time, kind="stable")), begins


def later_half(log: ClickLog) -> BoolArray:
    """(lists,) whether each lies in the second half of the time, as evenly as times allow."""
    if log.time is None:
        raise OptionError("this log has no time, so it has no halves of the time either.")
    times, index = np.unique(log.time, return_inverse=True)
    if len(times) < 2:
        return np.zeros(log.n_lists, dtype=bool)
    until = np.cumsum(sum_by(index, log.count))[:-1] / log.n_sessions
    return np.asarray(index > int(np.argmin(np.abs(until - 0.5))))


COMBINATIONS = ("sum", "product")


def synthesise(
    log: ClickLog, weights: Mapping[str, float], *, combine: str = "sum", name: str = "synthesised"
) -> ClickLog:
    r"""The log with one label made of several feedback columns ([ren2021pairwise]_, equation 6).

        sum       c = w_1 a_1 + w_2 a_2 + ...
        product   c = a_1^w_1 a_2^w_2 ...

    A product is 0 wherever one of its columns is 0; with "sum" a column's weight says what one unit
    of it is worth. All columns that the log had stay as extra labels, so that nothing is lost, and
    sessions that differ in any of them stay apart.

    Parameters
    ----------
    weights : label column -> weight above 0; the log's own label goes by its name, too
    combine : "sum" or "product"
    name : what the new label is called

    >>> from untilt import make_judged, simulate
    >>> log = simulate(make_judged(n_queries=100), protocol="dwell", n_sessions=500).log
    >>> synthesise(log, {"click": 1.0, "dwell": 0.5}).label_name
    'synthesised'
    """
    check_choice("combine", combine, COMBINATIONS)
    columns = {log.label_name: log.label, **log.extra_labels}
    _check(weights, columns, name)
    parts = [(float(weight), columns[column]) for column, weight in weights.items()]
    if combine == "sum":
        label = np.sum([weight * column for weight, column in parts], axis=0)
    else:
        label = np.prod([column**weight for weight, column in parts], axis=0)
    return replace(log, label=label, label_name=name, extra_labels=columns)


def check_weights(weights: object) -> None:
    """Raise unless these are weights of label columns, whichever a log has."""
    if not isinstance(weights, Mapping) or not weights:
        raise OptionError(
            "weights must name label columns, such as {'click': 1.0, 'dwell': 0.5}. "
            f"Got {weights!r} instead."
        )
    for column, weight in weights.items():
        number = isinstance(weight, (int, float, np.number)) and not isinstance(weight, bool)
        if not (number and np.isfinite(weight) and weight > 0):
            raise OptionError(
                f"the weight of {column!r} must be a number above 0. Got {weight!r} instead; "
                "leave out what should not count."
            )


def _check(weights: Mapping[str, float], columns: Mapping[str, FloatArray], name: str) -> None:
    check_weights(weights)
    for column in weights:
        if column not in columns:
            hint = did_you_mean(str(column), list(columns))
            raise ColumnError(
                phrase(
                    "there is no label column {column:r}. This log has: {what}.{hint} Further "
                    "columns are read with ⟦read_log(..., labels=[...])|--label NAME⟧.",
                    column=column,
                    what=", ".join(columns),
                    hint=hint,
                )
            )
    if name in columns:
        raise OptionError(f"the log has a label {name!r} already. Give name= another one.")

"""What a log holds as Python objects, so that logs can be compared whatever their order."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from untilt.data.clicklog import ClickLog

Contents = tuple[Counter[Any], dict[Any, Any]]


def contents_of(log: ClickLog) -> Contents:
    """Sessions as a multiset, and the features of every (query, document) pair, shown or not."""
    sessions: Counter[Any] = Counter()
    for i in range(log.n_lists):
        rows = range(log.indptr[i], log.indptr[i + 1])
        shown = tuple(
            (
                int(log.position[row]),
                log.doc_id[log.document[row]],
                float(log.label[row]),
                *(float(column[row]) for _, column in sorted(log.extra_labels.items())),
            )
            for row in rows
        )
        ranker = None if log.ranker is None else log.ranker_names[log.ranker[i]]
        time = None if log.time is None else log.time[i]
        context = tuple((name, column[i]) for name, column in sorted(log.context.items()))
        sessions[log.query_id[log.query[i]], ranker, time, shown, *context] += int(log.count[i])
    documents = {
        (log.query_id[log.doc_query[j]], log.doc_id[j]): (
            None if log.features is None else tuple(log.features[j].tolist())
        )
        for j in range(log.n_documents)
    }
    assert len(documents) == log.n_documents
    return sessions, documents


@pytest.fixture(scope="session")
def contents() -> Callable[[ClickLog], Contents]:
    return contents_of


@pytest.fixture(scope="session")
def checked() -> Callable[[ClickLog], ClickLog]:
    """The same log through the constructor, which checks every rule the reader claims to keep."""

    def check(log: ClickLog) -> ClickLog:
        again = ClickLog(**{name: getattr(log, name) for name in log.__dataclass_fields__})
        for name in ("document", "position", "label", "indptr", "query", "count"):
            array = getattr(log, name)
            assert not array.flags.writeable
            assert array.dtype == getattr(again, name).dtype
            np.testing.assert_array_equal(array, getattr(again, name))
        return again

    return check

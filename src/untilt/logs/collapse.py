"""Merging sessions that are alike: exact, and training cost then grows with distinct lists."""

import numpy as np

from untilt._core.grouping import group_equal_lists
from untilt.logs.clicklog import ClickLog


def collapse(log: ClickLog) -> ClickLog:
    """See `ClickLog.collapse`."""
    list_keys = [log.query] if log.ranker is None else [log.query, log.ranker]
    row_keys = [log.document, log.position, log.label, *log.extra_labels.values()]
    groups = group_equal_lists(log.indptr, row_keys, list_keys)
    count = np.zeros(groups.n_groups, dtype=np.int64)
    np.add.at(count, groups.group_of_list, log.sessions)
    if groups.n_groups == log.n_lists:  # nothing to merge, so nothing to copy
        return log._with(time=None)
    return log._with(time=None).take(groups.first, count=count)

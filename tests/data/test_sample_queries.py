"""A sample of the queries, for logs that do not fit into memory."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt.errors import BadRowsError, OptionError


def _log(query_id, n: int = 400) -> pa.Table:
    """Two sessions for each query, one document a page."""
    return pa.table(
        {
            "query_id": [query_id(q) for q in range(n) for _ in range(2)],
            "session_id": list(range(2 * n)),
            "doc_id": [1] * (2 * n),
            "position": [1] * (2 * n),
            "click": [0, 1] * n,
        }
    )


def _first_32_bits(query_id) -> int:
    return int(hashlib.md5(str(query_id).encode()).hexdigest()[:8], 16)


@pytest.mark.parametrize("query_id", [lambda q: 17 * q - 90, lambda q: f"words {q} é"])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_the_sample_is_by_the_ids_alone_with_all_sessions(query_id, share):
    log = ut.read_log(_log(query_id), sample_queries=share)
    chosen = {q for q in map(query_id, range(400)) if _first_32_bits(q) < share * 2**32}
    assert set(log.query_id.tolist()) == chosen
    assert log.n_sessions == 2 * len(chosen)
    assert abs(len(chosen) - 400 * share) <= 4 * np.sqrt(400 * share * (1 - share))


def test_a_smaller_sample_is_part_of_a_larger_one():
    small, large = (ut.read_log(_log(str), sample_queries=share) for share in (0.1, 0.2))
    assert set(small.query_id) < set(large.query_id)


def test_documents_of_other_queries_stay_out():
    documents = pa.table({"query_id": range(400), "doc_id": [1] * 400, "f": [0.5] * 400})
    log = ut.read_log(_log(int), documents=documents, sample_queries=0.25)
    assert log.n_documents == log.n_queries < 200


def test_a_row_without_a_query_is_still_a_bad_row():
    rows = pa.concat_tables([_log(int), _log(int, 1).slice(1)])
    rows = rows.set_column(0, "query_id", pa.array([*rows["query_id"].to_pylist()[:-1], None]))
    with pytest.raises(BadRowsError, match="query_id"):
        ut.read_log(rows, sample_queries=0.01)


@pytest.mark.parametrize("share", [0, -0.1, 1.5, True, float("nan")])
def test_other_shares_are_refused(share):
    with pytest.raises(OptionError, match="sample_queries must be a share"):
        ut.read_log(_log(int), sample_queries=share)

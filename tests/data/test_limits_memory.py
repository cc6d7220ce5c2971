"""Work on a log that cannot fit is refused before it begins, with figures and a remedy."""

import re
from itertools import chain, repeat

import numpy as np
import pyarrow as pa
import pytest

import untilt as ut
from untilt._core import memory
from untilt.data import limits
from untilt.errors import MemoryLimitError


@pytest.fixture(scope="module")
def log():
    return ut.simulate(ut.make_judged(40, seed=3), "harvest", n_sessions=3000, seed=3).log


@pytest.fixture
def no_room(monkeypatch):
    """A process that has 20 KB left, and asks for everything."""
    monkeypatch.setattr(memory, "_SMALL", 0)
    monkeypatch.setattr(memory, "room", lambda: 20_000)


def test_the_size_of_a_log_is_that_of_its_arrays(log):
    rows, lists, documents = len(log.document), log.n_lists, log.n_documents
    by_hand = rows * (4 + 4 + 8) + lists * (4 + 8 + 4) + (lists + 1) * 8
    by_hand += documents * (8 + 4 + 4 * log.n_features) + log.n_queries * 8
    assert limits.bytes_of(log) == by_hand


@pytest.mark.parametrize(
    "work",
    [
        ut.audit,
        lambda log: ut.AllPairs().fit(log),
        lambda log: ut.RegressionEM().fit(log),
        lambda log: ut.LambdaMART().fit(log),
        lambda log: ut.estimate(log, {"same": np.zeros(log.n_documents)}, bias=ut.PowerLaw(1.0)),
    ],
    ids=["audit", "bias", "em", "train", "evaluate"],
)
def test_work_that_cannot_fit_is_refused_with_a_share_that_does(work, log, no_room):
    with pytest.raises(MemoryLimitError, match=f"{len(log.document):,} rows in") as refused:
        work(log)
    share = float(re.search(r"sample_queries=([\d.]+)\)", str(refused.value))[1])
    assert 0 < share < 1


def test_the_share_leaves_room(monkeypatch):
    monkeypatch.setattr(memory, "room", lambda: 3 << 30)
    words = limits.remedy(9 << 30, held=1 << 30)
    # A share s needs s (9 + 1) GiB; there are 3 free ones and the 1 of this log: 0.4, less a fifth.
    assert "sample_queries=0.32)" in words


def test_reading_what_cannot_fit_is_refused(no_room):
    n = 5000
    rows = pa.table(
        {
            "query_id": np.arange(n) // 10,
            "session_id": np.arange(n) // 10,
            "doc_id": np.arange(n),
            "position": np.arange(n) % 10 + 1,
            "click": np.zeros(n, dtype=np.int8),
        }
    )
    with pytest.raises(MemoryLimitError, match=r"documents table \(5,000 documents with 0 feat"):
        ut.read_log(rows)
    few = rows.set_column(2, "doc_id", [rows["position"].combine_chunks()])
    few = few.set_column(0, "query_id", [pa.array(np.zeros(n, dtype=np.int64))])
    few = few.set_column(4, "click", [pa.array(np.random.default_rng(0).integers(0, 2, n))])
    with pytest.raises(MemoryLimitError, match=r"this log \([\d,]+ rows in [\d,]+ distinct lists"):
        ut.read_log(few)


def test_duckdb_gives_way_to_the_arrays(monkeypatch):
    from untilt.data.read.database import open_database

    left = chain([100, 100], repeat(1 << 40))
    monkeypatch.setattr(memory, "room", lambda: next(left))
    with open_database(memory_limit="2GB", temp_directory=None, threads=1) as database:
        database.make_room(1 << 30, "this log")
        assert database.row("SELECT current_setting('memory_limit')") == ("256.0 MiB",)


def test_duckdb_may_fill_no_room_that_arrays_are_counted_on(monkeypatch):
    from untilt.data.read.database import open_database

    monkeypatch.setattr(memory, "room", lambda: 3 << 30)

    def limit():
        (said,) = database.row("SELECT current_setting('memory_limit')")
        return memory.parse_size(said, "it") / 2**30

    with open_database(memory_limit="2GiB", temp_directory=None, threads=1) as database:
        for size, left in ((100, 1.5), (2 << 30, 0.5), (1 << 30, 0.5)):  # never more again
            database.make_room(size, "this log")
            assert limit() == pytest.approx(left, abs=0.11)

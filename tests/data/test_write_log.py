"""What write_log writes, read_log reads: the same log."""

import os

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from untilt.data import write_log as write
from untilt.data import write_log as writing
from untilt.data.clicklog import ClickLog
from untilt.data.limits import LEAST_LABEL, MOST_LABEL
from untilt.data.read.read_log import read_log
from untilt.data.write_log import write_log
from untilt.errors import BadRowsError, OptionError, UntiltError


def small_log(**changes):
    arrays = {
        "query_id": [10, 20],
        "doc_id": ["a", "b", "c", "a"],
        "doc_query": [0, 0, 0, 1],
        "indptr": [0, 2, 4, 5],
        "query": [0, 0, 1],
        "document": [0, 1, 1, 0, 3],
        "position": [1, 3, 1, 2, 1],
        "label": [1, 0, 0, 0, 1],
        "count": [3, 1, 2],
        "features": np.array([[0.1, 2], [1e-30, 3], [3e38, 4], [-0.5, 5]], np.float32),
        "feature_names": ("bm25", 'Länge; in "Zeichen",\n;;;;;;;;;;;;;'),
        "ranker": [0, 1, 1],
        "ranker_names": ("old", "new"),
        "extra_labels": {"dwell": [0.25, 1 / 3, 2, 3, 1e-9]},
    }
    return ClickLog(**{**arrays, **changes})


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_with_a_documents_file_everything_survives(tmp_path, contents, ending):
    log = small_log()
    write_log(log, tmp_path / f"log.{ending}", documents=tmp_path / f"documents.{ending}")
    again = read_log(
        tmp_path / f"log.{ending}", documents=tmp_path / f"documents.{ending}", labels=["dwell"]
    )
    assert contents(again) == contents(log)
    assert again.feature_names == log.feature_names
    assert again.n_lists == log.n_lists  # three rows of counts, not six sessions


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_features_in_the_log(tmp_path, contents, ending):
    log = small_log()
    path = tmp_path / f"log.{ending}"
    with pytest.raises(OptionError, match="1 documents are shown by no list"):
        write_log(log, path)
    assert os.listdir(tmp_path) == []
    write_log(log, path, drop_unshown=True)
    again = read_log(path, labels=["dwell"], features="*")
    sessions, documents = contents(log)
    del documents[10, "c"]
    assert contents(again) == (sessions, documents)


def test_the_file_is_what_the_format_says(tmp_path):
    write_log(
        small_log(features=None, feature_names=()), tmp_path / "log.parquet", drop_unshown=True
    )
    rows = pq.read_table(tmp_path / "log.parquet").to_pylist()
    assert rows[1] == {
        "query_id": 10,
        "session_id": 1,
        "doc_id": "b",
        "position": 3,
        "click": 0,
        "dwell": 1 / 3,
        "ranker": "old",
        "count": 3,
    }
    compression = pq.ParquetFile(tmp_path / "log.parquet").metadata.row_group(0).column(0)
    assert compression.compression == "ZSTD"


def test_plain_sessions_need_no_count(tmp_path):
    write_log(small_log(count=None), tmp_path / "log.parquet", drop_unshown=True)
    assert "count" not in pq.read_schema(tmp_path / "log.parquet").names


@pytest.mark.parametrize(
    "time",
    [
        np.array([3, 1, 2]),
        np.array([0.1, 0.2, 0.3]),
        np.array(["2024-01-01T00:00:00.000001", "2023-01-01", "2024-06-01"], "datetime64[us]"),
    ],
    ids=["whole", "float", "timestamp"],
)
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_time_survives_where_sessions_stay_apart(tmp_path, contents, time, ending):
    log = small_log(time=time)
    write_log(log, tmp_path / f"log.{ending}", documents=tmp_path / "documents.parquet")
    again = read_log(
        tmp_path / f"log.{ending}",
        documents=tmp_path / "documents.parquet",
        labels=["dwell"],
        collapse=False,
    )
    assert contents(again) == contents(log)
    assert again.time.dtype == time.dtype


def test_pieces_do_not_change_the_file_s_content(tmp_path, contents, monkeypatch, rng):
    n_lists = 200
    lengths = rng.integers(1, 6, size=n_lists)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    position = np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths) + 1
    log = ClickLog(
        query_id=[1],
        doc_id=np.arange(5),
        doc_query=np.zeros(5, int),
        indptr=indptr,
        query=np.zeros(n_lists, int),
        document=rng.integers(5, size=len(position)),
        position=position,
        label=rng.integers(2, size=len(position)),
        features=rng.normal(size=(5, 3)),
    )
    taken: list[int] = []
    insert = writing._insert

    def counted(*given):
        taken.append(1)
        insert(*given)

    monkeypatch.setattr(writing, "_insert", counted)
    write_log(log, tmp_path / "whole.parquet")
    assert len(taken) == 2  # the first one is empty
    monkeypatch.setattr(write, "PIECE", 100)
    write_log(log, tmp_path / "log.parquet")
    assert len(taken) > 12
    assert (tmp_path / "log.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert contents(read_log(tmp_path / "log.parquet", features="*")) == contents(log)


def test_an_empty_log_can_be_written(tmp_path):
    log = small_log().take(np.array([], int))
    for name in ("log.parquet", "log.csv"):
        write_log(log, tmp_path / name, documents=tmp_path / "documents.parquet")
        again = read_log(
            tmp_path / name, documents=tmp_path / "documents.parquet", labels=["dwell"]
        )
        assert (again.n_lists, again.n_documents) == (0, 4)


@pytest.mark.parametrize(
    ("changes", "path", "error", "text"),
    [
        ({}, "log.txt", OptionError, "must end in .parquet"),
        ({"label_name": "Position"}, "log.csv", OptionError, "holds 'Position' twice"),
        ({"feature_names": ("count", "b")}, "log.csv", OptionError, "holds 'count' twice"),
        ({"feature_names": ("a", "A")}, "log.csv", OptionError, "holds 'A' twice"),
        ({"feature_names": ("a", "")}, "log.csv", OptionError, "without a name"),
        ({"indptr": [0, 0, 4, 5], "position": [1, 3, 2, 4, 1]}, "log.csv", BadRowsError, "nothing"),
        ({"doc_id": ["a", "b", "\ud800", "a"]}, "log.csv", BadRowsError, "no valid text"),
        ({}, "folder/log.csv", OptionError, "could not be written"),
    ],
)
def test_what_cannot_be_written(tmp_path, changes, path, error, text):
    (tmp_path / "folder").write_text("a file where a folder should be")
    with pytest.raises(error, match=text):
        write_log(small_log(**changes), tmp_path / path, drop_unshown=True)
    assert os.listdir(tmp_path) == ["folder"]


def test_features_with_any_name_in_a_file_of_their_own(tmp_path, contents):
    log = small_log(feature_names=("count", "position"))
    write_log(log, tmp_path / "log.parquet", documents=tmp_path / "documents.parquet")
    again = read_log(
        tmp_path / "log.parquet", documents=tmp_path / "documents.parquet", labels=["dwell"]
    )
    assert again.feature_names == ("count", "position")
    assert contents(again) == contents(log)


def test_log_and_documents_need_two_files(tmp_path):
    with pytest.raises(OptionError, match="two files"):
        write_log(small_log(), tmp_path / "a.parquet", documents=str(tmp_path / "." / "a.parquet"))


# ---- any log


IDS = st.one_of(
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5, unique=True),
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
        min_size=1,
        max_size=5,
        unique=True,
    ),
)
# Line breaks of the old Macintosh are no part of a text that CSV can hold; zero is no text in it.
CSV_IDS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8),
    min_size=1,
    max_size=5,
    unique=True,
)
LABELS = st.sampled_from([0.0, 1.0, 2.0, 0.1, 1 / 3, LEAST_LABEL, MOST_LABEL])
NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def exact(ids):
    """Text as objects: NumPy's own text type loses zeros at the end."""
    return np.array(ids, dtype=object if isinstance(ids[0], str) else np.int64)


@st.composite
def logs(draw, ids=IDS):
    query_id = draw(ids)
    per_query = [draw(ids) for _ in query_id]
    doc_query = np.repeat(np.arange(len(query_id)), [len(docs) for docs in per_query])
    doc_id = [doc for docs in per_query for doc in docs]
    if len({isinstance(doc, str) for doc in doc_id}) > 1:
        doc_id = [str(doc) for doc in doc_id]
    n_lists = draw(st.integers(0, 6))
    query = draw(st.lists(st.integers(0, len(query_id) - 1), min_size=n_lists, max_size=n_lists))
    document, position, lengths = [], [], []
    for q in query:
        places = draw(st.lists(st.integers(1, 1000), min_size=1, max_size=5, unique=True))
        own = np.flatnonzero(doc_query == q).tolist()
        document += [draw(st.sampled_from(own)) for _ in places]
        position += places
        lengths.append(len(places))
    values = st.lists(LABELS, min_size=len(position), max_size=len(position))
    n_features = draw(st.integers(0, 2))
    features = [[draw(NUMBERS) for _ in range(n_features)] for _ in doc_id]
    ranker = st.lists(st.integers(0, 1), min_size=n_lists, max_size=n_lists)
    return ClickLog(
        query_id=exact(query_id),
        doc_id=exact(doc_id),
        doc_query=doc_query,
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(int),
        query=np.array(query, int),
        document=np.array(document, int),
        position=np.array(position, int),
        label=np.array(draw(values), float),
        count=draw(st.lists(st.integers(1, 2**40), min_size=n_lists, max_size=n_lists)),
        features=np.array(features, np.float32) if n_features else None,
        ranker=np.array(draw(ranker), int) if draw(st.booleans()) else None,
        ranker_names=("a", "b ,'\""),
        extra_labels={"x": np.array(draw(values), float)} if draw(st.booleans()) else {},
    )


def survives(log, path, documents, contents, **options):
    write_log(log, path, documents=documents)
    again = read_log(path, documents=documents, labels=list(log.extra_labels), **options)
    assert contents(again) == contents(log)
    assert again.query_id.dtype == log.query_id.dtype
    assert again.doc_id.dtype == log.doc_id.dtype


def examples(number):
    return settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


# `make test` tries a few, `make test-slow` many.
few, many = examples(12), examples(200)
NUMBERS_OF_EXAMPLES = [few, pytest.param(many, marks=pytest.mark.slow)]


@pytest.mark.parametrize("number", NUMBERS_OF_EXAMPLES, ids=["few", "many"])
def test_any_log_survives_parquet(tmp_path, contents, number):
    @number
    @given(log=logs())
    def check(log):
        survives(log, tmp_path / "log.parquet", tmp_path / "documents.parquet", contents)

    check()


@pytest.mark.parametrize("number", NUMBERS_OF_EXAMPLES, ids=["few", "many"])
def test_any_log_survives_csv(tmp_path, contents, number):
    @number
    @given(log=logs(ids=CSV_IDS))
    def check(log):
        survives(log, tmp_path / "log.csv", tmp_path / "documents.csv", contents, text_ids=True)

    check()


# A damaged position may lie below the last one that is read: rows left out, and a warning.
@pytest.mark.filterwarnings("ignore::untilt.DroppedRowsWarning")
@pytest.mark.parametrize("number", NUMBERS_OF_EXAMPLES, ids=["few", "many"])
def test_damaged_files_give_our_errors_or_a_log(tmp_path, number):
    @number
    @given(log=logs(), data=st.data(), ending=st.sampled_from(["parquet", "csv", "csv.gz"]))
    def check(log, data, ending):
        damaged_gives_an_error_or_a_log(tmp_path, log, data, ending)

    check()


def damaged_gives_an_error_or_a_log(tmp_path, log, data, ending):
    """Bytes exchanged, cut or put in: an UntiltError or a log, never anything else."""
    path, documents = tmp_path / f"log.{ending}", tmp_path / f"documents.{ending}"
    write_log(log, path, documents=documents)
    victim = data.draw(st.sampled_from([path, documents]))
    content = bytearray(victim.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, max(0, len(content) - 1)))
        what = data.draw(st.sampled_from(["exchange", "cut", "put in"]))
        if what == "exchange" and content:
            content[place] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del content[place : place + data.draw(st.integers(1, 50))]
        else:
            content[place:place] = data.draw(st.binary(min_size=1, max_size=5))
    victim.write_bytes(bytes(content))
    try:
        found = read_log(path, documents=documents, labels=list(log.extra_labels))
    except UntiltError:
        return
    assert isinstance(found, ClickLog)

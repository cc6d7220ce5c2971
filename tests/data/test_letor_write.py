"""Writing LETOR text: what is written reads back equal, bit for bit."""

import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from untilt.data.judged import JudgedLists
from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor
from untilt.errors import BadRowsError, OptionError

WORDS = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\v\f\r #"), min_size=1
)


def lists(**changes):
    """Two queries with three documents; what a test changes overrides."""
    fields = {
        "features": np.array([[0.1, 0], [-2, 1e-7], [3e20, 1]], np.float32),
        "labels": [2, 0, 0.5],
        "indptr": [0, 2, 3],
        "query_id": [5, 7],
        **changes,
    }
    return JudgedLists(**fields)


def assert_same(found, expected):
    """Equal in every array, bits of floats and types of ids included."""
    assert found.features.dtype == expected.features.dtype == np.float32
    np.testing.assert_array_equal(found.features.view(np.uint32), expected.features.view(np.uint32))
    np.testing.assert_array_equal(found.labels.view(np.uint64), expected.labels.view(np.uint64))
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    for ids, others in ((found.query_id, expected.query_id), (found.doc_id, expected.doc_id)):
        assert ids.dtype == others.dtype
        assert ids.tolist() == others.tolist()


def is_whole(text):
    """Whether a text reads as a whole number; the format cannot tell it from one."""
    try:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


def ids(n, *, unique):
    """Whole numbers, or texts that are not all whole numbers."""
    whole = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n, unique=unique)
    texts = st.lists(WORDS, min_size=n, max_size=n, unique=unique)
    return whole | texts.filter(lambda drawn: not all(map(is_whole, drawn)))


@st.composite
def judged_lists(draw):
    lengths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    n, n_columns = sum(lengths), draw(st.integers(0, 12))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False)
    labels = st.floats(0, allow_nan=False, allow_infinity=False) | st.integers(0, 4).map(float)
    return JudgedLists(
        features=draw(hnp.arrays(np.float32, (n, n_columns), elements=values)),
        labels=draw(st.lists(labels, min_size=n, max_size=n)),
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        query_id=draw(ids(len(lengths), unique=True)),
        doc_id=draw(st.none() | ids(n, unique=False)),
    )


@settings(deadline=None, max_examples=150)
@given(judged=judged_lists(), packed=st.booleans())
def test_random_lists_survive_writing_and_reading(tmp_path_factory, judged, packed):
    path = tmp_path_factory.getbasetemp() / f"survive.txt{'.gz' if packed else ''}"
    write_letor(judged, path)
    # A column of features that nobody names is no column; zeros are named too, so none gets lost.
    assert_same(read_letor(path), judged)


def test_the_text_is_what_people_expect(tmp_path):
    write_letor(lists(), tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == (
        "2 qid:5 1:0.1 2:0\n0 qid:5 1:-2 2:1e-7\n0.5 qid:7 1:3e20 2:1\n"
    )
    write_letor(lists(query_id=["a", "b"], doc_id=["x", "y", "z#"]), tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == (
        "2 qid:a 1:0.1 2:0 #docid = x\n"
        "0 qid:a 1:-2 2:1e-7 #docid = y\n"
        "0.5 qid:b 1:3e20 2:1 #docid = z#\n"
    )


def test_gzip_by_name_and_equal_bytes_each_time(tmp_path):
    for name in ("a.txt.gz", "b.gz"):
        write_letor(lists(), tmp_path / name)
    packed = (tmp_path / "a.txt.gz").read_bytes()
    assert packed == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress(packed).startswith(b"2 qid:5 1:0.1")
    assert_same(read_letor(str(tmp_path / "a.txt.gz")), lists())


def test_many_batches(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("untilt.data.letor.write_letor._BATCH_BYTES", 3000)
    monkeypatch.setattr("untilt.data.letor.write_letor._SLICE_BYTES", 900)
    lengths = rng.integers(1, 30, size=40)
    judged = JudgedLists(
        features=rng.normal(size=(lengths.sum(), 11)),
        labels=rng.integers(0, 5, size=lengths.sum()),
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        query_id=[f"q{i}" for i in range(40)],
        doc_id=[f"d{i}" * (i % 7 + 1) for i in range(lengths.sum())],
    )
    write_letor(judged, tmp_path / "many.txt")
    assert_same(read_letor(tmp_path / "many.txt"), judged)


@pytest.mark.parametrize("bad", ["", "a b", "a\nb", "a\tb", "a\0", "\ud800"])
def test_ids_that_the_format_cannot_hold(tmp_path, bad):
    with pytest.raises(BadRowsError, match=r"doc_id must be one word .* Rename"):
        write_letor(lists(doc_id=np.array(["x", bad, "y"], dtype=object)), tmp_path / "a.txt")
    with pytest.raises(BadRowsError, match=r"query_id must be one word .* Rename"):
        write_letor(lists(query_id=np.array(["x", bad], dtype=object)), tmp_path / "a.txt")
    assert list(tmp_path.iterdir()) == []


def test_a_hash_would_end_a_query_id(tmp_path):
    with pytest.raises(BadRowsError, match=r"query_id must be one word .*or #. Got 'x#'"):
        write_letor(lists(query_id=["x#", "y"]), tmp_path / "a.txt")


def test_a_query_that_comes_twice_cannot_be_written(tmp_path):
    with pytest.raises(BadRowsError, match=r"query_id must be unique .* Got 5 twice"):
        write_letor(lists(query_id=[5, 5]), tmp_path / "a.txt")


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_features_must_be_finite(tmp_path, value):
    features = np.array([[1, 2], [3, value], [4, 5]], np.float32)
    with pytest.raises(BadRowsError, match=f"Row 1 has {value} in f2"):
        write_letor(lists(features=features), tmp_path / "a.txt")


def test_empty_queries_cannot_be_written(tmp_path):
    with pytest.raises(BadRowsError, match="a query without documents"):
        write_letor(lists(indptr=[0, 3, 3]), tmp_path / "a.txt")
    nothing = JudgedLists(np.zeros((0, 2)), np.zeros(0), np.zeros(1, dtype=int), np.zeros(0, int))
    with pytest.raises(BadRowsError, match="a query without documents"):
        write_letor(nothing, tmp_path / "a.txt")


def test_a_path_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OptionError, match="is a folder"):
        write_letor(lists(), tmp_path / "folder")
    for path in (3, [tmp_path / "a", tmp_path / "b"]):
        with pytest.raises(OptionError, match="path must be one file"):
            write_letor(lists(), path)  # type: ignore[arg-type]


def test_an_error_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_letor(lists(), path)
    before = path.read_bytes()

    def fails(*arguments):
        yield b"half a line"
        raise KeyboardInterrupt

    monkeypatch.setattr("untilt.data.letor.write_letor._formatted", fails)
    with pytest.raises(KeyboardInterrupt):
        write_letor(lists(), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]

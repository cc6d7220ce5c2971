"""Public data sets: the counts that their makers state, and the values that scikit-learn reads."""

import gzip

import numpy as np
import pytest

from untilt.data.letor.read_letor import read_letor
from untilt.data.letor.write_letor import write_letor


@pytest.fixture
def files(data_dir):
    """The files of one data set, in order."""

    def files(name):
        found = sorted((data_dir / name).glob("*.txt.gz"))
        if not found:
            pytest.skip(f"no files in {data_dir / name}")
        return found

    return files


@pytest.mark.parametrize(
    ("name", "n_rows", "n_queries", "n_features", "grades"),
    [
        ("mq2008", 15_211, 784, 46, [0, 1, 2]),
        ("ohsumed", 16_140, 106, 25, [0, 1, 2]),
        ("mslr-sample", 10_000, 86, 136, [0, 1, 2, 3, 4]),
    ],
)
def test_counts(files, name, n_rows, n_queries, n_features, grades):
    judged = read_letor(files(name))
    assert (len(judged), judged.n_queries, judged.n_features) == (n_rows, n_queries, n_features)
    assert np.unique(judged.labels).tolist() == grades


def test_document_ids(files):
    first = read_letor(files("mq2008")[0])
    assert first.query_id[0] == 10002
    assert first.doc_id[:2].tolist() == ["GX008-86-4444840", "GX037-06-11625428"]
    assert read_letor(files("ohsumed")[0]).doc_id[:2].tolist() == [7612, 7710]
    assert read_letor(files("mslr-sample")[0]).doc_id[:3].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["mq2008", "mslr-sample"])
def test_equal_to_scikit_learn(files, name):
    from sklearn.datasets import load_svmlight_file

    for path in files(name):
        judged = read_letor(path)
        features, labels, query = load_svmlight_file(str(path), query_id=True)
        np.testing.assert_array_equal(judged.features, features.toarray().astype(np.float32))
        np.testing.assert_array_equal(judged.labels, labels)
        np.testing.assert_array_equal(np.repeat(judged.query_id, np.diff(judged.indptr)), query)


@pytest.mark.parametrize("name", ["mq2008", "ohsumed", "mslr-sample"])
def test_written_files_are_read_equal_by_both(files, name, tmp_path):
    from sklearn.datasets import load_svmlight_file

    judged = read_letor(files(name)[0])
    for path in (tmp_path / "again.txt", tmp_path / "again.txt.gz"):
        write_letor(judged, path)
        again = read_letor(path)
        for field in ("features", "labels", "indptr", "query_id", "doc_id"):
            np.testing.assert_array_equal(getattr(again, field), getattr(judged, field))
        features = load_svmlight_file(str(path))[0].toarray()
        np.testing.assert_array_equal(features.astype(np.float32), judged.features)
    packed = (tmp_path / "again.txt.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "again.txt").read_bytes()

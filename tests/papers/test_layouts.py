"""Public data sets in the layout of their releases: made-up files of that form."""

import gzip

import numpy as np
import pytest

from untilt.errors import FileFormatError, OptionError
from untilt.papers.datasets import Source, source_of
from untilt.papers.layouts import LAYOUTS
from untilt.papers.schema import Size


def lines(n_features, queries, *, sparse=False):
    """Two documents per query; `queries` are their ids."""
    kept = [j for j in range(1, n_features + 1) if not sparse or j % 7 == 0 or j == n_features]
    return "".join(
        f"{grade} qid:{q} " + " ".join(f"{j}:{(q + j + grade) % 5}" for j in kept) + "\n"
        for q in queries
        for grade in (0, 1)
    )


def write(path, text, *, zipped=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    if zipped:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


def folded(folder, n_features):
    for fold in range(1, 6):
        for number, part in enumerate(("train", "vali", "test")):
            text = lines(n_features, [100 * fold + 10 * number, 100 * fold + 10 * number + 1])
            write(folder / f"Fold{fold}" / f"{part}.txt", text)


@pytest.mark.parametrize("name", ["mslr-web10k", "mslr-web30k"])
def test_mslr_has_five_folds(tmp_path, name):
    folded(tmp_path, 136)
    source = source_of(name, tmp_path)
    train, test = source.parts(seed=0, fold=3, size=Size(), most_queries=None)
    assert train.query_id.tolist() == [300, 301]
    assert test.query_id.tolist() == [320, 321]  # vali.txt is not touched
    assert train.n_features == test.n_features == 136
    assert source.runs(Size(fold_seeds=2)) == [(s, f) for s in (0, 1) for f in range(1, 6)]


def test_the_folder_of_the_archive_is_found_inside(tmp_path):
    folded(tmp_path / "MSLR-WEB10K", 136)
    assert source_of("mslr-web10k", tmp_path).folds == 5


def test_yahoo_is_sparse_and_has_no_folds(tmp_path):
    write(tmp_path / "set1.train.txt", lines(699, [1, 2, 3], sparse=True))
    write(tmp_path / "set1.valid.txt", lines(699, [4], sparse=True))
    write(tmp_path / "set1.test.txt", lines(343, [5, 6], sparse=True))
    source = source_of("yahoo", tmp_path)
    train, test = source.parts(seed=0, fold=1, size=Size(), most_queries=None)
    assert (train.n_queries, test.n_queries) == (3, 2)
    assert train.n_features == test.n_features == 700
    assert source.runs(Size(seeds=2)) == [(0, 1), (1, 1)]


def test_istella_writes_the_largest_double_for_far_away(tmp_path):
    far = "1 qid:1 1:1.7976931348623157e+308 " + " ".join(f"{j}:1" for j in range(2, 221)) + "\n"
    write(tmp_path / "full" / "train.txt", far + lines(220, [1, 2]))
    write(tmp_path / "full" / "test.txt", lines(220, [3]))
    train, _ = source_of("istella", tmp_path).parts(seed=0, fold=1, size=Size(), most_queries=None)
    assert np.isfinite(train.features).all()
    assert train.features[0, 0] == train.features[1:, 0].max()


@pytest.mark.parametrize(("name", "inside"), [("istella", "full"), ("istella-s", "sample")])
def test_istella_may_lie_in_its_inner_folder(tmp_path, name, inside):
    for part in ("train", "test"):
        write(tmp_path / inside / f"{part}.txt", lines(220, [1, 2]))
    train, _ = source_of(name, tmp_path).parts(seed=0, fold=1, size=Size(), most_queries=None)
    assert train.n_features == 220


def test_gzip_and_letor_rotation(tmp_path):
    """Fold k trains on three parts from S_k on and tests on the fifth."""
    for part in range(1, 6):
        write(tmp_path / f"S{part}.txt", lines(46, [part]), zipped=True)
    source = source_of("mq2008", tmp_path)
    train, test = source.parts(seed=0, fold=4, size=Size(), most_queries=None)
    assert train.query_id.tolist() == [4, 5, 1]
    assert test.query_id.tolist() == [3]


def test_missing_files_are_named(tmp_path):
    folded(tmp_path, 136)
    (tmp_path / "Fold4" / "test.txt").unlink()
    with pytest.raises(FileFormatError) as error:
        source_of("mslr-web10k", tmp_path)
    assert "lacks Fold4/test.txt of MSLR-WEB10K" in str(error.value)
    assert "It holds: Fold1, Fold2" in str(error.value)


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(FileFormatError, match=r"is no folder\. Give --path the folder that holds"):
        source_of("yahoo", tmp_path / "nowhere")


def test_another_number_of_features_is_another_data_set(tmp_path):
    folded(tmp_path, 46)
    message = "first line has features up to 46, and MSLR-WEB10K has 136"
    with pytest.raises(FileFormatError, match=message):
        source_of("mslr-web10k", tmp_path)


def test_a_file_without_lists(tmp_path):
    write(tmp_path / "set1.train.txt", "# nothing\n")
    write(tmp_path / "set1.test.txt", lines(343, [5]))
    with pytest.raises(FileFormatError, match="holds no line with features"):
        source_of("yahoo", tmp_path)


def test_names_and_folders(monkeypatch, tmp_path):
    with pytest.raises(OptionError, match=r"Did you mean 'mq2008'\?"):
        source_of("mq2007")
    with pytest.raises(OptionError, match="--path is for public data sets"):
        source_of("made", tmp_path)
    monkeypatch.delenv("UNTILT_DATA", raising=False)
    with pytest.raises(OptionError, match="needs the folder where it lies"):
        source_of("yahoo")
    for part in ("train", "test"):
        write(tmp_path / "yahoo" / f"set1.{part}.txt", lines(700, [1]))
    monkeypatch.setenv("UNTILT_DATA", str(tmp_path))
    assert source_of("yahoo").folder == tmp_path / "yahoo"


def test_a_fold_that_is_not_there(tmp_path):
    with pytest.raises(OptionError, match=r"folds 1\.\.5"):
        LAYOUTS["mq2008"].files(tmp_path, 6)


def test_quick_takes_some_queries_of_a_public_set(tmp_path):
    for part in range(1, 6):
        write(tmp_path / f"S{part}.txt", lines(46, range(10 * part, 10 * part + 8)))
    source = source_of("mq2008", tmp_path)
    train, test = source.parts(seed=1, fold=1, size=Size(), most_queries=5)
    again, _ = source.parts(seed=1, fold=1, size=Size(), most_queries=5)
    other, _ = source.parts(seed=2, fold=1, size=Size(), most_queries=5)
    assert train.n_queries == test.n_queries == 5
    assert train.query_id.tolist() == again.query_id.tolist() != other.query_id.tolist()


@pytest.mark.parametrize("name", ["mq2008", "ohsumed", "mslr-sample"])
def test_the_real_sets_are_understood(data_dir, name):
    source = source_of(name, data_dir / name)
    train, test = source.parts(seed=0, fold=1, size=Size(), most_queries=None)
    assert train.n_features == LAYOUTS[name].features
    assert not set(train.query_id.tolist()) & set(test.query_id.tolist())


def test_made_data_has_new_queries_for_every_seed():
    size = Size(queries=12, test_queries=15, features=6)
    source = Source()
    train, test = source.parts(seed=0, fold=1, size=size, most_queries=None)
    other, _ = source.parts(seed=1, fold=1, size=size, most_queries=None)
    assert (train.n_queries, test.n_queries, train.n_features) == (12, 15, 6)
    assert not np.array_equal(train.features[:20], other.features[:20])
    assert not np.array_equal(train.features[:20], test.features[:20])

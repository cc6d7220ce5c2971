"""Public data sets in the layout of their releases: made-up files of that form."""

import gzip
import tracemalloc

import numpy as np
import pytest

from untilt.errors import BadRowsError, FileFormatError, OptionError
from untilt.papers.datasets import JudgedSource, source_of
from untilt.papers.layouts import LAYOUTS
from untilt.papers.schema import ExperimentSize


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
    train, test = source.parts(seed=0, fold=3, size=ExperimentSize(), most_queries=None)
    assert train.query_id.tolist() == [300, 301]
    assert test.query_id.tolist() == [320, 321]  # vali.txt is not touched
    assert train.n_features == test.n_features == 136
    assert source.runs(ExperimentSize(fold_seeds=2)) == [
        (s, f) for s in (0, 1) for f in range(1, 6)
    ]


def test_the_folder_of_the_archive_is_found_inside(tmp_path):
    folded(tmp_path / "MSLR-WEB10K", 136)
    assert source_of("mslr-web10k", tmp_path).folds == 5


def test_yahoo_is_sparse_and_has_no_folds(tmp_path):
    write(tmp_path / "set1.train.txt", lines(699, [1, 2, 3], sparse=True))
    write(tmp_path / "set1.valid.txt", lines(699, [4], sparse=True))
    write(tmp_path / "set1.test.txt", lines(343, [5, 6], sparse=True))
    source = source_of("yahoo", tmp_path)
    train, test = source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=None)
    assert (train.n_queries, test.n_queries) == (3, 2)
    assert train.n_features == test.n_features == 700
    assert source.runs(ExperimentSize(seeds=2)) == [(0, 1), (1, 1)]


def test_istella_writes_the_largest_double_for_far_away(tmp_path):
    far = "1 qid:1 1:1.7976931348623157e+308 " + " ".join(f"{j}:1" for j in range(2, 221)) + "\n"
    write(tmp_path / "full" / "train.txt", far + lines(220, [1, 2]))
    write(tmp_path / "full" / "test.txt", lines(220, [3]))
    train, _ = source_of("istella", tmp_path).parts(
        seed=0, fold=1, size=ExperimentSize(), most_queries=None
    )
    assert np.isfinite(train.features).all()
    assert train.features[0, 0] == train.features[1:, 0].max()


@pytest.mark.parametrize(("name", "inside"), [("istella", "full"), ("istella-s", "sample")])
def test_istella_may_lie_in_its_inner_folder(tmp_path, name, inside):
    for part in ("train", "test"):
        write(tmp_path / inside / f"{part}.txt", lines(220, [1, 2]))
    train, _ = source_of(name, tmp_path).parts(
        seed=0, fold=1, size=ExperimentSize(), most_queries=None
    )
    assert train.n_features == 220


def test_gzip_and_letor_rotation(tmp_path):
    """Fold k trains on three parts from S_k on and tests on the fifth."""
    for part in range(1, 6):
        write(tmp_path / f"S{part}.txt", lines(46, [part]), zipped=True)
    source = source_of("mq2008", tmp_path)
    train, test = source.parts(seed=0, fold=4, size=ExperimentSize(), most_queries=None)
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
        source_of("mq2009")
    with pytest.raises(OptionError, match="--path is the folder of a public data set"):
        source_of("mine", tmp_path)
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


# ---- folders: which data set they hold


def parts(folder, n_features):
    for part in range(1, 6):
        write(folder / f"S{part}.txt", lines(n_features, [part]))


def plain(folder, n_features):
    for number, part in enumerate(("train", "vali", "test")):
        write(folder / f"{part}.txt", lines(n_features, [number]), zipped=part == "test")


def yahoo(folder, number):
    for place, part in enumerate(("train", "valid", "test")):
        write(folder / f"set{number}.{part}.txt", lines(690, [place], sparse=True))


def letor_3(folder, n_features):
    for fold in range(1, 6):
        for number, part in enumerate(("training", "validation", "test")):
            text = lines(n_features, [10 * fold + number])
            write(folder / f"Fold{fold}" / f"{part}set.txt", text)


@pytest.mark.parametrize(
    ("make", "size", "place", "name"),
    [
        (yahoo, 1, "anything", "yahoo"),
        (yahoo, 2, "ltrc_yahoo", "yahoo-2"),
        (folded, 136, "MSLR-WEB10K", "mslr-web10k"),
        (folded, 136, "data/mslr_web30k/folds", "mslr-web30k"),
        (folded, 46, "MQ2007", "mq2007"),
        (parts, 46, "Letor4/MQ2008", "mq2008"),
        (parts, 25, "ohsumed", "ohsumed"),
        (letor_3, 45, "OHSUMED/QueryLevelNorm", "ohsumed"),
        (plain, 220, "istella-letor/full", "istella"),
        (plain, 220, "istella-s-letor/sample", "istella-s"),
        (plain, 136, "mslr-sample", "mslr-sample"),
    ],
)
def test_a_folder_is_recognised(tmp_path, make, size, place, name):
    make(tmp_path / place, size)
    source = source_of(str(tmp_path / place))
    assert (source.name, source.own) == (name, None)
    assert str(tmp_path / place) in source.found
    train, test = source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=None)
    assert not set(train.query_id.tolist()) & set(test.query_id.tolist())


def test_the_folder_may_be_one_or_two_above(tmp_path):
    folded(tmp_path / "a" / "MSLR-WEB10K", 136)
    assert source_of(str(tmp_path)).folder == tmp_path / "a" / "MSLR-WEB10K"


@pytest.mark.parametrize(
    ("make", "size", "place", "folds"),
    [(plain, 12, "shop", 1), (folded, 136, "shop", 5), (parts, 46, "MSLR-WEB10K", 5)],
)
def test_a_folder_of_ones_own_has_its_own_name(tmp_path, make, size, place, folds):
    """Files as a release has them, and yet another set: by its features or by its name."""
    make(tmp_path / place, size)
    source = source_of(str(tmp_path / place))
    assert source.name not in LAYOUTS
    assert source.name.startswith(place.lower())
    assert (source.title, source.folds) == (place, folds)
    assert "data of your own" in source.found
    train, _ = source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=None)
    assert train.n_features == size


def test_other_data_in_a_folder_of_the_same_name_has_another_name(tmp_path):
    plain(tmp_path / "a" / "shop", 12)
    plain(tmp_path / "b" / "shop", 13)
    first, second = (source_of(str(tmp_path / which / "shop")) for which in "ab")
    assert first.name != second.name
    (tmp_path / "a").rename(tmp_path / "c")
    assert source_of(str(tmp_path / "c" / "shop")).name == first.name


def test_features_that_one_part_alone_names(tmp_path):
    """Grades and numbers of features are those of the files: 0 to 2 and 3 columns here."""
    write(tmp_path / "train.txt", "2 qid:1 1:1\n0 qid:1 2:1\n")
    write(tmp_path / "test.txt", "1 qid:2 3:4\n")
    source = source_of(str(tmp_path))
    train, test = source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=None)
    assert train.features.tolist() == [[1, 0, 0], [0, 1, 0]]
    assert test.features.tolist() == [[0, 0, 4]]
    assert train.labels.tolist() == [2, 0]


def test_an_unknown_folder_names_what_it_holds_and_what_is_known(tmp_path):
    write(tmp_path / "clicks.csv", "a,b")
    with pytest.raises(FileFormatError) as error:
        source_of(str(tmp_path))
    assert "It holds: clicks.csv" in str(error.value)
    assert "Fold1/train.txt, Fold1/test.txt ... Fold5/test.txt (MQ2007," in str(error.value)
    assert "set1.train.txt, set1.test.txt (Yahoo set 1)" in str(error.value)


def test_several_data_sets_in_a_folder(tmp_path):
    plain(tmp_path / "a", 12)
    plain(tmp_path / "b", 12)
    with pytest.raises(FileFormatError, match=r"holds several data sets: .*a, .*b"):
        source_of(str(tmp_path))


def test_a_fold_that_is_missing(tmp_path):
    folded(tmp_path / "MQ2007", 46)
    (tmp_path / "MQ2007" / "Fold3" / "train.txt").unlink()
    with pytest.raises(FileFormatError, match=r"lacks Fold3/train\.txt of MQ2007"):
        source_of(str(tmp_path / "MQ2007"))


# ---- some queries of a large set


def test_drawing_while_reading_is_drawing_from_what_was_read(tmp_path):
    for part in range(1, 6):
        queries = range(10 * part, 10 * part + 8)
        comment = "# a comment\n\n" if part == 2 else ""
        write(tmp_path / f"S{part}.txt", comment + lines(46, queries))
    source = source_of("mq2008", tmp_path)
    whole, _ = source.parts(seed=3, fold=2, size=ExperimentSize(), most_queries=None)
    some, _ = source.parts(seed=3, fold=2, size=ExperimentSize(), most_queries=7)
    expected = whole.take(np.isin(whole.query_id, some.query_id))
    assert some.n_queries == 7
    assert np.array_equal(some.features, expected.features)
    assert np.array_equal(some.labels, expected.labels)
    assert np.array_equal(some.query_id, expected.query_id)


def test_only_what_is_drawn_is_held_in_memory(tmp_path):
    """2,000 queries of 5 sparse documents with 4,000 features: 160 MB as a table."""
    text = "".join(f"1 qid:{q} 4000:{d}\n" for q in range(2000) for d in range(5))
    for part in ("train", "test"):
        write(tmp_path / f"{part}.txt", text)
    source = source_of(str(tmp_path))
    source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=3)  # compiles
    tracemalloc.start()
    source.parts(seed=1, fold=1, size=ExperimentSize(), most_queries=3)
    drawn = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert drawn < 30e6  # a block of text has 16 MB


def test_a_bad_line_keeps_its_number_where_queries_are_drawn(tmp_path):
    text = lines(5, range(20)) + "1 5:3\n"
    for part in ("train", "test"):
        write(tmp_path / f"{part}.txt", text)
    with pytest.raises(BadRowsError, match=r"train\.txt line 41"):
        source_of(str(tmp_path)).parts(seed=1, fold=1, size=ExperimentSize(), most_queries=3)


def test_quick_takes_some_queries_of_a_public_set(tmp_path):
    for part in range(1, 6):
        write(tmp_path / f"S{part}.txt", lines(46, range(10 * part, 10 * part + 8)))
    source = source_of("mq2008", tmp_path)
    train, test = source.parts(seed=1, fold=1, size=ExperimentSize(), most_queries=5)
    again, _ = source.parts(seed=1, fold=1, size=ExperimentSize(), most_queries=5)
    other, _ = source.parts(seed=2, fold=1, size=ExperimentSize(), most_queries=5)
    assert train.n_queries == test.n_queries == 5
    assert train.query_id.tolist() == again.query_id.tolist() != other.query_id.tolist()


@pytest.mark.parametrize("name", ["mq2008", "ohsumed", "mslr-sample"])
def test_the_real_sets_are_understood(data_dir, name):
    source = source_of(name, data_dir / name)
    train, test = source.parts(seed=0, fold=1, size=ExperimentSize(), most_queries=None)
    assert train.n_features in LAYOUTS[name].features
    assert source_of(str(data_dir / name)) == source
    assert not set(train.query_id.tolist()) & set(test.query_id.tolist())


def test_made_data_has_new_queries_for_every_seed():
    size = ExperimentSize(queries=12, test_queries=15, features=6)
    source = JudgedSource()
    train, test = source.parts(seed=0, fold=1, size=size, most_queries=None)
    other, _ = source.parts(seed=1, fold=1, size=size, most_queries=None)
    assert (train.n_queries, test.n_queries, train.n_features) == (12, 15, 6)
    assert not np.array_equal(train.features[:20], other.features[:20])
    assert not np.array_equal(train.features[:20], test.features[:20])

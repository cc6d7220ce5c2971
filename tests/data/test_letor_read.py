"""Reading LETOR text: every rule of the format, on files small enough to see."""

import gzip
import itertools
import re

import numpy as np
import pytest

from untilt.data.letor import parse as letor_lines
from untilt.data.letor import parse as letor_parse
from untilt.data.letor.read_letor import read_letor
from untilt.errors import BadRowsError, FileFormatError, OptionError


@pytest.fixture
def read(tmp_path):
    """Write bytes or text to a file and read it."""

    def read(content, **options):
        path = tmp_path / "lists.txt"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_letor(path, **options)

    return read


def slow_read(text):
    """The format in plain Python: (label, query, {id: value}, document or None) per row."""
    rows = []
    for line in text.split("\n"):
        body, _, comment = line.partition("#")
        if not body.split():
            continue
        label, query, *features = body.split()
        document = re.match(r"\s*(?:docid\s*[=:]\s*)?(\S+)", comment)
        values = {int(f.split(":")[0]): float(f.split(":")[1]) for f in features}
        rows.append((float(label), query[4:], values, document and document[1]))
    return rows


def test_a_small_file(read):
    judged = read("2 qid:7 1:0.5 2:-3\n0 qid:7 1:1 2:4\n1 qid:9 1:2 2:8\n")
    np.testing.assert_array_equal(
        judged.features, np.array([[0.5, -3], [1, 4], [2, 8]], np.float32)
    )
    np.testing.assert_array_equal(judged.labels, [2, 0, 1])
    np.testing.assert_array_equal(judged.indptr, [0, 2, 3])
    assert judged.query_id.tolist() == [7, 9]
    assert judged.doc_id.tolist() == [0, 1, 0]
    assert judged.features.dtype == np.float32
    assert judged.feature_names == ("f1", "f2")


def test_the_arrays_cannot_be_written_to(read):
    judged = read("2 qid:7 1:0.5\n")
    for array in (judged.features, judged.labels, judged.indptr, judged.query_id, judged.doc_id):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    "text",
    [
        "1 qid:a 1:2 3:4\n0 qid:b 2:5\n",
        "1\tqid:a\t1:2\t3:4\n0\tqid:b\t2:5\n",
        "  1   qid:a  1:2    3:4   \n\t0 qid:b 2:5\t \n",
        "1 qid:a 1:2 3:4\r\n0 qid:b 2:5\r\n",
        "1 qid:a 1:2 3:4\n0 qid:b 2:5",
        "\n\n1 qid:a 1:2 3:4\n   \n\r\n0 qid:b 2:5\n\n",
        "# made by hand\n1 qid:a 1:2 3:4\n  # between\n0 qid:b 2:5\n#",
        "1 qid:a 3:4 1:2\n0 qid:b 2:5\n",
        "1 qid:a 3:4 2:0 1:2\n0.0 qid:b 2:5e0 1:0 3:-0.0\n",
        "+1 qid:a 1:+2. 3:.4e1\n0e5 qid:b 2:0.5E+1\n",
        "1 qid:a 1:2 3:4#\n0 qid:b 2:5 #  \n",
        "\ufeff1 qid:a 1:2 3:4\n0 qid:b 2:5\n",
        "1 qid:a 001:2 3:4\n0 qid:b 2:00005\n",
        "1\vqid:a 1:2\f3:4\n0 qid:b 2:5\n",
    ],
)
def test_spacing_order_and_notation_do_not_matter(read, text):
    judged = read(text)
    np.testing.assert_array_equal(judged.features, np.array([[2, 0, 4], [0, 5, 0]], np.float32))
    assert judged.labels.tolist() == [1, 0]
    assert judged.query_id.tolist() == ["a", "b"]
    assert judged.doc_id.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["7", "-3"], [7, -3]),
        (["7", "x"], ["7", "x"]),
        (["007", "8"], ["007", "8"]),
        (["1_0", "8"], ["1_0", "8"]),
        (["1.5", "2"], ["1.5", "2"]),
        (["9223372036854775807", "1"], [9223372036854775807, 1]),
        (["9223372036854775808", "1"], ["9223372036854775808", "1"]),
        (["shoes:red", "größe"], ["shoes:red", "größe"]),
    ],
)
def test_ids_are_whole_numbers_or_text(read, ids, expected):
    judged = read("".join(f"1 qid:{i} 1:2 # {i}\n" for i in ids))
    assert judged.query_id.tolist() == expected
    assert judged.doc_id.tolist() == expected


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("#docid = GX008-86-4444840 inc = 1 prob = 0.086622", "GX008-86-4444840"),
        ("# docid = GX1", "GX1"),
        ("#docid=GX1 inc=2", "GX1"),
        ("#docid: GX1", "GX1"),
        ("#docid = 7612", 7612),
        ("# some words here", "some"),
        ("#\tGX1\r", "GX1"),
        ("#docid77 x", "docid77"),
        ("#docid", "docid"),
        ("#a#b", "a#b"),
        ("#docid = docid = 3", "docid"),
        ("#docid =", 0),
        ("#", 0),
        ("", 0),
    ],
)
def test_the_document_id_stands_in_the_comment(read, comment, expected):
    assert read(f"1 qid:3 1:2 {comment}\n").doc_id.tolist() == [expected]


def test_rows_without_document_id_get_their_place_among_those_with(read):
    judged = read("1 qid:3 1:2 #A\n1 qid:3 1:2\n1 qid:4 1:2\n")
    assert judged.doc_id.tolist() == ["A", "1", "0"]


def test_rows_without_features(read):
    judged = read("1 qid:3\n0 qid:3 # d\n")
    assert judged.features.shape == (2, 0)


def test_n_features_and_names(read):
    text = "1 qid:3 1:2\n"
    assert read(text, n_features=3).features.tolist() == [[2, 0, 0]]
    assert read(text, n_features=np.int64(3)).n_features == 3
    judged = read(text, feature_names=["bm25", "age"])
    assert judged.features.tolist() == [[2, 0]]
    assert judged.feature_names == ("bm25", "age")


def test_zero_based_ids(read):
    text = "1 qid:3 0:2 2:5\n"
    assert read(text, zero_based=True).features.tolist() == [[2, 0, 5]]
    with pytest.raises(BadRowsError, match=r"lists.txt line 1: .*'0:2'.*zero_based=True"):
        read(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("qid:3 1:2", "label, a finite number. Got 'qid:3' instead"),
        ("nan qid:3 1:2", "label, a finite number. Got 'nan'"),
        ("inf qid:3 1:2", "label, a finite number. Got 'inf'"),
        ("1e999 qid:3 1:2", "label, a finite number. Got '1e999'"),
        ("-1 qid:3 1:2", "at least 0. Got '-1'"),
        ("1", "must follow the label. Got the end of the line"),
        ("1 # qid:3", "must follow the label. Got the end of the line"),
        ("1 1:2", "must follow the label. Got '1:2'"),
        ("1 qid: 1:2", "must follow the label. Got 'qid:'"),
        ("1 qid 3 1:2", "must follow the label. Got 'qid'"),
        ("1 1:2 qid:3", "must follow the label. Got '1:2'"),
        ("1 qid:3 1", "id:value with a whole number as id. Got '1'"),
        ("1 qid:3 x:1", "id:value with a whole number as id. Got 'x:1'"),
        ("1 qid:3 -1:1", "id:value with a whole number as id. Got '-1:1'"),
        ("1 qid:3 1.0:1", "id:value with a whole number as id. Got '1.0:1'"),
        ("1 qid:3 1 :1", "id:value with a whole number as id. Got '1'"),
        ("1 qid:3 qid:4", "id:value with a whole number as id. Got 'qid:4'"),
        ("1 qid:3 0:1", "ids start at 1. Got '0:1'"),
        ("1 qid:3 1:", "value must be a finite number. Got '1:'"),
        ("1 qid:3 1:a", "value must be a finite number. Got '1:a'"),
        ("1 qid:3 1:2x", "value must be a finite number. Got '1:2x'"),
        ("1 qid:3 1:1e", "value must be a finite number. Got '1:1e'"),
        ("1 qid:3 1:.", "value must be a finite number. Got '1:.'"),
        ("1 qid:3 1:--1", "value must be a finite number. Got '1:--1'"),
        ("1 qid:3 1:0x10", "value must be a finite number. Got '1:0x10'"),
        ("1 qid:3 1:1_0", "value must be a finite number. Got '1:1_0'"),
        ("1 qid:3 1:2:3", "value must be a finite number. Got '1:2:3'"),
        ("1 qid:3 1:nan", "value must be a finite number. Got '1:nan'"),
        ("1 qid:3 1:-inf", "value must be a finite number. Got '1:-inf'"),
        ("1 qid:3 1:4e38", "too large for single precision (3.4e38). Got '1:4e38'"),
        ("1 qid:3 1:1e99999999999999999999", "too large for single precision"),
        ("1 qid:3 5:1 5:1", "twice in one line. Got '5:1'"),
        ("1 qid:3 5:1 2:1 5:0", "twice in one line. Got '5:0'"),
        ("1 qid:3 1048577:1", "too large: features fill a dense table of at most 1,048,576"),
        ("1 qid:3 99999999999999999999999:1", "too large"),
        ("1 qid:3 1:" + "9" * 100 + "x", "Got '1:" + "9" * 38 + "'..."),
    ],
)
@pytest.mark.parametrize("before", ["", "2 qid:1 1:3 # x\n\n"])
def test_a_malformed_line_is_named(read, line, message, before):
    where = f"lists.txt line {before.count(chr(10)) + 1}: "
    with pytest.raises(BadRowsError, match=f"{where}.*{re.escape(message)}"):
        read(f"{before}{line}\n0 qid:zz 1:1\n")


def test_the_first_of_several_bad_lines_is_named(read):
    with pytest.raises(BadRowsError, match=r"line 2: .*'b:1'"):
        read("1 qid:1 1:1\n1 qid:1 b:1\n1 qid:1 c:1\n")


def test_an_id_beyond_n_features_is_an_error(read):
    with pytest.raises(BadRowsError, match=r"line 1: .*at most 2 columns.*'3:1'.*n_features"):
        read("1 qid:1 1:1 3:1\n", n_features=2)


def test_a_table_larger_than_memory_is_refused(read, monkeypatch):
    monkeypatch.setattr("untilt.data.letor.read_letor.physical_memory", lambda: 100)
    assert read("1 qid:1 5:1\n" * 5).features.nbytes == 100
    with pytest.raises(BadRowsError, match="6 rows with feature ids up to 5 need"):
        read("1 qid:1 5:1\n" * 6)


def test_scattered_queries_are_an_error_with_both_lines(read):
    text = "1 qid:1 1:1\n\n0 qid:2 1:1\n0 qid:2 1:1\n0 qid:1 1:1\n"
    with pytest.raises(BadRowsError, match=r"line 5: query '1' comes back.*began at \S* line 1\."):
        read(text)


def test_queries_that_share_a_beginning_are_not_one(read):
    judged = read("1 qid:1 1:1\n1 qid:12 1:1\n1 qid:2 1:1\n")
    assert judged.query_id.tolist() == [1, 12, 2]


def test_an_id_that_is_no_text(read):
    with pytest.raises(BadRowsError, match=r"line 2: an id must be UTF-8 text. Got '\\xff'"):
        read(b"1 qid:1 1:1\n1 qid:\xff 1:1\n")
    with pytest.raises(BadRowsError, match=r"line 2: an id must be UTF-8 text. Got '\\xff'"):
        read(b"1 qid:1 1:1 #a\n1 qid:1 1:1 #\xff\n")


def test_other_bytes_of_a_comment_may_be_anything_but_zero(read):
    assert read(b"1 qid:1 1:1 # d \xff\xfe\n").doc_id.tolist() == ["d"]
    with pytest.raises(FileFormatError, match="zero bytes"):
        read(b"1 qid:1 1:1 # d \0\n")


@pytest.mark.parametrize("content", ["", "\n", " \n\r\n", "# nothing\n", "\ufeff"])
def test_a_file_without_rows(read, content):
    with pytest.raises(FileFormatError, match="holds no rows"):
        read(content)


@pytest.mark.parametrize(
    "content", [b"\0" * 50, b"\x89PNG\r\n\x1a\n\0\0", b"PAR1\x15\x04\x15", b"\x80"]
)
def test_files_of_another_kind(read, content):
    with pytest.raises((FileFormatError, BadRowsError)):
        read(content)


def test_utf_16_is_recognised(read):
    with pytest.raises(FileFormatError, match="UTF-16"):
        read("1 qid:1 1:1\n".encode("utf-16"))


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(
        FileFormatError, match=r"nowhere.txt: the file cannot be read .*No such file"
    ):
        read_letor(tmp_path / "nowhere.txt")
    with pytest.raises(FileFormatError, match=r"cannot be read .*directory"):
        read_letor(tmp_path)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ([], {}),
        (3, {}),
        ([3], {}),
        (None, {}),
        ("a\0b", {}),
        ("x", {"n_features": 0}),
        ("x", {"n_features": 2.0}),
        ("x", {"n_features": True}),
        ("x", {"n_features": 2**20 + 1}),
        ("x", {"n_features": 2, "feature_names": ["a"]}),
        ("x", {"feature_names": "ab"}),
        ("x", {"feature_names": []}),
        ("x", {"feature_names": [1, 2]}),
    ],
)
def test_options_are_checked(path, options):
    with pytest.raises(OptionError, match="must"):
        read_letor(path, **options)


def test_gzip_is_known_by_its_first_bytes(read):
    text = b"1 qid:1 1:1\n0 qid:1 1:2\n"
    assert read(gzip.compress(text)).features.tolist() == [[1], [2]]
    halves = gzip.compress(text[:12]) + gzip.compress(text[12:])
    assert read(halves).features.tolist() == [[1], [2]]


def test_gzip_cut_off_or_damaged(read):
    packed = gzip.compress(b"".join(b"1 qid:%d 1:%d\n" % (i, i * i) for i in range(300)))
    for end in (2, 9, 12, len(packed) // 2, len(packed) - 8, len(packed) - 1):
        with pytest.raises(
            FileFormatError, match=r"lists.txt: the gzip data is damaged or cut off"
        ):
            read(packed[:end])
    for place in (len(packed) // 2, len(packed) - 6):
        damaged = bytearray(packed)
        damaged[place] ^= 0xFF
        with pytest.raises(FileFormatError, match="damaged"):
            read(bytes(damaged))
    with pytest.raises(FileFormatError, match="damaged"):
        read(packed + b"more")


def test_several_files_are_one_long_file(tmp_path):
    first, second, third = (tmp_path / name for name in ("1.txt", "2.txt.gz", "3.txt"))
    first.write_text("1 qid:a 1:1\n1 qid:b 1:2")
    second.write_bytes(gzip.compress(b"1 qid:b 2:3\n1 qid:c 1:4\n"))
    third.write_text("\n1 qid:a 1:1\n")
    judged = read_letor([first, str(second)])
    assert judged.query_id.tolist() == ["a", "b", "c"]
    assert judged.indptr.tolist() == [0, 1, 3, 4]
    assert judged.features.tolist() == [[1, 0], [2, 0], [0, 3], [4, 0]]
    assert judged.doc_id.tolist() == [0, 0, 1, 0]
    with pytest.raises(BadRowsError, match=r"3.txt line 2: query 'a' .*began at \S*1.txt line 1"):
        read_letor((first, second, third))


def test_an_empty_file_among_several(tmp_path):
    (tmp_path / "1.txt").write_text("1 qid:a 1:1\n")
    (tmp_path / "2.txt").write_text("")
    with pytest.raises(FileFormatError, match=r"2.txt: the file holds no rows"):
        read_letor([tmp_path / "1.txt", tmp_path / "2.txt"])


def random_file(rng, n_queries=40):
    """Lines with every freedom that the format has, growing wider towards the end."""
    lines = []
    for query in range(n_queries):
        for _ in range(rng.integers(1, 6)):
            ids = rng.permutation(np.arange(1, 3 + query))[: rng.integers(0, 8)]
            blank = rng.choice([" ", "\t", "  "])
            values = rng.choice([rng.normal(), rng.integers(9), 1e-30, 0.1 + 0.2], len(ids))
            words = [f"{rng.integers(3)}", f"qid:q{query}"]
            words += [f"{i}:{float(v)!r}" for i, v in zip(ids, values, strict=True)]
            comment = rng.choice(["", "#", f"#docid = D{len(lines)} x", f" # E{len(lines)}"])
            lines += [blank.join(words) + comment, *["", "# note"][: rng.integers(3)]]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("block_bytes", "slice_bytes"),
    list(itertools.product([1, 100, 1000, 1 << 24], [1, 50, 1 << 17])),
)
def test_same_as_the_slow_reader_however_the_file_is_cut(
    read, rng, monkeypatch, block_bytes, slice_bytes
):
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(letor_parse, "_SLICE_BYTES", slice_bytes)
    text = random_file(rng)
    rows, judged = slow_read(text), read(text)
    expected = np.zeros((len(rows), max(max(row[2], default=0) for row in rows)))
    for place, (_, _, values, _) in enumerate(rows):
        for number, value in values.items():
            expected[place, number - 1] = value
    np.testing.assert_array_equal(judged.features, expected.astype(np.float32))
    assert judged.labels.tolist() == [row[0] for row in rows]
    assert np.repeat(judged.query_id, np.diff(judged.indptr)).tolist() == [row[1] for row in rows]
    named = [(mine, row[3]) for mine, row in zip(judged.doc_id, rows, strict=True) if row[3]]
    assert all(mine == other for mine, other in named)
    assert len(named) > 10


def test_line_numbers_go_on_from_block_to_block(read, monkeypatch):
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", 64)
    text = "".join(f"1 qid:{i} 1:1\n\n" for i in range(50))
    with pytest.raises(BadRowsError, match=r"line 101: .*'bad'"):
        read(text + "bad")


def test_a_line_without_end_is_refused(read, monkeypatch):
    monkeypatch.setattr(letor_lines, "BLOCK_BYTES", 64)
    monkeypatch.setattr(letor_lines, "_LONGEST_LINE", 200)
    with pytest.raises(FileFormatError, match="a line is longer than"):
        read("1 qid:1 " + "1:1 " * 100)


def test_numbers_with_more_digits_than_a_double_are_read_exactly(read):
    half = "0.5000000298023223876953125"  # midway between two float32: to the even one
    above = half + "0000000000000000000000000000001"
    judged = read(f"0.1000000000000000055511151231257827 qid:1 1:{half} 2:{above} 3:-7 4:{half}1\n")
    # What counts is Python's float: the last digit of `above` is lost there, before float32.
    expected = [float(half), float(above), -7.0, float(half + "1")]
    np.testing.assert_array_equal(judged.features[0], np.array(expected, np.float32))
    assert judged.labels[0] == 0.1
    assert judged.features[0, 0] == 0.5


def test_a_value_that_python_alone_can_tell_is_too_large(read):
    limit = 2**128 - 2**103  # midway between the largest float32 and 2**128: infinite
    assert read(f"1 qid:1 1:{limit - 2**80}\n").features[0, 0] == np.finfo(np.float32).max
    with pytest.raises(BadRowsError, match=f"too large for single precision .*'1:{limit // 10}'"):
        read(f"1 qid:1 1:{limit}\n")

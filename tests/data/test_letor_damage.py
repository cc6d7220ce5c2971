"""A damaged file gives an UntiltError or a clean parse, and nothing else."""

import gzip

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from untilt.data.letor import parse as letor_lines
from untilt.data.letor import parse as letor_parse
from untilt.data.letor.read_letor import read_letor
from untilt.errors import UntiltError

VALID = (
    b"2 qid:10032 1:0.056537 2:0.000000 3:0.666667 46:0.076923 #docid = GX029-35 inc = 1\n"
    b"0 qid:10032 1:0.279152 2:-3e-7 #docid = GX030-77\r\n\n# a note\n"
    b"1.5\tqid:shoe 3:17 1:4.25 #docid = GX140-98\n"
    b"1 qid:shoe 2:123456789012345678901234567890\n"
    b"0 qid:7\n"
)
LETTERS = [bytes([b]) for b in b"0123456789:#.-+eEqid \t\r\n\0\xff_n"] + [
    b"nan",
    b"qid:",
    b"99999999",
]


@st.composite
def damaged(draw, original):
    """A few flips, deletions, insertions, moves and a cut."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "delete", "insert", "repeat", "cut"]))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 30))]
        elif kind == "insert":
            data[at:at] = draw(st.sampled_from(LETTERS) | st.binary(max_size=5))
        elif kind == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 60))]
        else:
            del data[at:]
    return bytes(data)


def check(path, data, **options):
    path.write_bytes(data)
    try:
        judged = read_letor(path, **options)
    except UntiltError:
        return
    assert len(judged) > 0
    assert np.isfinite(judged.features).all()
    assert np.isfinite(judged.labels).all()
    assert judged.indptr[-1] == len(judged) == len(judged.doc_id)
    assert len(set(judged.query_id.tolist())) == judged.n_queries


def test_the_undamaged_file_is_fine(tmp_path):
    (tmp_path / "a").write_bytes(VALID)
    assert read_letor(tmp_path / "a").features.shape == (5, 46)


@settings(deadline=None, max_examples=400)
@given(data=damaged(VALID), zero_based=st.booleans(), small=st.booleans())
@example(data=b"", zero_based=False, small=False)
def test_damaged_text(tmp_path_factory, data, zero_based, small):
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(letor_lines, "BLOCK_BYTES", 50)
            patch.setattr(letor_parse, "_SLICE_BYTES", 20)
        check(tmp_path_factory.getbasetemp() / "damaged", data, zero_based=zero_based)


@settings(deadline=None, max_examples=300)
@given(data=damaged(gzip.compress(VALID, mtime=0)))
def test_damaged_gzip(tmp_path_factory, data):
    check(tmp_path_factory.getbasetemp() / "damaged.gz", data)


@settings(deadline=None, max_examples=100)
@given(data=damaged(VALID))
def test_damaged_text_in_gzip(tmp_path_factory, data):
    check(tmp_path_factory.getbasetemp() / "damaged.txt.gz", gzip.compress(data))


@settings(deadline=None, max_examples=150)
@given(
    data=st.binary(max_size=300),
    lead=st.sampled_from([b"", b"\x1f\x8b", b"\x1f\x8b\x08", b"1 qid:"]),
)
def test_random_bytes(tmp_path_factory, data, lead):
    check(tmp_path_factory.getbasetemp() / "random", lead + data)

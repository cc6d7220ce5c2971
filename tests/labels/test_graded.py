"""Grades from files and from judges that are functions."""

import json

import pytest

from untilt.data.grades import Grades, ask_judge, read_labels
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError


def test_tables_qrels_and_the_workbench_say_the_same(tmp_path):
    (tmp_path / "a.csv").write_text("query_id,doc_id,grade,extra\n1,x,3,a\n1,y,0,b\n")
    (tmp_path / "quepid.csv").write_text("query,docid,rating\n1,x,3\n1,y,0\n")
    (tmp_path / "a.qrels").write_text("1 0 x 3\n\n1 0 y 0\n")
    ratings = [{"docId": "x", "rating": "3.0"}, {"docId": "y", "rating": "0.0"}]
    body = {"judgmentRatings": [{"query": "1", "ratings": ratings}]}
    (tmp_path / "a.json").write_text(json.dumps(body))
    for name in ("a.csv", "quepid.csv", "a.qrels", "a.json"):
        found = read_labels(tmp_path / name)
        assert [str(q) for q in found.query_id.tolist()] == ["1", "1"]
        assert found.doc_id.tolist() == ["x", "y"]
        assert found.grade.tolist() == [3, 0]
        assert found.drawn is None


def test_words_judges_and_rows_that_nobody_graded(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(
        "query_id,doc_id,grade,judge,probability,drawn\n"
        "1,x,exact,ann,.5,documents\n1,y,,ann,.25,documents\n"
    )
    with pytest.raises(BadRowsError, match="1 of 2 rows hold no grade"):
        read_labels(file)
    with pytest.raises(BadRowsError, match="'exact' is no number"):
        read_labels(file, missing="drop")
    found = read_labels(file, missing="drop", grades={"exact": 3})
    assert found.grade.tolist() == [3]
    assert found.probability.tolist() == [0.25]
    assert found.judges == ("ann",)
    assert found.drawn == "documents"


def test_bad_grades_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("query_id,doc_id\n1,x\n")
    with pytest.raises(ColumnError, match="no column for grade"):
        read_labels(tmp_path / "a.csv")
    (tmp_path / "a.qrels").write_text("1 0 x\n")
    with pytest.raises(FileFormatError, match="line 1"):
        read_labels(tmp_path / "a.qrels")
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(FileFormatError, match="judgmentRatings"):
        read_labels(tmp_path / "a.json")
    with pytest.raises(BadRowsError, match=r"at least 0\. Got -1 in row 2"):
        Grades([1, 1], [1, 2], [0, -1])
    with pytest.raises(BadRowsError, match="above 0"):
        Grades([1], [1], [0], None, [0.0])
    with pytest.raises(OptionError, match="no grade is by 'bob'"):
        Grades([1], [1], [0], ["ann"]).of("bob")


def test_a_judge_is_asked_once_and_again_where_it_failed(tmp_path):
    asked = []

    def judge(query, document):
        asked.append((query, document))
        if len(asked) in (2, 3, 4):
            raise ValueError("busy")
        return 2

    pairs = [(1, "x"), (1, "y"), (2, "z")]
    cache = tmp_path / "grades.jsonl"
    with pytest.raises(OptionError, match="failed on query 1, document 'y', after 3 tries: busy"):
        ask_judge(pairs, judge, cache=cache)
    with cache.open("a") as file:
        file.write('["1", "y"')  # cut off
    cache.write_text(cache.read_text() + "\n")
    found = ask_judge(pairs, judge, name="llm", cache=cache)
    assert found.grade.tolist() == [2, 2, 2]
    assert found.judges == ("llm",)
    assert asked == [(1, "x"), *[(1, "y")] * 4, (2, "z")]

"""Result pages in the layouts of their releases: small files written here, and the real ones."""

import gzip
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest

import untilt as ut

# Two queries in a session; the second click falls on the latest page that shows the url, the last
# one on a url that no page shows.
RELEVANCE_PREDICTION = """\
7\t0\tQ\t31\t2\ta\tb\tc
7\t5\tC\tb
7\t20\tQ\t31\t2\tb\tc\ta
7\t22\tC\tb
8\t0\tQ\t32\t2\ta\td\te
8\t9\tC\tzzz
"""
PERSONAL = """\
1\tM\t23\t55
1\t0\tQ\t0\t31\t4,5\ta,9\tb,9\tc,9
1\t3\tQ\t1\t31\t4,5\ta,9\tb,9\tc,9
1\t8\tC\t0\tb
2\tM\t23\t56
2\t0\tT\t0\t31\t4,5\ta,9\tb,9\tc,9
"""
LISTED = "31_2\ta,b,c : b , a; 31_2\tb,a,c :\n32_2\td,e : zzz\n"


def baidu_row(position, url, click, displayed, dwell):
    middle = ["4", "5", "0", click, "-", "-", "1", "90", displayed, *"00000", dwell]
    return "\t".join([position, url, *middle, *"0" * 15])


BAIDU = "\n".join(
    [
        "31\t4\x015\t6", baidu_row("1", "a", "0", "2.5", "0"), baidu_row("2", "b", "1", "9", "30"),
        "32\t4\t", baidu_row("1", "c", "0", "", ""),
    ]
)  # fmt: skip
TREC = """\
<sessiontrack2013><session num="1"><topic num="6"><desc>d</desc></topic>
<interaction num="1" starttime="0.1"><query> Tax Code </query><results>
<result rank="1"><url>u</url><clueweb12id>a</clueweb12id><title>t</title></result>
<result rank="2"><url>u</url><clueweb12id>b</clueweb12id><title>t</title></result></results>
<clicked><click num="1"><rank>2</rank><docno>b</docno></click></clicked></interaction>
<interaction num="2"><query>tax</query><results>
<result rank="11"><url>u</url><clueweb09id>c</clueweb09id></result></results></interaction>
<interaction num="3"><query>nothing found</query><results/></interaction>
<currentquery><query>now</query></currentquery></session></sessiontrack2013>
"""


def rows_of(log):
    """{(query, document, position): [impressions, clicks]}"""
    found = defaultdict(lambda: np.zeros(2))
    for i in range(log.n_lists):
        for row in range(log.indptr[i], log.indptr[i + 1]):
            query, document = log.query_id[log.query[i]], log.doc_id[log.document[row]]
            cell = found[str(query), str(document), int(log.position[row])]
            cell += np.array([1.0, log.label[row]]) * log.sessions[i]
    return {key: cell.tolist() for key, cell in found.items()}


@pytest.fixture
def file(tmp_path):
    def write(text, name="log.txt"):
        path = tmp_path / name
        data = text.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


@pytest.mark.parametrize("name", ["log.txt", "log.gz"])
def test_a_click_is_on_the_latest_page_of_its_session(file, name):
    log = ut.datasets.read_yandex(file(RELEVANCE_PREDICTION, name))
    assert rows_of(log) == {
        ("31_2", "a", 1): [1, 0], ("31_2", "b", 2): [1, 1], ("31_2", "c", 3): [1, 0],
        ("31_2", "b", 1): [1, 1], ("31_2", "c", 2): [1, 0], ("31_2", "a", 3): [1, 0],
        ("32_2", "a", 1): [1, 0], ("32_2", "d", 2): [1, 0], ("32_2", "e", 3): [1, 0],
    }  # fmt: skip


def test_clara2_has_this_layout_and_no_region(file):
    padded = RELEVANCE_PREDICTION.replace("C\tb\n", "C\tb\t\t\t\n")
    log = ut.datasets.read_clara2(file(padded))
    assert set(log.query_id.tolist()) == {"31", "32"}
    assert log.label.sum() == 2


def test_personal_pages_know_their_clicks_and_their_user(file):
    log = ut.datasets.read_yandex(file(PERSONAL), collapse=False)
    assert log.n_sessions == 2  # the page of type T hides its clicks
    assert rows_of(log)["31", "b", 2] == [2, 1]
    assert log.person.tolist() == [0, 0]


def test_listed_pages_drop_clicks_on_what_is_not_shown(file):
    log = ut.datasets.read_yandex(file(LISTED))
    assert rows_of(log) == {
        ("31_2", "a", 1): [1, 1], ("31_2", "b", 2): [1, 1], ("31_2", "c", 3): [2, 0],
        ("31_2", "b", 1): [1, 0], ("31_2", "a", 2): [1, 0],
        ("32_2", "d", 1): [1, 0], ("32_2", "e", 2): [1, 0],
    }  # fmt: skip


def test_baidu_has_columns_of_behaviour(file):
    labels = ("displayed_time", "dwell_time")
    log = ut.datasets.read_baidu_ultr(file(BAIDU), labels=labels)
    assert rows_of(log) == {
        ("31", "a", 1): [1, 0], ("31", "b", 2): [1, 1], ("32", "c", 1): [1, 0]
    }  # fmt: skip
    assert sorted(log.extra_labels["displayed_time"].tolist()) == [0, 2.5, 9]
    assert sorted(log.extra_labels["dwell_time"].tolist()) == [0, 0, 30]


def test_trec_sessions_by_query_and_by_topic(file):
    path = file(TREC, "session.xml")
    assert rows_of(ut.datasets.read_trec_sessions(path)) == {
        ("tax code", "a", 1): [1, 0], ("tax code", "b", 2): [1, 1], ("tax", "c", 11): [1, 0]
    }  # fmt: skip
    topics = ut.datasets.read_trec_sessions(path, by="topic")
    assert topics.query_id.tolist() == ["6"]
    assert topics.n_sessions == 2


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        ("read_yandex", "7\t0\tQ\t31\t2\ta\n7\t0\tX\t31\n", "line 2"),
        ("read_yandex", "7\t0\tC\ta\n", "line 1"),  # a click before any page
        ("read_yandex", PERSONAL + "2\t4\tZ\n", "line 7"),
        ("read_yandex", LISTED + "no page here: 1\n", "line 3"),
        ("read_yandex", "", "holds no result page"),
        ("read_clara2", "query\turl\trelevance\n0\t5\t2\n", "line 1"),
        ("read_baidu_ultr", BAIDU.splitlines()[1] + "\n", "line 1"),
        ("read_trec_sessions", TREC.replace("</session>", ""), "Session Track"),
        ("read_trec_sessions", TREC.replace('rank="1"', ""), "Session Track"),
    ],
)
def test_another_file_is_refused_by_line(file, read, text, says):
    with pytest.raises(ut.UntiltError, match=says):
        getattr(ut.datasets, read)(file(text))


@pytest.mark.parametrize("read", ["read_yandex", "read_clara2", "read_baidu_ultr"])
def test_a_missing_file_is_an_error_of_ours(tmp_path, read):
    with pytest.raises(ut.UntiltError, match="cannot be read"):
        getattr(ut.datasets, read)(tmp_path / "none.txt")


# ---- real files


def real(data_dir, *parts):
    path = data_dir.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no real data: {path} is missing")
    return path


def test_the_yandex_sample(data_dir):
    log = ut.datasets.read_yandex(real(data_dir, "yandex-sample", "train.txt.gz"))
    assert (log.n_queries, log.n_sessions, log.depth) == (20, 35064, 10)


def test_clara2_in_its_own_layout_is_the_table_of_its_pages(data_dir, tmp_path):
    """The table of pages, written as the release has it: a line per page, a line per click."""
    table = pd.read_parquet(real(data_dir, "clara2", "impressions.parquet"))
    table = table[table.session_id < 3000].sort_values(["session_id", "position"])
    lines = []
    for (page, query), part in table.groupby(["session_id", "query_id"], sort=False):
        lines.append("\t".join([str(page), "0", "Q", query, "0.0", *part.doc_id]))
        lines += [f"{page}\t1\tC\t{doc}\t\t" for doc in part.doc_id[part.click > 0]]
    path = tmp_path / "CLARA2SearchLog"
    path.write_text("\n".join(lines) + "\n")
    columns = ["query_id", "session_id", "doc_id", "position", "click"]
    expected = ut.read_log(table[columns])
    found = ut.datasets.read_clara2(path)
    assert found.n_sessions == expected.n_sessions
    assert rows_of(found) == rows_of(expected)

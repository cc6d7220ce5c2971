"""Result pages of a web search engine, read from text and XML.

Each reader yields pages, and `log_of` makes a click log of them. A click on a document that its
page does not show has no position and is left out. `**options` are those of `read_log`.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

import duckdb
import numpy as np

from untilt.data.clicklog import ClickLog
from untilt.data.letor.parse import line_blocks
from untilt.data.read.read_log import read_log
from untilt.errors import FileFormatError, check_choice

PathLike = str | os.PathLike[str]
BAIDU = {"position": 0, "doc_id": 1, "click": 5, "displayed_time": 10, "dwell_time": 16}
BAIDU_COLUMNS = 32


class Page(NamedTuple):
    """A page: the documents from the top down, those clicked, and who saw it where that is known.

    `position` is where each document was shown; counted from 1 where not given. `more` holds
    further columns, one value per document.
    """

    query: str
    documents: list[str]
    clicked: set[str]
    person: str | None = None
    position: list[int] | None = None
    more: dict[str, list[float]] = {}  # noqa: RUF012


def log_of(pages: Iterable[Page], path: PathLike, options: dict[str, Any]) -> ClickLog:
    """The click log of these pages; each page is a session."""
    names = ("query_id", "session_id", "doc_id", "position", "click", "person")
    rows: dict[str, list[Any]] = {name: [] for name in names}
    for session, page in enumerate(pages):
        n = len(page.documents)
        rows["query_id"] += [page.query] * n
        rows["session_id"] += [session] * n
        rows["doc_id"] += page.documents
        rows["position"] += page.position or range(1, n + 1)
        rows["click"] += [each in page.clicked for each in page.documents]
        rows["person"] += [page.person] * n
        for name, values in page.more.items():
            rows.setdefault(name, []).extend(values)
    if not rows["click"]:
        raise FileFormatError(f"{path} holds no result page. Check the path and the data set.")
    if rows["person"][0] is None:
        del rows["person"]
    impressions = {name: np.array(values) for name, values in rows.items()}  # noqa: F841
    with duckdb.connect() as connection:
        return read_log(connection.sql("SELECT * FROM impressions"), **options)


def _lines(path: PathLike) -> Iterator[tuple[int, str]]:
    """(number, text) of each line that is not blank, plain or gzip."""
    number = 0
    for block in line_blocks(Path(path)):
        for line in block[:-1].split(b"\n"):
            number += 1
            if text := line.decode("utf8", "replace").strip("\r"):
                yield number, text


def _refused(path: PathLike, number: int, line: str, layout: str) -> FileFormatError:
    return FileFormatError(
        f"line {number} of {path} is not of the layout `{layout}`. It begins {line[:60]!r}. Give "
        "the file as it was released."
    )


def _clicked(shown: list[Page], url: str) -> None:
    """Add a click to the latest page that shows the url."""
    for page in reversed(shown):
        if url in page.documents:
            page.clicked.add(url)
            return


def _actions(path: PathLike, *, region: bool) -> Iterator[Page]:
    """Pages of Yandex's relevance prediction challenge: queries and clicks, a line for each."""
    session, shown = "", list[Page]()
    for number, line in _lines(path):
        match line.rstrip("\t").split("\t"):
            case [of, _, "Q", query, where, _, *_] as fields:
                if of != session:
                    yield from shown
                    session, shown = of, []
                shown.append(Page(f"{query}_{where}" if region else query, fields[5:], set()))
            case [of, _, "C", url] if of == session:
                _clicked(shown, url)
            case _:
                layout = "session, time, Q, query, region, url, ...` or `session, time, C, url"
                raise _refused(path, number, line, layout)
    yield from shown


def _personal(path: PathLike) -> Iterator[Page]:
    """Pages of Yandex's personalised web search challenge; pages of type T have no clicks."""
    user, shown = "", dict[str, Page]()
    for number, line in _lines(path):
        match line.split("\t"):
            case [_, "M", _, user]:
                yield from shown.values()
                shown = {}
            case [_, _, "Q" | "T" as kind, serp, query, _, _, *_] as fields:
                if kind == "Q":
                    urls = [pair.partition(",")[0] for pair in fields[6:]]
                    shown[serp] = Page(query, urls, set(), user)
            case [_, _, "C", serp, url]:
                _clicked([shown[serp]] if serp in shown else [], url)
            case _:
                layout = (
                    "session, M, day, user`, `session, time, Q, page, query, terms, url,domain, "
                    "...` or `session, time, C, page, url"
                )
                raise _refused(path, number, line, layout)
    yield from shown.values()


def _listed(path: PathLike) -> Iterator[Page]:
    """Pages separated by `;`, each `query TAB url,url : clicked , clicked`."""
    for number, line in _lines(path):
        for text in filter(str.strip, line.split(";")):
            query, tab, rest = text.strip().partition("\t")
            shown, colon, clicks = rest.partition(":")
            if not (query and tab and shown.strip() and colon):
                layout = "query TAB url,url,... : clicked , clicked; ..."
                raise _refused(path, number, text.strip(), layout)
            urls, clicked = ([url.strip() for url in part.split(",")] for part in (shown, clicks))
            yield Page(query, urls, set(clicked))


def read_yandex(path: PathLike, **options: Any) -> ClickLog:
    """Read a log of Yandex ([serdyukov2012yandex]_), plain or gzip; three layouts are recognised.

    Relevance prediction challenge, tab-separated; a query is a query of a region:

        SessionID  TimePassed  Q  QueryID  RegionID  URLID  URLID ...
        SessionID  TimePassed  C  URLID

    Personalised web search challenge (Kaggle); users become `person`, and pages of type T are left
    out because their clicks are not known:

        SessionID  M  Day  UserID
        SessionID  TimePassed  Q  SERPID  QueryID  TermID,...  URLID,DomainID ...
        SessionID  TimePassed  C  SERPID  URLID

    Pages of a query, separated by `;`:

        query_region TAB url,url,... : clicked , clicked ; ...
    """
    first = next((line for _, line in _lines(path)), "")
    fields = first.split("\t")
    if fields[1:2] == ["M"]:
        return log_of(_personal(path), path, options)
    pages = _listed(path) if ":" in first else _actions(path, region=True)
    return log_of(pages, path, options)


def read_clara2(path: PathLike, **options: Any) -> ClickLog:
    """Read CLARA 2 of NAVER ([naver2021clara2]_): the file CLARA2SearchLog.

    Its layout is that of Yandex's relevance prediction challenge (see `read_yandex`); the region is
    the same everywhere and left out. The file of grades, CLARA2QueryUrlRelevance (query, url,
    relevance), numbers queries differently from the log, so it cannot be joined by query id.
    """
    return log_of(_actions(path, region=False), path, options)


def _baidu(path: PathLike) -> Iterator[Page]:
    query, rows = "", list[list[str]]()
    for number, line in _lines(path):
        fields = line.split("\t")
        if len(fields) < BAIDU_COLUMNS - 1:
            if rows:
                yield _baidu_page(query, rows)
            query, rows = fields[0], []
        elif query and fields[0].isdigit():
            rows.append(fields)
        else:
            layout = "query, text, reformulation`, then `position, url, title, ..., click, ..."
            raise _refused(path, number, line, layout)
    if rows:
        yield _baidu_page(query, rows)


def _baidu_page(query: str, rows: list[list[str]]) -> Page:
    at = {name: [row[j] for row in rows] for name, j in BAIDU.items()}
    clicked = {url for url, click in zip(at["doc_id"], at["click"], strict=True) if click == "1"}
    more = {
        name: [float(each) if each not in ("", "-") else 0.0 for each in at[name]]
        for name in ("displayed_time", "dwell_time")
    }
    return Page(query, at["doc_id"], clicked, None, [int(k) for k in at["position"]], more)


def read_baidu_ultr(path: PathLike, **options: Any) -> ClickLog:
    """Read a part of Baidu-ULTR ([zou2022baidu]_), such as part-00000.gz, as its README has it.

    A session is a line of its query and a line for each document, tab-separated:

        Qid  Query  Query Reformulation
        Pos  URL MD5  Title  Abstract  Multimedia Type  Click  -  -  Skip  SERP Height ...

    Texts are not read. `labels=("displayed_time", "dwell_time")` reads these columns, too.
    """
    return log_of(_baidu(path), path, options)


def _trec(path: PathLike, by: str) -> Iterator[Page]:
    try:
        for _, session in ElementTree.iterparse(path):
            if session.tag != "session":
                continue
            topic = session.find("topic")
            for interaction in session.iter("interaction"):
                results = interaction.findall("results/result")
                query = topic.get("num", "") if by == "topic" and topic is not None else None
                if not results:
                    continue
                text = (interaction.findtext("query") or "").strip().lower()
                rank = [int(each.get("rank", "")) for each in results]
                names = [
                    each.findtext("clueweb09id") or each.findtext("clueweb12id") or ""
                    for each in results
                ]
                at = dict(zip(rank, names, strict=True))
                clicks = (int(each.text or 0) for each in interaction.findall("clicked/click/rank"))
                yield Page(text if query is None else query, names, {at.get(k, "") for k in clicks},
                           None, rank)  # fmt: skip
            session.clear()
    except (ElementTree.ParseError, ValueError) as error:
        raise FileFormatError(
            f"{path} is no file of the TREC Session Track ({error}). Give sessiontrack2012.xml or "
            "another year's."
        ) from error


def read_trec_sessions(
    path: PathLike, *, by: Literal["query", "topic"] = "query", **options: Any
) -> ClickLog:
    """Read the XML of a TREC Session Track ([kanoulas2012session]_), such as sessiontrack2013.xml.

    Each `interaction` with results is a page: `results/result` with `rank` and `clueweb09id` or
    `clueweb12id`, and `clicked/click/rank`. `by` says what a query is: the words that were typed,
    or the topic, which TREC's judgments are about (`read_labels` reads them).
    """
    check_choice("by", by, ("query", "topic"))
    return log_of(_trec(path, by), path, options)

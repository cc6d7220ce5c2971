"""Grades of (query, document) pairs: read from a file, or asked of a judge."""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from untilt._core.arrays import AnyArray, FloatArray, IntArray, frozen, identifiers
from untilt._core.portable import Portable
from untilt.data.read.database import open_database, quoted, translated_errors
from untilt.data.read.sources import at_hand, files_of, open_source
from untilt.errors import BadRowsError, ColumnError, FileFormatError, OptionError

Drawn = Literal["documents", "queries"]
NAMES = {
    "query_id": ("query_id", "query", "qid"),
    "doc_id": ("doc_id", "docid", "document", "document_id"),
    "grade": ("grade", "rating", "label", "relevance"),
    "judge": ("judge", "rater"),
    "probability": ("probability",),
    "drawn": ("drawn",),
}
NEEDED = ("query_id", "doc_id", "grade")
Rows = dict[str, list[Any]]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Grades(Portable):
    """Grades, one row for each document and judge.

    Parameters
    ----------
    query_id, doc_id : (rows,)
    grade : (rows,) at least 0
    judge : (rows,) name of the judge; one name for all by default
    probability : (rows,) probability that the row was drawn for grading; NaN where unknown
    drawn : "documents" one by one, or "queries" with all their documents; None where unknown
    """

    query_id: AnyArray
    doc_id: AnyArray
    grade: FloatArray
    judge: AnyArray
    probability: FloatArray
    drawn: Drawn | None

    def __init__(
        self,
        query_id: npt.ArrayLike,
        doc_id: npt.ArrayLike,
        grade: npt.ArrayLike,
        judge: npt.ArrayLike | None = None,
        probability: npt.ArrayLike | None = None,
        drawn: Drawn | None = None,
    ) -> None:
        values = {
            "query_id": identifiers(query_id),
            "doc_id": identifiers(doc_id),
            "grade": frozen(grade, np.float64),
        }
        n = len(values["grade"])
        values["judge"] = identifiers(np.full(n, "judge") if judge is None else judge)
        values["probability"] = frozen(
            np.full(n, np.nan) if probability is None else probability, np.float64
        )
        for name, column in values.items():
            if len(column) != n:
                raise OptionError(f"{name} must have {n} entries, one a grade. Got {len(column)}.")
            object.__setattr__(self, name, column)
        if drawn not in (None, "documents", "queries"):
            raise OptionError(f"drawn must be 'documents' or 'queries'. Got {drawn!r} instead.")
        object.__setattr__(self, "drawn", drawn)
        _refuse(~(np.isfinite(self.grade) & (self.grade >= 0)), self.grade,
                "a grade must be a number of at least 0", "Write 0 for not relevant")  # fmt: skip
        p = self.probability
        _refuse(~(np.isnan(p) | ((p > 0) & (p <= 1))), p,
                "a probability must be above 0 and at most 1",
                "Give the probability with which the row was drawn for grading")  # fmt: skip

    @property
    def judges(self) -> tuple[str, ...]:
        """The names of the judges."""
        return tuple(sorted({str(each) for each in self.judge.tolist()}))

    def of(self, judge: str) -> "Grades":
        """The grades of one judge."""
        mine = np.array([str(each) == judge for each in self.judge.tolist()], dtype=bool)
        if not mine.any():
            raise OptionError(f"no grade is by {judge!r}. Judges: {', '.join(self.judges)}.")
        return Grades(
            self.query_id[mine], self.doc_id[mine], self.grade[mine], self.judge[mine],
            self.probability[mine], self.drawn,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.grade)

    def __repr__(self) -> str:
        grades = np.unique(self.grade)
        shown = ", ".join(f"{g:g}" for g in grades[:6]) + (", ..." if len(grades) > 6 else "")
        return (
            f"Grades({len(self):,} grades {{{shown}}} of "
            f"{len(set(self.query_id.tolist())):,} queries by {', '.join(self.judges)})"
        )


def find_pairs(given: Any, query_id: AnyArray, doc_id: AnyArray) -> IntArray:
    """The row of each given pair among these, -1 where there is none; ids are compared as text.

    given : has `query_id` and `doc_id`. Of equal pairs the last one counts
    """
    wanted = list(
        zip(map(str, given.query_id.tolist()), map(str, given.doc_id.tolist()), strict=True)
    )
    at = dict.fromkeys(wanted, -1)
    pairs = zip(map(str, query_id.tolist()), map(str, doc_id.tolist()), strict=True)
    at |= {pair: row for row, pair in enumerate(pairs) if pair in at}
    return np.array([at[pair] for pair in wanted], dtype=np.int64)


def _refuse(bad: AnyArray, values: FloatArray, what: str, fix: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise BadRowsError(
            f"{what}. Got {values[row]:g} in row {row + 1} of the grades; {int(bad.sum()):,} rows "
            f"are like it. {fix}."
        )


def read_labels(
    source: Any,
    *,
    columns: Mapping[str, str] | None = None,
    grades: Mapping[str, float] | None = None,
    missing: Literal["error", "drop"] = "error",
) -> Grades:
    """Read grades: a table, TREC qrels, or judgments of OpenSearch's Search Relevance Workbench.

    A table is CSV, Parquet or whatever else `read_log` reads, with the columns query_id, doc_id and
    grade (Quepid's query, docid and rating do too), and where they are known judge, probability
    and drawn, as `LabelPlan.write` leaves them.

    Parameters
    ----------
    source : a path or a table; .qrels and .txt are qrels, .json the workbench's judgments
    columns : our name -> the table's
    grades : number of each grade that is written as a word, such as {"exact": 3}
    missing : rows that hold no grade: an error, or left out with the others' probabilities lowered
        by the share that is graded; right only where grades are missing by chance
    """
    ending = Path(source).suffix.lower() if isinstance(source, str | os.PathLike) else ""
    rows = FORMATS[ending](Path(source)) if ending in FORMATS else _table(source, columns or {})
    written = ["" if each is None else str(each).strip() for each in rows["grade"]]
    kept = np.array([each != "" for each in written], dtype=bool)
    if not kept.any():
        raise BadRowsError("the file holds no grade. Fill in its column of grades.")
    if missing == "error" and not kept.all():
        raise BadRowsError(
            f"{int((~kept).sum()):,} of {len(kept):,} rows hold no grade, first row "
            f"{int(np.argmin(kept)) + 1}. Grade them; or read with ⟦missing='drop'⟧ if they are "
            "missing by chance."
        )
    given = {name: np.array(column, dtype=object)[kept] for name, column in rows.items()}
    values = [_number(each, grades or {}) for each in written if each]
    p = None
    if "probability" in given:
        p = np.array([np.nan if v in (None, "") else float(v) for v in given["probability"]])
    drawn: set[Any] = {str(each) for each in given.get("drawn", ()) if each not in (None, "")}
    if len(drawn) > 1:
        raise BadRowsError(f"the column drawn holds {' and '.join(sorted(drawn))}. Give one.")
    return Grades(
        given["query_id"], given["doc_id"], values,
        None if "judge" not in given else given["judge"].astype(str),
        None if p is None else p * kept.mean(), next(iter(drawn), None),
    )  # fmt: skip


def _number(text: str, words: Mapping[str, float]) -> float:
    if text in words:
        return float(words[text])
    try:
        return float(text)
    except ValueError:
        raise BadRowsError(
            f"the grade {text!r} is no number. Give its value: ⟦grades={{{text!r}: 1}}⟧, for each "
            "word."
        ) from None


def _table(source: Any, columns: Mapping[str, str]) -> Rows:
    with at_hand((source,)) as (here,), open_database(
        memory_limit=None, temp_directory=None, threads=None,
        files=[name for part in files_of(here) for name in part.names], keep_order=True,
    ) as database:  # fmt: skip
        opened = open_source(database, here, "labels_table")
        known = {name.lower(): name for name in opened.columns}
        chosen: dict[str, str] = {}
        for name, likely in NAMES.items():
            wanted = (columns[name],) if name in columns else likely
            found = next((known[each.lower()] for each in wanted if each.lower() in known), None)
            if found is not None:
                chosen[name] = found
            elif name in NEEDED or name in columns:
                raise ColumnError(
                    f"{opened.what} has no column for {name}. Its columns: "
                    f"{', '.join(opened.columns)}. Name it: ⟦columns={{{name!r}: ...}}⟧."
                )
        ids = frozenset(chosen[name] for name in ("query_id", "doc_id"))
        with translated_errors(opened.what):
            table = opened.load(tuple(chosen.values()), ids)
            as_text = ", ".join(f"CAST({quoted(each)} AS VARCHAR)" for each in chosen.values())
            rows = database.rows(f"SELECT {as_text} FROM {table}")
    return _columns(rows, chosen)


def _qrels(path: Path) -> Rows:
    rows = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.split()
            if parts and len(parts) != 4:
                raise FileFormatError(
                    f"line {number} of {path} is not `query 0 document grade`: {line.strip()!r}."
                )
            rows += [(parts[0], *parts[2:])] if parts else []
    return _columns(rows)


def _workbench(path: Path) -> Rows:
    try:
        lists = json.loads(path.read_text(encoding="utf-8"))["judgmentRatings"]
        rows = [(each["query"], r["docId"], r["rating"]) for each in lists for r in each["ratings"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{path} holds no judgments of the Search Relevance Workbench: an object with "
            f"judgmentRatings, each with query and ratings of docId and rating ({error!r})."
        ) from error
    return _columns(rows)


def _columns(rows: Sequence[Sequence[Any]], names: Iterable[str] = NEEDED) -> Rows:
    return {name: [row[j] for row in rows] for j, name in enumerate(names)}


# By the ending of a file; anything else is a table.
FORMATS = {".qrels": _qrels, ".txt": _qrels, ".json": _workbench}


def ask_judge(
    pairs: Iterable[tuple[Any, Any]],
    judge: Callable[[Any, Any], float],
    *,
    name: str = "judge",
    cache: str | os.PathLike[str] | None = None,
    retries: int = 2,
) -> Grades:
    """The grades of a judge that is a function, such as one that asks a language model.

    Parameters
    ----------
    pairs : (query id, document id) to be graded
    judge : takes the two ids and returns a grade
    name : name of the judge
    cache : a file that keeps each grade as it comes (JSON lines): a second call asks only
        for missing grades
    retries : further tries where the judge raises; the last error is raised with the pair
    """
    known: dict[tuple[str, str], float] = {}
    place = None if cache is None else Path(cache)
    if place is not None and place.exists():
        for line in place.read_text(encoding="utf-8").splitlines():
            try:
                query, document, grade = json.loads(line)
            except ValueError:
                continue  # a line that was cut off while it was written: asked again
            known[query, document] = float(grade)
    asked = list(pairs)
    for query, document in asked:
        key = str(query), str(document)
        if key in known:
            continue
        known[key] = _graded(judge, query, document, retries)
        if place is not None:
            with place.open("a", encoding="utf-8") as file:
                file.write(json.dumps([*key, known[key]]) + "\n")
    queries, documents = zip(*asked, strict=True) if asked else ((), ())
    grade = [known[str(q), str(d)] for q, d in asked]
    return Grades(list(queries), list(documents), grade, np.full(len(asked), name))


def _graded(judge: Callable[[Any, Any], float], query: Any, document: Any, retries: int) -> float:
    for attempt in range(retries + 1):
        try:
            return float(judge(query, document))
        except Exception as error:
            if attempt == retries:
                raise OptionError(
                    f"the judge failed on query {query!r}, document {document!r}, after "
                    f"{retries + 1} tries: {error}. Grades so far stay in the cache."
                ) from error
    raise AssertionError

"""Doors for tables: logs in every format and frame, tables of documents, judged lists."""

import gzip
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz import mutations as m
from tests.fuzz.targets import WrongResultError, target, written

from untilt.simulation.simulate import EVENTS, QUERIES

UBI = (QUERIES, EVENTS)


def use_log(log: Any) -> None:
    """What everybody does with a log first."""
    import untilt as ut

    repr(log), log.ctr_by_position()
    ut.audit(log)
    for part in log.split(0.5, seed=0):
        repr(part)


def read(source: Any, rng: random.Random, **more: Any) -> Any:
    """The log, after use."""
    import untilt as ut

    on_bad: Any = rng.choice(["raise", "drop", "drop"])
    log = ut.read_log(source, on_bad=on_bad, **more)
    use_log(log)
    return log


@target("parquet bytes", 12)
def _parquet(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = m.damaged((corpus / "log.parquet").read_bytes(), rng)
    read(written(folder / "log.parquet", data), rng)


@target("csv", 12)
def _csv(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = (corpus / "log.csv").read_bytes()
    if rng.random() < 0.7:
        data = m.reworded(data.decode(), rng, ",").encode("utf-8", "surrogatepass")
    else:
        data = m.damaged(data, rng)
    read(written(folder / "log.csv", data), rng)


@target("csv.gz", 4)
def _csv_gz(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = m.damaged((corpus / "log.csv.gz").read_bytes(), rng)
    read(written(folder / "log.csv.gz", data), rng)


@target("duckdb bytes", 6)
def _duckdb(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = m.damaged((corpus / "log.duckdb").read_bytes(), rng)
    read(written(folder / "log.duckdb", data), rng)


@target("json lines", 8)
def _json_lines(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = changed_lines((corpus / "log.jsonl").read_bytes(), rng)
    read(written(folder / "log.jsonl", data), rng)


@target("packed json lines", 4)
def _packed(corpus: Path, folder: Path, rng: random.Random) -> None:
    name = rng.choice(["log.jsonl.zst", "log.jsonl.bz2"])
    read(written(folder / name, m.damaged((corpus / name).read_bytes(), rng)), rng)


@target("feather bytes", 8)
def _feather(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = m.damaged((corpus / "log.feather").read_bytes(), rng)
    read(written(folder / "log.feather", data), rng)


@target("sqlite bytes", 8)
def _sqlite(corpus: Path, folder: Path, rng: random.Random) -> None:
    data = m.damaged((corpus / "log.sqlite").read_bytes(), rng)
    read((written(folder / "log.sqlite", data), rng.choice(["clicks", "clicks", "other"])), rng)


# Exports of User Behavior Insights, logs of grids, counted logs with contexts


def changed_lines(data: bytes, rng: random.Random) -> bytes:
    """JSON lines with some of their values changed, or damaged as bytes."""
    if rng.random() < 0.4:
        return m.damaged(data, rng)
    rows = m.changed([json.loads(line) for line in data.splitlines()], rng)
    return "".join(m.json_text(row) + "\n" for row in rows).encode("utf-8", "surrogatepass")


@target("ubi json lines", 12)
def _ubi_lines(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    for name in UBI:
        shutil.copyfile(corpus / name, folder / name)
    for name in rng.choice([UBI[:1], UBI[1:], UBI]):
        written(folder / name, changed_lines((corpus / name).read_bytes(), rng))
    queries, events = (folder / name for name in UBI)
    read(ut.Ubi(queries, events, _hits_shown(rng)), rng, **ubi_options(rng))


@target("ubi tables", 8)
def _ubi_tables(corpus: Path, folder: Path, rng: random.Random) -> None:
    """Rows of other types and names; nested as structs, as JSON text, or flattened."""
    import pandas as pd

    import untilt as ut

    tables = []
    for name in UBI:
        rows = [json.loads(line) for line in (corpus / name).read_text().splitlines()]
        kind = rng.randrange(3)
        if kind == 0:
            rows = [{k: json.dumps(v) if isinstance(v, dict | list) else v for k, v in row.items()}
                    for row in rows]  # fmt: skip
        elif kind == 1:
            rows = pd.json_normalize(rows).to_dict("records")
        columns = {key: [row.get(key) for row in rows] for key in rows[0]}
        tables.append(arrow(changed_columns(columns, rng) if rng.random() < 0.6 else columns))
    read(ut.Ubi(tables[0], tables[1], _hits_shown(rng)), rng, **ubi_options(rng))


def _hits_shown(rng: random.Random) -> Any:
    return rng.choice([None] * 9 + [1, 3, 10**9, 2**70, 0, -1, 2.5, "x", True])


def ubi_options(rng: random.Random) -> dict[str, Any]:
    """None of them most of the time."""
    paths: list[Any] = [
        "user_query", "query_attributes.ranker", "timestamp", "nobody", "a..b", "", ".", "x.'y",
        'a"b', None, 7, "$", "query_response_hit_ids", "\x00", "*", "[0]", "a\\b", "a,b",
    ]  # fmt: skip
    ours = ["query_id", "session_id", "doc_id", "position", "timestamp", "hits", "offset", "ranker",
            "impression", "click", "odd"]  # fmt: skip
    options: dict[str, Any] = {
        "columns": {rng.choice(ours): rng.choice(paths) for _ in range(rng.choice([1, 1, 2]))},
        "label": rng.choice(["click", "impression", "buy", ""]),
        "labels": rng.choice([(), ["impression"], ["click"], ["buy"], "click"]),
        "context": rng.choice([(), ["client_id"], ["nobody"], ["query_attributes.simulated"]]),
        "positions_from": rng.choice([None, 0, 1, 2]),
    }
    return {
        name: options[name] for name in rng.sample(sorted(options), rng.choice([0, 0, 0, 1, 2]))
    }


@target("grid", 8)
def _grid(corpus: Path, folder: Path, rng: random.Random) -> None:
    """Rows and columns of other types and sizes, and grids that are none."""
    columns = columns_of(corpus, rng, "grid.parquet")
    name = rng.choice(["row", "column"])
    if name in columns and rng.random() < 0.5:
        more = rng.choice([2**31 - 1, 2**62, -3, 0, 1000, 1001, 0.5, 1e18, float("nan"), None, "x"])
        columns[name] = [more if rng.random() < 0.1 else each for each in columns[name]]
    sizes: list[Any] = [
        None, None, None, (2, 3), (2, 3), (5, 6), (1, 1), (0, 3), (2**31, 2**31), (2, "x"),
        (2.5, 3), (), 3, "2x3", (True, 3), (2, 3, 4), (40, 26), [2, 3], (None, 1),
    ]  # fmt: skip
    options = {"grid": rng.choice(sizes), "positions_from": rng.choice([None, None, 0, 1])}
    log = read(arrow(columns), rng, **options)
    if log.n_impressions:
        read_again(log, folder, grid=log.layout and (log.layout.rows, log.layout.columns))


@target("counted log", 8)
def _counted(corpus: Path, folder: Path, rng: random.Random) -> None:
    """Counts and contexts with odd values; what is read is written and read as the same."""
    columns = columns_of(corpus, rng, "counted.parquet")
    name = rng.choice(["count", "device"])
    if name in columns and rng.random() < 0.5:
        odd = rng.choice([0, -1, 2**31, 2**53, 2**62, 0.5, float("nan"), None, "", "\x00", [1]])
        columns[name] = [odd if rng.random() < 0.1 else each for each in columns[name]]
    options: dict[str, Any] = {"context": ["device"], "collapse": rng.choice([True, False])}
    log = read(arrow(columns), rng, **options)
    if log.n_impressions:
        read_again(log, folder, context=["device"])


def read_again(log: Any, folder: Path, **options: Any) -> None:
    """Raise unless the log, written and read, is the same."""
    import untilt as ut

    ut.write_log(log, folder / "again.parquet", drop_unshown=True)
    again = ut.read_log(folder / "again.parquet", text_ids=log.query_id.dtype == object, **options)
    for about in ("n_sessions", "n_impressions", "depth"):
        if getattr(log, about) != getattr(again, about):
            raise WrongResultError(f"{about} of the written log differs")
    one, two = (np.bincount(each.position, each.label * each.row_count) for each in (log, again))
    if not np.allclose(one, two, rtol=1e-9):
        raise WrongResultError("clicks of the written log differ")


@target("name of a file", 3)
def _file_names(corpus: Path, folder: Path, rng: random.Random) -> None:
    """Odd names, names that say another kind, folders in place of files."""
    ending = rng.choice([".parquet", ".csv", ".db", "", ".txt", ".csv.gz"])
    name = rng.choice(
        [
            b"\xff\xfe",
            b"a'b",
            b'a"b',
            b"*",
            b"[x]",
            b"a b",
            b"\xc3\xa9",
            b"-x",
            b"%41",
            b";",
            b"$HOME",
        ]
    )
    path = os.path.join(os.fsencode(folder), name + ending.encode())
    kind = rng.choice(["log.parquet", "log.csv", "log.duckdb", "log.csv.gz", "folder", "none"])
    if kind == "folder":
        os.mkdir(path)
    elif kind != "none":
        shutil.copyfile(os.fsencode(corpus / kind), path)
    read(os.fsdecode(path), rng)


def columns_of(corpus: Path, rng: random.Random, file: str = "log.parquet") -> dict[str, list[Any]]:
    """Columns of the log, some renamed, gone, cut, of other types or with odd values."""
    import pyarrow.parquet as pq

    return changed_columns(pq.read_table(corpus / file).slice(0, 120).to_pydict(), rng)


def changed_columns(columns: dict[str, list[Any]], rng: random.Random) -> dict[str, list[Any]]:
    """The same by hand."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        name = rng.choice(list(columns) or ["x"])
        kind, values = rng.randrange(7), columns.pop(name, [])
        if kind == 0:
            continue
        if kind == 1:
            columns[
                rng.choice([*m.WORDS[:-2], name.upper(), name + " "]).replace("\ud800", "?")
            ] = values
        elif kind == 2:
            columns[name] = [str(each) for each in values]
        elif kind == 3:
            columns[name] = [rng.choice([None, True, 1.5, float("nan"), float("inf")])] * len(
                values
            )
        elif kind == 4:
            columns[name] = [10**6 * each if isinstance(each, int) else each for each in values]
        elif kind == 5:
            odd = rng.choice([[1], {"a": 1}, b"\xff", 2**63 - 1, -1, 0, 30_000, 10**9, 1e300, ""])
            columns[name] = [odd if rng.random() < 0.1 else each for each in values]
            if rng.random() < 0.3:
                columns[name] = [odd] * len(values)
        else:
            columns[name] = list(rng.sample(values, len(values)))
    return columns


def arrow(columns: dict[str, list[Any]]) -> Any:
    """An Arrow table; mixed columns become text."""
    import pyarrow as pa

    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            arrays[name] = pa.array([str(each) for each in values])
    return pa.table(arrays)


@target("arrow table", 10)
def _arrow(corpus: Path, folder: Path, rng: random.Random) -> None:
    table = arrow(columns_of(corpus, rng))
    kind = rng.randrange(3)
    if kind == 0:
        table = table.to_reader(max_chunksize=rng.choice([1, 50]))
    elif kind == 1 and table.num_columns:
        name = rng.choice(table.column_names)
        table = table.append_column(rng.choice([name, "extra"]), table[name])
    read(table, rng)


@target("parquet columns", 10)
def _parquet_columns(corpus: Path, folder: Path, rng: random.Random) -> None:
    import pyarrow.parquet as pq

    table = arrow(columns_of(corpus, rng))
    pq.write_table(table, folder / "log.parquet")
    read(folder / "log.parquet", rng)


@target("pandas frame", 6)
def _pandas(corpus: Path, folder: Path, rng: random.Random) -> None:
    import pandas as pd

    frame = pd.DataFrame({name: pd.Series(v, dtype=object if rng.random() < 0.3 else None)
                          for name, v in columns_of(corpus, rng).items()})  # fmt: skip
    if rng.random() < 0.2 and frame.shape[1]:
        frame.columns = [rng.choice([0, None, "position", c]) for c in frame.columns]
    read(frame, rng)


@target("polars frame", 6)
def _polars(corpus: Path, folder: Path, rng: random.Random) -> None:
    import polars as pl

    columns = columns_of(corpus, rng)
    try:
        frame: Any = pl.DataFrame(columns, strict=False)
    except Exception:  # a frame that Polars itself refuses is no input of ours
        return
    read(frame.lazy() if rng.random() < 0.3 else frame, rng)


@target("duckdb tables", 5)
def _duckdb_tables(corpus: Path, folder: Path, rng: random.Random) -> None:
    import duckdb

    given = arrow(columns_of(corpus, rng))
    name = rng.choice(["clicks", 'a"b', "select", "é", "x.y"])
    with duckdb.connect(str(folder / "log.duckdb")) as connection:
        try:
            connection.register("given", given)
            quoted = '"' + name.replace('"', '""') + '"'
            connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM given")
            if rng.random() < 0.3:
                connection.execute(f"CREATE VIEW v AS SELECT * FROM {quoted}")
            if rng.random() < 0.2:
                secret = written(folder / "secret.csv", b"a,b\n1,2\n")
                connection.execute(f"CREATE VIEW w AS SELECT * FROM read_csv('{secret}')")
        except duckdb.Error:
            pass
    asked = rng.choice([name, name, "v", "w", None, "nobody"])
    read((folder / "log.duckdb", asked) if asked else folder / "log.duckdb", rng)


@target("documents", 8)
def _documents(corpus: Path, folder: Path, rng: random.Random) -> None:
    if rng.random() < 0.5:
        data = m.damaged((corpus / "documents.parquet").read_bytes(), rng)
        source: Any = written(folder / "documents.parquet", data)
    else:
        source = arrow(columns_of(corpus, rng, "documents.parquet"))
    missing: Any = rng.choice([None, "keep", 0.0])
    read(corpus / "log.parquet", rng, documents=source, missing=missing)


@target("options of read_log", 4)
def _read_options(corpus: Path, folder: Path, rng: random.Random) -> None:
    names: list[Any] = [None, "click", "position", "doc_id", "nobody", "", 7, "f*", "\x00", "a'b"]
    options: dict[str, Any] = {
        "columns": {rng.choice(["position", "query_id", "odd"]): rng.choice(names)},
        "label": rng.choice(["click", "nobody", "position", ""]),
        "labels": rng.choice([(), ["position"], "click", ["click", "click"]]),
        "context": rng.choice([(), ["ranker"], ["nobody"], ["click"]]),
        "features": rng.choice([None, ["position"], ["nobody"], "*", ["~odd"], []]),
        "positions_from": rng.choice([None, 0, 1, 2, "1"]),
        "missing": rng.choice([None, "keep", 0.0, float("nan"), float("inf"), "odd"]),
        "text_ids": rng.random() < 0.5,
        "collapse": rng.choice([True, False, "halves", "odd", None]),
        "memory_limit": rng.choice([None, "1GB", "0", "-1", "odd", 10**9]),
        "threads": rng.choice([None, 1, 0, -1]),
    }
    some = rng.sample(sorted(options), rng.randrange(1, 4))
    read(corpus / "log.parquet", rng, **{name: options[name] for name in some})


# Judged lists


def use_judged(judged: Any) -> None:
    import untilt as ut

    repr(judged), repr(ut.evaluate(judged, judged.labels))


@target("letor", 12, documented=(FileNotFoundError,))
def _letor(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    data = (corpus / "judged.txt").read_bytes()
    if rng.random() < 0.7:
        data = m.reworded(data.decode(), rng, " :").encode("utf-8", "surrogatepass")
    else:
        data = m.damaged(data, rng)
    if rng.random() < 0.3:
        data = gzip.compress(data, 1)
        data = m.damaged(data, rng) if rng.random() < 0.5 else data
    more: dict[str, Any] = rng.choice(
        [{}, {}, {"zero_based": True}, {"missing": "keep"}, {"n_features": 3}]
    )
    use_judged(ut.read_letor(written(folder / "judged.txt", data), **more))


@target("judged lists", 5)
def _judged(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    arrays: dict[str, Any] = {
        "features": np.ones((4, 2), np.float32), "labels": np.array([1.0, 0, 2, 0]),
        "indptr": np.array([0, 2, 4]), "query_id": np.array([1, 2]),
    }  # fmt: skip
    name = rng.choice(list(arrays))
    arrays[name] = rng.choice([
        [], [1], None, "x", [[1, 2], [3, 4]], arrays[name][:-1], arrays[name].astype(str),
        -arrays[name], arrays[name] * np.inf, np.array([0, 2**40]), [0, 4, 2, 4], [[1], [1, 2]],
        arrays[name].astype(object), np.array([0, 2, 4.5]), [10**400] * 4, np.full(4, np.nan),
    ])  # fmt: skip
    use_judged(ut.JudgedLists(**arrays))

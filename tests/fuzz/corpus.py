"""The good files that damage starts from: a log in every format, models, curves, a run, results."""

import bz2
import gzip
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

FEW: dict[str, Any] = {"widths": (4,), "epochs": 2, "learning_rate": 0.02}
# Small ones of each kind; what is not named here is taken as it is.
SMALL: dict[str, dict[str, Any]] = {
    "lambdamart": {"n_trees": 3, "n_leaves": 4, "n_threads": 1},
    "linear": {"max_rounds": 2},
    "svm": {"max_rounds": 2},
    **dict.fromkeys(("neural", "dual-learning", "tower", "pal"), FEW),
    "pairwise-trust": {**FEW, "bias": 1 / np.arange(1, 11)},
    "feedback-towers": {**FEW, "towers": {"click": "product"}},
}
QUICK_KINDS = ("lambdamart", "linear", "rctr", "dbn")
RUN_OPTIONS: dict[str, Any] = {"trees": 4, "threads": 1, "method": ["balanced", "linear"]}
EXPERIMENT = """
name = "tiny"
title = "t"
document = "000"
reference = "wang2020prs"
source = "Figure 9"
question = "?"
form = "lines"
[full]
queries = 15
test_queries = 10
sessions_per_query = 20
seeds = 2
features = 6
[quick]
queries = 12
test_queries = 8
sessions_per_query = 10
seeds = 2
features = 6
points = 2
[[panel]]
name = "p"
metrics = ["ndcg@10"]
[panel.sweep]
parameter = "protocol.theta"
values = [0, 1, 2]
title = "theta"
[[row]]
name = "clicks"
title = "Clicks"
ranker = "linear"
[[row]]
name = "labels"
title = "Labels"
ranker = "linear"
train_on = "labels"
fixed = true
[[claim]]
text = "labels are better"
source = "Figure 9"
kind = "above"
rows = ["labels", "clicks"]
"""


def build(folder: Path, *, quick: bool) -> None:
    """Fill the folder; with `quick` only some kinds of models, which saves compiling networks."""
    import untilt as ut

    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    judged = ut.make_judged(n_queries=40, n_features=5, seed=5)
    made = ut.simulate_to_parquet(
        judged, folder / "log", "harvest", n_sessions=1500, seed=5, n_threads=1
    )
    ut.write_letor(judged.split(0.2, seed=0)[0], folder / "judged.txt")
    _log_in_every_format(folder, made.log)
    log = ut.read_log(made.log, documents=made.documents)
    _models(folder / "models", log, quick=quick)
    run = ut.run(made.log, folder / "run", documents=made.documents, **RUN_OPTIONS)
    shutil.copyfile(run.folder / "bias.json", folder / "bias.json")
    shutil.copyfile(run.folder / "figures.json", folder / "figures.json")
    _layouts(folder, judged)
    (folder / "tiny.toml").write_text(EXPERIMENT)
    _results(folder)
    if not quick:
        _checkpoint(folder, log)


def _log_in_every_format(folder: Path, log: Path) -> None:
    import duckdb

    source = f"(SELECT * FROM read_parquet('{log}') LIMIT 400)"
    with duckdb.connect(str(folder / "log.duckdb")) as connection:
        connection.execute(f"CREATE TABLE clicks AS SELECT * FROM {source}")
        connection.execute(f"COPY clicks TO '{folder / 'log.csv'}' (HEADER)")
        connection.execute(f"COPY clicks TO '{folder / 'log.parquet'}' (FORMAT parquet)")
        documents = log.parent / "documents.parquet"
        connection.execute(
            f"COPY (SELECT * FROM read_parquet('{documents}') WHERE (query_id, doc_id) IN "
            f"(SELECT (query_id, doc_id) FROM clicks)) TO '{folder / 'documents.parquet'}' "
            "(FORMAT parquet)"
        )
    _newer_formats(folder)
    with gzip.open(folder / "log.csv.gz", "wb") as file:
        file.write((folder / "log.csv").read_bytes())
    with gzip.open(folder / "judged.txt.gz", "wb") as file:
        file.write((folder / "judged.txt").read_bytes())


def _layouts(folder: Path, judged: Any) -> None:
    """Logs whose positions are more than ranks, counted and with contexts; their curves."""
    import untilt as ut
    from untilt.simulation.simulate import write_ubi

    write_ubi(folder / "log.parquet", folder)
    grid = ut.simulate_grid(judged, ut.Grid(2, 3), n_sessions=400, seed=5, n_threads=1).log
    device = np.where(np.arange(grid.n_lists) % 2, "phone", "desktop").astype(object)
    grid = replace(grid, context={"device": device})
    listed = replace(grid, layout=None)
    ut.write_log(grid, folder / "grid.parquet", drop_unshown=True)
    ut.write_log(listed, folder / "counted.parquet", drop_unshown=True)
    curves = folder / "curves"
    curves.mkdir()
    shutil.copyfile(folder / "bias.json", curves / "list.json")
    ut.AllPairs().fit(grid).bias_.save(curves / "grid.json")
    ut.ContextualBias().fit(listed).curves_.by_context().save(curves / "context.json")


def _newer_formats(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "log.parquet")
    pa.feather.write_feather(table, folder / "log.feather", compression="uncompressed")
    text = "".join(json.dumps(row, default=str) + "\n" for row in table.to_pylist()).encode()
    (folder / "log.jsonl").write_bytes(text)
    (folder / "log.jsonl.bz2").write_bytes(bz2.compress(text))
    with pa.CompressedOutputStream(str(folder / "log.jsonl.zst"), "zstd") as stream:
        stream.write(text)
    with sqlite3.connect(folder / "log.sqlite") as connection:
        connection.execute(f"CREATE TABLE clicks ({', '.join(table.column_names)})")
        places = ", ".join("?" * table.num_columns)
        rows = [tuple(map(_plain, row.values())) for row in table.to_pylist()]
        connection.executemany(f"INSERT INTO clicks VALUES ({places})", rows)
        connection.execute("CREATE TABLE other AS SELECT * FROM clicks LIMIT 9")
    connection.close()


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


def _models(folder: Path, log: Any, *, quick: bool) -> None:
    from untilt import catalog

    for kind in ("ranker", "click model"):
        (folder / kind).mkdir(parents=True)
        for record in catalog.methods(kind):
            if not quick or record.name in QUICK_KINDS:
                model = record.make(**SMALL.get(record.name, {})).fit(log)
                model.save(folder / kind / f"{record.name}.untilt")


def _results(folder: Path) -> None:
    from untilt.papers.cells import plan, run
    from untilt.papers.datasets import JudgedSource
    from untilt.papers.schema import load

    what = plan(
        load(str(folder / "tiny.toml")), JudgedSource(), folder / "reproduced", scale="quick"
    )
    run(what)
    shutil.copyfile(what.results.path, folder / "results.jsonl")


def _checkpoint(folder: Path, log: Any) -> None:
    import untilt as ut

    ut.NeuralRanker(**FEW, checkpoint=folder / "checkpoint.npz").fit(log)

"""Training in the barrier tasks of Spark: all run at the same time, and each is a worker."""

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from untilt.cluster.edges import MAX_BIN
from untilt.cluster.group import tracker
from untilt.cluster.part import check_ranker, train_read
from untilt.cluster.sent import Reading, model_bytes, ranker_of
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART


def train_spark(
    ranker: LambdaMART,
    frame: Any,
    *,
    n_workers: int,
    documents: Any = None,
    host: str | None = None,
    max_bin: int = MAX_BIN,
    xgboost_params: Mapping[str, Any] | None = None,
    **reading: Unpack[Reading],
) -> LambdaMART:
    """Train on a log in Spark, by XGBoost in barrier tasks; the ranker is as by `train_part`.

    Rows go to workers by their query, each worker reads its rows as `read_log` does, and the ranker
    comes back to the driver. The number of workers changes the time it takes and nothing else.

    Parameters
    ----------
    ranker : as in `train_part`
    frame : a Spark DataFrame with one row per impression, or counted by `collapse_sql`
    n_workers : barrier tasks, which all need a free slot at the same time
    documents : a Spark DataFrame with the features of each (query_id, doc_id); without it they
        stand in the rows of the log, and `features` names them
    host : an address of the driver that all executors reach; spark.driver.host by default
    reading : `columns`, `label`, `labels`, `features`, `missing`, `positions_from`, `text_ids` and
        `on_bad`, as in `read_log`

    untilt, XGBoost and pyarrow must be installed where the executors' Python is (PYSPARK_PYTHON).

    Examples
    --------
    >>> ranker = train_spark(ut.LambdaMART(ut.PRS(bias)), clicks, n_workers=8,    # doctest: +SKIP
    ...                      documents=documents)
    """
    check_ranker(ranker, xgboost_params, max_bin)
    if isinstance(n_workers, bool) or not isinstance(n_workers, int) or n_workers < 1:
        raise OptionError(f"n_workers must be a whole number of at least 1. Got {n_workers!r}.")
    names = reading.get("columns") or {}
    query, document = (names.get(role) or role for role in ("query_id", "doc_id"))
    if documents is not None:
        features = [name for name in documents.columns if name not in (query, document)]
        reading.setdefault("features", features)
        frame = frame.join(documents, on=[query, document], how="left")
    session = frame.sparkSession
    parts = frame.repartition(n_workers, query)
    if host is None:
        host = session.conf.get("spark.driver.host")
    with tracker(n_workers, host) as workers:
        task = _task(ranker, dict(workers), dict(reading), max_bin, dict(xgboost_params or {}))
        found = parts.mapInArrow(task, "model binary", barrier=True).collect()
    return ranker_of([bytes(row[0]) for row in found])


def _task(
    ranker: LambdaMART,
    workers: dict[str, Any],
    reading: dict[str, Any],
    max_bin: int,
    params: dict[str, Any],
) -> Any:
    """What a barrier task does with its rows."""

    def train(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        from untilt.data.read.read_log import read_log

        number = BarrierTaskContext.get().partitionId()
        rows = list(batches)

        def read() -> Any:
            if not rows:
                raise OptionError(
                    f"worker {number} got no query: there are fewer queries than workers, or they "
                    "fell together. Use fewer workers."
                )
            return read_log(pa.Table.from_batches(rows), **reading)

        mine = {**workers, "dmlc_task_id": f"{number:06d}"}
        found = train_read(ranker, read, mine, max_bin=max_bin, xgboost_params=params)
        if number == 0:
            yield pa.RecordBatch.from_pydict({"model": [model_bytes(found)]})

    return train

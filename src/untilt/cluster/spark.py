"""Training in the barrier tasks of Spark: all run at the same time, and each is a worker."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

from untilt._core.declared import Option, changed, taking
from untilt.cluster.group import tracker
from untilt.cluster.part import ClusterJob, check_ranker, model_bytes, ranker_of, train_read
from untilt.data.read.options import WorkerOptions
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART


@dataclass(frozen=True)
class SparkJob(ClusterJob):
    """What `train_spark` was asked for."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "ranker", "frame", "n_workers", "documents", "host", "max_bin", "xgboost_params",
    )  # fmt: skip

    ranker: LambdaMART
    frame: Any
    _: KW_ONLY
    n_workers: Annotated[int, Option(least=1)]


@taking(SparkJob)
def train_spark(job: SparkJob) -> LambdaMART:
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
    columns, label, labels, features, missing, positions_from, text_ids, on_bad : as in `read_log`

    untilt, XGBoost and pyarrow must be installed where the executors' Python is (PYSPARK_PYTHON).

    Examples
    --------
    >>> ranker = train_spark(ut.LambdaMART(ut.PRS(bias)), clicks, n_workers=8,    # doctest: +SKIP
    ...                      documents=documents)
    """
    check_ranker(job.ranker, job.xgboost_params, job.max_bin)
    names, frame, documents = job.columns or {}, job.frame, job.documents
    reading = changed(job, WorkerOptions)
    query, document = (names.get(role) or role for role in ("query_id", "doc_id"))
    if documents is not None:
        features = [name for name in documents.columns if name not in (query, document)]
        reading.setdefault("features", features)
        frame = frame.join(documents, on=[query, document], how="left")
    session = frame.sparkSession
    parts = frame.repartition(job.n_workers, query)
    host = job.host or session.conf.get("spark.driver.host")
    with tracker(job.n_workers, host) as workers:
        params = dict(job.xgboost_params or {})
        task = _task(job.ranker, dict(workers), reading, job.max_bin, params)
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

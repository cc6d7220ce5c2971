"""Training on Dask: one task on each worker of a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from untilt._core.declared import changed, taking
from untilt.cluster.group import tracker
from untilt.cluster.part import ClusterJob, check_ranker, model_bytes, ranker_of, train_read
from untilt.data.read.options import WorkerOptions
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART


@dataclass(frozen=True)
class DaskJob(ClusterJob):
    """What `train_dask` was asked for."""

    FIRST: ClassVar[tuple[str, ...]] = (
        "ranker", "parts", "client", "documents", "host", "max_bin", "xgboost_params",
    )  # fmt: skip

    ranker: LambdaMART
    parts: Any
    client: Any


@taking(DaskJob)
def train_dask(job: DaskJob) -> LambdaMART:
    """Train on the workers of a Dask cluster; the result is like that of `train_part`.

    Parameters
    ----------
    ranker : as in `train_part`
    parts : a Dask DataFrame with one row per impression, which is shuffled by query over all
        workers of the cluster; or a list with the source of each worker's rows, such as paths that
        it can read, with whole queries each
    client : of the cluster
    documents : the documents table, as in `read_log`: a source that all workers can read
    host : an address of this process that all workers reach; the one that the scheduler is reached
        from by default
    columns, label, labels, features, missing, positions_from, text_ids, on_bad : as in `read_log`

    Examples
    --------
    >>> ranker = train_dask(ut.LambdaMART(ut.PRS(bias)), clicks, client,    # doctest: +SKIP
    ...                     documents="/shared/documents.parquet")
    """
    check_ranker(job.ranker, job.xgboost_params, job.max_bin)
    client = job.client
    known = sorted(client.scheduler_info(n_workers=-1)["workers"])
    sources = _sources(job.parts, client, len(known), job.columns or {})
    options = {**changed(job, WorkerOptions), "documents": job.documents}
    with tracker(len(sources), job.host or _address(client)) as workers:
        more = options, job.max_bin, dict(job.xgboost_params or {})
        tasks = [
            client.submit(
                _train, job.ranker, source, {**workers, "dmlc_task_id": f"{number:06d}"}, number,
                *more, workers=[worker], pure=False, retries=0, allow_other_workers=False,
            )
            for number, (source, worker) in enumerate(zip(sources, known, strict=False))
        ]  # fmt: skip
        found = client.gather(tasks)
    return ranker_of([model for model in found if model is not None])


def _sources(
    parts: Any, client: Any, n_workers: int, columns: Mapping[str, str | None]
) -> list[Any]:
    """One source for each worker."""
    if hasattr(parts, "to_delayed"):
        query = columns.get("query_id") or "query_id"
        shuffled = parts.shuffle(on=query, npartitions=n_workers).to_delayed()
        return list(client.compute(list(shuffled)))
    if not isinstance(parts, Sequence) or isinstance(parts, str) or not parts:
        raise OptionError(
            "parts must be a Dask DataFrame or a list with a source for each worker. "
            f"Got {type(parts).__name__} instead."
        )
    if len(parts) > n_workers:
        raise OptionError(
            f"{len(parts)} parts need as many workers at the same time, and the cluster has "
            f"{n_workers}. Make fewer parts, or add workers."
        )
    return list(parts)


def _address(client: Any) -> str:
    from distributed.comm.addressing import get_address_host
    from distributed.utils import get_ip

    scheduler = get_address_host(client.scheduler.address)
    return scheduler if scheduler.startswith("127.") else str(get_ip(scheduler))


def _train(
    ranker: LambdaMART, source: Any, workers: dict[str, Any], number: int, options: dict[str, Any],
    max_bin: int, params: dict[str, Any],
) -> bytes | None:  # fmt: skip
    from untilt.data.read.read_log import read_log

    found = train_read(
        ranker, lambda: read_log(source, **options), workers, max_bin=max_bin, xgboost_params=params
    )
    return model_bytes(found) if number == 0 else None

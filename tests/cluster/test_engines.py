"""Spark's barrier tasks and Dask's workers train the ranker that one process trains."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.data import engines

from untilt.bias.given import PowerLaw
from untilt.cluster.dask import train_dask
from untilt.cluster.part import train_part
from untilt.cluster.spark import train_spark
from untilt.data.read.read_log import read_log
from untilt.data.write_log import write_log
from untilt.errors import OptionError
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.simulation.simulate import simulate
from untilt.simulation.synthetic import make_judged
from untilt.weighting.tables import PRS, PairwiseDebiasing

pytest.importorskip("xgboost")
pytestmark = [
    pytest.mark.slow,
    # Of the libraries about each other; and of sockets that they leave to the garbage collector.
    pytest.mark.filterwarnings("ignore"),
]
JOINT = LambdaMART(PairwiseDebiasing(), n_trees=6, n_leaves=8, n_threads=1, seed=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A log with features in its rows, the same with a documents table, and its two halves."""
    where = tmp_path_factory.mktemp("cluster")
    log = simulate(make_judged(40, 5, seed=0), "dla", n_sessions=1_200, seed=0, n_threads=1).log
    write_log(log, where / "wide.parquet", drop_unshown=True)
    write_log(log, where / "clicks.parquet", documents=where / "documents.parquet")
    for k in range(2):
        part = log.take(np.flatnonzero(log.query % 2 == k))
        write_log(part, where / f"part-{k}.parquet", drop_unshown=True)
    return where


@pytest.fixture(scope="module")
def features(folder):
    return [name for name in pq.read_schema(folder / "wide.parquet").names if name[0] == "f"]


def text_of(ranker):
    return ranker.booster_.model_to_string()


def test_spark(folder, features, tmp_path):
    alone = train_part(JOINT, read_log(folder / "wide.parquet", features=features))
    with engines.spark(tmp_path) as session:
        wide, clicks, documents = (
            session.read.parquet(str(folder / f"{name}.parquet"))
            for name in ("wide", "clicks", "documents")
        )
        found = train_spark(JOINT, wide, n_workers=2, features=features)
        assert text_of(found) == text_of(alone)
        assert found.summary_ == alone.summary_
        np.testing.assert_array_equal(found.bias_.examination, alone.bias_.examination)
        joined = train_spark(JOINT, clicks, n_workers=1, documents=documents)
        assert text_of(joined) == text_of(alone)
        with pytest.raises(OptionError, match="n_workers"):
            train_spark(JOINT, wide, n_workers=0)


def test_dask(folder, features):
    distributed = pytest.importorskip("distributed", reason="needs dask[distributed]")
    ranker = LambdaMART(PRS(PowerLaw(1.0)), n_trees=6, n_leaves=8, n_threads=1)
    alone = train_part(ranker, read_log(folder / "wide.parquet", features=features))
    parts = [str(folder / f"part-{k}.parquet") for k in range(2)]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        found = train_dask(ranker, parts, client, features=features)
        assert text_of(found) == text_of(alone)
        with pytest.raises(OptionError, match="more than one worker"):
            train_dask(ranker, [parts[0], parts[0]], client, features=features)
        with pytest.raises(OptionError, match="as many workers"):
            train_dask(ranker, [*parts, *parts], client, features=features)
        frames = pytest.importorskip("dask.dataframe", reason="needs dask[dataframe]")
        frame = frames.read_parquet(folder / "wide.parquet")
        assert text_of(train_dask(ranker, frame, client, features=features)) == text_of(alone)

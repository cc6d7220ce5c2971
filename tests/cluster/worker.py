"""A worker of its own process: `python -m tests.cluster.worker FOLDER NUMBER ADDRESS...`."""

import json
import sys
from pathlib import Path

from untilt.cluster.part import train_part
from untilt.data.read.read_log import read_log
from untilt.rankers.trees.lambdamart import LambdaMART
from untilt.weighting.tables import PairwiseDebiasing


def ranker() -> LambdaMART:
    return LambdaMART(PairwiseDebiasing(), n_trees=8, n_leaves=8, n_threads=1, seed=3)


def part(folder: Path, number: int):
    return read_log(
        folder / f"clicks-{number}.parquet",
        documents=folder / f"documents-{number}.parquet",
        missing="keep",
    )


if __name__ == "__main__":
    folder, number, workers = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    found = train_part(ranker(), part(folder, number), workers)
    found.save(folder / f"ranker-{number}.untilt")

"""Whether a written model scores as the ranker does: `check_export`."""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray
from untilt._core.feature_table import feature_array
from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.errors import ColumnError, FileFormatError, OptionError, ShapeError, did_you_mean
from untilt.exports.format import chosen
from untilt.exports.forms import LinearForm, SingleArray
from untilt.rankers.base import Ranker

# Of the scores; 300 trees summed in single precision differ by about 1.5e-6.
TOLERANCE = 1e-5


@dataclass(frozen=True)
class ExportCheck:
    """How far the scores of a written model are from those of its ranker.

    Parameters
    ----------
    to : the format
    rows, lists : that were scored
    largest : the largest difference of a score
    beyond : rows that differ by more than `TOLERANCE`, of the largest score where that is above 1
    reordered : lists in which two documents stand the other way round
    tied : lists in which two documents of different scores have equal ones in the engine, or stand
        the other way round though they are closer than the engine's numbers can tell
    closest : how close is too close to tell: 4 steps of a single float at the largest score
    negative : features that are negative somewhere, where the engine's features cannot be
    """

    to: str
    rows: int
    lists: int
    largest: float
    beyond: int
    reordered: int
    tied: int
    closest: float
    negative: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether no row differs and no list changes."""
        return self.beyond == 0 and self.reordered == 0

    def __str__(self) -> str:
        return (
            f"{self.to}: {self.rows:,} rows in {self.lists:,} lists. Largest difference of a score "
            f"{self.largest:.1e}; {self.beyond:,} rows differ by more than {TOLERANCE:g}; "
            f"{self.reordered:,} lists change their order"
        )


def check_export(
    ranker: Ranker,
    path: str | os.PathLike[str],
    sample: Any,
    to: str | None = None,
    *,
    indptr: Any = None,
) -> ExportCheck:
    """Score a sample by the written file, as its engine would, and compare with the ranker.

    Parameters
    ----------
    ranker, path, to : as given to `export_model`
    sample : a `ClickLog` or `JudgedLists` with features; or features, (rows, d) or a data frame
    indptr : (lists + 1,) where the lists of given features begin; one list where not given
    """
    record, format, form = chosen(ranker, Path(path), to)
    features, bounds = _rows(ranker, sample, indptr)
    wanted = ranker.predict(features)
    try:
        found = format.scores(Path(path), ranker.feature_names_, features)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise FileFormatError(
            f"{path} is no model that untilt wrote for {record.title}: {error!r}. Export it again."
        ) from error
    if isinstance(form, LinearForm) and not format.adds_constant:
        found = found + form.constant
    negative: tuple[str, ...] = ()
    if format.unsigned:
        below = np.fmin.reduce(features, axis=0) < 0
        negative = tuple(np.array(form.names, object)[below])
    return compared(record.name, wanted, found, bounds, negative=negative)


def compared(
    to: str,
    wanted: FloatArray,
    found: FloatArray,
    indptr: IntArray,
    *,
    negative: tuple[str, ...] = (),
) -> ExportCheck:
    """The differences of scores and of the order within lists."""
    difference = np.abs(np.where(wanted == found, 0.0, found - wanted))
    difference[~np.isfinite(difference)] = np.inf
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    closest = 4 * float(np.spacing(np.float32(scale)))
    kinds = [_changed(wanted[a:b], found[a:b], closest) for a, b in pairwise(indptr)]
    return ExportCheck(
        to=to,
        rows=len(wanted),
        lists=len(indptr) - 1,
        largest=float(np.max(difference, initial=0.0)),
        beyond=int(np.sum(difference > TOLERANCE * scale)),
        reordered=sum(kind == 2 for kind in kinds),
        tied=sum(kind == 1 for kind in kinds),
        closest=closest,
        negative=negative,
    )


def _changed(wanted: FloatArray, found: FloatArray, closest: float) -> int:
    """0: the same order; 1: but for documents too close to tell; 2: another order.

    In the order of the ranker the engine's scores must fall. Where one is above an earlier one, the
    distance of the two in the ranker's scores says which it is.
    """
    order = np.argsort(-wanted, kind="stable")
    s, e = wanted[order], found[order]
    if len(s) < 2:
        return 0
    worst = 0
    highest = np.maximum.accumulate(e[::-1])[::-1]  # of this document and all that stand below
    for at in np.flatnonzero(highest[1:] >= e[:-1]):
        later = slice(at + 1, None)
        apart = s[at] - s[later][e[later] > e[at]]
        if np.any(apart > closest):
            return 2
        if np.any(apart > 0) or np.any((e[later] == e[at]) & (s[later] < s[at])):
            worst = 1
    return worst


def _rows(ranker: Ranker, sample: Any, indptr: Any) -> tuple[SingleArray, IntArray]:
    """Features as single floats in the order of training, and where lists begin."""
    if isinstance(sample, ClickLog):
        if sample.features is None:
            raise OptionError("the sample has no features to score.")
        order = np.argsort(sample.doc_query, kind="stable")
        _, sizes = np.unique(sample.doc_query, return_counts=True)
        features = feature_array(sample, ranker.feature_names_)[order]
        return features.astype(np.float32, copy=False), ragged.indptr_of(sizes)
    features = feature_array(sample, ranker.feature_names_)
    if isinstance(sample, JudgedLists):
        return features.astype(np.float32, copy=False), sample.indptr
    if len(features) == 0:
        raise OptionError("the sample has no rows. Give some to compare scores on.")
    bounds = np.array([0, len(features)]) if indptr is None else np.asarray(indptr, np.int64)
    if bounds[0] != 0 or bounds[-1] != len(features) or np.any(np.diff(bounds) < 0):
        raise ShapeError(f"indptr must go from 0 to {len(features)}, without falling.")
    return features.astype(np.float32, copy=False), bounds


def read_sample(path: Path, names: tuple[str, ...]) -> tuple[SingleArray, IntArray]:
    """(features, indptr) of a file: a table with these columns, or LETOR text.

    Rows of equal query_id are a list; without that column all rows are one.
    """
    if path.suffix == ".txt" or path.name.endswith(".txt.gz"):
        from untilt.data.letor.read_letor import read_letor

        judged = read_letor(path, missing="keep")
        return feature_array(judged, names).astype(np.float32, copy=False), judged.indptr
    from untilt.data.read.database import open_database, quoted, translated_errors
    from untilt.data.read.files import located
    from untilt.data.read.sources import open_source

    files = located(path)
    with open_database(
        memory_limit=None, temp_directory=None, threads=None, files=files.names
    ) as database:
        source = open_source(database, files, "sample")
        lost = [name for name in names if not source.has(name)]
        if lost:
            hint = did_you_mean(lost[0], source.columns)
            raise ColumnError(
                f"{source.what} has no column {lost[0]!r}, a feature of the ranker.{hint} Give a "
                f"table with all of its {len(names)} features, and query_id."
            )
        lists = ("query_id",) if source.has("query_id") else ()
        table = source.load((*lists, *names), frozenset(lists))
        columns = [
            f"coalesce(CAST({quoted(name)} AS FLOAT), 'nan'::FLOAT) AS f{n}"
            for n, name in enumerate(names)
        ]
        key = "dense_rank() OVER (ORDER BY query_id)" if lists else "1"
        with translated_errors(source.what):
            found = database.arrays(f"SELECT {key} AS list, {', '.join(columns)} FROM {table}")
    order = np.argsort(found["list"], kind="stable")
    values = [found[f"f{n}"][order] for n in range(len(names))]
    features: SingleArray = np.column_stack(values).astype(np.float32, copy=False)
    return features, ragged.indptr_of(np.unique(found["list"], return_counts=True)[1])

"""Judged lists from and to LETOR text, the format of nearly all public learning-to-rank data.

    2 qid:10032 1:0.056 2:0.25 3:1 #docid = GX029-35-5894638

A label, the query, features by number, and a comment that may name the document. SVMlight text with
query ids is the same thing.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from untilt.errors import OptionError
from untilt.logs.judged import JudgedLists
from untilt.logs.letor_collect import Collector
from untilt.logs.letor_lines import line_blocks
from untilt.logs.letor_parse import MOST_COLUMNS
from untilt.logs.letor_write import write_judged

PathLike = str | os.PathLike[str]


def read_letor(
    path: PathLike | Sequence[PathLike],
    *,
    n_features: int | None = None,
    feature_names: Sequence[str] | None = None,
    zero_based: bool = False,
) -> JudgedLists:
    r"""Read judged lists from LETOR (SVMlight) text, plain or gzip.

    Each line is `label qid:ID id:value id:value ... # comment`, with any spacing and the features
    in any order; blank lines and lines with a comment alone are skipped. A feature that a line does
    not name is 0. Values are exactly float32(float(text)).

    Query and document ids become whole numbers if all of them are written as such, else they stay
    text. A document's id is the word after `docid =` in the comment, else the comment's first word,
    else its place in the query, counted from 0.

    Several files are read as one long file: a query may go on from the end of one file to the start
    of the next. Rows of a query that stand apart are an error, as is everything else that is not in
    the format; the message names file and line.

    Parameters
    ----------
    path : one file, or several in this order
    n_features : columns of `features`; where absent, the largest feature id
    feature_names : one name per feature; where absent, f1, f2, ...
    zero_based : feature ids start at 0 instead of 1

    Examples
    --------
    >>> from tempfile import NamedTemporaryFile
    >>> with NamedTemporaryFile("w", suffix=".txt") as file:
    ...     _ = file.write("2 qid:a 1:0.5 2:1 #docid = X\n0 qid:a 2:3 #docid = Y\n")
    ...     file.flush()
    ...     read_letor(file.name)
    JudgedLists(1 queries, 2 documents, 2 features, labels {0, 2})
    """
    names = _names(feature_names)
    collector = Collector(n_features=_width(n_features, names), first_id=0 if zero_based else 1)
    for file in _paths(path):
        collector.start_file(str(file))
        for data in line_blocks(file):
            collector.add(data)
        collector.end_file()
    return collector.judged(names)


def write_letor(judged: JudgedLists, path: PathLike) -> None:
    """Write judged lists as LETOR text, gzip if the name ends in `.gz`, whole or not at all.

    Every feature is written, zeros too, so that any reader finds the same number of them, with the
    fewest digits that read back as the same float32. `read_letor` gives equal lists again, but for
    two things that the format has no place for: feature names, and whether an id such as 12 was
    text. Document ids go into the comment unless they are the places in the query.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(f"path must be one file. Got {path!r} instead.")
    write_judged(judged, _paths(path)[0])


def _paths(path: PathLike | Sequence[PathLike]) -> list[Path]:
    several = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(several, Sequence) or len(several) == 0:
        raise OptionError(f"path must be a file or a list of files. Got {path!r} instead.")
    for one in several:
        if not isinstance(one, (str, os.PathLike)) or "\0" in os.fspath(one):
            raise OptionError(f"path must be a file or a list of files. Got {one!r} instead.")
    return [Path(one) for one in several]


def _names(feature_names: Sequence[str] | None) -> tuple[str, ...] | None:
    if feature_names is None:
        return None
    names = () if isinstance(feature_names, str) else tuple(feature_names)
    if not names or not all(isinstance(name, str) for name in names):
        raise OptionError(
            "feature_names must be a list with one name per feature. "
            f"Got {feature_names!r} instead."
        )
    return names


def _width(n_features: int | None, names: tuple[str, ...] | None) -> int | None:
    if n_features is None:
        return None if names is None else len(names)
    whole = isinstance(n_features, (int, np.integer)) and not isinstance(n_features, bool)
    if not whole or not 1 <= n_features <= MOST_COLUMNS:
        raise OptionError(
            f"n_features must be a whole number from 1 to {MOST_COLUMNS:,}. "
            f"Got {n_features!r} instead."
        )
    if names is not None and len(names) != n_features:
        raise OptionError(
            f"feature_names must have n_features = {n_features} entries. Got {len(names)} instead."
        )
    return int(n_features)

"""Which queries a ranker has learned from, in a few bytes each.

A query is known by 64 bits of a hash of its id. An id may name another query in another data set
(queries are often just numbered), so the least hash of its documents' features is kept too: where
no query has it again, the ids were given anew.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from untilt._core.arrays import AnyArray, BoolArray, FeatureArray, IntArray, frozen, handed_over
from untilt._core.grouping import GOLDEN, splitmix64
from untilt._core.portable import Portable
from untilt.catalog import storable
from untilt.errors import ShapeError

# Queries that are kept: 12 bytes each, so at most 12.6 MB. Of more queries those with the smallest
# hashes are kept, which is a random sample of them.
MOST = 1 << 20
_BLOCK = 2048  # rows hashed at once: they stay in the cache


class Lookup(NamedTuple):
    """What is known of some queries, each a (queries,) mask.

    seen : the id was learned from
    same_documents : and so was the document with the least hash of its features
    told : whether it can be said at all; False only where no more than a sample was kept
    """

    seen: BoolArray
    same_documents: BoolArray
    told: BoolArray


@storable
@dataclass(frozen=True, eq=False)
class SeenQueries(Portable):
    """The queries of a training: hashes of their ids and of their documents.

    Two of n queries share a hash with probability below n^2 / 2^65: 3e-8 for a million.

    Parameters
    ----------
    query : (kept,) uint64, in rising order
    document : (kept,) uint32, the least hash of the features of one of the query's documents
    n_queries : how many there were; more than are kept above `MOST`
    """

    query: AnyArray
    document: AnyArray
    n_queries: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "query", frozen(self.query, np.uint64))
        object.__setattr__(self, "document", frozen(self.document, np.uint32))
        n = len(self.query) if self.query.ndim == 1 else -1
        if self.document.shape != (n,) or not n <= self.n_queries:
            raise ShapeError(
                f"queries and their documents must be as many. Got {self.query.shape} and "
                f"{self.document.shape} of {self.n_queries} queries."
            )

    def __len__(self) -> int:
        return self.n_queries

    def __repr__(self) -> str:
        return f"SeenQueries({self.n_queries:,} queries)"

    def lookup(self, query: AnyArray, document: AnyArray) -> Lookup:
        """Which queries, by the hashes of their ids and documents in any order, are among these."""
        if len(self.query) == 0:
            nothing = np.zeros(len(query), dtype=bool)
            return Lookup(nothing, nothing, ~nothing)
        place = np.minimum(np.searchsorted(self.query, query), len(self.query) - 1)
        seen = self.query[place] == query
        told = np.ones(len(seen), dtype=bool)
        if self.n_queries > len(self.query):
            told = query <= self.query[-1]
        return Lookup(seen, seen & (self.document[place] == document), told)


def seen_queries(
    ids: AnyArray, doc_query: IntArray, features: FeatureArray, *, most: int = MOST
) -> SeenQueries:
    """The memory of these queries; document j belongs to the query with index doc_query[j]."""
    query, first = np.unique(id_hashes(ids), return_index=True)
    document = np.full(len(ids), np.iinfo(np.uint32).max, dtype=np.uint32)
    if len(doc_query):
        order = np.argsort(doc_query, kind="stable")
        owner = doc_query[order]
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        document[owner[starts]] = np.minimum.reduceat(row_hashes(features)[order], starts)
    return SeenQueries(query[:most], document[first][:most], len(query))


def id_hashes(ids: AnyArray) -> AnyArray:
    """(ids,) 64 bits of the BLAKE2 hash of each id's text: 7 and "7" are the same id."""
    digests = b"".join(
        blake2b(str(each).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        for each in ids.tolist()
    )
    return handed_over(np.frombuffer(digests, dtype="<u8").astype(np.uint64))


def row_hashes(features: FeatureArray) -> AnyArray:
    """(rows,) 32 bits of a hash of each row in single precision.

    sum_j m_j x_j modulo 2^64 over the bits x_j of the entries, with odd m_j, and mixed at the end.
    """
    words = np.ascontiguousarray(features, dtype=np.float32).view(np.uint32)
    m = splitmix64(np.arange(1, words.shape[1] + 1, dtype=np.uint64) * GOLDEN) | np.uint64(1)
    total = np.empty(len(words), dtype=np.uint64)
    for start in range(0, len(words), _BLOCK):
        rows = slice(start, start + _BLOCK)
        total[rows] = words[rows].astype(np.uint64) @ m
    return (splitmix64(total) >> np.uint64(32)).astype(np.uint32)

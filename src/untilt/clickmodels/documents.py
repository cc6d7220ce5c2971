"""Which documents a model knows: matched by (query id, document id), never by their order."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import AnyArray, IntArray
from untilt.logs.clicklog import ClickLog


@dataclass(frozen=True, eq=False, repr=False)
class Documents:
    """The (query, document) pairs of the log that a model was fitted on.

    query_id : (queries,); doc_id, doc_query : (documents,), as in `ClickLog`
    """

    query_id: AnyArray
    doc_id: AnyArray
    doc_query: IntArray

    @classmethod
    def of(cls, log: ClickLog) -> "Documents":
        """Those of this log, shown or not."""
        return cls(log.query_id, log.doc_id, log.doc_query)

    def __len__(self) -> int:
        return len(self.doc_id)

    def __repr__(self) -> str:
        return f"Documents({len(self):,} of {len(self.query_id):,} queries)"

    def index_of(self, log: ClickLog) -> IntArray:
        """(documents of the log,) where each stands here, -1 for one that is not here."""
        if self._same_as(log):
            return np.arange(len(self))
        # A dictionary, because ids may be text here and whole numbers there.
        place = {pair: i for i, pair in enumerate(_pairs(self))}
        found = (place.get(pair, -1) for pair in _pairs(Documents.of(log)))
        return np.fromiter(found, np.int64, log.n_documents)

    def _same_as(self, log: ClickLog) -> bool:
        return (
            np.array_equal(self.doc_query, log.doc_query)
            and np.array_equal(self.query_id, log.query_id)
            and np.array_equal(self.doc_id, log.doc_id)
        )


def _pairs(documents: Documents) -> "zip[tuple[object, object]]":
    query = documents.query_id[documents.doc_query]
    return zip(query.tolist(), documents.doc_id.tolist(), strict=True)

"""The whole number that stands for a document in a packed list."""

import math
from dataclasses import dataclass

from untilt.logs.duck.documents import Documents
from untilt.logs.duck.impressions import Summary
from untilt.logs.duck.packing import fitting

# Ids packed as they are need more words than numbers within the query, but no join. Measured on
# 10 million impressions: the join costs as much time as some eight words. Words also cost memory.
_MOST_VALUE_WORDS = 6


@dataclass(frozen=True)
class DocumentCode:
    """A code from 1 to 2**bits - 1, as SQL over the log.

    Where `least` is None, it is the document's number within its query. Else it is the id, counted
    from the least one; `query` is then the query's id, and only the documents of distinct lists are
    looked up.
    """

    bits: int
    sql: str
    join: str
    query: str
    least: int | None = None


def document_code(summary: Summary, documents: Documents, *, label_bits: int) -> DocumentCode:
    """Ids as they are where they are small whole numbers, else numbers within the query."""
    if summary.id_bounds is not None:
        least, most = summary.id_bounds
        bits = (most - least + 1).bit_length()
        if _words(bits + label_bits, summary.depth) <= _MOST_VALUE_WORDS:
            sql = f"CAST(CAST(doc_id AS BIGINT) - ({least}) AS UBIGINT) + 1"
            return DocumentCode(bits, f"({sql})", "", "query_id", least)
    bits = int(documents.per_query.max(initial=1)).bit_length()
    join = "JOIN documents USING (query_id, doc_id)"
    return DocumentCode(bits, "CAST(d AS UBIGINT)", join, "q")


def _words(bits: int, depth: int) -> float:
    return fitting(bits, depth).n_words if bits <= 64 else math.inf

"""Click logs from counts: a document at a position, how often it was shown and clicked there."""

import numpy as np

import untilt as ut


def log_of_cells(doc_query, document, position, shown, clicks):
    """Lists of one document, each cell as two of them: with a click and without, counted."""
    count = np.column_stack([clicks, np.subtract(shown, clicks)]).ravel()
    kept = np.flatnonzero(count)
    document = np.repeat(document, 2)[kept]
    return ut.ClickLog(
        query_id=np.arange(doc_query.max() + 1),
        doc_id=np.arange(len(doc_query)),
        doc_query=doc_query,
        indptr=np.arange(len(kept) + 1),
        query=doc_query[document],
        document=document,
        position=np.repeat(position, 2)[kept],
        label=np.tile([1.0, 0.0], len(position))[kept],
        count=count[kept],
    )

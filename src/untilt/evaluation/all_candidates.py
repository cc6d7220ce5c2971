r"""Candidates that nobody was shown: how many top places a system gives them, and their worth.

A ranker that is deployed orders *all* candidates of a query, not only those that the log shows. Of
candidates that no session showed, clicks say nothing. So the value of such a ranking is computed
under two beliefs about them, with the same clicks, evaluator and errors. With lambda_d the mean
discount of document d where the system's first documents fill the slots of each list, gamma_d the
estimate of its relevance, n_d its impressions, S the shown and U the unshown candidates of a query,

    worth nothing           sum_{d in S} lambda_d gamma_d
    worth as much as those  sum_{d in S} lambda_d gamma_d + (sum_{d in U} lambda_d) g,
    that were shown         g = sum_{d in S} n_d gamma_d / sum_{d in S} n_d

each averaged over the sessions of the baseline: g is the mean relevance of an impression of the
query. Both are sums of credits of shown documents, with other discounts: errors of queries, curve
and people, intervals and paired differences are those of every estimate.

They are two beliefs, not the least and the greatest value that there can be: unshown candidates may
be better than the shown ones. Documents that an older ranker left out are rarely so on average.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.feature_table import predicted
from untilt.evaluation.judged import Predicts
from untilt.evaluation.pool import Pool
from untilt.evaluation.slots import Discounts, Slots
from untilt.evaluation.unshown import Worth


def unshown_documents(pool: Pool) -> BoolArray:
    """(documents,) whether no session of the log shows it, experiments too."""
    shown = np.zeros(pool.log.n_documents, dtype=bool)
    shown[pool.log.document] = True
    return ~shown[pool.document]


def with_candidates(pool: Pool) -> Pool | None:
    """The pool with all candidates of its queries; None where no session left one out.

    None too where documents have several versions: it is not known which one would be ranked.
    Propensities stay what they are: a document's mean over the sessions that they were taken over.
    """
    log = pool.log
    if log.item is not None:
        return None
    if pool.among == "candidates":
        return pool if unshown_documents(pool).any() else None
    answered = np.unique(log.query)  # the log of a pool has the sessions of its queries alone
    sessions = np.zeros(log.n_queries)
    sessions[answered] = pool.sessions
    document = np.flatnonzero(sessions[log.doc_query] > 0)
    if len(document) == len(pool.document):
        return None
    document = document[np.argsort(log.doc_query[document], kind="stable")]
    query = log.doc_query[document]
    number = np.empty(log.n_documents, dtype=np.int64)
    number[document] = np.arange(len(document))
    known = number[pool.document]
    n_cells, observed = np.zeros(len(document), dtype=np.int64), np.zeros(len(document))
    n_cells[known], observed[known] = ragged.lengths(pool.indptr), pool.observed
    slates = replace(pool.slates, document=known[pool.slates.document], n_documents=len(document))
    return replace(
        pool,
        indptr=ragged.indptr_of(n_cells),
        query=query,
        document=document,
        query_indptr=ragged.indptr_of(np.bincount(query, minlength=log.n_queries)[answered]),
        slates=slates,
        observed=observed,
        ordered=sessions[query],
        among="candidates",
    )


def candidate_scores(
    system: Any, scores: FloatArray | None, pool: Pool, candidates: Pool
) -> FloatArray | None:
    """(candidates,) scores of a system that has `scores` on a smaller pool; None: logged order.

    A candidate without a score (NaN) comes last.
    """
    if scores is None or candidates.document is pool.document:
        return scores
    log = pool.log
    of_log = np.full(log.n_documents, np.nan)
    of_log[pool.document] = scores
    rest = np.setdiff1d(candidates.document, pool.document, assume_unique=True)
    if not isinstance(system, Predicts):
        of_log[rest] = np.asarray(system, dtype=float)[rest]
    elif log.features is not None:
        of_log[rest] = predicted(system, log.features[rest], log.feature_names, log.missing)
    found = of_log[candidates.document]
    return np.where(np.isnan(found), -np.inf, found)


def under_belief(slots: Slots, scores: FloatArray | None, at: Discounts, worth: Worth) -> Discounts:
    """Discounts with which the credits of shown documents sum up to the value under a belief."""
    pool = slots.pool
    unshown = unshown_documents(pool)
    cell, document = at.cell, at.document
    if len(document):
        document = np.where(unshown, 0.0, document)
    if worth == "as shown":
        impressions = pool.by_document(pool.impressions)
        on = slots.discount_of(unshown, scores) / np.maximum(pool.by_query(impressions), 1.0)
        owner = pool.query_index
        if pool.cell_row is not None:  # a cell has the credit of its own sessions alone
            cell = cell + (on * pool.sessions)[owner[pool.document_index]]
        else:
            document = document + on[owner] * impressions
    if pool.cell_row is None:
        cell = document[pool.document_index]
    return Discounts(cell, document)

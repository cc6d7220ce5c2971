r"""By which evaluators a log is judged where none is named, and what that rests on.

Policy-aware credit pools a document's clicks over all sessions that showed it. That is right where
lists cannot know the session, and wrong where production shows a document to those who want it: it
takes the credit for that away from production. Credit of a session's own clicks (`ips`) is right
there, and wrong where clicks decide how long a list is. So, for sessions of one query and ranker:

    they show one list, drawn by chance        policy-aware
    their lists have several lengths           policy-aware, with a warning
    `untilt.auditing.sessions` rejects         own clicks
    else                                       both: the interval holds those of the two
"""

import numpy as np

from untilt._core.arrays import BoolArray, sum_by
from untilt.auditing.sessions import session_test
from untilt.auditing.variation import Variation
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import is_experiment
from untilt.data.clicklog import ClickLog
from untilt.data.counts import position_counts
from untilt.evaluation.evaluators import AffineEvaluator, ClippedEvaluator, IPSEvaluator
from untilt.evaluation.pool import Evaluator
from untilt.evaluation.systems import Inputs
from untilt.facts import Fact, note, serious, warning

LENGTHS_VARY = warning(
    "estimate.lengths-vary",
    "lists of one query and ranker have several lengths. Where clicks decide how long a list is, "
    "only pooled clicks are right, and where sessions want different documents only their own: "
    "{evaluator} takes the former",
)
SESSIONS_DIFFER = warning(
    "estimate.sessions-differ", "{finding:clause}: each session counts by its own clicks"
)
BOTH = note(
    "estimate.two-evaluators",
    "lists differ from session to session: intervals hold both those of {evaluator} and those of "
    "{other}, which counts each session's own clicks",
)

UNTESTED = serious(
    "estimate.untested-queries",
    "{share:.0%} of the clicks that it moves are of queries whose lists never vary, where nothing "
    "shows how far people read: if they read differently there, its difference to the shown order "
    "is off",
)

MOST_UNTESTED = 0.2  # of the moved credit; above it a run judges the other queries alone
FEWEST_SESSIONS = 5  # of a query: one that was asked once cannot show a document twice


def evaluators_of(
    production: ClickLog, variation: Variation, curve: PositionBias, by: Evaluator
) -> tuple[Evaluator, Evaluator | None, tuple[Fact, ...]]:
    """The evaluator, another one whose intervals count too, and what is to be said of them."""
    own = own_clicks(by, curve)
    if variation.lists_are_fixed:
        return by, None, ()
    if variation.lengths_vary:
        return by, None, (LENGTHS_VARY(evaluator=by.name),)
    test = session_test(production, curve)
    if test is not None and test.rejects:
        return own, None, (SESSIONS_DIFFER(finding=test.fact),)
    return by, own, (BOTH(evaluator=by.name, other=own.name),)


def own_clicks(by: Evaluator, curve: PositionBias) -> Evaluator:
    """The evaluator by each session's own clicks that corrects what this one does."""
    if not by.pools_documents:
        return by
    if curve.has_trust:
        return AffineEvaluator()
    clip = getattr(by, "clip", 0.0)
    return ClippedEvaluator(clip) if isinstance(clip, float) and clip > 0 else IPSEvaluator()


# Is the curve measured where the difference lies?


def queries_with_evidence(inputs: Inputs) -> BoolArray:
    r"""(queries,) of the log: whether clicks on documents of the query tell the curve's slope.

        I_q = sum_d sum_k m_dk (x_k - x_d)^2 > 0

    with x = log theta, m_dk the expected clicks and x_d their mean of x: some clicked document
    stood at two positions. Of an experiment a query without its sessions has no evidence. All have
    it where the curve was not measured on documents that moved.
    """
    log, curve = inputs.cells.log, inputs.bias
    if not inputs.evaluator.needs_bias or curve.rests_on not in (
        "experiment",
        "repeated positions",
    ):
        return np.ones(log.n_queries, dtype=bool)
    log = log.without_versions()
    counts = position_counts(log)
    known = (counts.clicks >= 0) & (counts.position <= curve.depth)
    shown = counts.by_document(known.astype(float)) > 1
    told = sum_by(counts.query, shown & (counts.by_document(counts.clicks) > 0), log.n_queries) > 0
    if curve.rests_on == "experiment" and log.ranker is not None:
        changed = np.array([is_experiment(name) for name in log.ranker_names])[log.ranker]
        told &= sum_by(log.query, log.sessions * changed, log.n_queries) > 0
    return told


def untested_share(inputs: Inputs, system: str, baseline: str, told: BoolArray) -> float:
    r"""A: the share of the moved credit in queries where nothing shows how far people read.

        a_q = sum_d |sum over sessions of lambda_new - lambda_shown| g_d

    over queries of 5 sessions or more: one that was asked once cannot show a document twice.
    """
    pool = inputs.cells
    new, shown = (inputs.discounts[name] for name in (system, baseline))
    if pool.cell_row is None:
        moved = (new.document - shown.document) * pool.ordered
    else:
        moved = pool.by_document((new.cell - shown.cell) * pool.impressions)
    counts, alpha, beta = pool.under(inputs.bias)
    clicks, exposure = counts.corrected_sums(alpha, beta)
    g = np.maximum(clicks, 0) / np.maximum(exposure, 1e-300)
    by_query = pool.by_query(np.abs(moved) * np.where(exposure > 0, g, 0.0))
    by_query = np.where(pool.sessions >= FEWEST_SESSIONS, by_query, 0.0)
    untold = ~told[np.unique(pool.log.query)]
    return float(by_query[untold].sum() / max(by_query.sum(), 1e-300))

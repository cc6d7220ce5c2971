"""ContextualBias finds an effect of the context in the form that it was given."""

import numpy as np
from _bands import curves_over
from _cells import log_of_cells

import untilt as ut
from untilt.charts.curves import Curve

N_QUERIES, N_DOCUMENTS, SESSIONS, DEPTH = 300, 6, 40, 5


def draw():
    """Examination at position 5 over the context: the truth, a line in x, and |x| as well."""
    x = np.random.default_rng(1).uniform(-1.5, 1.5, N_QUERIES)
    log, grid = _log(_steepness(x)), np.linspace(-1.5, 1.5, 31)
    line = ut.ContextualBias().fit(log, x).curves_
    valley = ut.ContextualBias().fit(log, np.column_stack([x, np.abs(x)])).curves_
    curves = {
        "truth": Curve(grid, DEPTH ** -_steepness(grid)),
        "context x and |x|": _at_last(valley, grid, np.column_stack([grid, np.abs(grid)])),
        "context x": _at_last(line, grid, grid[:, None]),
    }
    return curves_over(
        curves,
        title="A linear model of the context misses an effect of another shape",
        subtitle=f"{N_QUERIES} queries of {N_DOCUMENTS} documents, each shown {SESSIONS} times "
        "at random positions; band: 95% interval",
        x_title="context x of the query",
        value_title=f"examination at position {DEPTH}, relative to 1",
    )


def _steepness(x):
    return 0.3 + np.abs(x)


def _at_last(curves, grid, contexts):
    each = [curves.curve(context) for context in contexts]
    ends = (np.array([getattr(bias, name)[-1] for bias in each]) for name in ("low", "high"))
    return Curve(grid, np.array([bias.examination[-1] for bias in each]), *ends)


def _log(eta):
    """Queries with theta_k = k^-eta, documents of random relevance at random positions."""
    rng = np.random.default_rng(0)
    doc_query = np.repeat(np.arange(N_QUERIES), N_DOCUMENTS)
    n = len(doc_query)
    shown = rng.multinomial(SESSIONS, np.full(DEPTH, 1 / DEPTH), n)
    theta = np.arange(1, DEPTH + 1) ** -eta[doc_query][:, None]
    clicks = rng.binomial(shown, theta * rng.uniform(0.1, 0.9, n)[:, None])
    document, position = np.repeat(np.arange(n), DEPTH), np.tile(np.arange(1, DEPTH + 1), n)
    return log_of_cells(doc_query, document, position, shown.ravel(), clicks.ravel())

r"""Standard errors of examination in models with P(click) = theta_place gamma_document.

With a = log theta and b = log gamma, a cell of n impressions and c clicks has the score
u = (c - n p) / (1 - p) and the information w = n p / (1 - p), p = theta gamma. Taking the
documents out (Schur complement) leaves on a

    J = diag(sum_d w_d) - sum_d w_d w_d' / (1' w_d)

a Laplacian: documents are wires between the places where they were shown, and only ratios have a
finite error. The scores of a query with the documents taken out are
s_q = sum_{d in q} (u_d - w_d (1' u_d) / (1' w_d)). Errors are the larger of J^-1, right if the
model is, and J^-1 (sum_q s_q s_q') J^-1, clustered by query.
"""

import numba as nb
import numpy as np
from scipy.sparse.csgraph import connected_components

from untilt._core.arrays import BoolArray, FloatArray, IntArray
from untilt.bias.cells import Cells
from untilt.bias.inference import Doubt, larger, sandwich


def doubt_of_places(cells: Cells, theta: FloatArray, gamma: FloatArray) -> Doubt:
    """Covariance of log theta with place 0 held fixed, for cells whose places are all joined."""
    conductance, M = _information(
        cells.indptr,
        cells.query,
        cells.position,
        cells.impressions,
        cells.clicks,
        theta,
        gamma,
    )
    laplacian = np.diag(conductance.sum(axis=1)) - conductance
    return larger(
        sandwich(conductance, M),
        len(np.unique(cells.query)),
        sandwich(conductance, laplacian),
    )


def joined_to_first(cells: Cells) -> BoolArray:
    """(places,) whether a place shares clicked documents, over any others, with place 0."""
    clicked = np.repeat(np.add.reduceat(cells.clicks, cells.indptr[:-1]) > 0, np.diff(cells.indptr))
    first = np.repeat(cells.position[cells.indptr[:-1]] - 1, np.diff(cells.indptr))
    graph = np.zeros((cells.depth, cells.depth))
    graph[first[clicked], cells.position[clicked] - 1] = 1
    _, label = connected_components(graph, directed=False)
    has_clicks = cells.by_position(cells.clicks) > 0
    return (label == label[0]) & has_clicks


@nb.njit(cache=True)
def _information(
    indptr: IntArray,
    query: IntArray,
    position: IntArray,
    impressions: FloatArray,
    clicks: FloatArray,
    theta: FloatArray,
    gamma: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Conductances between places, and the sum over queries of s_q s_q'."""
    n_places = len(theta)
    conductance = np.zeros((n_places, n_places))
    M = np.zeros((n_places, n_places))
    score = np.zeros(n_places)
    w, u = np.zeros(n_places), np.zeros(n_places)
    for d in range(len(indptr) - 1):
        all_w, all_u = 0.0, 0.0
        for cell in range(indptr[d], indptr[d + 1]):
            k = position[cell] - 1
            p = min(theta[k] * gamma[d], 1 - 1e-9)
            w[k] = impressions[cell] * p / (1 - p)
            u[k] = (clicks[cell] - impressions[cell] * p) / (1 - p)
            all_w += w[k]
            all_u += u[k]
        for cell in range(indptr[d], indptr[d + 1]):
            k = position[cell] - 1
            score[k] += u[k] - w[k] * all_u / all_w
            for other in range(indptr[d], indptr[d + 1]):
                j = position[other] - 1
                if j != k:
                    conductance[k, j] += w[k] * w[j] / all_w
        if d + 1 == len(indptr) - 1 or query[d + 1] != query[d]:
            for k in range(n_places):
                if score[k] != 0.0:
                    for j in range(n_places):
                        M[k, j] += score[k] * score[j]
            score[:] = 0.0
    return conductance, M

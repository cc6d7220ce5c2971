"""How much each feature moves a network's score: feature importances without a tree to count in."""

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.networks.mlp import Network

_ROWS = 256  # evenly spaced; the mean over so many is good to a few percent


def sensitivity(network: Network, features: FloatArray) -> FloatArray:
    """(features,) mean change of the score when one feature moves by one spread; they sum to 1."""
    rows = features[np.linspace(0, len(features) - 1, min(_ROWS, len(features))).astype(int)]
    rows = np.nan_to_num(np.asarray(rows, dtype=np.float64))
    spread = np.nan_to_num(rows).std(axis=0)
    here = network.forward(rows)[:, 0]
    change = np.zeros(rows.shape[1])
    for j in np.flatnonzero(spread > 0):
        moved = rows.copy()
        moved[:, j] += spread[j]
        change[j] = np.abs(network.forward(moved)[:, 0] - here).mean()
    total = change.sum()
    return change / total if total > 0 else np.full(len(change), 1 / max(1, len(change)))

r"""How sure a swap experiment will be, before it is made.

Swapping positions a < b shows the document that usually stands at a (relevance gamma_a) at b, and
the other way round. With r(i@k) the click rate of the document of place i at position k,

    log theta_b / theta_a = log [w_a r(a@b) + w_b r(b@b)] - log [w_a r(a@a) + w_b r(b@a)]

where w = n_home n_away / (n_home + n_away), as `PivotSwap` and `AdjacentSwap` weigh them. Every
rate is a mean of independent clicks, so the variance of each log-ratio follows from its derivatives
by the rates. Where queries hardly come back, a part of the sessions finds nothing to be compared
with (`Traffic.repeated`); their weight is lost, and their noise with it.
"""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.plan_traffic import Traffic

# Click noise is taken as at least this share of the click rate: an estimate of how much documents
# differ, scaled up by a guess of the examination, must not promise certainty.
LEAST_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class Design:
    """Pairs of positions that are swapped, and the way from position 1 to each position.

    Parameters
    ----------
    pairs : (upper, lower) of each swap
    serves : the position that each swap adds to the curve
    path : (K, pairs) log theta_k / theta_1 as a signed sum of the pairs' log theta_b / theta_a
    """

    pairs: tuple[tuple[int, int], ...]
    serves: tuple[int, ...]
    path: FloatArray


def pivot_design(pivot: int, depth: int) -> Design:
    """All positions against one."""
    others = [k for k in range(1, depth + 1) if k != pivot]
    path = np.zeros((depth, len(others)))
    for p, k in enumerate(others):
        path[k - 1, p] = 1 if k > pivot else -1
    path -= path[0]
    pairs = tuple((min(k, pivot), max(k, pivot)) for k in others)
    return Design(pairs, tuple(pivot if k == 1 else k for k in others), path)


def adjacent_design(depth: int) -> Design:
    """Each position against the next."""
    path = np.tril(np.ones((depth, depth - 1)), -1)
    pairs = tuple((k, k + 1) for k in range(1, depth))
    return Design(pairs, tuple(range(2, depth + 1)), path)


def moved_rate(traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(K, K) entry [i, k]: click rate at k of what usually stands at i, c_i theta_k / theta_i."""
    return traffic.click_rate[:, None] * theta / theta[:, None]


def click_noise(traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(K, K) variance of one click at k on what usually stands at i, given its own relevance."""
    rate = moved_rate(traffic, theta)
    noise = rate - traffic.second_moment[:, None] * (theta / theta[:, None]) ** 2
    return np.maximum(noise, LEAST_NOISE * rate)


def allocation(design: Design, traffic: Traffic, theta: FloatArray) -> FloatArray:
    """(pairs,) shares of the swapped sessions that need the fewest of them in all.

    With u_p the variance that one session of pair p leaves, the sum of u_p / n_p over each path
    must not exceed a limit. A pair of its own path needs n_p in proportion to u_p; along one path
    n_p in proportion to sqrt(u_p); where one pair lies on all paths (a pivot that is not position
    1), it is weighed against the sum of all others.
    """
    u = np.array([_swap_variance(pair, traffic, theta) for pair in design.pairs])
    on_paths = np.count_nonzero(design.path, axis=0)
    if np.all(on_paths == 1):
        need = u
    elif len(np.unique(on_paths)) == len(on_paths):
        need = np.sqrt(u)
    else:
        shared = on_paths > 1
        rest = u[~shared].sum()
        need = np.where(shared, np.sqrt(u * rest), u)
    reach = traffic.reach[[lower - 1 for _, lower in design.pairs]]
    return (need / reach) / (need / reach).sum()


def log_variance(
    design: Design,
    traffic: Traffic,
    theta: FloatArray,
    drawn: FloatArray,
    *,
    share: float,
    sessions: float,
) -> FloatArray:
    """(K,) variance of log theta_k / theta_1 after so many sessions.

    A session draws pair p with probability share * drawn[p], and shows it where its list reaches
    that far.
    """
    noise, rate = click_noise(traffic, theta), moved_rate(traffic, theta)
    reach = traffic.reach * sessions
    untouched = reach[:, None] - _touched(design, reach, share * drawn)
    home, away = np.zeros((len(design.pairs), traffic.depth)), np.zeros(len(design.pairs))
    for p, (a, b) in enumerate(design.pairs):
        i, j = a - 1, b - 1
        s, n = share * drawn[p] * reach[j], untouched[j, [i, j]]
        w = s * n / (s + n)
        # Of the weight a share e is left, and so of the squares that noise is multiplied by.
        e = np.array([traffic.repeated(s + n_home) for n_home in n])
        above, below = (e * w) @ rate[[i, j], i], (e * w) @ rate[[i, j], j]
        home[p, i], home[p, j] = np.sqrt(e) * w * [-1 / above, 1 / below]
        away[p] = e * w**2 @ [noise[i, j] / below**2, noise[j, i] / above**2] / s
    # Untouched places serve several pairs, so their parts are added before they are squared.
    at_home = (design.path @ home) ** 2 @ (np.diag(noise) / np.diag(untouched))
    return at_home + design.path**2 @ away


def _touched(design: Design, reach: FloatArray, probability: FloatArray) -> FloatArray:
    """(K, K) entry [j, i]: sessions whose list reaches j and in which i takes part in a swap."""
    touched = np.zeros((len(reach), len(reach)))
    for (a, b), chance in zip(design.pairs, probability, strict=True):
        touched[:, [a - 1, b - 1]] += chance * np.minimum(reach, reach[b - 1])[:, None]
    return touched


def _swap_variance(pair: tuple[int, int], traffic: Traffic, theta: FloatArray) -> float:
    """What one swapped session leaves, where untouched ones abound."""
    i, j = pair[0] - 1, pair[1] - 1
    noise, rate = click_noise(traffic, theta), moved_rate(traffic, theta)
    above, below = rate[i, i] + rate[j, i], rate[i, j] + rate[j, j]
    return float(noise[i, j] / below**2 + noise[j, i] / above**2)

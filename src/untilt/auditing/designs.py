r"""How few sessions an experiment must change to say how steep a curve is, design by design.

The one number asked for is the power b of `auditing.harvested`. What stands at rank j gets
m_jk = n_jk rho_j theta_k clicks at k, with n_jk the sessions that show it there, changed or not.
With x = log theta and x_j the mean of x by m,

    I_1 = sum_jk m_jk (x_k - x_j)^2 / changed sessions,    se(b) = 1 / sqrt(N I_1)

so N falls with the clicks of a session, and with the square of how far documents move. theta is the
curve harvested from the log, or a guess.
"""

import math
from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray
from untilt._core.portable import Portable
from untilt._core.words import number, whole
from untilt.auditing.swap_design import Traffic
from untilt.views import Table

EXPLORED = 0.02  # share of the sessions that an experiment changes
DEEPEST = 10  # position that a small experiment reaches
# Standard errors of b. To test: 8 of 10 experiments find a curve that is 30% too steep, for which
# b = 1 / 1.3 is 2.8 of them below 1; 300 sessions with a click each. To decide: from 1,000 on the
# curve of the experiment has no need of another's shape.
TO_TEST, TO_DECIDE = 0.082, 0.045


@dataclass(frozen=True)
class PlannedDesign(Portable):
    """One way to change lists, in 2% of the sessions.

    Parameters
    ----------
    name, explore : what is done, and the option of `untilt serve` that does it
    information : I_1, about the power b
    to_test, to_decide : changed sessions that test a harvested curve, and that decide without one
    test_days, decide_days : how long that takes
    clicks_lost : by the sessions of the test
    """

    name: str
    explore: str
    information: float
    to_test: int
    to_decide: int
    test_days: float
    decide_days: float
    clicks_lost: float


def designs(
    traffic: Traffic, theta: FloatArray, sessions_per_day: float
) -> tuple[PlannedDesign, ...]:
    """The designs of a small experiment down to the end of a curve, fewest sessions first.

    Of each: rho of its units, and how many sessions show them where, of all that could be drawn for
    a swap; of the changed ones where all are shuffled, so that chance makes one unit of them.
    """
    depth = min(DEEPEST, traffic.depth, len(theta))
    reach, theta = traffic.reach[:depth], theta[:depth]
    rho, share = np.minimum(traffic.click_rate[:depth] / theta, 1.0), EXPLORED
    ending, first = "" if depth == DEEPEST else f":{depth}", f"of the first {depth}"
    pairs = {
        (f"swap position 1 with another {first}", f"pivot:{share}{ending}"):
            [(1, k) for k in range(2, depth + 1)],
        ("swap positions 1 and 2", f"swaps:1-2={share}"): [(1, 2)],
        (f"swap neighbours {first}", f"swap-adjacent:{share}{ending}"):
            [(k, k + 1) for k in range(1, depth)],
    }  # fmt: skip
    kinds = [(*told, rho, *_swapped(swaps, reach), 1.0) for told, swaps in pairs.items()]
    mean, shuffle = np.array([reach @ rho / reach.sum()]), f"shuffle-top-{depth}:{share}"
    kinds.append((f"shuffle the first {depth}", shuffle, mean, share * reach[None], share, share))
    found = []
    for name, explore, of_unit, shown, changed, part in kinds:
        m, x = shown * of_unit[:, None] * theta, np.log(theta)
        information = float(np.sum(m * (x - (m @ x / m.sum(axis=1))[:, None]) ** 2)) / changed
        if not information > 0:  # a curve that does not fall: there is nothing to tell
            continue
        test, decide = (math.ceil(1 / (information * e**2)) for e in (TO_TEST, TO_DECIDE))
        lost = max(0.0, part * float(reach * rho @ theta) - float(m.sum())) / changed
        days = 1 / (changed * sessions_per_day)
        found.append(PlannedDesign(
            name, explore, information, test, decide, test * days, decide * days, test * lost
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda each: each.to_test))


def _swapped(pairs: list[tuple[int, int]], reach: FloatArray) -> tuple[FloatArray, float]:
    """(K, K) sessions that show rank j at k, and the share of all that is swapped."""
    shown, moved = np.diag(reach), [EXPLORED / len(pairs) * float(reach[b - 1]) for _, b in pairs]
    for (a, b), share in zip(pairs, moved, strict=True):
        shown[[a - 1, b - 1], [a - 1, b - 1]] -= share
        shown[[a - 1, b - 1], [b - 1, a - 1]] += share
    return shown, sum(moved)


def table_of(planned: tuple[PlannedDesign, ...]) -> Table:
    """The designs side by side."""
    rows = tuple(
        (d.name, whole(d.to_test), whole(d.to_decide), number(d.clicks_lost, 1), d.explore)
        for d in planned
    )
    header = ("experiment", "sessions to test", "to decide", "clicks lost to test", "--explore")
    caption = "Changed sessions that test a curve of documents that moved, and that decide"
    return Table(header, rows, caption, text_columns=(0, 4))

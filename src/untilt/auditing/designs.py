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
from typing import Any, ClassVar

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
    lost_per_session : clicks that a changed session loses
    days_per_session : that one changed session takes
    """

    name: str
    explore: str
    information: float
    lost_per_session: float
    days_per_session: float
    json_properties: ClassVar[tuple[str, ...]] = ("to_test", "to_decide")

    @property
    def fields(self) -> dict[str, Any]:
        """For a sentence."""
        days = self.days_per_session
        return {
            "name": self.name, "explore": self.explore, "share": EXPLORED,
            "to_test": self.to_test, "test_days": self.to_test * days,
            "to_decide": self.to_decide, "decide_days": self.to_decide * days,
        }  # fmt: skip

    def std_error(self, changed: float) -> float:
        """Of b after so many changed sessions."""
        return 1 / math.sqrt(changed * self.information)

    @property
    def to_test(self) -> int:
        """Changed sessions that test a harvested curve."""
        return math.ceil(1 / (self.information * TO_TEST**2))

    @property
    def to_decide(self) -> int:
        """Changed sessions that measure the curve well enough for a decision."""
        return math.ceil(1 / (self.information * TO_DECIDE**2))


def designs(
    traffic: Traffic, theta: FloatArray, sessions_per_day: float
) -> tuple[PlannedDesign, ...]:
    """The designs of a small experiment down to the end of a curve, fewest sessions first."""
    depth = min(DEEPEST, traffic.depth, len(theta))
    reach, theta = traffic.reach[:depth], theta[:depth]
    rho = np.minimum(traffic.click_rate[:depth] / theta, 1.0)
    to = "" if depth == DEEPEST else f":{depth}"
    neighbours = [(k, k + 1) for k in range(1, depth)]
    kinds = {
        f"swap position 1 with another of the first {depth}": (
            f"pivot:{EXPLORED}{to}", _swapped([(1, k) for k in range(2, depth + 1)], reach),
        ),
        "swap positions 1 and 2": (f"swaps:1-2={EXPLORED}", _swapped([(1, 2)], reach)),
        f"swap neighbours of the first {depth}": (
            f"swap-adjacent:{EXPLORED}{to}", _swapped(neighbours, reach),
        ),
        f"shuffle the first {depth}": (f"shuffle-top-{depth}:{EXPLORED}", None),
    }  # fmt: skip
    found = []
    for name, (explore, placed) in kinds.items():
        if placed is None:  # chance alone places documents, so all are one unit
            changed, shown = EXPLORED, EXPLORED * reach[None, :]
            mean = np.array([reach @ rho / reach.sum()])
            information = _information(shown, mean, theta)
            lost = EXPLORED * float(reach * theta @ (rho - mean))
        else:
            changed = EXPLORED * float(placed[1])
            information = _information(placed[0], rho, theta)
            lost = float(rho @ (np.diag(reach) - placed[0]) @ theta)
        days = 1 / (changed * sessions_per_day)
        lost = max(0.0, lost) / changed
        found.append(PlannedDesign(name, explore, information / changed, lost, days))
    told = (each for each in found if each.information > 0)  # not where nothing is to be told
    return tuple(sorted(told, key=lambda each: -each.information))


def table_of(planned: tuple[PlannedDesign, ...]) -> Table:
    """The designs side by side."""
    rows = tuple(
        (each.name, whole(each.to_test), whole(each.to_decide),
         number(each.to_test * each.lost_per_session, 1), each.explore)
        for each in planned
    )  # fmt: skip
    header = ("experiment", "sessions to test", "to decide", "clicks lost to test", "--explore")
    caption = "Changed sessions that test a curve of documents that moved, and that decide"
    return Table(header, rows, caption, text_columns=(0, 4))


def _swapped(pairs: list[tuple[int, int]], reach: FloatArray) -> tuple[FloatArray, float]:
    """(K, K) sessions that show rank j at k, and the share of the drawn ones that reach so far."""
    shown = np.diag(reach)
    for a, b in pairs:
        moved = EXPLORED / len(pairs) * reach[b - 1]
        shown[[a - 1, b - 1], [a - 1, b - 1]] -= moved
        shown[[a - 1, b - 1], [b - 1, a - 1]] += moved
    return shown, float(np.mean([reach[b - 1] for _, b in pairs]))


def _information(shown: FloatArray, rho: FloatArray, theta: FloatArray) -> float:
    """sum_jk m (x_k - x_j)^2, m = shown rho_j theta_k."""
    m, x = shown * rho[:, None] * theta, np.log(theta)
    mean = m @ x / m.sum(axis=1)
    return float(np.sum(m * (x - mean[:, None]) ** 2))

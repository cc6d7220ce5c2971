"""What the pairwise trust model knows of positions: tables, and how they were found."""

from dataclasses import dataclass

import numpy as np

from untilt._core.arrays import FloatArray, frozen
from untilt.bias.position_bias import PositionBias


@dataclass(frozen=True, eq=False, repr=False)
class PairTrust:
    """Examination and trust bias by position ([ren2021pairwise]_); row and column k - 1 is k.

    Parameters
    ----------
    examination : (K,) theta_k = P(examined at k)
    examination_zero : (K,) theta-_k = P(examined at k | label 0)
    eps_plus, eps_minus : (K, K) [k, l] = P(c_i > c_j | both examined, i at k, j at l), where i is
        the more relevant one, and where it is not
    status : how the fit ended
    """

    examination: FloatArray
    examination_zero: FloatArray
    eps_plus: FloatArray
    eps_minus: FloatArray
    status: str = ""

    def __post_init__(self) -> None:
        for name in ("examination", "examination_zero", "eps_plus", "eps_minus"):
            object.__setattr__(self, name, frozen(getattr(self, name), np.float64))

    @property
    def depth(self) -> int:
        """The lowest position, K."""
        return len(self.examination)

    def to_bias(self) -> PositionBias:
        """Examination relative to position 1, the only part that labels alone tell for sure.

        Trust bias of pairs is no trust bias of positions, so `eps_plus` and `eps_minus` stay empty.
        """
        return PositionBias(
            self.examination / self.examination[0],
            method="PairwiseTrustRanker",
            assumes=(
                "labels above 0 follow the position-based model",
                "the features tell relevance apart from position",
            ),
            status=self.status,
        )

    def __repr__(self) -> str:
        k = self.depth
        off = ~np.eye(k, dtype=bool) if k > 1 else np.ones((k, k), dtype=bool)
        lines = [f"PairTrust of positions 1..{k} ({self.status})"]
        for name, table in (("eps+", self.eps_plus), ("eps-", self.eps_minus)):
            lines.append(f"  {name} {table[off].min():.3f} to {table[off].max():.3f}")
        for at in range(k):
            theta, minus = self.examination[at], self.examination_zero[at]
            lines.append(f"  {at + 1:>3}  theta {theta:.4f}  theta- {minus:.4f}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TrustEpoch:
    """One pass over the log: log-likelihoods and ranking loss, per session."""

    item_likelihood: float
    pair_likelihood: float
    ranking_loss: float

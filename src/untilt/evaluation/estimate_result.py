"""What a counterfactual evaluation knows: one value per system, with its doubt."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from untilt._core.random import Seed
from untilt._core.statistics import Interval
from untilt._core.suggest import did_you_mean
from untilt.errors import OptionError
from untilt.evaluation.by_metric import as_table
from untilt.evaluation.counterfactual_check import CurveCheck
from untilt.evaluation.counterfactual_metric import RankMetric
from untilt.evaluation.estimate_doubt import Sums, Weights

if TYPE_CHECKING:
    from untilt.evaluation.compare_systems import SystemComparison


@dataclass(frozen=True)
class Estimate:
    """The value of one system, as if it had been deployed.

    `std_error`^2 = `sampling_error`^2 (spread over queries) + `bias_error`^2 (the bias's own
    doubt). `unshown_share`: of the top places, how many it gives to documents nobody was shown.
    """

    system: str
    metric: str
    method: str
    value: float
    std_error: float
    interval: Interval
    sampling_error: float
    bias_error: float
    effective_n: float
    largest_weight: float
    clipped_share: float
    unsupported_share: float
    unshown_share: float
    n_sessions: int
    n_queries: int
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        return (
            f"{self.system}: {self.metric} {self.value:.4f} +- {self.std_error:.4f} by "
            f"{self.method}, {self.interval.level:.0%} interval {self.interval} over "
            f"{self.n_queries:,} queries, {self.n_sessions:,} sessions"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Several systems on one log: `estimates["new"].interval`, `estimates.compare("shown")`.

    `warnings` hold for all systems; each `Estimate` has its own besides. `scale` says what the
    values are multiples of. `check` tells whether the log's own clicks fit the bias.
    """

    entries: tuple[Estimate, ...]
    metric: RankMetric
    method: str
    tau: float
    among: str
    level: float
    scale: str
    weights: Weights
    check: CurveCheck
    warnings: tuple[str, ...]
    sums: Sums

    @property
    def systems(self) -> tuple[str, ...]:
        """Names, in the order given."""
        return tuple(entry.system for entry in self.entries)

    @property
    def order(self) -> tuple[str, ...]:
        """Names, best first."""
        sign = -1 if self.metric.higher_is_better else 1
        return tuple(e.system for e in sorted(self.entries, key=lambda e: sign * e.value))

    @property
    def best(self) -> Estimate:
        """The system with the best value; `compare` says how sure that is."""
        return self[self.order[0]]

    def compare(
        self,
        baseline: str | None = None,
        *,
        correction: str = "holm",
        power: float = 0.8,
        level: float | None = None,
    ) -> "SystemComparison":
        """Paired differences to `baseline` (the first system where not given).

        See `untilt.evaluation.compare_systems.compare_systems`.
        """
        from untilt.evaluation.compare_systems import compare_systems

        return compare_systems(self, baseline, correction=correction, power=power, level=level)

    def bootstrap(self, *, n_draws: int = 1000, seed: Seed = 0) -> dict[str, Interval]:
        """Bootstrap intervals by query, for each system."""
        from untilt.evaluation.estimate_doubt import bootstrap_intervals

        found = bootstrap_intervals(self.sums, self.level, n_draws, seed)
        return dict(zip(self.systems, found, strict=True))

    def __getitem__(self, system: str) -> Estimate:
        for entry in self.entries:
            if entry.system == system:
                return entry
        hint = did_you_mean(str(system), self.systems)
        raise OptionError(
            f"there is no system {system!r} here.{hint} There are: {', '.join(self.systems)}."
        )

    def __iter__(self) -> Iterator[Estimate]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON."""
        return {
            "metric": str(self.metric),
            "method": self.method,
            "tau": self.tau,
            "among": self.among,
            "scale": self.scale,
            "level": self.level,
            "warnings": list(self.warnings),
            "systems": {entry.system: _plain(entry) for entry in self.entries},
        }

    def __repr__(self) -> str:
        first = self.entries[0]
        better = "higher" if self.metric.higher_is_better else "lower"
        clip = f", clip {self.tau:.3g}" if self.tau > 0 else ""
        title = (
            f"{self.metric} per session by {self.method}{clip} ({better} is better), "
            f"{first.n_sessions:,} sessions of {first.n_queries:,} queries\n{self.scale}"
        )
        if self.weights.largest > 0:
            title += (
                f"; {self.weights.n_clicks:,.0f} clicks count like "
                f"{self.weights.effective_n:,.0f} of equal weight"
            )
        header = ("system", "value", "std error", f"{self.level:.0%} interval", "from bias")
        rows = [
            (
                entry.system,
                f"{entry.value:.4f}",
                f"{entry.std_error:.4f}",
                f"[{entry.interval.low:.4f}, {entry.interval.high:.4f}]",
                f"{entry.bias_error:.4f}",
            )
            for entry in self.entries
        ]
        return "\n".join([title, as_table(header, rows), *self.notes()])

    def notes(self) -> list[str]:
        """All warnings, one a line, those of a system with its name."""
        own = [f"! {e.system}: {warning}" for e in self.entries for warning in e.warnings]
        return [f"! {warning}" for warning in self.warnings] + own


def _plain(entry: Estimate) -> dict[str, Any]:
    return {
        "value": entry.value,
        "std_error": entry.std_error,
        "low": entry.interval.low,
        "high": entry.interval.high,
        "sampling_error": entry.sampling_error,
        "bias_error": entry.bias_error,
        "effective_n": entry.effective_n,
        "largest_weight": entry.largest_weight,
        "clipped_share": entry.clipped_share,
        "unsupported_share": entry.unsupported_share,
        "unshown_share": entry.unshown_share,
        "n_sessions": entry.n_sessions,
        "n_queries": entry.n_queries,
        "warnings": list(entry.warnings),
    }

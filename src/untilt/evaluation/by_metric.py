"""Results that are looked up by metric and print as a small table."""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from untilt._core.suggest import did_you_mean
from untilt.errors import OptionError
from untilt.metrics import Metric, parse_metric


class HasMetric(Protocol):
    """What is said of one metric."""

    @property
    def metric(self) -> Metric:
        """The metric it is about."""
        ...


Entry = TypeVar("Entry", bound=HasMetric)


class ByMetric(Generic[Entry]):
    """Access by metric or by its name: result["ndcg@10"]."""

    entries: tuple[Entry, ...]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics, in the order asked for."""
        return tuple(entry.metric for entry in self.entries)

    def __getitem__(self, metric: str | Metric) -> Entry:
        wanted = parse_metric(metric)
        for entry in self.entries:
            if entry.metric == wanted:
                return entry
        names = [str(known) for known in self.metrics]
        raise OptionError(
            f"{wanted} was not computed.{did_you_mean(str(wanted), names)} "
            f"There are: {', '.join(names)}."
        )

    def __contains__(self, metric: str | Metric) -> bool:
        return parse_metric(metric) in self.metrics

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, the first to the left, the others to the right."""
    cells = [list(header), *map(list, rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])])
        for row in cells
    )

"""What a reader found wrong, and what it did about it."""

from dataclasses import dataclass


class DroppedRowsWarning(UserWarning):
    """Rows were left out because the caller asked for it with on_bad="drop"."""


@dataclass(frozen=True)
class BadRows:
    """Rows that break one rule: how many, up to five of them, and what to do about it."""

    what: str
    n_rows: int
    examples: tuple[str, ...]
    fix: str
    table: str = "log"

    def __str__(self) -> str:
        rows = "row" if self.n_rows == 1 else "rows"
        shown = "".join(f"\n    {example}" for example in self.examples)
        more = "\n    ..." if self.n_rows > len(self.examples) else ""
        head = f"  {self.n_rows:,} {rows} of the {self.table}: {self.what}"
        return f"{head}{shown}{more}\n    Fix: {self.fix}."


@dataclass(frozen=True)
class ReadReport:
    """What was read, and what was left out and why.

    `bad` holds one entry per broken rule. A row counts once, under the first rule that it breaks;
    `n_dropped` counts rows of the log alone, not those of the documents table.
    """

    source: str
    n_rows: int
    n_dropped: int
    bad: tuple[BadRows, ...] = ()
    ignored_columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.source}: {self.n_rows:,} rows, {self.n_dropped:,} dropped"
        return "\n".join([head, *(str(bad) for bad in self.bad)])

    def error_text(self) -> str:
        """The same as a refusal."""
        found = "\n".join(str(bad) for bad in self.bad)
        return (
            f"{self.source} has rows that cannot be used.\n{found}\n"
            f'To leave them out and count them, pass on_bad="drop".'
        )

"""Messages of no area, and phrases that several areas use."""

from collections.abc import Iterable

from untilt.facts import Message


def _joined(parts: tuple[str, ...]) -> str:
    return "; ".join(parts)


MESSAGES = {"general.text": Message("note", "{text}"), "general.joined": Message("note", _joined)}


# Phrases that several messages share.


def positions_text(positions: Iterable[int], *, most: int = 8) -> str:
    """ "positions 1..4, 7" for (1, 2, 3, 4, 7); of many stretches the first, and how many more."""
    runs: list[list[int]] = []
    for k in sorted(positions):
        if runs and k == runs[-1][-1] + 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    texts = [f"{run[0]}..{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs[:most]]
    more = sum(map(len, runs[most:]))
    text = ", ".join(texts) + (f" and {more:,} more" if more else "")
    return f"position {text}" if len(runs) == 1 and len(runs[0]) == 1 else f"positions {text}"


NOT_KNOWN = 10.0  # factor of uncertainty beyond which a position is said not to be known
NO_INTERVAL = "no interval"  # of an estimate whose error is not known


def known_to(factor: float, *, decimals: int = 1) -> str:
    """How well something is known, by the factor of its uncertainty.

    >>> known_to(1.5), known_to(31.7), known_to(float("inf"))
    ('known to within a factor of 1.5', 'not known', 'not known')
    """
    if not factor <= NOT_KNOWN:
        return "not known"
    return f"known to within a factor of {factor:.{decimals}f}"


def listed(values: Iterable[object], *, most: int = 10) -> str:
    """The first of the values, and how many more there are."""
    texts = [str(value) for value in values]
    shown = ", ".join(texts[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"

"""What would turn a decision, in the words of somebody who has to take it."""

from untilt.facts import Message
from untilt.messages.about_general import positions_text

TITLES = {
    "curve": "Curve steeper or flatter",
    "position": "One position measured wrong",
    "drift": "Documents better while on top",
    "trust": "Clicks out of trust in the top",
    "clip": "Another clip",
    "queries": "One query left out",
    "time": "Earlier and later sessions",
    "bounds": "Positions that nothing joins",
}
"""Cause -> what it is, in few words."""

MOST_FACTOR, MOST_TRUST, MOST_CLIP = 10, 0.9, 1  # the largest amounts that are tried


def amount_text(name: str, amount: float | None) -> str:
    """An amount in the unit of its cause; a dash for none.

    >>> amount_text("curve", 1.5), amount_text("trust", 0.2), amount_text("queries", 3.0)
    ('x 1.50', '20%', '3 queries')
    """
    if amount is None:
        return "-"
    if name == "bounds":
        return "within bounds"
    if name == "trust":
        return f"{amount:.0%}"
    if name == "queries":
        return "any one" if amount == 1 else f"{amount:,.0f} queries"
    if name == "time":
        return {0.0: "earlier", 1.0: "later"}.get(amount, f"{amount:.1f} lengths on")
    return f"{amount:.2g}" if name == "clip" else f"x {amount:.2f}"


def _curve(amount: float, position: int) -> str:
    times, one, other = (amount, position, 1) if amount > 1 else (1 / amount, 1, position)
    return (
        f"if position {one} were looked at {times:.2g} times as often as measured, against "
        f"position {other} (the others in step), the answer would turn"
    )


def _queries(amount: float, of: int) -> str:
    n = int(amount)
    which = "the one query that speaks" if n == 1 else f"the {n:,} queries that speak"
    return f"without {which} most for it, of {of:,}, the answer would turn"


def _time(amount: float, early: float, late: float) -> str:
    when = (
        "the answer has turned already by the end of the log"
        if amount == 0
        else f"the answer would turn {amount:.1f} times the length of the log after its end"
    )
    return (
        f"it went from {early:+.4f} in the earlier half to {late:+.4f} in the later: so on, {when}"
    )


_NOTHING = "does not turn the answer"

MESSAGES = {
    # What was tried.
    "sensitivity.tried-curve": Message(
        "note",
        "position {position} looked at {least:.2g} to {most:.2g} times as often as measured, "
        "against position 1, and the others in step",
    ),
    "sensitivity.tried-position": Message(
        "note",
        "position {position} alone looked at {least:.2g} to {most:.2g} times as often as measured",
    ),
    "sensitivity.tried-drift": Message(
        "note",
        "documents up to {most:.2g} times as relevant while they stood at position 1 as while they "
        "stood at position {position}",
    ),
    "sensitivity.tried-trust": Message(
        "note", "up to {most:.0%} of the clicks at position 1 out of trust in the top alone"
    ),
    "sensitivity.tried-clip": Message(
        "note", "a clip from {least:.2g} to {most:.2g}, not {used:.2g}"
    ),
    "sensitivity.tried-queries": Message("note", "any one of {of:,} queries left out"),
    "sensitivity.tried-time": Message(
        "note", "the earlier or the later half of the sessions alone"
    ),
    "sensitivity.tried-bounds": Message(
        "note", lambda positions: f"{positions_text(positions)} at any level within their bounds"
    ),
    # What would turn it.
    "sensitivity.turns-curve": Message("note", _curve),
    "sensitivity.turns-position": Message(
        "note",
        "if position {position} alone were looked at {amount:.2g} times as often as measured, the "
        "answer would turn",
    ),
    "sensitivity.turns-drift": Message(
        "note",
        "if documents had been {amount:.2g} times as relevant while they stood at position 1 as "
        "while they stood at position {position}, the answer would turn",
    ),
    "sensitivity.turns-trust": Message(
        "note",
        "if {amount:.0%} of the clicks at position 1 came from trust in the top, whatever stands "
        "there, the answer would turn",
    ),
    "sensitivity.turns-clip": Message(
        "note", "with a clip of {amount:.2g} in place of {used:.2g} the answer would turn"
    ),
    "sensitivity.turns-queries": Message("note", _queries),
    "sensitivity.turns-time": Message("note", _time),
    "sensitivity.turns-bounds": Message(
        "note",
        lambda positions: (
            f"nothing joins {positions_text(positions)} to position 1, and levels within their "
            "bounds turn the answer"
        ),
    ),
    # What would not.
    "sensitivity.holds-bounds": Message(
        "note",
        lambda positions: (
            f"nothing joins {positions_text(positions)} to position 1, and no level within their "
            "bounds turns the answer"
        ),
    ),
    "sensitivity.holds-curve": Message(
        "note",
        lambda amount, position: (  # noqa: ARG005  fields as of the others
            f"a curve {MOST_FACTOR} times steeper or flatter at position {position} {_NOTHING}"
        ),
    ),
    "sensitivity.holds-position": Message(
        "note",
        lambda amount, position: (  # noqa: ARG005
            f"one position wrong by a factor of up to {MOST_FACTOR}, such as position {position}, "
            f"{_NOTHING}"
        ),
    ),
    "sensitivity.holds-drift": Message(
        "note",
        lambda amount, position: (  # noqa: ARG005
            f"relevance up to {MOST_FACTOR} times higher at position 1 than at position {position} "
            f"{_NOTHING}"
        ),
    ),
    "sensitivity.holds-trust": Message(
        "note",
        lambda amount: (  # noqa: ARG005
            f"not even {MOST_TRUST:.0%} of the clicks at position 1 out of trust turn the answer"
        ),
    ),
    "sensitivity.holds-clip": Message(
        "note",
        lambda amount, used: f"another clip, from 0 to {MOST_CLIP}, {_NOTHING}",  # noqa: ARG005
    ),
    "sensitivity.holds-queries": Message(
        "note",
        lambda amount, of: f"leaving out any of the {of:,} queries {_NOTHING}",  # noqa: ARG005
    ),
    "sensitivity.holds-time": Message(
        "note",
        lambda amount, early, late: (  # noqa: ARG005
            f"the difference is {early:+.4f} in the earlier half and {late:+.4f} in the later: no "
            "clear trend towards a turn"
        ),
    ),
}

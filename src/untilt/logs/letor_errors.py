"""What the parser's codes mean to the person who has to mend the file."""

from untilt.errors import BadRowsError
from untilt.logs import letor_parse as codes

_SHAPE = "Write lines as `label qid:ID 1:value 2:value ...`"
_EXPLAINED = {
    codes.BAD_LABEL: ("a line must start with its label, a finite number", _SHAPE),
    codes.NEGATIVE_LABEL: ("a label must be at least 0", "Shift labels so that 0 is not relevant"),
    codes.NO_QID: ("`qid:ID` must follow the label", _SHAPE),
    codes.BAD_FEATURE: ("a feature must read id:value with a whole number as id", _SHAPE),
    codes.ZERO_ID: ("feature ids start at 1", "Read with zero_based=True if they start at 0 here"),
    codes.BIG_ID: (
        "a feature id is too large: features fill a dense table of at most {most:,} columns here",
        "Mend the id, raise n_features if it was given, or renumber the features",
    ),
    codes.TWICE: ("a feature stands twice in one line", "Keep one of the two"),
    codes.BAD_VALUE: (
        "a feature's value must be a finite number",
        "Leave a missing feature out of the line; it is then 0",
    ),
    codes.INFINITE: (
        "a feature's value is too large for single precision (3.4e38)",
        "Rescale the feature",
    ),
}


def bad_row(where: str, code: int, found: bytes, *, most_columns: int) -> BadRowsError:
    """The error for a row with this code, at a place such as `train.txt line 7`."""
    what, fix = _EXPLAINED[code]
    return BadRowsError(
        f"{where}: {what.format(most=most_columns)}. Got {shown(found)} instead. {fix}."
    )


def scattered_query(query: str, first: str, again: str) -> BadRowsError:
    """The error for a query whose rows do not stand together."""
    return BadRowsError(
        f"{again}: query {query!r} comes back after other queries; it began at {first}. The rows "
        "of a query must stand together. Sort the rows by query id, or give each list its own id."
    )


def not_text(where: str, found: bytes) -> BadRowsError:
    """The error for an id that is no UTF-8 text."""
    return BadRowsError(
        f"{where}: an id must be UTF-8 text. Got {shown(found)} instead. Convert the file to UTF-8."
    )


def shown(found: bytes) -> str:
    """Bytes as a message may show them: short, quoted, and readable whatever they hold."""
    if not found:
        return "the end of the line"
    start = found[:40]
    text = repr(start.decode()) if start.isascii() else repr(start)[1:]
    return text + ("..." if len(found) > 40 else "")

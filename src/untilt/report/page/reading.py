"""The section on the model of reading: does it fit this log?"""

from untilt.auditing.audit import Audit
from untilt.charts.intervals import Bar, intervals_chart
from untilt.charts.theme import PAGE
from untilt.report.page import words
from untilt.report.page.words import Figure, Section, Table, specification


def reading_section(audit: Audit) -> Section | None:
    """Whether people read as the position-based model says; None where nothing was tested."""
    tests = audit.reading
    if tests is None or not tests.tests:
        return None
    rows = tuple((*row, "fails" if test.fails else "fits") for row, test in tests.named())
    description = "Ratios of click rates, 1 where the model is right: " + "; ".join(
        f"{name} {ratio}, p {p}, {said}" for name, ratio, p, said in rows
    )
    chart = intervals_chart(
        {
            row[0]: Bar(test.ratio, test.low, test.high, f"{test.ratio:.2f}", test.fails)
            for row, test in tests.named()
        },
        value_title="ratio of click rates",
        names="above",
        at=1.0,
        value_format=".2f",
        theme=PAGE,
    )
    figure = Figure(
        "reading",
        "Ratios of click rates that are 1 where the model is right",
        specification(chart, description),
        description,
        Table(("compared", "ratio", "p-value", "model"), rows, text_columns=(0, 3)),
        f"Bar: {audit.click_rates.level:.0%} interval. p: of all comparisons together.",
    )
    return Section(
        "reading",
        "Do people read as the model says?",
        paragraphs=(
            "The position-based model says that a click needs a look and a relevant document, and "
            "that looks depend on the position alone. These are things it cannot bend to.",
        ),
        figures=(figure,),
        notes=tuple(words.sentence(each) for each in tests.notes),
        cautions=tuple(words.sentence(each) for each in tests.facts),
    )

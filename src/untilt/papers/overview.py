"""All experiments of a folder at a glance: the index of pages, and the table of all claims.

Both are made from the catalogue and the results that are kept beside the pages. A claim whose
experiment has no results says so; a claim that nothing here could decide gives its reason.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from untilt._core.files import replacing
from untilt.papers.cells import plan
from untilt.papers.claims import FAILS, HOLDS, OPEN, Verdict, verdicts
from untilt.papers.datasets import JudgedSource
from untilt.papers.layouts import LAYOUTS
from untilt.papers.schema import Claim, Document, Experiment, documents, load, names
from untilt.papers.summary import Summary

VERDICTS = (HOLDS, FAILS, OPEN)
NOT_RUN = "not run"
INDEX, CLAIMS = "index.md", "claims.md"
ABOUT_THE_INDEX = (
    "Claims of the documents, put to the test here; each page has the figures, the chart and the "
    "reasons, and [all claims](claims.md) stand in one table, with those that cannot be tested "
    "here. Holds: the 95% interval over runs lies on the claim's side; does not hold: on the "
    "other; undecided: it reaches both sides. A claim about every point needs every point. "
    "Questions of our own stand on the pages, and are not counted here."
)
ABOUT_THE_CLAIMS = (
    "Every claim of the documents that we found, with its section and what became of it here, on "
    "each set of judged lists from which clicks were made. Holds: the 95% interval over runs lies "
    "on the claim's side; does not hold: on the other; undecided: it reaches both sides. Figures "
    "are positive where the claim holds, except where two things should not differ. Questions of "
    "our own stand apart, at the end, and are not counted."
)


@dataclass(frozen=True)
class Outcome:
    """An experiment on one data set: its verdicts, and whether all its cells are finished."""

    source: JudgedSource
    verdicts: tuple[Verdict, ...]
    whole: bool

    def of(self, claim: Claim) -> Verdict | None:
        """What became of a claim; None where the results do not speak about it."""
        return next((each for each in self.verdicts if each.claim == claim), None)

    def count(self, verdict: str) -> int:
        """How many claims of the document, not our own, have this verdict."""
        return sum(each.verdict == verdict and not each.claim.own for each in self.verdicts)


@dataclass(frozen=True)
class Reproduced:
    """An experiment with its outcome on each data set that has results."""

    experiment: Experiment
    outcomes: tuple[Outcome, ...]
    has_page: bool

    def on(self, source: JudgedSource) -> Outcome | None:
        """The outcome on one data set."""
        return next((each for each in self.outcomes if each.source == source), None)


def write_overview(folder: Path) -> list[Path]:
    """index.md: the experiments that come with untilt and have a page here, claims counted.

    claims.md: all claims of their documents, those of experiments that were not run, too.
    """
    every = [
        Reproduced(each, _outcomes(each, folder), (folder / f"{each.name}.md").is_file())
        for each in map(load, names())
    ]
    texts = {INDEX: index([each for each in every if each.has_page]), CLAIMS: claims_table(every)}
    for name, text in texts.items():
        with replacing(folder / name) as temporary:
            temporary.write_text(text, encoding="utf8")
    return [folder / name for name in texts]


def known_sources() -> list[JudgedSource]:
    """All data sets; for reading results it does not matter where their files lie."""
    return [JudgedSource(), *(JudgedSource(name, Path(name)) for name in LAYOUTS)]


def _outcomes(experiment: Experiment, folder: Path) -> tuple[Outcome, ...]:
    outcomes = []
    for source in known_sources():
        what = plan(experiment, source, folder)
        finished = what.finished()
        if finished:
            decided = tuple(verdicts(Summary(experiment, finished)))
            outcomes.append(Outcome(source, decided, len(finished) == len(what.cells)))
    return tuple(outcomes)


def index(found: Sequence[Reproduced]) -> str:
    """The pages, with the number of claims by verdict."""
    lines = ["# Reproduced tables and figures", "", ABOUT_THE_INDEX, ""]
    lines += _row("experiment", "on", *VERDICTS), "|---|---|---:|---:|---:|"
    for reproduced in found:
        experiment = reproduced.experiment
        title = f"[{experiment.name}]({experiment.name}.md): {experiment.title}"
        for each in reproduced.outcomes:
            part = "" if each.whole else " (part)"
            counts = (str(each.count(verdict)) for verdict in VERDICTS)
            lines.append(_row(title, f"{each.source.title}{part}", *counts))
    return "\n".join([*lines, ""])


def claims_table(found: Sequence[Reproduced]) -> str:
    """All claims of the documents that have a page here, and our own questions apart."""
    here = [each for each in documents() if any(of.has_page for of in _of(each, found))]
    lines = ["# Claims of the documents", "", ABOUT_THE_CLAIMS, "", *_counts(here, found), ""]
    for document in here:
        lines += [f"## {document.name}: {document.title}", "", f"{document.reference}.", ""]
        lines += _claims(_of(document, found), own=False)
        lines += _untested(document, _of(document, found))
    ours = [_claims(_of(document, found), own=True) for document in here]
    lines += ["## Questions of our own", ""] if any(ours) else []
    for document, table in zip(here, ours, strict=True):
        lines += [f"### Beside {document.name}", "", *table] if table else []
    return "\n".join(lines)


def _of(document: Document, found: Sequence[Reproduced]) -> list[Reproduced]:
    return [each for each in found if each.experiment.document == document.name]


def _counts(here: Iterable[Document], found: Sequence[Reproduced]) -> list[str]:
    """A line for each document and data set."""
    lines = [
        _row("document", "on", *VERDICTS, NOT_RUN, "cannot be tested here"),
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for document in here:
        own = _of(document, found)
        n_claims = sum(not claim.own for each in own for claim in each.experiment.claims)
        n_untested = len(document.untested) + sum(len(each.experiment.untested) for each in own)
        for source in _sources(own):
            outcomes = [of for each in own if (of := each.on(source)) is not None]
            counts = [sum(each.count(verdict) for each in outcomes) for verdict in VERDICTS]
            counts += [n_claims - sum(counts), n_untested]
            title = f"{document.name}: {document.title}"
            lines.append(_row(title, source.title, *map(str, counts)))
    return lines


def _sources(found: Sequence[Reproduced]) -> list[JudgedSource]:
    """Data sets that any of these experiments has results on."""
    there = [each.source for reproduced in found for each in reproduced.outcomes]
    return [source for source in known_sources() if source in there]


def _claims(found: Sequence[Reproduced], *, own: bool) -> list[str]:
    """A line per claim, a column per data set."""
    sources = _sources(found)
    lines = []
    for each in found:
        name = each.experiment.name
        page = f"[{name}]({name}.md)" if each.has_page else name
        for claim in each.experiment.claims:
            if claim.own == own:
                cells = [_cell(each.on(source), claim) for source in sources]
                lines.append(_row(claim.text, claim.source, page, *cells))
    if not lines:
        return []
    titles = (source.title for source in sources)
    head = _row("claim", "section", "page", *(f"on {title}" for title in titles))
    return [head, "|" + "---|" * (3 + len(sources)), *lines, ""]


def _cell(outcome: Outcome | None, claim: Claim) -> str:
    """Verdict and reason on one data set."""
    verdict = None if outcome is None else outcome.of(claim)
    if outcome is None or verdict is None:
        return NOT_RUN
    part = "" if outcome.whole else " (not all runs yet)"
    return f"**{verdict.verdict}**{part}: {verdict.sentence}.{reason_of(verdict, outcome.source)}"


def reason_of(verdict: Verdict, source: JudgedSource) -> str:
    """The catalogue's reason on this data set, where the claim does not hold."""
    reason = verdict.claim.because.get(source.name, "")
    return f" {reason}" if reason and verdict.verdict != HOLDS else ""


def _untested(document: Document, found: Sequence[Reproduced]) -> list[str]:
    untested = [*document.untested, *(each for of in found for each in of.experiment.untested)]
    if not untested:
        return []
    lines = [_row(each.text, each.source, each.reason) for each in untested]
    head = _row("cannot be tested here", "section", "reason")
    return [head, "|---|---|---|", *lines, ""]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

r"""Judgments from clicks: how relevant a document is to a query, as far as the clicks tell.

A judgment list made of click rates, or of clicks over the mean rate of the rank, confounds
relevance with examination: what stood high was clicked, and is judged good because it stood high.
Here each document has the posterior of its relevance under the position-based model with effects
of queries and documents,

    c ~ Bin(n, alpha_k sigmoid(eta_i) + beta_k),
    eta_i ~ N(base + b z_i + u_q, v),    u_q ~ N(0, s2),

with alpha, beta the curve of the position bias and z_i minus the mean log rank of the document: see
`untilt.bias.em.rank_prior`. Laplace's method, which training takes, has v too small where clicks
are few: with 5 sessions for each of 60 queries (mean of 8 logs) its 95% intervals held the truth in
72% of the documents, these in 96%.

Grades are a further observation of eta_i, with a precision of each judge that clicks tell
(`untilt.objectives.graded`).

The judgment is the mean of sigmoid(eta_i), its interval holds the middle of the posterior; the
curve and the prior count as known. A document with few clicks is near what its rank says, or near
the mean of its query where b is 0; with many it is its corrected rate. Features play no part.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any, Literal

import numpy as np

from untilt._core.arrays import AnyArray, FloatArray, sum_by
from untilt._core.files import write_text
from untilt._core.progress import progress
from untilt._core.statistics import check_level
from untilt.bias.em import rank_prior
from untilt.bias.em.rank_prior import Documents, LogitModel, PriorFit, fit_prior
from untilt.bias.estimator import check_clicks
from untilt.bias.given import BiasLike, as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.data.grades import Grades
from untilt.errors import OptionError, check_choice
from untilt.exports.format import plain_name
from untilt.facts import Fact, note, warning
from untilt.objectives.graded import JUDGE, Judge, observed
from untilt.objectives.hierarchical import ClickCells
from untilt.rankers.validation import cells_of

JUDGMENTS = note(
    "export.judgments",
    "relevance is the mean of its posterior; queries differ by {query:.2f} and documents of a "
    "query by {document:.2f} (standard deviations of the logit)",
)
JUDGMENTS_NO_BIAS = warning(
    "export.judgments-no-bias",
    "all positions count as equally examined, which holds only for lists in random order",
)()
JUDGMENTS_RELATIVE = note(
    "export.judgments-relative",
    "the bias is known relative to position 1, so that a judgment is relevance times the "
    "examination of position 1: the order of documents is right, the level is a lower bound",
)()
JUDGMENTS_BY_RANK = warning(
    "export.judgments-by-rank",
    "with few clicks a judgment mostly repeats the order of the logging ranker: it cannot show "
    "that this ranker is good. For each unit of mean log rank the logit of relevance falls by "
    "{b:.2f} +- {error:.2f} before any click, which adds {gain:,.0f} to the log-likelihood "
    "(⟦prior='query'|--prior query⟧ leaves it out)",
)

_FITTED_BY = 10_000  # documents, about, of queries that the prior is fitted by
PRIORS, JOINT = ("rank", "query"), "joint"
PERCENT = 100  # grades of qrels


@dataclass(frozen=True, eq=False, repr=False)
class Judgments:
    """Relevance of each shown document, with its interval; rows of a query side by side.

    Parameters
    ----------
    query_id, doc_id : (rows,)
    relevance, low, high : (rows,) mean and interval of the posterior, 0 to 1
    impressions, clicks : (rows,) number of impressions and clicks
    rests_on : (rows,) source of the judgment: "clicks", "grades" or "both"
    level : of the intervals
    notes : meaning and limits of the judgments
    """

    query_id: AnyArray
    doc_id: AnyArray
    relevance: FloatArray
    low: FloatArray
    high: FloatArray
    impressions: FloatArray
    clicks: FloatArray
    level: float
    notes: tuple[Fact, ...]
    rests_on: AnyArray

    def __len__(self) -> int:
        return len(self.relevance)

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(set(self.query_id.tolist()))

    def __repr__(self) -> str:
        width = float(np.median(self.high - self.low))
        return (
            f"Judgments({len(self):,} documents of {self.n_queries:,} queries, median width of "
            f"{self.level:.0%} intervals {width:.2f})"
        )

    def write(
        self, path: str | os.PathLike[str], to: str | None = None, *, name: str | None = None
    ) -> Path:
        """Write them for another tool; returns the path.

        Parameters
        ----------
        to : "opensearch" (an import of the Search Relevance Workbench, .json), "qrels" (TREC's,
            whole percent, .qrels or .txt) or "csv" (with intervals and counts); by the ending where
            not given
        name : of the judgment list in the workbench; the file's name where not given
        """
        place = Path(path)
        write_text(place, WRITERS[judgment_format(place, to)](self, name or plain_name(place.stem)))
        return place


def click_judgments(
    log: ClickLog,
    bias: BiasLike | Literal["joint"] | None = "joint",
    *,
    prior: str = "rank",
    labels: Grades | None = None,
    level: float = 0.95,
) -> Judgments:
    """Posterior relevance of every document that the log shows, with intervals.

    Parameters
    ----------
    bias : the position bias, with trust bias too; "joint" fits a curve along with the prior, which
        needs documents that moved; None assumes equal examination of all positions, which
        holds only for lists in random order
    prior : relevance before any click: "rank", by the order of the logging ranker; "query", the
        mean of the query
    labels : grades of some documents, which then count beside their clicks; documents that were
        never shown are judged by their grades, and start below the last place
    level : of the intervals
    """
    check_level(level)
    check_choice("prior", prior, PRIORS)
    check_clicks(log, "judgments")
    log = log.without_versions()
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    with progress("judging documents"):
        curve = rank_prior.joint_curve(log) if isinstance(bias, str) and bias == JOINT else bias
        cells = cells_of(log, curve, shown)
        sums = (np.ones(len(log.document)), log.label, np.log(log.position))
        n, c, rank = (sum_by(log.document, log.row_count * e, log.n_documents)[shown] for e in sums)
        z = np.mean(rank / n) - rank / n
        fit, gain = _fitted(cells, z, prior)
        judges: tuple[Judge, ...] = ()
        if labels is not None:
            found = np.full((2, log.n_documents), np.nan)
            found[:, shown[cells.order]] = _logits(cells, z, fit.model)
            grades, judges = observed(labels, log, *found)
            more = np.setdiff1d(np.flatnonzero(grades[1]), shown)
            last = np.full(len(more), np.mean(rank / n) - np.log(log.depth + 1))
            shown, z = np.append(shown, more), np.append(z, last)
            n, c = (np.append(each, 0 * last) for each in (n, c))
            cells = replace(cells_of(log, curve, shown), grades=grades[:, shown])
        mean, low, high = _posteriors(cells, z, fit.model, level)
    rows = shown[cells.order]
    graded = np.zeros(len(rows)) if cells.grades is None else cells.grades[1, cells.order]
    kind = (n[cells.order] > 0) + 2 * (graded > 0)
    return Judgments(
        query_id=log.query_id[log.doc_query[rows]],
        doc_id=log.doc_id[rows],
        relevance=mean,
        low=low,
        high=high,
        impressions=n[cells.order],
        clicks=c[cells.order],
        level=level,
        notes=(*_notes(log, curve, fit, gain, prior), *(JUDGE(**e._asdict()) for e in judges)),
        rests_on=np.array(["", "clicks", "grades", "both"])[kind],
    )


# ---- the posterior


def documents_of(cells: ClickCells, z: FloatArray) -> Documents:
    """The documents of these cells; `z` (documents,) as the caller numbers them."""
    return Documents(
        cells.query_ptr, cells.indptr, cells.impressions, cells.clicks, cells.place, z[cells.order],
        None if cells.grades is None else cells.grades[:, cells.order],
    )  # fmt: skip


def _fitted(cells: ClickCells, z: FloatArray, prior: str) -> tuple[PriorFit, float]:
    """The model, by some queries where there are many, and what the prior by rank adds."""
    most = _FITTED_BY * cells.n_queries // cells.n_documents
    part, left = cells.of_some_queries(max(1, most))
    documents = documents_of(part, z[left])
    plain = fit_prior(documents, part.alpha, part.beta, by_rank=False)
    if prior == "query":
        return plain, 0.0
    found = fit_prior(documents, part.alpha, part.beta)
    return found, found.log_evidence - plain.log_evidence


def _posterior(
    cells: ClickCells, z: FloatArray, model: LogitModel
) -> tuple[FloatArray, FloatArray]:
    """(documents, points) logits and their probabilities, in the order of cells."""
    documents = documents_of(cells, z)
    eta = rank_prior.points_of(documents, cells.alpha, cells.beta)
    return eta, rank_prior.posterior(documents, eta, cells.alpha, cells.beta, model).p


def _posteriors(
    cells: ClickCells, z: FloatArray, model: LogitModel, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(documents,) mean, and the ends of the interval, of the relevance, in the order of cells."""
    eta, p = _posterior(cells, z, model)
    tail = (1 - level) / 2
    low, high = (_sigmoid(_quantile(eta, p, each)) for each in (tail, 1 - tail))
    return np.sum(p * _sigmoid(eta), axis=1), low, high


def _logits(cells: ClickCells, z: FloatArray, model: LogitModel) -> FloatArray:
    """(2, documents) mean and variance of the logit, in the order of cells."""
    eta, p = _posterior(cells, z, model)
    mean = np.sum(p * eta, axis=1)
    return np.array([mean, np.sum(p * (eta - mean[:, None]) ** 2, axis=1)])


def _sigmoid(x: FloatArray) -> FloatArray:
    return 1 / (1 + np.exp(-x))


def _quantile(eta: FloatArray, p: FloatArray, share: float) -> FloatArray:
    """Where the distribution on these points reaches the share, between points by a line."""
    reached = np.cumsum(p, axis=1) - p / 2  # half of a point's weight lies on either side of it
    at = np.clip(np.sum(reached < share, axis=1), 1, eta.shape[1] - 1)
    rows = np.arange(len(eta))
    before, after = reached[rows, at - 1], reached[rows, at]
    part = np.clip((share - before) / np.maximum(after - before, 1e-300), 0.0, 1.0)
    return eta[rows, at - 1] + part * (eta[rows, at] - eta[rows, at - 1])


def _notes(
    log: ClickLog, bias: BiasLike | None, fit: PriorFit, gain: float, prior: str
) -> Iterator[Fact]:
    yield JUDGMENTS(query=fit.model.s2**0.5, document=fit.model.v**0.5)
    if prior == "rank":
        error = float(fit.covariance[1, 1] ** 0.5)
        yield JUDGMENTS_BY_RANK(b=fit.model.b, error=error, gain=gain)
    if bias is None:
        yield JUDGMENTS_NO_BIAS
    elif as_position_bias(bias, max(1, log.depth)).relative:
        yield JUDGMENTS_RELATIVE


# ---- files


def judgment_format(path: Path, to: str | None) -> str:
    """The form that was asked for, or that the ending says; raises where they disagree."""
    ending = path.suffix.lower()
    if to is None:
        found = [name for name, endings in ENDINGS.items() if ending in endings]
        if not found:
            known = ", ".join(f"{' or '.join(each)} ({name})" for name, each in ENDINGS.items())
            raise OptionError(f"judgments go to a file that ends in {known}. Got {path.name!r}.")
        return found[0]
    check_choice("to", to, tuple(WRITERS))
    if ending not in ENDINGS[to]:
        raise OptionError(
            f"judgments as {to} go to a file that ends in {' or '.join(ENDINGS[to])}. Got "
            f"{path.name!r}."
        )
    return to


def _opensearch(judgments: Judgments, name: str) -> str:
    """Ratings are texts: the workbench takes no numbers."""
    ratings: dict[str, list[dict[str, str]]] = {}
    for query, document, value in zip(
        judgments.query_id.tolist(), judgments.doc_id.tolist(), judgments.relevance, strict=True
    ):
        ratings.setdefault(str(query), []).append(
            {"docId": str(document), "rating": f"{value:.4f}"}
        )
    body = {
        "name": name,
        "description": "relevance from clicks, corrected for position bias by untilt",
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": each} for query, each in ratings.items()],
    }
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _qrels(judgments: Judgments, _: str) -> str:
    """query 0 document grade, with whole percent as grades."""
    lines = []
    for query, document, value in zip(
        judgments.query_id.tolist(), judgments.doc_id.tolist(), judgments.relevance, strict=True
    ):
        for each in (str(query), str(document)):
            if not each or each.split() != [each]:
                raise OptionError(
                    f"qrels separate columns by spaces, and there is an id {each!r}. Write CSV, or "
                    "give queries and documents ids without spaces."
                )
        lines.append(f"{query} 0 {document} {round(PERCENT * value)}\n")
    return "".join(lines)


def _csv(judgments: Judgments, _: str) -> str:

    held = StringIO()
    writer = csv.writer(held, lineterminator="\n")
    columns: dict[str, Any] = {
        "query_id": judgments.query_id.tolist(),
        "doc_id": judgments.doc_id.tolist(),
        **{
            name: [f"{value:.6f}" for value in getattr(judgments, name)]
            for name in ("relevance", "low", "high")
        },
        **{
            name: [f"{value:.0f}" for value in getattr(judgments, name)]
            for name in ("impressions", "clicks")
        },
    }
    if np.any(judgments.rests_on != "clicks"):
        columns["rests_on"] = judgments.rests_on.tolist()
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return held.getvalue()


WRITERS: dict[str, Callable[[Judgments, str], str]] = {
    "opensearch": _opensearch,
    "qrels": _qrels,
    "csv": _csv,
}
ENDINGS = {"opensearch": (".json",), "qrels": (".qrels", ".txt"), "csv": (".csv",)}

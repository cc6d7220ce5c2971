r"""Judgments from clicks: how relevant a document is to a query, as far as the clicks tell.

A judgment list made of click rates, or of clicks over the mean rate of the rank, confounds
relevance with examination: what stood high was clicked, and is judged good because it stood high.
Here each document has the posterior of its relevance under the position-based model with effects
of queries and documents,

    c ~ Bin(n, alpha_k sigmoid(eta_i) + beta_k),     eta_i ~ N(base + u_q, v),    u_q ~ N(0, s2),

with alpha, beta the curve of the position bias. base, v and s2 are those that make the clicks most
likely; eta_i and u_q are integrated by quadrature, each document on points of its own. Laplace's
method, which training takes, has v too small where clicks are few: with 5 sessions for each of 60
queries (mean of 8 logs) its 95% intervals held the truth in 72% of the documents, these in 96%.

The judgment is the mean of sigmoid(eta_i), its interval holds the middle of the posterior. A
document with few clicks is near the mean of its query with a wide interval; with many it is their
corrected rate. Features play no part: rankers that use them can be judged by these judgments.
"""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from untilt._core.arrays import AnyArray, FloatArray, IntArray, sum_by
from untilt._core.files import replacing
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt.bias.estimator import check_clicks
from untilt.bias.given import BiasLike, as_position_bias
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, check_choice
from untilt.exports.format import plain_name
from untilt.facts import Fact, note, warning
from untilt.objectives.hierarchical import ClickCells
from untilt.rankers.validation import cells_of

JUDGMENTS = note(
    "export.judgments",
    "relevance is the mean of its posterior; queries differ by {query:.2f} and documents of a "
    "query by {document:.2f} (standard deviations of the logit)",
)
JUDGMENTS_NO_BIAS = warning(
    "export.judgments-no-bias",
    "every position counts as examined alike: right for lists in random order alone",
)()
JUDGMENTS_RELATIVE = note(
    "export.judgments-relative",
    "the bias is known relative to position 1, so that a judgment is relevance times the "
    "examination of position 1: the order of documents is right, the level is a lower bound",
)()

_RANGE = 12.0  # no logit of a relevance is further from 0: exp(12) sessions would be needed to tell
_POINTS, _NODES = 48, 21  # of the quadrature over eta_i and over u_q
_DROP = 18.0  # points where the likelihood is below exp(-18) of its largest are left out
_FITTED_BY = 3_000  # documents, of queries drawn at random, that v and s2 are fitted by
_CHUNK = 1_000  # documents whose posteriors are made at once: 8 MB
_HYPER = 1.5  # log v, log s2 ~ N(0, 1.5^2) where clicks say nothing
PERCENT = 100  # grades of qrels


@dataclass(frozen=True, eq=False, repr=False)
class Judgments:
    """Relevance of each shown document, with its interval; rows of a query side by side.

    Parameters
    ----------
    query_id, doc_id : (rows,)
    relevance, low, high : (rows,) mean and interval of the posterior, 0 to 1
    impressions, clicks : (rows,) what they rest on
    level : of the intervals
    notes : what they mean, and what to know
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
        text = WRITERS[judgment_format(place, to)](self, name or plain_name(place.stem))
        with replacing(place) as temporary:
            temporary.write_text(text, encoding="utf-8")
        return place


def click_judgments(log: ClickLog, bias: BiasLike | None, *, level: float = 0.95) -> Judgments:
    """Posterior relevance of every document that the log shows, with intervals.

    Parameters
    ----------
    bias : the position bias, with trust bias too; None takes every position for examined alike,
        which is right for lists in random order alone
    level : of the intervals
    """
    if not 0 < level < 1:
        raise OptionError(f"level must lie between 0 and 1. Got {level!r} instead.")
    check_clicks(log, "judgments")
    log = log.without_versions()
    shown = np.flatnonzero(np.bincount(log.document, minlength=log.n_documents) > 0)
    cells = cells_of(log, bias, shown)
    with progress("judging documents"):
        model = fitted_model(cells)
        mean, low, high = _posteriors(cells, model, level)
    counts = (np.ones(len(log.document)), log.label)
    n, c = (sum_by(log.document, log.row_count * e, log.n_documents)[shown] for e in counts)
    order = cells.order
    relevance, low, high, impressions, clicks = (e[order] for e in (mean, low, high, n, c))
    return Judgments(
        query_id=log.query_id[log.doc_query[shown]][order],
        doc_id=log.doc_id[shown][order],
        relevance=relevance,
        low=low,
        high=high,
        impressions=impressions,
        clicks=clicks,
        level=level,
        notes=_notes(log, bias, model),
    )


# ---- the posterior


@dataclass(frozen=True)
class LogitModel:
    """eta_i ~ N(base + u_q, v), u_q ~ N(0, s2)."""

    base: float
    v: float
    s2: float

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Points of u_q and the logarithms of their weights."""
        points, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        return np.sqrt(self.s2) * points, np.log(weights / weights.sum())

    def log_prior(self, eta: FloatArray, u: FloatArray) -> FloatArray:
        """(documents, points, nodes) log density of eta given u_q."""
        apart = eta[:, :, None] - (self.base + u)
        density: FloatArray = -0.5 * (apart**2 / self.v + np.log(2 * np.pi * self.v))
        return density


@dataclass(frozen=True, eq=False)
class Tables:
    """(documents, points) points of eta, and the log-likelihood there with the points' weights.

    Documents stand query by query: those of query q are indptr[q]:indptr[q + 1].
    """

    eta: FloatArray
    log_likelihood: FloatArray
    indptr: IntArray

    def given_query(self, model: LogitModel) -> FloatArray:
        """(documents, nodes) log p(clicks of i | u_q)."""
        u, _ = model.nodes()
        parts = [
            _log_sum(self.log_likelihood[own][:, :, None] + model.log_prior(self.eta[own], u), 1)
            for own in _chunks(len(self.eta))
        ]
        return np.concatenate(parts)

    def log_evidence(self, model: LogitModel) -> float:
        """log p(all clicks)."""
        _, weights = model.nodes()
        by_query = np.add.reduceat(self.given_query(model), self.indptr[:-1], axis=0)
        return float(_log_sum(by_query + weights, 1).sum())


def _log_sum(values: FloatArray, axis: int) -> FloatArray:
    """log sum exp along an axis."""
    top = values.max(axis=axis, keepdims=True)
    total: FloatArray = np.log(np.sum(np.exp(values - top), axis=axis)) + top.squeeze(axis)
    return total


def _chunks(n: int) -> list[slice]:
    return [slice(begin, begin + _CHUNK) for begin in range(0, n, _CHUNK)]


def likelihood_tables(cells: ClickCells) -> Tables:
    """Points where the likelihood of each document is not negligible: as fine as its clicks tell.

    The trapezoid rule on equal points: its error vanishes with a smooth function that falls to 0.
    """
    n = cells.n_documents
    low, high = np.full(n, -_RANGE), np.full(n, _RANGE)
    for _ in range(5):  # each time at most _POINTS / 3 times finer
        step = (high - low) / (_POINTS - 1)
        table = cells.log_likelihoods(np.linspace(low, high, _POINTS, axis=1))
        inside = table > table.max(axis=1, keepdims=True) - _DROP
        first, last = inside.argmax(axis=1), _POINTS - 1 - inside[:, ::-1].argmax(axis=1)
        new = low + step * np.maximum(first - 1, 0), low + step * np.minimum(last + 1, _POINTS - 1)
        narrowed = np.max((high - low) / (new[1] - new[0]), initial=1.0)
        low, high = new
        if narrowed < 1.5:
            break
    eta = np.linspace(low, high, _POINTS, axis=1)
    weight = np.repeat((high - low)[:, None] / (_POINTS - 1), _POINTS, axis=1)
    weight[:, [0, -1]] /= 2
    table = cells.log_likelihoods(eta) + np.log(weight)
    return Tables(eta[cells.order], table[cells.order], cells.query_ptr)


def fitted_model(cells: ClickCells) -> LogitModel:
    """base, v and s2 of the greatest evidence, by some queries where there are many."""
    sizes = np.diff(cells.query_ptr)
    drawn = child_generator(0, 21).permutation(cells.n_queries)
    keep = np.zeros(cells.n_queries, dtype=bool)
    keep[drawn[: max(1, int(np.sum(np.cumsum(sizes[drawn]) <= _FITTED_BY)))]] = True
    part, _ = cells.take_queries(keep)
    tables = likelihood_tables(part)

    def cost(point: FloatArray) -> float:
        prior = 0.5 * float(np.sum(point[1:] ** 2)) / _HYPER**2
        return prior - tables.log_evidence(_model(point))

    exposed = float(np.sum(part.impressions * part.alpha[part.place]))
    rate = np.clip(float(np.sum(part.clicks)) / max(exposed, 1e-9), 0.02, 0.98)
    start = np.array([np.log(rate / (1 - rate)), 0.0, -1.0])
    low, high = (-_RANGE, np.log(0.04), np.log(0.01)), (_RANGE, np.log(25.0), np.log(25.0))
    corners = start + np.vstack([np.zeros(3), np.diag([0.5, 0.7, 0.7])])
    found = minimize(
        cost, start, method="Nelder-Mead", bounds=list(zip(low, high, strict=True)),
        options={"xatol": 0.02, "fatol": 0.02, "maxiter": 200, "initial_simplex": corners},
    )  # fmt: skip
    return _model(found.x)


def _model(point: FloatArray) -> LogitModel:
    """Of base, log v and log s2."""
    return LogitModel(float(point[0]), float(np.exp(point[1])), float(np.exp(point[2])))


def _posteriors(
    cells: ClickCells, model: LogitModel, level: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(documents,) mean, and the ends of the interval, of the relevance."""
    tables = likelihood_tables(cells)
    p = _density(tables, model)
    tail = (1 - level) / 2
    ends = (_quantile(tables.eta, p, each) for each in (tail, 1 - tail))
    found = np.array([np.sum(p * _sigmoid(tables.eta), axis=1), *map(_sigmoid, ends)])
    in_order = np.empty_like(found)
    in_order[:, cells.order] = found
    return in_order[0], in_order[1], in_order[2]


def _density(tables: Tables, model: LogitModel) -> FloatArray:
    """(documents, points) the posterior of eta, summing to 1."""
    u, weights = model.nodes()
    own = tables.given_query(model)
    sums = np.add.reduceat(own, tables.indptr[:-1], axis=0)
    # What the other documents of the query say of u_q.
    others = np.repeat(sums, np.diff(tables.indptr), axis=0) - own + weights
    p = np.empty_like(tables.eta)
    for part in _chunks(len(p)):
        joint = model.log_prior(tables.eta[part], u) + others[part][:, None, :]
        density = tables.log_likelihood[part] + _log_sum(joint, 2)
        p[part] = np.exp(density - _log_sum(density, 1)[:, None])
    return p


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


def _notes(log: ClickLog, bias: BiasLike | None, model: LogitModel) -> tuple[Fact, ...]:
    told = [JUDGMENTS(query=model.s2**0.5, document=model.v**0.5)]
    if bias is None:
        told.append(JUDGMENTS_NO_BIAS)
    elif as_position_bias(bias, max(1, log.depth)).relative:
        told.append(JUDGMENTS_RELATIVE)
    return tuple(told)


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
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return held.getvalue()


WRITERS: dict[str, Callable[[Judgments, str], str]] = {
    "opensearch": _opensearch,
    "qrels": _qrels,
    "csv": _csv,
}
ENDINGS = {"opensearch": (".json",), "qrels": (".qrels", ".txt"), "csv": (".csv",)}

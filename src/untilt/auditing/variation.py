r"""Why positions vary, as far as a log can say, and what that makes of a curve.

A curve from repeated positions is right where the reason why a document stood higher has nothing
to do with how relevant it was then. No statistic of positions alone can tell: three rankers that
share the traffic at random and three segments with tastes of their own show the same positions. So
only an experiment, or rankers that chance assigns, carry a firm verdict. What can be counted is
which explanations are left, for documents d at position k in sessions s of production:

    unnamed   U = MSW / MST, the mean square of positions within (document, ranker) over that within
              document: 0 where the names of rankers explain all, 1 where they explain nothing
    turnover  V, the same within sessions that follow one another: near 0 where lists change from
              one period to the next
    repeated  R = sum n_l (n_l - 1) / (n (n - 1)), the chance that two sessions of a query and a
              ranker show the same list

**Levels free.** Sessions with an advertisement on top show every document one place lower, and
may click less for reasons of their own. So each combination of ranker and places that are left out
may have a level of its own: log E c_dkg = log gamma_d + log theta_k + lambda_g. `inflation` is the
variance of log theta_k - log theta_1 with these levels over that with one: 1 where they do not
matter, infinite where positions and levels cannot be told apart.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy import special
from scipy.sparse import csr_array

from untilt._core import ragged
from untilt._core.arrays import FloatArray, IntArray, sum_by
from untilt._core.grouping import group_equal_lists
from untilt._core.portable import Portable
from untilt.auditing.scores import Repeated
from untilt.bias.experiments.assignment import baseline_lists
from untilt.data.clicklog import ClickLog, turnover_of
from untilt.data.counts import left_out, position_counts
from untilt.facts import Fact, Sentence, note, serious, warning

Source = Literal["", "randomised", "in turn", "versions", "harvested"]
Assigned = Literal["unknown", "random", "other"]

MOST_UNNAMED = 0.1  # of the variance of positions, where names of rankers explain it
LEAST_TURNOVER = 0.5
LEAST_REPEATED = 0.1  # one list in ten comes again: production has versions, not a list a session
MOST_INFLATION = 4.0  # twice the standard error
UNBALANCED = 0.001  # p-value, and with it Cramer's V above the next: rankers answer other queries
MOST_ASSOCIATION = 0.1
SESSIONS_A_RANKER = 10  # expected for each ranker in a query that counts for the balance
MOST_LEVELS = 40  # combinations of ranker and places left out; the rarest share a level
ALWAYS_THE_SAME = 0.9  # R from which a query and ranker have one list


@dataclass(frozen=True)
class Variation(Portable):
    """How production's positions vary; see the module.

    Parameters
    ----------
    unnamed, turnover, repeated : U, V and R; no turnover where the log does not say
    balanced : whether rankers answered the same queries, as far as counts tell
    lengths_vary : whether a query and ranker have lists of several lengths
    inflation : (K,) by position, 1 at the first; infinite where a level cannot be told apart
    varies : whether any document of production has several positions
    assigned : "random" where the team says that chance drew the ranker of each session, "other"
        where something else did, such as a country: names alone cannot tell
    """

    unnamed: float
    turnover: float | None
    repeated: float
    balanced: bool
    lengths_vary: bool
    inflation: FloatArray
    varies: bool
    assigned: Assigned = "unknown"
    json_properties: ClassVar[tuple[str, ...]] = ("source", "joined_depth")

    @property
    def source(self) -> Source:
        """What made positions vary, as far as the log says."""
        if not self.varies:
            return ""
        named = self.unnamed <= MOST_UNNAMED
        if self.turnover is not None and self.turnover < LEAST_TURNOVER:
            return "in turn"
        if named and self.balanced and self.assigned != "other":
            unknown = self.turnover is None and self.assigned == "unknown"
            return "in turn" if unknown else "randomised"
        if named:
            return "harvested"
        return "versions" if self.repeated >= LEAST_REPEATED else "harvested"

    @property
    def joined_depth(self) -> int:
        """Positions 1..n can be told apart from levels of sessions."""
        apart = np.flatnonzero(self.inflation > MOST_INFLATION)
        return int(apart[0]) if len(apart) else len(self.inflation)

    @property
    def lists_are_fixed(self) -> bool:
        """Whether what a session was shown can have nothing to do with what it wanted."""
        fixed = self.repeated >= ALWAYS_THE_SAME
        return fixed and not self.lengths_vary and self.source in ("", "randomised")

    @property
    def fact(self) -> Fact | None:
        """Why positions vary, as a finding; None where they do not."""
        if not self.source:
            return None
        return _SOURCES[self.source](named=1 - self.unnamed, repeated=self.repeated)


_SOURCES: dict[Source, Sentence] = {
    "randomised": note(
        "variation.randomised",
        "Positions vary because rankers differ: their names explain {named:.0%} of the variance, "
        "and all of them ran at the same time. The column `ranker` is taken to mean that chance "
        "drew the ranker of a session, not its country or taste; if that is wrong, say "
        "⟦assigned='other'|--assigned other⟧.",
    ),
    "in turn": warning(
        "variation.in-turn",
        "Positions vary because lists changed from one period to the next, or because the log "
        "has no times: a curve from documents that moved is right only if they were equally "
        "relevant in all periods.",
    ),
    "versions": warning(
        "variation.versions",
        "Production shows a few lists for a query ({repeated:.0%} of the pairs of sessions show "
        "the same one), and the log does not name what made them: a curve from documents that "
        "moved is right only if chance decided which list a session saw. The column `ranker` "
        "would show it.",
    ),
    "harvested": warning(
        "variation.harvested",
        "Positions vary from session to session for reasons that the log does not name: a curve "
        "from documents that moved is right only if these have nothing to do with what a session "
        "wants.",
    ),
}


def _if(text: str) -> Fact:
    return serious("run.if-evidence", f"if {text}, which this log cannot show")()


CONDITIONS: dict[Source, Fact] = {
    "in turn": _if("documents were as relevant in one period as in the next"),
    "versions": _if("chance decided which list a session saw"),
    "harvested": _if("why lists differ has nothing to do with relevance"),
}
"""What a curve from repeated positions, and all that rests on it, depends on."""


def variation_of(
    log: ClickLog, assigned: Assigned = "unknown", *, levels: bool = True
) -> Variation:
    """Of production's lists; experiments are left out. Versions of a document are one.

    Without `levels` the inflation is not computed, and 1.
    """
    turnover = turnover_of(log)
    log = log.take(baseline_lists(log)).without_versions()
    within, total = _mean_squares(log)
    repeated, lengths_vary = _repeated(log)
    return Variation(
        unnamed=within / total if total > 0 else 0.0,
        turnover=turnover,
        repeated=repeated,
        balanced=_is_balanced(log),
        lengths_vary=lengths_vary,
        inflation=_inflation(log) if levels else np.ones(log.depth),
        varies=total > 0,
        assigned=assigned,
    )


def ranker_of_list(log: ClickLog) -> IntArray:
    """(lists,) number of the ranker; 0 where the log names none."""
    return np.zeros(log.n_lists, dtype=np.int64) if log.ranker is None else log.ranker


def _mean_squares(log: ClickLog) -> tuple[float, float]:
    """Mean squares of positions within (document, ranker), and within document."""
    by_ranker = log.document.astype(np.int64) * (int(ranker_of_list(log).max(initial=0)) + 1)
    by_ranker += np.repeat(ranker_of_list(log), ragged.lengths(log.indptr))
    k, n = log.position.astype(float), log.row_count.astype(float)
    squares = []
    for owner in (np.unique(by_ranker, return_inverse=True)[1], log.document):
        weight = sum_by(owner, n)
        mean = sum_by(owner, n * k) / np.maximum(weight, 1)
        freedom = weight.sum() - np.count_nonzero(weight)
        squares.append(float(np.sum(n * (k - mean[owner]) ** 2)) / max(freedom, 1.0))
    return squares[0], squares[1]


def _repeated(log: ClickLog) -> tuple[float, bool]:
    """R over lists that are cut to the shortest of their query and ranker; whether any was cut."""
    ranker = ranker_of_list(log)
    group = log.query * np.int64(ranker.max(initial=0) + 1) + ranker
    group = np.unique(group, return_inverse=True)[1]
    length = ragged.lengths(log.indptr)
    shortest = np.full(int(group.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, length)
    lengths_vary = bool(np.any(length > shortest[group]))
    keep = ragged.index_in_list(log.indptr) < np.repeat(shortest[group], length)
    lists = group_equal_lists(ragged.keep_rows(log.indptr, keep), [log.document[keep]], [group])
    same = sum_by(lists.group_of_list, log.sessions.astype(float))
    n = sum_by(group, log.sessions.astype(float))
    pairs = sum_by(group[lists.first], same * (same - 1), len(n)) / np.maximum(n - 1, 1)
    several = n > 1
    return float(pairs[several].sum() / max(n[several].sum(), 1.0)), lengths_vary


def _is_balanced(log: ClickLog) -> bool:
    """Whether the traffic of queries is shared alike: chi-square, and Cramer's V without noise."""
    n_rankers = int(ranker_of_list(log).max(initial=0)) + 1
    cell = log.query * np.int64(n_rankers) + ranker_of_list(log)
    table = sum_by(cell, log.sessions.astype(float), log.n_queries * n_rankers)
    table = table.reshape(log.n_queries, n_rankers)
    table = table[:, table.sum(axis=0) > 0]
    share = table.sum(axis=0) / max(table.sum(), 1.0)
    table = table[table.sum(axis=1) * share.min(initial=1.0) >= SESSIONS_A_RANKER]
    if table.shape[1] < 2 or len(table) < 2:
        return True
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    chi2 = float(np.sum((table - expected) ** 2 / expected))
    freedom = (len(table) - 1) * (table.shape[1] - 1)
    excess = max(0.0, chi2 - freedom) / table.sum() / (table.shape[1] - 1)
    return bool(special.chdtrc(freedom, chi2) >= UNBALANCED or excess < MOST_ASSOCIATION**2)


def _levels(log: ClickLog) -> IntArray:
    """(lists,) a number for each combination of ranker and places left out; rare ones share one."""
    owner, last = ragged.list_of_row(log.indptr), log.indptr[1:] - 1
    key = np.zeros(log.n_lists, dtype=np.int64)
    if log.n_lists and log.position[last].max() < 63:
        shown = sum_by(owner, np.exp2(log.position.astype(float) - 1), log.n_lists)
        left_out = (np.int64(1) << log.position[last].astype(np.int64)) - 1 - shown.astype(np.int64)
        key = left_out
    else:
        key = log.position[log.indptr[:-1]].astype(np.int64) - 1
    _, level = np.unique(np.stack([ranker_of_list(log), key]), axis=1, return_inverse=True)
    sessions = sum_by(level.ravel(), log.sessions)
    rank = np.argsort(np.argsort(-sessions, kind="stable"))
    return np.minimum(rank, MOST_LEVELS)[level.ravel()]


def _inflation(log: ClickLog) -> FloatArray:
    """(K,) variance of each log ratio to position 1, levels free, over that with one level."""
    K, level = log.depth, _levels(log)
    G = int(level.max(initial=0)) + 1
    counts = position_counts(log)
    data = Repeated.of(counts)
    if G == 1 or not len(data.c):
        return np.ones(K)
    of_row = np.repeat(level, ragged.lengths(log.indptr))
    cells = position_counts(
        log, position=(log.position.astype(np.int64) - 1) * G + of_row + 1, depth=K * G
    )
    k, g = np.divmod(cells.position.astype(np.int64) - 1, G)
    owner, theta = cells.document_index, np.exp(data.log_theta[k])
    n_docs = len(cells.document)
    exposure = sum_by(owner, cells.impressions * theta, n_docs)
    clicks = sum_by(owner, cells.clicks, n_docs)
    m = cells.impressions * theta * (clicks / np.maximum(exposure, 1e-300))[owner]
    shape = (n_docs, K + G)
    x = csr_array((np.r_[m, m], (np.r_[owner, owner], np.r_[k, K + g])), shape=shape)
    both = csr_array((m, (k, g)), shape=(K, G)).toarray()
    diagonal = np.diag(np.asarray(x.sum(axis=0)).ravel())
    diagonal[:K, K:], diagonal[K:, :K] = both, both.T
    scale = csr_array((1 / np.maximum(clicks, 1e-300), (range(n_docs), range(n_docs))))
    information = diagonal - (x.T @ scale @ x).toarray()
    unused = left_out(counts.by_position(counts.impressions), counts.by_position(counts.clicks))
    first = int(np.argmin(unused))
    free, one = (_variances(each, K, first) for each in (information, information[:K, :K]))
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(one), free / one, 1.0)
    ratio[unused] = ratio[first] = 1.0
    return np.maximum(ratio, 1.0)


def _variances(information: FloatArray, K: int, first: int) -> FloatArray:
    """(K,) variance of x_k - x_first; infinite where the information does not hold it."""
    occurs = np.diag(information) > 0
    values, vectors = np.linalg.eigh(information[np.ix_(occurs, occurs)])
    held = values > 1e-9 * max(values.max(initial=0.0), 1e-300)
    contrast = np.eye(len(information))[:K] - np.eye(len(information))[first]
    along = contrast[:, occurs] @ vectors
    lost = ~occurs[:K] | (np.sum(along[:, ~held] ** 2, axis=1) > 1e-6)
    found = np.sum(along[:, held] ** 2 / values[held], axis=1)
    return np.where(lost, np.inf, found)

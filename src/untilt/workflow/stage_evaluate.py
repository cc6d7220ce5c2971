"""Step 6: would it have been better, and what changes? On queries that nothing was learned from."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core import ragged
from untilt._core.arrays import FloatArray, sum_by
from untilt._core.progress import progress
from untilt._core.statistics import weighted_mean
from untilt._core.threads import side_by_side
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.assignment import baseline_lists
from untilt.catalog import record_of
from untilt.data.clicklog import ClickLog
from untilt.data.layout import ranks_of
from untilt.data.slates import Slates, slates_of, slot_discounts
from untilt.errors import OptionError
from untilt.evaluation.by_default import MOST_UNTESTED, queries_with_evidence, untested_share
from untilt.evaluation.clip_curve import ClipCurve, clip_curve, clip_curve_evaluator
from untilt.evaluation.estimate import IF_EVIDENCE, estimate
from untilt.evaluation.labels.estimate import beside_clicks
from untilt.evaluation.null_tests import null_tests
from untilt.evaluation.pool import parse_evaluator
from untilt.evaluation.results import Estimates
from untilt.evaluation.step import STEPS, SafeStep, live_rankers, safe_step, whole_step
from untilt.evaluation.systems import shown
from untilt.facts import Fact, warning
from untilt.rankers.trees.stepped import can_step
from untilt.report import step_results
from untilt.selection.fitting import CandidateStore
from untilt.weighting import PairwiseDebiasing
from untilt.workflow.candidates import BY_FOLD, RAW, SHOWN
from untilt.workflow.options import RunOptions
from untilt.workflow.stage_read import Judged

# What a ranker changes: where documents go, and which queries look different afterwards.

EXAMPLES, DOCUMENTS = 6, 12


def new_slots(log: ClickLog, scores: FloatArray) -> tuple[Slates, FloatArray]:
    """The distinct lists of a log, and the position that each row's document gets in its list.

    The documents of a list fill the positions that it had, its slots; equal scores share theirs.
    """
    slates, _ = slates_of(log)
    ranks = ranks_of(log.layout, slates.depth).astype(float)
    return slates, slot_discounts(slates, scores, ranks)


def new_positions(log: ClickLog, scores: FloatArray, *, level: float) -> step_results.NewPositions:
    """Average new position of what stood at each old position, over sessions.

    Each session's own list is ordered anew (Figure 1 of [hu2019unbiased]_). The interval at each
    position is that of `weighted_mean` over queries; none from a single query.
    """
    slates, slot = new_slots(log, scores)
    index = ranks_of(log.layout, slates.depth)[slates.position_index] - 1
    depth = int(index.max()) + 1
    query = np.repeat(slates.query, ragged.lengths(slates.indptr)).astype(np.int64)
    # Each query once per position: (position, query) with impressions and their mean slot.
    cells, owner = np.unique(index * np.int64(query.max() + 1) + query, return_inverse=True)
    weight = sum_by(owner, slates.row_count.astype(float))
    slots = sum_by(owner, slates.row_count * slot) / weight
    ends = np.searchsorted(cells // (query.max() + 1), np.arange(depth + 1))
    means = [weighted_mean(slots[a:b], weight[a:b]) for a, b in pairwise(ends.tolist())]
    mean = np.array([each.value for each in means])
    found = [each.interval(level) for each in means]
    low, high = (np.array([getattr(each, end) for each in found]) for end in ("low", "high"))
    unknown = ~np.isfinite(low)
    low[unknown], high[unknown] = np.nan, np.nan
    return step_results.NewPositions(np.arange(1, depth + 1), mean, low, high)


def changed_queries(log: ClickLog, scores: FloatArray) -> tuple[step_results.ChangedQuery, ...]:
    """The queries whose order changes most, of those with at least the median of sessions.

    The change of a query is sum_d |1/log2(1 + old_d) - 1/log2(1 + new_d)| over its shown documents,
    old and new the mean position over the sessions that show it: what moves near the top counts
    most. Versions of a document are one document here.
    """
    slates, slot = new_slots(log, scores)
    moved = slates.document if log.item is None else log.item[slates.document]
    log = log.without_versions()
    shown = np.unique(log.document)
    shown = shown[np.argsort(log.doc_query[shown], kind="stable")]
    queries, sizes = np.unique(log.doc_query[shown], return_counts=True)
    indptr = ragged.indptr_of(sizes)
    weight, n = log.row_count, log.n_documents
    impressions = sum_by(log.document, weight, n)[shown]
    clicks = sum_by(log.document, weight * log.label, n)[shown]
    old = sum_by(log.document, weight * log.rank, n)[shown] / impressions
    new = sum_by(moved, slates.row_count * slot, n)[shown] / impressions
    step = np.abs(1 / np.log2(1 + old) - 1 / np.log2(1 + new))
    change = np.add.reduceat(step, indptr[:-1])
    sessions = sum_by(log.query, log.sessions, log.n_queries)[queries]
    enough = sessions >= np.median(sessions)

    def document(row: int) -> step_results.MovedDocument:
        return step_results.MovedDocument(
            document=str(log.doc_id[shown[row]]),
            old_position=round(float(old[row]), 1),
            new_position=round(float(new[row]), 1),
            clicks=float(clicks[row]),
            impressions=int(impressions[row]),
        )

    examples = []
    for i in np.lexsort((queries, -np.where(enough, change, -1.0)))[:EXAMPLES]:
        if change[i] <= 0 or not enough[i]:
            continue
        rows = np.arange(indptr[i], indptr[i + 1])
        rows = rows[np.lexsort((old[rows], new[rows]))][:DOCUMENTS]
        query = str(log.query_id[queries[i]])
        examples.append(
            step_results.ChangedQuery(
                query, tuple(map(document, rows)), int(sessions[i]), float(change[i])
            )
        )
    return tuple(examples)


GRADES_UNUSED = warning("run.grades-unused", "the grades are not used: {why}")
LEAST_EFFECTIVE = 0.1  # clicks of equal weight, as a share of the clicks


def evaluate_rankers(
    judged: Judged,
    bias: PositionBias,
    options: RunOptions,
    training: step_results.Training,
    store: CandidateStore,
    shipped: Path,
    *,
    old_score: str | None = None,
    assumed: bool = False,
) -> step_results.HeldOut:
    """All candidates against the logged order on held-out queries, and what the chosen changes.

    Importances are those of the `shipped` ranker. The step starts from the old ranks, or from the
    feature that is the old ranker's score; `assumed` says that nobody measured the curve.
    """
    assert training.chosen is not None
    names = [each.name for each in training.candidates]
    with progress("loading rankers", total=len(names)) as advance:

        def score(candidate: step_results.TrainedCandidate) -> FloatArray:
            found = _scores_of(candidate, judged, store)
            advance()
            return found

        at_once = side_by_side(score, training.candidates, n_threads=options.threads)
    scores = dict(zip(names, at_once, strict=True))
    name = training.chosen
    if set(training.by_fold) - {name}:
        # The estimate of a choice is honest where no query had a say in its own.
        name = BY_FOLD
        scores[name] = judged.pooled(
            [scores[each][rows] for each, rows in zip(training.by_fold, judged.rows, strict=True)]
        )
    chosen: Any = store.ranker(shipped)
    shares = getattr(chosen, "feature_importances_", {}).items()
    gain = "gain of all splits"
    return evaluate_scores(
        judged.log,
        scores,
        bias,
        options,
        chosen=name,
        clip=training.clip,
        importances={
            name: float(share)
            for name, share in sorted(shares, key=lambda item: (-item[1], item[0]))
            if share > 0
        },
        importance_of=gain if hasattr(chosen, "booster_") else "size of standardised weights",
        pair_bias=_pair_bias(training, store),
        step_of=partial(
            safe_step,
            new=_on_one_scale(judged, scores[name]),
            assumed=assumed,
            old=_old_score(judged.log, old_score),
            steps=STEPS if can_step(chosen) else (1.0,),
        ),
    )


def _on_one_scale(judged: Judged, scores: FloatArray) -> FloatArray:
    """The scores of each fold's ranker over their spread within queries."""
    query = judged.log.doc_query
    mean = sum_by(query, scores) / np.maximum(np.bincount(query), 1)
    apart = [scores[rows] - mean[query[rows]] for rows in judged.rows]
    return judged.pooled([each / (float(np.std(each)) or 1.0) for each in apart])


def _old_score(log: ClickLog, name: str | None) -> tuple[str, FloatArray] | None:
    """The column and its values; None where there is none, or where a shown document has none."""
    if name is None or log.features is None or name not in log.feature_names:
        return None
    values = log.features[:, log.feature_names.index(name)].astype(float)
    return (name, values) if np.isfinite(values[log.document]).all() else None


def _scores_of(
    candidate: step_results.TrainedCandidate, judged: Judged, store: CandidateStore
) -> FloatArray:
    """The scores of a candidate's rankers, each of its own documents.

    With folds they are those that it was chosen by, which lie beside the rankers.
    """
    features = judged.log.features
    assert features is not None
    in_folds = len(judged.rows) > 1
    scores = []
    for file, rows in zip(candidate.files, judged.rows, strict=True):
        kept = store.read(Path(file).stem, candidate.name, len(rows)) if in_folds else None
        scores.append(
            np.asarray(store.ranker(store.folder / file).predict(features[rows]))
            if kept is None
            else kept.scores
        )
    return judged.pooled(scores)


def evaluate_scores(
    test: ClickLog,
    scores: dict[str, FloatArray],
    bias: PositionBias,
    options: RunOptions,
    *,
    chosen: str,
    clip: float | None,
    step_of: Callable[..., SafeStep | None] | None = None,
    **more: Any,
) -> step_results.HeldOut:
    """Systems by their scores against the logged order; `more` goes into the result.

    With `step_of` the logged order is that of the best logged ranker, where several are live.
    """
    estimates = estimated(test, {SHOWN: shown, **scores}, bias, options, clip)
    told, test = _with_evidence(estimates, test, chosen)
    if told:
        estimates = estimated(test, {SHOWN: shown, **scores}, bias, options, clip)
    step = None
    if step_of is not None:
        step = _step(
            step_of, test, estimates, {SHOWN: shown, chosen: scores[chosen]}, options, clip
        )
        if step.rankers:
            options = replace(options, baseline=(step.rankers[0].name,))
            estimates = estimated(test, {SHOWN: shown, **scores}, bias, options, clip)
    production = test.take(baseline_lists(test, options.baseline))
    labels = None
    if options.grades is not None:
        systems: Any = {SHOWN: shown, chosen: scores[chosen]}
        try:
            labels = beside_clicks(
                production, systems, options.grades, options.metric, bias, options.level
            )
        except OptionError as error:  # such as grades of other queries
            told = (*told, GRADES_UNUSED(why=str(error)))
    if told:
        estimates = replace(estimates, warnings=(*told, *estimates.warnings))
    assert estimates.inputs is not None
    clips = estimates.inputs.evaluator.takes("clip")
    return step_results.HeldOut.of(
        estimates,
        chosen,
        baseline=SHOWN,
        to_raw=estimates.compare(RAW)[chosen] if RAW in scores and chosen != RAW else None,
        null_tests=null_tests(
            test,
            scores[chosen],
            bias,
            metric=options.metric,
            evaluator=estimates.inputs.evaluator,
            among=options.among,
            baseline=options.baseline,
            level=options.level,
            seed=options.seed,
        ),
        sensitivity=estimates.sensitivity(chosen, SHOWN),
        clip=clip if clips else None,
        clip_curve=_clip_curve(test, scores[chosen], bias, options) if clips else None,
        new_positions={
            name: new_positions(production, each, level=options.level)
            for name, each in scores.items()
        },
        changed=changed_queries(production, scores[chosen]),
        step=step,
        labels=labels,
        **more,
    )


def _step(
    step_of: Callable[..., SafeStep | None],
    test: ClickLog,
    estimates: Estimates,
    systems: dict[str, Any],
    options: RunOptions,
    clip: float | None,
) -> SafeStep:
    """How far to go from the logged order; where several rankers are live, from the best one."""
    old, new = systems
    assert estimates.inputs is not None
    live, shared = live_rankers(test, options.assigned)
    found = None
    if live and options.baseline is None:
        among = estimated(shared, systems, estimates.inputs.bias, options, clip, unshown=False)
        found = step_of(among, rankers=live)
    found = found or step_of(estimates)
    return found or whole_step(estimates, new, old)


def _with_evidence(
    estimates: Estimates, test: ClickLog, chosen: str
) -> tuple[tuple[Fact, ...], ClickLog]:
    """The lists of queries that show how far people read, where others would decide; and why."""
    assert estimates.inputs is not None
    has = queries_with_evidence(estimates.inputs)
    untested = untested_share(estimates.inputs, chosen, SHOWN, has)
    if untested <= MOST_UNTESTED or not has.any():
        return (), test
    asked, lists = np.unique(test.query), has[test.query]
    fact = step_results.JUDGED_PART(
        queries=int(has[asked].sum()),
        of=len(asked),
        share=float(test.sessions[lists].sum() / test.sessions.sum()),
        untested=untested,
    )
    return (fact,), test.take(lists)


def estimated(
    part: ClickLog,
    systems: Any,
    bias: PositionBias,
    options: RunOptions,
    clip: float | None,
    *,
    unshown: bool = True,
) -> Estimates:
    """`untilt.estimate` as the options of a run say; the verdict tells what it depends on."""
    found = estimate(
        part, systems, bias, metric=options.metric, evaluator=options.evaluator, clip=clip,
        among=options.among, baseline=options.baseline, level=options.level, seed=options.seed,
        unshown=unshown, assigned=options.assigned,
    )  # fmt: skip
    told = tuple(each for each in found.warnings if each.code != IF_EVIDENCE.code)
    return replace(found, warnings=told)


def chosen_clip(
    valid: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> float | None:
    """The clip to evaluate with, from the validation part; None for evaluators without.

    The least estimated squared error, raised until the clicks count like a tenth of them of equal
    weight: with few queries the error cannot see that single clicks carry the value.
    """
    if not parse_evaluator(options.evaluator).takes("clip"):
        return None
    if options.clip != "auto":
        return float(options.clip)
    curve = _clip_curve(valid, scores, bias, options)
    rising = [float(clip) for clip in curve.clip if clip >= curve.best]

    def is_even(clip: float) -> bool:
        weights = estimated(valid, scores, bias, options, clip, unshown=False).weights
        return weights.effective_n >= LEAST_EFFECTIVE * weights.n_clicks

    return next((clip for clip in rising if is_even(clip)), rising[-1])


def _clip_curve(
    part: ClickLog, scores: FloatArray, bias: PositionBias, options: RunOptions
) -> ClipCurve:
    return clip_curve(
        part, scores, bias, metric=options.metric, among=options.among,
        baseline=options.baseline, level=options.level,
        evaluator=clip_curve_evaluator(parse_evaluator(options.evaluator)),
    )  # fmt: skip


def _pair_bias(
    training: step_results.Training, store: CandidateStore
) -> step_results.PairBias | None:
    """t+ and t- of pairwise debiasing, where it was trained; with folds those of the first."""
    own = record_of(PairwiseDebiasing).name
    file = next((each.file for each in training.candidates if each.method == own), None)
    ranker = None if file is None else store.ranker(store.folder / file)
    history = getattr(ranker, "bias_history_", None)
    if not history:
        return None
    return step_results.PairBias(history[-1].plus, history[-1].minus, len(history))

"""Steps 1 and 2: read the log, merge equal sessions, and set parts aside for choice and evaluation.

What was read is kept for a run that goes on.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray, IntArray
from untilt._core.declared import declared
from untilt._core.progress import progress
from untilt._core.random import child_generator
from untilt._core.store import file_digest, key_of
from untilt.bias.curve import PositionBias
from untilt.bias.given import numbered_for
from untilt.data.clicklog import PROPENSITY, ClickLog
from untilt.data.read.files import Files, located, refuse_changed, stamps
from untilt.data.read.options import ClickOptions, DocumentOptions
from untilt.data.read.sources import at_hand
from untilt.data.read.ubi import Ubi
from untilt.data.transform import (
    in_parts_of_time,
    restrict_queries,
    synthesise,
    to_evidence,
    without_features,
)
from untilt.errors import OptionError
from untilt.facts import note, warning
from untilt.report.step_results import LogSource, Split
from untilt.workflow.folder import Done, RunFolder, Steps
from untilt.workflow.options import SHARE, RunOptions, SplitBy

HELD_OUT = note("run.held-out", "Held out for the evaluation: {share:.0%} of the {units}.")
HELD_OUT_LATEST = note(
    "run.held-out-latest",
    "The latest {share:.0%} of the sessions are held out for the evaluation, from {begins} on. "
    "Rankers learned from earlier sessions only; queries may appear in both.",
)
FOLDS_SENTENCE = note(
    "run.folds",
    "All {queries:,} queries judge: they are divided into {folds} folds, and rankers trained on "
    "the other folds are judged on each.",
)
SESSIONS_HELD_OUT = warning(
    "run.sessions-held-out",
    "Only {queries} queries have sessions, so single sessions are held out instead of whole "
    "queries: the figures are about these queries, not new ones.",
)

# Below this a fifth of the queries is too few to evaluate on, and sessions are split instead.
FEWEST_QUERIES = 25
# Folds of the queries in logs of fewer than so many: a step is shipped where its bound is above 0,
# and a fifth of the queries has an error 2.2 times that of all. MQ2008, three cells of 10, 100 and
# 1,000 sessions: what a fifth shipped was .024 NDCG below raw clicks, what folds ship is level.
FOLDS = ((500, 5), (2000, 3))
PARTS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class Judged:
    """A log that rankers are judged by: `rows` are the documents that the ranker of a fold scores.

    Where there are no folds it is one ranker, which scores all of them.
    """

    log: ClickLog
    rows: tuple[IntArray, ...]

    @classmethod
    def whole(cls, log: ClickLog) -> "Judged":
        """Without folds."""
        return cls(log, (np.arange(log.n_documents),))

    def part(self, fold: int) -> ClickLog:
        """What the ranker of one fold is judged by."""
        if len(self.rows) == 1:
            return self.log
        return restrict_queries(self.log, np.unique(self.log.doc_query[self.rows[fold]]))

    def without(self, fold: int) -> ClickLog:
        """The sessions of the other folds; documents stay as they are."""
        own = np.zeros(self.log.n_queries, dtype=bool)
        own[self.log.doc_query[self.rows[fold]]] = True
        return self.log.take(~own[self.log.query])

    def pooled(self, scores: Sequence[FloatArray]) -> FloatArray:
        """(documents,) from the scores of each fold's ranker; 0 where nobody asked the query."""
        pool = np.zeros(self.log.n_documents)
        for rows, each in zip(self.rows, scores, strict=True):
            pool[rows] = each
        return pool


@dataclass
class Data:
    """`log` is read at first use: where every step is done, nothing is read at all."""

    load: Callable[[], ClickLog]
    options: RunOptions

    @cached_property
    def log(self) -> ClickLog:
        """The whole log."""
        return self.load()

    def without(self, features: Collection[str]) -> "Data":
        """The same without these features."""
        if not features:
            return self
        return Data(lambda: without_features(self.log, features), self.options)

    def numbered_for(self, bias: PositionBias) -> "Data":
        """The same with its positions numbered as the bias has them, by context say."""
        if bias.layout is None:
            return self
        return Data(lambda: numbered_for(self.log, bias), self.options)

    def merged(self) -> "Data":
        """The same without halves of the time: equal sessions of both are one list.

        Where it is split by time, sessions of its parts stay apart.
        """
        if self.options.split == "time":
            return self
        return Data(
            lambda: self.log if self.log.time is None else self.log.collapse(), self.options
        )

    @cached_property
    def clicks(self) -> ClickLog:
        """The whole log with clicks, 0 or 1, as its label."""
        return as_clicks(self.log)

    @cached_property
    def by(self) -> SplitBy:
        """What is held out: "query"; "session" or "time" where asked for or "session" must be."""
        return split_by(self.log, self.options)

    @cached_property
    def parts(self) -> dict[str, ClickLog]:
        """train, valid and test, by name."""
        if self.by == "session":
            return _by_session(self.log, self.options)
        if self.by == "time":
            return {n: self.log.take(self._part_of_time == i) for i, n in enumerate(PARTS)}
        queries = query_parts(self.log, self.options)
        return {name: restrict_queries(self.log, chosen) for name, chosen in queries.items()}

    @property
    def _part_of_time(self) -> IntArray:
        """(lists,) the number of the part that each lies in."""
        assert self.log.time is not None
        return self.log.time

    @cached_property
    def n_folds(self) -> int:
        """How many folds of queries there are; 1 where three parts are held apart instead."""
        return 1 if self.by != "query" else fold_count(self.log, self.options)

    @cached_property
    def folds(self) -> tuple[IntArray, ...]:
        """The queries of each fold."""
        return query_folds(self.log, self.n_folds, self.options.seed)

    def all(self, depth: int) -> ClickLog:
        """The whole log, cut to the positions that the bias knows."""
        return self.log if self.log.depth <= depth else self.log.top(depth)

    def training(self, fold: int, depth: int) -> ClickLog:
        """What the candidates are trained on: one part, or the folds but this one."""
        if self.n_folds == 1:
            return self.cut("train", depth)
        rest = [queries for i, queries in enumerate(self.folds) if i != fold]
        return restrict_queries(self.all(depth), np.sort(np.concatenate(rest)))

    def judged(self, part: str, depth: int) -> Judged:
        """What candidates are chosen by ("valid") or judged by ("test"); with folds all queries."""
        if self.n_folds == 1:
            return Judged.whole(self.cut(part, depth))
        log = self.all(depth)
        return Judged(
            log, tuple(np.flatnonzero(np.isin(log.doc_query, each)) for each in self.folds)
        )

    def not_test(self) -> ClickLog:
        """Everything but the test part; with folds the whole log. Not kept in memory."""
        if self.n_folds > 1:
            return self.log
        if self.by == "session":
            return _by_session(self.log, self.options)["learn"]
        if self.by == "time":
            return self.log.take(self._part_of_time < PARTS.index("test"))
        queries = query_parts(self.log, self.options)
        return restrict_queries(self.log, np.sort(np.concatenate([queries[n] for n in PARTS[:2]])))

    def cut(self, name: str, depth: int) -> ClickLog:
        """A part, cut to the positions that the bias knows."""
        part = self.parts[name]
        return part if part.depth <= depth else part.top(depth)


def split_by(log: ClickLog, options: RunOptions) -> SplitBy:
    """Queries where there are enough of them and features to learn across them, or by time."""
    if options.split == "time":
        return "time"
    asked = len(np.unique(log.query))
    return options.split if log.features is not None and asked >= FEWEST_QUERIES else "session"


def query_parts(log: ClickLog, options: RunOptions) -> dict[str, IntArray]:
    """Which queries belong to which part; those without a session belong to none."""
    asked = np.unique(log.query)
    order = child_generator(options.seed, 1).permutation(asked)
    tested = max(1, round(options.test_share * len(order)))
    chosen_by = max(1, round(options.valid_share * len(order)))
    cuts = np.split(order, [len(order) - tested - chosen_by, len(order) - tested])
    return {name: np.sort(part) for name, part in zip(PARTS, cuts, strict=True)}


def fold_count(log: ClickLog, options: RunOptions) -> int:
    """As asked for; else several where few queries would judge and no shares are given."""
    asked = len(np.unique(log.query))
    if options.folds != "auto":
        if options.folds > asked:
            raise OptionError(
                f"folds must be no more than the queries with sessions. Got {options.folds} folds "
                f"and {asked} queries."
            )
        return options.folds
    usual = options.test_share == options.valid_share == SHARE
    return next((folds for below, folds in FOLDS if usual and asked < below), 1)


def query_folds(log: ClickLog, n_folds: int, seed: int) -> tuple[IntArray, ...]:
    """The queries of each fold, dealt out by falling number of sessions; equal ones by chance."""
    sessions = np.bincount(log.query, log.sessions, minlength=log.n_queries)
    order = child_generator(seed, 1).permutation(np.flatnonzero(sessions))
    order = order[np.argsort(-sessions[order], kind="stable")]
    return tuple(np.sort(order[fold::n_folds]) for fold in range(n_folds))


def _by_session(log: ClickLog, options: RunOptions) -> dict[str, ClickLog]:
    learn, test = log.split(1 - options.test_share, by="session", seed=options.seed)
    share = options.valid_share / (1 - options.test_share)
    train, valid = learn.split(1 - share, by="session", seed=options.seed + 1)
    return {"train": train, "valid": valid, "test": test, "learn": learn}


def as_clicks(log: ClickLog) -> ClickLog:
    """The log with clicks as its label: any feedback above 0 is one."""
    return log if log.is_binary else log.with_label((log.label > 0).astype(np.float64))


def split_of(data: Data, begins: Sequence[str] = ()) -> Split:
    """Sizes of the parts, and what is to be said of how they were made.

    `begins` : by time, when the parts to choose by and to judge by begin.
    """
    options, unwished = data.options, data.by == "session" and data.options.split == "query"
    queries = len(np.unique(data.log.query))
    if data.n_folds > 1:
        sessions = np.bincount(data.log.query, data.log.sessions, minlength=data.log.n_queries)
        names = [f"fold {number}" for number in range(1, data.n_folds + 1)]
        named = dict(zip(names, data.folds, strict=True))
        return Split(
            by="query",
            sessions={name: int(sessions[each].sum()) for name, each in named.items()},
            queries={name: len(each) for name, each in named.items()},
            folds=data.n_folds,
            notes=(FOLDS_SENTENCE(folds=data.n_folds, queries=queries),),
        )
    units = "queries" if data.by == "query" else "sessions"
    note = HELD_OUT(share=options.test_share, units=units)
    if data.by == "time":
        note = HELD_OUT_LATEST(share=options.test_share, begins=begins[-1])
    return Split(
        by=data.by,
        sessions={name: data.parts[name].n_sessions for name in PARTS},
        queries={name: len(np.unique(data.parts[name].query)) for name in PARTS},
        notes=(note,),
        warnings=(SESSIONS_HELD_OUT(queries=queries),)
        if unwished and data.log.features is not None
        else (),
    )


# What decides which rows become the log, and what else reading is told.
ROWS = (*declared(ClickOptions), "depth", "label", "labels", "combine", "context", "missing")
READING = (*declared(DocumentOptions), *declared(ClickOptions), "context")
SYNTHESISED = "synthesised"  # the label that several columns make


def read_step(
    source: Any, folder: RunFolder, options: RunOptions, steps: Steps
) -> tuple[Done[LogSource], Data]:
    """Where the log came from, and the log itself, which is loaded when first asked for."""
    # What lies in a store is copied once: the fingerprint is that of what is read.
    with at_hand([source, options.documents]) as (found, documents):
        return _read_step(found, folder, replace(options, documents=documents), steps)


def _read_step(
    source: Any, folder: RunFolder, options: RunOptions, steps: Steps
) -> tuple[Done[LogSource], Data]:
    inputs = RunInputs()
    given = None if isinstance(source, ClickLog) else inputs.fingerprint(source)
    documents = None if options.documents is None else inputs.fingerprint(options.documents)
    in_memory = given is None or (options.documents is not None and documents is None)
    if in_memory:
        return _from_memory(source, options, steps)
    held: dict[str, ClickLog] = {}

    def compute() -> LogSource:
        from untilt.data.write_log import write_log

        held["log"], read = _read(source, options)
        inputs.refuse_changed()
        write_log(held["log"], folder.log, documents=folder.documents)
        return read

    def load() -> ClickLog:
        if "log" in held:
            return held.pop("log")
        from untilt.data.read.read_log import read_log

        log = read_log(
            folder.log,
            documents=folder.documents,
            label=options.label if isinstance(options.label, str) else SYNTHESISED,
            labels=options.labels,
            context=options.context,
            grid=options.grid,
            missing=options.missing,
            collapse=False if options.split == "time" else "halves",
            threads=options.threads,
        )
        return log._with(turnover=done.result.turnover)

    done = steps.run(
        "read",
        LogSource,
        compute,
        options.pick(*ROWS),
        _shares(options) if options.split == "time" else None,
        _plain_features(options.features),
        given,
        documents,
        what="reading the log",
        files=lambda _: (folder.log, folder.documents),
    )
    return done, Data(load, options)


def _from_memory(source: Any, options: RunOptions, steps: Steps) -> tuple[Done[LogSource], Data]:
    """What is handed over in memory is there at every start; nothing is kept of it."""
    if isinstance(source, ClickLog):
        log, left_out = to_evidence(source, options.depth)
        log, begins = _merged(log, options)
        notes = (left_out,) if left_out else ()
        read = LogSource("memory", source.n_impressions, begins=begins, notes=notes)
    else:
        log, read = _read(source, options)
    done = steps.run("read", LogSource, lambda: read, key_of(log), what="reading the log")
    return done, Data(lambda: log, options)


def _read(source: Any, options: RunOptions) -> tuple[ClickLog, LogSource]:
    from untilt.data.read.read_log import read_log_report

    weights = options.label if isinstance(options.label, Mapping) else None
    names = [*weights] if weights is not None else [str(options.label)]
    names += [name for name in options.labels if name not in names]
    log, report = read_log_report(
        source,
        **options.pick(*READING),
        label=names[0],
        labels=names[1:],
        collapse=False if options.split == "time" else "halves",
        threads=options.threads,
    )
    if log.n_lists == 0:
        raise OptionError(f"{report.source} holds no session: there is nothing to learn from.")
    dropped = {f"{bad.table}: {bad.what}": bad.n_rows for bad in report.bad}
    if weights is not None:
        made = synthesise(log, weights, combine=options.combine, name=SYNTHESISED)
        more = (*options.labels, *([PROPENSITY] if log.propensity is not None else []))
        kept = {name: made.extra_labels[name] for name in more}
        log = replace(made, extra_labels=kept)
    log, left_out = to_evidence(log, options.depth)
    log, begins = _merged(log, options)
    notes = (*report.notes, *([left_out] if left_out else []))
    return log, LogSource(report.source, report.n_rows, dropped, begins, notes, log.turnover)


def _merged(log: ClickLog, options: RunOptions) -> tuple[ClickLog, tuple[str, ...]]:
    """Equal sessions of each half of the time merged, or of each part where it is split by time.

    With when the parts to choose by and to judge by begin.
    """
    if options.split != "time":
        return log.collapse(halves=True), ()
    if log.time is None:
        raise OptionError(
            "⟦split='time'⟧ needs to know when sessions were, and this log has no "
            "time. Name its column with ⟦columns={'timestamp': 'your column'}⟧, or "
            "hold out queries: ⟦split='query'⟧."
        )
    merged, begins = in_parts_of_time(log, _shares(options))
    if len(begins) < len(PARTS) - 1:
        raise OptionError(
            f"⟦split='time'⟧ needs sessions of at least {len(PARTS)} times, to learn, "
            f"to choose and to judge by. Got {log.n_sessions:,} sessions. Hold out "
            "queries: ⟦split='query'⟧."
        )
    return merged, tuple(map(str, begins))


def _shares(options: RunOptions) -> tuple[float, float]:
    """Where the parts to choose by and to judge by begin, as shares of all sessions."""
    judged = 1 - options.test_share
    return judged - options.valid_share, judged


def _plain_features(features: Any) -> Any:
    """Names or a pattern; a function of the name is told by its own."""
    if callable(features):
        return f"{features.__module__}.{features.__qualname__}"
    return features if features is None or isinstance(features, str) else list(features)


class RunInputs:
    """The files that a run reads, as they were when their fingerprints were taken.

    The fingerprint is SHA-256 over all bytes of all files, taken at every start. Size and time of
    change are no substitute: copying tools set both. A sample of a large file would miss an edit.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[Files, list[Any]]] = []

    def fingerprint(self, source: Any) -> list[Any] | None:
        """Names and content of the files behind a source of `read_log`; None where it is no file.

        A folder such as day=1 adds a column to its files, so it is part of their names.
        """
        if isinstance(source, Ubi):
            both = [self.fingerprint(part) for part in (source.queries, source.events)]
            return None if None in both else [*both, source.hits_shown]
        found = located(source)
        if not isinstance(found, Files):
            return None
        self._seen.append((found, stamps(found)))
        names = [name for name in found.with_changes if os.path.isfile(name)]
        size = sum(map(os.path.getsize, names))
        with progress("looking whether the input is the same", total=size) as advance:
            digests = [[_fingerprint_name(name), file_digest(name, advance)] for name in names]
        return [*digests, *([] if found.table is None else [str(found.table)])]

    def refuse_changed(self) -> None:
        """Raise where a file is not what it was when its fingerprint was taken."""
        for files, before in self._seen:
            refuse_changed(files, before)


def _fingerprint_name(file: str) -> str:
    path = Path(file)
    return "/".join([*(part for part in path.parts[:-1] if "=" in part), path.name])

"""The options of a run, each declared once: for Python, the command line and a TOML file."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from untilt import catalog
from untilt._core.declared import EXPERT, Option, by_name, declared, made
from untilt.data.read.options import ClickOptions, DepthOptions, DocumentOptions
from untilt.errors import OptionError, check_choice
from untilt.evaluation.options import JudgingOptions, LevelOptions, OldScoreOptions

SplitBy = Literal["query", "session", "time"]
Trees = int | Literal["auto"]
MOST_FOLDS = 100
SHARE = 0.2  # of the queries, to choose by and to judge by
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
_NAMES = "be a name or a list of names"
_SHARE: dict[str, Any] = {
    "must": "lie between 0 and 1", "hint": "0.2 is usual.", "fits": lambda share: 0 < share < 1,
}  # fmt: skip


def seconds_of(text: str) -> float:
    """Seconds of "90", "90s", "10m" or "1h30m".

    >>> seconds_of("1h30m"), seconds_of("2.5m"), seconds_of("90")
    (5400.0, 150.0, 90.0)
    """
    plain = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", plain):
        return float(plain)
    parts = _PART.findall(plain)
    if not parts or _PART.sub("", plain).strip():
        raise OptionError(
            f"a length of time is a number with a unit, such as 90s, 10m or 1h30m. Got {text!r}."
        )
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """The other way round, to two units at most.

    >>> duration_text(12.3), duration_text(192), duration_text(7260)
    ('12 s', '3 min 12 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _check_label(label: object) -> None:
    from untilt.data.transform import check_weights

    if isinstance(label, Mapping):
        check_weights(label)
    elif not isinstance(label, str):
        raise OptionError(
            "label must be the name of a column, or weights of several such as "
            f"{{'click': 1, 'booked': 5}}. Got {label!r} instead."
        )


@dataclass(frozen=True, kw_only=True)
class RunSettings(
    LevelOptions, JudgingOptions, OldScoreOptions, DocumentOptions, DepthOptions, ClickOptions
):
    """What a run is asked for, as it may be written in Python, in TOML or at a command line.

    Parameters
    ----------
    documents, columns, labels, context, features, missing, on_bad, positions_from, grid,
        sample_queries : as in `untilt.read_log`. Where reading depends on the context, each has a
        curve of its own
    depth : the last position to use; where not given, the last one with 30 clicks, at least 20
    assigned : "random" where chance drew the ranker of each session, as in an A/B test; "other"
        where something else did, such as a country
    old_score : the feature with the score that production sorts by; where not given, the one that
        sorts the lists. Rankers learn from it, a curve is estimated without it
    label : the column to learn from, or weights of several, {"click": 1, "booked": 5}, which
        `untilt.synthesise` makes one label of, by `combine` ("sum" or "product")
    bias : "auto" (what the audit advises), the name of an estimator ("all-pairs"), also with
        options ("all-pairs:depth=8"), a curve
        ("power-law:1"), a file of an estimate, or a `PositionBias`
    fallback : the curve that is assumed, loudly, where the log cannot tell its bias
    method : corrections to train and choose from, as in `untilt train`; "usual" for all usual ones.
        Raw clicks are always trained too, to compare with. The usual one is "auto", or "balanced"
        where the label is no click
    metric, evaluator, among, baseline, level : as in `untilt.estimate`; the evaluator by its name.
        Where not given, what lists are decides (`untilt.estimate`).
        Policy-aware uses all sessions that showed a document; the others only its own session, and
        with among="shown" they take a document that a session did not show for irrelevant in it
    grades : a sample of grades (`untilt.labels.read_labels`) or its file: they judge the chosen
        ranker too, and decide where clicks do not
    clip : least propensity that a click is divided by, 0 for none; "auto" takes the clip with the
        least estimated mean squared error on the part that rankers are chosen by
    trees : of each boosted ranker; "auto": as many as queries that are held out of the training
        choose
    folds : 1 holds out `valid_share` of the queries to choose by and `test_share` to judge by; with
        more, each fold of queries is judged by rankers that were trained on the others, so that all
        queries count; "auto" takes 5 where a log is small (`untilt.workflow.stage_read`)
    split, valid_share, test_share : what is held out, whole queries ("query"), single sessions
        ("session") or the latest sessions ("time"): a share to choose by and a share to judge by,
        which by time is the last one
    time_limit : seconds, or "90s", "10m", "1h30m"; trees and candidates are cut to meet it
    seed, threads : of everything that is drawn; of training (all cores where not given)
    title : of the report; the log's name where not given
    """

    FIRST: ClassVar[tuple[str, ...]] = (
        "documents", "columns", "label", "labels", "context", "combine", "features", "missing",
        "on_bad", "positions_from", "grid", "depth", "sample_queries", "bias", "fallback", "method",
        "metric", "evaluator", "clip", "among", "baseline", "level", "assigned", "old_score",
        "grades",
    )  # fmt: skip

    grades: Annotated[
        Any,
        Option(
            "Grades of documents that `untilt plan --labels` drew: they judge the chosen ranker "
            "beside the clicks.",
            metavar="FILE", flag="--labels", typed=str,
        ),
    ] = None  # fmt: skip
    label: Annotated[str | Mapping[str, float], Option(check=_check_label)] = "click"
    labels: Annotated[str | Sequence[str] | None, Option(must=_NAMES)] = ()
    context: Annotated[
        str | Sequence[str] | None,
        Option(
            "A column that reading may depend on, such as device; each of its values gets its own "
            "curve if the data show a difference. May be repeated.",
            metavar="COLUMN", must=_NAMES,
        ),
    ] = ()  # fmt: skip
    combine: Annotated[Literal["sum", "product"], Option()] = "sum"
    bias: Annotated[
        Any,
        Option(
            "Position bias: an estimator ({bias}), a curve such as power-law:1, a file of `untilt "
            "bias`, or auto (the audit chooses).",
            metavar="NAME|CURVE|FILE", typed=str,
        ),
    ] = "auto"  # fmt: skip
    fallback: Annotated[
        str, Option()
    ] = "power-law:1"  # fmt: skip
    method: Annotated[
        str | Sequence[str],
        Option(
            "A candidate to train: a correction on trees ({weighting|objective}) or a ranker "
            "({ranker}). Raw clicks are always trained. May be repeated (default: auto, "
            "or balanced for labels that are no clicks).",
            metavar="NAME", must=_NAMES,
        ),
    ] = "usual"  # fmt: skip
    clip: Annotated[
        float | Literal["auto"],
        Option(
            "Smallest propensity that a click is divided by; auto: chosen from the data.",
            metavar="NUMBER|auto", panel=EXPERT, least=0,
        ),
    ] = "auto"  # fmt: skip
    baseline: Annotated[
        str | Sequence[str] | None,
        Option(
            "Rankers of the log that count as production (default: all except experiments).",
            metavar="ranker=NAME[,NAME]", typed=str, must=_NAMES,
        ),
    ] = None  # fmt: skip
    trees: Annotated[
        Trees,
        Option(
            "Number of trees; auto: chosen on held-out queries.",
            metavar="N|auto", panel=EXPERT, least=1, most=2**31 - 1,
        ),
    ] = "auto"  # fmt: skip
    folds: Annotated[
        int | Literal["auto"],
        Option(
            "Folds of queries, each judged by rankers trained on the others; 1 holds out one part; "
            "auto: 5 below 500 queries, 3 below 2,000, else 1.",
            metavar="N|auto", panel=EXPERT, least=1, most=MOST_FOLDS, hint="5 is usual.",
        ),
    ] = "auto"  # fmt: skip
    split: Annotated[
        SplitBy,
        Option(
            "What is held out: whole queries (query), sessions (session), or the latest sessions "
            "(time; needs timestamp).",
            metavar="CHOICE", panel=EXPERT,
        ),
    ] = "query"  # fmt: skip
    valid_share: Annotated[float, Option(**_SHARE)] = SHARE
    test_share: Annotated[float, Option(**_SHARE)] = SHARE
    time_limit: Annotated[
        float | str | None,
        Option(
            "Time for the run, such as 90s, 10m or 1h30m; fewer trees and candidates are trained "
            "to meet it (default: no limit).",
            metavar="TIME", typed=str, must="be above 0 seconds",
            plain=lambda given: seconds_of(given) if isinstance(given, str) else given,
            fits=lambda seconds: seconds > 0,
        ),
    ] = None  # fmt: skip
    seed: Annotated[
        int, Option("Random seed.", panel=EXPERT, least=0, most=2**63 - 1)
    ] = 0  # fmt: skip
    threads: Annotated[
        int | None,
        Option("Threads of training (default: all cores).", panel=EXPERT, least=1, most=2**31 - 1),
    ] = None  # fmt: skip
    title: Annotated[
        str | None, Option("Title of the report (default: the name of the log).", panel=EXPERT)
    ] = None


def usual_methods() -> tuple[str, ...]:
    """The candidates that a run tries where none is named."""
    from untilt.workflow.candidates import candidates

    return tuple(each.name for each in candidates("usual"))


@dataclass(frozen=True, kw_only=True)
class RunOptions(RunSettings):
    """The options of a run in the one form that its steps use."""

    labels: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    method: tuple[str, ...] = field(default_factory=usual_methods)
    baseline: str | tuple[str, ...] | None = None
    time_limit: float | None = None

    def pick(self, *names: str) -> dict[str, Any]:
        """Some options by name: what a step depends on."""
        return {name: getattr(self, name) for name in names}


def options_of(given: Mapping[str, Any], *, where: str = "untilt.run") -> RunOptions:
    """Checked options; names may be written with dashes. `where` begins messages."""
    return settled(made(RunSettings, by_name(RunSettings, given, where=where)))


def settled(asked: RunSettings) -> RunOptions:
    """The options as they are used; raises where they do not go together."""
    given = {name: getattr(asked, name) for name in declared(RunSettings)}
    _check_together(asked)
    documents, baseline = asked.documents, asked.baseline
    given |= {
        "labels": _several(asked.labels), "context": _several(asked.context),
        "method": _methods(_several(asked.method)),
        "baseline": baseline if isinstance(baseline, str | None) else tuple(baseline),
        "documents": os.fspath(documents) if isinstance(documents, os.PathLike) else documents,
    }  # fmt: skip
    return RunOptions(**given)


def _several(names: str | Sequence[str] | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def _methods(wanted: Sequence[str]) -> tuple[str, ...]:
    from untilt.workflow.candidates import candidate

    names = [catalog.default("weighting").name]  # a run always has raw clicks
    for name in wanted:
        names += usual_methods() if name == "usual" else [candidate(name).name]
    return tuple(dict.fromkeys(names))


def _check_together(asked: RunSettings) -> None:
    """Raise before any long work where names are not known or options contradict each other."""
    from untilt.evaluation.slots import as_rank_metric

    if asked.evaluator is not None:
        check_choice("evaluator", asked.evaluator, catalog.names("evaluator", choose="run"))
    as_rank_metric(asked.metric)
    if asked.split != "query" and asked.folds not in ("auto", 1):
        raise OptionError(
            f"folds are of queries, and ⟦split={asked.split!r}⟧ holds out sessions. "
            f"Got ⟦folds={asked.folds}⟧; leave one of the two out."
        )
    if asked.valid_share + asked.test_share > 0.8:
        raise OptionError(
            f"valid_share and test_share leave too little to learn from: {asked.valid_share:g} "
            f"and {asked.test_share:g} are above 0.8 together. 0.2 each is usual."
        )

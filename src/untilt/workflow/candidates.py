"""Rankers by name: what `untilt train`, `untilt select` and `untilt run` can train.

A run's candidate is a weighting or an objective, which stands for LambdaMART with it, or another
ranker, which stands for that ranker with the balanced table where it takes one.
"""

from collections.abc import Sequence
from typing import Any

from untilt import catalog
from untilt.bias.given import Examination
from untilt.catalog import Method
from untilt.errors import OptionError, did_you_mean
from untilt.rankers.base import Ranker
from untilt.weighting.base import Weighting
from untilt.weighting.tables import Balanced

RAW = "raw clicks"
TREES_OF_RAW = 300
SHOWN = "logged order"
BY_FOLD = "chosen by fold"  # for each fold of queries what the others choose


def candidates(choose: str = "run") -> tuple[Method, ...]:
    """What a run may try, in order; "usual": what it tries without being asked."""
    kinds = ("weighting", "objective", "ranker")
    return tuple(each for each in catalog.methods(choose=choose) if each.kind in kinds)


def candidate(name: str) -> Method:
    """The candidate of this name."""
    known = {key: each for each in candidates() for key in (each.name, *each.aliases)}
    if name not in known:
        names = [each.name for each in candidates()]
        raise OptionError(
            f"method must be one of {', '.join(map(repr, names))}. Got {name!r} instead."
            f"{did_you_mean(str(name), names)}"
        )
    return known[name]


def candidate_note(name: str) -> str:
    """What a candidate is, for the report."""
    record = candidate(name)
    if record.kind == "weighting":
        return f"{catalog.default('ranker').title} on {record.note}"
    return record.note


def dropped_first() -> list[str]:
    """What goes first where time is short: what others stand for, of these the dear ones.

    The default goes last. Raw clicks are never dropped: everything is compared with them.
    """
    spare = [each for each in candidates() if each != catalog.default("weighting")]
    spare.sort(key=lambda each: (each.drop, -each.cost, -each.order))
    return [each.name for each in spare]


def default_of(method: Sequence[str]) -> str:
    """The candidate that is kept unless another is clearly better: the last to be dropped."""
    order = [catalog.default("weighting").name, *dropped_first()]
    return max(method, key=order.index)


def default_first(method: tuple[str, ...]) -> list[str]:
    """Raw clicks, the default, then the others: what a run can least do without first."""
    first = [catalog.default("weighting").name, default_of(method)]
    return sorted(method, key=lambda each: first.index(each) if each in first else len(first))


def system_name(method: str) -> str:
    """What a method is called in figures."""
    return RAW if method == catalog.default("weighting").name else method


def make_candidate(
    method: str, bias: Examination, *, trees: int | str, threads: int | None, seed: int
) -> Ranker:
    """The unfitted ranker of a run's candidate.

    Held-out clicks as they are say nothing against copying the old order with ever more trees, so
    that raw clicks, which are there to be compared with, have a fixed number where data would
    choose.
    """
    record = candidate(method)
    if record == catalog.default("weighting") and trees == "auto":
        trees = TREES_OF_RAW
    trained = record if record.kind == "ranker" else catalog.default("ranker")
    if record.kind == "ranker":
        takes_table = "weighting" in record.takes
        record = catalog.record_of(Balanced) if takes_table else catalog.default("weighting")
    return _made(trained, record, bias, None, trees=trees, threads=threads, seed=seed)


def make_ranker(
    ranker: str | None,
    method: str | None,
    bias: Examination | None,
    *,
    clip: float | None = None,
    trees: int | str = 300,
    threads: int | None = None,
    seed: int = 0,
) -> Ranker:
    """The unfitted ranker that options of the command line describe; None takes the default."""
    trained = catalog.default("ranker") if ranker is None else catalog.find("ranker", ranker)
    record = catalog.default("weighting") if method is None else correction(method)
    if method is not None and "weighting" not in trained.takes:
        raise OptionError(
            f"--ranker {trained.name} learns its correction itself. Leave --method out."
        )
    if bias is None and "bias" in record.needs:
        raise OptionError(
            f"--method {record.name} needs the position bias: --bias bias.json of "
            "`untilt bias LOG --out bias.json`, or a curve such as --bias "
            "power-law:1."
        )
    if record.kind == "objective" and "objective" not in trained.takes:
        raise OptionError(
            f"--method {record.name} is for boosted trees only. Use --ranker "
            f"{catalog.default('ranker').name}, or a table such as --method "
            f"{catalog.record_of(Balanced).name}."
        )
    return _made(trained, record, bias, clip, trees=trees, threads=threads, seed=seed)


def correction(name: str) -> Method:
    """The weighting or objective of this name."""
    objectives = {each.name: each for each in catalog.methods("objective")}
    if name in objectives:
        return objectives[name]
    return catalog.find("weighting", name, what="--method", also=tuple(objectives))


def _made(
    trained: Method, record: Method, bias: Examination | None, clip: float | None, **shared: Any
) -> Ranker:
    called = {"trees": "n_trees", "threads": "n_threads"}
    given = {called.get(name, name): shared[name] for name in shared if name in trained.takes}
    if "bias" in trained.takes:
        given["bias"] = bias
    made: Ranker
    if record.kind == "objective":
        made = trained.make(**record.options, bias=bias, **given)
    elif "weighting" in trained.takes:
        made = trained.make(weighting_of(record, bias, clip), **given)
    else:
        made = trained.make(**given)
    return made


def weighting_of(record: Method, bias: Examination | None, clip: float | None = None) -> Weighting:
    """The table of a record; `clip` where it takes one."""
    clipped = {"clip": clip} if clip is not None and "clip" in record.takes else {}
    made: Weighting = record.make(*([bias] if "bias" in record.needs else []), **clipped)
    return made

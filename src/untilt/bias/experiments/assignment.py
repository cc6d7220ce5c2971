"""Which lists an experiment shuffled or swapped, by the log's `ranker`, and which are production.

`simulate` writes "base", "shuffle" and "swap:2-5". Other logs have other names: estimators take a
mapping from names, or a function of the name.

What follows "@" names the experiment: "swap:2-5@spring" and "base@spring" are two arms of one.
`untilt collect` writes so, with the probabilities as the experiment's name. Arms are random within
an experiment alone: where their shares change while relevance does, sessions of two experiments
must not be compared.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from untilt._core.arrays import BoolArray, IntArray
from untilt.data.clicklog import ClickLog
from untilt.data.layout import Packed
from untilt.errors import IdentifiabilityError, OptionError, did_you_mean
from untilt.facts import Fact, listed, phrase

BASE = "base"
EXPERIMENT = "experiment"  # a context of this name says the same as "@" in names
SHUFFLE = "shuffle"  # how the name of a ranker begins that shuffled its lists
Baseline = str | Iterable[str] | None
Swapped = tuple[int, int] | str | None
Shuffled = str | Iterable[str] | Callable[[str], bool] | None
SwapNames = Mapping[str, Swapped] | Callable[[str], Swapped] | None


def swap_of(name: str) -> Swapped:
    """(2, 5) of "swap:2-5", "base" of "base", None of any other name.

    >>> swap_of("swap:2-5@spring"), swap_of("base"), swap_of("production-1")
    ((2, 5), 'base', None)
    """
    arm = name.partition("@")[0]
    if arm == BASE:
        return BASE
    match = re.fullmatch(r"swap:(\d+)-(\d+)", arm)
    return None if match is None else (int(match[1]), int(match[2]))


def top_of(name: str) -> int | None:
    """3 of "shuffle-top-3": the positions that were shuffled. None where the name does not say.

    >>> top_of("shuffle-top-3@spring"), top_of("shuffle")
    (3, None)
    """
    match = re.fullmatch(rf"{SHUFFLE}-top-(\d+)", name.partition("@")[0])
    return None if match is None else int(match[1])


def has_several_experiments(log: ClickLog) -> bool:
    """Whether names of rankers, or a context, tell of two experiments or more."""
    names = {name.partition("@")[2] for name in log.ranker_names} - {""}
    named = {str(value) for value in np.unique(np.asarray(log.context.get(EXPERIMENT, [])))} - {""}
    return len(names) > 1 or len(named) > 1


def experiments_of(log: ClickLog) -> IntArray:
    """(lists,) a number for the experiment of each list; all 0 where nothing names one."""
    experiment = np.zeros(log.n_lists, dtype=np.int64)
    if log.ranker is not None:
        suffix = [name.partition("@")[2] for name in log.ranker_names]
        experiment = np.unique(suffix, return_inverse=True)[1][log.ranker]
    if EXPERIMENT in log.context:
        values, also = np.unique(np.asarray(log.context[EXPERIMENT]), return_inverse=True)
        experiment = experiment * len(values) + also
    return np.unique(experiment, return_inverse=True)[1]


def is_experiment(name: str) -> bool:
    """Whether a ranker of this name shuffled or swapped what production would have shown.

    >>> [is_experiment(name) for name in ("shuffle-top", "swap:2-5", "base", "production-1")]
    [True, True, False, False]
    """
    return name.startswith(SHUFFLE) or isinstance(swap_of(name), tuple)


def baseline_lists(log: ClickLog, baseline: Baseline = None) -> BoolArray:
    """(lists,) whether each list is traffic that a new ranker would take over.

    baseline : names of the log's rankers, as a list or as text such as "ranker=production-1" or
        "one,two". None takes all that are no experiment; all lists where the log does not say, or
        where it holds experiments only
    """
    everything = np.ones(log.n_lists, dtype=bool)
    if baseline is None:
        if log.ranker is None or log.n_lists == 0:
            return everything
        production = np.array([not is_experiment(name) for name in log.ranker_names])[log.ranker]
        return production if production.any() else everything
    if log.ranker is None:
        raise OptionError(
            f"baseline {baseline!r} names rankers, and this log does not say which ranker made a "
            "list. Read it with the column that does (ranker), or leave the baseline out."
        )
    names = log.ranker_names
    wanted = _baseline_names(baseline, names)
    _check_known(wanted, names)
    chosen = np.array([name in wanted for name in names])[log.ranker]
    if not chosen.any():
        raise OptionError(
            f"no session of this part of the log was made by {listed(map(repr, wanted))}, which "
            "should be the baseline. Name another ranker, or use more of the log."
        )
    return chosen


def _baseline_names(baseline: str | Iterable[str], names: tuple[str, ...]) -> list[str]:
    """Names out of a list, or out of text: "ranker=" in front, commas between."""
    if not isinstance(baseline, str):
        return [str(name) for name in baseline]
    text = baseline.strip()
    if text in names:
        return [text]
    text = text.removeprefix("ranker=")
    return [text] if text in names else [part.strip() for part in text.split(",")]


def shuffled_lists(log: ClickLog, ranker: Shuffled) -> BoolArray:
    """(lists,) whether each list was shuffled.

    ranker : None takes names that begin with "shuffle"; else a name, several, or a function. A log
        without rankers has a single one without a name: lambda name: True takes all its lists
    """
    if log.ranker is None and callable(ranker):
        log = replace(log, ranker=np.zeros(log.n_lists, dtype=np.int32), ranker_names=("",))
    names = _names(log)
    if isinstance(ranker, str):
        ranker = [ranker]
    if ranker is None:
        chosen = [name.startswith(SHUFFLE) for name in names]
    elif callable(ranker):
        chosen = [bool(ranker(name)) for name in names]
    else:
        wanted = list(ranker)
        _check_known(wanted, names)
        chosen = [name in wanted for name in names]
    mask = np.array(chosen, dtype=bool)[log.ranker]
    if not mask.any():
        raise OptionError(
            "no list is known to be shuffled. Rankers of this log: "
            f"{listed(map(repr, names))}. Say which of them shuffled: "
            '⟦ranker="..."⟧ (a name, several, or a function of the name).'
        )
    return mask


def swapped_lists(log: ClickLog, ranker: SwapNames) -> tuple[BoolArray, IntArray]:
    """(lists,) whether a list is part of the experiment, and its (lists, 2) swapped positions.

    ranker : None reads names with `swap_of`; else a mapping or a function from a name to the two
        positions, to "base" where nothing was swapped, or to None for lists outside the experiment
    """
    names = _names(log)
    if isinstance(ranker, Mapping):
        _check_known(list(ranker), names)
        swaps = [ranker.get(name) for name in names]
    else:
        swaps = [(swap_of if ranker is None else ranker)(name) for name in names]
    pairs = np.array([_pair(name, swap) for name, swap in zip(names, swaps, strict=True)], np.int64)
    if isinstance(log.layout, Packed):  # a swap with a place that holds no results changed nothing
        pairs = log.layout.place(pairs)
        pairs[np.any(pairs == 0, axis=1)] = 0
    part = np.array([swap is not None for swap in swaps])[log.ranker]
    swapped = pairs[log.ranker]
    if not np.any(part & (swapped[:, 1] > 0)):
        raise OptionError(
            "no list is known to be swapped. Rankers of this log: "
            f'{listed(map(repr, names))}. Swaps are named "swap:2-5"; for other '
            'names give ⟦ranker={"name": (2, 5), "other": "base"}⟧.'
        )
    return part, swapped


def rank_before_swap(log: ClickLog, swapped: IntArray) -> IntArray:
    """(rows,) the position of each row before the swap of its list, (lists, 2)."""
    a, b = np.repeat(swapped, np.diff(log.indptr), axis=0).T
    return np.where(log.position == a, b, np.where(log.position == b, a, log.position))


def refuse(what: str, facts: Iterable[Fact]) -> None:
    """Raise where a test of the experiment failed, with its figures."""
    failed = [fact for fact in facts if fact.severity == "serious"]
    if failed:
        raise IdentifiabilityError(
            phrase(
                "these {what}: {what_}. Find out what the experiment did, and leave out "
                "the sessions that it did not draw at random. To use them all the same: "
                "⟦check=False⟧.",
                what=what,
                what_="; ".join(failed),
            )
        )


def _pair(name: str, swap: Swapped) -> tuple[int, int]:
    if swap is None or swap == BASE:
        return 0, 0
    if isinstance(swap, tuple | list) and len(swap) == 2 and 1 <= min(swap) < max(swap):
        return min(swap), max(swap)
    raise OptionError(
        "ranker must map a name to two different positions from 1 on, 'base' or None. "
        f"Got {swap!r} for {name!r}."
    )


def _names(log: ClickLog) -> tuple[str, ...]:
    if log.ranker is None:
        raise OptionError(
            "this log does not name the lists that an experiment changed. Read it with the "
            'column of their rankers: ⟦read_log(..., columns={"ranker": "the '
            'column"})|--column ranker=YOUR_COLUMN⟧.'
        )
    return log.ranker_names


def _check_known(wanted: list[str], names: tuple[str, ...]) -> None:
    for name in wanted:
        if name not in names:
            raise OptionError(
                f"no list of this log was made by ranker {name!r}.{did_you_mean(name, names)} "
                f"Its rankers: {listed(map(repr, names))}."
            )

"""Between curves the clicks on documents that moved decide, never values weighted by a curve."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.compare_curves import CurveComparison, compare_curves
from untilt.bias.given import BiasLike, as_examination
from untilt.data.clicklog import ClickLog
from untilt.errors import OptionError, UntiltError
from untilt.facts import Fact
from untilt.selection.fitting import Fitted

JUDGE = "judge"  # the curve that candidates are judged by, beside theirs


def best_curve(valid: ClickLog, curves: Mapping[str, BiasLike | None]) -> str:
    """The name of the curve that fits held-out clicks best; the first where they cannot tell."""
    if not curves:
        raise OptionError("no curve to judge by. Give at least one, such as {'mine': bias}.")
    first = next(iter(curves))
    known = {name: bias for name, bias in curves.items() if bias is not None}
    if len(known) < 2:
        return first
    return compare_curves(valid, known).best or first


def check_curves(
    valid: ClickLog,
    judge: str,
    given: Mapping[str, BiasLike | None],
    candidates: Mapping[str, Any],
    fitted: Mapping[str, Fitted],
) -> tuple[CurveComparison | None, tuple[Fact, ...]]:
    """All curves of a search compared, and what is to be said of the one that judges."""
    used = given[judge]
    if used is None:
        return None, ()
    curves = {judge or JUDGE: used}
    curves |= {name: bias for name, bias in given.items() if name != judge and bias is not None}
    for name, candidate in candidates.items():
        own = curve_of(fitted[name].ranker, candidate)
        if own is not None and not any(_same(own, each, valid.depth) for each in curves.values()):
            curves[name if name not in curves else f"{name} (own)"] = own
    if len(curves) < 2:
        return None, ()
    found = compare_curves(valid, curves)
    if not found.possible:
        fact = Fact("selection.curves-untold", curve=judge, n_clicks=found.n_clicks)
        return found, (fact,) if len(given) > 1 else ()
    facts = []
    if len(given) > 1:
        worse = tuple(each.name for each in found if each.is_worse and each.name in given)
        facts.append(Fact("selection.curve-chosen", curve=judge, worse=worse))
    entry = found[judge or JUDGE]
    if entry.is_worse and found.best is not None:
        gap = entry.gap
        facts.append(
            Fact(
                "selection.curve-fits-worse",
                candidate=found.best,
                gap=-gap.value,
                std_error=gap.std_error,
                power=entry.power.value,
            )
        )
    return found, tuple(facts)


def curve_of(ranker: Any, candidate: Any) -> BiasLike | None:
    """The curve that a candidate learned, or was given in its weighting or as its bias."""
    for holder, name in (
        (ranker, "bias_"),
        (getattr(candidate, "weighting", None), "position_bias"),
        (candidate, "bias"),
    ):
        curve = getattr(holder, name, None)
        if curve is not None:
            return curve
    return None


def _same(one: BiasLike, other: BiasLike, depth: int) -> bool:
    """Whether two curves are the same at the positions of the log."""
    first, second = _at(one, depth), _at(other, depth)
    if first is None or second is None:
        return True  # not comparable: a curve of contexts, or one that is shorter than the log
    return bool(np.allclose(first / first[0], second / second[0], rtol=1e-9))


def _at(bias: BiasLike, depth: int) -> FloatArray | None:
    try:
        return np.asarray(as_examination(bias).at(np.arange(1, depth + 1)), dtype=float)
    except (UntiltError, TypeError, AttributeError):
        return None

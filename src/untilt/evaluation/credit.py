"""What an evaluator is: a value that says what clicks are worth, prints and parses."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt._core.printed import options_text, parse_options
from untilt.bias.curve import PositionBias
from untilt.bias.given import BiasLike, as_examination, as_position_bias
from untilt.catalog import default, find, methods, record_of
from untilt.errors import OptionError
from untilt.evaluation.pool import Pool
from untilt.facts import Fact


@dataclass(frozen=True, eq=False)
class Credit:
    r"""What the clicks of a log are worth to an evaluator. The value of a query is

        sum_d lambda(rank_d) (sum of `cell` over the cells of d + N_q `document`_d)

    over its documents d, divided by its sessions; a cell is one (document, position).

    Parameters
    ----------
    cell, slope : (cells,) credit summed over sessions, and its derivative by theta at the cell's
        position
    weight : (cells,) what one click there counts
    clipped, supported : (cells,) propensity below the clip; position known to the bias
    document : (documents,) credit per session from a relevance model, or None
    self_normalised : whether the summed `cell` takes the place of the sessions as divisor
    """

    cell: FloatArray
    slope: FloatArray
    weight: FloatArray
    clipped: BoolArray
    supported: BoolArray
    document: FloatArray | None = None
    self_normalised: bool = False


@dataclass(frozen=True)
class Evaluator(ABC):
    """Base of the evaluators: values that print (`clipped:clip=0.1`) and parse.

    One of your own is a frozen dataclass with `credit`, handed to `untilt.estimate` as an object;
    with a record (`untilt.catalog.method`) it has a name too. An option `clip` makes it take
    `estimate(..., clip=)`, an option `relevance` makes it take a relevance model.

    Attributes
    ----------
    needs_bias : whether clicks are divided by examination; without, errors of the bias do not count
    pools_documents : whether a weight belongs to a document over all sessions of its query, not to
        one session: right where sessions of one query show different documents
    corrects_trust : whether eps+ and eps- of the bias are taken into account
    """

    needs_bias: ClassVar[bool] = True
    pools_documents: ClassVar[bool] = False
    corrects_trust: ClassVar[bool] = False

    @abstractmethod
    def credit(self, pool: Pool, bias: PositionBias) -> Credit:
        """What each (document, position) of the log adds to the value of its query."""

    def scale(self, bias: PositionBias) -> Fact:
        """What the values are multiples of."""
        return Fact("estimate.scale-relative" if bias.relative else "estimate.scale-absolute")

    def warnings(self) -> tuple[Fact, ...]:
        """What holds for every estimate of this evaluator."""
        return ()

    def takes(self, option: str) -> bool:
        """Whether it has this option, such as "clip" or "relevance"."""
        return any(each.name == option for each in fields(self))

    @property
    def name(self) -> str:
        """The name of its record; that of the class where it has none."""
        try:
            return record_of(self).name
        except OptionError:
            return type(self).__name__

    def __str__(self) -> str:
        return self.name + options_text(self)


def parse_evaluator(evaluator: str | Evaluator | None = None) -> Evaluator:
    """The evaluator of a text `name[:option=value,...]`; the default evaluator for None.

    >>> parse_evaluator("clipped:clip=0.1")
    ClippedEvaluator(clip=0.1)
    """
    if isinstance(evaluator, Evaluator):
        return evaluator
    if evaluator is None:
        return default("evaluator").make()
    name, colon, options = str(evaluator).strip().partition(":")
    record = find("evaluator", name)
    return record.make(**parse_options(options if colon else None, record.load(), name))


def with_option(evaluator: Evaluator, option: str, value: Any) -> Evaluator:
    """The evaluator with this option; itself for None. An error where it does not take it."""
    if value is None:
        return evaluator
    if not evaluator.takes(option):
        able = [each.name for each in methods("evaluator") if option in each.takes]
        raise OptionError(
            f"the evaluator {evaluator} takes no {option}. Leave it out, or use one of: "
            f"{', '.join(able)}."
        )
    return replace(evaluator, **{option: value})


def bias_for(evaluator: Evaluator, bias: BiasLike | None, depth: int) -> PositionBias:
    """The bias of an evaluation; it may end above the log's lowest position."""
    if bias is None and not evaluator.needs_bias:
        return PositionBias(np.ones(depth), method="none")
    if bias is None:
        free = [each.name for each in methods("evaluator") if "bias" not in each.needs]
        raise OptionError(
            f"the evaluator {evaluator} needs the position bias: give bias=..., an estimate such "
            "as ut.AllPairs().fit(log).bias_ or a curve such as ut.PowerLaw(1.0). Without any, "
            f"there are: {', '.join(free)}."
        )
    curve = as_examination(bias)
    return curve if isinstance(curve, PositionBias) else as_position_bias(curve, depth)

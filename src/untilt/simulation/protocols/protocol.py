"""What every protocol answers: how users behave, what sessions show, how deep lists are."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, cast

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.bias.given import Examination, as_examination
from untilt.catalog import RecordName
from untilt.errors import OptionError
from untilt.simulation.behaviour import Behaviour, Display, Page

# A curve in place of a protocol's own: any bias, a given curve, or examination by position.
Curve = Examination | Sequence[float] | FloatArray


class Protocol(ABC):
    """How clicks are made from labels. Final subclasses are frozen dataclasses that only store.

    `name` is the word for it in `simulate(protocol=...)`, from its record.
    """

    name: ClassVar[str] = cast(str, RecordName())
    depth: int | None
    label_name: ClassVar[str] = "click"
    intervenes: ClassVar[bool] = False

    @abstractmethod
    def behaviour(self, labels: FloatArray, *, depth: int, max_label: float) -> Behaviour:
        """What users do with documents of these labels at positions 1..depth. Checks options."""

    def display(self, page: Page) -> Display:
        """What sessions show. Without an intervention: the production ranker's order."""
        return Display.of_orders(page.rankers, np.ones(1))

    @property
    def list_depth(self) -> int | None:
        """Positions of a list, None for the whole list."""
        return self.depth

    @property
    def feedback(self) -> str:
        """The name of the label that the log gets."""
        return self.label_name


def curve(examination: Curve, depth: int) -> FloatArray:
    """theta_1..theta_depth of a given curve, checked to be probabilities."""
    theta = np.asarray(as_examination(examination).at(np.arange(1, depth + 1)), dtype=np.float64)
    check_probabilities("examination", theta)
    return theta


def graded_relevance(labels: FloatArray, max_label: float, epsilon: float) -> FloatArray:
    """gamma = eps + (1 - eps) (2^y - 1) / (2^ymax - 1) ([hu2019unbiased]_ section 5.1.1)."""
    check_share("epsilon", epsilon)
    check_labels(labels, max_label)
    return epsilon + (1 - epsilon) * (2.0**labels - 1) / (2.0**max_label - 1)


def check_labels(labels: FloatArray, max_label: float) -> None:
    """Raise unless labels lie in 0..max_label and max_label is above 0."""
    if not max_label > 0:
        raise OptionError(
            "all labels are 0: nobody would ever click for relevance. Simulate from judged lists "
            "with relevant documents, or say which grade is the highest: max_label=4."
        )
    if labels.max(initial=0) > max_label:
        raise OptionError(
            f"max_label must not be below the highest label, {labels.max():g}. "
            f"Got {max_label:g} instead."
        )


def check_share(what: str, value: float) -> None:
    """Raise unless an option is a probability."""
    if not 0 <= value <= 1:
        raise OptionError(f"{what} must lie between 0 and 1. Got {value} instead.")


def check_probabilities(what: str, values: FloatArray) -> None:
    """Raise unless every entry is a probability."""
    bad = ~((values >= 0) & (values <= 1))
    if bad.any():
        k = int(np.argmax(bad))
        raise OptionError(
            f"{what} must lie between 0 and 1. Got {values[k]:g} at position {k + 1} instead."
        )

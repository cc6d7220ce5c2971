"""Perplexity of click models by position."""

from typing import TYPE_CHECKING, Any

import numpy as np

from untilt.clickmodels.compare import ModelComparison, ModelQuality
from untilt.errors import OptionError
from untilt.report.charts.charts import PALETTE, Curve, position_chart, stacked

if TYPE_CHECKING:
    import altair as alt

CLEAREST = 5  # bands of more curves than this lie on top of each other


def perplexity_chart(comparison: ModelComparison) -> Any:
    """Conditional perplexity at each position, and below it what the best models gain.

    The upper chart has the best models as they are, above 1: 0 is perfect, 1 is a coin. Their
    intervals would all lie on top of each other, because some queries are harder than others for
    every model. The lower chart has differences to the reference on the same sessions, with bands.
    Models that ruled out what happened are left out: their perplexity says how low the floor is.
    """
    ranked = sorted(comparison, key=lambda entry: -entry.log_likelihood.value)
    drawn = [entry for entry in ranked if entry.ruled_out == 0]
    if not drawn:
        raise OptionError(
            "every model ruled out something that happened, so there is no perplexity to draw. "
            "Compare more models, or with prior_strength above 0."
        )
    upper = _levels(drawn[: len(PALETTE)], comparison)
    if all(entry.conditional_difference_at is None for entry in drawn):
        return upper
    # The first of the same models, the reference with them: so colours mean the same in both.
    return stacked(upper, _differences(drawn[:CLEAREST], comparison))


def _levels(entries: list[ModelQuality], comparison: ModelComparison) -> "alt.LayerChart":
    found = {entry.name: entry.conditional_perplexity_at for entry in entries}
    return position_chart(
        {name: Curve(each.position, each.value - 1) for name, each in found.items()},
        title="Perplexity by position, given the clicks above",
        subtitle=f"{comparison.n_sessions:,} held-out sessions; 0 is perfect, 1 is a coin",
        value_title="conditional perplexity - 1",
    )


def _differences(entries: list[ModelQuality], comparison: ModelComparison) -> "alt.LayerChart":
    curves = {}
    for entry in entries:
        found = entry.conditional_difference_at
        if found is None:
            position = entry.conditional_perplexity_at.position
            curves[entry.name] = Curve(position, np.zeros(len(position)))
        else:
            curves[entry.name] = Curve(found.position, found.value, found.low, found.high)
    name = comparison.reference.upper()
    return position_chart(
        curves,
        title=f"Perplexity minus that of {name}",
        subtitle=f"below 0 is better; band: {comparison.level:.0%} interval by {comparison.unit}",
        value_title="difference",
    )

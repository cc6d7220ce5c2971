"""A chart of click models compared: perplexity by position."""

from typing import TYPE_CHECKING

import numpy as np

from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import MOST_SERIES, finished, panel_title
from untilt.clickmodels.compare import ModelComparison, ModelQuality
from untilt.errors import OptionError

if TYPE_CHECKING:
    import altair as alt

MOST_BANDS = 5  # bands of more curves than this hide each other


def perplexity_chart(comparison: ModelComparison) -> "alt.LayerChart | alt.VConcatChart":
    """Conditional perplexity at each position, and below it the gain of the best models.

    The upper chart has the best models as they are, above 1: 0 is perfect, 1 is a coin. Their
    intervals would hide each other, because some queries are harder than others for every model.
    The lower chart has differences to the reference on the same sessions, with bands. Models that
    ruled out an observed click are left out: their perplexity says how low the floor is.
    """
    import altair as alt

    ranked = sorted(comparison, key=lambda entry: -entry.log_likelihood.value)
    drawn = [entry for entry in ranked if entry.ruled_out == 0]
    if not drawn:
        raise OptionError(
            "every model ruled out something that happened, so there is no perplexity to draw. "
            "Compare more models, or with prior_strength above 0."
        )
    upper = curves_chart(
        {
            entry.name: Curve(at.position, at.value - 1)
            for entry in drawn[:MOST_SERIES]
            for at in (entry.conditional_perplexity_at,)
        },
        value_title="conditional perplexity - 1",
    )
    title = "Perplexity by position, given the clicks above"
    subtitle = f"{comparison.n_sessions:,} held-out sessions; 0 is perfect, 1 is a coin"
    if all(entry.conditional_difference_at is None for entry in drawn):
        return finished(upper, title=title, subtitle=subtitle)
    # The first of the same models, the reference with them: so colours mean the same in both.
    lower = curves_chart(
        {entry.name: _difference(entry) for entry in drawn[:MOST_BANDS]},
        value_title=f"minus that of {comparison.reference.upper()}",
    )
    band = f"below 0 is better; band: {comparison.level:.0%} interval by {comparison.unit}"
    both = alt.vconcat(upper, lower.properties(title=panel_title(band)), spacing=40)
    both = both.resolve_scale(color="independent", shape="independent", strokeDash="independent")
    return finished(both, title=title, subtitle=subtitle)


def _difference(entry: ModelQuality) -> Curve:
    """To the reference, which is its own reference: 0 everywhere."""
    at = entry.conditional_difference_at
    if at is None:
        position = entry.conditional_perplexity_at.position
        return Curve(position, np.zeros(len(position)))
    return Curve(at.position, at.value, at.low, at.high)

"""Perplexity of click models by position."""

from typing import TYPE_CHECKING

from untilt.clickmodels.compare import ModelComparison, ModelQuality
from untilt.errors import OptionError
from untilt.report.charts import PALETTE, Curve, position_chart, stacked

if TYPE_CHECKING:
    import altair as alt


def perplexity_chart(
    comparison: ModelComparison, *, conditional: bool = False
) -> "alt.TopLevelMixin":
    """Perplexity at each position, best models first; several charts where one cannot hold all.

    With `conditional`, given the clicks above. Models that ruled out what happened are then left
    out: their perplexity says how low the floor is.
    """
    ranked = sorted(comparison, key=lambda entry: -entry.log_likelihood.value)
    drawn = [entry for entry in ranked if not (conditional and entry.ruled_out > 0)]
    if not drawn:
        raise OptionError("every model ruled out something that happened: nothing can be drawn.")
    size = len(PALETTE)
    parts = [drawn[i : i + size] for i in range(0, len(drawn), size)]
    charts = [_chart(part, comparison, conditional=conditional) for part in parts]
    return charts[0] if len(charts) == 1 else stacked(*charts)


def _chart(
    entries: list[ModelQuality], comparison: ModelComparison, *, conditional: bool
) -> "alt.LayerChart":
    what = "Conditional perplexity" if conditional else "Perplexity"
    return position_chart(
        {entry.name: _curve(entry, conditional=conditional) for entry in entries},
        title=f"{what} by position",
        subtitle=(
            f"{comparison.n_sessions:,} held-out sessions; 1 is perfect, 2 is a coin; "
            f"band: {comparison.level:.0%} interval by {comparison.unit}"
        ),
        value_title=what.lower(),
    )


def _curve(entry: ModelQuality, *, conditional: bool) -> Curve:
    found = entry.conditional_perplexity_at if conditional else entry.perplexity_at
    return Curve(found.position, found.value, found.low, found.high)

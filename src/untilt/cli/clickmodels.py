"""`untilt clickmodels`: how do people read these pages?"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from untilt.catalog import find
from untilt.cli import arguments
from untilt.cli.console import Output
from untilt.cli.declared import file_option, option
from untilt.errors import OptionError, check_share
from untilt.facts import codes

if TYPE_CHECKING:
    from untilt.clickmodels.compare import Measured, ModelComparison, ModelQuality
    from untilt.data.clicklog import ClickLog


SplitBy = Literal["session", "time"]

Unit = Literal["auto", "query", "session"]


def clickmodels(
    log: arguments.LogPath = None,
    model: list[str] | None = option(None, "Only this one; may be repeated: {click model}."),
    train: float = option(0.75, "Share of the sessions to learn from.", metavar="SHARE"),
    split: SplitBy = option(
        "session", "Hold out sessions at random, or the latest (needs timestamp)."
    ),
    intervals: Unit = option("auto", "What is independent: queries, or single sessions."),
    draws: int = option(300, "Bootstrap samples of the intervals.", min=20),
    plot: Path | None = file_option("Write perplexity by position: .html, .png, .svg or .json."),
    seed: arguments.Seed = 0,
    *,
    reading: arguments.ColumnOptions,
    export: arguments.UbiOptions,
    out: Output,
) -> None:
    """Compare click models on held-out sessions, and say what the best one means.

    Does a curve over positions describe how people look at these pages, or do the clicks and
    documents above matter too? Lower perplexity is better: 1 is perfect, 2 is a coin.

    Example: [bold]untilt clickmodels clicks.parquet --split time --plot models.html[/bold]
    """
    check_share("--train", train)
    arguments.check_plots(plot)
    for name in model or ():
        find("click model", name, what="--model")
    # Merged sessions have no time.
    read = reading.read(out, export.source(log), collapse=split == "session")
    comparison = _compare(out, read, model, train, split, by=intervals, n_draws=draws, seed=seed)
    _report(out, comparison)
    if plot is not None:
        _draw(out, comparison, plot)


def _compare(
    out: Output,
    log: "ClickLog",
    models: list[str] | None,
    share: float,
    split: SplitBy,
    *,
    by: str,
    n_draws: int,
    seed: int,
) -> "ModelComparison":
    from untilt.clickmodels.compare import compare_click_models

    train, test = log.split(share, by=split, seed=seed)
    if not (train.n_sessions and test.n_sessions):
        raise OptionError(
            f"{log.n_sessions:,} sessions leave none to hold out beside --train {share:g}: models "
            "are compared on sessions that they were not fitted on. Give more sessions."
        )
    out.record(train_sessions=train.n_sessions, test_sessions=test.n_sessions)
    out.say(f"{train.n_sessions:,} sessions to learn from, {test.n_sessions:,} held out")
    comparison = compare_click_models(
        train.collapse(), test, models=models or None, by=by, n_draws=n_draws, seed=seed
    )
    for entry in comparison:
        status = getattr(getattr(entry.model, "em_", None), "status", "counted")
        out.detail(f"{entry.name}: {out.said(status)}, {entry.seconds:.2f} s")
    return comparison


def _report(out: Output, comparison: "ModelComparison") -> None:
    from untilt.clickmodels.compare import advise

    advice = advise(comparison)
    out.record(
        models={entry.name: _entry_record(entry) for entry in comparison},
        intervals={"level": comparison.level, "by": comparison.unit, "n": comparison.n_units},
        left_out=comparison.left_out,
        best=comparison.best.name,
        sessions_per_query=comparison.sessions_per_query,
        order_notes=comparison.order_notes,
        advice=None
        if advice is None
        else {
            "pbm_is_enough": advice.enough,
            "share_of_excess_perplexity": advice.share,
            "sentences": advice.sentences,
            "codes": codes(advice.sentences),
        },
    )
    out.heading(f"held-out sessions, best first ({comparison.level:.0%} intervals)")
    out.table(
        ("model", "log-likelihood", "perplexity", "conditional", "minus pbm"),
        [_row(entry) for entry in comparison.ranked],
    )
    notes = [
        *(() if advice is None else advice.sentences),
        *comparison.order_notes,
        *comparison.ruled_out,
        *comparison.left_out.values(),
    ]
    if notes:
        out.heading("what this means")
        out.points(notes)


def _row(entry: "ModelQuality") -> tuple[str, ...]:
    """The value, and half the width of its interval: whole intervals do not fit a terminal."""
    figures = (entry.log_likelihood, entry.perplexity, entry.conditional_perplexity)
    gain = "" if entry.gain is None else _short(entry.gain, sign="+")
    return entry.name, *map(_short, figures), gain


def _short(figure: "Measured", *, sign: str = "") -> str:
    half = (figure.interval.high - figure.interval.low) / 2
    return f"{figure.value:{sign}.3f} ± {half:.3f}"


def _entry_record(entry: "ModelQuality") -> dict[str, object]:
    figures = {
        "log_likelihood": entry.log_likelihood,
        "perplexity": entry.perplexity,
        "conditional_perplexity": entry.conditional_perplexity,
        "gain_over_pbm": entry.gain,
    }
    return {
        **{name: _measured_record(figure) for name, figure in figures.items()},
        "perplexity_at": vars(entry.perplexity_at),
        "conditional_perplexity_at": vars(entry.conditional_perplexity_at),
        "ruled_out": entry.ruled_out,
        "seconds": entry.seconds,
    }


def _measured_record(figure: "Measured | None") -> dict[str, float] | None:
    if figure is None:
        return None
    return {"value": figure.value, "low": figure.interval.low, "high": figure.interval.high}


def _draw(out: Output, comparison: "ModelComparison", path: Path) -> None:
    from untilt.charts.theme import save_chart
    from untilt.clickmodels.compare import perplexity_chart

    save_chart(perplexity_chart(comparison), path)
    out.record(plot=path)
    out.say(f"chart: {path}")

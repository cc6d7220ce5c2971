"""`untilt train`, `select` and `methods`: rankers made and chosen, and all names."""

from dataclasses import is_dataclass
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from untilt import catalog
from untilt._core.addresses import place
from untilt._core.declared import EXPERT
from untilt.cli import arguments
from untilt.cli.console import Output, attributes
from untilt.cli.declared import CARD, PLOT, WRITES, argument, option, out_option
from untilt.cli.evaluate import draw_estimates, record_estimates
from untilt.errors import OptionError, check_choice, check_share
from untilt.evaluation.options import JudgingOptions

if TYPE_CHECKING:
    from untilt.selection.select import Selection


def train(
    data: Path = argument(..., "The click log, or a LETOR file with --letor.", "LOG", parser=place),
    out: Path = out_option(Path("ranker.untilt"), "File of the ranker.", "FILE"),
    card: Path | None = CARD,
    method: str | None = option(
        None, "Correction of position bias: {weighting|objective} (default: {default weighting})."
    ),
    bias: str | None = arguments.BIAS,
    ranker: str | None = option(None, "Ranker to train: {ranker} (default: {default ranker})."),
    trees: str = option(
        "300", "Number of trees; auto: chosen on held-out queries.", metavar="N|auto", panel=EXPERT
    ),
    clip: float | None = option(
        None, "Clip of the correction: the smallest propensity or the largest ratio (default: the "
        "method's).", min=0, panel=EXPERT
    ),
    letor: bool = option(False, "LOG is a LETOR file with labels."),
    threads: int | None = option(None, "Threads (default: all cores).", min=1, panel=EXPERT),
    seed: int = arguments.SEED,
    *,
    reading: arguments.LogOptions,
    output: Output,
) -> None:  # fmt: skip
    """Train a ranker that corrects for position bias.

    First hold out a part to evaluate on, with `untilt split`.

    Example: [bold]untilt train parts/train.parquet --documents parts/train-documents.parquet
    --method auto --bias bias.json --out ranker.untilt[/bold]

    On human labels: [bold]untilt train train.txt --letor[/bold]
    """
    arguments.check_ranker_out(out, card)
    from untilt.workflow.candidates import make_ranker

    curve = arguments.parse_bias(bias)
    model = make_ranker(
        ranker,
        method,
        curve,
        clip=clip,
        trees=arguments.parse_count(trees, "--trees") or 300,
        threads=threads,
        seed=seed,
    )
    if letor:
        from untilt.data.letor.read_letor import read_letor

        given: Any = read_letor(data, missing=reading.missing)
    else:
        context = arguments.context_of(curve)
        given = reading.read_to_train(output, data, context=context)
    model.fit(given)
    model.save(out, card=card)
    _report(output, model, out)
    if card is not None:
        output.record(card=card)
        output.say(f"Its model card: {card}.")


def _report(out: Output, model: Any, path: Path) -> None:
    summary = dict(model.summary_)
    out.record(ranker=path, **summary)
    out.heading("Trained")
    rows = {name.replace("_", " "): str(value) for name, value in summary.items()}
    if "weighting" in rows and is_dataclass(model.weighting):
        # By its name: the curve that it holds has lines of its own.
        rows["weighting"] = catalog.record_of(type(model.weighting)).name
    out.table(("", ""), list(rows.items()))
    choice = getattr(model, "choice_", None)
    if choice is not None:
        out.record(choice={"picked": choice.picked, "reason": choice.reason})
        out.say(f"auto: {choice.picked}, because {choice.reason}.")
    if hasattr(model, "booster_"):
        importance = sorted(model.feature_importances_.items(), key=lambda item: -item[1])[:10]
        out.record(feature_importances=dict(model.feature_importances_))
        out.heading("Features that matter most (share of the gain)")
        out.table(("", ""), [(name, f"{share:.1%}") for name, share in importance])
    out.say(f"\nSaved to {path}.")


# `untilt methods`: every method that can be chosen, and what it is.


def methods(
    kind: str | None = argument(
        None, "Kind of method: weighting, ranker, bias, ... (default: all).", "KIND"
    ),
    *,
    output: Output,
) -> None:
    """List the methods: what each is and what it needs.

    Example: [bold]untilt methods weighting[/bold]
    """
    kinds: tuple[catalog.Kind, ...] = get_args(catalog.Kind)
    if kind is not None:
        check_choice("KIND", kind, kinds)
    records = [each for each in catalog.methods() if kind in (None, each.kind)]
    records.sort(key=lambda each: kinds.index(each.kind))
    for name, group in groupby(records, key=lambda each: each.kind):
        output.heading(name)
        output.table(
            ("name", "what it is", "needs"),
            [(each.name, each.note, ", ".join(each.needs)) for each in group],
        )
    output.record(
        methods=[
            attributes(each, "kind name title note needs rests_on reference")
            | {"class": f"{each.home}.{each.target}"}
            for each in records
        ]
    )


def select(
    data: Path = argument(..., "The click log to train on.", "LOG", parser=place),
    out: Path = out_option(Path("ranker.untilt"), "File of the chosen ranker.", "FILE"),
    card: Path | None = CARD,
    valid: Path | None = option(
        None, "Held-out clicks (default: a part of LOG).", metavar="LOG", parser=place
    ),
    hold_out: float = option(0.25, "Share of the queries of LOG to hold out without --valid."),
    bias: str | None = arguments.BIAS,
    method: list[str] | None = option(
        None,
        "Correction to try: {weighting|objective} (default: the usual tables). May be repeated.",
    ),
    ranker: list[str] | None = option(
        None, "Ranker to try: {ranker} (default: {default ranker}). May be repeated."
    ),
    trees: list[str] | None = option(
        None, "Number of trees; auto: chosen on held-out queries (default: 300). May be repeated.",
        metavar="N|auto"
    ),
    clip: list[float] | None = option(
        None, "Clip of the corrections (default: the method's). May be repeated.", min=0
    ),
    judge: Literal["value", "likelihood"] = option(
        "value", "Criterion of the choice: the corrected metric (value), or the likelihood of the "
        "held-out clicks under the scores (likelihood).", panel=EXPERT
    ),
    *,
    judging: JudgingOptions,
    baseline: str | None = arguments.BASELINE,
    folder: Path | None = option(
        # Its flag is written: Typer 0.27 takes it from a metavar that is the same word.
        None,
        "Keep finished candidates in this folder, so that the same command continues.",
        "--folder",
        metavar="FOLDER",
        writes=WRITES,
    ),
    jobs: int = option(1, "Candidates trained at once; -1: one per core.", panel=EXPERT),
    threads: int | None = option(
        None, "Threads of one candidate (default: all cores).", min=1, panel=EXPERT
    ),
    plot: Path | None = PLOT,
    held_out: bool = option(False, "Use only queries of --valid that are not in LOG."),
    seed: int = arguments.SEED,
    reading: arguments.LogOptions,
    output: Output,
) -> None:  # fmt: skip
    """Train several rankers and keep the best on held-out clicks.

    Example: [bold]untilt select clicks.parquet --documents documents.parquet --bias bias.json
    --method prs --method balanced --trees 100 --trees auto --folder search[/bold]
    """
    from untilt.data.transform import without_features
    from untilt.evaluation.slots import as_rank_metric
    from untilt.selection.select import select as choose

    arguments.check_ranker_out(out, card)
    arguments.check_plots(plot)
    check_share("--hold-out", hold_out)
    curve, wanted = arguments.parse_bias(bias), as_rank_metric(judging.metric)
    candidates = _candidates(curve, method, ranker, trees, clip, threads, seed)
    context = arguments.context_of(curve)
    train = reading.read_to_train(output, data, context=context)
    if valid is None:
        train, held = train.split(1 - hold_out, by="query", seed=seed)
    else:
        held = reading.read(output, valid, to_rank=True, context=context)
        held = without_features(held, set(held.feature_names) - set(train.feature_names))
    selection = choose(
        candidates, train=train, valid=held, bias=curve, judge=judge, metric=wanted,
        evaluator=judging.evaluator, among=judging.among, baseline=baseline, folder=folder,
        n_jobs=jobs, held_out=held_out,
    )  # fmt: skip
    selection.ranker.save(out, card=card)
    _report_selected(output, selection, out)
    if card is not None:
        output.record(card=card)
        output.say(f"Its model card: {card}.")
    if plot is not None:
        title = "Candidates on held-out clicks"
        estimates = selection.estimates
        draw_estimates(output, estimates, estimates.order, plot, title=title)


def _candidates(
    bias: Any, methods: list[str] | None, rankers: list[str] | None, trees: list[str] | None,
    clips: list[float] | None, threads: int | None, seed: int,
) -> dict[str, Any]:  # fmt: skip
    from untilt import catalog
    from untilt.workflow.candidates import correction, make_ranker

    if bias is None:
        raise OptionError(
            "select corrects held-out clicks by the position bias: --bias bias.json of `untilt "
            "bias LOG --out bias.json`, or a curve such as --bias power-law:1."
        )
    counts = [arguments.parse_count(each, "--trees") or 300 for each in trees or ["300"]]
    usual = catalog.names("weighting", choose="usual in select")
    corrections = [correction(name) for name in methods or usual]
    made: dict[str, Any] = {}
    for name in rankers or [catalog.default("ranker").name]:
        ranker = catalog.find("ranker", name, what="--ranker")
        sizes = counts if "trees" in ranker.takes else [None]
        # A ranker without tables learns its correction itself.
        for method in corrections if "weighting" in ranker.takes else [None]:
            clips_here = (
                clips if clips and method is not None and "clip" in method.takes else [None]
            )
            for clip, size in product(clips_here, sizes):
                title = ranker.name if method is None else f"{ranker.name} {method.name}"
                title += "" if clip is None else f" clip {clip:g}"
                title += "" if size is None else f" {size} trees"
                made[title] = make_ranker(
                    ranker.name, None if method is None else method.name, bias,
                    clip=clip, trees=size or 300, threads=threads, seed=seed,
                )  # fmt: skip
    return made


def _report_selected(out: Output, selection: "Selection", path: Path) -> None:
    record_estimates(out, selection.estimates)
    out.record(
        ranker=path, best=selection.best, within_noise=selection.within_noise, order=selection.order
    )
    out.show(selection.view())
    out.say(f"Saved to {path}.")

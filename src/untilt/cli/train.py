"""`untilt train` and `methods`: rankers made, and all names to choose."""

from dataclasses import is_dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from untilt import catalog
from untilt._core.addresses import place
from untilt.cli import arguments, outputs
from untilt.cli.console import Output
from untilt.cli.declared import argument, option, out_option
from untilt.errors import check_choice


def train(
    data: Path = argument(..., "A click log; or a LETOR file, with --letor.", "LOG", parser=place),
    out: Path = out_option(Path("ranker.untilt"), "Where the ranker is written.", "FILE"),
    card: outputs.Card = None,
    method: str | None = option(
        None,
        "How position bias is corrected ({default weighting} where not given): "
        "{weighting|objective}. `untilt methods` says what each is, and which need --bias.",
    ),
    bias: arguments.BiasOption = None,
    ranker: str | None = option(
        None, "What is trained ({default ranker} where not given): {ranker}."
    ),
    trees: str = option(
        "300", "Trees of a LambdaMART; auto: held-out queries choose.", metavar="N|auto"
    ),
    clip: float | None = option(
        None, "Clip of a table: floor of theta, or ceiling of a ratio.", min=0
    ),
    letor: bool = option(False, "LOG is a LETOR file with labels."),
    threads: int | None = option(None, "Threads; all where not given.", min=1),
    seed: arguments.Seed = 0,
    *,
    reading: arguments.LogOptions,
    output: Output,
) -> None:
    """Train a ranker that corrects for position bias, and save it to one file.

    Hold a part out first, to evaluate on: `untilt split`.

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
    kind: str | None = argument(None, "weighting, ranker, bias, ...; all where not given.", "KIND"),
    *,
    output: Output,
) -> None:
    """List the methods with what they are and what they need.

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
            {
                "kind": each.kind, "name": each.name, "title": each.title, "note": each.note,
                "needs": each.needs, "rests_on": each.rests_on, "reference": each.reference,
                "class": f"{each.home}.{each.target}",
            }
            for each in records
        ]
    )  # fmt: skip

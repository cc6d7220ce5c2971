"""`untilt train`: a ranker from a click log or from judged lists."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from untilt.cli.arguments import (
    AsJson,
    BiasOption,
    LogOptions,
    Seed,
    Verbose,
    check_out,
    parse_bias,
)
from untilt.cli.console import Output, speaking
from untilt.errors import OptionError


class Method(StrEnum):
    """How clicks are corrected for position bias."""

    CLICKS = "clicks"
    IPS = "ips"
    IPS_ALL = "ips-all"
    PNS = "pns"
    PRS = "prs"
    BAYES_IPS = "bayes-ips"
    BALANCED = "balanced"
    PAIRWISE_DEBIASING = "pairwise-debiasing"
    PBM_LIKELIHOOD = "pbm-likelihood"
    IPS_LABEL = "ips-label"
    POSTERIOR_LABEL = "posterior-label"
    AUTO = "auto"


class Kind(StrEnum):
    """What is trained."""

    LAMBDAMART = "lambdamart"
    LINEAR = "linear"
    SVM = "svm"


def train(
    reading: LogOptions,
    data: Annotated[
        Path,
        typer.Argument(metavar="LOG", help="A click log; or a LETOR file, with --letor."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the ranker is written.")
    ] = Path("ranker.untilt"),
    method: Annotated[
        Method,
        typer.Option(
            help="How position bias is corrected. All but the first and "
            "pairwise-debiasing need --bias."
        ),
    ] = Method.CLICKS,
    bias: BiasOption = None,
    ranker: Annotated[Kind, typer.Option(help="What is trained.")] = Kind.LAMBDAMART,
    trees: Annotated[int, typer.Option(min=1, help="Trees of a LambdaMART.")] = 300,
    clip: Annotated[
        float | None, typer.Option(min=0, help="Clip of ips (floor of theta) or prs (ceiling).")
    ] = None,
    letor: Annotated[
        bool, typer.Option("--letor", help="LOG is a LETOR file with labels.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads; all where not given.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Train a ranker that corrects for position bias, and save it to one file.

    Example: [bold]untilt train clicks.parquet --documents documents.parquet --method auto
    --bias bias.json --out ranker.untilt[/bold]

    On human labels: [bold]untilt train judged.txt --letor[/bold]
    """
    with speaking(as_json=as_json, verbose=verbose) as output:
        check_out(out)
        model = make_ranker(ranker, method, parse_bias(bias), clip, trees, threads, seed)
        if letor:
            from untilt.data.letor.letor import read_letor

            given: Any = read_letor(data)
        else:
            given = reading.read(output, data, to_rank=True)
        model.fit(given)
        model.save(out)
        _report(output, model, out)


def make_ranker(
    kind: Kind, method: Method, bias: Any, clip: float | None, trees: int, threads: int | None,
    seed: int,
) -> Any:  # fmt: skip
    """The unfitted ranker that these options describe."""
    from untilt.rankers.linear.linear import LinearRanker
    from untilt.rankers.linear.svm import RankSVM
    from untilt.rankers.trees.lambdamart import LambdaMART

    pointwise = (Method.PBM_LIKELIHOOD, Method.IPS_LABEL, Method.POSTERIOR_LABEL, Method.AUTO)
    if bias is None and method not in (Method.CLICKS, Method.PAIRWISE_DEBIASING):
        raise OptionError(
            f"--method {method.value} needs the position bias: --bias bias.json from `untilt bias`,"
            " or a curve such as --bias power-law:1."
        )
    if method in pointwise and kind is not Kind.LAMBDAMART:
        raise OptionError(
            f"--method {method.value} is for boosted trees only. Use --ranker lambdamart, or a "
            "table such as --method prs."
        )
    if method in pointwise:
        named = {"weighting": "auto"} if method is Method.AUTO else {"objective": method.value}
        return LambdaMART(**named, bias=bias, n_trees=trees, n_threads=threads, seed=seed)  # type: ignore[arg-type]
    weighting = _weighting(method, bias, clip)
    if kind is Kind.LAMBDAMART:
        return LambdaMART(weighting, n_trees=trees, n_threads=threads, seed=seed)
    return LinearRanker(weighting) if kind is Kind.LINEAR else RankSVM(weighting)


def _weighting(method: Method, bias: Any, clip: float | None) -> Any:
    from untilt import weighting as tables

    clipped: dict[str, Any] = {} if clip is None else {"clip": clip}
    makers: dict[Method, Any] = {
        Method.CLICKS: tables.Naive,
        Method.PAIRWISE_DEBIASING: tables.PairwiseDebiasing,
        Method.IPS: lambda: tables.IPS(bias, **clipped),
        Method.IPS_ALL: lambda: tables.IPS(bias, against="all", **clipped),
        Method.PNS: lambda: tables.PNS(bias),
        Method.PRS: lambda: tables.PRS(bias, **clipped),
        Method.BAYES_IPS: lambda: tables.BayesIPS(bias, **clipped),
        Method.BALANCED: lambda: tables.Balanced(bias),
    }
    return makers[method]()


def _report(out: Output, model: Any, path: Path) -> None:
    summary = dict(model.summary_)
    out.record(ranker=path, **summary)
    out.heading("Trained")
    out.table(("", ""), [(name.replace("_", " "), str(value)) for name, value in summary.items()])
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


# `untilt export`: the model alone, for a system that does not run untilt.


def export(
    ranker: Annotated[
        Path, typer.Argument(metavar="RANKER", help="A file that `untilt train` wrote.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Where the model is written.")
    ],
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Write a ranker's model for other systems: LightGBM's text, or a JSON of linear weights.

    Example: [bold]untilt export ranker.untilt --out model.txt[/bold]
    """
    from untilt.rankers.export import export_model
    from untilt.rankers.persist import load

    with speaking(as_json=as_json, verbose=verbose) as output:
        check_out(out)
        model = load(ranker)
        export_model(model, out)
        output.record(ranker=ranker, model=out, kind=type(model).__name__)
        output.say(f"{type(model).__name__} written to {out}.")

"""Every curve that ordinary hotel searches give, beside that of searches in random order.

    python examples/expedia_curves.py [searches.csv.gz] [chart.png]

A third of the searches were shown in random order, where the click rate by place is the position
bias. The other two thirds are what most people have: lists that a good ranker ordered. Every
estimator and click model of untilt that such a log allows is fitted to them alone. Printed are the
curve, whether it agrees with the random order (one test of all places together, at 5%) and what
untilt itself says about it; the chart has a panel for each. docs/evidence.md tells the story.

Places are counted as in `expedia_bias.py`, down to the tenth hotel. Prices and competitors change
from search to search, so features belong to the impression. A query is a destination, and hotels
come again. The random order is not quite random (see `expedia_bias.py`), and is taken all the same.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import duckdb
import numpy as np

import untilt as ut
from untilt import catalog
from untilt.charts.curves import Curve, curves_chart
from untilt.charts.theme import finished, panel_title, save_chart

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DEFAULT = DATA / "expedia-sample" / "searches.csv.gz"
OTHER_OFFERS = (5, 11, 17, 23)
DEPTH = 10
RANDOM, USUAL = "random order", "usual order"
# An unknown score counts as the lowest one, 0; an unknown distance as the median of the known ones;
# an unknown price at a competitor (-1 = dearer, 1 = cheaper than here) as the same price.
FEATURES = {
    "stars": "prop_starrating",
    "review": "coalesce(prop_review_score::FLOAT, 0)",
    "brand": "prop_brand_bool",
    "location1": "prop_location_score1",
    "location2": "coalesce(prop_location_score2::FLOAT, 0)",
    "historical_price": "prop_log_historical_price",
    "log_price": "ln(1 + price_usd)",
    "promotion": "promotion_flag",
    "distance": "coalesce(orig_destination_distance, median(orig_destination_distance) OVER ())",
    **{f"competitor{c}": f"coalesce(comp{c}_rate::FLOAT, 0)" for c in range(1, 9)},
}
NETWORK: dict[str, Any] = {"widths": (16,), "epochs": 60, "batch_size": 64}  # for 547 clicks
TOP_OF_CHART = 1.5  # bands that reach higher are cut there

Fit = Callable[[ut.ClickLog], ut.PositionBias]


def read_hotels(path: Path) -> ut.ClickLog:
    """One session per search, down to the tenth hotel; features in each row."""
    place = " - ".join(["position", *(f"(position > {k})::INT" for k in OTHER_OFFERS)])
    features = ", ".join(f"({formula})::FLOAT AS f_{name}" for name, formula in FEATURES.items())
    order = f"CASE random_bool WHEN 1 THEN '{RANDOM}' ELSE '{USUAL}' END"
    hotels = duckdb.read_csv(str(path)).filter(f"position NOT IN {OTHER_OFFERS}")
    log = ut.read_log(
        hotels.project(
            f"srch_destination_id, srch_id, prop_id, {place} AS place, click_bool, date_time, "
            f"{order} AS shown, {features}"
        ),
        columns={
            "query_id": "srch_destination_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "position": "place",
            "click": "click_bool",
            "ranker": "shown",
            "timestamp": "date_time",
        },
        features="f_*",
        collapse=False,  # so that each search keeps its time
    )
    return log.top(DEPTH)


def by_position(log: ut.ClickLog, order: str) -> ut.PositionBias:
    """Click rates of the searches in this order, relative to the first place."""
    return ut.ShuffledTop(DEPTH, ranker=order, check=False).fit(log).bias_


def methods() -> dict[str, Fit]:
    """What an ordinary log allows: name -> the curve of a log."""
    estimators: dict[str, Any] = {
        "AllPairs": ut.AllPairs(depth=DEPTH),
        "AdjacentChain": ut.AdjacentChain(depth=DEPTH),
        "Pivot": ut.Pivot(depth=DEPTH),
        "RegressionEM, trees": ut.RegressionEM(relevance="features", n_threads=1),
        "RegressionEM, counts": ut.RegressionEM(relevance="counts"),
        "TrustEM, trees": ut.TrustEM(relevance="features", n_threads=1),
        "TrustEM, counts": ut.TrustEM(relevance="counts"),
        **{
            record.load().__name__: record.make()
            for record in catalog.methods("click model")
            if hasattr(record.load(), "bias_")
        },
        "DualLearning": ut.DualLearning(**NETWORK),
        "PairwiseDebiasing": ut.LambdaMART(ut.PairwiseDebiasing(), n_trees=50, n_threads=1),
        "PairwiseTrustRanker": ut.PairwiseTrustRanker(**NETWORK),
    }
    found: dict[str, Fit] = {"click rate": lambda log: by_position(log, USUAL)}
    return found | {name: lambda log, by=by: by.fit(log).bias_ for name, by in estimators.items()}


@dataclass(frozen=True)
class Found:
    """What one method made of the ordinary searches: a curve, or why there is none."""

    name: str
    bias: ut.PositionBias | None
    refusal: str = ""

    def agrees(self, reference: ut.PositionBias) -> str:
        """Whether it agrees with the curve in random order, by one test of all places."""
        if self.bias is None:
            return "no curve"
        if not self.bias.has_interval:
            return "no interval, no test"
        test = reference.compare(self.bias)
        return f"{'agrees' if test.equal else 'differs'}, p = {test.p_value:.2g}"

    def outside(self, reference: ut.PositionBias) -> str:
        """The places where it lies outside the interval of the random order."""
        if self.bias is None:
            return ""
        theta = self.bias.drawn_curve().value
        away = [
            str(k)
            for k in range(2, DEPTH + 1)
            if np.isfinite(theta[k - 1]) and theta[k - 1] not in reference.interval(k)
        ]
        return ", ".join(away) or "none"

    @property
    def says(self) -> str:
        """What untilt says: why it refused, what its status warns of and leaves unknown.

        Of a curve that nothing is wrong with as far as the log tells: what it assumes of relevance.
        """
        if self.bias is None:
            return self.refusal.partition(". ")[0]
        unknown = [k for k in range(1, DEPTH + 1) if self.bias.text(k)[0] == "not known"]
        told = [str(part) for part in self.bias.status.parts if part.severity != "note"]
        told += [f"not known: place {', '.join(map(str, unknown))}"] if unknown else []
        return "; ".join(told) or f"no warning; it assumes that {self.bias.assumes[:2][-1]}"

    def cells(self, places: tuple[int, ...] = (2, 5, 10)) -> list[str]:
        """theta with its interval at some places."""
        if self.bias is None:
            return [""] * len(places)
        return [" ".join(self.bias.text(k, decimals=2)) for k in places]


def fit_all(usual: ut.ClickLog) -> list[Found]:
    """Every method on the ordinary searches."""
    found = []
    for name, fit in methods().items():
        try:
            found.append(Found(name, fit(usual)))
        except ut.UntiltError as error:
            found.append(Found(name, None, str(error)))
    return found


def table(reference: ut.PositionBias, found: list[Found]) -> str:
    """Markdown: one row for each method, the random order first."""
    header = ["", "2", "5", "10", "outside at", "beside the random order", "what it says"]
    rows = [header, ["---"] * len(header), [RANDOM, *Found("", reference).cells(), "", "", ""]]
    rows += [
        [each.name, *each.cells(), each.outside(reference), each.agrees(reference), each.says]
        for each in found
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def chart(reference: ut.PositionBias, found: list[Found]) -> Any:
    """A panel for each curve, the random order in ink below it."""
    panels = [
        curves_chart(
            {RANDOM: drawn(reference), each.name: drawn(each.bias)},
            truth=RANDOM,
            value_title="relative to place 1",
            height=150,
        ).properties(width=210, title=panel_title([each.name, each.agrees(reference)]))
        for each in found
        if each.bias is not None
    ]
    return finished(
        alt.concat(*panels, columns=4, spacing=16).resolve_scale(color="independent"),
        title="Hotel searches: curves from the usual order beside that of random order",
        subtitle="black: random order; bands: 95% intervals, cut at 1.5; no band: no interval",
    )


def drawn(bias: ut.PositionBias) -> Curve:
    """Down to the tenth place, bands cut at the top of the chart."""
    curve = bias.drawn_curve()
    ends = (
        None if end is None else np.minimum(end, TOP_OF_CHART) for end in (curve.low, curve.high)
    )
    return Curve(curve.x, curve.value, *ends)


if __name__ == "__main__":
    log = read_hotels(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
    usual = log.take(log.ranker == log.ranker_names.index(USUAL))
    reference, found = by_position(log, RANDOM), fit_all(usual)
    print(table(reference, found))
    for each in found:
        print(f"\n{each.name}\n{each.bias or each.refusal}")
    print(f"\nthe audit of the usual order\n{ut.audit(usual)}")
    if len(sys.argv) > 2:
        save_chart(chart(reference, found).properties(background="white"), Path(sys.argv[2]))

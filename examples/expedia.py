"""Hotel searches as a click log with two kinds of feedback and two rankers.

    python examples/expedia.py [searches.csv.gz [folder]]

Each search was made once, so it is query and session at the same time. `random_bool` says whether
the hotels were shown in random order: it becomes the ranker, so that the two can be compared. What
is known of a hotel has gaps, and what a gap means differs, so each feature fills its own.

With a folder the whole job is done, and then judged by what most logs do not have. The searches in
random order measure the position bias (`ShuffledTop`); with this curve `ut.run` learns from the
searches in the usual order alone; and the searches in random order judge the rankers: where hotels
stand by chance, more clicks mean better hotels, wherever the clicks were. "any order" gives all
hotels one score, which is the mean over all orders.

The random order is not quite random: hotels without a location score stand lower in it, and
`ShuffledTop` would refuse it. It is told to take it all the same (check=False): see
docs/position-bias.md.
"""

import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

import untilt as ut

DEFAULT = Path(__file__).parents[2] / "shared" / "data" / "expedia-sample" / "searches.csv.gz"

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


# Places 5, 11, 17 and 23 of the page belong to another kind of offer.
OTHER_OFFERS = (5, 11, 17, 23)
DEPTH = 20  # below, there are too few clicks to measure anything


def read_searches(path: Path, *, hotels_only: bool = False) -> ut.ClickLog:
    """The click log; bookings are in `extra_labels["booking"]`.

    With `hotels_only` places are counted without those of other offers.
    """
    place = "position"
    if hotels_only:
        place = " - ".join([place, *(f"(position > {k})::INT" for k in OTHER_OFFERS)])
    features = ", ".join(f"({formula})::FLOAT AS f_{name}" for name, formula in FEATURES.items())
    order = "CASE random_bool WHEN 1 THEN 'random order' ELSE 'usual order' END AS shown_in"
    columns = f"srch_id, prop_id, {place} AS place, click_bool, booking_bool, {order}, {features}"
    searches = duckdb.read_csv(str(path))
    if hotels_only:
        searches = searches.filter(f"position NOT IN {OTHER_OFFERS}")
    return ut.read_log(
        searches.project(columns),
        columns={
            "query_id": "srch_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "position": "place",
            "click": "click_bool",
            "booking": "booking_bool",
            "ranker": "shown_in",
        },
        labels=["booking"],
        features="f_*",
    )


def shown_in(log: ut.ClickLog, order: str) -> ut.ClickLog:
    """The searches that were shown in this order."""
    return log.take(log.ranker == log.ranker_names.index(order))


def decide(path: Path, folder: Path, **options: Any) -> tuple[ut.RunResult, Any]:
    """A run on the usual searches, and its rankers on the searches in random order."""
    log = read_searches(path, hotels_only=True).top(DEPTH)
    bias = ut.ShuffledTop(DEPTH, ranker="random order", check=False).fit(log).bias_.smooth()
    usual, by_chance = shown_in(log, "usual order"), shown_in(log, "random order")
    found = ut.run(usual, folder, bias=bias, title="Hotel searches", **options)
    systems = {"any order": np.zeros(by_chance.n_documents), **found.candidates}
    return found, ut.estimate(by_chance, systems, metric="dcg@10", evaluator="naive")


if __name__ == "__main__":
    log = read_searches(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
    print(log)
    for number, name in enumerate(log.ranker_names):
        part = log.take((log.ranker == number).nonzero()[0])
        print(f"\n{name}: {part.n_sessions} searches; the first five positions:")
        print(part.top(5).ctr_by_position())
    print(f"\nbookings: {log.extra_labels['booking'].sum():.0f}")
    if len(sys.argv) > 2:
        found, judge = decide(Path(sys.argv[1]), Path(sys.argv[2]))
        print(f"\nby clicks on the usual order:\n{found}")
        print(f"\nby clicks on hotels in random order:\n{judge}")
        print(judge.compare("any order"))

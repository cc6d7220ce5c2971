"""Hotel searches as a click log with two kinds of feedback and two rankers.

    python examples/expedia.py [searches.csv.gz]

Each search was made once, so it is query and session at the same time. `random_bool` says whether
the hotels were shown in random order: it becomes the ranker, so that the two can be compared. What
is known of a hotel has gaps, and what a gap means differs, so each feature fills its own.
"""

import sys
from pathlib import Path

import duckdb

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


def read_searches(path: Path) -> ut.ClickLog:
    """The click log; bookings are in `extra_labels["booking"]`."""
    features = ", ".join(f"({formula})::FLOAT AS f_{name}" for name, formula in FEATURES.items())
    order = "CASE random_bool WHEN 1 THEN 'random order' ELSE 'usual order' END AS shown_in"
    columns = f"srch_id, prop_id, position, click_bool, booking_bool, {order}, {features}"
    searches = duckdb.read_csv(str(path)).project(columns)
    return ut.read_log(
        searches,
        columns={
            "query_id": "srch_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "click": "click_bool",
            "booking": "booking_bool",
            "ranker": "shown_in",
        },
        labels=["booking"],
        features="f_*",
    )


if __name__ == "__main__":
    log = read_searches(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
    print(log)
    for number, name in enumerate(log.ranker_names):
        part = log.take((log.ranker == number).nonzero()[0])
        print(f"\n{name}: {part.n_sessions} searches; the first five positions:")
        print(part.top(5).ctr_by_position())
    print(f"\nbookings: {log.extra_labels['booking'].sum():.0f}")

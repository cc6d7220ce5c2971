"""Position bias of hotel searches: what random order says, and what ordinary searches can say.

    python examples/expedia_bias.py [searches.csv.gz] [chart.png]

A third of the searches were shown in random order: there the click rate by position *is* the
position bias. In the others clicks fall with the position for two reasons, because lower places
are seen less and because worse hotels stand there. Three curves from these:

- their click rate by position, taken at face value;
- AllPairs, from hotels that several searches for one destination showed at different places;
- the power law nearest to that.

Places 5, 11, 17 and 23 of the page belong to another kind of offer, so hotels are counted without
them. The data hold only searches with a click; ratios of click rates do not change by that, because
a click at any place puts the search into the data.

The random order is not quite random: hotels that the usual order puts low are lower here too
(correlation 0.13, p = 2e-5). ShuffledTop would refuse it, and is told to take it all the same.
"""

import sys
from pathlib import Path

import duckdb

import untilt as ut

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DEFAULT = DATA / "expedia-sample" / "searches.csv.gz"
OTHER_OFFERS = (5, 11, 17, 23)
DEPTH = 10


def read_hotels(path: Path) -> ut.ClickLog:
    """One session per search; a query is a destination, so that hotels come again."""
    place = " - ".join(["position", *(f"(position > {k})::INT" for k in OTHER_OFFERS)])
    order = "CASE random_bool WHEN 1 THEN 'random order' ELSE 'usual order' END"
    hotels = duckdb.read_csv(str(path)).filter(f"position NOT IN {OTHER_OFFERS}")
    return ut.read_log(
        hotels.project(
            f"srch_destination_id, srch_id, prop_id, {place} AS place, click_bool, {order} AS shown"
        ),
        columns={
            "query_id": "srch_destination_id",
            "session_id": "srch_id",
            "doc_id": "prop_id",
            "position": "place",
            "click": "click_bool",
            "ranker": "shown",
        },
    )


def curves(log: ut.ClickLog) -> dict[str, ut.PositionBias]:
    """The random-order curve and what the ordinary searches give."""
    usual = log.take(log.ranker == log.ranker_names.index("usual order"))
    all_pairs = ut.AllPairs(depth=DEPTH).fit(usual).bias_

    def by_position(shown: str) -> ut.PositionBias:
        return ut.ShuffledTop(DEPTH, ranker=shown, check=False).fit(log).bias_

    return {
        "random order": by_position("random order"),
        "usual order, click rate": by_position("usual order"),
        "usual order, AllPairs": all_pairs,
        "usual order, AllPairs as a power law": all_pairs.fit_power_law(),
    }


if __name__ == "__main__":
    log = read_hotels(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
    print(log)
    found = curves(log)
    for name, bias in found.items():
        print(f"\n{name}: eta {bias.fit_power_law().eta:.2f}")
        print(bias)
    random_order = found.pop("random order")
    for name, bias in found.items():
        print(f"\nrandom order against {name}:\n{random_order.compare(bias)}")
    if len(sys.argv) > 2:
        # Without AllPairs itself: with 64 clicks its band would fill the picture.
        shown = {name: bias for name, bias in found.items() if not name.endswith("AllPairs")}
        chart = random_order.plot(
            shown, name="random order", title="Hotel searches: examination by place"
        )
        chart.save(sys.argv[2], scale_factor=1.25)

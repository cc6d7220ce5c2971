"""Logs that are released as tables, and judged sets. `**options` are those of `read_log`."""

from pathlib import Path
from typing import Any, Literal

import duckdb

from untilt.data.clicklog import ClickLog
from untilt.data.judged import JudgedLists
from untilt.data.read.columns import SHUFFLED
from untilt.data.read.database import literal, translated_errors
from untilt.data.read.read_log import read_log
from untilt.datasets.pages import PathLike
from untilt.errors import ColumnError, FileFormatError, check_choice
from untilt.papers.datasets import source_of
from untilt.papers.schema import ExperimentSize

# Of a hotel, its offer and its competitors. Ids are none, nor is what only a click reveals.
EXPEDIA_FEATURES = (
    "prop_starrating", "prop_review_score", "prop_brand_bool", "prop_location_score1",
    "prop_location_score2", "prop_log_historical_price", "price_usd", "promotion_flag",
    "orig_destination_distance", "comp*_rate", "comp*_inv", "comp*_rate_percent_diff",
)  # fmt: skip
SLOT_COLUMNS = ("timestamp", "item_id", "position", "click", "propensity_score")
POLICIES = {"random": SHUFFLED, "bts": "bts"}


def read_expedia(
    path: PathLike, *, by: Literal["search", "destination"] = "search", **options: Any
) -> ClickLog:
    """Read train.csv of Kaggle's *Personalize Expedia Hotel Searches* ([expedia2013]_).

    One row per search (`srch_id`) and hotel (`prop_id`) with `position`, `click_bool` and
    `booking_bool`, which `labels=("booking_bool",)` reads, too. Searches in random order
    (`random_bool`) get the ranker "shuffle". What is missing stays missing, as trees take it. `by`
    says what a query is: a search, of which each has one session, or its destination
    (`srch_destination_id`), where hotels come again.
    """
    check_choice("by", by, ("search", "destination"))
    query = "srch_id" if by == "search" else "srch_destination_id"
    columns = {
        "query_id": query, "session_id": "srch_id", "doc_id": "prop_id", "position": "position",
        "click": "click_bool", "random": "random_bool", "timestamp": "date_time",
    }  # fmt: skip
    return read_log(
        path, **{"columns": columns, "features": EXPEDIA_FEATURES, "missing": "keep"} | options
    )


def read_open_bandit(path: PathLike, **options: Any) -> ClickLog:
    """Read the folder of the Open Bandit Dataset ([saito2020open]_): POLICY/CAMPAIGN/CAMPAIGN.csv.

    Policies are random (our ranker "shuffle") and bts, campaigns are our queries. A row is one slot
    with `item_id`, `position`, `click` and `propensity_score`; slots of a page are not linked, so
    each is a session.
    """
    folder = Path(path)
    files = {file: file.parts[-3:] for file in sorted(folder.glob("*/*/*.csv"))}
    known = {file: parts for file, parts in files.items() if parts[0] in POLICIES}
    if not known:
        raise FileFormatError(
            f"{folder} holds no random/all/all.csv or another POLICY/CAMPAIGN/CAMPAIGN.csv. Give "
            "the folder in which random and bts lie."
        )
    with duckdb.connect() as connection, translated_errors(str(folder)):
        parts = []
        for file, (policy, campaign, _) in known.items():
            table = f"read_csv({literal(str(file))})"
            if missing := set(SLOT_COLUMNS) - set(connection.sql(f"FROM {table}").columns):
                raise ColumnError(
                    f"{file} has no column {', '.join(sorted(missing))}. Give the folder as it was "
                    "released."
                )
            parts.append(
                f"SELECT {literal(campaign)} AS query_id, {literal(POLICIES[policy])} AS ranker, "
                f"{literal(f'{policy}-{campaign}-')} || row_number() OVER () AS session_id, "
                f"{literal(f'{campaign}-')} || item_id AS doc_id, position, click, "
                f"propensity_score AS propensity, timestamp FROM {table}"
            )
        return read_log(connection.sql(" UNION ALL ".join(parts)), **options)


def read_thuir_news(table: Any, **options: Any) -> ClickLog:
    """Read THUIR's study of a mobile news feed ([lu2018news]_).

    The release is pickled, and pickles are never read here: load it where you trust it, and give
    the frame (or a file written from it) with the columns query_id (the task), session_id (user and
    task), doc_id (the news), position, click and viewport_ms (how long it was on the screen), which
    becomes one of `log.extra_labels`.
    """
    return read_log(table, **{"labels": ("viewport_ms",)} | options)


def read_judged_set(
    name: str, path: PathLike | None = None, *, fold: int = 1
) -> tuple[JudgedLists, JudgedLists]:
    """The training and test lists of a judged set: LETOR text in the files of its release.

    Sets: mq2007, mq2008, ohsumed ([qin2013letor]_), mslr-web10k, mslr-web30k, mslr-sample, yahoo,
    yahoo-2 ([chapelle2011yahoo]_), istella, istella-s ([dato2016istella]_). `path` is the folder of
    the release; without it the folder NAME in the environment variable UNTILT_DATA. Also reads a
    folder of your own with such files, given as `name`.
    """
    source = source_of(name, None if path is None else Path(path))
    return source.parts(seed=0, fold=fold, size=ExperimentSize(), most_queries=None)

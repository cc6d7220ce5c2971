"""One small log in the formats of other tools, with what real exports have beside it.

Retries that repeat an event, clicks that come from no list, lists and clicks of nobody (cookies
were refused), and events that have nothing to do with lists stand among the others.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

Row = dict[str, Any]
QUERIES = {"boots": ["b1", "b2", "b3", "b4", "b5"], "red hat": ["h1", "h2", "h3"]}


@dataclass(frozen=True)
class Shown:
    """A list that a visitor saw: when (minutes), what from the top down, what they clicked."""

    number: int
    visitor: str
    query: str
    documents: tuple[str, ...]
    clicked: tuple[str, ...]

    def time(self, seconds: int = 0) -> datetime:
        return datetime(2026, 3, 1, tzinfo=UTC) + timedelta(minutes=self.number, seconds=seconds)

    @property
    def id(self) -> str:
        return f"list-{self.number}"


def sessions() -> list[Shown]:
    """40 lists of 8 visitors. The same visitor sees the same documents in several of them."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(40):
        query = list(QUERIES)[number % 2]
        documents = tuple(rng.permutation(QUERIES[query]).tolist())
        clicked = tuple(d for k, d in enumerate(documents) if rng.random() < 0.5 / (k + 1))
        made.append(Shown(number, f"visitor-{number % 8}", query, documents, clicked))
    return made


def expected() -> Counter[Any]:
    """(query, ((position, document, click), ...)) -> sessions."""
    return Counter(
        (
            each.query,
            tuple((k, d, int(d in each.clicked)) for k, d in enumerate(each.documents, start=1)),
        )
        for each in sessions()
    )


def _lines(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _with_retries(rows: list[Row]) -> list[Row]:
    """Every third event came twice, and the order of arrival means nothing."""
    return [*rows[::-1], *rows[::3]]


def write_ubi(folder: Path) -> None:
    queries = [
        {"query_id": each.id, "user_query": each.query, "timestamp": each.time().isoformat(),
         "query_response_hit_ids": [*each.documents, "never seen"],
         "query_attributes": {"variant": "base", "device": "phone" if each.number % 3 else "desk"}}
        for each in sessions()
    ]  # fmt: skip
    events = [
        {"action_name": action, "query_id": each.id, "timestamp": each.time(1).isoformat(),
         "event_attributes": {"object": {"object_id": document}, "position": {"ordinal": k}}}
        for each in sessions()
        for k, document in enumerate(each.documents)
        for action in ("impression", *(["click", "open"] if document in each.clicked else []))
    ]  # fmt: skip
    _lines(folder / "ubi_queries.jsonl", queries)
    _lines(folder / "ubi_events.jsonl", [*_with_retries(events), {"action_name": "login"}])
    documents = sorted(d for each in QUERIES.values() for d in each)
    table = {"object_id": documents, "price": [float(len(d) + n) for n, d in enumerate(documents)]}
    parquet.write_table(pa.table(table), folder / "products.parquet")


def _micros(time: datetime) -> str:
    return str(int(time.timestamp()) * 1_000_000)


def write_ga4(folder: Path) -> None:
    def event(name: str, each: Shown, seconds: int, items: list[Row]) -> Row:
        return {
            "event_name": name,
            "event_timestamp": _micros(each.time(seconds)),
            "user_pseudo_id": each.visitor,
            "event_params": [
                {"key": "page_title", "value": {"string_value": "Search"}},
                {"key": "ga_session_id", "value": {"int_value": "1"}},
                {"key": "search_term", "value": {"string_value": each.query}},
            ],
            "items": items,
        }

    def item(each: Shown, document: str) -> Row:
        place = str(each.documents.index(document)) if document in each.documents else "0"
        return {"item_id": document, "item_list_id": "results", "item_list_index": place}

    rows = []
    for each in sessions():
        rows.append(event("view_item_list", each, 0, [item(each, d) for d in each.documents]))
        rows += [event("select_item", each, 5, [item(each, d)]) for d in each.clicked]
    rows.append(event("select_item", sessions()[0], 7, [item(sessions()[0], "elsewhere")]))
    rows.append(event("page_view", sessions()[0], 1, []))
    rows += [row | {"user_pseudo_id": None} for row in rows[:2]]
    _lines(folder / "ga4_events.jsonl", _with_retries(rows))


def write_snowplow(folder: Path) -> None:
    action = "unstruct_event_com_snowplowanalytics_snowplow_ecommerce_snowplow_ecommerce_action_1"
    products = "contexts_com_snowplowanalytics_snowplow_ecommerce_product_1"

    def event(name: str, each: Shown, documents: Iterable[str], seconds: int) -> Row:
        return {
            "event_id": f"{each.id}-{name}-{seconds}-{'-'.join(documents)}",
            "event_name": "snowplow_ecommerce_action",
            "derived_tstamp": each.time(seconds),
            "domain_sessionid": each.visitor,
            action: {"type": name, "name": each.query},
            products: [
                {"id": d, "position": each.documents.index(d) + 1 if d in each.documents else 1}
                for d in documents
            ],
        }

    rows = []
    for each in sessions():
        rows.append(event("list_view", each, each.documents, 0))
        rows += [event("list_click", each, [d], 5) for d in each.clicked]
    rows.append(event("list_click", sessions()[0], ["elsewhere"], 7))
    rows.append(rows[0] | {"event_id": "view", "event_name": "page_view"})
    rows += [row | {"event_id": str(n), "domain_sessionid": None} for n, row in enumerate(rows[:2])]
    table = pa.Table.from_pylist(_with_retries(rows))
    parquet.write_table(table, folder / "snowplow_events.parquet")


def write_segment(folder: Path) -> None:
    def event(name: str, each: Shown, number: int, seconds: int, properties: Row) -> Row:
        return {
            "messageId": f"{each.id}-{name}-{number}",
            "anonymousId": each.visitor,
            "timestamp": each.time(seconds).isoformat().replace("+00:00", "Z"),
            "event": name,
            "properties": properties,
        }

    rows = []
    for each in sessions():
        products = [{"product_id": d, "position": k} for k, d in enumerate(each.documents, start=1)]
        about = {"list_id": each.query, "category": "search", "products": products}
        rows.append(event("Product List Viewed", each, 0, 0, about))
        for d in each.clicked:
            k = each.documents.index(d) + 1
            rows.append(event("Product Clicked", each, k, 5, {"product_id": d, "position": k}))
    rows.append(event("Product Clicked", sessions()[0], 99, 7, {"product_id": "elsewhere"}))
    rows += [row | {"messageId": str(n), "anonymousId": None} for n, row in enumerate(rows[:2])]
    _lines(folder / "segment_events.jsonl", _with_retries(rows))


def write_metarank(folder: Path) -> None:
    rows: list[Row] = [
        {"event": "item", "id": "i1", "timestamp": "1", "item": "b1",
         "fields": [{"name": "price", "value": 3}, {"name": "tags", "value": ["a"]}]}
    ]  # fmt: skip
    for each in sessions():
        about = {"user": each.visitor, "timestamp": _micros(each.time())[:-3]}
        fields = [{"name": "source", "value": "search"}, {"name": "query", "value": each.query}]
        items = [{"id": d, "relevancy": 1.0} for d in each.documents]
        rows.append({"event": "ranking", "id": each.id, "fields": fields, "items": items, **about})
        rows += [
            {"event": "interaction", "id": f"{each.id}-{d}", "ranking": each.id, "type": kind,
             "item": d, **about}
            for d in each.clicked for kind in ("click", "purchase")
        ]  # fmt: skip
    rows.append(
        {"event": "interaction", "id": "x", "type": "click", "item": "b1", "timestamp": "9"}
    )
    _lines(folder / "metarank_events.jsonl", _with_retries(rows))


WRITERS = {
    "User Behavior Insights": write_ubi,
    "Google Analytics 4": write_ga4,
    "Snowplow": write_snowplow,
    "Segment": write_segment,
    "Metarank": write_metarank,
}

"""`untilt serve --demo`: a small shop to search in, with data made here.

Everything goes over the same HTTP as in production: the page asks /rank and /feedback, and so do
the readers that it plays. They click by a truth that the page knows and the server never uses: it
collects its own log, measures the curve from the swaps in it, trains, and reloads.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from untilt._core.arrays import FeatureArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.swaps import PivotSwap
from untilt.data.judged import JudgedLists
from untilt.data.write_log import write_columns
from untilt.errors import UntiltError
from untilt.rankers.base import load
from untilt.rankers.linear.linear import LinearRanker
from untilt.serving.app import LOOPBACK, Server
from untilt.serving.collect import collect
from untilt.serving.options import Settings
from untilt.serving.start import make_server
from untilt.serving.wire import JSON, encode, kind_of

DEPTH = 6
EXPLORE = f"pivot:0.5:{DEPTH}"
NAMES = ("match", "rating", "price", "new", "sold")
WANTED = {
    "running shoes": ("Trail", "Road", "Sprint", "Marathon", "Court", "Track"),
    "rain jacket": ("Shell", "Poncho", "Parka", "Anorak", "Cape", "Storm"),
    "coffee maker": ("Drip", "Press", "Moka", "Espresso", "Siphon", "Filter"),
    "desk lamp": ("Arc", "Clip", "Reading", "Studio", "Globe", "Pixel"),
    "backpack": ("Day", "Summit", "Commute", "Camera", "Roll-top", "School"),
    "headphones": ("On-ear", "Over-ear", "In-ear", "Studio", "Sport", "Travel"),
}
MAKERS = ("Alder", "Birk", "Cove", "Dune", "Elm", "Fjord", "Gale", "Heath", "Isle", "Juno")
_SECURITY = {
    "Content-Security-Policy": "default-src 'self'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, eq=False)
class Shop:
    """Queries with products: features, what readers want (gamma), and how they read (theta)."""

    queries: tuple[str, ...]
    titles: list[list[str]]
    features: FeatureArray
    indptr: Any
    relevance: FloatArray
    theta: FloatArray

    def rows(self, query: int) -> slice:
        """The products of a query."""
        return slice(int(self.indptr[query]), int(self.indptr[query + 1]))


def make_shop(seed: int = 0) -> Shop:
    """Products that fit and are rated well are wanted; those that sold well in the past are not."""
    rng = np.random.default_rng(seed)
    titles, features = [], []
    for kinds in WANTED.values():
        pairs = [(maker, kind) for maker in MAKERS for kind in kinds]
        chosen = rng.choice(len(pairs), 10, replace=False)
        titles.append([" ".join(pairs[i]) for i in chosen])
        match, rating, new, sold = rng.uniform(size=(4, 10))
        price = rng.gamma(4.0, 15.0, 10)
        features.append(np.column_stack([match, 1 + 4 * rating, price, new, sold]))
    table = np.concatenate(features).astype(np.float32)
    wish = 4 * table[:, 0] + 0.9 * table[:, 1] - 0.004 * table[:, 2] - 0.8 * table[:, 4] - 4.6
    return Shop(
        tuple(WANTED),
        titles,
        table,
        np.arange(0, len(table) + 1, 10),
        np.asarray(0.04 + 0.9 / (1 + np.exp(-1.6 * wish)), float),
        1 / np.arange(1, DEPTH + 1) ** 0.9,
    )


def demo_settings(folder: Path, shop: Shop) -> Settings:
    """The settings of the demo: its first ranker puts first what sold best."""
    sold = np.round(4 * shop.features[:, NAMES.index("sold")])
    judged = JudgedLists(
        shop.features, sold, shop.indptr, np.arange(len(shop.queries)), feature_names=NAMES
    )
    LinearRanker().fit(judged).save(folder / "ranker.untilt")
    columns: dict[str, Any] = {
        "query_id": np.repeat(np.array(shop.queries, dtype=object), np.diff(shop.indptr)),
        "doc_id": np.array([title for titles in shop.titles for title in titles], dtype=object),
    }
    columns |= {name: shop.features[:, j] for j, name in enumerate(NAMES)}
    documents = folder / "documents.parquet"
    write_columns(documents, documents, [columns])
    return Settings(
        ranker=str(folder / "ranker.untilt"),
        log=str(folder / "log"),
        documents=str(documents),
        explore=EXPLORE,
        salt="shop",  # so that the same visitors see the same orders wherever the demo runs
    )


class Demo:
    """The routes of the demo beside those of its server."""

    def __init__(self, folder: Path, *, host: str = "", seed: int = 0) -> None:
        self.folder, self.shop = folder, make_shop(seed)
        settings = replace(demo_settings(folder, self.shop), loopback=host in LOOPBACK)
        self.server: Server = make_server(settings)
        self.first = load(folder / "ranker.untilt")
        self.second: Any = None
        self._busy = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Page, truth for its readers, state, training."""
        guard = self.server.with_limits
        return [
            Route("/", guard(self.page), methods=["GET"]),
            Route("/demo/shop", guard(self.truth), methods=["GET"]),
            Route("/demo/state", guard(self.state), methods=["GET"]),
            Route("/demo/train", guard(self.train), methods=["POST"]),
        ]

    async def page(self, _request: Request) -> Response:
        """GET /: one file, nothing is fetched from elsewhere."""
        text = (Path(__file__).parent / "demo.html").read_text(encoding="utf8")
        return Response(text, media_type="text/html; charset=utf-8", headers=_SECURITY)

    async def truth(self, _request: Request) -> Response:
        """GET /demo/shop: products, and what readers do. The server itself does not use it."""
        shop = self.shop
        told = {
            "queries": {
                query: [
                    {
                        "title": title,
                        "gamma": float(shop.relevance[shop.rows(q)][i]),
                        **dict(zip(NAMES, shop.features[shop.rows(q)][i].tolist(), strict=True)),
                    }
                    for i, title in enumerate(shop.titles[q])
                ]
                for q, query in enumerate(shop.queries)
            },
            "theta": shop.theta.tolist(),
            "size": DEPTH,
        }
        return Response(encode(told, JSON), media_type=JSON)

    async def state(self, _request: Request) -> Response:
        """GET /demo/state: what the log says by now."""
        async with self._busy:
            told = await asyncio.to_thread(self._state)
        return Response(encode(told, JSON), media_type=JSON)

    async def train(self, request: Request) -> Response:
        """POST /demo/train: a ranker from the log so far; the running server takes it over."""
        kind_of(request.headers.get("content-type"))
        async with self._busy:
            told = await asyncio.to_thread(self._train)
        return Response(encode(told, JSON), media_type=JSON)

    def _log(self) -> Any:
        from untilt.data.read.read_log import read_log

        collect(self.folder / "log", self.folder / "clicks")
        if not any((self.folder / "clicks").glob("*.parquet")):
            return None
        return read_log(self.folder / "clicks", documents=self.folder / "documents.parquet")

    def _state(self) -> dict[str, Any]:
        log = self._log()
        told: dict[str, Any] = {
            "sessions": 0, "positions": [], "curve": None, "why": "Nobody has searched yet.",
            "orders": self._orders(), "value": self._values(),
        }  # fmt: skip
        if log is None:
            return told
        rates = log.ctr_by_position()
        told["sessions"] = int(log.n_sessions)
        told["positions"] = [
            {"shown": int(shown), "clicks": int(clicks)}
            for shown, clicks in zip(rates.impressions, rates.clicks, strict=True)
        ]
        try:
            told["curve"] = _as_points(PivotSwap().fit(log).bias_)
            told["why"] = ""
        except UntiltError as error:
            told["why"] = f"Not known yet: {error}"
        return told

    def _train(self) -> dict[str, Any]:
        from untilt.weighting.tables import PRS

        log = self._log()
        try:
            if log is None:
                raise UntiltError("there are no searches yet.")
            bias = PivotSwap().fit(log).bias_
            ranker = LinearRanker(weighting=PRS(bias)).fit(log)
        except UntiltError as error:
            return {"trained": False, "why": str(error)}
        ranker.save(self.folder / "ranker.untilt")
        self.server.models.reload()
        self.second = ranker
        return {"trained": True, "why": ""}

    def _orders(self) -> dict[str, list[list[str]]]:
        """For each query: titles by the first ranker, and by the second where there is one."""
        rankers = [self.first] if self.second is None else [self.first, self.second]
        return {
            query: [
                [self.shop.titles[q][i] for i in self._order(ranker, q)[:DEPTH]]
                for ranker in rankers
            ]
            for q, query in enumerate(self.shop.queries)
        }

    def _values(self) -> list[float]:
        """Clicks a search by the truth, of each ranker: what no log could say for certain."""
        shop = self.shop
        rankers = [self.first] if self.second is None else [self.first, self.second]
        return [
            float(
                np.mean(
                    [
                        shop.theta @ shop.relevance[shop.rows(q)][self._order(ranker, q)[:DEPTH]]
                        for q in range(len(shop.queries))
                    ]
                )
            )
            for ranker in rankers
        ]

    def _order(self, ranker: Any, query: int) -> Any:
        return np.argsort(-ranker.predict(self.shop.features[self.shop.rows(query)]), kind="stable")


def _as_points(bias: PositionBias) -> list[dict[str, float | None]]:
    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    ends = [bias.interval(position) for position in range(1, bias.depth + 1)]
    return [
        {"value": number(value), "low": number(end.low), "high": number(end.high)}
        for value, end in zip(bias.examination, ends, strict=True)
    ]


def run_demo(folder: Path, *, host: str, port: int, opened: bool) -> None:
    """Serve the shop until Ctrl-C, and open it in the browser where that is wished."""
    import threading
    import webbrowser

    from untilt.serving.app import make_app
    from untilt.serving.start import serve_app

    demo = Demo(folder, host=host)
    if opened:
        # The page tells that it cannot be reached until the server listens, a moment later.
        threading.Timer(1.0, webbrowser.open, (f"http://{host}:{port}/",)).start()
    serve_app(make_app(demo.server, more=demo.routes()), host=host, port=port)

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
from starlette.responses import Response
from starlette.routing import Route

from untilt._core.arrays import FeatureArray, FloatArray
from untilt.bias.curve import PositionBias
from untilt.bias.experiments.swaps import PivotSwap
from untilt.charts.theme import hashes_of
from untilt.data.judged import JudgedLists
from untilt.data.write_log import write_columns
from untilt.errors import UntiltError
from untilt.rankers.base import load
from untilt.rankers.linear.linear import LinearRanker
from untilt.serving.app import LOOPBACK, Server, make_app
from untilt.serving.collect import collect
from untilt.serving.options import Settings
from untilt.serving.start import make_server, serve_app

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
_PAGE = (Path(__file__).parent / "demo.html").read_text(encoding="utf8")
# Only the page's own script and style: nothing that a reader or a log says can add to them.
_SECURITY = {
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    + "; ".join(
        f"{tag}-src {hashes_of(_PAGE.partition(f'<{tag}>')[2].partition(f'</{tag}>')[0])}"
        for tag in ("script", "style")
    )
}


@dataclass(frozen=True, eq=False)
class Shop:
    """Queries with products: titles (queries, 10) and features, and how readers read and want.

    relevance : (queries, 10) gamma
    theta : (DEPTH,)
    """

    titles: dict[str, list[str]]
    features: FeatureArray
    relevance: FloatArray
    theta: FloatArray

    def order(self, ranker: Any, query: int) -> Any:
        """What a ranker shows of a query."""
        scores = ranker.predict(self.features[query])
        return np.argsort(-scores, kind="stable")[:DEPTH]


def make_shop(seed: int = 0) -> Shop:
    """Products that fit and are rated well are wanted; those that sold well in the past are not."""
    rng = np.random.default_rng(seed)
    titles, features = {}, []
    for query, kinds in WANTED.items():
        pairs = [f"{maker} {kind}" for maker in MAKERS for kind in kinds]
        titles[query] = [pairs[i] for i in rng.choice(len(pairs), 10, replace=False)]
        match, rating, new, sold = rng.uniform(size=(4, 10))
        price = rng.gamma(4.0, 15.0, 10)
        features.append(np.column_stack([match, 1 + 4 * rating, price, new, sold]))
    table = np.array(features, dtype=np.float32)
    wish = table @ [4, 0.9, -0.004, 0, -0.8] - 4.6
    relevance = 0.04 + 0.9 / (1 + np.exp(-1.6 * wish))
    return Shop(titles, table, relevance, 1 / np.arange(1, DEPTH + 1) ** 0.9)


def demo_settings(folder: Path, shop: Shop) -> Settings:
    """The settings of the demo: its first ranker puts first what sold best."""
    rows = shop.features.reshape(-1, len(NAMES))
    judged = JudgedLists(
        rows, np.round(4 * rows[:, NAMES.index("sold")]), np.arange(0, len(rows) + 1, 10),
        np.arange(len(shop.titles)), feature_names=NAMES,
    )  # fmt: skip
    LinearRanker().fit(judged).save(folder / "ranker.untilt")
    columns: dict[str, Any] = {
        "query_id": np.repeat(np.array(list(shop.titles), dtype=object), 10),
        "doc_id": np.array(list(shop.titles.values()), dtype=object).ravel(),
        **{name: rows[:, j] for j, name in enumerate(NAMES)},
    }
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
        self.rankers: list[Any] = [load(folder / "ranker.untilt")]
        self._busy = asyncio.Lock()

    def routes(self) -> list[Route]:
        """Page, truth for its readers, state, training."""
        route = self.server.route
        return [
            route("/", self.page),
            route("/demo/shop", self.truth),
            route("/demo/state", self.state),
            route("/demo/train", self.train, method="POST"),
        ]

    async def page(self) -> Response:
        """GET /: one file, nothing is fetched from elsewhere."""
        return Response(_PAGE, media_type="text/html; charset=utf-8", headers=_SECURITY)

    async def truth(self) -> dict[str, Any]:
        """GET /demo/shop: products, and what readers do. The server itself does not use it."""
        shop = self.shop
        queries = {
            query: [
                {"title": title, "gamma": gamma, **dict(zip(NAMES, row, strict=True))}
                for title, gamma, row in zip(titles, gammas, rows, strict=True)
            ]
            for (query, titles), gammas, rows in zip(
                shop.titles.items(), shop.relevance.tolist(), shop.features.tolist(), strict=True
            )
        }
        return {"queries": queries, "theta": shop.theta.tolist(), "size": DEPTH}

    async def state(self) -> dict[str, Any]:
        """GET /demo/state: what the log says by now."""
        async with self._busy:
            return await asyncio.to_thread(self._state)

    async def train(self, _body: bytes, _kind: str) -> dict[str, Any]:
        """POST /demo/train: a ranker from the log so far; the running server takes it over."""
        async with self._busy:
            return await asyncio.to_thread(self._train)

    def _log(self) -> Any:
        from untilt.data.read.read_log import read_log

        clicks, documents = self.folder / "clicks", self.folder / "documents.parquet"
        collect(self.folder / "log", clicks)
        return read_log(clicks, documents=documents) if any(clicks.glob("*.parquet")) else None

    def _state(self) -> dict[str, Any]:
        shop, n = self.shop, len(self.shop.titles)
        shown = [[shop.order(ranker, q) for ranker in self.rankers] for q in range(n)]
        told: dict[str, Any] = {
            "sessions": 0, "positions": [], "curve": None, "why": "No searches yet.",
            # For each query, titles by the first ranker, and by the second where there is one.
            "orders": {
                query: [[titles[i] for i in order] for order in orders]
                for (query, titles), orders in zip(shop.titles.items(), shown, strict=True)
            },
            # Clicks a search by the truth, of each ranker: what no log could say for certain.
            "value": np.mean(
                [[shop.theta @ shop.relevance[q][order] for order in shown[q]] for q in range(n)],
                axis=0,
            ).tolist(),
        }  # fmt: skip
        log = self._log()
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
        self.rankers[1:] = [ranker]
        return {"trained": True, "why": ""}


def _as_points(bias: PositionBias) -> list[dict[str, float]]:
    """What is not known is NaN here, and null in JSON."""
    ends = (bias.interval(position) for position in range(1, bias.depth + 1))
    values = zip(bias.examination.tolist(), ends, strict=True)
    return [{"value": value, "low": end.low, "high": end.high} for value, end in values]


def run_demo(folder: Path, *, host: str, port: int, opened: bool) -> None:
    """Serve the shop until Ctrl-C, and open it in the browser where that is wished."""
    import threading
    import webbrowser

    demo = Demo(folder, host=host)
    if opened:
        # The page tells that it cannot be reached until the server listens, a moment later.
        threading.Timer(1.0, webbrowser.open, (f"http://{host}:{port}/",)).start()
    serve_app(make_app(demo.server, more=demo.routes()), host=host, port=port)

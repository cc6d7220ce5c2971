"""Fixtures for all tests."""

import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

# Before OpenMP is loaded: its threads should sleep while they wait, not take turns with the other
# worker's on the same cores (five times the CPU time of the work itself on a busy machine).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Before JAX is loaded: compiling is four fifths of the time of tests of networks (62 of 80 s), and
# the same small programs come again in the other worker, in other tests and in the next run.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

from untilt.data.clicklog import ClickLog

ROOT = Path(__file__).resolve().parent.parent
# What takes more than ten seconds of a processor, longest first: a worker takes whole files.
LONGEST = (
    "contract/test_rankers.py", "test_docs.py", "wall/test_run.py",
    "rankers/test_early_stopping.py", "_core/test_threads.py",
    "wall/test_estimate.py", "fuzz/test_fuzz.py", "torture/test_torture.py",
    "cli/test_reproduce.py", "rankers/test_neural.py",
    "rankers/test_pairwise_trust.py", "clickmodels/test_neural.py", "workflow/test_resume.py",
    "cli/test_consistency.py", "report/test_page.py", "workflow/test_logs_of_all_kinds.py",
    "rankers/test_preference.py", "papers/test_catalogue.py", "workflow/test_folds.py",
    "workflow/test_damage.py", "auditing/test_deep_lists.py", "cli/test_audit_plan_bias.py",
    "papers/test_pages.py", "cli/test_demo.py", "rankers/test_dual_learning.py",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    """The longest files first, else as they were."""
    place = {ROOT / "tests" / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real data: UNTILT_DATA, or ../shared/data seen from the project's root."""
    folder = Path(os.environ.get("UNTILT_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is no folder; set UNTILT_DATA to where it lies")
    return folder


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def build_log(sessions, *, n_queries=None, **more):
    """A log from (query, documents from the top down, clicked documents, count, ranker).

    Documents are numbers within their query; None leaves a position empty.
    """
    sessions = [(*session, *(1, "base")[len(session) - 3 :]) for session in sessions]
    n_queries = n_queries or 1 + max(q for q, *_ in sessions)
    keys = sorted({(q, d) for q, docs, *_ in sessions for d in docs if d is not None})
    index = {key: i for i, key in enumerate(keys)}
    names = sorted({r for *_, r in sessions})
    rows = [
        [(index[q, d], k, float(d in c)) for k, d in enumerate(docs, 1) if d is not None]
        for q, docs, c, *_ in sessions
    ]
    flat = np.array([row for listed in rows for row in listed])
    return ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.array([d for _, d in keys]),
        doc_query=np.array([q for q, _ in keys]),
        indptr=np.concatenate([[0], np.cumsum([len(listed) for listed in rows])]),
        query=np.array([q for q, *_ in sessions]),
        document=flat[:, 0].astype(int),
        position=flat[:, 1].astype(int),
        label=flat[:, 2],
        count=np.array([n for _, _, _, n, _ in sessions]),
        ranker=np.array([names.index(r) for *_, r in sessions]),
        ranker_names=tuple(names),
        **more,
    )


def random_sessions(rng, *, n_sessions=400, n_queries=6, n_documents=5, depth=4, ranker=None):
    """Sessions of queries with random relevance, lists in random order, theta_k = 1/k."""
    relevance = rng.uniform(0.2, 0.9, size=(n_queries, n_documents))
    made = []
    for _ in range(n_sessions):
        q = int(rng.integers(n_queries))
        docs = rng.permutation(n_documents)[:depth].tolist()
        clicked = [d for k, d in enumerate(docs, 1) if rng.random() < relevance[q, d] / k]
        made.append((q, docs, clicked, int(rng.integers(1, 4)), ranker or "shuffle"))
    return made


def plain_cells(log):
    """{(query, document): {position: [impressions, clicks]}}, row by row."""
    cells = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for i in range(log.n_lists):
        for row in range(log.indptr[i], log.indptr[i + 1]):
            cell = cells[int(log.query[i]), int(log.document[row])][int(log.position[row])]
            cell[0] += float(log.sessions[i])
            cell[1] += float(log.sessions[i] * log.label[row])
    return cells


def a_version_per_impression(log):
    """The same sessions, with a feature of its own for every row: as many versions as rows.

    Documents that no list shows stay, each with one version.
    """
    unshown = np.setdiff1d(np.arange(log.n_documents), log.document)
    owner = np.concatenate([log.document, unshown])
    order = np.argsort(owner, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    own = np.arange(len(order), dtype=np.float32)[:, None]
    features = own if log.features is None else np.hstack([log.features[owner[order]], own])
    return replace(
        log,
        doc_id=log.doc_id[owner[order]],
        doc_query=log.doc_query[owner[order]],
        document=place[: len(log.document)],
        features=features,
        feature_names=(*log.feature_names, "price"),
        item=owner[order],
    )


def shop_columns(n_sessions=6000, *, n_queries=60, depth=6, by_price=0.0, seed=0):
    """Columns of a shop's log: the price changes day by day and drives the clicks.

    theta_k = 1 / k; gamma, the relevance of each impression, stands beside. Production orders by
    quality and by what it makes of the day; `by_price` is how much a low price moves a document up.
    """
    rng = np.random.default_rng(seed)
    n_docs, days = depth + 3, 40
    quality = rng.normal(size=(n_queries, n_docs))
    price = np.cumsum(rng.normal(scale=0.35, size=(n_queries, n_docs, days)), axis=2)
    mood = rng.normal(size=(n_queries, n_docs, days))
    query, day = rng.integers(n_queries, size=n_sessions), rng.integers(days, size=n_sessions)
    today = price[query, :, day] - price[query, :, day].mean(axis=1, keepdims=True)
    order = np.argsort(by_price * today - quality[query] - mood[query, :, day], axis=1)[:, :depth]
    shown = np.take_along_axis(today, order, axis=1)
    quality_shown = np.take_along_axis(quality[query], order, axis=1)
    gamma = 1 / (1 + np.exp(1.5 * shown - 0.5 * quality_shown))
    position = np.tile(np.arange(1, depth + 1), n_sessions)
    clicked = rng.random(gamma.size) < gamma.ravel() / position
    return {
        "query_id": np.repeat(query, depth),
        "session_id": np.repeat(np.arange(n_sessions), depth),
        "doc_id": (order + 1000 * query[:, None]).ravel(),
        "position": position,
        "click": clicked.astype(int),
        "timestamp": np.repeat(day, depth),
        "quality": quality_shown.ravel(),
        "price": shown.ravel(),
        "gamma": gamma.ravel(),
    }


@pytest.fixture(scope="session")
def shop():
    return shop_columns


@pytest.fixture
def with_versions():
    return a_version_per_impression


@pytest.fixture
def make_log():
    return build_log


@pytest.fixture
def shuffled_log(rng):
    return build_log(random_sessions(rng))


@pytest.fixture
def make_sessions():
    return random_sessions


@pytest.fixture
def cells_by_hand():
    return plain_cells

"""What the package says and computes on small logs, recorded; and compared with what it says now.

    python tools/golden.py record build/golden            # all of it
    python tools/golden.py compare build/golden           # after a change: exit 1 where it differs
    python tools/golden.py compare build/golden --only run,bias --kinds json,arrays
    PYTHONPATH=../other/src python tools/golden.py compare build/golden    # another source tree

For refactoring: same logs, same seeds, same results. There are no stored results in the repository:
record them with the source before the change, compare with the source after it. Kinds of items:

    arrays   numbers of every method of the catalogue: fitted attributes, tables, samples
    json     what each command prints with --json, and its exit code
    text     what audit, plan, bias, ... print for people
    page     HTML and Markdown that commands write: report.html, cards
    files    other files that they write: figures, tables, exports, rankers (by their numbers)

An item is a file `kind/log/command...`; `--only` takes parts of that name, or patterns of it, with
commas between them. Time is fixed by SOURCE_DATE_EPOCH. Keys that JSON gained are told, and are no
difference. Everything runs in one process and with one thread, and takes a few minutes;
`record --times` runs some benchmarks as well and keeps what they print.
"""

import argparse
import contextlib
import dataclasses
import difflib
import fnmatch
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {
    "SOURCE_DATE_EPOCH": "1790000000", "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1",
    "OMP_WAIT_POLICY": "passive", "TZ": "UTC", "JAX_PLATFORMS": "cpu",
}  # fmt: skip

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

KINDS = ("arrays", "json", "text", "page", "files")
FOR_PEOPLE = {"audit", "plan", "bias", "evaluate", "run", "watch", "clickmodels", "export", "score"}
# Times and places that no two machines share.
TIMED = re.compile(r"seconds|elapsed|peak_.*|speed|took|python|platform|machine|cores")
LONG = 60_000  # characters of a text that is kept whole
BENCHMARKS = ("bench_read_log.py", "bench_run.py --small", "bench_score.py", "bench_serve.py")


# ---- logs


@dataclass(frozen=True)
class Log:
    """A log in files of a folder, and the commands that make sense on it.

    reading : options of every command that reads the log
    features : further ones of those that learn
    methods : of `untilt bias`, beside the one that the audit advises
    curve : what rankers are trained and judged with
    more : names of further steps
    """

    make: Callable[[Path], object]
    source: tuple[str, ...] = ("clicks.parquet",)
    reading: tuple[str, ...] = ()
    features: tuple[str, ...] = ("--features", "f*")
    methods: tuple[str, ...] = ()
    curve: str = "power-law:1"
    more: tuple[str, ...] = ()


def simulated(protocol: str, *more: str) -> Callable[[Path], object]:
    """A log that `untilt simulate` makes."""
    words = f"simulate --out . --protocol {protocol} --queries 120 --features 6 --sessions 2500"
    return lambda _: untilt(*words.split(), "--depth", "8", "--seed", "3", "--force", *more)


def wild(name: str, *, keep: int = 3, **columns: Any) -> Callable[[Path], object]:
    """Every third session of a log of the tests' own simulator, which needs no package."""

    def make(folder: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from tests.wall import logs

        frame = getattr(logs, name)(5, "usual").frame
        frame = frame[frame["session_id"] % keep == 0].reset_index(drop=True)
        frame = frame.assign(**{key: value(frame) for key, value in columns.items()})
        columns_only = {key: frame[key].to_numpy() for key in frame}
        pq.write_table(pa.table(columns_only), folder / "clicks.parquet")

    return make


def of_a_grid(folder: Path) -> None:
    """Nine cells, read in the shape of an F."""
    import untilt as ut

    judged = ut.make_judged(80, 5, seed=2)
    log = ut.simulate_grid(judged, ut.Grid(3, 3), "f-shape", n_sessions=2500, seed=2).log
    ut.write_log(log, folder / "clicks.parquet", documents=folder / "documents.parquet")


def of_people(folder: Path) -> None:
    """Two rankers, two devices and times; no features."""
    from tests.auditing.people import people

    import untilt as ut

    log = people(3, n_queries=40, sessions=2500, devices=(0.5, 1.3))
    ut.write_log(log, folder / "clicks.parquet")


def bad_rows(folder: Path) -> None:
    """Rows written twice, impossible positions, missing ids."""
    wild("duplicated_rows")(folder)
    import pyarrow.parquet as pq

    frame = pq.read_table(folder / "clicks.parquet").to_pandas()
    frame.loc[::211, "position"] = -1
    frame.loc[5::307, "query_id"] = None
    frame.to_parquet(folder / "clicks.parquet")


def time_of(frame: Any) -> Any:
    """Sessions of a query at all times."""
    return (frame["session_id"] * 7919 % 6007).to_numpy().astype(float)


BESIDE = ("--documents", "documents.parquet")
HARVESTED = ("all-pairs", "pivot", "adjacent-chain", "regression-em", "trust-em")
LOGS = {
    "harvest": Log(
        simulated("harvest", "--as-ubi"), features=BESIDE, methods=HARVESTED, curve="bias.json",
        more=("clickmodels", "select", "exports", "judgments", "evaluators", "labels", "shapes"),
    ),
    "ubi": Log(
        simulated("harvest", "--as-ubi"), ("--ubi", "ubi_queries.jsonl", "ubi_events.jsonl"),
        features=BESIDE, methods=("all-pairs",),
    ),
    "dla": Log(simulated("dla"), features=BESIDE, methods=("regression-em",), more=("labels",)),
    "trust": Log(simulated("trust"), features=BESIDE, methods=("trust-em",)),
    "cascade": Log(simulated("cascade"), features=BESIDE, more=("clickmodels",)),
    "dwell": Log(simulated("dwell"), features=BESIDE, reading=("--label", "dwell")),
    "swap": Log(
        simulated("swap"), features=BESIDE, methods=("pivot-swap",), curve="bias.json",
    ),
    "shuffle": Log(
        wild("shuffles"), methods=("shuffled-top", "adjacent-chain"), curve="bias.json",
        more=("select",),
    ),
    "grid": Log(of_a_grid, features=BESIDE, methods=("all-pairs",), curve="bias.json"),
    "people": Log(
        of_people, features=(), methods=("all-pairs", "context"), more=("watch", "judgments"),
    ),
    "devices": Log(
        wild("devices", device=lambda f: np.where(f["session_id"] % 2, "a", "b")),
        reading=("--context", "device"), methods=("regression-em",),
    ),
    "release": Log(
        wild("release", timestamp=lambda f: f["session_id"].to_numpy().astype(float)),
        methods=("all-pairs",), more=("watch",),
    ),
    "versions": Log(
        wild("changing_features", timestamp=time_of), methods=("regression-em",), more=("watch",),
    ),
    "leak": Log(wild("label_leak")),
    "bad": Log(bad_rows, reading=("--on-bad", "drop"), more=("refused",)),
    "deep": Log(wild("infinite_scroll"), more=("clickmodels",)),
    "bare": Log(wild("no_features"), features=(), more=("judgments",)),
}  # fmt: skip


# ---- commands


@dataclass(frozen=True)
class Step:
    """One command; `needs` are steps that come before it."""

    name: str
    words: tuple[str, ...]
    needs: tuple[str, ...] = ()


def steps_of(log: Log) -> Iterator[Step]:
    """The commands on a log, in their order."""
    read = (*log.source, *log.reading)
    shorter = tuple(each for each in log.reading if each not in ("--context", "device"))
    learned, curve = (*log.source, *shorter, *log.features), ("--bias", log.curve)
    before = ("bias",) if log.curve == "bias.json" else ()
    yield Step("audit", ("audit", *read, *log.features))
    yield Step("plan", ("plan", *log.source, *shorter))
    yield Step("bias", ("bias", *learned, "--out", "bias.json"))
    for name in log.methods:
        chosen = ("--context", "device") if name == "context" else ("--method", name)
        yield Step(f"bias-{name}", ("bias", *learned, *chosen, "--out", f"bias-{name}.json"))
    yield Step("collapse", ("collapse", *read, "--out", "counted.parquet"))
    yield Step("split", ("split", *learned, "--out", "parts", "--force"))
    yield from _of_rankers(log, curve, before) if log.features else ()
    yield Step(
        "run",
        ("run", *read, *log.features, "--method", "prs", "--method", "balanced", "--trees", "8",
         "--folds", "2", "--threads", "1", "--out", "run", "--force"),
    )  # fmt: skip
    yield Step("report", ("report", "run", "--out", "again.html"), ("run",))
    for name in log.more:
        yield from FURTHER[name](log, learned, curve, before)


def _of_rankers(log: Log, curve: tuple[str, ...], before: tuple[str, ...]) -> Iterator[Step]:
    shorter = tuple(each for each in log.reading if each not in ("--context", "device"))
    beside = log.features == BESIDE
    parts = {
        part: (f"parts/{part}.parquet", *(() if log.source[0] == "--ubi" else shorter),
               *(("--documents", f"parts/{part}-documents.parquet") if beside else log.features))
        for part in ("train", "test")
    }  # fmt: skip
    small = ("--threads", "1", "--trees", "8", *curve)
    train, test = ("train", *parts["train"]), parts["test"]
    yield Step(
        "train-prs",
        (*train, "--method", "prs", *small, "--out", "prs.untilt", "--card", "card.md"),
        ("split", *before),
    )
    linear = ("--ranker", "linear", "--method", "clicks", "--out", "linear.untilt")
    yield Step("train-linear", (*train, *linear), ("split",))
    rankers = ("--ranker", "prs=prs.untilt", "--ranker", "linear.untilt")
    trained = ("train-prs", "train-linear", *before)
    yield Step("evaluate", ("evaluate", *test, *rankers, *curve), trained)
    table = "documents.parquet" if beside else "parts/test.parquet"
    yield Step("score", ("score", "prs.untilt", table, "--out", "scored.parquet"), ("train-prs",))


def _clickmodels(_log: Log, learned: Any, *_: Any) -> Iterator[Step]:
    words = tuple(
        each for each in learned if each not in BESIDE and each not in ("--features", "f*")
    )
    yield Step("clickmodels", ("clickmodels", *words, "--draws", "30"))


def _select(_log: Log, learned: Any, curve: Any, before: Any) -> Iterator[Step]:
    tried = ("--method", "prs", "--method", "clicks", "--trees", "6", "--threads", "1", *curve)
    files = ("--out", "chosen.untilt", "--card", "chosen.md")
    yield Step("select", ("select", *learned, *tried, *files), before)


ENDINGS = {"onnx": ".onnx", "c": ".c", "lightgbm": ".txt"}


def _exports(*_: Any) -> Iterator[Step]:
    from untilt import catalog

    for name in catalog.names("export"):
        for ranker in ("prs", "linear"):
            out = f"export-{ranker}/{name}{ENDINGS.get(name, '.json')}"
            words = ("export", f"{ranker}.untilt", "--to", name, "--name", "golden", "--out", out)
            checked = ("--check", "documents.parquet")
            yield Step(f"export-{ranker}-{name}", (*words, *checked), (f"train-{ranker}",))


def _judgments(log: Log, _learned: Any, curve: Any, before: Any) -> Iterator[Step]:
    for ending in ("json", "qrels", "csv"):
        words = ("judgments", *log.source, *log.reading, *curve, "--out", f"judged.{ending}")
        yield Step(f"judgments-{ending}", words, before)


def _watch(log: Log, learned: Any, *_: Any) -> Iterator[Step]:
    live = ("--new", "v2", "--old", "v1") if log is LOGS["release"] else ()
    files = ("--page", "watch.html", "--prometheus", "watch.prom")
    yield Step("watch", ("watch", *learned, *live, *files))


def _evaluators(_log: Log, _learned: Any, curve: Any, before: Any) -> Iterator[Step]:
    from untilt import catalog

    test = ("parts/test.parquet", "--documents", "parts/test-documents.parquet")
    ranker = ("--ranker", "new=prs.untilt", *curve)
    for name in catalog.names("evaluator"):
        words = ("evaluate", *test, *ranker, "--evaluator", name, "--among", "shown")
        yield Step(f"evaluate-{name}", words, ("train-prs", *before))
    plots = ("--plot", "plot.json", "--clip-plot", "clip.json", "--sensitivity-plot", "turn.json")
    words = ("evaluate", *test, *ranker, "--interval", "bootstrap", "--metric", "arp", *plots)
    yield Step("evaluate-plots", words, ("train-prs", *before))


def _labels(*_: Any) -> Iterator[Step]:
    small = ("--letor", "--trees", "8", "--threads", "1", "--out", "labels.untilt")
    yield Step("train-letor", ("train", "train.txt.gz", *small))
    words = ("evaluate", "test.txt.gz", "--letor", "--ranker", "labels.untilt")
    yield Step("evaluate-letor", (*words, "--metric", "ndcg@5"), ("train-letor",))


def _levels(_log: Log, learned: Any, *_: Any) -> Iterator[Step]:
    yield Step("bias-level", ("bias", *learned, "--plot", "curve.json", "--level", "0.8"))


def _refused(log: Log, *_: Any) -> Iterator[Step]:
    yield Step("audit-refused", ("audit", *log.source))
    yield Step("audit-unknown", ("audit", "nothing.parquet"))
    yield Step("run-wrong", ("run", *log.source, "--metric", "ndgc@10"))
    yield Step("methods", ("methods",))


FURTHER: Mapping[str, Callable[..., Iterator[Step]]] = {
    "clickmodels": _clickmodels, "select": _select, "exports": _exports, "judgments": _judgments,
    "watch": _watch, "evaluators": _evaluators, "labels": _labels, "shapes": _levels,
    "refused": _refused,
}  # fmt: skip


def untilt(*words: str) -> Any:
    """One command in this process."""
    from typer.testing import CliRunner

    from untilt.cli.main import app

    sys.argv = ["untilt", *words]
    return CliRunner().invoke(app, list(words))


Items = Iterator[tuple[str, Any]]


def items_of_log(name: str, log: Log, wanted: Callable[[str, str], set[str]]) -> Items:
    """(file, content) of everything that the wanted commands print and write."""
    steps = {step.name: step for step in steps_of(log)}
    kinds = {step: wanted(name, step) for step in steps}
    if not any(kinds.values()):
        return
    done: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, contextlib.chdir(folder):
        log.make(Path(folder))
        for each in [step for step in steps if kinds[step]]:
            for step in [*_before(steps, each), each]:
                if step not in done:
                    done.add(step)
                    found = _run(steps[step], folder)
                    if step == each:
                        yield from _asked(name, step, found, kinds[step])
            if "text" in kinds[each] and each.split("-")[0] in FOR_PEOPLE:
                yield f"text/{name}/{each}.txt", _told(untilt(*steps[each].words), folder)


def _before(steps: Mapping[str, Step], name: str) -> list[str]:
    needs = [each for each in steps[name].needs if each in steps]
    return [step for each in needs for step in (*_before(steps, each), each)]


def _run(step: Step, folder: str) -> dict[str, Any]:
    """Kind and file -> content."""
    before = _files(Path())
    result = untilt(*step.words, "--json")
    try:
        said = {"exit": result.exit_code, "output": json.loads(result.stdout)}
    except ValueError:
        said = {"exit": result.exit_code, "stdout": result.stdout, "stderr": result.stderr}
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        said["exception"] = repr(result.exception)
    found: dict[str, Any] = {"json": _placed(plain(said), folder)}
    for path, written in _files(Path()).items():
        if before.get(path) != written:
            kind = "page" if path.suffix in (".html", ".md") else "files"
            found[f"{kind} {path}"] = _content(path, folder)
    return found


def _asked(name: str, step: str, found: Mapping[str, Any], kinds: set[str]) -> Items:
    for what, content in found.items():
        kind, _, path = what.partition(" ")
        if kind in kinds:
            ending = "json" if not isinstance(content, str) else "txt"
            inside = f"/{path.replace('/', '.')}" if path else ""
            yield f"{kind}/{name}/{step}{inside}.{ending}", content


def _told(result: Any, folder: str) -> str:
    parts = (f"exit {result.exit_code}", result.stdout, result.stderr)
    return _placed("\n".join(part for part in parts if part), folder)


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    kept = (
        path
        for path in paths
        if not any(part.startswith(".") or part == "work" for part in path.parts)
    )
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in kept}


def _content(path: Path, folder: str) -> Any:
    if path.suffix == ".parquet":
        return _table(path)
    if path.suffix == ".untilt":
        return _ranker(path)
    try:
        text = path.read_text(encoding="utf8")
    except UnicodeDecodeError:
        return {"hash": sha256(path.read_bytes()), "bytes": path.stat().st_size}
    if path.suffix == ".json" and len(text) < 20 * LONG:
        return _placed(plain(json.loads(text)), folder)
    if path.suffix == ".html":  # libraries of the charts by their hash, one tag on each line
        shorter = re.sub(r"(?s)<script>.{20000,}?</script>", _hashed, text)
        return _placed(re.sub(r">\s*<", ">\n<", shorter), folder)
    text = _placed(text, folder)
    return text if len(text) < LONG else text[:2000] + f"\n... sha256 {sha256(text.encode())}\n"


def _hashed(script: re.Match[str]) -> str:
    return f"<script hash={sha256(script.group().encode())}>"


def _placed(value: Any, folder: str) -> Any:
    """Without the name of the temporary folder."""
    if isinstance(value, str):
        return value.replace(os.path.realpath(folder), "FOLDER").replace(folder, "FOLDER")
    if isinstance(value, dict):
        return {key: _placed(each, folder) for key, each in value.items()}
    return [_placed(each, folder) for each in value] if isinstance(value, list) else value


def _table(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    whole = table.num_rows <= 60
    columns = {
        name: {"type": str(column.type), **_values(column.to_pylist(), whole=whole)}
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return {"rows": table.num_rows, "columns": columns}


def _values(values: list[Any], *, whole: bool) -> dict[str, Any]:
    shown = values if whole else values[:3]
    return {"hash": sha256(repr(values).encode()), "values": [str(each) for each in shown]}


def _ranker(path: Path) -> dict[str, Any]:
    """The hash of the file, and the numbers in it, which outlive a change of its format."""
    import untilt as ut

    ranker = ut.load(path)
    rows = np.random.default_rng(0).normal(size=(50, len(ranker.feature_names_)))
    scores = ranker.predict(rows.astype(np.float32))
    numbers = {"scores": numbers_of(scores), "fitted": numbers_of(ranker)}
    return {"hash": sha256(path.read_bytes()), **numbers}


# ---- numbers of methods


def sha256(content: bytes) -> str:
    """The first half of the hash."""
    return hashlib.sha256(content).hexdigest()[:16]


def plain(value: Any) -> Any:
    """Without the keys that hold times, and without the checksums of files."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if not TIMED.fullmatch(str(key))}
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value):
        return "checksum"
    return [plain(each) for each in value] if isinstance(value, list) else value


def numbers_of(value: Any, depth: int = 6) -> Any:  # noqa: PLR0911
    """Arrays by their hash, numbers, objects by what they learned; words are left out."""
    if isinstance(value, bool | int | float | np.generic):
        return value.item() if isinstance(value, np.generic) else value
    if depth == 0 or value is None or isinstance(value, str | bytes | type) or callable(value):
        return None
    if isinstance(value, Mapping):
        return _kept({str(key): numbers_of(each, depth - 1) for key, each in value.items()})
    if hasattr(value, "model_to_string"):  # LightGBM
        return {"trees": sha256(value.model_to_string().encode())}
    if hasattr(value, "__array__") and not dataclasses.is_dataclass(value):
        array = np.asarray(value)
        if array.dtype.kind in "OUSM":
            return {"items": len(array.ravel()), "hash": sha256(repr(array.tolist()).encode())}
        head = [float(each) for each in array.ravel()[:3]]
        content = np.ascontiguousarray(array).tobytes()
        return {"shape": list(array.shape), "type": str(array.dtype), "hash": sha256(content),
                "head": head}  # fmt: skip
    if isinstance(value, list | tuple):
        return [numbers_of(each, depth - 1) for each in value]
    learned = {name for name in getattr(value, "__dict__", {}) if name.endswith("_")}
    if dataclasses.is_dataclass(value):
        learned |= {field.name for field in dataclasses.fields(value)}
    named = {name: getattr(value, name, None) for name in sorted(learned)}
    inside = {name: each for name, each in named.items() if not name.startswith("_")}
    return _kept({name: numbers_of(each, depth - 1) for name, each in inside.items()})


def _kept(found: dict[str, Any]) -> dict[str, Any] | None:
    return {name: each for name, each in found.items() if each is not None} or None


def log_for_all(seed: int = 0, n_sessions: int = 1500, n_queries: int = 25) -> Any:
    """Base lists, swaps and shuffles, features that tell relevance, a device: for all methods."""
    import untilt as ut

    rng = np.random.default_rng(seed)
    swapped = {(): "base", (0, 1): "swap:1-2", (0, 2): "swap:1-3", (0, 3): "swap:1-4",
               (1, 2): "swap:2-3", (2, 3): "swap:3-4"}  # fmt: skip
    names = (*swapped.values(), "shuffle")
    orders = np.tile(np.arange(5), (len(names), 1))
    for i, pair in enumerate(swapped):
        orders[i, list(pair)] = orders[i, list(pair[::-1])]
    relevance = rng.uniform(0.1, 0.9, size=(n_queries, 5))
    query, ranker = rng.integers(n_queries, size=n_sessions), rng.integers(7, size=n_sessions)
    order = orders[ranker]
    order[ranker == 6] = rng.permuted(order[ranker == 6], axis=1)
    order, theta = order[:, :4], np.array([1.0, 0.7, 0.5, 0.4])
    clicks = rng.random(order.shape) < theta * relevance[query[:, None], order]
    noise = rng.normal(scale=0.1, size=(n_queries * 5, 3))
    return ut.ClickLog(
        np.arange(n_queries), np.tile(np.arange(5), n_queries), np.repeat(np.arange(n_queries), 5),
        np.arange(0, 4 * n_sessions + 1, 4), query, (query[:, None] * 5 + order).ravel(),
        np.tile(np.arange(1, 5), n_sessions), clicks.ravel().astype(float),
        features=relevance.reshape(-1, 1) + noise, ranker=ranker, ranker_names=names,
        context={"device": np.where(rng.random(n_sessions) < 0.5, "phone", "desk")},
    )  # fmt: skip


FEW = {"widths": (8,), "epochs": 6, "learning_rate": 0.02}
TREES = {"n_trees": 6, "n_leaves": 5, "min_data_in_leaf": 3, "n_threads": 1, "folds": 2}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "lambdamart": TREES, "linear": {"max_rounds": 4}, "svm": {"max_rounds": 4},
    "svm-dcg": {"max_rounds": 4, "C": 30.0}, "neural": FEW, "dual-learning": FEW, "tower": FEW,
    "pal": FEW, "pairwise-trust": {**FEW, "bias": (1.0, 0.7, 0.5, 0.4)},
    "feedback-towers": {**FEW, "towers": {"click": "product"}},
    "ncm": {"width": 8, "vector_length": 3, "epochs": 4, "batch_size": 128},
}  # fmt: skip


def numbers_of_method(record: Any, log: Any) -> Any:
    """What one method of the catalogue computes on the log."""
    return _OF_KIND[record.kind](record, log, dict(SMALL.get(record.name, {})))


def _of_estimator(record: Any, log: Any, small: dict[str, Any]) -> Any:
    found = {"fitted": record.make(**small).fit(log)}
    if "relevance" in record.takes:
        found |= {how: record.make(relevance=how).fit(log) for how in ("features", "counts")}
    return found


def _of_ranker(record: Any, log: Any, small: dict[str, Any]) -> Any:
    ranker = record.make(**small).fit(log)
    found = {"fitted": ranker, "scores": ranker.predict(log.features)}
    return found | {"value": ranker.score(log, bias=_bias())}


def _of_click_model(record: Any, log: Any, small: dict[str, Any]) -> Any:
    import untilt as ut

    model = record.make(**small).fit(log)
    said = {}
    for name in ("click_probability", "conditional_probability", "examination_probability"):
        with contextlib.suppress(ut.UntiltError):  # not every model says where people looked
            said[name] = getattr(model, name)(log)
    said["log_likelihood"] = model.log_likelihood(log)
    return {"fitted": model, **said, "sample": model.sample(log, seed=1).label}


def _of_weighting(record: Any, log: Any, _: dict[str, Any]) -> Any:
    import untilt as ut

    trees = {"trees": 4, "folds": 2} if record.name == "doubly-robust" else {}
    made = record.make(*([_bias()] if "bias" in record.needs else []), **trees)
    found: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # joint ones have no table before they have learned one
        found |= {"table": made.table(4), "offset": made.offset(4), "sides": made.sides(4)}
    for name, ranker in (("lambdamart", ut.LambdaMART), ("linear", ut.LinearRanker)):
        with contextlib.suppress(ut.UntiltError):
            found[name] = ranker(made, **SMALL[name]).fit(log).predict(log.features)
    return found


def _of_objective(record: Any, log: Any, _: dict[str, Any]) -> Any:
    import untilt as ut

    ranker = ut.LambdaMART(**TREES, **record.options, bias=_bias()).fit(log)
    return {"fitted": ranker, "scores": ranker.predict(log.features)}


def _of_curve(record: Any, _log: Any, _: dict[str, Any]) -> Any:
    three = {"known": [(1.0, 0.6, 0.3)], "click-count": [(9.0, 5.0, 2.0)]}
    curve = record.make(*{**three, "page-steps": (0.7, 0.4, 0.2)}.get(record.name, ()))
    depth = 3 if record.name in three else 8
    return {"at": curve.at(np.arange(1, depth + 1)), "curve": curve}


def _of_metric(record: Any, _log: Any, _: dict[str, Any]) -> Any:
    rng = np.random.default_rng(1)
    labels, scores = rng.integers(0, 4, 90).astype(float), rng.normal(size=90).round(1)
    indptr, found = np.arange(0, 91, 9), {}
    for k in (1, 3, 10) if "cut" in record.needs or record.name != "arp" else ():
        found[f"at {k}"] = record.make(k).per_list(scores, labels, indptr)
        found[f"mean {k}"] = record.make(k).mean(scores, labels, indptr)
    if "cut" not in record.needs:
        found["whole"] = record.make().per_list(scores, labels, indptr)
    return found


def _of_evaluator(record: Any, log: Any, _: dict[str, Any]) -> Any:
    import untilt as ut

    rng = np.random.default_rng(2)
    systems = {"a": rng.normal(size=log.n_documents), "b": -log.features[:, 0]}
    bias = _bias() if "bias" in record.needs else None
    return {
        f"{among} {metric}": ut.estimate(
            log, systems, bias, evaluator=record.name, among=among, metric=metric
        )
        for among in ("list", "shown") for metric in ("dcg@3", "arp")
    }  # fmt: skip


def _of_protocol(record: Any, _log: Any, _: dict[str, Any]) -> Any:
    import untilt as ut

    judged = ut.make_judged(40, 5, seed=4)
    return ut.simulate(judged, record.make(), n_sessions=600, seed=4, n_threads=1)


def _bias() -> Any:
    import untilt as ut

    theta = np.array([1.0, 0.7, 0.5, 0.4])
    return ut.KnownBias(theta, eps_plus=np.full(4, 0.95), eps_minus=np.full(4, 0.05))


_OF_KIND: Mapping[str, Callable[[Any, Any, dict[str, Any]], Any]] = {
    "bias": _of_estimator, "ranker": _of_ranker, "click model": _of_click_model,
    "weighting": _of_weighting, "objective": _of_objective, "curve": _of_curve,
    "metric": _of_metric, "evaluator": _of_evaluator, "protocol": _of_protocol,
}  # fmt: skip


def items_of_methods(wanted: Callable[[str, str], set[str]]) -> Items:
    """(file, numbers) of every method of the catalogue."""
    from untilt import catalog

    log = log_for_all()
    for record in catalog.methods():
        kind = record.kind.replace(" ", "-")
        if record.kind in _OF_KIND and "arrays" in wanted(kind, record.name):
            yield f"arrays/{kind}/{record.name}.json", _numbers(record, log)


def _numbers(record: Any, log: Any) -> Any:
    try:
        return plain(numbers_of(numbers_of_method(record, log)))
    except Exception as error:  # a method that fails is recorded as such, and the others go on
        return {"raised": type(error).__name__, "message": str(error)}


# ---- record and compare


def items(only: list[str], kinds: set[str]) -> Items:
    """(file, content) of what is asked for."""

    def wanted(log: str, step: str) -> set[str]:
        return kinds if matches(f"{log}/{step}", only) else set()

    warnings.simplefilter("ignore")
    if "arrays" in kinds:
        yield from items_of_methods(wanted)
    if kinds - {"arrays"}:
        for name, log in LOGS.items():
            yield from items_of_log(name, log, wanted)


def matches(name: str, only: list[str]) -> bool:
    """Whether one of the patterns is in the name."""
    return not only or any(fnmatch.fnmatch(name, f"*{each}*") for each in only)


def as_text(content: Any) -> str:
    """As it is kept, for people to compare."""
    if isinstance(content, str):
        return content if content.endswith("\n") else content + "\n"
    return json.dumps(content, indent=1, sort_keys=True) + "\n"


def record(folder: Path, only: list[str], kinds: set[str], *, times: bool) -> int:
    """Write all items into the folder."""
    for path, content in items(only, kinds):
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(as_text(content), encoding="utf8")
        print(path, flush=True)
    for command in BENCHMARKS if times else ():
        words = [sys.executable, *(f"benchmarks/{command}".split())]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        (folder / f"{command.split('.')[0]}.times").write_text(done.stdout + done.stderr)
    return 0


def compare(folder: Path, only: list[str], kinds: set[str], *, lines: int) -> int:
    """Compute all items again, and say what became of each; 1 where one differs or is missing."""
    files = (path for kind in kinds for path in (folder / kind).rglob("*") if path.is_file())
    left = {path.relative_to(folder).as_posix() for path in files}
    left = {path for path in left if matches("/".join(_named(path)), only)}
    found: Counter[str] = Counter()
    for path, content in items(only, kinds):
        if path not in left:
            print(f"new        {path}", flush=True)
            continue
        left.remove(path)
        before, now = (folder / path).read_text(encoding="utf8"), as_text(content)
        added: list[str] = []
        is_json = path.endswith(".json")
        equal = same(json.loads(before), json.loads(now), "", added) if is_json else before == now
        found["equal" if equal else "different"] += 1
        more = f"   (more keys: {', '.join(added[:5])})" if equal and added else ""
        print(f"{'equal' if equal else 'DIFFERENT':10} {path}{more}", flush=True)
        if not equal:
            changes = difflib.unified_diff(before.splitlines(), now.splitlines(), lineterm="", n=1)
            print("\n".join(f"    {line[:220]}" for line in list(changes)[2 : 2 + lines]))
    for path in sorted(left):
        print(f"MISSING    {path}")
    print(f"{found['equal']} equal, {found['different']} different, {len(left)} missing")
    return int(bool(found["different"] or left))


def _named(path: str) -> tuple[str, ...]:
    """Log and command of an item: kind/log/command.json or kind/log/command/file.json."""
    _, log, *rest = path.split("/")
    return log, rest[0] if len(rest) > 1 else rest[0].rpartition(".")[0]


def same(before: Any, now: Any, where: str, added: list[str]) -> bool:
    """Whether all that was there is there; keys that came to it are put into `added`."""
    if isinstance(before, dict) and isinstance(now, dict):
        added += [f"{where}.{key}".lstrip(".") for key in now if key not in before]
        return all(
            key in now and same(each, now[key], f"{where}.{key}", added)
            for key, each in before.items()
        )
    if isinstance(before, list) and isinstance(now, list):
        pairs = enumerate(zip(before, now, strict=False))
        return len(before) == len(now) and all(
            same(one, two, f"{where}[{i}]", added) for i, (one, two) in pairs
        )
    return type(before) is type(now) and (before == now or repr(before) == repr(now) == "nan")


def main() -> int:
    """Read the options and do it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--only", default="", help="parts of log/command or kind/method, with commas"
    )
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--lines", type=int, default=14, help="of each difference")
    parser.add_argument("--times", action="store_true", help="record: run the benchmarks as well")
    given = parser.parse_args()
    only, kinds = [each for each in given.only.split(",") if each], set(given.kinds.split(","))
    if kinds - set(KINDS):
        parser.error(f"kinds are {', '.join(KINDS)}")
    folder = given.folder.resolve()
    if given.what == "record":
        return record(folder, only, kinds, times=given.times)
    return compare(folder, only, kinds, lines=given.lines)


if __name__ == "__main__":
    raise SystemExit(main())

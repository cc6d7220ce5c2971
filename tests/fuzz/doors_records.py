"""Doors for records: curves, figures, options, experiments, results, checkpoints."""

import json
import random
from pathlib import Path

import numpy as np
from tests.fuzz import mutations as m
from tests.fuzz.targets import target, written


def resealed_json(data: bytes, rng: random.Random) -> bytes:
    """The record changed, and its checksum made to fit most of the time."""
    if rng.random() < 0.2:
        return m.damaged(data, rng)
    record = m.changed(json.loads(data), rng)
    if isinstance(record, dict) and rng.random() < 0.9:
        record.pop("sha256", None)
        record["sha256"] = m.checksum(record)
    return m.json_bytes(record)


@target("bias.json", 14)
def _bias(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    curve = rng.choice(sorted((corpus / "curves").iterdir()))
    data = resealed_json(curve.read_bytes(), rng)
    bias = ut.PositionBias.load(written(folder / "bias.json", data))
    repr(bias), bias.to_json(), bias.at(1)
    depth = min(bias.depth, 10)
    if bias.known_depth >= depth:
        ut.IPS(bias).table(depth)
    repr(bias.compare(bias)) if bias.depth < 100 else None
    log = ut.read_log(
        corpus / ("grid.parquet" if curve.stem == "grid" else "counted.parquet"), context=["device"]
    )
    repr(ut.estimate(log, {"shown": ut.shown}, bias, metric=rng.choice(["dcg@3", "examination"])))
    bias.smooth() if bias.has_interval else None


@target("figures.json", 14)
def _figures(corpus: Path, folder: Path, rng: random.Random) -> None:
    import untilt as ut

    data = resealed_json((corpus / "figures.json").read_bytes(), rng)
    decision = ut.Decision.load(written(folder / "figures.json", data))
    _ = decision.answer, decision.no_answer, [str(each) for each in decision.warnings]
    if rng.random() < 0.1:  # a page takes two seconds
        ut.write_report(decision, folder / "report.html")


@target("run.toml", 8)
def _config(corpus: Path, folder: Path, rng: random.Random) -> None:
    from untilt.bias.given import parse_curve
    from untilt.workflow.config import read_config
    from untilt.workflow.options import options_of
    from untilt.workflow.stage_bias import bias_choice

    data = (corpus / "run" / "run.toml").read_bytes()
    if rng.random() < 0.8:
        data = m.reworded(data.decode(), rng, '=[], "').encode("utf-8", "surrogatepass")
    else:
        data = m.damaged(data, rng)
    given = read_config(written(folder / "run.toml", data))
    options = options_of({k: v for k, v in given.items() if k not in ("log", "out")})
    bias_choice(options.bias), parse_curve(options.fallback)


@target("experiment", 4)
def _experiment(corpus: Path, folder: Path, rng: random.Random) -> None:
    from untilt.papers.schema import load

    data = (corpus / "tiny.toml").read_text()
    data = m.reworded(data, rng, '=[], "')
    load(str(written(folder / "tiny.toml", data.encode("utf-8", "surrogatepass"))))


@target("results of reproduce", 6)
def _results(corpus: Path, folder: Path, rng: random.Random) -> None:
    from untilt.papers.cells import plan
    from untilt.papers.chart import tables_of
    from untilt.papers.claims import Summary, verdicts
    from untilt.papers.datasets import JudgedSource
    from untilt.papers.schema import load

    lines = (corpus / "results.jsonl").read_text().splitlines()
    place, kind = rng.randrange(len(lines)), rng.randrange(4)
    if kind <= 1:
        record = m.changed(json.loads(lines[place]), rng)
        if isinstance(record, dict) and rng.random() < 0.9:
            record.pop("sha256", None)
            record["sha256"] = m.checksum(record)
        lines[place] = m.json_bytes(record).decode("utf-8", "replace")
    elif kind == 2:
        lines[place] = m.reworded(lines[place], rng)
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    data = m.damaged(data, rng) if kind == 3 else data
    experiment = load(str(corpus / "tiny.toml"))
    what = plan(experiment, JudgedSource(), folder, scale="quick")
    what.results.path.parent.mkdir()
    what.results.path.write_bytes(data)
    finished = what.finished()
    if len(finished) == len(what.cells):
        summary = Summary(experiment, finished)
        verdicts(summary), tables_of(summary)


@target("journal", 8)
def _journal(corpus: Path, folder: Path, rng: random.Random) -> None:
    """Records and segments of a server, changed; with checksums that fit most of the time."""
    import msgspec

    from untilt.serving.collect import collect
    from untilt.serving.journal import framed

    def changed(record: dict) -> bytes:
        some = m.changed(record, rng) if rng.random() < 0.4 else {**record}
        if isinstance(some, dict) and some.get("features") == "two of two":
            some["features"] = rng.randbytes(16)
        try:
            return msgspec.msgpack.encode(some)
        except (OverflowError, UnicodeEncodeError, RecursionError):
            return rng.randbytes(50)  # nothing that MessagePack can hold

    names = {"type": "names", "id": "n", "names": ["x", "y"]}
    shown = {"type": "shown", "list": "20241004-" + "0" * 24, "time": 1_728_000_000_000_000,
             "session": "s", "query": "q", "documents": ["a", "b"], "ranker": "base", "model": "m",
             "experiment": "swaps:1-2=0.1", "probability": 0.9, "features": "two of two",
             "names": "n", "teams": [1, 2], "shadow": [2, 1], "shadow_model": "o"}  # fmt: skip
    event = {"type": "feedback", "event": "e", "list": shown["list"], "document": "a",
             "time": 1_728_000_000_000_001, "received": 1_728_000_000_000_002, "label": "click",
             "value": 1.0}  # fmt: skip
    data = framed([changed(each) for each in (names, shown, event) * 3], rng.randbytes(16), 0)
    data = m.damaged(data, rng) if rng.random() < 0.3 else data
    (folder / "log").mkdir()
    written(folder / "log" / "x.journal", data)
    collect(folder / "log", folder / "out", set_aside=rng.random() < 0.5)


@target("checkpoint", 4, quick=False)
def _checkpoint(corpus: Path, folder: Path, rng: random.Random) -> None:
    """A damaged checkpoint; its head can also be rewritten, since nothing seals it."""
    from untilt.networks.training import load_checkpoint

    data = (corpus / "checkpoint.npz").read_bytes()
    with np.load(corpus / "checkpoint.npz") as arrays:
        parts = dict(arrays)
    head = json.loads(parts["head"].tobytes())
    if rng.random() < 0.4:
        data = m.damaged(data, rng)
    else:
        new = m.json_bytes(m.changed(head, rng))
        parts["head"] = np.frombuffer(new, dtype=np.uint8)
        np.savez(folder / "made.npz", **parts)
        data = (folder / "made.npz").read_bytes()
    load_checkpoint(written(folder / "checkpoint.npz", data), fingerprint=head["fingerprint"])

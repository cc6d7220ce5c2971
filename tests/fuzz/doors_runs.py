"""Doors for whole commands: the folder of a run with a damaged file, and odd options."""

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz import mutations as m
from tests.fuzz.corpus import RUN_OPTIONS
from tests.fuzz.doors_models import use_model
from tests.fuzz.doors_records import resealed_json
from tests.fuzz.doors_tables import UBI, use_judged, use_log
from tests.fuzz.targets import RefusedError, WrongResultError, target


@target("run folder", 4)
def _run_folder(corpus: Path, folder: Path, rng: random.Random) -> None:
    """One file damaged, emptied, gone or replaced; the same call ends, with the same figures."""
    import untilt as ut

    run = folder / "run"
    shutil.copytree(corpus / "run", run)
    # The report takes seconds to draw again and holds nothing that a run reads.
    files = sorted(f for f in run.rglob("*") if f.is_file() and f.name != "report.html")
    file = rng.choice(files)
    data = file.read_bytes()
    kind = rng.randrange(6)
    # A record with a checksum that fits is believed: no key, no proof of who wrote it.
    forged = kind == 2 and file.suffix == ".json" and bool(data)
    if kind == 0:
        file.unlink()
    elif kind == 1:
        file.write_bytes(b"")
    elif forged:
        file.write_bytes(resealed_json(data, rng))
    elif kind == 3:
        file.write_bytes(rng.choice(files).read_bytes())
    else:
        file.write_bytes(m.damaged(data, rng))
    (folder / "damaged.txt").write_text(f"{file.relative_to(run)} by {kind}\n")
    log, documents = corpus / "log" / "clicks.parquet", corpus / "log" / "documents.parquet"
    try:
        result = ut.run(log, run, documents=documents, **RUN_OPTIONS)
    except ut.UntiltError as error:
        if forged:
            raise
        raise WrongResultError(f"the same call did not recover: {error}") from error
    if forged:
        return
    good = ut.Decision.load(corpus / "figures.json")
    same(replace(result.decision, provenance=None), replace(good, provenance=None), "result")
    kept = replace(ut.Decision.load(run / "figures.json"), provenance=None)
    same(kept, replace(good, provenance=None), "figures.json")
    bias, kept_bias = (
        ut.PositionBias.load(corpus / "bias.json"),
        ut.PositionBias.load(run / "bias.json"),
    )
    same(kept_bias.to_json(), bias.to_json(), "bias.json")
    features = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
    scores = [
        ut.load(each / "candidate.untilt").predict(features) for each in (run, corpus / "run")
    ]
    same(scores[0].tolist(), scores[1].tolist(), "candidate.untilt")


def same(found: Any, wanted: Any, what: str) -> None:
    """Raise unless both are equal."""
    if found != wanted:
        raise WrongResultError(f"{what} differs from that of the undisturbed run")


ODD = [
    "", " ", "-1", "0", "1", "2", "0.5", "1e9", "nan", "inf", "-inf", "9" * 30, "x", "\x00", "é",
    "日本",
    "a=b", "=", "a=", "=b", ":", "a:b:c", "[", "{}", "None", "auto", "*", "~(", "power-law:nan",
    "power-law:-5", "power-law:1e400", "all-pairs:depth=-1", "all-pairs:depth=x", "eye-tracking:",
    "dcg@0", "dcg@-1", "dcg@99999999999999999999", "dcg@", "ndcg@10", "precision@x", "clicks",
    "log.csv",
    "bias.json", "figures.json", "ranker.untilt", "nobody.parquet", ".", "10m", "-3h", "1h1h",
    "keep", "2x3", "0x0", "99999x99999", "x3", "device", "curves/grid.json", "curves/context.json",
]  # fmt: skip
# Sizes of what a command is asked to make: a large number there is an honest wish for long work.
SIZES = ("--sessions", "--clicks", "--sessions-per-query", "--queries", "--features", "--threads",
         "--jobs", "--sessions-per-day")  # fmt: skip
SMALL_COMMANDS = {
    "run": [
        "run",
        "log.parquet",
        "--trees",
        "3",
        "--method",
        "linear",
        "--threads",
        "1",
        "-o",
        "o",
    ],
    "report": ["report", "figures.json", "-o", "o.html"],
    "explain": ["explain", "run.floor-clicks"],
    "simulate": ["simulate", "-o", "o", "--queries", "20", "--sessions", "200", "--features", "5"],
    "audit": ["audit", "log.parquet"],
    "plan": ["plan", "log.parquet"],
    "bias": ["bias", "log.parquet", "-o", "o.json"],
    "clickmodels": ["clickmodels", "log.parquet"],
    "split": ["split", "log.parquet", "-o", "o"],
    "train": [
        "train",
        "log.parquet",
        "--documents",
        "documents.parquet",
        "-o",
        "o.untilt",
        "--trees",
        "3",
    ],
    "evaluate": [
        "evaluate",
        "log.parquet",
        "--documents",
        "documents.parquet",
        "--ranker",
        "ranker.untilt",
    ],
    "select": [
        "select",
        "log.parquet",
        "--documents",
        "documents.parquet",
        "-o",
        "o.untilt",
        "--trees",
        "3",
    ],
    "reproduce": ["reproduce", "tiny.toml", "--quick", "-o", "o"],
    "export": ["export", "ranker.untilt", "-o", "o.txt"],
    "methods": ["methods"],
    "collapse": ["collapse", "log.parquet", "-o", "o.parquet"],
    "judgments": ["judgments", "log.parquet", "--bias", "power-law:1", "-o", "o.json"],
    "score": ["score", "ranker.untilt", "documents.parquet", "-o", "o.parquet"],
    "watch": ["watch", "log.parquet"],
}
# In place of log.parquet, for commands that know them.
OTHER_LOGS = [
    ["grid.parquet"],
    ["counted.parquet", "--context", "device"],
    ["--ubi", *UBI],
    ["log.sqlite", "--table", "clicks"],
    ["log.duckdb"],
    ["log.jsonl.zst"],
]


@target("command line", 10)
def _command_line(corpus: Path, folder: Path, rng: random.Random) -> None:
    """A small command with options of odd values; a paragraph and exit code 2, or it works."""
    import typer
    from typer.testing import CliRunner

    from untilt.cli.console import ALARM
    from untilt.cli.main import app

    for file in corpus.iterdir():
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    shutil.copytree(corpus / "curves", folder / "curves")
    shutil.copyfile(corpus / "models" / "ranker" / "lambdamart.untilt", folder / "ranker.untilt")
    command = rng.choice(sorted(SMALL_COMMANDS))
    words = list(SMALL_COMMANDS[command])
    if "log.parquet" in words and rng.random() < 0.4:
        place = words.index("log.parquet")
        words[place : place + 1] = rng.choice(OTHER_LOGS)
    known: Any = typer.main.get_command(app)
    options = [p for p in known.commands[command].params if p.opts and p.opts[0].startswith("--")]
    for _ in range(rng.choice([1, 1, 2, 3])):
        option = rng.choice(options)
        name = option.opts[0]
        values = [word for word in ODD if not (name in SIZES and len(word) > 2)]
        flag = getattr(option, "is_flag", False)
        words += [name, *(rng.choice(values) for _ in range(0 if flag else option.nargs))]
    if rng.random() < 0.2:
        words[rng.randrange(1, len(words))] = rng.choice(ODD)
    (folder / "command.txt").write_text(repr(words), encoding="utf-8", errors="replace")
    before = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, words)
    finally:
        os.chdir(before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code == 2:
        raise RefusedError(result.output)
    if result.exit_code not in (0, ALARM if command == "watch" else 0):
        raise WrongResultError(f"exit code {result.exit_code}: {result.output[-300:]}")


def warm_up(corpus: Path) -> None:
    """Use every good file once: libraries are loaded and kernels compiled before time counts."""
    import untilt as ut

    for name in ("log.parquet", "log.csv", "log.csv.gz", "log.duckdb", "grid.parquet"):
        use_log(ut.read_log(corpus / name))
    use_log(ut.read_ubi(*(corpus / name for name in UBI)))
    for name in ("judged.txt", "judged.txt.gz"):
        use_judged(ut.read_letor(corpus / name))
    for file in sorted((corpus / "models").rglob("*.untilt")):
        use_model(ut.load(file), corpus)
    bias = ut.PositionBias.load(corpus / "bias.json")
    repr(bias.compare(bias))
    # The drawing library maps much address space when it starts, and nothing later.
    ut.write_report(ut.Decision.load(corpus / "figures.json"), corpus / "warm.html")

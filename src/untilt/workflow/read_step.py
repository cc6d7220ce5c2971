"""Step 1: read the log, merge equal sessions, and keep the result for a run that goes on."""

import os
from collections.abc import Callable
from typing import Any

from untilt.errors import OptionError
from untilt.evaluation.select_key import key_of
from untilt.logs.clicklog import ClickLog
from untilt.workflow.data import Data
from untilt.workflow.fingerprint import FileDigests
from untilt.workflow.folder import RunFolder
from untilt.workflow.options import RunOptions
from untilt.workflow.steps import Done, Steps

READING = ("documents", "columns", "label", "features", "missing", "on_bad")


def read_step(
    source: Any, folder: RunFolder, options: RunOptions, steps: Steps
) -> tuple[Done, Data]:
    """The facts of the reading, and the log itself, which is loaded when first asked for."""
    files = FileDigests(folder.work / "inputs.json")
    given = None if isinstance(source, ClickLog) else files.of(source)
    documents = None if options.documents is None else files.of(options.documents)
    in_memory = given is None or (options.documents is not None and documents is None)
    if in_memory:
        return _from_memory(source, options, steps)
    held: dict[str, ClickLog] = {}

    def compute() -> dict[str, Any]:
        held["log"], facts = _read(source, options)
        _keep(held["log"], folder)
        return facts

    done = steps.run(
        "read",
        compute,
        options.pick("columns", "label", "missing", "on_bad"),
        _plain_features(options.features),
        given,
        documents,
        what="reading the log",
        files=lambda _: (folder.log, folder.documents),
    )
    load = _loader(held, folder, options)
    return done, Data(load, options)


def _from_memory(source: Any, options: RunOptions, steps: Steps) -> tuple[Done, Data]:
    """What is handed over in memory is there at every start; nothing is kept of it."""
    if isinstance(source, ClickLog):
        log, facts = source.collapse(), _facts("memory", source.n_impressions, {})
    else:
        log, facts = _read(source, options)
    done = steps.run("read", lambda: facts, key_of(log), what="reading the log")
    return done, Data(lambda: log, options)


def _read(source: Any, options: RunOptions) -> tuple[ClickLog, dict[str, Any]]:
    from untilt.logs.read import read_log_report

    log, report = read_log_report(source, **options.pick(*READING), threads=options.threads)
    if log.n_lists == 0:
        raise OptionError(f"{report.source} holds no session: there is nothing to learn from.")
    dropped = {f"{bad.table}: {bad.what}": bad.n_rows for bad in report.bad}
    return log, _facts(report.source, report.n_rows, dropped)


def _facts(source: str, n_rows: int, dropped: dict[str, int]) -> dict[str, Any]:
    return {"source": source, "rows": n_rows, "dropped": dropped}


def _keep(log: ClickLog, folder: RunFolder) -> None:
    from untilt.logs.write import write_log

    write_log(log, folder.log, documents=folder.documents)


def _loader(
    held: dict[str, ClickLog], folder: RunFolder, options: RunOptions
) -> Callable[[], ClickLog]:
    def load() -> ClickLog:
        if "log" in held:
            return held.pop("log")
        from untilt.logs.read import read_log

        return read_log(
            folder.log,
            documents=folder.documents,
            label=options.label,
            threads=options.threads,
        )

    return load


def _plain_features(features: Any) -> Any:
    """Names or a pattern; a function of the name is told by its own."""
    if callable(features):
        return f"{features.__module__}.{features.__qualname__}"
    return features if features is None or isinstance(features, str) else list(features)


def log_path(source: Any) -> str | None:
    """The path of a log that is a file, for the record."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else None

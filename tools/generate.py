"""Write what is derived from the records and from the code: `python tools/generate.py [PART ...]`.

    stub     src/untilt/__init__.pyi: the public names for type checkers and editors
    tables   what is derived in the documentation, between markers: tables of methods, coverage,
             quality, memory and of others
    api      tests/public_api.txt: every public name with its signature, to be reviewed in the diff
    notebooks   docs/notebooks: the cookbooks as they stand (tools/notebooks.py runs them)
    pages    docs/reproduced: pages, charts, index and claims from the results kept there; only
             where it is named

Tests say when one of them is out of date.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import typer

import untilt
from untilt import _names, catalog
from untilt.cli.main import app
from untilt.papers.page import republish

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))
import notebooks  # noqa: E402
import others  # noqa: E402


def stub() -> dict[Path, str]:
    """One import per public name, sorted by its module: of the front page and each namespace."""
    top = {**_names.homes(), "UntiltError": "untilt.errors", "__version__": "untilt._version"}
    spaces = dict.fromkeys(_names.MODULES, "untilt")
    stubs = {ROOT / "src/untilt/__init__.pyi": _stub(top | spaces)}
    for space in filter(None, _names.NAMESPACES):
        path = ROOT / "src/untilt" / space
        path = path / "__init__.pyi" if path.is_dir() else path.with_suffix(".pyi")
        stubs[path] = _stub(_names.homes(space))
    return stubs


def _stub(homes: Mapping[str, str]) -> str:
    # As ruff sorts: by module, then constants, classes, functions.
    names = sorted(homes, key=lambda name: (homes[name], not name.isupper(), name.islower(), name))
    lines = [f"from {homes[name]} import {name} as {name}" for name in names]
    return "# Written by `make stub`.\n" + "\n".join(lines) + "\n"


# Between `<!-- methods: KIND -->`, `<!-- coverage: short -->`, `<!-- quality: TABLE -->`,
# `<!-- memory: LOG -->`, `<!-- others: TABLE -->` or
# `<!-- real: TABLE -->`, and `<!-- end -->`.
MARKED = re.compile(
    r"(<!-- (methods|coverage|quality|memory|others|real): ([a-z0-9 -]+) -->\n).*?(<!-- end -->)",
    re.DOTALL,
)


def tables() -> dict[Path, str]:
    """The pages with markers, their tables written anew."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    texts = {page: page.read_text(encoding="utf8") for page in pages}
    return {page: MARKED.sub(_written, text) for page, text in texts.items() if MARKED.search(text)}


def _written(mark: re.Match[str]) -> str:
    if mark[2] == "methods":
        return mark[1] + table(cast("catalog.Kind", mark[3])) + mark[4]
    measured = {
        "coverage": coverage_table, "quality": quality_table, "memory": memory_table,
        "others": others_table, "real": real_table,
    }  # fmt: skip
    return mark[1] + measured[mark[2]](mark[3]) + mark[4]


def table(kind: catalog.Kind) -> str:
    """The methods of a kind as a table in Markdown."""
    records = [each for each in catalog.methods(kind) if each.home.startswith("untilt.")]
    columns: dict[str, Callable[[catalog.Method], str]] = {
        "name": lambda each: f"`{each.name}`",
        "class": lambda each: f"`{each.target}`" if each.public else "",
        "what it is": lambda each: each.note,
        "rests on": lambda each: each.rests_on,
        "needs": lambda each: ", ".join(each.needs),
        "reference": lambda each: f"[{each.reference}]" if each.reference else "",
    }
    cells = {title: [cell(each) for each in records] for title, cell in columns.items()}
    kept = {title: column for title, column in cells.items() if any(column)}
    rows = [list(kept), ["---"] * len(kept), *map(list, zip(*kept.values(), strict=True))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


COVERAGE = ROOT / "benchmarks/results/coverage.json"
SCENARIOS = {
    "even": "even", "zipf": "Zipf 1.3", "few": "20 queries", "rare": "1% clicks",
    "lengths": "lists of 3 to 10", "people": "repeated users",
}  # fmt: skip

COVERAGE_GROUPS = {
    "curves": "curves of examination", "values": "values of a ranking",
    "differences": "differences of two rankings", "other": "audit, click models, selection, labels",
}  # fmt: skip


def coverage_table(group: str) -> str:
    """Rows of benchmarks/results/coverage.json as a table in Markdown, a column for each log.

    "short": a line for each group, with the least and the largest share of its rows.
    """
    cells = json.loads(COVERAGE.read_text(encoding="utf8"))["results"]
    if group == "short":
        return _short_coverage(cells)
    found = {(each["row"], each["scenario"]): each for each in cells if each["group"] == group}
    lines = [["interval of", *SCENARIOS.values()], ["---"] * (1 + len(SCENARIOS))]
    for row in dict.fromkeys(row for row, _ in found):
        lines.append([row, *(_covered(found.get((row, each))) for each in SCENARIOS)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _short_coverage(cells: list[dict[str, Any]]) -> str:
    lines = [
        ["intervals of", "rows", *SCENARIOS.values()],
        ["---", *["---:"] * (1 + len(SCENARIOS))],
    ]
    for group, title in COVERAGE_GROUPS.items():
        mine = [each for each in cells if each["group"] == group and "covered" in each]
        line = [title, str(len({each["row"] for each in mine}))]
        for scenario in SCENARIOS:
            shares = [each["covered"] for each in mine if each["scenario"] == scenario]
            line.append(f"{min(shares):.2f} to {max(shares):.2f}".replace("0.", "."))
        lines.append(line)
    return _markdown(lines)


def _covered(cell: dict[str, Any] | None) -> str:
    """The mean and the lowest position, bold where too low; how often none is given."""
    if cell is None:
        return "-"
    if "covered" not in cell:
        return str(cell["verdict"])
    text = f"{cell['covered']:.3f}".lstrip("0")
    if cell["lowest"] < cell["covered"]:
        text += f" ({cell['lowest']:.2f})".replace("(0", "(")
    if cell["verdict"] == "too low":
        text = f"**{text}**"
    elif cell["verdict"] == "wide":
        text = f"*{text}*"
    elif cell["verdict"] == "unclear":
        text += " ?"
    none = cell["refused"] + cell["without_interval"]
    return f"{text}, none in {none:.0%}" if none >= 0.05 else text


EXPORT = ROOT / "benchmarks/results/export.json"


def export_table(part: str) -> str:
    """Figures of benchmarks/results/export.json: differences by kind of row, or sizes."""
    results = json.loads(EXPORT.read_text(encoding="utf8"))["results"]
    if part == "written":
        files = results["written"]["files"].items()
        lines = [["format", "MB", "seconds"], ["---", "---:", "---:"]]
        for name, file in files:
            lines.append([f"`{name}`", f"{file['bytes'] / 1e6:.1f}", f"{file['cpu_seconds']:.2f}"])
        return _markdown(lines)
    engines = results[part.replace(" ", "_")]
    kinds = list(next(iter(engines.values())))
    lines = [["rows / lists", *kinds], ["---", *["---:"] * len(kinds)]]
    for name, cells in engines.items():
        counts = [f"{cells[kind]['rows']:,} / {cells[kind]['lists']:,}" for kind in kinds]
        lines.append([f"`{name}`", *counts])
    return _markdown(lines)


QUALITY = ROOT / "benchmarks/results/quality.json"
QUALITY_ROWS = (
    "best logged ranker", "raw clicks", "LightGBM raw", "LightGBM position", "XGBoost unbiased",
    "CatBoost YetiRank", "CatBoost pairs", "auto", "run", "labels of shown", "labels",
)  # fmt: skip


def quality_table(group: str) -> str:
    """Cells of benchmarks/results/quality.json; "shares" and "losses" are tables of all of them."""
    results = json.loads(QUALITY.read_text(encoding="utf8"))["results"]
    if group in ("shares", "shares of three"):
        return _share_table(results["cells"], three_rankers=group == "shares of three")
    if group in ("losses", "losses by name"):
        return _loss_table(results["counts"], by_name=group == "losses by name")
    cells = [each for each in results["cells"] if each["group"] == group]
    rows = [row for row in QUALITY_ROWS if any(row in cell["rows"] for cell in cells)]
    header = ["cell", *rows, "auto - raw", "run - raw"]
    lines = [header, ["---", *["---:"] * (len(header) - 1)]]
    for cell in cells:
        values = [_value(cell["rows"].get(row)) for row in rows]
        lines.append([cell["title"], *values, *(_versus_raw(cell, row) for row in ("auto", "run"))])
    return _markdown(lines)


def _value(row: dict[str, Any] | None) -> str:
    return "-" if row is None else f"{row['ndcg']:.3f}".lstrip("0")


def _versus_raw(cell: dict[str, Any], row: str) -> str:
    """The difference with its error; bold where it is below by more than two of them."""
    difference = cell["versus"].get(row, {}).get("raw clicks")
    if difference is None:
        return "-"
    value, error = difference["value"], difference["error"]
    text = f"{value:+.3f} ± {error:.3f}".replace("0.", ".")
    return f"**{text}**" if value < -2 * error else text


def _share_table(cells: list[dict[str, Any]], *, three_rankers: bool) -> str:
    """Share of the gap between raw clicks and labels: a line for each method, synthetic logs."""
    shown = [
        each
        for each in cells
        if each["group"] == "synthetic"
        and not each["setting"]["uneven"]
        and (each["setting"]["rankers"] == 3 or not three_rankers)
    ]
    names = dict.fromkeys(row for each in shown for row in each["rows"])
    totals = {
        row: sum(each["rows"].get(row, {}).get("share") or 0.0 for each in shown) for row in names
    }
    lines = [["", *(each["title"] for each in shown)], ["---", *["---:"] * len(shown)]]
    for row in sorted(names, key=lambda row: -totals[row]):
        shares = [each["rows"].get(row, {}).get("share") for each in shown]
        lines.append([row, *("-" if each is None else f"{each:.2f}" for each in shares)])
    return _markdown(lines)


def _loss_table(counts: dict[str, Any], *, by_name: bool) -> str:
    """How many cells are below another row, by how much, and which."""
    clearly = " by more than 2 errors"
    lines = [["", "cells", "below", "by more than two errors", "which"]]
    lines.append(["---", *["---:"] * 3, "---"])
    for name, found in counts.items():
        if name + clearly in counts:
            figures = [str(counts["cells"]), str(len(found)), str(len(counts[name + clearly]))]
            lines.append(
                [name.replace(" below ", " against "), *figures, "; ".join(found) or "none"]
            )
    return _markdown(lines if by_name else [line[:-1] for line in lines])


def _markdown(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


MEMORY = ROOT / "benchmarks/results/memory.json"


def memory_table(log: str) -> str:
    """Peak memory and seconds of each command, a column for each size of one kind of log."""
    rows = json.loads(MEMORY.read_text(encoding="utf8"))["results"]["rows"]
    found = {(each["command"], each["million"]): each for each in rows if each["log"] == log}
    sizes = sorted({million for _, million in found})
    lines = [["", *(f"{million:g} million" for million in sizes)], ["---"] * (1 + len(sizes))]
    for command in dict.fromkeys(command for command, _ in found):
        lines.append([command, *(_peak(found.get((command, million))) for million in sizes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _peak(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    told = f"{row['peak_gib']:.2f} GiB, {row['seconds']:.0f} s"
    return told if row["outcome"] == "finished" else f"{row['outcome']} ({told})"


REAL = ROOT / "benchmarks/results/real.json"


def real_table(part: str) -> str:
    """A part of benchmarks/results/real.json as a table in Markdown."""
    results = json.loads(REAL.read_text(encoding="utf8"))["results"]
    name, _, log = part.partition(" of ")
    if name == "curves":
        rows = results["curves"][log]["rows"]
    elif name == "judgments":
        graded, later = results["judgments"]["grades"], results["judgments"]["later clicks"]
        rows = _score_rows(
            ("graded pairs in order", graded["at least 20"], "shown order"),
            ("later clicks", later["all"], "AllPairs, prior query"),
        )
    elif name == "click-models":
        told = results["click models"][log]
        rows = _score_rows(
            *((f"{kind}: {told[kind]['clicks']:,} clicks", told[kind], "PBM") for kind in told
              if kind != "refused")
        )  # fmt: skip
    else:
        rows = results[name] if name in ("advice", "bandit") else results[name]["rows"]
    cells = [list(rows[0]), ["---"] * len(rows[0])]
    cells += [[_real_cell(value) for value in row.values()] for row in rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _score_rows(*columns: tuple[str, dict[str, Any], str]) -> list[dict[str, str]]:
    """A row for each score: its value, and its difference to one of them with a standard error."""
    names = dict.fromkeys(name for _, each, _ in columns for name in each["scores"])
    rows: list[dict[str, str]] = [{"": name} for name in names]
    for row, name in zip(rows, names, strict=True):
        for title, each, against in columns:
            row[title] = row[f"{title}, minus {against}"] = ""
            if name in each["scores"]:
                score = each["scores"][name]
                digits = 3 if abs(score["value"]) < 1 else 1
                gap, error = score["gap"], score["gap_error"]
                row[title] = f"{score['value']:.{digits}f}"
                row[f"{title}, minus {against}"] = f"{gap:+.{digits}f} +- {error:.{digits}f}"
    return rows


def _real_cell(value: Any) -> str:
    """A figure, with its interval where it has one."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if not isinstance(value, dict):
        return str(value)
    if value["value"] is None:
        return "not known"
    digits = 4 if abs(value["value"]) < 0.02 else 3 if abs(value["value"]) < 0.5 else 2
    if value["low"] is None or value["high"] is None:
        return f"{value['value']:.{digits}f}"
    return f"{value['value']:.{digits}f} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def others_table(name: str) -> str:
    """Figures beside those of other packages."""
    return _markdown(others.table(name))


# Pages that are on the site alone: long, and read by searching.
MEASURED = {
    "Intervals: curves": (coverage_table, "curves"),
    "Intervals: values of a ranking": (coverage_table, "values"),
    "Intervals: differences": (coverage_table, "differences"),
    "Intervals: others": (coverage_table, "other"),
    "Rankers: unusual worlds": (quality_table, "worlds"),
    "Rankers: synthetic set, 500 queries": (quality_table, "synthetic"),
    "Rankers: real sets": (quality_table, "real"),
    "Rankers: other readers": (quality_table, "readers"),
    "Rankers: more queries": (quality_table, "large"),
    "Rankers: where they lose": (quality_table, "losses by name"),
    "Methods: share of the gap between raw clicks and labels": (quality_table, "shares"),
    "Memory: sessions collapse": (memory_table, "collapsed"),
    "Memory: every list is distinct": (memory_table, "distinct"),
    "Memory: every session has its own query": (memory_table, "own-query"),
    "Exports: rows and lists that differ": (export_table, "exact"),
    "Exports: the same without care for thresholds": (export_table, "as they are"),
    "Exports: size and time": (export_table, "written"),
    "Real logs: curves of clara2": (real_table, "curves of clara2"),
    "Real logs: curves of expedia": (real_table, "curves of expedia"),
    "Real logs: curves of thuir": (real_table, "curves of thuir"),
    "Real logs: click-models of yandex": (real_table, "click-models of yandex"),
    "Real logs: click-models of trec": (real_table, "click-models of trec"),
}


def site_pages() -> dict[str, str]:
    """The reference of the commands, and every measured table, as `make docs` has them."""
    told = (
        "`.951 (.93)`: 95.1% of the intervals contain the truth, at the worst position 93%. "
        "**Bold** is too low, *italics* too wide; ? is outside .90 to .995, which chance may "
        "explain. Rankers: NDCG@10 by labels; a bold difference is below 0 by more than two "
        "errors.\n"
    )
    tables = [f"## {title}\n\n{write(name)}" for title, (write, name) in MEASURED.items()]
    return {
        "command-line.md": "# The command line\n\n" + commands_reference(),
        "measured.md": "\n".join(["# Measured tables\n", told, *tables]),
    }


def commands_reference() -> str:
    """Every command with its help text and a table of its arguments and options."""
    program = cast("Any", typer.main.get_command(app))
    functions = [each.callback for each in app.registered_commands]
    takes = {each.__name__: inspect.signature(each).parameters for each in functions if each}
    parts = [_command(each.as_shown(), takes[name]) for name, each in program.commands.items()]
    return "\n".join(parts)


def _command(command: Any, takes: Mapping[str, inspect.Parameter]) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    line = " ".join(["untilt", command.name, *(each.metavar for each in arguments)])
    lines = [["option", "what it says"], ["---", "---"]]
    for each in command.params:
        lines.append([_typed(each, takes[each.name]), _said(each)])
    # A paragraph of a help text is one line on the page; bold words are commands.
    words = inspect.cleandoc(command.help).split("\n\n")
    told = [re.sub(r"\[/?bold\]", "`", " ".join(each.split())) for each in words]
    return f"## `{line}`\n\n" + "\n\n".join(told) + "\n\n" + _markdown(lines)


def _typed(parameter: Any, takes: inspect.Parameter) -> str:
    """As it is typed: `--out`, `-o` FOLDER."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`"
    value = "" if parameter.is_flag else parameter.metavar or _value_of(takes.annotation)
    names = ", ".join(f"`{name}`" for name in parameter.opts)
    return f"{names} {value}".strip().replace("|", r"\|")


def _value_of(annotation: Any) -> str:
    """What an option takes that does not say it itself: the choices, or the kind of number."""
    kind = get_args(annotation)[0]
    kinds = set(get_args(kind)) if get_origin(kind) in (Union, UnionType) else {kind}
    for kind in kinds:
        if get_origin(kind) is Literal:
            return "|".join(get_args(kind))
        if issubclass(kind, Enum):
            return "|".join(each.value for each in kind)
    return "N" if int in kinds else "NUMBER" if float in kinds else "TEXT"


def _said(parameter: Any) -> str:
    """Its help, whether it is required, and its default."""
    text = " ".join((parameter.help or "").split()).replace("|", r"\|")
    default = getattr(parameter.default, "value", parameter.default)
    if parameter.required:
        return f"{text} Required."
    if default is None or default is False or default in ("", []) or callable(default):
        return text
    return f"{text} Default: {default}."


def api() -> dict[Path, str]:
    """Every public name and signature, and the public methods of public classes."""
    names = sorted({"UntiltError", "__version__", "mlflow", *_names.homes()})
    lines = [line for name in names for line in _described(name)]
    for space in ("", *filter(None, _names.NAMESPACES)):
        held = sorted(_names.homes(space)) if space else untilt.__dir__()
        lines.append(f"{'.'.join(filter(None, ('untilt', space)))}: {' '.join(held)}")
    return {ROOT / "tests/public_api.txt": "\n".join(lines) + "\n"}


def _described(name: str) -> Iterator[str]:
    value = getattr(untilt, name)
    if inspect.ismodule(value):
        for each, member in sorted(vars(value).items()):
            if (
                inspect.isfunction(member)
                and member.__module__ == value.__name__
                and each[0] != "_"
            ):
                yield f"{name}.{each}{_signature(member)}"
        return
    if not callable(value):
        yield name
        return
    signature = _signature(value)
    yield name + signature
    if not isinstance(value, type):
        return
    for attribute in sorted(dir(value)):
        member = inspect.getattr_static(value, attribute)
        ours = _owner(value, attribute).__module__.startswith("untilt")
        if attribute.startswith("_") or not ours:
            continue
        if isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            yield f"{name}.{attribute}{_signature(getattr(value, attribute))}"
        elif f"{attribute}=" not in signature:  # else a field, whose default stands there
            yield f"{name}.{attribute}"


def _owner(cls: type, attribute: str) -> type:
    return next(base for base in cls.__mro__ if attribute in vars(base))


def _signature(value: Callable[..., object]) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    # Names and defaults; annotations would change with every import that is moved.
    parameters = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    plain = signature.replace(parameters=parameters, return_annotation=signature.empty)
    return re.sub(r" at 0x[0-9a-f]+", "", str(plain))


WRITERS: dict[str, Callable[[], dict[Path, str]]] = {
    "stub": stub, "tables": tables, "api": api, "notebooks": notebooks.notebooks,
}  # fmt: skip


def main(wanted: list[str]) -> None:
    """Write the files of these parts, of all where none is named."""
    if "pages" in wanted:
        for path in republish(ROOT / "docs" / "reproduced"):
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    for part in [part for part in wanted if part != "pages"] if wanted else WRITERS:
        for path, text in WRITERS[part]().items():
            path.write_text(text, encoding="utf8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

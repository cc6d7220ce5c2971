"""A method's name is typed in its own file alone; everything else asks the catalogue."""

import ast
from collections.abc import Iterator
from pathlib import Path

import untilt
from untilt import catalog

SOURCE = Path(untilt.__file__).parent
HOMES: dict[str, set[str]] = {}
for record in catalog.methods():
    for name in (record.name, *record.aliases):
        HOMES.setdefault(name, set()).add(record.home)

# Plain words that mean something else in these files and folders: word -> what it is there, where.
LAMBDA_METRIC = "the metric whose change weighs a pair; lambdas have kernels of their own for it"
OTHER_MEANINGS = {
    "auto": (
        "the data decide: a value of many options",
        "bias/ cli/ clickmodels/ evaluation/ rankers/ report/step_results.py selection/ workflow/",
    ),
    "clicks": (
        "the clicks themselves: columns, counts, what is learned from",
        "bias/ cli/ data/ exports/ networks/ papers/ rankers/ report/ serving/",
    ),
    "linear": (
        "a gain, the scale of an axis, a form of a model, a kind of production ranker",
        "bias/contextual/ charts/ metrics/ objectives/ papers/ rankers/ simulation/production.py",
    ),
    "lightgbm": (
        "the package, whose version is kept",
        "_core/saved.py mlflow.py workflow/stage_report.py",
    ),
    "xgboost": ("the package, which an extra brings", "_core/optional.py"),
    "opensearch": ("a form of judgments", "exports/judgments.py"),
    "c": (
        "the beginning of names: columns in SQL, colours",
        "charts/theme.py data/read/stream.py data/write_log.py",
    ),
    "svm": ("a kind of production ranker", "simulation/production.py"),
    "ndcg": (LAMBDA_METRIC, "objectives/ rankers/"),
    "dcg": (LAMBDA_METRIC, "objectives/ rankers/"),
    "arp": (LAMBDA_METRIC, "objectives/ rankers/"),
    "map": (
        f"{LAMBDA_METRIC}; a default of `evaluate`, beside ndcg@10",
        "evaluation/judged.py rankers/",
    ),
    "naive": ("a loss without a model of bias", "rankers/trust/"),
    "dwell": ("a label column: seconds", "papers/ rankers/networks/ simulation/simulate.py"),
    "pivot": ("a design of swaps, and an option of estimators", "auditing/ bias/ cli/ serving/"),
    "shuffle": (
        "the beginning of rankers' names in a log of shuffled lists",
        "auditing/ bias/experiments/ data/read/columns.py simulation/behaviour.py",
    ),
    "swap": ("a curve that an experiment measures", "papers/"),
    "trust": (
        "what a weighting needs of a bias; what may turn a decision",
        "weighting/ evaluation/sensitivity.py",
    ),
    "p": (
        "the column of p-values",
        "facts.py bias/curve_operations.py evaluation/ selection/ serving/watch_page.py",
    ),
    "precision": ("bits that networks compute with", "networks/ rankers/networks/"),
    "r": (
        "a column of a query in SQL; a file to be read; repr",
        "facts.py data/read/ selection/fitting.py",
    ),
}


def typed_names(text: str) -> Iterator[tuple[int, str]]:
    """(line, string) for each string of a module that is a name of a method; no docstrings."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings and node.value in HOMES:
            yield node.lineno, str(node.value)


def elsewhere(module: str, name: str) -> bool:
    """Whether a file, as a path below src/untilt, is neither the name's home nor allowed it."""
    _, places = OTHER_MEANINGS.get(name, ("", ""))
    home = ".".join(("untilt", *Path(module).with_suffix("").parts)) in HOMES[name]
    return not home and not any(module.startswith(place) for place in places.split())


MODULES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}


def test_no_name_of_a_method_is_typed_outside_its_home() -> None:
    found = [
        (module, line, name)
        for module, path in MODULES.items()
        for line, name in typed_names(path.read_text(encoding="utf8"))
        if elsewhere(module, name)
    ]
    assert found == []


def test_it_sees_a_name_and_passes_over_a_docstring() -> None:
    source = '"""prs"""\n\n\ndef f(method="prs"):\n    """ips"""\n    return {"ips": 1}\n'
    assert list(typed_names(source)) == [(4, "prs"), (6, "ips")]
    assert elsewhere("workflow/options.py", "prs")
    assert not elsewhere("weighting/tables.py", "prs")
    assert not elsewhere("workflow/options.py", "auto")


def test_every_exception_is_needed() -> None:
    """A place is named only while the word is typed there."""
    typed = {
        module: {name for _, name in typed_names(path.read_text(encoding="utf8"))}
        for module, path in MODULES.items()
    }
    unneeded = [
        (word, place)
        for word, (_, places) in OTHER_MEANINGS.items()
        for place in places.split()
        if not any(word in names for m, names in typed.items() if m.startswith(place))
    ]
    assert unneeded == []

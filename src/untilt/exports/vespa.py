r"""Vespa: LightGBM's JSON for trees, a ranking expression for weights.

Vespa's importer of LightGBM's JSON reads every split as x < threshold, whatever its decision_type,
and `default_left` as "not x >= threshold", which NaN fulfils. So LightGBM's x <= t is written as
x < next32(cut). It stops where there is no objective, and where there is no `pandas_categorical`.
Sums are in double precision.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt._version import __version__
from untilt.catalog import method
from untilt.errors import FileFormatError
from untilt.exports import forms
from untilt.exports.format import ExportFiles, Format, Target
from untilt.facts import Fact, note

VESPA_MISSING = note(
    "export.vespa-missing",
    "Vespa gives NaN only for float and double attributes without a value: whole-number "
    "attributes give their smallest number, and bm25 and other match features give 0",
)()
VESPA_ALONE = note(
    "export.vespa-alone",
    "the file is for Vespa only, which reads <= as <: LightGBM would give other scores",
)()

_FUNCTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# bm25(title), attribute(price), fieldMatch(title).completeness: features that Vespa has itself.
_RANK_FEATURE = re.compile(r"[A-Za-z_]\w*\([\w, .\"-]*\)(\.[A-Za-z_][\w.]*)?")


@method(
    "export", "vespa", title="Vespa", order=13, public=False,
    note="a model file and a rank profile for Vespa; trees and linear rankers",
)  # fmt: skip
@dataclass(frozen=True)
class Vespa(Format):
    """A file of the application package's `models`, with a rank profile to fill in."""

    endings: ClassVar[Mapping[type[Any], str]] = {
        forms.Forest: ".json",
        forms.LinearForm: ".expression",
    }

    def files(self, form: forms.Forest | forms.LinearForm, target: Target) -> ExportFiles:
        """The model and a rank profile that uses it."""
        forms.check_names(form.names, "Vespa")
        names = [feature_name(name, number) for number, name in enumerate(form.names)]
        if isinstance(form, forms.LinearForm):
            model, use = _expression(form, names), f"file:{target.path.name}"
        else:
            forms.check_depth(form, "Vespa")
            model, use = _trees(form, names), f'lightgbm("{target.path.name}")'
        return ExportFiles(
            model=model,
            templates={".profile": _profile(form.names, names, use, target)},
            commands=_commands(target, linear=isinstance(form, forms.LinearForm)),
            notes=_notes(form),
        )

    def scores(self, path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:
        """As Vespa's importer and ranking expressions give them."""
        own = tuple(feature_name(name, number) for number, name in enumerate(names))
        if path.suffix == ".expression":
            return read_vespa_expression(path, own, features)
        return read_vespa(path, own, features)


def feature_name(name: str, number: int) -> str:
    """The name in Vespa's expressions: itself, or that of a function where Vespa cannot read it."""
    fine = _FUNCTION.fullmatch(name) or _RANK_FEATURE.fullmatch(name)
    return name if fine else f"feature_{number + 1}_of_model"


def _trees(forest: forms.Forest, names: list[str]) -> str:
    trees = ",".join(
        f'{{"tree_index":{number},"num_leaves":{len(tree.leaf)},"num_cat":0,"shrinkage":1,'
        f'"tree_structure":{_nested(tree)}}}'
        for number, tree in enumerate(forest.trees)
    )
    head = {
        "name": "tree", "made_by": f"untilt {__version__}, for Vespa alone, which reads <= as <",
        "version": "v4", "num_class": 1, "num_tree_per_iteration": 1, "label_index": 0,
        "max_feature_idx": len(names) - 1, "objective": "lambdarank", "average_output": False,
        "feature_names": names, "feature_infos": {}, "pandas_categorical": [],
    }  # fmt: skip
    return f'{json.dumps(head, ensure_ascii=False)[:-1]},"tree_info":[{trees}]}}\n'


def _nested(tree: forms.Tree) -> str:
    threshold = forms.next32(tree.cut)

    def split(node: int, left: str, right: str) -> str:
        return (
            f'{{"split_index":{node},"split_feature":{tree.feature[node]},'
            f'"threshold":{_double(threshold[node])},"decision_type":"<=",'
            f'"default_left":{"true" if tree.nan_left[node] else "false"},"missing_type":"NaN",'
            f'"left_child":{left},"right_child":{right}}}'
        )

    leaf = '{{"leaf_index":{},"leaf_value":{!r}}}'.format
    return tree.nested([leaf(k, value) for k, value in enumerate(tree.leaf.tolist())], split)


def _double(threshold: Any) -> str:
    """The very number: Vespa compares doubles, and 0.1 is no single float."""
    return forms.text32(threshold) if abs(threshold) == float("inf") else repr(float(threshold))


def _expression(form: forms.LinearForm, names: list[str]) -> str:
    fill = form.fill
    terms = [repr(form.constant)]
    for name, weight in zip(names, form.weights.tolist(), strict=True):
        value = name if fill is None else f"if (isNan({name}), {fill!r}, {name})"
        terms.append(f"({weight!r}) * {value}")
    return " +\n".join(terms) + "\n"


def _profile(given: tuple[str, ...], names: list[str], use: str, target: Target) -> str:
    """A function for each feature that is none of Vespa's own."""
    functions = "".join(
        f"    # {' '.join(own.split())}\n    function {name}() {{\n"
        f"        expression: attribute(FIELD_OF_{name})\n    }}\n"
        for own, name in zip(given, names, strict=True)
        if _FUNCTION.fullmatch(name)
    )
    return (
        "# Fill in the features. It belongs into schemas/SCHEMA/ of the application package.\n"
        f"rank-profile {target.name.replace('-', '_')} {{\n{functions}"
        f"    first-phase {{\n        expression: nativeRank\n    }}\n"
        f"    second-phase {{\n        rerank-count: 100\n        expression: {use}\n    }}\n}}\n"
    )


def _commands(target: Target, *, linear: bool) -> tuple[str, ...]:
    profile, name = target.beside(".profile"), target.name.replace("-", "_")
    place = "schemas" if linear else "models"
    return (
        f"# in the application package; fill in {profile} first:",
        f"mkdir -p {place} && cp {target.path.name} {place}/",
        "SCHEMA=${SCHEMA:-doc} && mkdir -p schemas/$SCHEMA",
        f"cp {profile} schemas/$SCHEMA/{name}.profile",
        "vespa deploy",
        f"vespa query 'yql=select * from sources * where userQuery()' 'query=WORDS' ranking={name}",
    )


def _notes(form: forms.Forest | forms.LinearForm) -> tuple[Fact, ...]:
    """An attribute of whole numbers has no NaN in Vespa."""
    told = () if form.missing is None else (VESPA_MISSING,)
    return (*told, *(() if isinstance(form, forms.LinearForm) else (VESPA_ALONE,)))


def read_vespa(path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:
    """LightGBM's JSON as Vespa's importer takes it."""
    model = forms.read_json(path)
    if "objective" not in model or "pandas_categorical" not in model:
        raise FileFormatError(f"{path} lacks what Vespa's importer asks for.")
    columns = [forms.indices(names)[name] for name in model["feature_names"]]
    nodes = forms.Nodes()

    def split(node: Any) -> tuple[int, float, bool, Any, Any]:
        column, threshold = columns[node["split_feature"]], float(node["threshold"])
        return column, threshold, node["default_left"], node["left_child"], node["right_child"]

    for tree in model["tree_info"]:
        nodes.add_nested(tree["tree_structure"], split, "leaf_value")
    leaves = nodes.leaves(features.astype(np.float64), _vespa_left, np.float64)
    return forms.summed(leaves, np.float64)


def _vespa_left(x: Any, threshold: Any, default_left: BoolArray) -> BoolArray:
    """not (x >= t) or x < t; every comparison with NaN is false."""
    left: BoolArray = np.where(default_left, ~(x >= threshold), x < threshold)
    return left


_TERM = re.compile(r"\(([^)]*)\) \* (?:if \(isNan\((?P<filled>.*)\), ([^,]*), .*\)|(.*))")


def read_vespa_expression(
    path: Path, names: tuple[str, ...], features: forms.SingleArray
) -> FloatArray:
    """A sum of weights times features, each with a number for NaN or without."""
    constant, *terms = path.read_text(encoding="utf-8").rstrip("\n").split(" +\n")
    total = np.full(len(features), float(constant))
    index = forms.indices(names)
    for term in terms:
        found = _TERM.fullmatch(term)
        if found is None:
            raise FileFormatError(f"{path} has a term that untilt never writes: {term[:60]!r}.")
        weight, filled, fill, plain = found.groups()
        x = features[:, index[filled or plain]].astype(np.float64)
        total += float(weight) * (np.where(np.isnan(x), float(fill), x) if filled else x)
    return total

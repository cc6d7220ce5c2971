"""Elasticsearch LTR and OpenSearch LTR: `model/xgboost+json` for trees, `model/linear` for weights.

Both plugins share the format. A split goes to "yes" where threshold > x in single precision, so
that LightGBM's x <= t is written as x < next32(cut). NaN goes to the child called "missing": it is
always written, since a plugin that finds none sends NaN to "no". The objective must be one that the
plugin knows and does not transform.

The rescorer of these engines gives documents beyond its window the score query_weight * score, 0
here, and sorts them together with the others. So a last tree of one leaf lifts every score above 0.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import FloatArray
from untilt.catalog import method
from untilt.errors import FileFormatError
from untilt.exports import forms
from untilt.exports.format import ExportFiles, Format, Target
from untilt.facts import Fact, note, warning

NO_NEGATIVE_FEATURES = note(
    "export.no-negative-features",
    "{engine} scores features by queries, and refuses negative ones: a feature that can be "
    "negative must be shifted in its query, and the ranker trained on the shifted one",
)
LINEAR_WINDOW = warning(
    "export.linear-window",
    "a linear model may give scores below 0, and documents beyond window_size have the score 0: "
    "they come first where from + size is larger than window_size",
)()
MISSING_SINCE = warning(
    "export.missing-since",
    "missing values follow the trees from {since} on; before, {engine} LTR sends them to the right "
    "at every split",
)

_JSON = "-H 'Content-Type: application/json'"


@method(
    "export", "es-ltr", title="Elasticsearch LTR", order=10, public=False,
    options={"engine": "Elasticsearch", "since": "the release of December 2023"},
    note="the Elasticsearch Learning to Rank plugin; trees and linear rankers",
)  # fmt: skip
@method(
    "export", "opensearch", title="OpenSearch LTR", order=11, public=False,
    options={"engine": "OpenSearch", "since": "the release of July 2026"},
    note="the Learning to Rank plugin of OpenSearch; trees and linear rankers",
)  # fmt: skip
@dataclass(frozen=True)
class LtrPlugin(Format):
    """The body of `_createmodel`, with a feature set to fill in and a query beside it."""

    engine: str = "Elasticsearch"
    since: str = ""

    endings: ClassVar[Mapping[type[Any], str]] = {forms.Forest: ".json", forms.LinearForm: ".json"}
    adds_constant: ClassVar[bool] = False
    unsigned: ClassVar[bool] = True

    def files(self, form: forms.Forest | forms.LinearForm, target: Target) -> ExportFiles:
        """The model, its feature set, a query that re-ranks with it, and the commands."""
        forms.check_names(form.names, f"{self.engine} LTR")
        if isinstance(form, forms.LinearForm):
            kind = "model/linear"
            definition = forms.weights_json(form, f"{self.engine} LTR")
        else:
            forms.check_depth(form, f"{self.engine} LTR")
            kind, definition = "model/xgboost+json", _trees(form)
        model = {"name": target.name, "model": {"type": kind, "definition": definition}}
        return ExportFiles(
            model=json.dumps({"model": model}, ensure_ascii=False) + "\n",
            beside={".query.json": _query(target)},
            templates={".features.json": _feature_set(form.names)},
            commands=self._commands(target),
            notes=self._notes(form),
        )

    def lacks(self, form: forms.Form) -> float:
        """The lift of trees, too."""
        return -_lift(form) if isinstance(form, forms.Forest) else super().lacks(form)

    def scores(self, path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:
        """The body of `_createmodel`: model/xgboost+json or model/linear."""
        model = forms.read_json(path)["model"]["model"]
        definition = json.loads(model["definition"])
        if model["type"] == "model/linear":
            return forms.linear_single(features, forms.weights_of(definition, names, path))
        if definition["objective"] not in ("rank:ndcg", "rank:map", "rank:pairwise", "reg:linear"):
            raise FileFormatError(f"{path} has an objective that the plugin transforms or refuses.")
        index, nodes = forms.indices(names), forms.Nodes()

        def split(node: Any) -> tuple[int, float, bool, Any, Any]:
            yes, no = node["children"]
            if (yes["nodeid"], no["nodeid"]) != (node["yes"], node["no"]) or "depth" not in node:
                raise FileFormatError(f"{path} has a split whose children are not those it names.")
            feature, threshold = index[node["split"]], float(node["split_condition"])
            return feature, threshold, node["missing"] == node["yes"], yes, no

        for tree in definition["splits"]:
            nodes.add_nested(tree, split, "leaf")
        return forms.summed(nodes.leaves(features, forms.below, np.float32), np.float32)

    def _commands(self, target: Target) -> tuple[str, ...]:
        host, feature_set = self.engine.upper(), f"_ltr/_featureset/{target.name}"
        model, features, query = (
            target.path.name, target.beside(".features.json"), target.beside(".query.json"),
        )  # fmt: skip
        return (
            f"{host}=${{{host}:-http://localhost:9200}}",
            f"# once for a cluster, and once for each feature set (fill in {features} first):",
            f'curl -X PUT "${host}/_ltr"',
            f'curl -X POST "${host}/{feature_set}" {_JSON} -d @{features}',
            "# the model, and a search that re-ranks with it:",
            f'curl -X POST "${host}/{feature_set}/_createmodel" {_JSON} -d @{model}',
            f'curl "${host}/INDEX/_search" {_JSON} -d @{query}',
        )

    def _notes(self, form: forms.Forest | forms.LinearForm) -> tuple[Fact, ...]:
        told = [NO_NEGATIVE_FEATURES(engine=self.engine)]
        if isinstance(form, forms.Forest) and form.missing is not None:
            told.append(MISSING_SINCE(engine=self.engine, since=self.since))
        if isinstance(form, forms.LinearForm):
            told.append(LINEAR_WINDOW)
        return tuple(told)


def _lift(form: forms.Forest) -> float:
    """What is added to every score so that each is above 0: nothing, or a whole number."""
    least = sum(float(np.min(tree.leaf)) for tree in form.trees)
    return 0.0 if least > 0 else float(np.floor(-least) + 1)


def _trees(forest: forms.Forest) -> str:
    names = [json.dumps(name, ensure_ascii=False) for name in forest.names]
    trees = [_nested(tree, names) for tree in forest.trees]
    if lift := _lift(forest):  # the last one, so that sums before it keep their precision
        trees.append(f'{{"nodeid":0,"leaf":{lift}}}')
    return f'{{"objective":"rank:ndcg","splits":[{",".join(trees)}]}}'


def _nested(tree: forms.Tree, names: list[str]) -> str:
    """Splits are numbered first, then leaves."""
    depth, _ = tree.depths()
    n, threshold = tree.n_splits, forms.next32(tree.cut)
    values = tree.leaf.astype(np.float32)

    def split(node: int, left: str, right: str) -> str:
        children = (int(tree.left[node]), int(tree.right[node]))
        yes, no = (child if child >= 0 else n + ~child for child in children)
        return (
            f'{{"nodeid":{node},"depth":{depth[node]},"split":{names[tree.feature[node]]},'
            f'"split_condition":{forms.text32(threshold[node])},"yes":{yes},"no":{no},'
            f'"missing":{yes if tree.nan_left[node] else no},"children":[{left},{right}]}}'
        )

    leaves = [
        f'{{"nodeid":{n + k},"leaf":{forms.text32(value)}}}' for k, value in enumerate(values)
    ]
    return tree.nested(leaves, split)


def _feature_set(names: tuple[str, ...]) -> str:
    """Every feature in the order of training, with a query to fill in."""
    features = [
        {
            "name": name,
            "params": ["keywords"],
            "template_language": "mustache",
            "template": _template(name, f"FIELD_OF_{name}"),
        }
        for name in names
    ]
    body = {"featureset": {"features": features}}
    return json.dumps(body, indent=1, ensure_ascii=False) + "\n"


def _template(name: str, field: str) -> dict[str, Any]:
    """A match of the text, or the number in a field; a document without the field has no value."""
    if forms.is_text_score(name):
        return {"match": {field: "{{keywords}}"}}
    value = {"query": {"exists": {"field": field}}, "field_value_factor": {"field": field}}
    return {"function_score": {**value, "boost_mode": "replace"}}


def _query(target: Target) -> str:
    body = {
        "from": 0,
        "size": 10,
        "query": {"match": {"FIELD": "WORDS"}},
        "rescore": {
            "window_size": 100,
            "query": {
                "rescore_query": {"sltr": {"params": {"keywords": "WORDS"}, "model": target.name}},
                "query_weight": 0,
                "rescore_query_weight": 1,
            },
        },
    }
    return json.dumps(body, indent=1) + "\n"

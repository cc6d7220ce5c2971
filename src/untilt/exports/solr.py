r"""Solr: `MultipleAdditiveTreesModel` for trees, `LinearModel` for weights.

Solr goes left where x <= fl(threshold + 1e-6) in single precision, so that a threshold must be
written as the single float whose sum with 1e-6 is the cut. Near 0 there is none: what is reached
there are multiples of 2^-43, and LightGBM's splits at 0 have the cut 1e-35. Where a feature has
such a cut, Solr is told to multiply the feature by a power of two first (`StandardNormalizer` with
avg 0), which is exact, and the cuts are multiplied likewise.

NaN goes right unless the model says `isNullSameAsZero` false, which Solr knows from 9.2 on: then a
split's "missing" says where. It is written where the ranker takes missing values. Elsewhere Solr
takes what is missing for 0, as LightGBM does.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from untilt._core.arrays import BoolArray, FloatArray
from untilt.catalog import method
from untilt.errors import FileFormatError
from untilt.exports import forms
from untilt.exports.format import ExportFiles, Format, Target
from untilt.facts import Fact, warning

SOLR_MISSING = warning(
    "export.solr-missing",
    "missing values follow the trees in Solr 9.2 and later (isNullSameAsZero), where each feature "
    'keeps "defaultValue": "NaN"; earlier ones refuse the model',
)()
SOLR_UNREACHED = warning(
    "export.solr-unreached",
    "{splits:,} splits have thresholds that Solr cannot represent, because it adds 1e-6 to each: "
    "values within 1e-13 of a threshold may take the other branch",
)

_PACKAGE = "org.apache.solr.ltr"
_SLACK = np.float32(1e-6)
# Powers of two that a feature may be multiplied by: the first that reaches all its cuts. 2^96
# reaches 1e-35 and takes cuts up to 4e9; a larger value overflows, and goes the right way still.
_POWERS = tuple(range(0, 112, 8))


@method(
    "export", "solr", title="Solr", order=12, public=False,
    note="Solr's Learning to Rank module; trees and linear rankers",
)  # fmt: skip
@dataclass(frozen=True)
class Solr(Format):
    """A model of the model store, with the features of the feature store to fill in."""

    endings: ClassVar[Mapping[type[Any], str]] = {forms.Forest: ".json", forms.LinearForm: ".json"}
    adds_constant: ClassVar[bool] = False

    def files(self, form: forms.Forest | forms.LinearForm, target: Target) -> ExportFiles:
        """The model, the feature store, and the requests."""
        forms.check_names(form.names, "Solr")
        notes: tuple[Fact, ...] = ()
        if isinstance(form, forms.LinearForm):
            weights = forms.weights_json(form, "Solr")
            model = _model("LinearModel", target, map(_feature, form.names), f'"weights":{weights}')
        else:
            forms.check_depth(form, "Solr")
            model, notes = _trees(form, target)
        return ExportFiles(
            model=model,
            templates={".features.json": _feature_store(form, target)},
            commands=_commands(target),
            notes=notes,
        )

    def scores(self, path: Path, names: tuple[str, ...], features: forms.SingleArray) -> FloatArray:
        """`MultipleAdditiveTreesModel` or `LinearModel`, with `StandardNormalizer`."""
        model = forms.read_json(path)
        own = [each["name"] for each in model["features"]]
        rows = np.stack([features[:, forms.indices(names)[name]] for name in own], axis=1)
        nulls = model["params"].get("isNullSameAsZero", True)
        if nulls:
            rows = np.where(np.isnan(rows), np.float32(0), rows)
        for number, each in enumerate(model["features"]):
            if "norm" in each:
                average, spread = (
                    forms.single_of(each["norm"]["params"][key]) for key in ("avg", "std")
                )
                with np.errstate(over="ignore"):
                    rows[:, number] = (rows[:, number] - average) / spread
        if model["class"].endswith(".LinearModel"):
            weights = forms.weights_of(model["params"]["weights"], own, path)
            return forms.linear_single(rows, weights)
        index, nodes = forms.indices(own), forms.Nodes()

        def split(node: Any) -> tuple[int, float, bool, Any, Any]:
            compared = np.float32(forms.single_of(node["threshold"]) + np.float32(1e-6))
            left = node.get("missing") == "left"
            return index[node["feature"]], float(compared), left, node["left"], node["right"]

        for tree in model["params"]["trees"]:
            if tree["weight"] != "1":
                raise FileFormatError(
                    f"{path} has a tree with a weight, which untilt never writes."
                )
            nodes.add_nested(tree["root"], split, "value")
        return forms.summed(nodes.leaves(rows, forms.not_above, np.float32), np.float32)


def _trees(forest: forms.Forest, target: Target) -> tuple[str, tuple[Fact, ...]]:
    powers, unreached = _scaling(forest)
    knows_missing = forest.missing is not None
    names = [json.dumps(name, ensure_ascii=False) for name in forest.names]
    trees = ",".join(
        f'{{"weight":"1","root":{_nested(tree, names, powers, knows_missing)}}}'
        for tree in forest.trees
    )
    null = '"isNullSameAsZero":false,' if knows_missing else ""
    features = map(_feature, forest.names, powers)
    text = _model("MultipleAdditiveTreesModel", target, features, f'{null}"trees":[{trees}]')
    notes = [SOLR_MISSING] if knows_missing else []
    if unreached:
        notes.append(SOLR_UNREACHED(splits=unreached))
    return text, tuple(notes)


def _model(kind: str, target: Target, features: Iterable[Any], params: str) -> str:
    head = {
        "class": f"{_PACKAGE}.model.{kind}",
        "name": target.name,
        "store": target.name,
        "features": [*features],
    }
    return f'{json.dumps(head, ensure_ascii=False)[:-1]},"params":{{{params}}}}}\n'


def _feature(name: str, power: int = 0) -> dict[str, Any]:
    if power == 0:
        return {"name": name}
    per = {"avg": "0.0", "std": forms.text32(np.float32(2.0**-power))}
    return {"name": name, "norm": {"class": f"{_PACKAGE}.norm.StandardNormalizer", "params": per}}


def _scaling(forest: forms.Forest) -> tuple[list[int], int]:
    """The power of two of each feature, and the number of splits that none of them reaches."""
    feature = np.concatenate([tree.feature for tree in forest.trees])
    cut = np.concatenate([tree.cut for tree in forest.trees])
    powers, unreached = [], 0
    for number in range(len(forest.names)):
        own = np.unique(cut[feature == number])
        missed = [int(np.sum(~_reached(own, power))) for power in _POWERS]
        best = int(np.argmin(missed))
        powers.append(_POWERS[best])
        unreached += missed[best]
    return powers, unreached


def _scaled(cut: forms.SingleArray, power: int) -> forms.SingleArray:
    with np.errstate(over="ignore"):
        return np.ldexp(cut, power).astype(np.float32)


def _reached(cut: forms.SingleArray, power: int) -> BoolArray:
    """Whether Solr compares with these very cuts, of a feature times 2^power."""
    scaled = _scaled(cut, power)
    # Every known value is at most the largest single float, and at most infinity.
    exact = np.isfinite(scaled) | (cut == np.finfo(np.float32).max) | (power == 0)
    with np.errstate(over="ignore", under="ignore"):
        return exact & (thresholds(scaled) + _SLACK == scaled)


def thresholds(cut: forms.SingleArray) -> forms.SingleArray:
    """What is to be written: x with fl(x + 1e-6) = cut.

    Where there is none, the nearest that is further from 0 than the cut: zeros go the right way.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        near = (cut.astype(np.float64) - np.float64(_SLACK)).astype(np.float32)
        steps = [near]
        for _ in range(3):
            steps.append(np.nextafter(steps[-1], np.float32(np.inf)))
            steps.insert(0, np.nextafter(steps[0], np.float32(-np.inf)))
        tried = np.array(steps)
        reached = tried + _SLACK
        off = np.abs(reached.astype(np.float64) - cut.astype(np.float64))
    nearer_zero = np.where(cut >= 0, reached < cut, reached > cut)
    distance = np.where(nearer_zero, np.inf, off)
    distance[np.isnan(distance)] = 0.0  # infinite cuts
    return np.asarray(tried[np.argmin(distance, axis=0), np.arange(len(cut))], np.float32)


def _nested(tree: forms.Tree, names: list[str], powers: list[int], knows_missing: bool) -> str:
    """Numbers stand in quotes: Solr has no setters for others."""
    power = np.array(powers)[tree.feature] if tree.n_splits else np.zeros(0, np.int64)
    with np.errstate(over="ignore"):
        written = thresholds(np.ldexp(tree.cut, power).astype(np.float32))

    def split(node: int, left: str, right: str) -> str:
        way = f'"missing":"{"left" if tree.nan_left[node] else "right"}",' * knows_missing
        return (
            f'{{"feature":{names[tree.feature[node]]},"threshold":"{forms.text32(written[node])}",{way}'
            f'"left":{left},"right":{right}}}'
        )

    return tree.nested(
        [f'{{"value":"{forms.text32(v)}"}}' for v in tree.leaf.astype(np.float32)], split
    )


def _feature_store(form: forms.Forest | forms.LinearForm, target: Target) -> str:
    """Text queries and fields; without "defaultValue" a document without the field counts as 0."""
    nan = isinstance(form, forms.Forest) and form.missing is not None

    def feature(name: str) -> dict[str, Any]:
        kind, params = "FieldValueFeature", {"field": f"FIELD_OF_{name}"}
        if forms.is_text_score(name):
            kind, params = "SolrFeature", {"q": f"{{!field f=FIELD_OF_{name}}}${{text}}"}
        params |= {"defaultValue": "NaN"} if nan else {}
        own = {"store": target.name, "name": name, "class": f"{_PACKAGE}.feature.{kind}"}
        return {**own, "params": params}

    return json.dumps([feature(name) for name in form.names], indent=1, ensure_ascii=False) + "\n"


def _commands(target: Target) -> tuple[str, ...]:
    put = "curl -X PUT -H 'Content-Type: application/json'"
    features = target.beside(".features.json")
    return (
        "SOLR=${SOLR:-http://localhost:8983/solr/COLLECTION}",
        f"# once (fill in {features} first):",
        f'{put} "$SOLR/schema/feature-store" --data-binary @{features}',
        "# the model, and a search that re-ranks with it:",
        f'{put} "$SOLR/schema/model-store" --data-binary @{target.path.name}',
        "curl -G \"$SOLR/query\" --data-urlencode 'q=WORDS' --data-urlencode 'fl=id,score' "
        f"--data-urlencode 'rq={{!ltr model={target.name} reRankDocs=100 efi.text=WORDS}}'",
    )

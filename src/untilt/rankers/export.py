"""Models for other systems: LightGBM's text for trees, a JSON of weights for linear rankers."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from untilt._core.files import replacing
from untilt._version import __version__
from untilt.errors import OptionError
from untilt.rankers.base import Ranker
from untilt.rankers.linear.model import LinearModel

LINEAR_FORMAT = "untilt linear ranker"
LINEAR_VERSION = 1
_FORBIDDEN = re.compile(r"""[\s",:\[\]{}=]""")


def export_model(ranker: Ranker, path: str | os.PathLike[str]) -> Path:
    """Write the model alone, for a system that does not run untilt; returns the path.

    A boosted ranker becomes LightGBM's text model (`lightgbm.Booster(model_file=path)` gives the
    same scores, with the ranker's feature names where LightGBM allows them). A linear ranker
    becomes JSON: the score is the sum of weight times feature, features as they are, without an
    intercept; it differs from `predict` by a constant, which no ranking can see. The file is called
    .txt for the one and .json for the other; any other ending is an error.

    A missing feature scores as in `predict`: the trees hold its way, and "missing" in the JSON is
    the value it counts as. Where `predict` refuses it, neither says anything about it.
    """
    _check_ending(ranker, Path(path))
    with replacing(path) as temporary:
        temporary.write_text(export_text(ranker), encoding="utf-8")
    return Path(path)


def _check_ending(ranker: Ranker, path: Path) -> None:
    """Raise unless the file's name promises what will stand in it."""
    ranker._check_fitted()
    kind = next((kind for kind in _KINDS if kind.fits(ranker)), None)
    if kind is not None and path.suffix.lower() != kind.ending:
        known = " or ".join(f"{each.ending} ({each.what})" for each in _KINDS)
        raise OptionError(
            f"a {type(ranker).__name__} is exported as {kind.what}: a file that ends in "
            f"{kind.ending}. Got {path.name!r}; the endings that can be written are {known}."
        )


def export_text(ranker: Ranker) -> str:
    """What `export_model` writes."""
    ranker._check_fitted()
    for kind in _KINDS:
        if kind.fits(ranker):
            return kind.text(ranker)
    raise OptionError(
        f"a {type(ranker).__name__} has no form that other systems read: only boosted and linear "
        "rankers do. ranker.save(path) keeps it for untilt."
    )


def _linear_text(ranker: Any) -> str:
    return json.dumps(_linear(ranker), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _linear(ranker: LinearModel) -> dict[str, Any]:
    weights = zip(ranker.feature_names_, ranker.weights_.tolist(), strict=True)
    filled = isinstance(ranker.missing_, float | int)
    return {
        "format": LINEAR_FORMAT,
        "version": LINEAR_VERSION,
        "untilt": __version__,
        "kind": type(ranker).__name__,
        "score": "sum of weight * feature",
        **({"missing": ranker.missing_} if filled else {}),
        "features": [{"name": name, "weight": weight} for name, weight in weights],
    }


def _lightgbm_text(ranker: Any) -> str:
    """Only the trees that the ranker uses: early stopping may have grown more."""
    text: str = ranker.booster_.model_to_string(num_iteration=ranker.n_trees_)
    return _with_names(text, ranker.feature_names_)


def _with_names(text: str, names: tuple[str, ...]) -> str:
    """The ranker's feature names in place of Column_0, Column_1, ...

    The text separates names by spaces and LightGBM refuses JSON's special characters in them.
    """
    if len(set(names)) < len(names) or any(_FORBIDDEN.search(name) or not name for name in names):
        return text
    named = f"feature_names={' '.join(names)}"
    text = re.sub(r"(?m)^feature_names=.*$", lambda _: named, text, count=1)
    head, mark, tail = text.partition("\nfeature_importances:\n")
    tail = re.sub(r"(?m)^Column_(\d+)=", lambda found: f"{names[int(found[1])]}=", tail)
    return head + mark + tail


@dataclass(frozen=True)
class _Export:
    """A form that other systems read: the ending of its file, and which rankers have it."""

    ending: str
    what: str
    fits: Callable[[Ranker], bool]
    text: Callable[[Any], str]


_KINDS = (
    _Export(".txt", "LightGBM's text", lambda r: hasattr(r, "booster_"), _lightgbm_text),
    _Export(".json", "a JSON of weights", lambda r: isinstance(r, LinearModel), _linear_text),
)

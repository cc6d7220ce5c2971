"""Options of estimators as text: every one of every constructor, by its own types."""

from typing import Any

import pytest

from untilt import PowerLaw, TrustEM, catalog
from untilt.bias.em.trust_em import TrustAnchor
from untilt.bias.estimator import estimator_options, parse_estimator
from untilt.errors import OptionError


def written(value: Any) -> str:
    if isinstance(value, tuple):
        return str(list(value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@pytest.mark.parametrize("record", catalog.methods("bias"), ids=lambda record: record.name)
def test_every_option_of_every_estimator_can_be_written(record):
    """Each default, written as text, comes back as itself."""
    kind = record.load()
    defaults = kind().get_params()
    assert defaults
    for name, value in defaults.items():
        assert estimator_options(kind, [f"{name}={written(value)}"]) == {name: value}


def test_values_of_all_kinds():
    asked = parse_estimator(
        "pivot-swap:pivot=2,within=length,outlier_limit=3,shape=none,check=no,"
        'ranker={"treatment": [2, 5], "control": "base"}'
    )
    assert asked.kind.__name__ == "PivotSwap"
    assert asked.options == {
        "pivot": 2,
        "within": "length",
        "outlier_limit": 3.0,
        "shape": None,
        "check": False,
        "ranker": {"treatment": [2, 5], "control": "base"},
    }


def test_records_and_curves():
    options = estimator_options(
        TrustEM, ["examination=power-law:1", 'anchor={"relevant": 0.6, "irrelevant": 0.4}']
    )
    assert options == {"examination": PowerLaw(1.0), "anchor": TrustAnchor(0.6, 0.4)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "shuffled-top:tpo=3",
            "has no option 'tpo'. Did you mean 'top'?.*check, level, ranker, top",
        ),
        ("shuffled-top:3", "has no option '3'"),
        ("shuffled-top:top=ten", "'top' of shuffled-top must be a whole number or none. Got 'ten'"),
        ("shuffled-top:check=maybe", "must be true or false. Got 'maybe'"),
        ("shuffled-top:top=3,top=4", "given twice"),
        ("pivot-swap:ranker={1}", "is no JSON"),
        ("trust-em:anchor=3", "must be none or JSON in brackets"),
        ("trust-em:examination=nowhere.json", "there is no such file"),
    ],
)
def test_what_cannot_be_understood(text, message):
    with pytest.raises(OptionError, match=message):
        parse_estimator(text)

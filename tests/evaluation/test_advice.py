"""What warnings advise: whoever follows it is never sent back to where he was."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from untilt import catalog, shown
from untilt.bias.curve import PositionBias
from untilt.data.clicklog import ClickLog
from untilt.evaluation.estimate import estimate
from untilt.facts import Fact

EVALUATORS = [
    each.name
    for each in catalog.methods("evaluator")
    if not {"relevance", "propensity"} & {*each.needs}
]
# What can be wrong with a log or a bias, each alone and together with the others.
CONDITIONS = ("few clicks", "documents absent", "trust bias", "curve that does not fit")
CASES = [c for n in range(5) for c in itertools.combinations(CONDITIONS, n)]


def log_with(conditions):
    """Lists of two of three documents, in both orders; position 2 is looked at half as often."""
    rng = np.random.default_rng(1)
    n = 60 if "few clicks" in conditions else 4000
    query = rng.integers(40, size=n)
    shows = rng.integers(2, size=n) if "documents absent" in conditions else np.zeros(n, int)
    order = rng.integers(2, size=n)
    pairs = np.array([[[0, 1], [1, 0]], [[0, 2], [2, 0]]])[shows, order]
    theta = np.array([0.9, 0.2 if "curve that does not fit" in conditions else 0.45])
    clicks = rng.random((n, 2)) < theta * 0.4
    return ClickLog(
        query_id=np.arange(40), doc_id=np.arange(120), doc_query=np.repeat(np.arange(40), 3),
        indptr=2 * np.arange(n + 1), query=query,
        document=(3 * query[:, None] + pairs).ravel(), position=np.tile([1, 2], n),
        label=clicks.ravel().astype(float),
    ).collapse()  # fmt: skip


def instead(fact):
    """The evaluator that a warning names: in a field, or in a clause of it."""
    clauses = [fact, *(each for each in fact.fields.values() if isinstance(each, Fact))]
    return next((each.fields["instead"] for each in clauses if each.fields.get("instead")), None)


def bias_with(conditions):
    bias = PositionBias(np.array([0.9, 0.45]), std_error=np.array([0.01, 0.01]))
    if "trust bias" in conditions:
        bias = replace(bias, eps_plus=np.array([0.99, 0.98]), eps_minus=np.array([0.1, 0.05]))
    return bias


@pytest.mark.parametrize("conditions", CASES, ids=", ".join)
def test_no_advice_leads_back(conditions):
    log, bias = log_with(conditions), bias_with(conditions)
    leads = {}
    for name in EVALUATORS:
        if "trust" in catalog.find("evaluator", name).needs and not bias.has_trust:
            continue
        warnings = estimate(log, shown, bias, evaluator=name, among="shown").warnings
        leads[name] = {instead(fact) for fact in warnings} - {None}
        assert len(leads[name]) <= 1, f"{name} is told to be two others: {warnings}"
    for start in leads:
        seen, here = {start}, start
        while leads[here]:
            (here,) = leads[here]
            assert here not in seen, f"from {start} around to {here}"
            seen.add(here)


def test_the_conditions_are_what_they_are_called():
    """Else the test above would be about nothing."""
    everything = estimate(
        log_with(CONDITIONS), shown, bias_with(CONDITIONS), evaluator="ips", among="shown"
    ).warnings
    found = {fact.code for fact in everything if instead(fact)}
    assert {"estimate.few-effective-clicks", "estimate.documents-absent",
            "estimate.trust-ignored"} <= found  # fmt: skip
    misfit = ("curve that does not fit",)
    warned = estimate(log_with(misfit), shown, bias_with(misfit), evaluator="ips").warnings
    assert "estimate.curve-misfit" in {fact.code for fact in warned}


def test_weights_that_are_clipped_are_not_to_be_clipped_more():
    log, bias = log_with(("few clicks",)), bias_with(())
    clauses = [
        fact.fields["clip"]
        for clip in (0.0, 0.9)
        for fact in estimate(log, shown, bias, clip=clip).warnings
        if fact.code == "estimate.few-effective-clicks"
    ]
    assert ["clip='auto'" in each for each in clauses] == [True, False]


@pytest.mark.parametrize(
    "name", [n for n in EVALUATORS if "clip" in catalog.find("evaluator", n).takes]
)
def test_the_clip_that_the_data_chose_is_the_one_used(name):
    log, bias = log_with(()), bias_with(())
    chosen = estimate(log, shown, bias, evaluator=name, clip="auto")
    assert chosen.clip_chosen
    given = estimate(log, shown, bias, evaluator=name, clip=chosen.clip)
    assert not given.clip_chosen
    assert (given.clip, given.best.value) == (chosen.clip, chosen.best.value)

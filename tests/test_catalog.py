"""Records are read without importing the methods, and agree with the classes that carry them."""

import itertools
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import untilt as ut
from untilt import catalog
from untilt.errors import OptionError
from untilt.workflow import candidates

RECORDS = catalog.methods()
CURVE = ut.KnownBias([1.0, 0.5], eps_plus=[0.9, 0.9], eps_minus=[0.1, 0.1])


def test_a_record_leads_to_its_class():
    for record in RECORDS:
        target = record.load()
        assert (target.__module__, target.__qualname__) == (record.home, record.target), record
        assert catalog.record_of(target).target == record.target, record


def test_names_are_unique_in_their_kind():
    keys = [(record.kind, record.name) for record in RECORDS]
    assert len(set(keys)) == len(keys)


def test_reading_the_records_imports_no_method():
    code = (
        "from untilt import catalog; catalog.methods(); import sys; print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_wrong_name_gets_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'prs'"):
        catalog.find("weighting", "psr")


def test_a_class_that_has_a_name_has_the_name_of_its_record():
    for record in RECORDS:
        name = getattr(record.load(), "name", None)
        assert name == record.name or not isinstance(name, str), record


def test_references_stand_in_the_bibliography():
    bibliography = Path(__file__).parents[1] / "docs/references.bib"
    keys = set(re.findall(r"^@\w+\{(\w+),", bibliography.read_text(encoding="utf8"), re.MULTILINE))
    assert {record.reference for record in RECORDS} <= {"", *keys}


def test_a_name_is_found_whatever_its_dashes_and_capitals_and_by_its_class_or_alias():
    all_pairs = catalog.find("bias", "all-pairs")
    for name in ("All_Pairs", "allpairs", "AllPairs"):
        assert catalog.find("bias", name) is all_pairs
    assert catalog.find("weighting", "naive") is catalog.record_of(ut.Naive)
    assert catalog.find("metric", "p") is catalog.record_of(ut.Precision)


def test_a_class_of_several_kinds_has_a_record_of_each():
    assert catalog.record_of(ut.DualLearning, "bias").rests_on == "relevance model"
    assert catalog.record_of(ut.DualLearning, "ranker").choose == ("train", "select", "run")


def test_a_saved_ranker_may_hold_the_table_and_never_the_protocol_of_the_same_name():
    assert catalog.storable_homes()["PRS"] == ut.PRS.__module__
    assert "DLA" not in catalog.storable_homes()


# ---- candidates of a run


def test_names_of_candidates_are_unique_over_tables_objectives_and_rankers():
    names = [record.name for record in candidates.candidates()]
    assert len(set(names)) == len(names)


def test_the_usual_candidates_in_their_order():
    usual = [record.name for record in candidates.candidates("usual")]
    assert usual == ["clicks", "auto"]


def test_the_default_is_dropped_last_and_raw_clicks_never():
    dropped = candidates.dropped_first()
    assert dropped[-1] == candidates.default_of(dropped) == "auto"
    costs = [each.cost for each in map(candidates.candidate, dropped) if each.drop == 15]
    assert costs == sorted(costs, reverse=True)
    assert candidates.system_name("clicks") == "raw clicks"
    assert "clicks" not in dropped
    last = ["pairwise-debiasing", "ips", "linear", "pbm-likelihood", "prs", "balanced", "auto"]
    assert [name for name in dropped if name in last] == last


def test_every_candidate_can_be_made_and_described():
    for record in candidates.candidates():
        ranker = candidates.make_candidate(record.name, CURVE, trees=7, threads=1, seed=3)
        trained = record if record.kind == "ranker" else catalog.default("ranker")
        assert type(ranker) is trained.load()
        assert ranker.get_params().get("n_trees", 7) == 7
        note = candidates.candidate_note(record.name)
        assert note.startswith(("LambdaMART", "boosted", "a ")), note
        if record.kind == "ranker" and "weighting" in record.takes:
            assert ranker.weighting == ut.Balanced(CURVE)


def test_every_ranker_is_made_with_every_correction_that_it_takes():
    corrections = [*catalog.names("weighting"), *catalog.names("objective")]
    for ranker, method in itertools.product(catalog.methods("ranker"), corrections):
        if candidates.correction(method).kind in ranker.takes:
            assert type(candidates.make_ranker(ranker.name, method, CURVE)) is ranker.load()
        else:
            with pytest.raises(OptionError, match="--method"):
                candidates.make_ranker(ranker.name, method, CURVE)


def test_a_correction_that_needs_a_curve_says_so():
    with pytest.raises(OptionError, match="--method prs needs the position bias"):
        candidates.make_ranker(None, "prs", None)
    assert candidates.make_ranker(None, "pairwise-debiasing", None).weighting is not None


def test_a_candidate_that_cannot_be_made_is_a_warning_and_not_the_end_of_a_run(tmp_path):
    log = ut.simulate(ut.make_judged(40, 4, seed=0), n_sessions=1_500, seed=0).log
    run = ut.run(
        log, tmp_path, method=["bayes-ips", "prs"], bias="power-law:1", trees=2, threads=1
    )  # a power law has no eps+ and eps-
    failed = [fact.fields["candidate"] for fact in run.warnings if "candidate-failed" in fact.code]
    assert failed == ["bayes-ips"]


@pytest.fixture
def notebook():
    """What is declared in the test is forgotten after it."""
    yield
    catalog._added.clear()
    catalog._catalog.cache_clear()


def test_the_decorator_alone_adds_a_method(notebook):
    @catalog.method("curve", "toy-flat", title="Flat", note="ones", rests_on="given")
    class Flat:
        def at(self, position):
            return np.ones(np.shape(position))

    assert catalog.find("curve", "toy-flat").load() is Flat
    assert catalog.record_of(Flat).name == "toy-flat"

    @catalog.method("curve", "toy-flat", title="Flat", note="again", rests_on="given")
    class Again(Flat):
        """The cell of a notebook is run again with a change."""

    assert catalog.find("curve", "toy-flat").load() is Again
    with pytest.raises(OptionError, match="there is a curve 'power-law' already"):
        catalog.method("curve", "power-law", title="Mine", note="mine")(Flat)

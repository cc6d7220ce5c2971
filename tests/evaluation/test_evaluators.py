"""Evaluators are values that print, parse and describe themselves; one's own works as well."""

from dataclasses import FrozenInstanceError, dataclass, fields, replace

import numpy as np
import pytest

import untilt as ut
from untilt import catalog
from untilt.errors import OptionError
from untilt.evaluation import evaluators
from untilt.evaluation.pool import Credit, Evaluator, parse_evaluator

RECORDS = catalog.methods("evaluator")
NAMES = [record.name for record in RECORDS]


@pytest.fixture(scope="module")
def log():
    return ut.simulate(ut.make_judged(60, 6, seed=3), "harvest", n_sessions=2000, seed=3).log


@pytest.fixture(scope="module")
def scores(log):
    return np.random.default_rng(0).random(log.n_documents)


@pytest.mark.parametrize("record", RECORDS, ids=NAMES)
def test_the_record_says_what_the_class_is(record):
    kind = record.load()
    options = {field.name for field in fields(kind)}
    assert ("bias" in record.needs) == kind.needs_bias
    assert set(record.takes) == options
    assert kind().name == record.name
    assert record.title
    assert record.note


@pytest.mark.parametrize("name", NAMES)
def test_an_evaluator_is_a_frozen_value(name):
    one = parse_evaluator(name)
    assert str(one) == name
    assert one == parse_evaluator(str(one)) == parse_evaluator(one)
    assert hash(one) == hash(parse_evaluator(name))
    with pytest.raises(FrozenInstanceError):
        one.name_of_the_day = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["clipped:clip=0.1", "snips:clip=0.25", "policy-aware:clip=1"])
def test_options_are_printed_and_parsed(text):
    assert str(parse_evaluator(text)) == text
    assert parse_evaluator(text.replace("=", " = ")) == parse_evaluator(text)
    assert parse_evaluator(text).clip == float(text.rpartition("=")[2])  # type: ignore[attr-defined]


def test_no_evaluator_is_the_default_and_there_is_one():
    assert [record.name for record in RECORDS if record.default] == ["policy-aware"]
    assert parse_evaluator(None) == evaluators.PolicyAwareEvaluator()


@pytest.mark.parametrize("text", ["clipped:clip", "clipped:tau=1", "ips:clip=0.1", "nips", ""])
def test_what_is_no_evaluator_is_refused(text):
    with pytest.raises(OptionError):
        parse_evaluator(text)


@pytest.mark.parametrize("text", ["ips", "clipped:clip=0.5", "bayes-ips", "affine"])
def test_examination_of_ones_is_naive(log, scores, text):
    ones = ut.KnownBias(np.ones(log.depth))
    naive = ut.estimate(log, scores, evaluator="naive").best
    assert ut.estimate(log, scores, ones, evaluator=text).best.value == pytest.approx(naive.value)


@pytest.mark.parametrize("name", NAMES)
def test_name_value_and_text_give_the_same(log, scores, name):
    made, bias = catalog.find("evaluator", name).make(), ut.PowerLaw(1.0)
    if made.matches_slots:
        log = replace(log, extra_labels={"propensity": np.full(len(log.label), 0.5)})
    by_name, by_value = (ut.estimate(log, scores, bias, evaluator=e) for e in (name, made))
    assert by_name.best == by_value.best
    assert by_name.evaluator == by_name.best.evaluator == name
    if made.takes("clip"):
        by_option = ut.estimate(log, scores, bias, evaluator=name, clip=0.3)
        by_text = ut.estimate(log, scores, bias, evaluator=f"{name}:clip=0.3")
        assert by_option.best == by_text.best
        assert by_option.clip == by_text.clip == 0.3
    else:
        assert by_name.clip == 0


@dataclass(frozen=True)
class Doubled(Evaluator):
    """Twice the clicks: of no use but to show what one's own evaluator needs."""

    factor: float = 2.0
    needs_bias = False

    def credit(self, pool, bias):
        weight = np.full(len(pool.clicks), self.factor)
        zero = np.zeros(len(weight))
        return Credit(weight * pool.clicks, zero, weight, zero > 0, zero == 0)


def test_an_evaluator_of_ones_own_needs_no_list(log, scores):
    naive = ut.estimate(log, {"a": scores, "shown": ut.shown}, evaluator="naive")
    own = ut.estimate(log, {"a": scores, "shown": ut.shown}, evaluator=Doubled(3.0))
    for name in ("a", "shown"):
        assert own[name].value == pytest.approx(3 * naive[name].value)
    assert own.evaluator == "Doubled"
    assert str(Doubled(3.0)) == "Doubled:factor=3"
    with pytest.raises(OptionError, match="takes no clip"):
        ut.estimate(log, scores, evaluator=Doubled(), clip=0.1)


def test_a_clip_curve_belongs_to_the_evaluators_with_one_clip(log, scores):
    with pytest.raises(OptionError, match="clipped, policy-aware"):
        ut.clip_curve(log, scores, ut.PowerLaw(1.0), evaluator="snips")

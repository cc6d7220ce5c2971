"""What holds for every weighting there is."""

import dataclasses
from functools import partial
from inspect import isabstract

import numpy as np
import pytest

import untilt
from untilt import PRS, BayesIPS, KnownBias, PowerLaw, catalog
from untilt.weighting import JointWeighting, Weighting
from untilt.workflow.candidates import weighting_of

DEPTH = 4
# Every weighting as something that takes a bias; one with eps+ and eps- suits them all.
WEIGHTINGS = {
    record.name: partial(weighting_of, record) for record in catalog.methods("weighting")
} | {
    "prs without a clip": partial(PRS, clip=np.inf),
    "prs clipped at clicks": partial(PRS, clip=0.1, clip_of="clicked"),  # below every theta here
}


def a_bias(theta=(1.0, 0.6, 0.3, 0.2), eps_plus=0.9, eps_minus=0.1):
    return KnownBias(
        np.array(theta),
        eps_plus=np.full(len(theta), eps_plus),
        eps_minus=np.full(len(theta), eps_minus),
    )


def no_noise(theta=(1.0, 0.6, 0.3, 0.2)):
    return a_bias(theta, eps_plus=1.0, eps_minus=0.0)


@pytest.fixture(params=WEIGHTINGS)
def make(request):
    return WEIGHTINGS[request.param]


def test_every_public_weighting_is_in_the_suite():
    made = {type(make(no_noise())) for make in WEIGHTINGS.values()}
    public = {getattr(untilt, name) for name in dir(untilt.weightings)}
    tables = {x for x in public if isinstance(x, type) and issubclass(x, Weighting)}
    assert {each for each in tables if not isabstract(each)} == made


@pytest.mark.parametrize("depth", [1, 2, DEPTH])
def test_a_table_is_square_finite_and_positive(make, depth):
    W = make(a_bias()).table(depth)
    assert W.shape == (depth, depth)
    assert np.all(np.isfinite(W))
    assert np.all(W > 0)


def test_a_table_does_not_change_with_the_depth_asked_for(make):
    weighting = make(a_bias())
    assert np.array_equal(weighting.table(2), weighting.table(DEPTH)[:2, :2])


def test_examination_of_ones_is_naive(make):
    weighting = make(no_noise(np.ones(DEPTH)))
    assert weighting.table(DEPTH) == pytest.approx(np.ones((DEPTH, DEPTH)))
    assert weighting.offset(DEPTH) is None


def test_only_ratios_of_examination_matter_up_to_a_common_factor(make):
    """Clicks give examination up to a factor only; a table must not need more."""
    W, half = make(no_noise()).table(DEPTH), make(no_noise(np.array([1, 0.6, 0.3, 0.2]) / 2))
    ratio = half.table(DEPTH) / W
    assert ratio == pytest.approx(np.full((DEPTH, DEPTH), ratio[0, 0]))


def test_a_weighting_is_a_frozen_value(make):
    needs_trust = make is WEIGHTINGS[catalog.record_of(BayesIPS).name]
    weighting = make(a_bias() if needs_trust else PowerLaw(1.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        weighting.clip = 0.5
    if not needs_trust:
        again = make(PowerLaw(1.0))
        assert again == weighting
        assert hash(again) == hash(weighting)


def test_the_repr_tells_kind_and_options(make):
    weighting = make(a_bias())
    text = repr(weighting)
    assert text.startswith(type(weighting).__name__ + "(")
    for field in dataclasses.fields(weighting):
        assert f"{field.name}={getattr(weighting, field.name)!r}" in text


def test_asking_for_a_table_changes_nothing(make):
    bias = a_bias()
    before = bias.examination.copy()
    weighting = make(bias)
    first = weighting.table(DEPTH)
    first *= 7  # a caller may do what it likes with its table
    assert np.array_equal(weighting.table(DEPTH) * 7, first)
    assert np.array_equal(bias.examination, before)


def test_a_bias_given_as_arrays_is_not_shared(make):
    theta, plus, minus = np.array([1.0, 0.6, 0.3, 0.2]), np.full(4, 0.9), np.full(4, 0.1)
    weighting = make(KnownBias(theta, eps_plus=plus, eps_minus=minus))
    before = weighting.table(DEPTH)
    theta[:], plus[:], minus[:] = 0.5, 0.8, 0.3
    assert np.array_equal(weighting.table(DEPTH), before)


def test_against_is_one_of_two(make):
    assert make(a_bias()).against in ("unclicked", "all")


def test_joint_weightings_say_so(make):
    weighting = make(a_bias())
    assert weighting.joint == isinstance(weighting, JointWeighting)


def test_an_offset_comes_with_pairs_against_all(make):
    weighting = make(a_bias())
    offset = weighting.offset(DEPTH)
    if offset is not None:
        assert weighting.against == "all"
        assert not weighting.per_session_norm
        assert offset.shape == (DEPTH, DEPTH)
        assert np.all(offset < 0)

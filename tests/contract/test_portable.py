"""Everything that untilt hands out survives pickle, copies and other processes as it is."""

import copy
import dataclasses
import io
import multiprocessing
import pickle
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

import joblib  # type: ignore[import-untyped]
import numpy as np
import pytest

import untilt as ut
from untilt import catalog
from untilt._core.portable import Portable

BIAS = ut.EyeTracking().to_bias(10)
SMALL: dict[str, dict[str, Any]] = {
    "lambdamart": {"n_trees": 3, "n_threads": 1},
    "linear": {"max_rounds": 2},
    "svm": {"max_rounds": 2},
}


@pytest.fixture(scope="module")
def made():
    judged = ut.make_judged(n_queries=40, n_features=4, seed=0)
    return judged, ut.simulate(judged, protocol="harvest", n_sessions=2_000, seed=0, n_threads=1)


def fitted_ranker(name, log):
    return catalog.find("ranker", name).make(ut.IPS(BIAS), **SMALL[name]).fit(log)


def estimates(log):
    return ut.estimate(log, {"shown": ut.shown, "new": fitted_ranker("linear", log)}, BIAS)


PRODUCTS: dict[str, Any] = {
    "judged lists": lambda judged, sim: judged,
    "log": lambda judged, sim: sim.log,
    "collapsed log": lambda judged, sim: sim.log.collapse(),
    "simulation": lambda judged, sim: sim,
    "rates": lambda judged, sim: sim.log.ctr_by_position(),
    "slates": lambda judged, sim: sim.log.slates(),
    "audit": lambda judged, sim: ut.audit(sim.log),
    "graph": lambda judged, sim: ut.position_graph(sim.log),
    "bias": lambda judged, sim: BIAS,
    "all pairs": lambda judged, sim: ut.AllPairs().fit(sim.log),
    "comparison of biases": lambda judged, sim: BIAS.compare(ut.AllPairs().fit(sim.log).bias_),
    "evaluation": lambda judged, sim: ut.evaluate(judged, judged.labels),
    "comparison": lambda judged, sim: ut.evaluate(judged, judged.labels).minus(
        ut.evaluate(judged, -judged.labels)
    ),
    "estimates": lambda judged, sim: estimates(sim.log),
    "differences": lambda judged, sim: estimates(sim.log).compare("shown"),
    "clip curve": lambda judged, sim: ut.clip_curve(
        sim.log, fitted_ranker("linear", sim.log), BIAS
    ),
    "selection": lambda judged, sim: ut.select(
        {"a": ut.LinearRanker(max_rounds=2)}, train=sim.log, valid=sim.log, bias=BIAS
    ),
    "plan": lambda judged, sim: ut.plan_swaps(sim.log, sessions_per_day=1_000),
    "click models": lambda judged, sim: ut.compare_click_models(
        *sim.log.split(0.5, by="session"), models=[ut.DCTR(), ut.GCTR()]
    ),
    "bias by context": lambda judged, sim: ut.ContextualBias().fit(
        sim.log, (np.arange(sim.log.n_lists) % 3.0)[:, None], per="list"
    ),
    "null tests": lambda judged, sim: estimates(sim.log).check,
    "production ranker": lambda judged, sim: ut.production_ranker(judged),
    "click model": lambda judged, sim: ut.DCTR().fit(sim.log),
    "reciprocal": lambda judged, sim: ut.estimate(
        sim.log, {"shown": ut.shown}, BIAS, metric="reciprocal@5"
    ).metric,
    **{
        name: lambda judged, sim, name=name: fitted_ranker(name, sim.log) for name in SMALL
    },
    **{
        f"{record.kind} {record.name}": lambda judged, sim, record=record: record.make()
        for record in catalog.methods()
        if record.kind in ("metric", "evaluator") and not record.needs
    },
    "known curve": lambda judged, sim: ut.KnownBias(np.array([1.0, 0.5])),
    "power law": lambda judged, sim: ut.PowerLaw(1.0),
}  # fmt: skip


def joblib_copy(value: Any) -> Any:
    file = io.BytesIO()
    joblib.dump(value, file)
    file.seek(0)
    return joblib.load(file)


COPIES = {
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "oldest pickle": lambda value: pickle.loads(pickle.dumps(value, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "joblib": joblib_copy,
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Arrays, mappings and plain values of an object, with the way to them."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Mapping):
        yield path, value
        for key, each in value.items():
            yield from leaves(each, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        for i, each in enumerate(value):
            yield from leaves(each, f"{path}[{i}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name, None), f"{path}.{field.name}")
    elif isinstance(value, str | int | float | bool | None):
        yield path, value


@pytest.fixture(scope="module")
def product(made):
    cache: dict[str, Any] = {}

    def get(name):
        if name not in cache:
            cache[name] = PRODUCTS[name](*made)
        return cache[name]

    return get


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_copy_is_the_same_and_stays_read_only(product, name, how):
    value = product(name)
    again = how(value)
    assert type(again) is type(value)
    before, after = dict(leaves(value)), dict(leaves(again))
    assert before.keys() == after.keys()
    for path, part in before.items():
        if isinstance(part, np.ndarray):
            assert np.array_equal(part, after[path], equal_nan=part.dtype.kind == "f"), path
            assert part.dtype == after[path].dtype, path
            assert part.flags.writeable == after[path].flags.writeable, path
        elif isinstance(part, Mapping):
            assert isinstance(part, MappingProxyType) == isinstance(after[path], MappingProxyType)
        else:
            assert part == after[path] or part != part, path  # noqa: PLR0124  NaN


def test_a_copied_log_is_a_log(made):
    log = made[1].log
    again = pickle.loads(pickle.dumps(log))
    assert repr(again) == repr(log)
    assert again.collapse().n_lists == log.collapse().n_lists
    with pytest.raises(ValueError, match="read-only"):
        again.label[0] = 2.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        again.label = log.label
    ranked = ut.LinearRanker(max_rounds=2).fit(again).predict(again)
    assert np.array_equal(ranked, ut.LinearRanker(max_rounds=2).fit(log).predict(log))


def sessions_of(log: ut.ClickLog) -> int:
    return log.n_sessions


def test_a_log_goes_to_another_process(made):
    # An executor, unlike a Pool, says when a worker dies instead of starting it again for ever.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(sessions_of, [made[1].log])) == [2_000]


def classes_in(hint: Any, seen: set[type]) -> set[type]:
    """Every dataclass that a value of this type may hold."""
    for part in get_args(hint):
        classes_in(part, seen)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in seen:
        seen.add(hint)
        for each in get_type_hints(hint).values():
            classes_in(each, seen)
    return seen


def test_every_class_of_a_decision_that_holds_arrays_is_portable():
    """Arrays that are read from a file are read-only, so their owners must keep them so."""
    found = classes_in(ut.Decision, set())
    assert len(found) > 20
    holding = [
        cls for cls in found if any("ndarray" in str(each) for each in get_type_hints(cls).values())
    ]
    assert {"PositionBias", "ClickRates"} <= {cls.__name__ for cls in holding}
    assert [cls.__name__ for cls in holding if not issubclass(cls, Portable)] == []

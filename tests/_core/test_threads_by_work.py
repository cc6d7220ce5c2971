"""How many threads work deserves, how they wait, and that no result depends on it."""

import os
import random
import subprocess
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import untilt as ut
from untilt._core import threads
from untilt._core.progress import _listener, progress

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="GNU OpenMP is Linux's")


@pytest.fixture
def _eight_cores(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 8)


@pytest.mark.usefixtures("_eight_cores")
def test_one_thread_for_little_work_and_never_more_than_cores():
    each = threads.TREE_VALUES
    deserved = [threads.thread_count(None, values=n) for n in (0, each, 2 * each - 1, 2 * each)]
    assert deserved == [1, 1, 1, 2]
    assert threads.thread_count(None, values=100 * each) == 8
    assert threads.thread_count(-1, values=0) == 1  # all of them, says LightGBM's user
    assert threads.thread_count(3, values=0) == 1
    asked = [threads.thread_count(n, values=100 * each) for n in (3, 9)]
    assert asked == [3, 8]  # the user's number is the most, a ranker may come from elsewhere
    assert threads.thread_count(None) is None


@pytest.mark.parametrize(("said", "expected"), [("3", 3), ("4,2", 4), ("", None), ("many", None)])
def test_the_user_s_number_of_openmp_threads_goes_before_the_machine_s(said, expected, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    monkeypatch.setattr("joblib.cpu_count", lambda: 5)
    assert threads.cores.__wrapped__() == (expected or 5)


@pytest.mark.usefixtures("_eight_cores")
@pytest.mark.parametrize(("numbers", "n_threads"), [(9, 1), (19, 1), (20, 2), (45, 4), (999, 8)])
def test_a_kernel_shares_its_loop_where_each_thread_gets_enough(numbers, n_threads, monkeypatch):
    monkeypatch.setattr(threads, "KERNEL_NUMBERS", 10)
    asked = []
    monkeypatch.setattr(threads, "side_by_side", lambda *_, n_threads: asked.append(n_threads))
    kernel = threads.parallel_kernel()(lambda *_: None)
    kernel.compiled = lambda *_: asked.append(1)
    held = SimpleNamespace(size=numbers)
    kernel(100, held, 5, None)
    kernel(100, np.zeros(3), (np.zeros(2), held))  # arrays inside a tuple count, too
    assert asked == [n_threads] * 2
    kernel(1, held)  # one part
    kernel(100, 7)
    assert asked[2:] == [1, 1]


def test_side_by_side_keeps_the_order_and_gives_each_worker_one_thread():
    meet = threading.Barrier(2, timeout=30)

    def work(item):
        meet.wait()  # two are at work at once
        return item, threads.thread_count(8), threading.get_ident()

    found = threads.side_by_side(work, "abcd", n_threads=2)
    assert [each[:2] for each in found] == [(item, 1) for item in "abcd"]
    assert len({each[2] for each in found}) == 2
    assert threads.thread_count(8) == 8  # here again


def test_a_worker_has_the_threads_that_are_idle_and_no_more():
    meet = threading.Barrier(2, timeout=30)

    def inner(_):
        time.sleep(0.01)
        return threading.get_ident()

    def inside():
        return len(set(threads.side_by_side(inner, "ab", n_threads=8)))

    def outer(item):
        meet.wait()
        found = [inside()]  # both are at work: no thread is idle
        meet.wait()
        end = time.monotonic() + 30
        while item == "long" and found[-1] < 2 and time.monotonic() < end:
            found[1:] = [inside()]  # two, as soon as the other has left
        return found

    assert threads.side_by_side(outer, ["long", "short"], n_threads=2) == [[1, 2], [1]]


def test_an_idle_thread_helps_with_what_was_begun_before_it_was_idle():
    both, begun = threading.Barrier(2, timeout=30), threading.Event()

    def inner(item):
        begun.set()
        both.wait()  # the second item is taken by the thread that has no other work
        return item

    def outer(item):
        if item == "long":
            return threads.side_by_side(inner, "ab", n_threads=2)
        assert begun.wait(30)  # the call inside is under way, and its first item waits
        return item

    found = threads.side_by_side(outer, ["long", "short"], n_threads=2)
    assert found == [["a", "b"], "short"]


@pytest.mark.parametrize("seed", range(20))
def test_calls_inside_calls_give_what_one_thread_gives(seed):
    def tree(random, depth):
        return [
            tree(random, depth - 1) if depth and random.random() < 0.5 else random.randint(0, 99)
            for _ in range(random.randint(0, 5))
        ]

    def total(item):
        if isinstance(item, list):
            return sum(threads.side_by_side(total, item, n_threads=3))
        if item == 7:
            raise ValueError("seven")
        time.sleep(item * 1e-5)
        return item

    def alone(item):
        return sum(map(alone, item)) if isinstance(item, list) else item

    def numbers(item):
        return [n for each in item for n in numbers(each)] if isinstance(item, list) else [item]

    whole = tree(random.Random(seed), 4)
    before = threading.active_count()
    if 7 in numbers(whole):
        with pytest.raises(ValueError, match="seven"):
            total(whole)
    else:
        assert total(whole) == alone(whole)
    assert threading.active_count() == before
    assert threads.side_by_side(str, [1, 2], n_threads=2) == ["1", "2"]


def test_one_item_or_one_thread_stays_in_this_thread():
    here = threading.get_ident()
    for items, n in (("a", 8), ("abc", 1)):
        found = threads.side_by_side(lambda _: threading.get_ident(), items, n_threads=n)
        assert set(found) == {here}
    assert threads.side_by_side(len, [], n_threads=2) == []


def test_an_error_of_a_worker_is_raised_here():
    def work(item):
        if item == "b":
            raise ValueError(item)

    with pytest.raises(ValueError, match="b"):
        threads.side_by_side(work, "abc", n_threads=2)


def test_progress_of_workers_is_heard():
    told = []

    class Ear:
        def task(self, what, _):
            told.append(what)
            return _nothing()

    token = _listener.set(Ear())
    try:
        threads.side_by_side(lambda item: progress(item).__enter__(), "ab", n_threads=2)
    finally:
        _listener.reset(token)
    assert sorted(told) == ["a", "b"]


def _nothing():
    return threads.kernel_threads(None)


@LINUX
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ({}, "GOMP_SPINCOUNT = '0'"),
        ({"OMP_WAIT_POLICY": "active"}, "GOMP_SPINCOUNT = '30000000000'"),
        ({"GOMP_SPINCOUNT": "1234"}, "GOMP_SPINCOUNT = '1234'"),
    ],
)
def test_idle_threads_sleep_unless_the_user_says_otherwise(said, shown):
    # The library itself tells its settings when it is loaded.
    kept = {name: value for name, value in os.environ.items() if name not in threads._HOW_TO_WAIT}
    script = (
        "import os\nbefore = dict(os.environ)\nimport untilt._core.threads\n"
        "assert dict(os.environ) == before\nimport lightgbm\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**kept, "OMP_DISPLAY_ENV": "verbose", **said},
    )
    first = done.stderr.partition("OPENMP DISPLAY ENVIRONMENT END")[0]
    assert shown in first, done.stderr


def test_trees_do_not_depend_on_the_number_of_threads(monkeypatch):
    judged = ut.make_judged(60, 6, seed=1)
    log = ut.simulate(judged, "dla", sessions_per_query=30, seed=1).log
    bias = ut.EyeTracking()
    made = [lambda **o: ut.LambdaMART(ut.PRS(bias), **o),
            lambda **o: ut.LambdaMART(objective="pbm-likelihood", bias=bias, **o)]  # fmt: skip

    def trees(n_threads):
        rankers = [make(n_trees=8, n_threads=n_threads).fit(log) for make in made]
        return [each.booster_.model_to_string().partition("\nparameters:")[0] for each in rankers]

    alone = trees(None)
    assert trees(2) == alone
    assert threads.side_by_side(trees, [None, 2], n_threads=2) == [alone, alone]
    monkeypatch.setattr(threads, "cores", lambda: 2)
    monkeypatch.setattr(threads, "TREE_VALUES", 1)
    monkeypatch.setattr(threads, "KERNEL_NUMBERS", 1)  # kernels with all of their threads
    assert trees(None) == alone


def _blas_threads():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_blas_has_one_thread_until_the_last_one_has_left():
    with threadpool_limits(2, user_api="blas"):
        with threads.one_blas_thread:
            assert _blas_threads() == {1}
            with threads.one_blas_thread:
                assert _blas_threads() == {1}
            assert _blas_threads() == {1}
        assert _blas_threads() == {2}


def test_libraries_are_looked_for_again_after_an_import(monkeypatch):
    def looked_for():
        with threads.one_blas_thread:
            assert _blas_threads() == {1}
        return threads._libraries_at.cache_info().misses

    before = looked_for()
    assert looked_for() == before
    monkeypatch.setitem(sys.modules, "just_imported", ModuleType("just_imported"))
    assert looked_for() == before + 1


def test_whatever_learns_has_one_thread_of_blas(monkeypatch):
    """A last digit of a variance may be another split, and another split is another ranker."""
    log = ut.simulate(ut.make_judged(40, 6, seed=1), "harvest", sessions_per_query=20, seed=1).log
    seen = {}

    def watched(kind, name):
        learn = getattr(kind, name)

        def look(self, *given, **more):
            seen[type(self)] = _blas_threads()
            return learn(self, *given, **more)

        monkeypatch.setattr(kind, name, look)

    watched(ut.LambdaMART, "_fit")
    watched(ut.RegressionEM, "_estimate")
    with threadpool_limits(2, user_api="blas"):
        bias = ut.RegressionEM().fit(log).bias_
        ut.LambdaMART("auto", bias=bias, n_trees=2).fit(log)
        assert _blas_threads() == {2}
    assert seen == {ut.LambdaMART: {1}, ut.RegressionEM: {1}}


def test_weights_of_linear_rankers_do_not_depend_on_the_threads_of_blas():
    # From about 50,000 rows on, OpenBLAS shares such a product among its threads.
    log = ut.simulate(ut.make_judged(3000, 50, seed=0), "dla", n_sessions=100_000, seed=0).log

    def weights(n):
        with threadpool_limits(n, user_api="blas"):
            return ut.RankSVM().fit(log).predict(log.features[:100]).tobytes()

    assert weights(1) == weights(2)

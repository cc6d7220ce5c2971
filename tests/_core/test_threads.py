"""Kernels, LightGBM and saved rankers in children of a process that has used all its threads.

Each case runs in an interpreter of its own with a time limit, so that a hang fails and does not
block. The child must give the parent's results, bit by bit.
"""

import os
import subprocess
import sys
import textwrap
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from untilt._core import threads

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Trains, saves, loads and scores; the log is read with parallel kernels too.
WORK = """
import hashlib, multiprocessing, os, sys, tempfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import untilt as ut


def made(seed=0):
    judged = ut.make_judged(n_queries=40, n_features=4, seed=seed)
    log = ut.simulate(judged, protocol="dla", sessions_per_query=20, seed=seed).log
    ranker = ut.LambdaMART(ut.PRS(ut.EyeTracking()), n_trees=4, n_threads=2).fit(log)
    scores = ranker.predict(judged.features)
    with tempfile.TemporaryDirectory() as folder:
        ranker.save(Path(folder) / "ranker")
        assert (ut.load(Path(folder) / "ranker").predict(judged.features) == scores).all()
    value = ut.evaluate(judged, ranker, metrics=["ndcg@10"])["ndcg@10"]
    return hashlib.sha256(scores.tobytes() + str(value).encode()).hexdigest()


def into(queue, work):
    queue.put(work())


def in_child(work, method="fork"):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=into, args=(queue, work), daemon=False)
    child.start()
    child.join(150)
    if child.exitcode != 0:
        child.kill()
        sys.exit(f"the child ended with {child.exitcode}")
    return queue.get(timeout=5)


def grandchild():
    return in_child(made)
"""

CASES = {
    "forked children": """
        assert in_child(made) == expected
        assert in_child(grandchild) == expected
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(made, [0, 0]) == [expected] * 2
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            assert list(pool.map(made, [0, 0])) == [expected] * 2
        """,
    "a spawned child": "assert in_child(made, 'spawn') == expected",
    "a server that loads first and forks then": """
        judged = ut.make_judged(n_queries=40, n_features=4, seed=0)
        log = ut.simulate(judged, protocol="dla", sessions_per_query=20, seed=0).log
        ranker = ut.LambdaMART(n_trees=4).fit(log)
        scores = ranker.predict(judged.features)
        workers = []
        for _ in range(3):
            if (worker := os.fork()) == 0:
                with ThreadPoolExecutor(2) as pool:  # a server answers in threads
                    found = pool.map(ranker.predict, [judged.features] * 4)
                    os._exit(not all((each == scores).all() for each in found))
            workers.append(worker)
        assert [os.waitpid(worker, 0)[1] for worker in workers] == [0, 0, 0]
        assert (ranker.predict(judged.features) == scores).all()
        """,
    "threads, and a fork while they work": """
        with ThreadPoolExecutor(2) as pool:
            found = pool.map(made, [0] * 4)
            assert in_child(made) == expected
            assert list(found) == [expected] * 4
        """,
    "joblib": """
        from joblib import Parallel, delayed
        for backend in ("loky", "multiprocessing", "threading"):
            found = Parallel(n_jobs=2, backend=backend)(delayed(made)() for _ in "ab")
            assert found == [expected] * 2, backend
        """,
}


def run_case(body, folder, *, seconds):
    """Run these lines, after the parent has used threads, in an interpreter of its own."""
    script = folder / "case.py"
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    script.write_text(f'{WORK}\nif __name__ == "__main__":\n    expected = made()\n{lines}\n')
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("case", CASES)
def test_children_give_the_results_of_their_parent(case, tmp_path):
    """The first one may have kernels to compile, which is slow on a busy machine."""
    run_case(CASES[case], tmp_path, seconds=400)


def test_a_kernel_gives_the_same_bits_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(threads, "KERNEL_NUMBERS", 1)
    monkeypatch.setattr(threads, "cores", lambda: 5)
    kernel = threads.parallel_kernel(fastmath={"contract", "reassoc", "nsz"})(_blocks)
    values = np.random.default_rng(0).normal(size=(64, 1001))
    found, shares = [], []
    for most in (1, 2, 3, 5):
        sums = np.zeros(64)
        with threads.kernel_threads(most):
            shares.append(kernel(64, values, sums))
        found.append(sums.tobytes())
    assert len(set(found)) == 1
    assert np.frombuffer(found[0]) == pytest.approx(values.sum(axis=1))
    assert shares[0] == [(0, 64)]
    for most, each in zip((2, 3, 5), shares[1:], strict=True):  # every part once, in order
        assert len(each) == most * threads.PIECES
        assert (each[0][0], each[-1][1]) == (0, 64)
        assert all(one[1] == other[0] for one, other in pairwise(each))


def _blocks(mine, values, sums):
    for block in range(mine[0], mine[1]):
        total = 0.0
        for value in values[block]:
            total += value
        sums[block] += total
    return mine


def test_a_library_that_cannot_end_its_threads_gets_one_in_the_child(monkeypatch):
    monkeypatch.setattr(threads, "_state", threads._State())
    monkeypatch.setattr(threads, "_end_threads", lambda _: False)
    monkeypatch.setattr(threads, "_gnu_openmp", lambda: ["old"])
    told = []
    library = SimpleNamespace(omp_set_num_threads=told.append)
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    threads._before_fork()
    assert threads.thread_count(4) == 4  # the parent goes on as before
    threads._after_fork_in_child()
    assert (threads.thread_count(4), threads.thread_count(None), told) == (1, 1, [1])


def test_kernel_threads_are_at_most_as_many_as_before():
    limit = threads._most_for_kernels.get
    for before in (None, 3):
        with threads.kernel_threads(before):
            for most, then in ((None, before), (0, 1), (1, 1), (2, 2), (10**6, before or 10**6)):
                with threads.kernel_threads(most):
                    assert limit() == then
                assert limit() == before

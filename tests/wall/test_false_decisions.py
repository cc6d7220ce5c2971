"""How often a log without any difference is called better or worse: about as often as chance says.

benchmarks/bench_false_decisions.py counts on more logs; docs/decisions.md has its figures.
"""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from tests.wall.judging import opinion_of_run, opinions_of_estimate, read
from tests.wall.logs import WALL
from tests.wall.world import Kind

STRUCTURES = ("plain", "two_rankers", "gaps", "mixed_lengths", "shuffles", "zipf_traffic")
KINDS: tuple[Kind, ...] = ("equal", "unknown")
LOGS = 5  # of each structure and kind: 60 in all
# P(more than 6 of 60) is 0.1% at 2.5% each, and 3% at 5%.
MOST = 6


@pytest.mark.slow
def test_false_decisions_are_rare():
    said = {"run": Counter[str](), "estimate": Counter[str]()}
    for case in (each for each in WALL if each.name in STRUCTURES):
        for kind in KINDS:
            for seed in range(LOGS):
                log = case.make(seed, kind)
                clicks = read(log)
                with tempfile.TemporaryDirectory() as folder:
                    run, found = opinion_of_run(log, clicks, Path(folder) / "run")
                tried = {each.order: each for each in opinions_of_estimate(log, clicks, found.bias)}
                said["run"][run.said] += 1
                said["estimate"][tried["chance"].said] += 1
    for counts in said.values():
        assert counts.total() == LOGS * len(STRUCTURES) * len(KINDS)
        assert counts["better"] <= MOST
        assert counts["worse"] <= MOST

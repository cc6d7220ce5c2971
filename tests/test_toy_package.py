"""A package of somebody else's: one file per method, and untilt knows it everywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FILES = {
    "toy_tables.py": '''
"""A weighting."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from untilt.catalog import method
from untilt.weighting.base import Weighting, theta_up_to


@method(
    "weighting", "square-root", title="Square roots", needs=("bias",),
    choose=("train", "select", "run"), note="clicks with roots of inverse propensities",
)
@dataclass(frozen=True)
class SquareRoot(Weighting):
    bias: Any

    def table(self, depth):
        return np.repeat(1 / np.sqrt(theta_up_to(self.bias, depth))[:, None], depth, axis=1)
''',
    "toy_evaluators.py": '''
"""An evaluator."""

from dataclasses import dataclass

from untilt.catalog import method
from untilt.evaluation.evaluators import IPSEvaluator


@method(
    "evaluator", "toy-ips", title="Toy IPS", needs=("bias",), choose=("evaluate", "select", "run"),
    note="IPS by another name",
)
@dataclass(frozen=True)
class ToyIPS(IPSEvaluator):
    """c / theta_k."""
''',
    "toy_models.py": '''
"""A click model."""

import numpy as np

from untilt.catalog import method
from untilt.clickmodels.click_model import IndependentModel


@method("click model", "toy-coin", title="A coin", note="every row is clicked with probability 1/2")
class Coin(IndependentModel):
    family = "rates"

    def _learn(self, log):
        self.prior_mean_, self.relevance_ = 0.5, np.full(log.n_documents, 0.5)

    def _marginal(self, lists):
        return np.full(len(lists.position), 0.5)
''',
    "toy-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: toy\nVersion: 0.1\n",
    "toy-0.1.dist-info/entry_points.txt": (
        "[untilt.methods]\ntables = toy_tables\nevaluators = toy_evaluators\nmodels = toy_models\n"
    ),
}
SCRIPT = """
import json, sys
import untilt as ut
from typer.testing import CliRunner
from untilt import catalog
from untilt.cli.main import app

def untilt(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output

judged = ut.make_judged(40, 5, seed=0)
log = ut.simulate(judged, "harvest", n_sessions=2_000, seed=0).log
ut.write_log(log, "clicks.parquet", documents="documents.parquet")
table = catalog.find("weighting", "square-root").make(ut.PowerLaw(1.0))
ranker = ut.LambdaMART(table, n_trees=2, n_threads=1).fit(log)
ranker.save("ranker.untilt")
again = ut.load("ranker.untilt")
models = ut.compare_click_models(log, log, models=["toy-coin", "pbm"], n_draws=20)
facts = {
    "loaded": repr(again.weighting),
    "same": bool((again.predict(judged.features) == ranker.predict(judged.features)).all()),
    "help": {name: untilt(name, "--help") for name in ("train", "evaluate", "clickmodels")},
    "table": json.loads(untilt("methods", "--json")),
    "model": [each.name for each in models],
} | {
    name: ut.estimate(log, {"new": ranker}, ut.PowerLaw(1.0), evaluator=name)["new"].value
    for name in ("toy-ips", "ips")
}
untilt(
    "run", "clicks.parquet", "--documents", "documents.parquet", "--out", "results", "--trees", 2,
    "--method", "square-root", "--evaluator", "toy-ips", "--threads", 1,
)
facts["report"] = open("results/report.html").read()
print(json.dumps(facts))
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What untilt says in a process that has the toy package on its path."""
    package, work = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("work")
    for name, text in FILES.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text.lstrip())
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=work, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "300"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_ranker_with_the_table_is_saved_and_loaded(facts):
    assert facts["loaded"] == "SquareRoot(bias=PowerLaw(eta=1.0))"
    assert facts["same"]


def test_commands_offer_them(facts):
    assert "untilt methods weighting" in facts["help"]["train"]
    assert "toy-ips" in facts["help"]["evaluate"]
    assert "toy-coin" in facts["help"]["clickmodels"]


def test_they_stand_in_the_table_of_methods(facts):
    rows = {(row["kind"], row["name"]): row for row in facts["table"]["methods"]}
    assert rows["weighting", "square-root"]["note"] == "clicks with roots of inverse propensities"
    assert rows["weighting", "square-root"]["class"] == "toy_tables.SquareRoot"
    assert {("evaluator", "toy-ips"), ("click model", "toy-coin")} <= set(rows)


def test_the_evaluator_and_the_click_model_are_found_by_name(facts):
    assert facts["toy-ips"] == facts["ips"]
    assert sorted(facts["model"]) == ["pbm", "toy-coin"]


def test_a_run_trains_the_table_as_a_candidate(facts):
    assert "LambdaMART on clicks with roots of inverse propensities" in facts["report"]


def test_the_package_is_unknown_elsewhere():
    from untilt import catalog

    assert "square-root" not in catalog.names("weighting")
    assert not Path("toy_tables.py").exists()

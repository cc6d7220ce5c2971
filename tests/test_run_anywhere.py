"""The deployment, the workflow, the DAG and the dbt models in examples/ work as written."""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import types
from pathlib import Path

import duckdb
import jinja2
import numpy as np
import pytest
import typer
import yaml
from tests.serving.killing import free_port

import untilt as ut
from untilt.cli.main import app

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "examples" / "deploy"
SCHEDULE = ROOT / "examples" / "schedule"
SCRIPTS = (DEPLOY / "steps.sh", DEPLOY / "Dockerfile", SCHEDULE / "verdict.yml",
           SCHEDULE / "airflow_dag.py")  # fmt: skip


@pytest.fixture
def path_with_untilt(tmp_path):
    """A PATH whose untilt and python are those of the tests."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = (
        f'#!/bin/sh\nexec "{sys.executable}" -c "from untilt.cli.main import main; main()" "$@"\n'
    )
    for name, text in {
        "untilt": script,
        **dict.fromkeys(("python", "python3"), f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'),
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def shell(code: str, cwd: Path, path: str, **names: str) -> subprocess.CompletedProcess[str]:
    """Run as GitHub's and Airflow's shells do: they stop at the first command that fails."""
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", code], cwd=cwd, text=True, timeout=300,
        capture_output=True, check=False,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **names},
    )  # fmt: skip


def commands(path: Path) -> list[list[str]]:
    """The words of each command of untilt in a script; in a Dockerfile, those of its CMD."""
    text = path.read_text(encoding="utf8").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if not line.strip().startswith("#")]
    if path.name == "Dockerfile":
        return [json.loads(line[4:]) for line in lines if line.startswith("CMD [")]
    if path.suffix == ".py":
        joined = re.sub(r'"\s*\n\s*"', "", text).replace("{{ ds_nodash }}", "20261120")
        lines = re.findall(r'"(untilt [^"]*)"', joined)
    found = [re.match(r"(?:exec )?(untilt .*?)(?: \|\| .*| > .*)?$", line) for line in lines]
    return [shlex.split(each[1]) for each in found if each]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_every_command_has_these_options(path):
    """The parser of the command line takes each command, without running it."""
    known = vars(typer.main.get_command(app))["commands"]
    found = commands(path)
    assert len(found) == {"steps.sh": 5}.get(path.name, 3 if path.suffix == ".py" else 1)
    for name, *words in (each[1:] for each in found):
        known[name].make_context(name, [word.replace("$PORT", "8080") for word in words])


def test_a_wrong_option_is_found():
    """The test above can fail."""
    known = vars(typer.main.get_command(app))["commands"]
    with pytest.raises(Exception, match="No such option"):
        known["watch"].make_context("watch", ["clicks", "--pages", "watch.html"])


def test_the_services_run_steps_on_the_volumes_of_the_image():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf8"))
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf8")
    steps = (DEPLOY / "steps.sh").read_text(encoding="utf8")
    ours = {name: each for name, each in compose["services"].items() if "build" in each}
    assert set(ours) == {"model", "serve", "look"}
    for name, service in ours.items():
        shell_name, script, step = service["command"]
        assert (shell_name, script) == ("sh", "/opt/untilt/steps.sh")
        assert f"\n{step}() {{" in steps, name
        assert (ROOT / "examples/deploy" / service["build"]["context"]).resolve() == ROOT
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        for volume, place, *_ in (each.split(":") for each in service["volumes"]):
            assert volume in compose["volumes"]
            # A new volume takes the owner of the image's folder: without one it is root's.
            assert f" {place}" in image.partition("install -d -o untilt")[2].partition("\n")[0]
    assert all(
        each in compose["services"] for s in ours.values() for each in s.get("depends_on", ())
    )
    assert compose["secrets"] == {"token": {"file": "./token"}}
    assert ours["serve"]["environment"]["TOKEN_FILE"] == "/run/secrets/token"
    copied = re.findall(r"^COPY (.*)$", image, flags=re.M)
    assert all((ROOT / each).exists() for line in copied for each in line.split()[:-1])
    # Not root, before anything runs.
    assert image.index("\nUSER untilt") < image.index("\nHEALTHCHECK") < image.index("\nCMD")


def test_the_proxy_shows_requests_alone():
    """/metrics and the page of watch are on the port that the host's loopback alone has."""
    sites = (DEPLOY / "Caddyfile").read_text(encoding="utf8").split("http://:8081")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf8"))
    assert "@api path /rank /feedback /health /ready" in sites[0]
    assert "/metrics" not in sites[0]
    assert "127.0.0.1:8081:8081" in compose["services"]["proxy"]["ports"]
    assert "ports" not in compose["services"]["serve"]
    assert all(each.count("{") == each.count("}") for each in sites)


def test_the_steps_without_docker(tmp_path, path_with_untilt):
    """Model, server, 100 visits, collect, watch: on loopback, and nothing goes on running."""
    done = subprocess.run(
        ["sh", DEPLOY / "steps.sh", "try"], text=True, capture_output=True, timeout=300,
        check=False,
        env={**os.environ, "PATH": path_with_untilt, "ROOT": str(tmp_path), "VISITS": "100",
             "PORT": str(free_port()), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    # A look at a log without a change raises an alarm with a probability of 1%.
    assert done.returncode in {0, 3}, done.stderr
    assert f"watch ended with exit code {done.returncode}" in done.stdout
    log = ut.read_log(tmp_path / "clicks" / "daily", documents=tmp_path / "model/documents.parquet")
    assert log.n_sessions == 100
    assert f"100 visits, {log.ctr_by_position().clicks.sum():.0f} clicks" in done.stdout
    assert "<html" in (tmp_path / "pages" / "watch.html").read_text(encoding="utf8")
    assert "untilt_watch_alarms" in (tmp_path / "pages" / "watch.prom").read_text(encoding="utf8")
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0


def test_steps_are_named_where_none_is_given(tmp_path):
    done = subprocess.run(["sh", DEPLOY / "steps.sh"], text=True, capture_output=True, check=False)
    assert done.returncode == 2
    for step in ("model", "serve", "look", "loop", "try"):
        assert f"sh steps.sh {step} " in done.stderr


# ---- a pull request


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A small log in three rankings, with documents; the options of its runs."""
    folder = tmp_path_factory.mktemp("shop")
    made = ut.simulate(ut.make_judged(30, 5, seed=0), "harvest", n_sessions=1500, seed=0)
    ut.write_log(made.log, folder / "clicks.parquet", documents=folder / "documents.parquet")
    (folder / "untilt.toml").write_text(
        'documents = "documents.parquet"\n[run]\nmethod = ["linear"]\nfolds = 2\nthreads = 1\n'
    )
    return folder


def steps() -> dict[str, str]:
    workflow = yaml.safe_load((SCHEDULE / "verdict.yml").read_text(encoding="utf8"))
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    return {each["id"]: each["run"] for each in job["steps"] if "id" in each}


def verdict(folder: Path, path: str, log: str) -> tuple[dict, str, str]:
    """(what --json wrote, the comment, what the steps leave for others)."""
    output = folder / "output"
    output.write_text("")
    for code in steps().values():
        done = shell(code, folder, path, LOG=log, GITHUB_OUTPUT=str(output))
        assert done.returncode == 0, done.stderr
    found = json.loads((folder / "verdict.json").read_text(encoding="utf8"))
    return found, (folder / "comment.md").read_text(encoding="utf8"), output.read_text()


def test_a_pull_request_gets_its_verdict(shop, path_with_untilt):
    found, comment, left = verdict(shop, path_with_untilt, "clicks.parquet")
    answer = found["answer"]
    assert left == ("code=0\n" if answer["verdict"] == "better" else "code=5\n")
    assert comment.startswith(f"**untilt: {answer['verdict']}.** ")
    assert f"| linear | {answer['new']['value']:.4f} |" in comment
    assert f"| difference | {answer['difference']['value']:+.4f} [" in comment
    assert (shop / "decision" / "report.html").is_file()
    # Whoever exports its candidate is told where the run keeps the old order.
    to = "untilt export decision/candidate.untilt --to linear --out model.json --json"
    told = json.loads(shell(to, shop, path_with_untilt).stdout)
    unshipped = {each["code"] for each in told["notes"]} & {"export.not-shipped"}
    assert bool(unshipped) == (found["ships"] == 0)


def test_a_pull_request_with_bad_input_says_so(shop, path_with_untilt):
    _, comment, left = verdict(shop, path_with_untilt, "missing.parquet")
    assert left == "code=2\n"
    assert comment.startswith("**untilt: no answer** (exit code 2)")
    assert "missing.parquet" in comment


# ---- Airflow


class Task:
    """What the DAG says of a task, where Airflow is not installed."""

    def __init__(self, task_id: str, bash_command: str, **options: object) -> None:
        self.task_id, self.bash_command, self.options = task_id, bash_command, options
        self.after: set[str] = set()
        TASKS[task_id] = self

    def __rshift__(self, other: "Task | list[Task]") -> object:
        for each in other if isinstance(other, list) else [other]:
            each.after.add(self.task_id)
        return other

    def __rrshift__(self, others: "list[Task]") -> "Task":
        self.after |= {each.task_id for each in others}
        return self


class Dag:
    def __init__(self, name: str, **options: object) -> None:
        self.name, self.options = name, options

    def __enter__(self) -> "Dag":
        return self

    def __exit__(self, *_: object) -> None:
        pass


TASKS: dict[str, Task] = {}


def test_the_dag_ships_a_better_ranker_alone(shop, tmp_path, monkeypatch, path_with_untilt):
    """Its tasks in their order, each command run; what is skipped is an exit code of `run`."""
    modules: dict[str, dict[str, object]] = {
        "airflow": {}, "airflow.sdk": {"DAG": Dag}, "airflow.providers": {},
        "airflow.providers.standard": {}, "airflow.providers.standard.operators": {},
        "airflow.providers.standard.operators.bash": {"BashOperator": Task},
    }  # fmt: skip
    for name, members in modules.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    TASKS.clear()
    runpy.run_path(str(SCHEDULE / "airflow_dag.py"))
    assert {name: task.after for name, task in TASKS.items()} == {
        "collect": set(), "watch": {"collect"}, "run": {"collect"}, "ship": {"watch", "run"}
    }  # fmt: skip
    ready = {name: task.bash_command.replace("{{ ds_nodash }}", "20261120")
             for name, task in TASKS.items()}  # fmt: skip
    # The logs of a server are those of the test of the steps; here a folder of clicks is there.
    (tmp_path / "clicks").mkdir()
    log = ut.read_log(shop / "clicks.parquet")
    ut.write_log(log, tmp_path / "clicks" / "clicks-2026-11-19.parquet")
    (tmp_path / "documents.parquet").write_bytes((shop / "documents.parquet").read_bytes())
    (tmp_path / "untilt.toml").write_text((shop / "untilt.toml").read_text())
    done = shell(ready["run"], tmp_path, path_with_untilt)
    figures = json.loads((tmp_path / "decision-20261120/figures.json").read_text(encoding="utf8"))
    better = figures["answer"]["verdict"] == "better"
    assert done.returncode == (0 if better else TASKS["run"].options["skip_on_exit_code"])
    (tmp_path / "decision-20261120" / "ranker.untilt").write_bytes(b"a ranker")
    assert shell(ready["ship"], tmp_path, path_with_untilt).returncode == 0
    assert (tmp_path / "ranker.untilt").read_bytes() == b"a ranker"
    # A log without times cannot be watched: bad input, neither an alarm nor a skipped task.
    assert shell(ready["watch"], tmp_path, path_with_untilt).returncode == 2


# ---- dbt


def test_the_models_build_the_two_tables_of_a_log(tmp_path):
    """dbt's SQL with its functions replaced, in DuckDB, against the rows counted by hand."""
    place = str(tmp_path / "shop.duckdb")
    with duckdb.connect(place) as database:
        database.execute("""
            create table searches as select * from (values
                (1, ' Red Shoes', timestamp '2026-11-01 10:00', 'a'),
                (2, 'red shoes', timestamp '2026-11-01 11:00', 'b'),
                (3, null, timestamp '2026-11-01 12:00', 'a')
                ) t(search_id, query, searched_at, variant);
            create table impressions as select * from (values
                (1, 'x', 0), (1, 'y', 1), (1, 'y', 1), (2, 'y', 0), (2, 'x', 1), (3, 'x', 0)
                ) t(search_id, sku, slot);
            create table clicks as select * from (values
                (1, 'y', 1), (1, 'y', 2), (3, 'x', 1)) t(search_id, sku, clicked_at);
            create table products as select * from (values
                ('x', 9.5, 4.0), ('y', 8.0, 3.5), ('z', 1.0, 1.0)) t(sku, price, rating);
        """)
        functions = {
            "config": lambda **_: "", "source": lambda _, table: table, "ref": lambda name: name
        }  # fmt: skip
        for name in ("untilt_clicks", "untilt_documents"):
            text = (SCHEDULE / "dbt" / "models" / f"{name}.sql").read_text(encoding="utf8")
            query = jinja2.Template(text).render(**functions)
            database.execute(f"create table {name} as {query}")
        declared = yaml.safe_load((SCHEDULE / "dbt/models/sources.yml").read_text(encoding="utf8"))
        for model in declared["models"]:
            columns = [row[0] for row in database.execute(f"describe {model['name']}").fetchall()]
            assert {each["name"] for each in model.get("columns", ())} <= set(columns)
        database.execute(f"copy untilt_clicks to '{tmp_path}/clicks.parquet'")
        database.execute(f"copy untilt_documents to '{tmp_path}/documents.parquet'")
    log = ut.read_log(tmp_path / "clicks.parquet", documents=tmp_path / "documents.parquet")
    assert (log.n_queries, log.n_sessions, log.n_documents) == (1, 2, 2)
    assert log.ctr_by_position().clicks.tolist() == [0, 1]
    assert set(log.ranker_names) == {"a", "b"}
    assert log.feature_names == ("price", "rating")
    assert np.array_equal(np.sort(log.features[:, 0]), [8.0, 9.5])

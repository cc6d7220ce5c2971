"""`untilt audit`, `untilt plan` and `untilt bias` on simulated logs whose truth is beside them."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from untilt import (
    PositionBias,
    audit,
    catalog,
    make_judged,
    plan_swaps,
    read_log,
    simulate_to_parquet,
)
from untilt.cli.main import app
from untilt.simulation.protocols import DLA, Shuffle, Swap


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Folders with clicks.parquet and documents.parquet, one per protocol."""
    root = tmp_path_factory.mktemp("logs")
    judged = make_judged(n_queries=120, n_features=6, seed=2)
    protocols: dict[str, Any] = {
        "harvest": "harvest",
        "swap": Swap(depth=5),
        "adjacent": Swap(adjacent=True, depth=4),
        "shuffle": Shuffle(top=3, depth=5),
        "plain": DLA(depth=4),
        "dwell": "dwell",
    }
    for name, protocol in protocols.items():
        simulate_to_parquet(judged, root / name, protocol, n_sessions=8_000, seed=1)
    return root


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(*arguments) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


def facts(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(*arguments) -> str:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == "" or "error" not in result.stdout
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


# ---- audit


def test_the_audit_of_a_file_is_that_of_the_log(logs):
    path = logs / "harvest" / "clicks.parquet"
    found = facts("audit", path, "--documents", logs / "harvest" / "documents.parquet")
    log = read_log(path, documents=logs / "harvest" / "documents.parquet")
    expected = audit(log).to_dict()
    assert found["graph"]["components"] == [list(range(1, 11))]
    command = expected["advice"].pop("command").replace("LOG", str(path))
    documents = f" --documents {logs / 'harvest' / 'documents.parquet'}"
    assert found["advice"].pop("command") == command.replace(" --method", f"{documents} --method")
    assert found["advice"].pop("call") == expected["advice"].pop("call")
    assert found["advice"] == expected["advice"]
    assert found["size"]["sessions"] == 8_000
    assert found["click_rates"]["rate"] == pytest.approx(expected["click_rates"]["rate"])
    weights = [edge["weight"] for edge in found["graph"]["edges"]]
    assert weights == pytest.approx([edge.weight for edge in audit(log).graph.edges])


def test_people_read_the_verdict_and_what_to_do(logs):
    path = logs / "swap" / "clicks.parquet"
    text = said("audit", path)
    assert "Can the positions be compared? Yes" in text
    assert "Use pivot-swap" in text
    assert "--method pivot-swap --pivot 1" in text
    assert "Positions that showed the same documents" in text


def test_the_command_that_the_audit_advises_runs(logs):
    """Taken from the JSON, with the path in the place of LOG."""
    path = logs / "swap" / "clicks.parquet"
    command = facts("audit", path)["advice"]["command"]
    arguments = command.replace("LOG", str(path)).split()[1:]
    found = facts(*arguments)
    assert found["method"] == "PivotSwap"
    assert len(found["examination"]) == 5


def test_the_graph_is_drawn(logs, tmp_path):
    path = logs / "shuffle" / "clicks.parquet"
    found = facts("audit", path, "--plot", tmp_path / "graph.png")
    assert found["plot"] == str(tmp_path / "graph.png")
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


def test_a_wrong_name_for_the_picture_is_refused_before_the_log_is_read(tmp_path):
    message = refused("audit", tmp_path / "no such log.parquet", "--plot", tmp_path / "graph.gif")
    assert ".png" in message
    assert "graph.gif" in message


# ---- bias


def test_help_names_every_estimator():
    text = "".join(CliRunner().invoke(app, ["bias", "--help"]).output.split())
    assert [name for name in catalog.names("bias") if name not in text] == []


@pytest.mark.parametrize(
    ("log", "method", "name", "options"),
    [
        ("harvest", "all-pairs", "AllPairs", {}),
        ("harvest", "allpairs", "AllPairs", {"depth": 4}),
        ("harvest", "AdjacentChain", "AdjacentChain", {}),
        ("harvest", "pivot", "Pivot", {"pivot": 2}),
        ("swap", "pivot-swap", "PivotSwap", {"within": "length"}),
        ("adjacent", "adjacent-swap", "AdjacentSwap", {}),
        ("shuffle", "shuffled-top", "ShuffledTop", {}),
    ],
)
def test_each_method_is_its_estimator(logs, log, method, name, options):
    path = logs / log / "clicks.parquet"
    asked = [part for key, value in options.items() for part in ("--option", f"{key}={value}")]
    found = facts("bias", path, "--method", method, *asked)
    kind = catalog.find("bias", name).load()
    expected = kind(**options).fit(read_log(path)).bias_
    assert found["method"] == expected.method == name
    assert found["examination"] == pytest.approx(expected.examination)
    assert found["low"] == pytest.approx(expected.low)
    assert found["assumes"] == list(expected.assumes)


def test_em_takes_features_and_a_seed(logs):
    folder = logs / "plain"
    found = facts(
        *("bias", folder / "clicks.parquet", "--documents", folder / "documents.parquet"),
        *("--seed", "3", "--option", "relevance=features"),
    )
    assert found["method"].startswith("RegressionEM")
    assert "a model of relevance" in found["why"]
    text = said("bias", logs / "harvest" / "clicks.parquet", "--method", "regression-em")
    assert "Examination by regression-em (counts), " in text
    trust = facts("bias", logs / "harvest" / "clicks.parquet", "--method", "trust-em")
    assert len(trust["eps_minus"]) == len(trust["examination"]) == 10
    assert "eps-" in said("bias", logs / "harvest" / "clicks.parquet", "--method", "trust-em")


def test_auto_is_what_the_audit_advises(logs):
    assert facts("bias", logs / "shuffle" / "clicks.parquet")["method"] == "ShuffledTop"
    assert facts("bias", logs / "adjacent" / "clicks.parquet")["method"] == "AdjacentSwap"
    text = said("bias", logs / "harvest" / "clicks.parquet")
    assert "all-pairs: 3 rankers disagree" in text
    assert "It assumes that" in text


def test_without_a_way_to_tell_auto_refuses_and_names_the_swap(logs):
    message = refused("bias", logs / "plain" / "clicks.parquet")
    assert "cannot tell its position bias" in message
    assert "swaps of positions 1-2" in message
    assert "untilt plan" in message
    message = refused("bias", logs / "plain" / "clicks.parquet", "--method", "all-pairs")
    assert "swap positions 1 and 2" in message


def test_the_curve_is_written_and_drawn(logs, tmp_path):
    path = logs / "harvest" / "clicks.parquet"
    found = facts(
        *("bias", path, "--method", "all-pairs"),
        *("--out", tmp_path / "bias.json", "--plot", tmp_path / "bias.png"),
    )
    saved = PositionBias.load(tmp_path / "bias.json")
    assert saved.examination.tolist() == found["examination"]
    assert (tmp_path / "bias.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_input_of_bias_is_a_short_message(logs, tmp_path):
    path = logs / "harvest" / "clicks.parquet"
    assert "Did you mean 'all-pairs'" in refused("bias", path, "--method", "all-pair")
    assert "all-pairs has no option --pivot" in refused(
        "bias", path, "--method", "all-pairs", "--pivot", "2"
    )
    assert "level" in refused("bias", path, "--level", "95")
    told = refused(
        *("bias", logs / "dwell" / "clicks.parquet", "--label", "dwell", "--method", "all-pairs")
    )
    assert "all-pairs needs clicks, 0 or 1" in told
    assert "(this log also has: none)." in told
    refused("bias", tmp_path / "nothing.parquet")


# ---- plan


def test_a_plan_from_rates_is_that_of_the_function():
    found = facts("plan", "--rates", "0.3,0.2,0.1", "--sessions-per-day", "5000", "--share", "0.2")
    expected = plan_swaps([0.3, 0.2, 0.1], sessions_per_day=5000, share=0.2, assurance=0.9)
    assert found["sessions"] == expected.sessions
    assert found["days"] == expected.sessions / 5000
    assert [swap["sessions"] for swap in found["swaps"]] == [
        swap.sessions for swap in expected.swaps
    ]


def test_a_plan_from_a_log_with_a_guess(logs, tmp_path):
    path = logs / "plain" / "clicks.parquet"
    found = facts("plan", path, "--examination", "eye-tracking:1", "--pivot", "2")
    curve = [0.68, 0.61, 0.48, 0.34]
    expected = plan_swaps(
        read_log(path), sessions_per_day=10_000, pivot=2, examination=curve, assurance=0.9
    )
    assert found["sessions"] == expected.sessions
    assert found["clicks_lost"] == pytest.approx(expected.clicks_lost)
    assert not found["is_bound"]
    PositionBias(np.array(curve)).save(tmp_path / "guess.json")
    again = facts("plan", path, "--examination", tmp_path / "guess.json", "--pivot", "2")
    assert again["sessions"] == found["sessions"]


def test_people_read_the_plan():
    text = said("plan", "--rates", "0.3,0.2,0.1", "--pivot", "2")
    assert "intervals by pivot-swap afterwards" in text
    assert "10,000 sessions" in text
    assert "1 and 2" in text
    assert "position 3: 20% wide" in text
    assert "at most" in text
    assert "untilt bias NEW_LOG --method pivot-swap --pivot 2" in text


def test_wrong_input_of_plan_is_a_short_message(logs):
    path = logs / "plain" / "clicks.parquet"
    assert "Give either" in refused("plan")
    assert "Give either" in refused("plan", path, "--rates", "0.3,0.2")
    assert "numbers between 0 and 1" in refused("plan", "--rates", "0.3;0.2")
    assert "width must be above 0" in refused("plan", "--rates", "0.3,0.2", "--width", "0")
    assert "share" in refused("plan", "--rates", "0.3,0.2", "--share", "1.5")
    assert "depth" in refused("plan", path, "--depth", "40")
    assert "file of an estimate" in refused("plan", path, "--examination", "power-lw:1")


@pytest.mark.parametrize("command", ["audit", "plan", "bias"])
def test_help_has_an_example(command):
    text = said(command, "--help")
    assert f"untilt {command}" in text
    assert "--json" in text


def test_a_plan_ends_where_nobody_clicked_and_compares_what_can_be_compared(tmp_path):
    """Queries that never repeat, no click below position 3: what the audit suggests still runs."""
    rows = ["query_id,session_id,doc_id,position,click"]
    for session in range(300):
        clicked = session % 5  # 3 and 4: nobody clicks
        rows += [f"{session},{session},{k},{k},{int(k == clicked + 1 < 4)}" for k in range(1, 6)]
    (tmp_path / "log.csv").write_text("\n".join(rows) + "\n")
    found = facts("plan", tmp_path / "log.csv")
    assert len(found["notes"]) == 2 + len(facts("plan", "--rates", "0.2,0.2,0.2")["notes"])
    assert [swap["lower"] for swap in found["swaps"]] == [2, 3]
    assert "there are no clicks at position 4" in refused(
        "plan", tmp_path / "log.csv", "--depth", "5"
    )


def test_bounds_where_nothing_joins_the_positions(logs, tmp_path):
    plain = logs / "plain" / "clicks.parquet"
    refused = CliRunner().invoke(app, ["bias", str(plain), "--method", "all-pairs"])
    assert refused.exit_code == 2
    assert "--option unjoined=bounds" in " ".join(refused.output.split())
    words = ["--method", "all-pairs", "--option", "unjoined=bounds", "--out", tmp_path / "b.json"]
    words += ["--option", "slopes=[0.5,1.5]"]
    given = CliRunner().invoke(app, ["bias", str(plain), *map(str, words)])
    assert given.exit_code == 0, given.output
    assert given.output.count("bounded") >= 3
    bias = PositionBias.load(tmp_path / "b.json")
    assert bias.bounds is not None
    assert bias.high == pytest.approx(np.arange(1, 5) ** -0.5)
    found = CliRunner().invoke(app, ["evaluate", str(plain), "--bias", str(tmp_path / "b.json")])
    assert "intervals cover all levels" in " ".join(found.output.split())

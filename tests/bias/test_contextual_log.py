"""ContextualBias on the context columns of a log, from Python and from the command line."""

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import untilt as ut
from untilt.cli.main import app
from untilt.errors import OptionError
from untilt.facts import codes

DEPTH = 5
POSITION = np.arange(1, DEPTH + 1)
ETA = {"desktop": 0.5, "phone": 1.5}


def draw_log(seed=0, n_queries=60, n_documents=6, sessions=60, hours=(0,)):
    """theta_k = k^-eta with eta by device; each document at random positions, one to a list."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(n_queries), n_documents)
    gamma = rng.uniform(0.1, 0.9, len(query))
    parts = []
    for device, eta in ETA.items():
        for hour in hours:
            shown = rng.multinomial(sessions, np.full(DEPTH, 1 / DEPTH), len(query))
            clicks = rng.binomial(shown, POSITION**-eta * gamma[:, None])
            for label, count in ((1.0, clicks), (0.0, shown - clicks)):
                document, index = np.nonzero(count)
                each = np.ones(len(document))
                parts.append(
                    {
                        "query": query[document],
                        "document": document,
                        "position": index + 1,
                        "label": label * each,
                        "count": count[document, index],
                        "device": np.full(len(document), device, object),
                        "hour": hour * each,
                    }
                )
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    context = {name: columns.pop(name) for name in ("device", "hour")}
    return ut.ClickLog(
        query_id=np.arange(n_queries),
        doc_id=np.arange(len(query)),
        doc_query=query,
        indptr=np.arange(len(columns["query"]) + 1),
        context={"device": context["device"]} if len(hours) == 1 else context,
        **columns,
    )


@pytest.fixture(scope="module")
def log():
    return draw_log()


@pytest.fixture(scope="module")
def curves(log):
    return ut.ContextualBias().fit(log).curves_


def test_each_device_has_its_curve_within_its_standard_errors(curves):
    for device, eta in ETA.items():
        bias = curves.curve({"device": device})
        z = (bias.examination - POSITION**-eta)[1:] / bias.std_error[1:]
        assert np.abs(z).max() < 3
    # and one curve for both is wrong for each of them
    gap = curves.curve({"device": "desktop"}).low - curves.curve({"device": "phone"}).high
    assert np.all(gap[1:] > 0.1)
    assert curves.context_test().p_value < 1e-6


def test_columns_of_a_log_are_the_same_as_numbers_by_list(log, curves):
    phone = (log.context["device"] == "phone").astype(float)
    by_hand = ut.ContextualBias().fit(log, phone, per="list").curves_
    np.testing.assert_array_equal(by_hand.curve([1]).examination, by_hand.at(POSITION, [1]))
    np.testing.assert_array_equal(
        by_hand.curve([1]).examination, curves.curve({"device": "phone"}).examination
    )


def test_counts_are_repeated_sessions(log):
    few = log.take(np.flatnonzero(log.query < 12))
    again = few.take(np.repeat(np.arange(few.n_lists), few.count), count=np.ones(few.n_sessions))
    one, other = (ut.ContextualBias().fit(each).bias_ for each in (few, again.collapse()))
    np.testing.assert_allclose(one.examination, other.examination, rtol=1e-9)
    np.testing.assert_allclose(one.std_error, other.std_error, rtol=1e-9)


def test_asking_by_name(log, curves):
    both = curves.at([2, 3], {"device": ["phone", "desktop"]})
    assert both.tolist() == [curves.at(2, {"device": "phone"}), curves.at(3, {"device": "desktop"})]
    assert list(curves.examples()) == ["device = desktop", "device = phone"]
    groups = curves.groups(log, n_groups=2)
    assert [set(group.log.context["device"]) for group in groups] == [{"phone"}, {"desktop"}]
    assert codes(curves.average().assumes)[-1] == "contextual.same-top"
    assert "contextual.same-top" not in codes(curves.curve({"device": "phone"}).assumes)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"device": "phon"}, "must be one of desktop, phone. Got 'phon' instead. Did you mean"),
        ({"hour": 3}, "a context here has device. Got hour: 'device' is missing"),
    ],
)
def test_contexts_that_are_not_known(curves, context, message):
    with pytest.raises(OptionError, match=message):
        curves.curve(context)


def test_names_need_columns(log, curves):
    by_hand = ut.ContextualBias().fit(log, np.zeros(log.n_lists), per="list").curves_
    with pytest.raises(OptionError, match="know no columns by name"):
        by_hand.curve({"device": "phone"})
    with pytest.raises(OptionError, match=r"read_log\(\.\.\., context="):
        ut.ContextualBias().fit(log._with(context={}))


def test_numbers_and_categories_together():
    log = draw_log(seed=1, n_queries=20, hours=(1, 2, 3, 4))
    curves = ut.ContextualBias().fit(log).curves_
    assert curves.contexts.shape == (2 * 4, 2)
    steepest = curves.curve({"device": "phone", "hour": 2.5})
    assert np.abs((steepest.examination - POSITION**-1.5)[1:] / steepest.std_error[1:]).max() < 3
    assert next(iter(curves.examples())) == "steepest third of sessions"
    assert "device = phone, hour = 2" in curves.examples(most=8)


# ---- untilt bias --method contextual


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def path(log, tmp_path_factory):
    path = tmp_path_factory.mktemp("contextual") / "clicks.parquet"
    ut.write_log(log, path, drop_unshown=True)
    return path


def test_the_command_prints_a_curve_for_each_context(path, log, tmp_path):
    chosen = ("bias", path, "--method", "contextual", "--context", "device")
    result = run(*chosen, "--plot", tmp_path / "bias.json", "--out", tmp_path / "curves.json")
    assert result.exit_code == 0, result.stderr
    for device in ETA:
        assert f"device = {device} (21,600 sessions)" in result.stdout
    drawn = json.loads((tmp_path / "bias.json").read_text(encoding="utf8"))
    assert "device = phone" in json.dumps(drawn)
    saved = ut.PositionBias.load(tmp_path / "curves.json")
    fitted = ut.ContextualBias().fit(ut.read_log(path, context=["device"]))
    assert saved.layout == fitted.curves_.by_context().layout
    average = saved.contexts["any other"].examination
    np.testing.assert_allclose(average, fitted.bias_.examination, rtol=1e-12)
    found = json.loads(run(*chosen, "--json").stdout)
    assert [each["name"] for each in found["contexts"]] == ["device = desktop", "device = phone"]
    expected = fitted.curves_.curve({"device": "phone"})
    assert found["contexts"][1]["examination"] == pytest.approx(expected.examination)
    assert found["contexts"][1]["low"] == pytest.approx(expected.low)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "contextual"), "--context device"),
        (("--method", "all-pairs", "--context", "device"), "has no use for --context"),
        (("--method", "contextual", "--context", "devise"), "lacks the columns devise"),
    ],
)
def test_the_command_says_what_is_wrong(path, options, message):
    result = run("bias", path, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())

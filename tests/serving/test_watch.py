"""`watch` on logs with a known truth: quiet where nothing changed, loud where something did."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from untilt import AllPairs, read_log, watch
from untilt.cli.console import ALARM
from untilt.cli.main import app
from untilt.errors import OptionError
from untilt.serving.collect import collect
from untilt.serving.journal import Journal
from untilt.serving.watch_page import prometheus_text, watch_page
from untilt.serving.wire import Feedback, Shown, hashed, pack

DEPTH, DOCUMENTS, QUERIES = 5, 6, 30


def columns(
    rng, n_sessions=3000, *, theta=None, later=None, level=1.0, liked=0.0, shift=0.0, new=0
):
    """Impressions of sessions at times 0..1; what is given changes in the last quarter.

    theta : examination by position, and `later` that of the last quarter
    level : clicks there, times this; liked : how much of the relevance is new there
    shift : of the feature there; new : documents with other names there, of 6
    """
    theta = 1 / np.arange(1, DEPTH + 1) if theta is None else theta
    world = np.random.default_rng(7)  # the same in every draw
    gamma = world.uniform(0.2, 0.8, size=(2, QUERIES, DOCUMENTS))
    time = np.sort(rng.random(n_sessions))
    now = time > 0.75
    query = rng.integers(QUERIES, size=n_sessions)
    order = np.argsort(rng.random((n_sessions, DOCUMENTS)), axis=1)[:, :DEPTH]
    relevance = np.where(now[:, None], liked * gamma[1][query] + (1 - liked) * gamma[0][query],
                         gamma[0][query])  # fmt: skip
    curve = np.where(now[:, None], theta if later is None else later, theta)
    chance = np.take_along_axis(relevance, order, axis=1) * curve * np.where(now, level, 1)[:, None]
    renamed = np.where(now[:, None] & (order < new), order + 100, order)
    feature = rng.normal(size=order.shape) + shift * now[:, None]
    return {
        "query_id": np.repeat(query, DEPTH),
        "session_id": np.repeat(np.arange(n_sessions), DEPTH),
        "doc_id": renamed.ravel(),
        "position": np.tile(np.arange(1, DEPTH + 1), n_sessions),
        "click": (rng.random(order.shape) < chance).ravel().astype(int),
        "timestamp": np.repeat(time, DEPTH),
        "f_price": feature.ravel(),
        "f_steady": rng.normal(size=order.size),
    }


def log_of(table, **options):
    return read_log(pa.table(table), features="f_*", collapse=False, **options)


def codes(found):
    return {fact.code for fact in found.alarms}


def test_an_unchanging_log_is_quiet(rng):
    found = watch(log_of(columns(rng)))
    assert found.is_quiet
    assert found.notes[0].code == "watch.quiet"
    assert [period.n_sessions for period in found.periods] == [750] * 4
    assert found.unseen_documents == found.unseen_queries == 0
    curve = found.reading
    assert curve.ratio[0] == 1
    assert np.all((curve.low <= 1) & (curve.high >= 1))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"later": 1 / np.arange(1, DEPTH + 1) ** 2}, "watch.reading"),
        ({"level": 0.6}, "watch.clicks"),
        ({"liked": 1.0}, "watch.documents"),
        ({"shift": 1.0}, "watch.features"),
        ({"new": 5}, "watch.unseen"),
    ],
)
def test_what_changed_is_what_is_told(change, code):
    rng = np.random.default_rng(3)
    assert codes(watch(log_of(columns(rng, 12_000, **change)), level=0.99)) == {code}


def test_the_curve_of_change_holds_the_true_ratios():
    k = np.arange(1, DEPTH + 1)
    rng = np.random.default_rng(5)
    found = watch(log_of(columns(rng, 20_000, later=1 / k**1.5)), level=0.99).reading
    assert found.position.tolist() == k.tolist()
    assert np.all((found.low <= k**-0.5) & (k**-0.5 <= found.high))
    assert found.high[-1] < 0.9


def test_a_slow_twin_of_the_ratio_at_each_position(rng):
    table = columns(rng, 400)
    log = log_of(table)
    late = np.sort(table["timestamp"][::DEPTH])[300]
    cells = {}
    for q, d, k, c, t in zip(*(table[n].tolist() for n in
                             ("query_id", "doc_id", "position", "click", "timestamp")),
                             strict=True):  # fmt: skip
        cell = cells.setdefault((q, d, k), [[0, 0], [0, 0]])
        cell[int(t >= late)][0] += 1
        cell[int(t >= late)][1] += c
    value = {}
    for position in range(1, DEPTH + 1):
        now = before = 0.0
        for (_, _, k), ((n0, c0), (n1, c1)) in cells.items():
            if k == position and n0 and n1 and 0 < c0 + c1 < n0 + n1:
                now += c1 * n0 / (n0 + n1)
                before += c0 * n1 / (n0 + n1)
        value[position] = now / before
    found = watch(log).reading
    assert found.ratio == pytest.approx([value[k] / value[1] for k in found.position])


def test_stability_index_by_hand(rng):
    table = columns(rng, 400, shift=0.5)
    found = {each.feature: each for each in watch(log_of(table)).features}
    order = np.argsort(table["timestamp"], kind="stable")
    values = table["f_price"].astype(np.float32)[order]
    before, now = values[: 300 * DEPTH], values[300 * DEPTH :]
    edges = np.quantile(before, np.linspace(0.1, 0.9, 9), method="nearest")
    p, q = (np.bincount(np.searchsorted(edges, v), minlength=11) + 0.5 for v in (now, before))
    p, q = p / p.sum(), q / q.sum()
    assert found["f_price"].index == pytest.approx(np.sum((p - q) * np.log(p / q)))
    assert found["f_price"].p_value < 1e-4 < found["f_steady"].p_value


def test_false_alarms_are_as_rare_as_stated():
    alarms = 0
    for seed in range(25):
        log = log_of(columns(np.random.default_rng(seed), 600))
        alarms += not watch(log, level=0.9).is_quiet
    assert alarms <= 7  # 2.5 on average at most; more than 7 have a probability of 0.2%


@pytest.mark.slow
def test_false_alarms_are_as_rare_as_stated_in_many_logs():
    n = 600
    alarms = sum(
        not watch(log_of(columns(np.random.default_rng(10_000 + s), 1500)), level=0.95).is_quiet
        for s in range(n)
    )
    assert alarms / n < 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / n)


def two_arms(rng, n_sessions=4000, *, better=1.0):
    """A log in which chance chooses between two rankers, the new one clicked more often."""
    table = columns(rng, n_sessions)
    arm = rng.random(n_sessions) < 0.5
    extra = rng.random(len(table["click"])) < np.repeat(arm, DEPTH) * (better - 1)
    table["click"] = np.maximum(table["click"], extra * (table["position"] == 1))
    table["model"] = np.repeat(np.where(arm, "b", "a"), DEPTH)
    return log_of(table, context=["model"])


@pytest.mark.parametrize(
    ("names", "better", "code"),
    [
        (("b", "a"), 1.0, "watch.new-open"),
        (("b", "a"), 1.5, "watch.new-better"),
        (("a", "b"), 1.5, "watch.new-worse"),
    ],
)
def test_two_live_rankers(names, better, code):
    log = two_arms(np.random.default_rng(2), better=better)
    found = watch(log, new=names[0], old=names[1], arm="model", top=1)
    assert found.live.fact.code == code
    assert (code in codes(found)) == (code == "watch.new-worse")


@pytest.mark.parametrize(("votes", "code"), [(0.5, "watch.new-open"), (0.7, "watch.new-better")])
def test_interleaved_lists(votes, code):
    """Of 400 sessions with one click each, a share falls on the new ranker's documents."""
    rng = np.random.default_rng(1)
    table = columns(rng, 400)
    team = np.tile([1, 2, 1, 2, 1], 400)
    on = np.where(rng.random(400) < votes, 0, 1)
    table["click"] = (np.tile(np.arange(DEPTH), 400) == np.repeat(on, DEPTH)).astype(int)
    found = watch(log_of({**table, "team": team}, labels=["team"]), team="team")
    assert found.live.fact.code == code
    assert found.live.interleaved.sessions.win == np.count_nonzero(on == 0)
    assert "won by new" in watch_page(found)


def test_too_few_queries_for_live_rankers(rng):
    log = two_arms(rng)
    few = log.take(np.flatnonzero(log.query < 5))
    found = watch(few, new="b", old="a", arm="model")
    assert found.live.fact.code == "watch.new-too-early"


def test_as_many_periods_as_there_may_be_are_drawn(rng):
    found = watch(log_of(columns(rng, 1400)), periods=7)
    assert [period.n_sessions for period in found.periods] == [200] * 7
    assert "period 6" in watch_page(found)


def test_curves_of_periods(rng):
    found = watch(log_of(columns(rng, 6000)), estimator=AllPairs(), periods=2)
    assert len(found.curves) == 2
    truth = 1 / np.arange(1, DEPTH + 1)
    for curve in found.curves:
        assert curve.examination == pytest.approx(truth, abs=0.15)


def test_errors_say_what_to_do(rng):
    table = columns(rng, 100)
    with pytest.raises(OptionError, match="has no times of sessions"):
        watch(replace(log_of(table), time=None))
    with pytest.raises(OptionError, match="must be 2 to 7"):
        watch(log_of(table), periods=1)
    with pytest.raises(OptionError, match="give both names"):
        watch(log_of(table), new="b")
    with pytest.raises(OptionError, match="no context 'model'"):
        watch(log_of(table), new="b", old="a", arm="model")
    with pytest.raises(OptionError, match="is no click"):
        watch(log_of({**table, "click": table["click"] * 2}))


# The page, the figures and the command.


def test_page_and_figures_tell_the_alarms(rng):
    found = watch(log_of(columns(rng, 3000, shift=2.0)))
    page = watch_page(found)
    assert "Watching a log" in page
    assert "f_price" in page
    assert "default-src &#39;none&#39;" in page
    figures = dict(
        line.rsplit(" ", 1) for line in prometheus_text(found).splitlines() if line[0] != "#"
    )
    assert figures["untilt_watch_alarms"] == "1"
    assert figures['untilt_watch_alarm{kind="features"}'] == "1"
    assert figures['untilt_watch_alarm{kind="reading"}'] == "0"
    assert float(figures['untilt_watch_feature_stability_index{feature="f_price"}']) > 0.2


@pytest.mark.parametrize(("shift", "code"), [(0.0, 0), (2.0, ALARM)])
def test_the_command(rng, tmp_path, shift, code):
    table = columns(rng, 2000, shift=shift)
    for part, rows in enumerate(np.array_split(np.arange(2000 * DEPTH), 2)):
        pq.write_table(pa.table(table).take(rows), tmp_path / f"{part}.parquet")
    paths = [str(tmp_path / "0.parquet"), str(tmp_path / "1.parquet")]
    more = ["--features", "f_*", "--page", str(tmp_path / "w.html")]
    more += ["--prometheus", str(tmp_path / "w.prom")]
    result = CliRunner().invoke(app, ["watch", *paths, *more, "--json"])
    assert result.exit_code == code, result.output
    facts = json.loads(result.stdout)
    assert facts["quiet"] == (code == 0)
    assert facts["rows"] == 2000 * DEPTH
    assert len(facts["periods"]) == 4
    assert (tmp_path / "w.html").read_text().startswith("<!DOCTYPE html>")
    assert "untilt_watch_sessions 500" in (tmp_path / "w.prom").read_text()
    said = CliRunner().invoke(app, ["watch", *paths, "--features", "f_*"])
    assert ("No alarm" not in said.output) == (code == ALARM)


def test_the_log_of_a_server_is_watched_as_it_is(tmp_path):
    """Two models on halves of the sessions; collected days are read, compared and quiet."""
    rng = np.random.default_rng(4)
    day = 86_400_000_000
    records: list[Shown | Feedback] = []
    for session in range(1200):
        time = 20_000 * day + session * 4 * day // 1200
        query, model = f"q{rng.integers(25)}", "ab"[int(rng.random() < 0.5)]
        documents = [f"d{d}" for d in rng.permutation(4)]
        name = f"{datetime.fromtimestamp(time // 1_000_000, UTC):%Y%m%d}-{hashed(str(session))}"
        records.append(
            Shown(list_id=name, time=time, session=str(session), query=query, documents=documents,
                  ranker="production", model=model)
        )  # fmt: skip
        records += [
            Feedback(event=f"{session}-{k}", list_id=name, document=documents[k], time=time,
                     received=time)
            for k in range(4) if rng.random() < 0.6 / (k + 1)
        ]  # fmt: skip

    async def written():
        journal = Journal(tmp_path / "log")
        await journal.append(*map(pack, records))
        await journal.close()

    asyncio.run(written())
    collect(tmp_path / "log", tmp_path / "clicks")
    words = ["watch", str(tmp_path / "clicks"), "--arm", "model", "--new", "b", "--old", "a"]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["live"]["fact"]["code"] == "watch.new-open"
    assert [period["sessions"] for period in facts["periods"]] == [300] * 4
    assert facts["periods"][0]["start"].startswith("2024-10-04")

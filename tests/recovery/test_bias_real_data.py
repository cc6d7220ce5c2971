"""Position bias of real users: curves that agree where they should, and differ where they must."""

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import untilt as ut

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.fixture(scope="module")
def pages(data_dir):
    return example("yandex_pages")["read_pages"](data_dir / "yandex-sample" / "train.txt.gz")[0]


@pytest.fixture(scope="module")
def hotels(data_dir):
    return example("expedia_bias")["read_hotels"](data_dir / "expedia-sample" / "searches.csv.gz")


# ---- web search: the same urls at several ranks


def test_all_positions_of_the_pages_are_joined(pages):
    graph = ut.position_graph(pages)
    assert graph.is_connected
    assert len(graph.edges) == 10 * 9 / 2


def test_three_ways_to_the_curve_of_the_pages_agree(pages):
    """Within a fifth of each other at every position, and all intervals overlap."""
    curves = [m.fit(pages).bias_ for m in (ut.AllPairs(), ut.AdjacentChain(), ut.PBM())]
    for bias in curves[1:]:
        assert bias.examination == pytest.approx(curves[0].examination, rel=0.2)
        assert bias.compare(curves[0]).equal
    highest_low = np.max([bias.low for bias in curves], axis=0)
    assert np.all(highest_low <= np.min([bias.high for bias in curves], axis=0))


def test_the_curve_of_the_pages_falls_but_less_than_their_clicks(pages):
    bias, rates = ut.AllPairs().fit(pages).bias_, pages.ctr_by_position()
    assert bias.examination[9] == pytest.approx(0.24, abs=0.02)
    assert np.all(np.diff(bias.smooth().examination) <= 0)
    # Clicks fall faster than examination: what stands at the end is less relevant, too. Twenty
    # queries of uneven traffic do not prove it: the interval of position 10 holds the click rate.
    assert (rates.rate / rates.rate[0])[9] < 0.8 * bias.examination[9]
    assert (rates.rate / rates.rate[0])[9] in bias.interval(10)


def test_queries_of_the_pages_differ_by_more_than_session_noise(pages):
    """The same documents as if of one query: without clusters position 2 seems better known."""
    one_query = replace(
        pages,
        query_id=np.zeros(1, dtype=int),
        doc_query=np.zeros(pages.n_documents, dtype=int),
        query=np.zeros(pages.n_lists, dtype=int),
    )
    noise, everything = ut.AllPairs().fit(one_query).bias_, ut.AllPairs().fit(pages).bias_
    assert "one query alone" in noise.status
    assert noise.examination == pytest.approx(everything.examination)
    assert noise.std_error[1] < 0.7 * everything.std_error[1]


# ---- hotels: a third of the searches in random order


def test_hotels_are_counted_without_other_offers(hotels):
    assert hotels.n_sessions == 1000
    assert hotels.depth == 39 - 4
    assert set(hotels.ranker_names) == {"random order", "usual order"}


def test_random_order_is_flatter_than_the_click_rate_and_agrees_with_all_pairs(hotels):
    found = example("expedia_bias")["curves"](hotels)
    random_order = found["random order"]
    clicks = found["usual order, click rate"]
    eta = {name: bias.fit_power_law().eta for name, bias in found.items()}
    assert eta["random order"] == pytest.approx(0.37, abs=0.01)
    assert eta["usual order, click rate"] == pytest.approx(0.83, abs=0.01)
    assert not random_order.compare(clicks).equal
    for name in ("usual order, AllPairs", "usual order, AllPairs as a power law"):
        assert random_order.compare(found[name]).equal


def test_the_script_draws_its_chart(data_dir, tmp_path, monkeypatch, capsys):
    path, chart = data_dir / "expedia-sample" / "searches.csv.gz", tmp_path / "chart.png"
    monkeypatch.setattr("sys.argv", ["expedia_bias.py", str(path), str(chart)])
    runpy.run_path(str(EXAMPLES / "expedia_bias.py"), run_name="__main__")
    assert "random order: eta 0.37" in capsys.readouterr().out
    assert chart.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


# ---- the same, with every method


@pytest.fixture(scope="module")
def compared(data_dir):
    """Script, random order, and name -> what every method without a network made of the rest."""
    script = example("expedia_curves")
    log = script["read_hotels"](data_dir / "expedia-sample" / "searches.csv.gz")
    usual = log.take(log.ranker == log.ranker_names.index("usual order"))
    script["fit_all"].__globals__["methods"] = lambda: {
        name: fit for name, fit in script["methods"]().items() if name not in NETWORKS
    }
    reference = script["by_position"](log, "random order")
    return script, reference, {each.name: each for each in script["fit_all"](usual)}


NETWORKS = ("DualLearning", "PairwiseTrustRanker")  # seconds each, and no interval


def test_no_method_claims_to_know_a_place_of_668_searches_exactly(compared):
    for name, each in compared[2].items():
        if each.bias is not None and each.bias.has_interval:
            assert np.all(each.bias.high[1:] > 1.01 * each.bias.low[1:]), (name, each.bias)


def test_what_takes_the_order_for_examination_differs_and_all_pairs_agrees(compared):
    _, reference, found = compared
    assert "differs" in found["click rate"].agrees(reference)
    assert "differs" in found["RegressionEM, trees"].agrees(reference)
    assert "agrees" in found["AllPairs"].agrees(reference)
    assert found["PairwiseDebiasing"].agrees(reference) == "no interval, no test"
    assert "15 documents were shown at both" in found["AdjacentChain"].says


def test_the_table_has_a_row_for_each(compared):
    script, reference, found = compared
    lines = script["table"](reference, list(found.values())).splitlines()
    assert len(lines) == 3 + len(found)
    assert all(line.count("|") == 8 for line in lines)

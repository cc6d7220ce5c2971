"""Experiment files: what they may say, and what a wrong one is told."""

import tomllib
from copy import deepcopy
from math import prod

import pytest

from untilt import catalog
from untilt.bias.given import curve_names
from untilt.errors import FileFormatError, OptionError, UntiltError
from untilt.metrics import parse_metric
from untilt.papers.methods import CURVES, MEASURES, RANKERS, TRAINING
from untilt.papers.schema import documents, load, names, parse
from untilt.simulation.protocols import as_protocol

SMALL = """
title = "t"
document = "000"
reference = "wang2020prs"
source = "Table 9"
question = "?"
form = "lines"
name = "small"
[full]
queries = 100
[quick]
queries = 20
[[panel]]
name = "p"
metrics = ["ndcg@10", "map"]
[panel.sweep]
parameter = "protocol.theta"
values = [0, 1]
title = "theta"
[[row]]
name = "clicks"
title = "Clicks"
[[claim]]
text = "It falls."
source = "section 1"
kind = "falls"
rows = ["clicks"]
"""


@pytest.fixture
def table():
    return tomllib.loads(SMALL)


def changed(table, path, value):
    table = deepcopy(table)
    place = table
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return table


def test_a_file_becomes_values(table):
    experiment = parse(table, where="small.toml")
    assert experiment.panels[0].sweep.values == (0.0, 1.0)
    assert experiment.panels[0].metrics == ("ndcg@10", "map")
    assert experiment.full.queries == experiment.size.queries == 100
    assert experiment.rows_of(experiment.panels[0]) == experiment.rows


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("titel",), "x", "small.toml: 'titel' is no key here. Did you mean 'title'?"),
        (("row", 0, "wieghting"), "ips", "row 1: 'wieghting' is no key here. Did you mean 'weight"),
        (("full", "querys"), 5, "full: 'querys' is no key here. Did you mean 'queries'?"),
        (("panel", 0, "sweep", "value"), [], "sweep: 'value' is no key here. Did you mean 'val"),
        (("full", "queries"), "many", "full.queries must be a whole number. Found 'many'"),
        (("full", "queries"), 1.5, "full.queries must be a whole number. Found 1.5"),
        (("panel", 0, "binary"), 1, "panels[0].binary must be true or false. Found 1 "),
        (("form",), "pie", "form must be one of table, lines, bars. Found 'pie'"),
        (
            ("claim", 0, "rows"),
            ["click"],
            "speaks of the row 'click', which does not exist. Did yo",
        ),
        (("claim", 0, "metric"), "ndcg@1", "the metric 'ndcg@1', which does not exist. Did you m"),
        (("claim", 0, "panel"), "q", "speaks of the panel 'q', which does not exist"),
        (("claim", 0, "kind"), "fals", "kind must be one of"),
        (("panel", 0, "rows"), ["labels"], "a panel speaks of the row 'labels'"),
        (("panel", 0, "sweep", "parameter"), "theta", "the part in sweep.parameter must be one of"),
        (("row", 0, "tune"), {"l2": 3}, "tune.l2 of row 'clicks' must be a list of values to try"),
        (("row", 0, "tune"), {"l2": []}, "tune.l2 of row 'clicks' must be a list of values to try"),
        (("row",), [], "needs at least one [[panel]] and one [[row]]"),
        (("row",), {"name": "x"}, "row must be tables, each under [[row]]"),
    ],
)
def test_a_wrong_file_is_told_where_and_how(table, path, value, message):
    with pytest.raises(UntiltError) as error:
        parse(changed(table, path, value), where="small.toml")
    assert message in str(error.value)


def test_what_must_be_given(table):
    del table["row"][0]["title"]
    with pytest.raises(OptionError, match=r"row 1: title must be given"):
        parse(table, where="small.toml")


def test_two_rows_of_one_name(table):
    table["row"].append(dict(table["row"][0]))
    with pytest.raises(OptionError, match="two rows have one name"):
        parse(table, where="small.toml")


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace('name = "small"\n', ""))
    assert load(str(path)).name == "mine"
    path.write_text("title = ")
    with pytest.raises(FileFormatError, match="is not TOML"):
        load(str(path))


def test_an_unknown_experiment():
    with pytest.raises(OptionError, match=r"Did you mean '003-table-2'\?"):
        load("003-tabel-2")


def test_the_catalogue_is_complete():
    wanted = [f"003-figure-{n}" for n in range(1, 6)] + [f"000-figure-{n}" for n in range(2, 7)]
    wanted += [
        "003-table-2",
        "000-table-1",
        "000-variance",
        "000-clipping",
        "002-figure-1",
        "002-figure-4",
        "002-figure-5",
    ]
    wanted += ["001-table-2"] + [
        f"004-{part}" for part in ("clipping", "noise", "estimation", "trust")
    ]
    assert set(wanted) <= set(names())


@pytest.mark.parametrize("name", names())
def test_every_name_in_the_catalogue_is_known(name):
    known_curves = {*CURVES, *curve_names()}
    experiment = load(name)
    assert experiment.name == name
    for panel in experiment.panels:
        assert panel.measure in MEASURES
        as_protocol(panel.protocol, panel.parameters)
        if panel.measure == "judged":
            [parse_metric(metric) for metric in panel.metrics]
        assert not panel.test_bias or panel.test_bias in known_curves
    for row in experiment.rows:
        assert row.ranker in RANKERS or catalog.find("ranker", row.ranker)
        assert catalog.find("weighting", row.weighting)
        assert row.train_on in TRAINING
        assert not row.bias or row.bias in known_curves


@pytest.mark.parametrize("name", names())
def test_every_claim_names_values_of_its_axis(name):
    experiment = load(name)
    for claim in experiment.claims:
        panels = [p for p in experiment.panels if claim.panel in ("", p.name)]
        known = {value for p in panels if p.sweep for value in p.sweep.values}
        assert {x if isinstance(x, str) else float(x) for x in claim.at} <= known


@pytest.mark.parametrize("data", [b"\xed\xa0", b"a = " + b"9" * 5000, b"a = " + b"[" * 100_000])
def test_a_file_that_is_no_toml_gets_a_sentence(tmp_path, data):
    (tmp_path / "own.toml").write_bytes(data)
    with pytest.raises(FileFormatError, match="is not TOML"):
        load(str(tmp_path / "own.toml"))


def test_a_file_may_have_a_size_smaller_than_the_documents(table):
    experiment = parse({**table, "size": {"queries": 50}}, where="small.toml")
    assert (experiment.size.queries, experiment.full.queries) == (50, 100)
    alone = {key: value for key, value in table.items() if key != "full"}
    experiment = parse({**alone, "size": {"queries": 50}}, where="small.toml")
    assert experiment.size == experiment.full


def test_similar_names_one_other_row(table):
    rows = ["prs", "clicks", "clicks"]
    claim = {"text": "t", "source": "s", "kind": "similar", "rows": rows, "margin": 0.1}
    with pytest.raises(OptionError, match="compares with one other row"):
        parse({**table, "claim": [claim]}, where="mine.toml")


def test_every_experiment_is_of_a_known_document():
    known = {each.name: each for each in documents()}
    for experiment in map(load, names()):
        assert known[experiment.document].reference == experiment.reference


def test_what_cannot_be_tested_says_why():
    untested = [each for document in documents() for each in document.untested]
    untested += [each for name in names() for each in load(name).untested]
    assert all(each.text and each.source and each.reason.endswith(".") for each in untested)


def _trials(experiment, row):
    """How many settings held-out clicks choose among; one where nothing is chosen."""
    if "jax" in catalog.find("ranker", row.ranker, also=tuple(RANKERS)).needs:
        return len(experiment.size.penalties) or 1
    return prod(len(values) for values in _of_ranker(row).values())


def _of_ranker(row):
    """Without what only one table has, such as a clip or p: that is its own to choose."""
    return {name: values for name, values in row.tune.items() if "." not in name}


@pytest.mark.parametrize("name", [name for name in names() if name.startswith("000")])
def test_rows_that_a_claim_compares_have_one_budget(name):
    experiment = load(name)
    for claim in experiment.claims:
        rows = [experiment.row(item.partition(":")[0]) for item in claim.rows]
        for panel in experiment.panels:
            inside = {row.name for row in experiment.rows_of(panel)}
            compared = [row for row in rows if row.name in inside]
            by_ranker = {}
            for row in compared:
                by_ranker.setdefault(row.ranker, []).append((row.options, _of_ranker(row)))
            assert all(each == of[0] for of in by_ranker.values() for each in of)
            if len(by_ranker) > 1 and claim.kind != "gains-more":
                assert len({_trials(experiment, row) for row in compared}) == 1

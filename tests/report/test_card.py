"""The model card: what it says is in the figures, and no name in it becomes markup."""

from dataclasses import replace

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

import untilt as ut
from untilt.data.layout import ContextCells
from untilt.errors import OptionError
from untilt.facts import TEXT
from untilt.report import step_results as r

HOSTILE = "a|b <script>alert(1)</script> [x](javascript:alert) ![i](u) **b** &amp; `c\n# h \x07\\"


def header(card: str) -> dict:
    opening, text, _ = card.split("---\n", 2)
    assert opening == ""
    return yaml.safe_load(text)


def tables(card: str) -> list[list[list[str]]]:
    """The cells of every table, as a reader of Markdown sees them."""
    found: list[list[list[str]]] = []
    tokens = MarkdownIt("commonmark").enable("table").parse(card.split("---\n", 2)[2])
    for i, token in enumerate(tokens):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            inside = tokens[i + 1].children
            found[-1][-1].append("".join(each.content for each in inside))
    return found


def test_parts_stand_in_their_order(decision):
    lines = ut.model_card(decision).splitlines()
    assert [line for line in lines if line.startswith(("# ", "## "))] == [
        "# Ranker for Shop search",
        *("## How to use it", "## Data", "## Method", "## Position bias", "## Evaluation"),
        *("## What would flip the answer?", "## Limits"),
    ]


def test_the_header_is_what_a_hub_reads(decision):
    read = header(ut.model_card(decision))
    assert read["library_name"] == "untilt"
    assert {"learning-to-rank", decision.candidate.method} <= set(read["tags"])
    ((result,),) = [each["results"] for each in read["model-index"]]
    assert result["dataset"] == {"type": "click-log", "name": "Shop search"}
    value, difference = result["metrics"]
    assert value["type"] == difference["type"] == "dcg@10"
    # 1.2 of the new order, 0.2 more than that of the logged one.
    assert (value["value"], difference["value"]) == (pytest.approx(1.2), pytest.approx(0.2))
    assert "95% interval 1.1 to 1.3" in value["name"]
    assert "95% interval 0.12 to 0.28" in difference["name"]


def test_bias_and_evaluation_have_their_intervals(decision):
    data, _, _, left_out, features, bias, differences, orders, _ = tables(ut.model_card(decision))
    assert ["Sessions", "10,000", "with 800 different lists"] in data
    assert ["position 0", "7"] in left_out
    assert features[1:] == [["bm25", "70.0%"], ["age", "30.0%"]]
    assert bias[1] == ["1", "1.0000", "[0.9500, 1.0500]"]
    assert bias[4] == ["4", "0.3000", "[0.2500, 0.3500]"]
    logged, _, new = orders[1:]
    assert logged[:3] == ["logged order", "1.00", "0.90 to 1.10"]
    assert new[:3] == ["new (chosen)", "1.20", "1.10 to 1.30"]
    assert differences[2][:3] == ["new", "+0.200", "+0.120 to +0.280"]


def test_each_context_has_its_table(decision):
    theta = np.array([1.0, 1.0, 0.5, 0.8])  # position 1 of both contexts, then position 2
    curve = ut.PositionBias(
        theta,
        std_error=np.full(4, 0.01),
        method="by device",
        layout=ContextCells(("device",), (("phone",),)),
    )
    card = ut.model_card(replace(decision, bias=r.UsedBias(curve, "measured")))
    curves = [each for each in tables(card) if each[0][:2] == ["position", "theta"]]
    assert [each[2][1] for each in curves] == ["0.5000", "0.8000"]
    assert all(f"### {name}" in card for name in curve.contexts)


@pytest.mark.parametrize(
    ("kind", "said"), [("measured", "was measured"), ("assumed", "is a guess"), ("given", "given")]
)
def test_how_far_the_bias_can_be_believed(decision, kind, said):
    used = replace(decision.bias, kind=kind)
    text = ut.model_card(replace(decision, bias=used))
    assert said in text.partition("## Position bias")[2].partition("## Evaluation")[0]


def test_every_warning_is_a_limit(decision):
    limits = ut.model_card(decision).partition("## Limits")[2]
    assert decision.warnings
    assert "- Something may mislead." in limits.splitlines()
    assert limits.count("\n- ") == 4 + len(decision.warnings)


def test_names_are_text_and_no_markup(decision):
    note = TEXT(text=HOSTILE)
    card = ut.model_card(
        replace(
            decision,
            title=HOSTILE,
            kept_out=(HOSTILE,),
            further_warnings=(HOSTILE,),
            bias=replace(decision.bias, why=note),
            held_out=replace(decision.held_out, importances={HOSTILE: 1.0}),
        )
    )
    plain = ut.model_card(decision)
    assert header(card)["model-index"][0]["name"] == HOSTILE.replace("\n", " ").replace("\x07", " ")
    assert [len(row) for t in tables(card) for row in t] == [
        len(row) for t in tables(plain) for row in (t[:2] if t[0][0] == "feature" else t)
    ]
    html = MarkdownIt("commonmark").enable("table").render(card.split("---\n", 2)[2])
    for element in ("<script", "<a ", "<img", "<strong"):
        assert element not in html
    assert html.count("<h1>") == 1


def test_a_title_of_any_bytes_can_be_written(decision):
    ut.model_card(replace(decision, title="\udcff log")).encode("utf-8")


def test_the_same_figures_give_the_same_bytes(decision):
    """Whenever and wherever they were computed."""
    later = replace(decision.provenance, finished="2030-01-01", machine="another", command="x")
    assert ut.model_card(replace(decision, provenance=later)) == ut.model_card(decision)
    assert decision.source.source not in ut.model_card(decision)


def test_without_a_ranker_there_is_no_card(decision):
    with pytest.raises(OptionError, match=r"about a ranker.*log with features"):
        ut.model_card(replace(decision, candidate=None))


def test_without_figures_the_rest_stands(decision):
    card = ut.model_card(ut.Decision("t", candidate=decision.candidate))
    assert "## Evaluation" not in card
    assert "model-index" not in header(card)
    assert tables(card) == []

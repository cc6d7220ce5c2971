"""The card that `save` writes: what the ranker knows, and no more."""

from dataclasses import replace

import numpy as np
import pytest
import yaml

import untilt as ut
from untilt.errors import OptionError

JUDGED = ut.make_judged(30, 4, seed=0)
LOG = ut.simulate(JUDGED, "harvest", n_sessions=600, seed=0).log
THETA = np.array([1.0, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.12, 0.1, 0.08])


@pytest.fixture
def card(tmp_path):
    def card_of(ranker: ut.LinearRanker, data=LOG) -> str:
        ranker.fit(data).save(tmp_path / "best.untilt", card=tmp_path / "README.md")
        return (tmp_path / "README.md").read_text(encoding="utf-8")

    return card_of


def test_without_a_card_there_is_one_file(tmp_path):
    ut.LinearRanker().fit(LOG).save(tmp_path / "best.untilt")
    assert [path.name for path in tmp_path.iterdir()] == ["best.untilt"]


def test_a_card_never_takes_the_place_of_the_ranker(tmp_path):
    ranker = ut.LinearRanker().fit(LOG)
    with pytest.raises(OptionError, match="another file"):
        ranker.save(tmp_path / "best", card=tmp_path / "." / "best")
    assert not list(tmp_path.iterdir())


def test_the_header_is_what_a_hub_reads(card):
    _, text, _ = card(ut.LinearRanker(ut.PRS(THETA))).split("---\n", 2)
    read = yaml.safe_load(text)
    assert read["library_name"] == "untilt"
    assert {"learning-to-rank", "position-bias", "linear"} <= set(read["tags"])


def test_it_says_how_to_load_the_file_that_was_saved(card, tmp_path):
    code = card(ut.LinearRanker()).split("```")[1].removeprefix("python\n")
    names = {"features": LOG.features}
    exec(code.replace("best.untilt", str(tmp_path / "best.untilt")), names)
    assert np.array_equal(names["scores"], ut.LinearRanker().fit(LOG).predict(LOG.features))


def test_options_and_curve_are_those_it_was_made_with(card):
    text = card(ut.LinearRanker(ut.IPS(THETA, clip=0.2), l2=0.5))
    assert "clip=0.2" in text
    assert "Options other than the defaults: l2=0.5." in text
    assert "| 2 | 0.5000 |" in text
    assert "It was given, not estimated." in text


def test_an_estimated_curve_has_its_interval(card):
    bias = ut.AllPairs().fit(LOG).bias_
    low, high = bias.low[1], bias.high[1]
    text = card(ut.LinearRanker(ut.PRS(bias)))
    assert f"| 2 | {bias.examination[1]:.4f} | [{low:.4f}, {high:.4f}] |" in text


@pytest.mark.parametrize("weighting", [None, ut.Naive()])
def test_raw_clicks_are_named(card, weighting):
    assert "It was not corrected: clicks count as they are." in card(ut.LinearRanker(weighting))


def test_labels_have_no_position_bias_and_no_sessions(card):
    text = card(ut.LinearRanker(), JUDGED)
    assert "| trained on | judged lists |" in text
    assert "## Position bias" not in text
    assert "sessions" not in text
    assert "click-logs" not in text


def test_no_name_of_a_feature_becomes_markup(card):
    names = ("a|b", "<script>", "[x](y)", "**b**")
    text = card(ut.LinearRanker(), replace(LOG, feature_names=names))
    assert r"a\|b, \<script>, \[x](y), \*\*b\*\*" in text

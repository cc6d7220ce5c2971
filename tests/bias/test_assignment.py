"""Which lists were changed on purpose: names, mappings and functions."""

from dataclasses import replace

import pytest

from untilt.bias.experiments.assignment import (
    baseline_lists,
    shuffled_lists,
    swap_of,
    swapped_lists,
)
from untilt.errors import OptionError


@pytest.fixture
def log(make_log):
    return make_log(
        [
            (0, [1, 2, 3], [1], 1, name)
            for name in ("base", "swap:1-3", "swap:2-3", "shuffle", "new")
        ]
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("swap:1-5", (1, 5)),
        ("swap:10-21", (10, 21)),
        ("base", "base"),
        ("swap:1", None),
        ("my swap:1-5", None),
        ("shuffle", None),
        ("", None),
    ],
)
def test_names_of_swaps(name, found):
    assert swap_of(name) == found


def chosen(log, mask):
    return {log.ranker_names[r] for r in log.ranker[mask]}


def test_shuffled_lists(log):
    assert chosen(log, shuffled_lists(log, None)) == {"shuffle"}
    assert chosen(log, shuffled_lists(log, "new")) == {"new"}
    assert chosen(log, shuffled_lists(log, ["new", "base"])) == {"new", "base"}
    assert chosen(log, shuffled_lists(log, lambda name: name.startswith("s"))) == {
        "shuffle",
        "swap:1-3",
        "swap:2-3",
    }


def test_swapped_lists(log):
    part, swapped = swapped_lists(log, None)
    assert chosen(log, part) == {"base", "swap:1-3", "swap:2-3"}
    named = {log.ranker_names[r]: tuple(pair) for r, pair in zip(log.ranker, swapped, strict=True)}
    assert named["swap:1-3"] == (1, 3)
    assert named["base"] == (0, 0)


@pytest.mark.parametrize("as_function", [False, True])
def test_other_names_for_swaps(log, as_function):
    told = {"new": (3, 1), "shuffle": "base"}
    part, swapped = swapped_lists(log, told.get if as_function else told)  # type: ignore[arg-type]
    assert chosen(log, part) == {"new", "shuffle"}
    assert sorted(map(tuple, swapped[part].tolist())) == [(0, 0), (1, 3)]


@pytest.mark.parametrize("said", [(1, 1), (0, 2), (1, 2, 3), "swapped", 7])
def test_nonsense_about_a_swap(log, said):
    with pytest.raises(OptionError, match=r"two different positions .*Got .* for 'new'"):
        swapped_lists(log, {"new": said, "base": "base"})


def test_names_that_are_not_there(log):
    with pytest.raises(OptionError, match=r"ranker 'shufle'.* Did you mean 'shuffle'"):
        shuffled_lists(log, "shufle")
    with pytest.raises(OptionError, match="no list of this log was made by ranker 'swap'"):
        swapped_lists(log, {"swap": (1, 2)})


def test_nothing_was_changed(make_log):
    log = make_log([(0, [1, 2], [1], 1, "production")])
    with pytest.raises(OptionError, match=r"shuffled\. Rankers of this log: 'production'"):
        shuffled_lists(log, None)
    with pytest.raises(OptionError, match=r"swapped\. Rankers of this log: 'production'"):
        swapped_lists(log, None)


def test_a_log_without_rankers(log):
    bare = replace(log, ranker=None, ranker_names=())
    assert shuffled_lists(bare, lambda name: True).all()
    for find in (shuffled_lists, swapped_lists):
        with pytest.raises(OptionError, match=r"does not name the lists .* columns="):
            find(bare, None)


# ---- the baseline


@pytest.mark.parametrize(
    ("baseline", "names"),
    [
        (None, {"base", "new"}),
        ("new", {"new"}),
        ("ranker=new", {"new"}),
        ("ranker=base, new", {"base", "new"}),
        (["shuffle", "base"], {"shuffle", "base"}),
        ("swap:1-3", {"swap:1-3"}),
    ],
)
def test_the_baseline_is_all_but_experiments_or_what_is_named(log, baseline, names):
    assert chosen(log, baseline_lists(log, baseline)) == names


def test_logs_without_production_are_their_own_baseline(log):
    only = log.take([1, 3])
    assert baseline_lists(only).all()
    bare = replace(log, ranker=None, ranker_names=())
    assert baseline_lists(bare).all()
    with pytest.raises(OptionError, match="does not say which ranker made a list"):
        baseline_lists(bare, "new")
    with pytest.raises(OptionError, match="no session of this part of the log was made by 'new'"):
        baseline_lists(only, "new")
    with pytest.raises(OptionError, match="Did you mean 'new'"):
        baseline_lists(log, "ranker=newer")

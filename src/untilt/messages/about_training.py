"""What rankers and weightings say of training: how it ended, what it rests on, what it chose."""

from untilt.facts import Message

MESSAGES = {
    # Rankers and a table fitted in turn: how it ended.
    "training.settled": Message("note", "settled after {fits} fits"),
    "training.not-settled": Message("warning", "not settled after {fits} fits"),
    # Linear rankers: how the optimisation ended.
    "training.converged": Message(
        "note", "converged (largest slope {slope:.1e} after {iterations} iterations)"
    ),
    "training.stopped-early": Message(
        "warning",
        "stopped early: {message} (largest slope {slope:.1e} after {iterations} iterations)",
    ),
    "training.gap-closed": Message(
        "note", "converged (duality gap {gap:.1e} after {rounds} rounds)"
    ),
    "training.gap-open": Message(
        "warning", "stopped early (duality gap {gap:.1e} after {rounds} rounds)"
    ),
    # weighting="auto": what was learned, and why.
    "training.labels": Message("note", "judged lists need no correction"),
    "training.stacked": Message(
        "note",
        "held-out clicks weigh what clicks say with {clicks:.0%} and the old ranker with "
        "{old_ranker:.0%}; {unshown:.0%} of the candidates were never shown",
    ),
    "training.no-clicks": Message(
        "warning",
        "{label} is no click: its pairs are weighted, as there is no likelihood of clicks to learn "
        "from. A column of clicks as the label (log.with_label) gives the stacked learner",
    ),
    "training.one-query": Message(
        "warning",
        "there is a single query, which cannot be held out: its pairs are weighted. Two or more "
        "queries give the stacked learner",
    ),
    # The same of rankers that were saved before there was the stacked learner.
    "training.blend-best": Message(
        "note", "the blend of likelihood and posterior labels did best on held-out clicks"
    ),
    "training.better-than-blend": Message(
        "note", "better than the blend on held-out clicks by {gain:.4f} DCG@10"
    ),
    "training.ahead-within-noise": Message(
        "note", "{candidate} was ahead on held-out clicks by {gain:.4f} DCG@10, within noise"
    ),
    # Tables of pair weights: whether they order documents by relevance.
    "training.consistent": Message(
        "note", "consistent: pairs are ordered by relevance at every pair of positions"
    ),
    "training.nearly-consistent": Message("warning", lambda **of: _prefers("nearly", **of)),
    "training.not-consistent": Message("warning", lambda **of: _prefers("not", **of)),
}


def _prefers(how_far: str, *, k: int, l: int, pull: float) -> str:  # noqa: E741  the formula's symbols
    order = "keeps the shown order" if pull > 0 else "reverses the shown order"
    return (
        f"{how_far} consistent: of two equally relevant documents at positions {k} and {l} it "
        f"prefers one by {abs(pull):.1%} and so {order}"
    )

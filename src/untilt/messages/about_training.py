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
    # weighting="auto": why a candidate was picked.
    "training.labels": Message("note", "judged lists need no correction"),
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

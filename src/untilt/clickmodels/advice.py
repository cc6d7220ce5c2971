"""What the best click model means for the choice of a bias model."""

from dataclasses import dataclass

from untilt.clickmodels.compare import REFERENCE, ModelComparison
from untilt.clickmodels.quality import Measured

# Of PBM's perplexity above 1. Where readers are position-based, the best of eight models took at
# most 0.1% of it by chance (40 logs of 2,000 to 50,000 sessions); where they stop or browse on,
# 1% to 10%: docs/click-models.md, "Is PBM enough?", and clickmodels/test_advice_threshold.py.
SMALL_GAIN = 0.01

_MEANING = {
    "browsing": (
        "Whether people look at a position depends on where they clicked last. One curve over "
        "positions is the average over that: UBM().fit(log).bias_ gives it. It serves rankers "
        "as long as people click about as often as now."
    ),
    "chain": (
        "People read from the top and stop, and what stands above decides who gets further. A "
        "curve over positions is right only on average over lists like those logged: measure "
        "it again after the ranking has changed, rather by swaps than from this log, and try the "
        'ranker on simulate(protocol="cascade") before relying on it.'
    ),
    "network": (
        "What people look at depends on the clicks and documents above in ways that a network "
        "finds and UBM and DBN do not. A curve over positions is the average over that: "
        "UBM().fit(log).bias_ gives one. It serves rankers as long as people click about as often "
        "as now."
    ),
    "position": "A curve over positions describes how people look at these pages.",
    "rates": (
        "A plain click rate predicts best: the log hardly shows the same document at different "
        "positions, so bias and relevance cannot be told apart. `untilt audit` says which swaps "
        "would help."
    ),
}


@dataclass(frozen=True)
class Advice:
    """Is the position-based model enough for this log?

    best : name of the best model; enough : whether PBM is as good or nearly so
    gain : its log-likelihood per session over that of PBM
    share : of PBM's conditional perplexity above 1, how much the best model takes away
    """

    best: str
    enough: bool
    gain: Measured | None
    share: float
    sentences: tuple[str, ...]

    def __repr__(self) -> str:
        return " ".join(self.sentences)


def advise(comparison: ModelComparison) -> Advice | None:
    """The advice; None where the position-based model was not compared."""
    if REFERENCE not in [entry.name for entry in comparison]:
        return None
    best, pbm = comparison.best, comparison[REFERENCE]
    family = best.model.family
    if best.name == REFERENCE:
        first = "PBM predicts held-out clicks best: it is enough here."
        return Advice(best.name, True, None, 0.0, (first, _MEANING["position"]))
    ours, theirs = pbm.conditional_perplexity.value, best.conditional_perplexity.value
    share = (ours - theirs) / (ours - 1)
    gain = best.gain if comparison.reference == REFERENCE else None
    by_chance = gain is not None and gain.interval.low <= 0
    enough = by_chance or share < SMALL_GAIN
    return Advice(best.name, enough, gain, share, _sentences(best.name, family, by_chance, share))


def _sentences(name: str, family: str, by_chance: bool, share: float) -> tuple[str, ...]:
    if by_chance:
        first = f"{name.upper()} is ahead of PBM by no more than chance allows: PBM is enough here."
        return first, _MEANING["position"]
    takes = f"takes away {share:.1%} of PBM's conditional perplexity above 1"
    if share < SMALL_GAIN:
        first = f"{name.upper()} predicts best but {takes}: PBM is nearly enough here."
        return first, _MEANING["position"]
    first = f"{name.upper()} predicts best and {takes}: PBM is not the whole truth here."
    return first, _MEANING.get(family, _MEANING["browsing"])

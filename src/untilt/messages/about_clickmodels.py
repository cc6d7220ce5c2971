"""What the comparison of click models says."""

from functools import partial

from untilt.facts import Message


def _ahead(model: str, share: float, *, conjunction: str, verdict: str) -> str:
    return (
        f"{model.upper()} predicts best {conjunction} takes away {share:.1%} of PBM's conditional "
        f"perplexity above 1: {verdict}"
    )


MESSAGES = {
    # Curves of PBM and UBM.
    "clickmodels.examined-by-last-click": Message(
        "note", "examination depends on the position and on the last click above"
    ),
    "clickmodels.not-comparable": Message(
        "note", "{share:.2%} of the impressions cannot be compared"
    ),
    # Is the position-based model enough?
    "clickmodels.pbm-best": Message(
        "note", "PBM predicts held-out clicks best: it is enough here."
    ),
    "clickmodels.ahead-by-chance": Message(
        "note",
        lambda model: (
            f"{model.upper()} is ahead of PBM by no more than chance allows: PBM is enough here."
        ),
    ),
    "clickmodels.ahead-by-little": Message(
        "note", partial(_ahead, conjunction="but", verdict="PBM is nearly enough here.")
    ),
    "clickmodels.ahead": Message(
        "warning", partial(_ahead, conjunction="and", verdict="PBM is not the whole truth here.")
    ),
    # What the best model means for a curve over positions.
    "clickmodels.curve-is-right": Message(
        "note", "A curve over positions describes how people look at these pages."
    ),
    "clickmodels.last-click-matters": Message(
        "warning",
        "Whether people look at a position depends on where they clicked last. One curve over "
        "positions is the average over that: UBM().fit(log).bias_ gives it. It serves rankers "
        "as long as people click about as often as now.",
    ),
    "clickmodels.readers-stop": Message(
        "warning",
        "People read from the top and stop, and the documents above decide who gets further. A "
        "curve over positions is right only on average over lists like those logged: measure "
        "it again after the ranking has changed, rather by swaps than from this log, and try the "
        'ranker on simulate(protocol="cascade") before relying on it.',
    ),
    "clickmodels.network-is-better": Message(
        "warning",
        "What people look at depends on the clicks and documents above in ways that a network "
        "finds and UBM and DBN do not. A curve over positions is the average over that: "
        "UBM().fit(log).bias_ gives one. It serves rankers as long as people click about as often "
        "as now.",
    ),
    "clickmodels.rates-are-best": Message(
        "warning",
        "A plain click rate predicts best: the log hardly shows the same document at different "
        "positions, so bias and relevance cannot be told apart. `untilt audit` says which swaps "
        "would help.",
    ),
    # Is their relevance an order of documents?
    "clickmodels.worse-than-shown": Message(
        "warning",
        lambda models, n_models: (
            f"{', '.join(model.upper() for model in models)} ({len(models)} of {n_models} models) "
            "order documents worse than the shown lists, by human labels. Do not rank by their "
            "relevance: train a ranker, or collect more sessions per query."
        ),
    ),
    "clickmodels.few-sessions": Message(
        "warning",
        "{sessions:.1f} sessions per query: these models cannot order documents. Predicting clicks "
        "they may do well by positions alone. Train a ranker on features, or give judged lists to "
        "compare with the shown order.",
    ),
    # About single models.
    "clickmodels.ruled-out": Message(
        "warning",
        lambda model, share: (
            f"{model.upper()} took {share:.2%} of what happened for impossible; its likelihood and "
            "conditional perplexity tell how low the floor is, not how good it is."
        ),
    ),
    "clickmodels.not-installed": Message(
        "note",
        lambda model: (
            f"{model.upper()} was left out: it needs JAX. Install it: pip install 'untilt[neural]'"
        ),
    ),
    "clickmodels.too-slow": Message(
        "note",
        lambda model, n_lists: (
            f"{model.upper()} was left out: it would take many minutes on {n_lists:,} distinct "
            "lists. Ask for it by name to fit it all the same"
        ),
    ),
}

"""What an engine does otherwise with a model that was written for it."""

from untilt.facts import Message

MESSAGES = {
    "export.no-negative-features": Message(
        "note",
        "{engine} scores features by queries, and refuses negative ones: a feature that can be "
        "negative must be shifted in its query, and the ranker trained on the shifted one",
    ),
    "export.missing-since": Message(
        "warning",
        "missing values follow the trees from {since} on; before, {engine} LTR sends them to the "
        "right at every split",
    ),
    "export.constant": Message(
        "note",
        "scores are {constant:+.6g} away from those of predict, the same for every document",
    ),
    "export.xgboost-objective": Message(
        "note",
        "the objective in the file stands for the scores as they are (reg:squarederror): the model "
        "predicts, and is not to be trained further",
    ),
    "export.solr-missing": Message(
        "warning",
        "missing values follow the trees in Solr 9.2 and later (isNullSameAsZero); earlier ones "
        "refuse the model",
    ),
    "export.solr-unreached": Message(
        "warning",
        "{splits:,} splits stand at values that Solr cannot compare with, since it adds 1e-6 to "
        "every threshold: values within 1e-13 of them may go the other way",
    ),
    "export.vespa-missing": Message(
        "note",
        "Vespa has NaN for attributes of floats and doubles without a value alone: those of whole "
        "numbers have their smallest number there, and bm25 and other matches 0",
    ),
    "export.vespa-alone": Message(
        "note",
        "the file is for Vespa alone, which reads <= as <: LightGBM would score otherwise with it",
    ),
    "export.judgments": Message(
        "note",
        "relevance is the mean of its posterior; queries differ by {query:.2f} and documents of a "
        "query by {document:.2f} (standard deviations of the logit)",
    ),
    "export.judgments-relative": Message(
        "note",
        "the bias is known relative to position 1, so that a judgment is relevance times the "
        "examination of position 1: the order of documents is right, the level is a lower bound",
    ),
    "export.judgments-no-bias": Message(
        "warning",
        "every position counts as examined alike: right for lists in random order alone",
    ),
}

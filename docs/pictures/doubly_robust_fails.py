"""Doubly robust is as right as its curve where nothing is clipped, and as its model where it is."""

import numpy as np
from _logs import HOW_TO_READ, bar, gain, made_logs, new_ranker, true_gain
from _panels import panels

import untilt as ut

METHODS = {
    "direct": {"evaluator": "direct"},
    "doubly robust, no clip": {"evaluator": "doubly-robust"},
    "doubly robust, clip 0.3": {"evaluator": "doubly-robust", "clip": 0.3},
}
CASES = {
    "model and curve right": (True, ut.EyeTracking()),
    "model of raw clicks, curve right": (False, ut.EyeTracking()),
    "model right, curve too flat": (True, ut.EyeTracking(0.5)),
}


def draw():
    """Three methods, three cases, twenty logs."""
    new, logs = new_ranker(), list(made_logs("dla"))
    truths = [true_gain(made, new) for made in logs]
    found = {}
    for case, (right, bias) in CASES.items():
        models = [made.truth.relevance if right else click_rates(made.log) for made in logs]
        found[case] = {
            name: bar(
                [
                    gain(made.log, new, bias, relevance=model, **options)
                    for made, model in zip(logs, models, strict=True)
                ],
                truths,
            )
            for name, options in METHODS.items()
        }
    return panels(
        found,
        title="A good model corrects a clipped estimate, but not a wrong curve",
        **HOW_TO_READ,
    )


def click_rates(log):
    """Clicks per impression of each document: a model that knows nothing of positions."""
    sessions = np.repeat(log.sessions, np.diff(log.indptr))
    shown = np.bincount(log.document, sessions, log.n_documents)
    clicked = np.bincount(log.document, sessions * log.label, log.n_documents)
    return clicked / np.maximum(shown, 1)

"""Curves of examination in the coverage table: each estimator on logs that it is made for."""

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
from coverage_row import Ends, Measure, Row
from coverage_world import (
    DEVICES,
    EPS_MINUS,
    EPS_PLUS,
    ETA,
    PHONES,
    PLACE,
    THETA,
    Array,
    Made,
    truth,
)

import untilt as ut
from untilt.auditing.reading import reading_tests

THREADS: dict[str, Any] = {"n_threads": 1}


def of_curve(bias: Any, theta: Array = THETA) -> Ends | None:
    """Positions 2.. of a curve: position 1 is 1 by definition."""
    if not getattr(bias, "has_interval", bias.low is not None):
        return None
    return Ends(bias.low[1:], bias.high[1:], (theta / theta[0])[1 : bias.depth])


def fitted(made: Made, name: str, make: Callable[[], Any]) -> Any:
    """The fitted estimator of this name, once for all rows that ask for it."""
    return made.once(name, lambda: make().fit(made.log))


def all_pairs(made: Made) -> Any:
    return fitted(made, "AllPairs", ut.AllPairs).bias_


def curve_row(name: str, study: str, make: Callable[[], Any], **more: Any) -> Row:
    def measure(made: Made) -> Ends | None:
        return of_curve(fitted(made, name, make).bias_)

    return Row(name, "curves", study, measure, **more)


def of_smooth(made: Made) -> Ends | None:
    return of_curve(all_pairs(made).smooth())


def of_power_law(made: Made) -> Ends | None:
    return of_curve(all_pairs(made).fit_power_law())


def of_eta(made: Made) -> Ends:
    law = all_pairs(made).fit_power_law()
    # The curve at position 2 is 2^-eta: its interval is that of eta.
    ends = np.sort([-np.log2(law.high[1]), -np.log2(law.low[1])])
    return Ends(ends[:1], ends[1:], np.array([ETA]))


def of_contexts(made: Made) -> Ends | None:
    curves = fitted(made, "ContextualBias", ut.ContextualBias).curves_
    parts = [of_curve(curves.curve({"device": each}), PLACE**-eta) for each, eta in DEVICES.items()]
    return _joined(parts)


def of_mean_context(made: Made) -> Ends | None:
    steep, flat = (PLACE**-eta for eta in DEVICES.values())
    bias = fitted(made, "ContextualBias", ut.ContextualBias).bias_
    return of_curve(bias, PHONES * steep + (1 - PHONES) * flat)


def _joined(parts: list[Ends | None]) -> Ends | None:
    given = [part for part in parts if part is not None]
    if not given:
        return None
    return Ends(*(np.concatenate([getattr(p, end) for p in given]) for end in Ends.__annotations__))


def of_click_rates(made: Made) -> Ends:
    rates = made.log.ctr_by_position()
    return Ends(rates.low, rates.high, np.asarray(truth(made.study, made.scenario)["click_rate"]))


def of_order(made: Made) -> Ends | None:
    """The audit's correlation of position and relevance, two standard errors to either side."""
    proxy = ut.audit(made.log).relevance
    if not proxy.is_known:
        return None
    low, high = (np.array([proxy.correlation + sign * 1.96 * proxy.std_error]) for sign in (-1, 1))
    return Ends(low, high, np.array([truth(made.study, made.scenario)["correlation"]]))


def of_reading(question: str) -> Measure:
    """The size that a reading test tells. Contexts differ as DEVICES say, and nothing else does."""

    def measure(made: Made) -> Ends | None:
        tests = made.once("reading", lambda: reading_tests(made.log)).tests
        for test in (each for each in tests if each.question == question):
            eta = {kind: DEVICES[kind] - DEVICES[other] for kind, other in permutations(DEVICES)}
            true = test.position ** -eta[test.about] if question == "context" else 1.0
            return Ends(*(np.array([each]) for each in (test.low, test.high, true)))
        return None

    return measure


# ---- trust bias


def _affine_truth(made: Made) -> tuple[Array, Array]:
    theta = made.scenario.clicks * THETA
    return theta * (EPS_PLUS - EPS_MINUS), theta * EPS_MINUS


def trust_em(made: Made, **options: Any) -> Any:
    alpha, beta = _affine_truth(made)
    anchor = ut.TrustAnchor(relevant=alpha[0] + beta[0], irrelevant=beta[0])
    return fitted(made, f"TrustEM{options}", lambda: ut.TrustEM(anchor=anchor, **options))


def _of_affine(curves: Any, alpha: Array, beta: Array) -> Ends | None:
    around = curves.intervals()
    if not np.isfinite(around.alpha_low[1:]).any() and not np.isfinite(around.beta_low[1:]).any():
        return None
    return Ends(
        np.concatenate([around.alpha_low[1:], around.beta_low[1:]]),
        np.concatenate([around.alpha_high[1:], around.beta_high[1:]]),
        np.concatenate([alpha[1 : curves.depth], beta[1 : curves.depth]]),
    )


def of_trust(made: Made, **options: Any) -> Ends | None:
    """alpha and beta where one position tells the scale of relevance."""
    return _of_affine(trust_em(made, **options).curves_, *_affine_truth(made))


def of_trust_lines(made: Made, **options: Any) -> Ends | None:
    """Slope and shift from position 1 to k, which clicks tell by themselves."""
    alpha, beta = _affine_truth(made)
    slope = alpha / alpha[0]
    return _of_affine(trust_em(made, **options).curves_.relative(), slope, beta - slope * beta[0])


def curve_rows() -> Iterator[Row]:
    def of(name: str) -> tuple[str, str]:
        return ("bias", name)

    yield curve_row("AllPairs", "rankers", ut.AllPairs, covers=of("all-pairs"))
    yield curve_row("AdjacentChain", "rankers", ut.AdjacentChain, covers=of("adjacent-chain"))
    yield curve_row("Pivot", "rankers", ut.Pivot, covers=of("pivot"))
    yield Row("AllPairs, never rising", "curves", "rankers", of_smooth)
    yield Row("AllPairs, power law", "curves", "rankers", of_power_law)
    yield Row("AllPairs, eta", "curves", "rankers", of_eta)
    yield Row(
        "AllPairs, bounds", "curves", "islands", lambda made: of_curve(bounded(made)), bounds=True
    )
    yield curve_row("ShuffledTop", "shuffle", ut.ShuffledTop, covers=of("shuffled-top"))
    yield curve_row("AdjacentSwap", "adjacent", ut.AdjacentSwap, covers=of("adjacent-swap"))
    yield curve_row("AdjacentSwap, by length", "adjacent", lambda: ut.AdjacentSwap(within="length"))
    yield curve_row("PivotSwap", "pivot", ut.PivotSwap, covers=of("pivot-swap"))
    yield curve_row("PivotSwap, by length", "pivot", lambda: ut.PivotSwap(within="length"))
    for study, make in (
        ("shuffle", lambda: ut.ShuffledTop(any_time=True)),
        ("adjacent", lambda: ut.AdjacentSwap(any_time=True)),
        ("pivot", lambda: ut.PivotSwap(any_time=True)),
    ):  # made for many looks, so that at the one look of this table they may always hold
        yield curve_row(f"{type(make()).__name__}, any time", study, make, bounds=True)
    yield Row("ContextualBias", "curves", "context", of_contexts, of("contextual"))
    yield Row("ContextualBias, mean", "curves", "context", of_mean_context, of("contextual"))
    yield curve_row(
        "RegressionEM, counts",
        "rankers",
        lambda: ut.RegressionEM(relevance="counts"),
        covers=of("regression-em"),
    )
    yield curve_row(
        "RegressionEM, features",
        "fixed",
        lambda: ut.RegressionEM(relevance="features", learning_rate=0.3, **THREADS),
        covers=of("regression-em"),
        share=0.3,
    )
    yield curve_row(
        "TrustEM, counts, no trust bias",
        "rankers",
        lambda: ut.TrustEM(relevance="counts"),
        covers=of("trust-em"),
        share=0.5,
    )
    yield from _trust_rows()
    yield curve_row("PBM", "rankers", ut.PBM, covers=("click model", "pbm"))
    yield curve_row("UBM", "rankers", ut.UBM, covers=("click model", "ubm"))
    yield from _learned_with_a_ranker()


def _learned_with_a_ranker() -> Iterator[Row]:
    """Curves without an interval: a few logs show that none is given."""
    small: dict[str, Any] = {"widths": (16,), "epochs": 3}
    trees: dict[str, Any] = {"n_trees": 10, "n_leaves": 7, **THREADS}
    for name, kind, record, make in (
        ("DualLearning", "bias", "dual-learning", lambda: ut.DualLearning(**small)),
        (
            "PairwiseDebiasing",
            "weighting",
            "pairwise-debiasing",
            lambda: ut.LambdaMART(weighting=ut.PairwiseDebiasing(), **trees),
        ),
        (
            "PairwiseTrustRanker",
            "ranker",
            "pairwise-trust",
            lambda: ut.PairwiseTrustRanker(**small),
        ),
    ):
        yield curve_row(name, "fixed", make, covers=(kind, record), share=0.02)


def bounded(made: Made) -> Any:
    return fitted(made, "bounds", lambda: ut.AllPairs(unjoined="bounds")).bias_


def _trust_rows() -> Iterator[Row]:
    covers = ("bias", "trust-em")
    counts, features = (
        {"relevance": "counts"},
        {"relevance": "features", "learning_rate": 0.3, **THREADS},
    )
    for title, study, options, share in (
        ("counts", "trust", counts, 0.5),
        ("features", "trust fixed", features, 0.2),
    ):
        for what, measure in (("alpha and beta", of_trust), ("slope and shift", of_trust_lines)):
            yield Row(
                f"TrustEM, {title}, {what}",
                "curves",
                study,
                lambda made, measure=measure, options=options: measure(made, **options),
                covers,
                share,
            )

"""The affine correction is as right as its eps-."""

from _preference import by_relevance, preference, preference_chart, trust_bias

import untilt as ut

UPPER, LOWER = 0.2, 0.4
CASES = {
    "right curves": ut.AffineIPS(trust_bias()),
    "eps- half of the truth": ut.AffineIPS(trust_bias(minus_times=0.5)),
    "eps- too large by 5%": ut.AffineIPS(trust_bias(minus_times=1.05)),
    "no trust bias known": ut.AffineIPS(trust_bias(with_trust=False)),
    "right curves, clip 0.15": ut.AffineIPS(trust_bias(), clip=0.15),
}


def draw():
    """A better document below: who is put first?"""
    found = {"by relevance": by_relevance(UPPER, LOWER)}
    for name, weighting in CASES.items():
        found[f"affine, {name}"] = preference(weighting, trust_bias(), upper=UPPER, lower=LOWER)
    return preference_chart(
        found,
        title="The affine correction is as right as its eps-",
        subtitle="relevance 0.2 at position 1, 0.4 below: above 0% the wrong one is put first; "
        "clicks of protocol trust",
        legend_columns=2,
    )

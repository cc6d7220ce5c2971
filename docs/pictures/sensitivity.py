"""A difference that a somewhat flatter curve would turn, and no single query would."""

import untilt as ut


def draw():
    """A linear ranker against a production that is nearly as good; curve by all pairs."""
    judged = ut.make_judged(n_queries=200, n_features=20, seed=1)
    sim = ut.simulate(judged, protocol="swap", sessions_per_query=60, seed=1)
    train, log = sim.log.split(0.5)
    bias = ut.AllPairs().fit(train).bias_
    new = ut.LinearRanker(ut.IPS(bias)).fit(train)
    found = ut.estimate(log, {"shown": ut.shown, "new": new}, bias)
    return found.sensitivity("new", "shown").plot(title="What would flip it?")

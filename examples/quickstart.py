"""The example of the README: clicks, and a ranker that is not fooled by where they happened."""

import untilt as ut

# Judged lists: made here, or your own with ut.read_letor("MQ2008/S1.txt.gz").
train, test = ut.make_judged(n_queries=400, n_features=20, seed=0).split(0.7, seed=0)

# A weak ranker shows its lists to 40,000 simulated readers. A log of yours: ut.read_log(...).
sim = ut.simulate(train, protocol="dla", n_sessions=40_000, seed=0)
print(sim.log)
print(sim.log.ctr_by_position())

# The same trees learn from raw clicks, and from clicks with the position bias taken out.
raw = ut.LambdaMART(n_trees=50, seed=0).fit(sim.log)
unbiased = ut.LambdaMART(ut.PRS(sim.truth.bias), n_trees=50, seed=0).fit(sim.log)

# How good are they on queries that nobody trained on, by their labels?
before, after = ut.evaluate(test, raw, "ndcg@10"), ut.evaluate(test, unbiased, "ndcg@10")
print("shown order:", ut.evaluate(test, sim.truth.rankers[0], "ndcg@10")["ndcg@10"])
print("raw clicks: ", before["ndcg@10"])
print("unbiased:   ", after["ndcg@10"])
print(after.minus(before))

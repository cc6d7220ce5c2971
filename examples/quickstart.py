"""The example of the README: trees on raw clicks, and on clicks corrected for position bias."""

import untilt as ut

train, test = ut.make_judged(n_queries=400, n_features=20, seed=0).split(0.7, seed=0)
made = ut.simulate(train, protocol="harvest", n_sessions=40_000, seed=0)
log = made.log  # yours: ut.read_log("clicks.parquet", documents="documents.parquet")

bias = ut.AllPairs().fit(log).bias_  # how often people look at each position, with intervals
raw = ut.LambdaMART(n_trees=50, seed=0).fit(log)
corrected = ut.LambdaMART(ut.PRS(bias), n_trees=50, seed=0).fit(log)

before, after = ut.evaluate(test, raw, "ndcg@10"), ut.evaluate(test, corrected, "ndcg@10")
print(after.minus(before))

"""True NDCG@10 of rankers trained on small simulated logs."""

import untilt as ut

SMALL = {"n_features": 20, "mean_docs": 14}
TREES = {"n_trees": 60, "n_leaves": 15, "learning_rate": 0.1, "n_threads": 1}


def made_log(seed: int, *, n_queries: int = 300, sessions_per_query: int = 50, protocol="dla"):
    """A log of so many queries."""
    judged = ut.make_judged(n_queries, seed=seed, **SMALL)
    return ut.simulate(
        judged, protocol, sessions_per_query=sessions_per_query, seed=seed, n_threads=1
    )


def trees(weighting=None, **options):
    """LambdaMART, small."""
    return ut.LambdaMART(weighting, **{**TREES, **options})


def true_ndcg(ranker, seed: int) -> float:
    """On 300 judged queries that gave no clicks."""
    test = ut.make_judged(300, seed=10_000 + seed, **SMALL)
    return ut.evaluate(test, ranker.predict(test.features), metrics=["ndcg@10"])["ndcg@10"].value

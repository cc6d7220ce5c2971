"""A large network on few queries learns single clicks by heart, epoch by epoch."""

import numpy as np
from _bands import curves_over, over_seeds

import untilt as ut

SEEDS, EPOCHS = range(3), 50
NETWORKS = {"default network": {}, "default network, l2=0.01": {"l2": 0.01}}


def draw():
    """NDCG@10 on other queries after each epoch, beside LambdaMART."""
    test, bias = ut.make_judged(n_queries=300, n_features=20, seed=1000), ut.EyeTracking()
    found = {name: [] for name in ("LambdaMART", *NETWORKS)}
    for seed in SEEDS:
        judged = ut.make_judged(n_queries=200, n_features=20, seed=seed)
        log = ut.simulate(judged, "dla", sessions_per_query=100, seed=seed).log
        options = {"epochs": EPOCHS, "early_stopping": EPOCHS, "batch_size": 64, "seed": seed}
        for name, choice in NETWORKS.items():
            network = ut.NeuralRanker(ut.PRS(bias), **options, **choice).fit(log, valid=test)
            found[name].append(network.watched_)
        trees = ut.LambdaMART(ut.PRS(bias), n_trees=100, n_threads=1, seed=seed).fit(log)
        score = ut.evaluate(test, trees.predict(test.features), metrics=["ndcg@10"])["ndcg@10"]
        found["LambdaMART"].append(np.full(EPOCHS, score.value))
    epochs = np.arange(1, EPOCHS + 1)
    return curves_over(
        {name: over_seeds(epochs, each) for name, each in found.items()},
        title="On few queries an unpenalised network learns clicks by heart",
        subtitle="200 queries, 100 sessions each, 300 other queries to test; line and band: mean, "
        "lowest and highest of three logs",
        x_title="epochs",
        value_title="NDCG@10 by labels",
    )

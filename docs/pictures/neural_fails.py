"""On few queries a network learns single clicks by heart; a penalty and held-out clicks help."""

import numpy as np
from _bands import curves_over, over_seeds

import untilt as ut

SEEDS, EPOCHS = range(3), 50


def kept(log, test, bias, options):
    """NDCG@10 of the network that the defaults would keep after each epoch."""
    judged = ut.NeuralRanker(ut.PRS(bias), **options).fit(log)  # sets queries aside, by this split
    train, _ = log.split(0.8, seed=options["seed"])
    watched = {**options, "early_stopping": EPOCHS}
    truth = ut.NeuralRanker(ut.PRS(bias), **watched).fit(train, valid=test).watched_
    likelihood = np.array(judged.watched_)
    return [truth[np.argmax(likelihood[: epoch + 1])] for epoch in range(EPOCHS)]


def draw():
    """NDCG@10 on other queries after each epoch, beside LambdaMART."""
    test, bias = ut.make_judged(n_queries=300, n_features=20, seed=1000), ut.EyeTracking()
    found = {"LambdaMART": [], "without penalty, last epoch": [], "default network": []}
    for seed in SEEDS:
        judged = ut.make_judged(n_queries=200, n_features=20, seed=seed)
        log = ut.simulate(judged, "dla", sessions_per_query=100, seed=seed).log
        options = {"epochs": EPOCHS, "batch_size": 64, "seed": seed}
        found["default network"].append(kept(log, test, bias, options))
        plain = ut.NeuralRanker(ut.PRS(bias), l2=0, early_stopping=EPOCHS, **options)
        found["without penalty, last epoch"].append(plain.fit(log, valid=test).watched_)
        trees = ut.LambdaMART(ut.PRS(bias), n_trees=100, n_threads=1, seed=seed).fit(log)
        score = ut.evaluate(test, trees.predict(test.features), metrics=["ndcg@10"])["ndcg@10"]
        found["LambdaMART"].append(np.full(EPOCHS, score.value))
    epochs = np.arange(1, EPOCHS + 1)
    for name, lines in found.items():
        ends = [f"{np.mean([line[at] for line in lines]):.3f}" for at in (9, 19, 49)]
        best = np.mean(lines, axis=0)
        figures = f"epochs 10, 20, 50: {ends}; best {best.max():.3f} at {best.argmax() + 1}"
        print(f"{name}: {figures}")  # noqa: T201  the figures of docs/rankers.md
    return curves_over(
        {name: over_seeds(epochs, each) for name, each in found.items()},
        title="On few queries an unpenalised network overfits the clicks",
        subtitle="200 queries, 100 sessions each, 300 other queries to test; line and band: mean, "
        "lowest and highest of three logs",
        x_title="epochs",
        value_title="NDCG@10 by labels",
    )

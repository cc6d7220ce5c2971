"""Optuna searches the options of a ranker by the counterfactual estimate on held-out queries.

    pip install untilt optuna
    python examples/optuna_search.py [number of trials]

The queries are divided into three parts: one to train on, one to choose by, one to judge by. The
best of many noisy values is partly luck: the gain that won the search is too high. The search never
saw the third part, so the interval there is honest.
"""

import sys
from collections.abc import Mapping

import optuna

import untilt as ut

TREES = {"n_trees": 60, "n_threads": 1}


def ranker_of(options: Mapping[str, float], bias: ut.PositionBias) -> ut.LambdaMART:
    """The ranker that has the options of a trial."""
    rest = {name: value for name, value in options.items() if name != "clip"}
    return ut.LambdaMART(ut.IPS(bias, clip=options["clip"]), **TREES, **rest)


def search(
    train: ut.ClickLog, valid: ut.ClickLog, bias: ut.PositionBias, *, n_trials: int
) -> optuna.Study:
    """Trials whose value is the estimated gain in DCG@10 over the shown order, on `valid`."""

    def gain(trial: optuna.Trial) -> float:
        options = {
            "clip": trial.suggest_float("clip", 0.0, 0.5),
            "learning_rate": trial.suggest_float("learning_rate", 0.01, 0.3, log=True),
            "n_leaves": trial.suggest_int("n_leaves", 4, 63, log=True),
        }
        systems = {"shown": ut.shown, "trial": ranker_of(options, bias).fit(train)}
        return ut.estimate(valid, systems, bias, unshown=False).compare("shown")["trial"].value

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(gain, n_trials=n_trials)
    return study


def main(n_trials: int = 20) -> None:
    """Search on two thirds of the queries of a made log, and judge on the last third."""
    judged = ut.make_judged(n_queries=600, n_features=12, seed=0)
    log = ut.simulate(judged, protocol="harvest", n_sessions=60_000, seed=0).log
    rest, test = log.split(2 / 3, by="query", seed=0)
    train, valid = rest.split(1 / 2, by="query", seed=0)
    bias = ut.AllPairs().fit(train).bias_

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    best = search(train, valid, bias, n_trials=n_trials).best_trial
    print(f"best of {n_trials} trials: {best.params}")
    print(f"gain over the shown order where it was chosen, too high: {best.value:+.4f}")
    print("on queries that the search never saw:")
    systems = {
        "shown": ut.shown,
        "default options": ut.LambdaMART(ut.IPS(bias), **TREES).fit(train),
        "best trial": ranker_of(best.params, bias).fit(train),
    }
    judgement = ut.estimate(test, systems, bias, unshown=False)
    print(judgement.compare("shown"))
    print(judgement.compare("default options"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

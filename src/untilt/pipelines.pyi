# Written by `make stub`.
from untilt.rankers.trees.own_pipeline import catboost_pool as catboost_pool
from untilt.rankers.trees.own_pipeline import click_objective as click_objective
from untilt.rankers.trees.own_pipeline import lightgbm_dataset as lightgbm_dataset
from untilt.rankers.trees.own_pipeline import lightgbm_objective as lightgbm_objective
from untilt.rankers.trees.own_pipeline import objective as objective
from untilt.rankers.trees.own_pipeline import xgboost_matrix as xgboost_matrix
from untilt.rankers.trees.own_pipeline import xgboost_objective as xgboost_objective
